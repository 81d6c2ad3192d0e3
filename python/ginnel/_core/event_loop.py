"""Calls in an asyncio loop.

Each loop has one driver, whose descriptor it watches for all its calls. Nothing else is bound to a
loop, so one client serves any number of loops.
"""

from __future__ import annotations

from asyncio import get_running_loop as running_loop
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from .._native import LoopDriver

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["driver", "running_loop"]

_drivers: WeakKeyDictionary[AbstractEventLoop, ref[LoopDriver]] = WeakKeyDictionary()
"""The driver of each loop. It refers to the loop by its calls, so only the loop may hold it."""


def driver(loop: AbstractEventLoop) -> LoopDriver:
    """The driver of a loop; made for its first call."""
    found = _drivers.get(loop, lambda: None)()
    if found is None:
        found = _connected(loop)
        _drivers[loop] = ref(found)
    return found


def _connected(loop: AbstractEventLoop) -> LoopDriver:
    try:
        made = LoopDriver(loop)
        loop.add_reader(made.fileno(), made.drain)
    except NotImplementedError:
        # The loop of Windows. A strong reference would keep the loop alive for ever.
        loop_ref = ref(loop)
        made = LoopDriver(loop, lambda: _notify(loop_ref))
        # The loop holds it, as the others hold what they watch.
        vars(loop)["_ginnel_driver"] = made
    return made


def _notify(loop_ref: ref[AbstractEventLoop]) -> None:
    """Have a loop take what is finished; called on another thread."""
    loop = loop_ref()
    if loop is not None and not loop.is_closed():
        loop.call_soon_threadsafe(lambda: driver(loop).drain())
