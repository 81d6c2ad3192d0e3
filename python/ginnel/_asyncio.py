"""Calls in an asyncio loop.

A call is a future of the running loop and a ticket at the loop's bridge. One descriptor wakes the
loop for all calls that have finished. Nothing is bound to a loop but its bridge, so one client
serves any number of loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, ref

from ._native import Bridge

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

    from ._native import Core

T = TypeVar("T")

_bridges: WeakKeyDictionary[AbstractEventLoop, Bridge] = WeakKeyDictionary()


def _import_asyncio() -> AbstractEventLoop:
    """Importing asyncio takes longer than importing us; where a loop runs it has been imported."""
    global _running_loop
    from asyncio import get_running_loop

    _running_loop = get_running_loop
    return get_running_loop()


_running_loop: Callable[[], AbstractEventLoop] = _import_asyncio


def _begin() -> tuple[Bridge, Future[Any]]:
    loop = _running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _connected(loop)
    return bridge, loop.create_future()


def _connected(loop: AbstractEventLoop) -> Bridge:
    try:
        bridge = Bridge()
        loop.add_reader(bridge.fileno(), bridge.drain)
    except NotImplementedError:
        # The loop of Windows. A strong reference would keep the loop alive for ever.
        loop_ref = ref(loop)
        bridge = Bridge(lambda: _notify(loop_ref))
    return bridge


def _notify(loop_ref: ref[AbstractEventLoop]) -> None:
    """Have a loop take what is finished; called on another thread."""
    loop = loop_ref()
    if loop is not None and not loop.is_closed():
        loop.call_soon_threadsafe(lambda: _bridges[loop].drain())


async def _settled(bridge: Bridge, future: Future[Any], ticket: int) -> Any:
    try:
        return await future
    except BaseException:
        # Cancelled, or failed; then the bridge knows the ticket no more.
        bridge.abandon(ticket)
        raise


async def call(core: Core, operation: str, result: type[T], arguments: tuple[object, ...]) -> T:
    """Perform an operation."""
    bridge, future = _begin()
    ticket = core.start(bridge, future, operation, result, arguments)
    settled: T = await _settled(bridge, future, ticket)
    return settled


async def perform(core: Core, operation: str, arguments: tuple[object, ...]) -> None:
    """Perform an operation that returns nothing."""
    bridge, future = _begin()
    ticket = core.start(bridge, future, operation, None, arguments)
    await _settled(bridge, future, ticket)


async def page(
    core: Core,
    operation: str,
    result: type[T],
    arguments: tuple[object, ...],
    following: str | None,
) -> tuple[list[T], str | None, str | None]:
    """Fetch one page of a list."""
    bridge, future = _begin()
    ticket = core.start_page(bridge, future, operation, result, arguments, following)
    fetched: tuple[list[T], str | None, str | None] = await _settled(bridge, future, ticket)
    return fetched


async def request(core: Core, method: str, path: str, json: object, query: object) -> object:
    """Send any request."""
    bridge, future = _begin()
    ticket = core.start_request(bridge, future, method, path, json, query)
    return await _settled(bridge, future, ticket)
