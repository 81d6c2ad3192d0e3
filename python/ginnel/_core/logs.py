"""Records of what happens below Python, for the logger `ginnel` and its children.

Threads of Rust put them into a queue, and never wait for the interpreter. They are handed to the
loggers by one thread while a `Service` or an `Agent` runs and somebody listens; else at the end of
each call.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import traceback

from .. import _native
from .running import owners

Record = tuple[str, int, float, str, dict[str, object]]

__all__ = ["FIELDS", "TRACE", "deliver", "finish", "logger", "refresh"]

TRACE = 5
"""The level below `DEBUG`, of each connection and each step."""
FIELDS = ("request_id", "op_id", "session", "tunnel", "edge", "status", "dur_ms", "err")
"""The attributes that every record has; None where nothing is known."""
WAIT = 3600.0
"""How many seconds the thread waits for records at a time."""

logger = logging.getLogger("ginnel")
# Without one, Python would print warnings that nobody asked for.
logger.addHandler(logging.NullHandler())
if logging.getLevelName(TRACE) == f"Level {TRACE}":
    logging.addLevelName(TRACE, "TRACE")

_loggers = {target: logger.getChild(target) for target in _native.log_targets()}


class _LevelCache(dict[int, bool]):
    """What `logging` remembers of the levels of a logger, and clears when any level changes."""

    def clear(self) -> None:
        super().clear()
        refresh()


class _State:
    """What was asked for, and which thread hands it over."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.levels: list[int] = []
        self.thread: threading.Thread | None = None

    def refresh(self) -> None:
        least = logging.root.manager.disable + 1
        with self.lock:
            levels = [max(least, it.getEffectiveLevel()) for it in _loggers.values()]
            if levels != self.levels:
                self.levels = levels
                _native.set_log_levels(levels)
            if owners and self.thread is None and self.has_listeners():
                self.thread = threading.Thread(target=self.run, name="ginnel-log", daemon=True)
                self.thread.start()

    def has_listeners(self) -> bool:
        """Whether somebody has asked for records, by a level or by a handler."""
        return min(self.levels) < logging.WARNING or any(map(_has_handler, _loggers.values()))

    def run(self) -> None:
        """Hand records over until nothing runs any more."""
        while True:
            _hand_over(_native.take_log_records(WAIT))
            with self.lock:
                if not owners:
                    self.thread = None
                    break


_state = _State()


def refresh() -> None:
    """Ask for the records that the loggers take now."""
    _state.refresh()


def finish() -> None:
    """Hand over what there is, once a service or an agent has stopped."""
    thread = None if owners else _state.thread
    # In a handler of ours there is nobody to wait for.
    if thread is not None and thread is not threading.current_thread():
        thread.join(timeout=5.0)
    deliver()


def deliver() -> None:
    """Hand over what has been recorded, where no thread does."""
    if _state.thread is None:
        _hand_over(_native.take_log_records(None))


def _hand_over(records: list[Record]) -> None:
    for target, level, created, line, fields in records:
        try:
            _log(_loggers[target], level, created, line, fields)
        except Exception:
            # Of a filter, since handlers keep theirs to themselves; the records behind it go on.
            traceback.print_exc()


def _log(
    to: logging.Logger, level: int, created: float, line: str, fields: dict[str, object]
) -> None:
    if not to.isEnabledFor(level):
        return
    # A record has attributes of its own, such as `module`, which none of these may replace.
    free = {f"{name}_" if name in _TAKEN else name: value for name, value in fields.items()}
    extra = dict.fromkeys(FIELDS) | free
    record = to.makeRecord(to.name, level, "ginnel", 0, line, (), None, extra=extra)
    record.created = created
    record.msecs = created % 1 * 1000
    to.handle(record)


# What a record holds already, and the two names that `makeRecord` refuses besides.
_TAKEN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}


def _has_handler(of: logging.Logger) -> bool:
    at: logging.Logger | None = of
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def _begin_anew() -> None:
    """The thread is the parent's."""
    _state.lock = threading.RLock()
    _state.thread = None


def _at_exit() -> None:
    """Hand over what is left, before `logging` closes its handlers."""
    _hand_over(_native.take_log_records(None))


logger._cache = _LevelCache()  # type: ignore[attr-defined]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_at_exit)
refresh()
