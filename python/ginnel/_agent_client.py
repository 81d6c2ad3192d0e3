"""The clients of the agent API."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from time import monotonic, sleep

from ._client import _Awaited, _Blocking, _Client, copied, hooks, takes_options
from ._native import Core
from ._progress import counting
from ._resource import cached_property
from .exceptions import AgentNotRunningError, APIError, APITimeoutError, NotFoundError
from .local.requests import AsyncRequests, Requests
from .local.root import Root
from .local.status import Status
from .local.tunnels import AsyncTunnels, Tunnels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Any, Self, TypeAlias

    from matplotlib.figure import Figure

    from ._client import _Path
    from .events import Event
    from .local._raw import AsyncRawAgentResources, RawAgentResources
    from .local.requests import CapturedRequest
    from .local.tunnels import AgentTunnel

    _Hook: TypeAlias = Callable[[Event], object]
    _Predicate: TypeAlias = Callable[[CapturedRequest], object]

PORTS = range(4040, 4050)
"""Where agents listen by default."""


class AgentTunnels(Tunnels):
    """Tunnels of the agent."""

    def get(self, name: str) -> AgentTunnel:
        """Fetch one running tunnel.

        Args:
            name: The name of the tunnel.

        `GET /tunnels/{name}`
        """
        try:
            return super().get(name)
        except NotFoundError as error:
            self._name_nearest(error, name)
            raise

    def stop(self, name: str) -> None:
        """Stop a tunnel and close its connections; its captured requests stay.

        Args:
            name: The name of the tunnel.

        `DELETE /tunnels/{name}`
        """
        try:
            super().stop(name)
        except NotFoundError as error:
            self._name_nearest(error, name)
            raise

    def _name_nearest(self, error: NotFoundError, name: str) -> None:
        """Have the error tell which tunnel was likely meant, if the agent says soon which run."""
        with suppress(APIError):
            running = Tunnels(self._core.within(SECONDS_FOR_NAMES)).list().to_list()
            error.args = (f"{error}{_nearest(name, running)}",)

    def open(
        self, *, addr: str | int, proto: str = "http", name: str, **definition: Any
    ) -> AbstractContextManager[AgentTunnel]:
        """Start a tunnel for a `with` block, and stop it at its end.

        Args:
            addr: Where to forward to: a port, `host:port` or a URL.
            proto: `http`, `tcp` or `tls`.
            name: The name; unique among the running tunnels, at most 255 bytes.
            definition: What else `start` takes.
        """
        from contextlib import contextmanager

        @contextmanager
        def opened() -> Iterator[AgentTunnel]:
            tunnel = self.start(addr=addr, proto=proto, name=name, **definition)
            try:
                yield tunnel
            finally:
                for started in _names(tunnel, definition):
                    with suppress(*GONE):
                        Tunnels.stop(self, started)

        return opened()


class AsyncAgentTunnels(AsyncTunnels):
    """Tunnels of the agent."""

    async def get(self, name: str) -> AgentTunnel:
        """Fetch one running tunnel.

        Args:
            name: The name of the tunnel.

        `GET /tunnels/{name}`
        """
        try:
            return await super().get(name)
        except NotFoundError as error:
            await self._name_nearest(error, name)
            raise

    async def stop(self, name: str) -> None:
        """Stop a tunnel and close its connections; its captured requests stay.

        Args:
            name: The name of the tunnel.

        `DELETE /tunnels/{name}`
        """
        try:
            await super().stop(name)
        except NotFoundError as error:
            await self._name_nearest(error, name)
            raise

    async def _name_nearest(self, error: NotFoundError, name: str) -> None:
        """Have the error tell which tunnel was likely meant, if the agent says soon which run."""
        with suppress(APIError):
            running = await AsyncTunnels(self._core.within(SECONDS_FOR_NAMES)).list().to_list()
            error.args = (f"{error}{_nearest(name, running)}",)

    def open(
        self, *, addr: str | int, proto: str = "http", name: str, **definition: Any
    ) -> AbstractAsyncContextManager[AgentTunnel]:
        """Start a tunnel for an `async with` block, and stop it at its end.

        Args:
            addr: Where to forward to: a port, `host:port` or a URL.
            proto: `http`, `tcp` or `tls`.
            name: The name; unique among the running tunnels, at most 255 bytes.
            definition: What else `start` takes.
        """
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def opened() -> AsyncIterator[AgentTunnel]:
            tunnel = await self.start(addr=addr, proto=proto, name=name, **definition)
            try:
                yield tunnel
            finally:
                for started in _names(tunnel, definition):
                    with suppress(*GONE):
                        await AsyncTunnels.stop(self, started)

        return opened()


GONE = (NotFoundError, AgentNotRunningError)
"""What says that a tunnel does not run any more, somebody else having stopped it or its agent."""


SECONDS_FOR_NAMES = 1.0
"""How long an error may take to find out which tunnels run."""


def _nearest(name: str, running: Iterable[AgentTunnel]) -> str:
    from ._body import cut, visible
    from ._spelling import did_you_mean

    names = [tunnel.name for tunnel in running]
    if told := did_you_mean(name, names):
        return told
    return visible(cut(f"; running: {', '.join(names)}")) if names else "; no tunnel is running"


def _names(tunnel: AgentTunnel, definition: Mapping[str, Any]) -> list[str]:
    """The tunnels that a definition has started: one for each public scheme."""
    both = len(definition.get("schemes") or ()) > 1 or definition.get("bind_tls") == "both"
    return [tunnel.name, f"{tunnel.name} (http)"] if both else [tunnel.name]


class _Wait:
    """Something that is waited for, by looking at it again and again."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._started = monotonic()

    @property
    def left(self) -> float:
        """Seconds until the end of the wait."""
        return self._started + self.timeout - monotonic()

    @property
    def pause(self) -> float:
        """Seconds until the next look: longer for who has waited for long."""
        return min(max(0.01, (self.timeout - self.left) / 10), 0.1)


