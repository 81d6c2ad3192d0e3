"""The services and agents that run in this process, whose records `logs` hands over.

That is imported where the program has imported `logging`, and not before.
"""

from __future__ import annotations

import os
import sys
import weakref

from .. import _native

__all__ = ["Attachment", "owners"]

owners: set[int] = set()
"""What runs, each by its `id`."""


class Attachment:
    """Has the records of a service or an agent handed over, until it is gone or has stopped."""

    def __init__(self, owner: object) -> None:
        owners.add(id(owner))
        self._end = weakref.finalize(owner, _end, id(owner), os.getpid())
        self._end.atexit = False
        if "logging" in sys.modules:
            from .logs import refresh

            refresh()

    def close(self) -> None:
        """Hand over what is left. To close twice is fine."""
        if self._end.alive:
            self._end()
            if "logging" in sys.modules:
                from .logs import finish

                finish()


def _end(owner: int, process: int) -> None:
    # A fork has only copies of what its parent runs.
    if process == os.getpid():
        owners.discard(owner)
        _native.wake_log_reader()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=owners.clear)
