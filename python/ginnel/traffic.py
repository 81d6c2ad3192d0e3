"""What the embedded service decides on public traffic."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Mapping
    from typing import Any, Self

    from ._native import Events

__all__ = ["TrafficEvent", "TrafficEvents"]


@dataclass(frozen=True, slots=True, repr=False)
class TrafficEvent:
    """What happened to one request, or to one connection of bytes."""

    time: datetime
    """When it was decided."""
    proto: str
    """What the visitor spoke: `http`, `https`, `tcp` or `tls`."""
    peer: str
    """Where the visitor came from, `address:port`."""
    duration_ms: float
    """From the request's head to the response's, or from opening to closing, in milliseconds."""
    method: str | None = None
    """The method; None for a connection of bytes."""
    host: str | None = None
    """The host that was asked for."""
    path: str | None = None
    """The path with its query."""
    status: int | None = None
    """The status of the response; None for bytes, or where the connection was closed instead."""
    code: str | None = None
    """The code of the response, where the service itself answered."""
    edge_id: str | None = None
    """The edge; None for the endpoint of an agent."""
    route_id: str | None = None
    """The route."""
    backend_id: str | None = None
    """The backend that took it."""
    module: str | None = None
    """The module that turned it away or answered it, such as `ip_restriction` or `policy`."""
    rule: str | None = None
    """The rule of the policy that did."""
    action: str | None = None
    """The action of the rule."""
    logs: tuple[Mapping[str, object], ...] = ()
    """What actions logged."""
    request_id: str | None = None
    """The id that visitor and upstream have in `X-Request-Id`; None where requests get none."""
    node: str | None = None
    """The name of the node that served it, where that is another one than this."""
    received_bytes: int | None = None
    """The bytes that the visitor of a connection has sent; None for a request."""
    sent_bytes: int | None = None
    """The bytes that the visitor of a connection was sent; None for a request."""

    def __repr__(self) -> str:
        from ._repr.traffic import event_line

        return event_line(self)

    def _repr_html_(self) -> str:
        from ._repr.traffic import event_card

        return event_card(self)


_NAMES = frozenset(field.name for field in fields(TrafficEvent))


class TrafficEvents:
    """The events of a service from now on, oldest first; the loop ends when the service stops.

    `for` and `async for` both work.

    Attributes:
        missed: How many events were lost because they were not taken fast enough.
    """

    def __init__(self, events: Events | None) -> None:
        """Listen from now on; `Service.events` does this."""
        self._events = events
        self.missed: int = 0

    def get(self, timeout: float | None = None) -> TrafficEvent | None:
        """The next event; None when none came within `timeout` seconds, or the service stopped."""
        while self._events is not None:
            try:
                told = self._events.next(timeout)
            except EOFError:
                self._events = None
                break
            if told is None:
                break
            event: dict[str, Any] = json.loads(told)
            if (missed := event.get("missed")) is None:
                return _event(event)
            self.missed += missed
        return None

    async def wait(self) -> TrafficEvent | None:
        """The next event, for asyncio; None when the service stopped.

        A wait that is cancelled takes no event with it. One wait at a time.
        """
        from asyncio import get_running_loop

        try:
            loop = get_running_loop()
        except RuntimeError:
            from ._core.no_event_loop import no_loop_error

            raise no_loop_error() from None
        while (event := self.get(timeout=0)) is None and self._events is not None:
            told = loop.create_future()
            self._events.call_once(partial(_settle_soon, loop, told))
            # It may have come before anybody was to be called.
            if (event := self.get(timeout=0)) is not None or self._events is None:
                break
            await told
        return event

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TrafficEvent:
        event = self.get()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TrafficEvent:
        event = await self.wait()
        if event is None:
            raise StopAsyncIteration
        return event


def _settle_soon(loop: AbstractEventLoop, told: Future[None]) -> None:
    """Have a loop go on; called on another thread, when the loop may be gone."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, told)


def _settle(told: Future[None]) -> None:
    if not told.done():
        told.set_result(None)


def _event(told: dict[str, Any]) -> TrafficEvent:
    known = {name: value for name, value in told.items() if name in _NAMES}
    known["time"] = datetime.fromisoformat(known["time"])
    known["logs"] = tuple(known["logs"])
    return TrafficEvent(**known)