class _Search(_Wait):
    """Finds the oldest answered request that matches; each is shown to the predicate once."""

    FEW, MOST = 5, 1000
    """How many requests are asked for: when little is expected to be new, and otherwise."""
    MAX_LISTED = 5
    """How many of the requests that did not match the error for a timeout lists."""

    def __init__(
        self, predicate: _Predicate | None, timeout: float, count: Callable[[int], object]
    ) -> None:
        super().__init__(timeout)
        self._count = count
        self.limit = self.MOST
        self._predicate = predicate
        self._seen: set[str] = set()
        self._listed: list[str] = []
        self._pending: set[str] = set()
        self._raised: list[Exception] = []

    def look(self, newest_first: list[CapturedRequest]) -> CapturedRequest | None:
        """The request that was searched for, if it is among these."""
        listed = {request.id for request in newest_first}
        partial = len(newest_first) >= self.limit < self.MOST
        if partial and (self._seen.isdisjoint(listed) or not self._pending <= listed):
            # There may be more that is new behind these.
            self.limit = self.MOST
            return None
        self.limit = self.FEW
        self._pending = {request.id for request in newest_first if request.response is None}
        for request in reversed(newest_first):
            if request.id in self._seen or request.response is None:
                continue
            self._seen.add(request.id)
            self._count(1)
            if self._matches(request):
                return request
            if len(self._listed) < self.MAX_LISTED:
                from ._lines import exchange

                self._listed.append(exchange(request))
        return None

    def _matches(self, request: CapturedRequest) -> bool:
        """What the predicate says; where it raises, the request is not the one it is meant for."""
        if self._predicate is None:
            return True
        try:
            return bool(self._predicate(request))
        except Exception as error:
            self._raised.append(error)
            return False

    def late(self) -> APITimeoutError:
        """The error for a search without success."""
        told = [f"no captured request matched within {self.timeout:g} s", self._told_of_seen()]
        if self._pending:
            told.append(f"{len(self._pending)} without a response yet")
        if self._raised:
            kinds = Counter(type(error).__name__ for error in self._raised)
            raised = ", ".join(f"{kind} on {count}" for kind, count in kinds.items())
            told.append(f"predicate raised {raised}")
        return APITimeoutError("; ".join(told))

    @property
    def raised(self) -> Exception | None:
        """What the predicate raised first."""
        return self._raised[0] if self._raised else None

    def _told_of_seen(self) -> str:
        listed = [*self._listed, *(["…"] if len(self._seen) > len(self._listed) else [])]
        return f"saw {len(self._seen)}{': ' if listed else ''}{', '.join(listed)}"


