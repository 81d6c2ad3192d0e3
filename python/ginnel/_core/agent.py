"""The agent in this process."""

from __future__ import annotations

from .. import _native
from ..exceptions import AgentError, ConfigError
from .client import takes_options
from .in_process import InProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from .._agent_api.client import AgentClient
    from .._agent_api.client_async import AsyncAgentClient
    from .service import Service


class Agent(InProcess):
    """An agent in this process, until `stop` or the end of a `with` block.

    It connects to a service, forwards the visitors of its tunnels to local services, captures their
    requests, and serves the agent API.
    """

    @takes_options
    def __init__(
        self,
        service: Service | None = None,
        *,
        server_addr: str | Sequence[str] | None = None,
        authtoken: str | None = None,
        ca: str | PathLike[str] | None = None,
        proxy_url: str | None = None,
        web_addr: str | None = "127.0.0.1:0",
        web_allow_hosts: Sequence[str] = (),
        unix_socket_roots: Sequence[str | PathLike[str]] = (),
        inspect_db_size: int = 0,
        inspect_body_limit: int | None = None,
        inspect_file: str | PathLike[str] | None = None,
        inspect_file_size: int = 50 << 20,
        inspect_file_age: float = 7 * 86_400,
        metadata: str = "",
        heartbeat: tuple[float, float] = (10.0, 15.0),
        remote_management: bool = True,
        admin_addr: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        """Start an agent and wait until it is online.

        Args:
            service: The service in this process to connect to; it brings address, authtoken and
                certificate.
            server_addr: Where another service accepts agents, `host:port`; several for the nodes
                of a cluster.
            authtoken: The authtoken for that service; default: `GINNEL_AUTHTOKEN`.
            ca: A PEM file of the certificates to trust instead of the system's.
            proxy_url: Proxy on the way to the service, `scheme://[user:password@]host[:port]`;
                default: `https_proxy` or `all_proxy`, unless `no_proxy` exempts the service.
            web_addr: Where the agent API listens, `host:port`; port 0 picks a free port; ""
                is 127.0.0.1:4040 or one of the nine ports after it; None switches it off.
            web_allow_hosts: Hosts that the agent API answers to beside those of this machine: an
                address, a network, a name, or `.` and the end of names.
            unix_socket_roots: Folders below which callers of the agent API may forward to Unix
                sockets, as in `addr="unix:/run/app.sock"`. None by default: the agent API has no
                key, so every user of this machine could reach the sockets of this process.
            inspect_db_size: How many bytes of captured requests are kept; 0 for 50 MB, -1 to
                capture nothing.
            inspect_body_limit: Maximum length of a body that is captured whole, in bytes; default:
                10 MiB, or a fifth of `inspect_db_size` if that is more. Of a longer one, the
                beginning is kept, and it cannot be replayed. Both bodies of a request take three
                quarters of `inspect_db_size` at most.
            inspect_file: A file that captured requests survive a restart in; only its owner may
                read it.
            inspect_file_size: How many bytes that file keeps.
            inspect_file_age: Seconds that it keeps requests that are not pinned.
            metadata: Free text that the management API shows.
            heartbeat: Seconds between two heartbeats, and how late one may be.
            remote_management: Whether the management API may stop and restart the agent.
            admin_addr: Where `/healthz`, `/readyz` and `/metrics` listen, `host:port`; port 0 picks
                a free port. Nowhere by default.
            timeout: Seconds to wait until it is online.

        Raises:
            ConfigError: An option is missing or unusable; the message names it.
            AgentError: The agent cannot start, is refused, or is not online in time.
        """
        pem: str | None = None
        closed: list[str] = []
        if service is not None:
            server_addr = server_addr or service.agent_addr
            authtoken = authtoken or service.authtoken
            pem = None if ca else service.ca_pem
            closed = [service.url.removeprefix("http://")]
        if authtoken is None:
            from os import environ

            authtoken = environ.get("GINNEL_AUTHTOKEN")
        server_addrs = [server_addr] if isinstance(server_addr, str) else list(server_addr or ())
        if not server_addrs or not all(server_addrs):
            raise ConfigError("server_addr is missing; pass it, or a service that accepts agents")
        if not authtoken:
            raise ConfigError("authtoken is missing; pass it or set GINNEL_AUTHTOKEN")
        from .running import Attachment

        self._logs = Attachment(self)
        self._agent = _native.Agent(
            {
                "server_addrs": server_addrs,
                "authtoken": authtoken,
                "ca_pem": pem,
                "ca_path": ca,
                "proxy_url": proxy_url,
                "web_addr": web_addr,
                "web_allow_hosts": list(web_allow_hosts),
                "unix_socket_roots": list(unix_socket_roots),
                "inspect_db_size": inspect_db_size,
                "inspect_body_limit": inspect_body_limit,
                "inspect_file": inspect_file,
                "inspect_file_size": inspect_file_size,
                "inspect_file_age": inspect_file_age,
                "metadata": metadata,
                "heartbeat": heartbeat,
                "remote_management": remote_management,
                "closed": closed,
                "admin_addr": admin_addr,
            }
        )
        state, problem = self._agent.wait_online(timeout)
        if state != "online":
            self.stop()
            raise AgentError(problem or f"the agent is {state} after {timeout:g} s")

    @property
    def url(self) -> str | None:
        """The address of the agent API, without a path; None where it is off."""
        return self._agent.url

    @property
    def admin_url(self) -> str | None:
        """The address of `/healthz`, `/readyz` and `/metrics`; None without `admin_addr`."""
        address = self._agent.admin_addr
        return None if address is None else f"http://{address}"

    @property
    def state(self) -> str:
        """The state of the connection to the service: `online`, `reconnecting` or `offline`."""
        return self._agent.state()[0]

    @property
    def is_running(self) -> bool:
        """True until `stop`."""
        return self._agent.is_running

    def client(self) -> AgentClient:
        """A client of this agent's API."""
        from .._agent_api.client import AgentClient

        return AgentClient(self._base_url())

    def async_client(self) -> AsyncAgentClient:
        """An asyncio client of this agent's API."""
        from .._agent_api.client_async import AsyncAgentClient

        return AsyncAgentClient(self._base_url())

    def _base_url(self) -> str:
        if self.url is None:
            raise ConfigError("web_addr is None: this agent serves no API")
        return f"{self.url}/api"

    def stop(self, grace: float = 10.0) -> None:
        """Stop: take no more visitors, and serve those in flight for at most `grace` seconds.

        The service is told first, so that it sends new visitors elsewhere. WebSockets are closed at
        once, with the code 1001. Stopping twice is fine.

        Ctrl-C, or whatever else the handler of a signal raises, ends the wait: requests in flight
        are cut off, the agent has stopped, and the exception goes on to the caller.

        Args:
            grace: Seconds from 0 to 3600.

        Raises:
            ConfigError: `grace` is not from 0 to 3600.
        """
        try:
            self._agent.stop(grace)
        finally:
            self._logs.close()

    def __repr__(self) -> str:
        return f"<Agent at {self.url}, {self.state}>"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "url", self.url
        yield "state", self.state

    def _repr_html_(self) -> str:
        from .lazy import render

        return render("clients.agent", self)
