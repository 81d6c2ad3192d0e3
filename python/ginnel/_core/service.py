"""The embedded service."""

from __future__ import annotations

from .. import _native
from ..exceptions import ConfigError
from .client import RemoteClient, takes_options
from .in_process import InProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from os import PathLike
    from pathlib import Path
    from typing import Any, Literal, TypeVar
    from urllib.request import OpenerDirector

    from .._native import Snapshot
    from ..service_settings import ServiceSettings
    from ..traffic import TrafficEvents
    from .client_asyncio import AsyncRemoteClient
    from .service_calls import ServiceCall

    _Init = TypeVar("_Init", bound=Callable[..., None])


NO_SETTINGS = frozenset({"config", "settings", "seed", "begin"})
"""The arguments that are no settings of their own."""

KEPT_CALLS = 10_000
"""How many calls `Service.calls` has at most."""


def _keeps_settings(method: _Init) -> _Init:
    """A constructor that keeps the settings among the arguments that its caller has passed.

    The core knows each by its name, from the row of the setting.
    """
    whole = method.__wrapped__  # type: ignore[attr-defined]
    names = whole.__code__.co_varnames[1 : whole.__code__.co_argcount]

    def kept(self: Service, *arguments: Any, **options: Any) -> None:
        passed = dict(zip(names, arguments, strict=False)) | options
        self._keywords = {name: passed[name] for name in passed if name not in NO_SETTINGS}
        method(self, *arguments, **options)

    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(kept, name, getattr(method, name))
    kept.__wrapped__ = whole  # type: ignore[attr-defined]
    return kept  # type: ignore[return-value]