class AgentRequests(Requests):
    """Captured requests."""

    def plot(
        self,
        captured: Iterable[CapturedRequest] | None = None,
        *,
        limit: int = 200,
        tunnel_name: str | None = None,
    ) -> Figure:
        """Draw how long requests took and what was answered, as a figure; needs `matplotlib`.

        A notebook shows it; elsewhere there is `savefig`.

        Args:
            captured: Requests that were fetched before; else the last ones are fetched.
            limit: How many to fetch at most.
            tunnel_name: Only those of this tunnel.

        Raises:
            ImportError: matplotlib is not installed (`pip install ginnel[plot]`).
        """
        from ._figure import figure

        if captured is None:
            captured = self.list(limit=limit, tunnel_name=tunnel_name).to_list()
        return figure(captured)

    def wait_for(
        self,
        predicate: _Predicate | None = None,
        *,
        tunnel_name: str | None = None,
        timeout: float = 10.0,
        progress: bool = False,
    ) -> CapturedRequest:
        """Wait for a captured request that has been answered; the oldest that matches.

        Requests that are there already count, so nothing is missed between a visit and this call.

        Args:
            predicate: Called with each request once; None takes any. Where it raises an exception,
                the request does not match, and the error for a timeout says so.
            tunnel_name: Only requests of this tunnel.
            timeout: Seconds to wait.
            progress: Count the requests that were looked at on stderr meanwhile.

        Raises:
            APITimeoutError: None matched in time.
        """
        with counting(progress, "captured requests") as count:
            return self._wait(_Search(predicate, timeout, count), tunnel_name)

    def _wait(self, search: _Search, tunnel_name: str | None) -> CapturedRequest:
        while True:
            try:
                within = Requests(self._core.within(search.left))
                listed = within.list(limit=search.limit, tunnel_name=tunnel_name).to_list()
            except APITimeoutError as error:
                raise search.late() from search.raised or error
            if found := search.look(listed):
                return found
            if search.left <= 0:
                raise search.late() from search.raised
            sleep(search.pause)


class AsyncAgentRequests(AsyncRequests):
    """Captured requests."""

    async def plot(
        self,
        captured: Iterable[CapturedRequest] | None = None,
        *,
        limit: int = 200,
        tunnel_name: str | None = None,
    ) -> Figure:
        """Draw how long requests took and what was answered, as a figure; needs `matplotlib`.

        A notebook shows it; elsewhere there is `savefig`.

        Args:
            captured: Requests that were fetched before; else the last ones are fetched.
            limit: How many to fetch at most.
            tunnel_name: Only those of this tunnel.

        Raises:
            ImportError: matplotlib is not installed (`pip install ginnel[plot]`).
        """
        from ._figure import figure

        if captured is None:
            captured = await self.list(limit=limit, tunnel_name=tunnel_name).to_list()
        return figure(captured)

    async def wait_for(
        self,
        predicate: _Predicate | None = None,
        *,
        tunnel_name: str | None = None,
        timeout: float = 10.0,
        progress: bool = False,
    ) -> CapturedRequest:
        """Wait for a captured request that has been answered; the oldest that matches.

        Requests that are there already count, so nothing is missed between a visit and this call.

        Args:
            predicate: Called with each request once; None takes any. Where it raises an exception,
                the request does not match, and the error for a timeout says so.
            tunnel_name: Only requests of this tunnel.
            timeout: Seconds to wait.
            progress: Count the requests that were looked at on stderr meanwhile.

        Raises:
            APITimeoutError: None matched in time.
        """
        with counting(progress, "captured requests") as count:
            return await self._wait(_Search(predicate, timeout, count), tunnel_name)

    async def _wait(self, search: _Search, tunnel_name: str | None) -> CapturedRequest:
        import asyncio

        while True:
            try:
                within = AsyncRequests(self._core.within(search.left))
                listed = await within.list(limit=search.limit, tunnel_name=tunnel_name).to_list()
            except APITimeoutError as error:
                raise search.late() from search.raised or error
            if found := search.look(listed):
                return found
            if search.left <= 0:
                raise search.late() from search.raised
            await asyncio.sleep(search.pause)


