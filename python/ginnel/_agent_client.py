"""The clients of the agent API."""

from __future__ import annotations

from functools import cached_property
from time import monotonic, sleep

from ._asyncio import call
from ._client import _Client
from ._native import Core
from .exceptions import AgentNotRunningError, APIError, APITimeoutError
from .local.requests import AsyncRequests, Requests
from .local.root import Root
from .local.status import Status
from .local.tunnels import AsyncTunnels, Tunnels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType
    from typing import Any, Self, TypeAlias

    from .events import Event
    from .local.requests import CapturedRequest
    from .local.tunnels import AgentTunnel

    _Hook: TypeAlias = Callable[[Event], object]
    _Predicate: TypeAlias = Callable[[CapturedRequest], object]

PAUSE = 0.02
"""Seconds between two looks at something that is waited for."""
PORTS = range(4040, 4050)
"""Where agents listen by default."""


class AgentTunnels(Tunnels):
    """Tunnels of the agent."""

    def open(
        self, *, addr: object, proto: str = "http", name: str, **definition: Any
    ) -> AbstractContextManager[AgentTunnel]:
        """Start a tunnel for a `with` block, and stop it at its end.

        Args:
            addr: Where to forward to: a port, `host:port` or a URL.
            proto: `http`, `tcp` or `tls`.
            name: The name; unique among the running tunnels.
            definition: What else `start` takes.
        """
        from contextlib import contextmanager

        @contextmanager
        def opened() -> Iterator[AgentTunnel]:
            tunnel = self.start(addr=addr, proto=proto, name=name, **definition)
            try:
                yield tunnel
            finally:
                self.stop(tunnel.name)

        return opened()


class AsyncAgentTunnels(AsyncTunnels):
    """Tunnels of the agent."""

    def open(
        self, *, addr: object, proto: str = "http", name: str, **definition: Any
    ) -> AbstractAsyncContextManager[AgentTunnel]:
        """Start a tunnel for an `async with` block, and stop it at its end.

        Args:
            addr: Where to forward to: a port, `host:port` or a URL.
            proto: `http`, `tcp` or `tls`.
            name: The name; unique among the running tunnels.
            definition: What else `start` takes.
        """
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def opened() -> AsyncIterator[AgentTunnel]:
            tunnel = await self.start(addr=addr, proto=proto, name=name, **definition)
            try:
                yield tunnel
            finally:
                await self.stop(tunnel.name)

        return opened()


class _Search:
    """Finds the oldest complete request that matches, each request looked at once."""

    def __init__(self, predicate: _Predicate | None, timeout: float) -> None:
        self.predicate = predicate
        self.deadline = monotonic() + timeout
        self.timeout = timeout
        self.seen: set[str] = set()

    def look(self, newest_first: list[CapturedRequest]) -> CapturedRequest | None:
        complete = [request for request in newest_first if request.response is not None]
        for request in reversed(complete):
            if request.id in self.seen:
                continue
            self.seen.add(request.id)
            if self.predicate is None or self.predicate(request):
                return request
        if monotonic() >= self.deadline:
            raise APITimeoutError(
                f"no captured request matched within {self.timeout:g} s; {len(self.seen)} were seen"
            )
        return None


class AgentRequests(Requests):
    """Captured requests."""

    def wait_for(
        self,
        predicate: _Predicate | None = None,
        *,
        tunnel_name: str | None = None,
        timeout: float = 10.0,
    ) -> CapturedRequest:
        """Wait for a captured request that has been answered; the oldest that matches.

        Args:
            predicate: Called with each request once; None takes any.
            tunnel_name: Only requests of this tunnel.
            timeout: Seconds to wait.

        Raises:
            APITimeoutError: None matched in time.
        """
        search = _Search(predicate, timeout)
        while True:
            listed = self.list(limit=1000, tunnel_name=tunnel_name).to_list()
            if found := search.look(listed):
                return found
            sleep(PAUSE)


