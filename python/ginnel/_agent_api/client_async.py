"""The asyncio client of the agent API; `make generate` writes the blocking one from it."""

from __future__ import annotations

from contextlib import suppress

from .._core.client import _Awaited
from .._core.progress import counting
from .._core.resource import cached_property
from ..exceptions import AgentNotRunningError, APIError, APITimeoutError, NotFoundError
from ..local.endpoints import AsyncEndpoints
from ..local.held_requests import AsyncHeldRequests
from ..local.holds import AsyncHolds
from ..local.mocks import AsyncMocks
from ..local.proto_files import AsyncProtoFiles
from ..local.replay_schedules import AsyncReplaySchedules
from ..local.requests import AsyncRequests
from ..local.root import Root
from ..local.status import Status
from ..local.tunnels import AsyncTunnels
from .base import (
    GONE,
    PORTS,
    SECONDS_FOR_NAMES,
    AgentOptions,
    Held,
    Search,
    Start,
    nearest_name,
    tunnel_names,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager
    from typing import Any, Self

    from matplotlib.figure import Figure

    from ..local._raw import AsyncRawAgentResources
    from ..local.held_requests import HeldRequest
    from ..local.holds import Hold
    from ..local.mocks import Mock
    from ..local.replay_schedules import ReplaySchedule
    from ..local.requests import CapturedRequest
    from ..local.tunnels import AgentTunnel
    from .base import _Predicate


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
            error.args = (f"{error}{nearest_name(name, running)}",)

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
                for tunnel_name in tunnel_names(tunnel, definition):
                    with suppress(*GONE):
                        await AsyncTunnels.stop(self, tunnel_name)

        return opened()


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
        from .._repr.figure import figure

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
            return await self._wait(Search(predicate, timeout, count), tunnel_name)

    async def _wait(self, search: Search, tunnel_name: str | None) -> CapturedRequest:
        import asyncio

        while True:
            try:
                within = AsyncRequests(self._core.within(search.left))
                pager = within.list(limit=search.limit, tunnel_name=tunnel_name)
                listed = [
                    await _whole(within, one) if search.needs_whole(one) else one
                    for one in await pager.to_list()
                ]
            except APITimeoutError as error:
                raise search.late() from search.raised or error
            if found := search.look(listed):
                return found
            if search.left <= 0:
                raise search.late() from search.raised
            await asyncio.sleep(search.pause)


async def _whole(requests: AsyncRequests, listed: CapturedRequest) -> CapturedRequest:
    """The captured request with its whole bodies; as it is listed if the agent has it no more."""
    try:
        return await requests.get(listed.id)
    except NotFoundError:
        return listed


class AsyncAgentMocks(AsyncMocks):
    """Mocks: responses of the agent in place of the local service."""

    def open(self, **definition: Any) -> AbstractAsyncContextManager[Mock]:
        """Add a mock for an `async with` block, and remove it at its end.

        Args:
            definition: What `add` takes.
        """
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def opened() -> AsyncIterator[Mock]:
            mock = await self.add(**definition)
            try:
                yield mock
            finally:
                with suppress(*GONE):
                    await self.delete(mock.id)

        return opened()


class AsyncAgentHolds(AsyncHolds):
    """Holds: requests that wait until somebody lets them go, changes or refuses them."""

    def open(self, **definition: Any) -> AbstractAsyncContextManager[Hold]:
        """Add a hold for an `async with` block, and remove it at its end: its requests are let go.

        Args:
            definition: What `add` takes.
        """
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def opened() -> AsyncIterator[Hold]:
            hold = await self.add(**definition)
            try:
                yield hold
            finally:
                with suppress(*GONE):
                    await self.delete(hold.id)

        return opened()


class AsyncAgentReplaySchedules(AsyncReplaySchedules):
    """Replay schedules: captured requests that the agent sends again and again by itself."""

    def open(self, **definition: Any) -> AbstractAsyncContextManager[ReplaySchedule]:
        """Add a schedule for an `async with` block, and stop it at its end.

        Args:
            definition: What `add` takes.
        """
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def opened() -> AsyncIterator[ReplaySchedule]:
            schedule = await self.add(**definition)
            try:
                yield schedule
            finally:
                with suppress(*GONE):
                    await self.delete(schedule.id)

        return opened()


class AsyncAgentHeldRequests(AsyncHeldRequests):
    """Requests that wait because of a hold."""

    async def wait_for(self, hold_id: str | None = None, *, timeout: float = 10.0) -> HeldRequest:
        """Wait for a request that is held; the oldest.

        Args:
            hold_id: Only requests of this hold.
            timeout: Seconds to wait.

        Raises:
            APITimeoutError: None was held in time.
        """
        import asyncio

        wait = Held(timeout)
        while True:
            try:
                listed = await AsyncHeldRequests(self._core.within(wait.left)).list().to_list()
            except APITimeoutError as error:
                raise wait.late() from error
            if found := wait.look(listed, hold_id):
                return found
            if wait.left <= 0:
                raise wait.late()
            await asyncio.sleep(wait.pause)


class AsyncAgentClient(AgentOptions, _Awaited):
    """A client of the agent API whose calls are awaited.

    Its names are those of AgentClient. It is bound to no event loop. Cancelling a call drops its
    request.
    """

    @cached_property
    def with_raw_response(self) -> AsyncRawAgentResources:
        """The same calls, which return a `RawResponse` each when they are awaited."""
        from ..local._raw import AsyncRawAgentResources

        return AsyncRawAgentResources(self._core.raw())

    @cached_property
    def tunnels(self) -> AsyncAgentTunnels:
        """Tunnels of the agent."""
        return AsyncAgentTunnels(self._core)

    @cached_property
    def endpoints(self) -> AsyncEndpoints:
        """Endpoints of the agent: the same tunnels by their public URL and their upstream."""
        return AsyncEndpoints(self._core)

    @cached_property
    def requests(self) -> AsyncAgentRequests:
        """Captured requests."""
        return AsyncAgentRequests(self._core)

    @cached_property
    def mocks(self) -> AsyncAgentMocks:
        """Mocks: responses of the agent in place of the local service."""
        return AsyncAgentMocks(self._core)

    @cached_property
    def holds(self) -> AsyncAgentHolds:
        """Holds: requests that wait until somebody lets them go, changes or refuses them."""
        return AsyncAgentHolds(self._core)

    @cached_property
    def held_requests(self) -> AsyncAgentHeldRequests:
        """Requests that wait because of a hold."""
        return AsyncAgentHeldRequests(self._core)

    @cached_property
    def proto_files(self) -> AsyncProtoFiles:
        """Proto files: what describes the messages of gRPC calls, until the agent ends."""
        return AsyncProtoFiles(self._core)

    @cached_property
    def replay_schedules(self) -> AsyncAgentReplaySchedules:
        """Replay schedules: captured requests that the agent sends again and again by itself."""
        return AsyncAgentReplaySchedules(self._core)

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

        start = Start(timeout)
        while True:
            allowed = start.left
            core = self._core.within(allowed)
            try:
                if status := start.look(await core.start("agent.status.get", Status, ())):
                    return status
            except AgentNotRunningError:
                start.state = "not running"
            except APITimeoutError as error:
                raise start.timed_out(allowed) from error
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