class _Start(_Wait):
    """Waits until an agent is online."""

    state = "not running"

    def look(self, status: Status) -> Status | None:
        """The status, if it is the one that was waited for."""
        self.state = status.status
        return status if status.status == "online" else None

    def late(self) -> APITimeoutError:
        """The error for an agent that is not online in time."""
        return APITimeoutError(f"after {self.timeout:g} s the agent is {self.state}, not online")


class _AgentOptions(_Client):
    @takes_options
    def __init__(
        self,
        base_url: str | None = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
        ca_bundle: _Path | None = None,
        client_cert: _Path | tuple[_Path, _Path] | None = None,
        allow_http: bool = False,
        app: str | None = None,
        max_connections: int | None = None,
        rate_limit: str | None = None,
        on_request: _Hook | None = None,
        on_response: _Hook | None = None,
        on_retry: _Hook | None = None,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            base_url: Where the agent API is served, with or without `/api`; else
                `GINNEL_AGENT_URL`, else `http://127.0.0.1:4040/api`.
            timeout: Seconds for one attempt, 10 by default; 0 for no limit.
            deadline: Seconds for a call with its retries and pauses, 90 by default; 0 for no limit.
            max_retries: How many times a failed attempt is repeated, 2 by default.
            headers: Headers to add to each request, in place of those of their names. Those of the
                transport are refused, as by `RemoteClient`.
            ca_bundle: A PEM file of certificates to trust instead of the system's, for an agent API
                behind HTTPS; else `GINNEL_CA_BUNDLE`.
            client_cert: A certificate to show to servers that ask for one: a PEM file with
                certificate and key, or a pair of files, `(certificate, key)`; else
                `GINNEL_CLIENT_CERT`, one file.
            allow_http: True to call an agent on another machine unencrypted.
            app: What to put in front of our `User-Agent`, such as "deploy/1.2".
            max_connections: How many connections there are at most, 100 by default. Calls that find
                none wait in the order in which they came.
            rate_limit: How many requests are sent at most in a time, such as "120/60s", retries
                counted; the time is in ms, s, m or h. Calls wait in the order in which they came.
                Copies by `with_options` share the limit.
            on_request: Called with an `Event` before each attempt.
            on_response: Called with an `Event` after each attempt, answered or failed.
            on_retry: Called with an `Event` before the pause that another attempt follows.

        Raises:
            ConfigError: An option is unusable; the message names it.
            TypeError: There is no such option; the message names the nearest one.
        """
        self._options = {
            "agent": True,
            "base_url": base_url,
            "timeout": timeout,
            "deadline": deadline,
            "max_retries": max_retries,
            "headers": copied(headers),
            "ca_bundle": ca_bundle,
            "client_cert": client_cert,
            "allow_http": allow_http,
            "app": app,
            "max_connections": max_connections,
            "rate_limit": rate_limit,
            "hooks": hooks(on_request, on_response, on_retry),
        }
        self._core = Core(self._options)


class AgentClient(_AgentOptions, _Blocking):
    """A client of the agent API whose calls wait for their results.

    Threads may share it. Calls raise the exceptions of `ginnel.exceptions`.
    """

    @cached_property
    def with_raw_response(self) -> RawAgentResources:
        """The same calls, which return a `RawResponse` each."""
        from .local._raw import RawAgentResources

        return RawAgentResources(self._core.raw())

    @cached_property
    def tunnels(self) -> AgentTunnels:
        """Tunnels of the agent."""
        return AgentTunnels(self._core)

    @cached_property
    def requests(self) -> AgentRequests:
        """Captured requests."""
        return AgentRequests(self._core)

    def root(self) -> Root:
        """Fetch the root resource: where the others are."""
        return self._core.call("agent.root.get", Root, ())

    def status(self) -> Status:
        """Fetch the status of the agent and of its session."""
        return self._core.call("agent.status.get", Status, ())

    def wait_ready(self, timeout: float = 10.0) -> Status:
        """Wait until the agent runs and is online; returns its status then.

        Raises:
            APITimeoutError: It is not online in time.
        """
        start = _Start(timeout)
        while True:
            core = self._core.within(start.left)
            try:
                if status := start.look(core.call("agent.status.get", Status, ())):
                    return status
            except AgentNotRunningError:
                start.state = "not running"
            except APITimeoutError as error:
                start.state = "not answering"
                raise start.late() from error
            if start.left <= 0:
                raise start.late()
            sleep(start.pause)

    @classmethod
    def discover(cls) -> Self:
        """The agent that listens at one of the default ports, 4040 to 4049, the lowest first.

        Raises:
            AgentNotRunningError: None does.
        """
        for port in PORTS:
            client = cls(f"http://127.0.0.1:{port}/api", timeout=1, max_retries=0)
            try:
                client.status()
            except APIError:
                client.close()
            else:
                return client.with_options(timeout=10, max_retries=2)
        raise AgentNotRunningError("no agent listens at the ports 4040 to 4049 of this machine")


class AsyncAgentClient(_AgentOptions, _Awaited):
    """A client of the agent API whose calls are awaited.

    Its names are those of AgentClient. It is bound to no event loop. Cancelling a call drops its
    request.
    """

    @cached_property
    def with_raw_response(self) -> AsyncRawAgentResources:
        """The same calls, which return a `RawResponse` each when they are awaited."""
        from .local._raw import AsyncRawAgentResources

        return AsyncRawAgentResources(self._core.raw())

    @cached_property
    def tunnels(self) -> AsyncAgentTunnels:
        """Tunnels of the agent."""
        return AsyncAgentTunnels(self._core)

    @cached_property
    def requests(self) -> AsyncAgentRequests:
        """Captured requests."""
        return AsyncAgentRequests(self._core)

    async def root(self) -> Root:
        """Fetch the root resource: where the others are."""
        return await self._core.start("agent.root.get", Root, ())

    async def status(self) -> Status:
        """Fetch the status of the agent and of its session."""
        return await self._core.start("agent.status.get", Status, ())

    async def wait_ready(self, timeout: float = 10.0) -> Status:
        """Wait until the agent runs and is online; returns its status then.

        Raises:
            APITimeoutError: It is not online in time.
        """
        import asyncio

        start = _Start(timeout)
        while True:
            core = self._core.within(start.left)
            try:
                if status := start.look(await core.start("agent.status.get", Status, ())):
                    return status
            except AgentNotRunningError:
                start.state = "not running"
            except APITimeoutError as error:
                start.state = "not answering"
                raise start.late() from error
            if start.left <= 0:
                raise start.late()
            await asyncio.sleep(start.pause)

    @classmethod
    async def discover(cls) -> Self:
        """The agent that listens at one of the default ports, 4040 to 4049, the lowest first.

        Raises:
            AgentNotRunningError: None does.
        """
        for port in PORTS:
            client = cls(f"http://127.0.0.1:{port}/api", timeout=1, max_retries=0)
            try:
                await client.status()
            except APIError:
                client.close()
            else:
                return client.with_options(timeout=10, max_retries=2)
        raise AgentNotRunningError("no agent listens at the ports 4040 to 4049 of this machine")