class AsyncAgentRequests(AsyncRequests):
    """Captured requests."""

    async def wait_for(
        self,
        predicate: _Predicate | None = None,
        *,
        tunnel_name: str | None = None,
        timeout: float = 10.0,
    ) -> CapturedRequest:
        """Wait for a captured request that has been answered; the oldest that matches.

        Args:
            predicate: Called with each request once; None takes any.
            tunnel_name: Only requests of this tunnel.
            timeout: Seconds to wait.

        Raises:
            APITimeoutError: None matched in time.
        """
        import asyncio

        search = _Search(predicate, timeout)
        while True:
            listed = await self.list(limit=1000, tunnel_name=tunnel_name).to_list()
            if found := search.look(listed):
                return found
            await asyncio.sleep(PAUSE)


class _AgentOptions(_Client):
    def __init__(
        self,
        base_url: str | None = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
        allow_http: bool = False,
        app: str | None = None,
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
            headers: Headers to add to each request.
            allow_http: True to call an agent on another machine unencrypted.
            app: What to put in front of our `User-Agent`, such as "deploy/1.2".
            on_request: Called with an `Event` before each attempt.
            on_response: Called with an `Event` after each attempt, answered or failed.
            on_retry: Called with an `Event` before the pause that another attempt follows.

        Raises:
            ConfigError: An option is unusable; the message names it.
        """
        hooks = (on_request, on_response, on_retry)
        self._options = {
            "agent": True,
            "base_url": _with_path(base_url),
            "timeout": timeout,
            "deadline": deadline,
            "max_retries": max_retries,
            "headers": None if headers is None else dict(headers),
            "allow_http": allow_http,
            "app": app,
            "hooks": hooks if any(hooks) else None,
        }
        self._core = Core(self._options)


def _with_path(base_url: str | None) -> str | None:
    """Adds the `/api` that is easily forgotten."""
    if base_url is None or "/" in base_url.rstrip("/").partition("://")[2]:
        return base_url
    return base_url.rstrip("/") + "/api"


class AgentClient(_AgentOptions):
    """A client of the agent API whose calls wait for their results.

    Threads may share it. Calls raise the exceptions of `ginnel.exceptions`.
    """

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
        deadline = monotonic() + timeout
        while True:
            try:
                status = self.status()
                state = status.status
            except AgentNotRunningError:
                status, state = None, "not running"
            if status and state == "online":
                return status
            if monotonic() >= deadline:
                raise APITimeoutError(f"after {timeout:g} s the agent is {state}, not online")
            sleep(PAUSE)

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

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        query: Mapping[str, object] | None = None,
    ) -> object:
        """Send any request, with the retries and errors of every call; returns plain JSON."""
        return self._core.request(method, path, json, query)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncAgentClient(_AgentOptions):
    """A client of the agent API whose calls are awaited.

    Its names are those of AgentClient. It is bound to no event loop. Cancelling a call drops its
    request.
    """

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
        return await call(self._core, "agent.root.get", Root, ())

    async def status(self) -> Status:
        """Fetch the status of the agent and of its session."""
        return await call(self._core, "agent.status.get", Status, ())

    async def wait_ready(self, timeout: float = 10.0) -> Status:
        """Wait until the agent runs and is online; returns its status then.

        Raises:
            APITimeoutError: It is not online in time.
        """
        import asyncio

        deadline = monotonic() + timeout
        while True:
            try:
                status = await self.status()
                state = status.status
            except AgentNotRunningError:
                status, state = None, "not running"
            if status and state == "online":
                return status
            if monotonic() >= deadline:
                raise APITimeoutError(f"after {timeout:g} s the agent is {state}, not online")
            await asyncio.sleep(PAUSE)

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

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        query: Mapping[str, object] | None = None,
    ) -> object:
        """Send any request, with the retries and errors of every call; returns plain JSON."""
        from ._asyncio import request

        return await request(self._core, method, path, json, query)

    async def aclose(self) -> None:
        """Close the connections, as `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
