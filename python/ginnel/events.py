"""What happens to calls: the lines of the logger `ginnel`, and what hooks are given."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ._core.logs import FIELDS
from ._core.logs import logger as _logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal, TypeAlias

    _Hooks: TypeAlias = tuple[Callable[["Event"], object] | None, ...]

__all__ = ["Event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a call. It holds no body and no secret."""

    kind: Literal["request", "response", "failure", "retry"]
    """`request` before an attempt, `response` or `failure` after it, `retry` before a pause."""
    method: str
    """The HTTP method."""
    path: str
    """The path template of the operation, such as `/api_keys/{id}`."""
    attempt: int
    """Which attempt; the first is 1."""
    status: int | None = None
    """The status of the response, if there is one."""
    seconds: float = 0.0
    """How long the attempt took; with `retry`, how long the pause is."""
    problem: str | None = None
    """Why no response arrived, with `failure`."""
    headers: Mapping[str, str] | None = None
    """The headers of the response, with `response`; what is secret in them is masked. Their names
    are in lower case, and of those that came more than once the last counts."""


def _tell(hooks: _Hooks | None, event: Event) -> None:
    """Log an event and give it to the hook of its kind."""
    call = (event.method, event.path)
    match event.kind:
        case "response":
            came = (event.status, event.seconds * 1000, event.attempt)
            _logger.debug("%s %s: %s in %.1f ms, attempt %d", *call, *came, extra=_fields(event))
        case "failure":
            lost = (event.problem, event.seconds * 1000, event.attempt)
            _logger.debug(
                "%s %s: %s, after %.1f ms, attempt %d", *call, *lost, extra=_fields(event)
            )
        case "retry":
            why = f"status {event.status}" if event.status else "no response"
            again = (why, event.seconds, event.attempt + 1)
            _logger.warning(
                "%s %s: %s, again in %.2f s as attempt %d", *call, *again, extra=_fields(event)
            )
        case _:
            pass
    if hooks is not None:
        hook = hooks[{"request": 0, "retry": 2}.get(event.kind, 1)]
        if hook is not None:
            hook(event)


def _fields(event: Event) -> dict[str, object]:
    """The attributes that records of all loggers have."""
    known = dict.fromkeys(FIELDS) | {"status": event.status, "err": event.problem}
    if event.kind != "retry":
        known["dur_ms"] = event.seconds * 1000
    if event.headers is not None:
        known["op_id"] = event.headers.get("x-request-id")
    return known


_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def _print_lines(level: str) -> None:
    """Have the lines of this level and above printed on stderr, as `GINNEL_LOG` asks."""
    # What follows a comma is for single targets of the command.
    words = [word.strip().lower() for word in level.split(",")]
    word = next((word for word in words if "=" not in word), "off")
    if word == "off":
        return
    threshold = _LEVELS.get(word)
    if threshold is None:
        import warnings

        known = ", ".join(_LEVELS)
        warnings.warn(f"GINNEL_LOG is {level!r}, not {known} or off", stacklevel=2)
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s ginnel %(levelname)s %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(threshold)