class Service(InProcess):
    """The management API, served from this process until `stop` or the end of a `with` block."""

    _keywords: dict[str, object]
    """The settings among the caller's arguments, until the service starts; they may be secrets."""

    @_keeps_settings
    @takes_options
    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        store: str | None = None,
        api_key: str | None = None,
        authtoken: str | None = None,
        admin_key_file: str | PathLike[str] | None = None,
        public_url: str | None = None,
        rate_limit: tuple[int, float] | None = None,
        agent_port: int | None = 0,
        edge_host: str = "127.0.0.1",
        http_port: int | None = 0,
        https_port: int | None = 0,
        base_domain: str | None = None,
        tls_endpoints: bool = False,
        certificate: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
        reserved_domains_only: bool = False,
        trusted_proxies: Sequence[str] = (),
        ambiguous_paths: Literal["auto", "reject", "normalize", "preserve"] = "auto",
        max_connections: int | None = None,
        max_connections_per_address: int | None = None,
        max_api_connections: int | None = None,
        max_agent_connections: int | None = None,
        heartbeat: tuple[float, float] = (10.0, 15.0),
        reserve: float = 30.0,
        admin_addr: str | None = None,
        config: str | PathLike[str] | None = None,
        settings: ServiceSettings | None = None,
        seed: int | None = None,
        begin: datetime | None = None,
    ) -> None:
        """Start a service.

        What is passed wins over `settings`, and these win over the file of `config`. Variables of
        the environment are not read.

        Args:
            path: The database, a SQLite file; None for one in memory that ends with the service.
                Later problems with the file are reported to the logger `ginnel`.
            store: The database on PostgreSQL in place of a file, `postgres://user@host/name`. Its
                password comes from `PGPASSWORD`, or from a file in the form of `.pgpass`.
            host: The address to listen on; only this machine by default.
            port: The port to listen on; 0 for any that is free.
            api_key: The admin key of a new database, or of an existing one that holds it; made if
                left out.
            authtoken: The authtoken for agents of a new database, or of an existing one that holds
                it; made if left out.
            admin_key_file: A file that holds the admin key, in place of `api_key`.
            public_url: The address to put into `uri` fields, where it is not the listener's.
            rate_limit: How many requests an account may make in how many seconds; none by default.
            agent_port: The port for agents; 0 for any that is free, None to take none.
            edge_host: The address that public traffic comes to; only this machine by default.
            http_port: The port for public HTTP; 0 for any that is free, None for none.
            https_port: The port for public HTTPS; 0 for any that is free, None for no TLS.
            base_domain: The domain below which tunnels get names; without one, each gets a port.
            tls_endpoints: Whether the ports of tunnels that ask for HTTPS speak TLS.
            certificate: A certificate and its key, PEM files, for the names that it covers.
            reserved_domains_only: Whether edges and tunnels may use only domains that their owner
                has reserved.
            trusted_proxies: The proxies in front of the service, CIDRs or addresses: whoever comes
                from one of them is the visitor that its `X-Forwarded-For` names. None by default.
            ambiguous_paths: What is done with a request whose path holds an encoded slash, a
                backslash or a dot segment, where a route or a rule looks at paths: `"reject"`
                answers 400, `"normalize"` forwards the path that is most likely meant, and
                `"preserve"` forwards it as it came, unless a server could read it as the path of
                another route or rule. `"auto"` rejects where rules look at paths, and preserves
                where only routes do.
            max_connections: The most connections of visitors at once; more are closed at once. What
                the process's limit of open files leaves by default, at most 16,384.
            max_connections_per_address: The most of them from one address, or from one /64 of IPv6;
                trusted proxies may hold all. A quarter by default, at least 500 and at most 1,024
                where there is room.
            max_api_connections: The most connections to the management API at once; an eighth of
                the process's limit of open files by default, at most 4,096. One address may hold
                three quarters of them.
            max_agent_connections: The most connections of agents at once, as above; the last
                quarter is for addresses that an agent is connected from.
            heartbeat: The interval of heartbeats in seconds, and how late one may be: an agent that
                sent nothing for one and a half intervals is asked for one, any other each six.
            reserve: Seconds for which the addresses of an agent that is gone are kept for it. After
                a restart of the service they are kept for 30 days, at most 1,000 of an account.
            admin_addr: Where `/healthz`, `/readyz` and `/metrics` listen, `host:port`; port 0 picks
                a free port. By default nowhere, and then nothing is counted.
            config: A configuration file, as `ginnel serve` reads it. What concerns the command
                itself is not used: logs, `json`, `events` and `grace`; the files of logs need not
                exist. Certificates, keys and tokens that it names must be readable on this machine,
                also where an argument takes the place of that setting; the folders of the database
                and of backups must exist where they are used. Nothing is started otherwise.
            settings: What else can be set, under the keys of that file: timeouts and limits,
                certificates by ACME, backups, how long audit events are kept. Such as
                `{"edge": {"idle_timeout": 120}, "acme": {"directory": "letsencrypt"}}`. Durations
                are seconds, a `timedelta` or text such as `"5m"`; sizes are bytes or `"64KiB"`.
            seed: For tests: identifiers, tokens, names of tunnels and times of resources are the
                same in each run that makes the same calls in the same order. Tokens can be guessed
                then. Ports are whatever is free.
            begin: The time of the clock with a `seed` until `advance`; 2026-01-01 in UTC unless
                given.

        Raises:
            ConfigError: An option is unusable, or the configuration names files that cannot be
                read; the message names each.
            ServiceAddressError: An address is in use, or cannot be listened on.
            ServiceStoreError: The database cannot be used; its file is left as it was.
            ServiceError: Something else; the message says what.
        """
        from .running import Attachment

        self._logs = Attachment(self)
        self._service = _native.Service(
            vars(self).pop("_keywords"),
            config,
            None if settings is None else _as_json(settings),
            _origin(seed, begin),
            KEPT_CALLS,
        )
        self._rehearsal = _native.Rehearsal(self._service)
        # To return to; other databases may be large, and are not ours to empty.
        self._first = self.snapshot() if self._service.in_memory else None

    @property
    def url(self) -> str:
        """The address of the API."""
        return self._service.url

    @property
    def api_key(self) -> str | None:
        """The admin key: the one given, or the one made for a new database; else None.

        A key that was made is kept beside the database, and given again at the next start, until
        the service is stopped for the first time.
        """
        return self._service.api_key

    @property
    def authtoken(self) -> str | None:
        """The authtoken for agents: given, or made for a new database, as `api_key`; else None."""
        return self._service.authtoken

    @property
    def agent_addr(self) -> str | None:
        """Where agents connect to, `host:port`; None when none are taken."""
        return self._service.agent_addr

    @property
    def admin_url(self) -> str | None:
        """The address of `/healthz`, `/readyz` and `/metrics`; None without `admin_addr`."""
        address = self._service.admin_addr
        return None if address is None else f"http://{address}"

    @property
    def is_running(self) -> bool:
        """True until `stop`."""
        return self._service.is_running

    @property
    def http_url(self) -> str | None:
        """The address for public HTTP; which edge answers depends on the `Host` header."""
        address = self._service.http_address
        return None if address is None else f"http://{address}"

    @property
    def https_url(self) -> str | None:
        """The address for public HTTPS; which edge answers depends on the host asked for."""
        address = self._service.https_address
        return None if address is None else f"https://{address}"

    @property
    def ca_pem(self) -> str:
        """The certificate that visitors of HTTPS must trust, as PEM."""
        return self._service.ca_pem

    @property
    def ca_path(self) -> Path | None:
        """The file that holds `ca_pem`, beside the database; None for a database in memory."""
        return self._service.ca_path

    def edge_url(self, host: str, path: str = "/") -> str:
        """The address of an edge by its host: HTTPS, or HTTP where there is no TLS.

        No name needs to resolve for `opener`, nor for curl with `--connect-to ::127.0.0.1:PORT`.
        Letters outside ASCII in `host` become their `xn--` form.

        Raises:
            ValueError: `host` is neither a host name nor an IP address, or the service serves no
                public HTTP.
        """
        address, scheme = self._service.https_address, "https"
        if address is None:
            address, scheme = self._service.http_address, "http"
        if address is None:
            raise ValueError("the service serves no public HTTP: http_port and https_port are None")
        return _native.with_ascii_host(f"{scheme}://{host}:{address.rpartition(':')[2]}") + path

    def use_certificate(self, chain: str | PathLike[str], key: str | PathLike[str]) -> None:
        """Show a certificate from now on for the names that it covers; connections stay.

        Args:
            chain: The certificates, a PEM file, the leaf first.
            key: The key of the leaf, a PEM file.

        Raises:
            ServiceError: A file cannot be used; what was shown before stays.
        """
        self._service.use_certificate(chain, key)

    def opener(self) -> OpenerDirector:
        """A client for the edges: it finds every host here, and trusts the service's authority.

        ```python
        with service.opener().open("https://app.example.test/") as answer:
            print(answer.status, answer.read())
        ```
        """
        from .opener import opener

        return opener(self._service.http_address, self._service.https_address, self.ca_pem)

    def events(self) -> TrafficEvents:
        """What is decided on public traffic from now on, one event for each request.

        ```python
        events = service.events()
        ...
        event = events.get(timeout=5)
        assert (event.status, event.module) == (403, "ip_restriction")
        ```
        """
        from ..traffic import TrafficEvents

        return TrafficEvents(self._service.events())

    def client(self) -> RemoteClient:
        """A client with the admin key."""
        return RemoteClient(self.api_key, base_url=self.url)

    def async_client(self) -> AsyncRemoteClient:
        """An asyncio client with the admin key."""
        from .client_asyncio import AsyncRemoteClient

        return AsyncRemoteClient(self.api_key, base_url=self.url)

    def fail(
        self,
        operation: str | None = None,
        *,
        status: int | None = None,
        times: int | None = 1,
        retry_after: int | None = None,
        delay: float = 0.0,
        cut: bool = False,
    ) -> None:
        """Have calls of the management API fail, to test what a program makes of it.

        ```python
        service.fail("api_keys.create", status=503, times=2, retry_after=1)
        ```

        Faults apply in the order in which they were added, until `times` or `reset`.

        Args:
            operation: The operation, such as `api_keys.get`; None for any.
            status: The status of the response, 400 to 599; without it and without `cut`, calls are
                only delayed.
            times: How many calls fail; None for all.
            retry_after: The seconds that `Retry-After` asks to wait.
            delay: For how many seconds the response is delayed.
            cut: True to break the connection in the middle of the response.

        Raises:
            LookupError: There is no such operation.
            ValueError: Something else is not possible; the message says what.
        """
        self._rehearsal.fail(operation, status, times, retry_after, delay, cut)

    @property
    def calls(self) -> list[ServiceCall]:
        """The calls of the management API so far, oldest first; at most the last 10,000."""
        from .service_calls import read

        return read(self._rehearsal.calls())

    def advance(self, seconds: float) -> None:
        """Set the clock of a service with a `seed` forward.

        It is the clock of what the management API tells: when resources were created, sessions and
        tunnels started. Traffic, timeouts and certificates keep to the system's.

        Raises:
            ConfigError: The service has no `seed`.
        """
        if not self._rehearsal.advance(seconds):
            raise ConfigError("seed is missing: without one, the clock is the system's")

    def snapshot(self) -> Snapshot:
        """What the database holds now, for `restore`."""
        return self._rehearsal.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Make the database hold what it held at the moment of the snapshot.

        What agents have bound is not part of it.
        """
        self._rehearsal.restore(snapshot)

    def reset(self) -> None:
        """Forget faults and calls; a database in memory also holds again what it began with."""
        self._rehearsal.forget()
        if self._first is not None:
            self.restore(self._first)

    def stop(self, grace: float = 10.0) -> None:
        """Stop; requests in flight are answered for `grace` seconds. Stopping twice is fine.

        Ctrl-C, or whatever else the handler of a signal raises, ends the wait: what is in flight is
        cut off, the service has stopped, and the exception goes on to the caller.

        Args:
            grace: Seconds from 0 to 3600.

        Raises:
            ConfigError: `grace` is not from 0 to 3600.
        """
        try:
            self._service.stop(grace)
        finally:
            self._logs.close()

    def __repr__(self) -> str:
        state = "" if self.is_running else ", stopped"
        return f"<Service at {self.url}{state}>"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "url", self.url
        yield "http_url", self.http_url
        yield "https_url", self.https_url
        yield "agent_addr", self.agent_addr
        yield "is_running", self.is_running

    def _repr_html_(self) -> str:
        from .lazy import render

        return render("clients.service", self)


FIRST_DAY = 1_767_225_600_000_000
"""2026-01-01 in UTC, in microseconds since 1970."""


def _origin(seed: int | None, begin: datetime | None) -> tuple[int, int] | None:
    if seed is None:
        if begin is not None:
            raise ConfigError("begin: needs a seed")
        return None
    if not 0 <= seed < 2**64:
        raise ConfigError("seed: must be between 0 and 2**64 - 1")
    if begin is None:
        return seed, FIRST_DAY
    if begin.tzinfo is None:
        raise ConfigError("begin: has no time zone")
    since = round(begin.timestamp() * 1_000_000)
    # What identifiers can tell: seconds in 32 bits, from 2014 on.
    if not 1_400_000_000_000_000 <= since < 5_694_967_296_000_000:
        raise ConfigError("begin: must be between 2014-05-13 and 2150-06-19")
    return seed, since


def _as_json(settings: ServiceSettings) -> str:
    from json import dumps

    if not hasattr(settings, "items"):
        raise ConfigError("settings: must be a mapping")
    return dumps(_plain(settings, "settings"))


def _plain(value: Any, name: str) -> object:
    """A value of the settings as the file has it."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        # As text it keeps its digits.
        return str(value)
    if hasattr(value, "total_seconds"):
        return str(value.total_seconds())
    if hasattr(value, "__fspath__"):
        return str(value)
    if hasattr(value, "items"):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, name) for item in value]
    kind = type(value).__name__
    raise ConfigError(f"{name}: {kind} is no type of a setting")
