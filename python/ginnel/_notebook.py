"""How results look in a notebook.

Tables and cards of plain HTML that take the colours of the page, so they fit light and dark.
Secrets are masked, everything is escaped, and nothing is fetched.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from ._mask import MASK
from ._record import Record
from ._shown import Shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .exceptions import APIError

LONGEST = 2000
"""How many characters of a text are shown."""
ROWS = 100
"""How many items of a list are shown."""

_CELL = "text-align:left;vertical-align:top;padding:.15em .6em"
_QUIET = "opacity:.65"


def card(record: Record) -> str:
    """One result: its type, and a row for each field that has a value."""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL};{_QUIET}">{escape(name)}</th>'
        f'<td style="{_CELL}">{value}</td></tr>'
        for name, value in _shown(record).items()
    )
    return f"<table><caption>{escape(type(record).__name__)}</caption><tbody>{rows}</tbody></table>"


def table(items: Sequence[Record], more: str = "") -> str:
    """Many results: a column for each field that has a value in one of them."""
    shown = [_shown(item) for item in items[:ROWS]]
    columns = list(dict.fromkeys(name for row in shown for name in row))
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{row.get(c, "")}</td>' for c in columns) + "</tr>"
        for row in shown
    )
    left_out = f"{len(items)} items" if len(items) <= ROWS else f"{ROWS} of {len(items)} items"
    note = escape(", ".join(filter(None, (left_out, more))))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f'<div style="{_QUIET}">{note}</div>'
    )


def problem(error: APIError) -> str:
    """A failed call: what was asked, what went wrong, and what helps to find out why."""
    asked = " ".join(filter(None, (error.method, error.url)))
    told = {"attempts": error.attempts if error.attempts > 1 else None}
    told |= {name: getattr(error, name, None) for name in ("operation_id", "retry_after")}
    more = ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
    lines = "".join(f'<div style="{_QUIET}">{escape(line)}</div>' for line in (asked, more) if line)
    return (
        f'<div style="border-left:.25em solid #d64545;padding-left:.6em">'
        f"<strong>{escape(type(error).__name__)}</strong> {escape(str(error))}{lines}</div>"
    )


def _shown(record: Record) -> dict[str, str]:
    if isinstance(record, Shown):
        from ._cards import row

        return row(record)
    shown = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if value is None or (field.name == "extra" and not value):
            continue
        secret = field.metadata.get("secret") or field.name == "extra"
        shown[field.name] = MASK if secret else html(value)
    return shown


def html(value: object) -> str:
    """One value."""
    match value:
        case Record():
            return value._repr_html_()
        case datetime():
            return f"<time>{escape(value.isoformat(sep=' '))}</time>"
        case bytes():
            return f"<code>{escape(_cut(repr(value)))}</code>"
        case dict():
            return _members(value)
        case list() | tuple():
            return "<br>".join(html(item) for item in value[:ROWS]) or "[]"
        case _:
            return escape(_cut(str(value)))


def _members(members: Mapping[str, object]) -> str:
    return "<br>".join(f"{escape(str(name))}: {html(v)}" for name, v in members.items()) or "{}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
