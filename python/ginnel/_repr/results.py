"""How results look in a notebook: tables and cards, without secrets, and nothing is fetched."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING

from .._capture.body import LONGEST
from .._capture.mask import MASK
from .._core.custom_repr import CustomRepr
from .._core.record import Record, without_secrets
from .html import BAD, badge, code, frame, grid, line, pairs, quiet, strong, text
from .text import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..exceptions import APIError

ROWS = 100
"""How many items of a list are shown."""
BRIEF = 160
"""How many characters a cell of a table has room for."""
DEPTH = 6
"""How deep a card looks into what holds other things."""


def card(record: Record) -> str:
    """One result: its type, and a row for each field that has a value."""
    named = {name: value for name, value in _values(record) if name in ("id", "name")}
    title = [code(str(value)) for value in named.values()]
    rest = ((name, value) for name, value in _values(record) if name not in named)
    return frame(line(strong(type(record).__name__), *title), _rows(rest, 0))


def table(items: Sequence[Record], more: str = "") -> str:
    """Many results: a column for each field that has a value in one of them."""
    shown = [_columns(item) for item in items[:ROWS]]
    columns = list(dict.fromkeys(name for row in shown for name in row))
    left_out = f"{ROWS} of {len(items)} items" if len(items) > ROWS else _count(len(items))
    note = quiet(", ".join(filter(None, (left_out, more))))
    what = type(items[0]).__name__ if items else "item"
    return (grid(columns, shown, f"List of {what}") if shown else "") + line(note)


def problem(error: APIError) -> str:
    """A failed call: what was asked, what went wrong, and what helps to find out why."""
    asked = " ".join(filter(None, (error.method, error.url)))
    told = {"attempts": error.attempts if error.attempts > 1 else None}
    told |= {name: getattr(error, name, None) for name in ("operation_id", "retry_after")}
    more = [f"{name} {value}" for name, value in told.items() if value is not None]
    known = [getattr(error, name, None) for name in ("status_code", "error_code")]
    says = getattr(error, "message", "") or str(error)
    reason = getattr(error, "details", {}).get("err")
    return frame(
        line(
            badge(type(error).__name__, BAD),
            *(code(str(value)) for value in known if value),
            text(says),
        ),
        line(text(str(reason))) if reason else "",
        line(quiet(asked)),
        line(quiet(", ".join(more))),
    )


def _count(items: int) -> str:
    return "1 item" if items == 1 else f"{items} items"


def _values(record: Record) -> Iterator[tuple[str, object]]:
    """The fields that have a value; a mask stands for secrets."""
    for field in fields(record):
        value = getattr(record, field.name)
        if value is None or value in ("", [], {}, ()):
            continue
        secret = field.metadata.get("secret") or field.name == "extra"
        yield field.name, MASK if secret else without_secrets(value)


def _columns(record: Record) -> dict[str, str]:
    if isinstance(record, CustomRepr):
        from .captures import row

        return row(record)
    # Nobody reads the address of each item in a list; its identifier is there.
    return {name: _brief(value) for name, value in _values(record) if name != "uri"}


def _rows(values: Iterable[tuple[str, object]], depth: int) -> str:
    rows = ((name, _html(value, depth)) for name, value in values)
    return pairs(rows, inside=depth > 0)


def _html(value: object, depth: int) -> str:
    """One value, with what it holds."""
    if depth > DEPTH:
        return _brief(value)
    match value:
        case CustomRepr():
            from .captures import inside

            return inside(value)
        case Record():
            values = dict(_values(value))
            # The address of what is inside tells no more than its identifier.
            values.pop("uri", None)
            return _brief(value) if set(values) == {"id"} else _rows(values.items(), depth + 1)
        case dict() if value:
            return _rows(((str(name), inner) for name, inner in value.items()), depth + 1)
        case list() | tuple() if value:
            items = [_html(item, depth + 1) for item in value[:ROWS]]
            left = [quiet(f"{len(value) - ROWS} more")] if len(value) > ROWS else []
            return "".join(map(line, items + left))
        case str() if value:
            return text(value)
        case _:
            return _brief(value)


def _brief(value: object) -> str:
    """One value in a few words."""
    told = _words(value)
    return text(told if len(told) <= BRIEF else f"{told[:BRIEF]}…")


def _words(value: object) -> str:
    match value:
        case CustomRepr():
            return repr(value)
        case Record():
            values = dict(_values(value))
            values.pop("uri", None)
            if set(values) == {"id"}:
                return str(values["id"])
            return _joined(f"{name}: {_words(inner)}" for name, inner in values.items())
        case dict():
            return _joined(f"{name}: {_words(inner)}" for name, inner in value.items())
        case list() | tuple():
            return _joined(map(_words, value))
        case datetime():
            return moment(value)
        case bytes():
            return repr(value[:BRIEF])
        case _:
            return str(value)[: LONGEST * 2]


def _joined(words: Iterable[str]) -> str:
    """As many words as there is room for."""
    told = ""
    for word in words:
        told += f", {word}" if told else word
        if len(told) > BRIEF:
            break
    return told
