"""The pieces that cards are made of: HTML that brings its styles along, for any notebook.

Colours are those of the page, so that cards fit light and dark. What has a colour of its own is
written on it in white, since no letters in colour can be read on both. Nothing has an id, a class
or a script, and nothing is fetched: cards cannot meet each other, nor reach anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .._capture.body import LONGEST, cut, visible

PAIRS = 100
"""How many rows a table of names and values has at the most."""

GOOD, MOVED, ODD, BAD, OPEN = "#1a7f37", "#0a60c2", "#8f5f00", "#c6202b", "#636c76"
"""Backgrounds on which white can be read."""

_TAG = re.compile("<[^>]*>")
# What others wrote stays in its place, even where it is written from right to left.
_APART = "unicode-bidi:isolate;overflow-wrap:anywhere"
_QUIET = "opacity:.75"
_FRAME = (
    "border:1px solid rgba(128,128,128,.4);border-radius:.4em;padding:.5em .8em;margin:.3em 0;"
    "overflow:clip;line-height:1.5"
)
_TABLE = "margin:.2em 0;border-collapse:collapse;table-layout:auto;width:auto"
# What is inside of a cell begins where the text of its neighbour does.
_INNER_TABLE = _TABLE.replace("margin:.2em 0", "margin:-.15em 0 .3em")
_CELL = (
    "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;white-space:normal;"
    "overflow-wrap:anywhere;background:transparent"
)
# Names are kept in one piece, as far as there is room for them.
_NAME = f"{_CELL};overflow-wrap:break-word;max-width:16em;{_QUIET}"
_SHORT = "white-space:nowrap"
_LONG = "min-width:14em;max-width:30em"
_LINE = "border-bottom:1px solid rgba(128,128,128,.25);background:transparent"
_PRE = (
    "margin:.3em 0;padding:.4em .6em;background:rgba(128,128,128,.12);color:inherit;"
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto"
)
_BADGE = (
    "color:#fff;border-radius:.3em;padding:0 .45em;font-weight:600;unicode-bidi:isolate;"
    "overflow-wrap:anywhere"
)


def text(value: str) -> str:
    """A text of strangers: escaped, visible and short."""
    return escape(visible(cut(value)))


def frame(*parts: str) -> str:
    """What belongs together."""
    return f'<div style="{_FRAME}">{"".join(parts)}</div>'


def line(*parts: str) -> str:
    """What stands on a line of its own; nothing where there is nothing."""
    inner = " ".join(filter(None, parts))
    return f"<div>{inner}</div>" if inner else ""


def strong(value: str) -> str:
    """What a card is about."""
    return f'<strong style="{_APART}">{text(value)}</strong>'


def code(value: str) -> str:
    """What is meant to the letter."""
    return f'<code style="{_APART}">{text(value)}</code>'


def quiet(value: str) -> str:
    """What is there for those who look for it."""
    return f'<span style="{_QUIET};{_APART}">{text(value)}</span>' if value else ""


def badge(value: str, colour: str) -> str:
    """What became of something."""
    return f'<span style="background:{colour};{_BADGE}">{text(value)}</span>'


def status(code: int | None, words: str) -> str:
    """The status of a response, or what is said where there is none."""
    colours = {1: OPEN, 2: GOOD, 3: MOVED, 4: ODD, 5: BAD}
    return badge(words, colours.get((code or 0) // 100, OPEN))


def link(url: str) -> str:
    """An address to click on, where it is one that a browser may safely go to."""
    if not url.startswith(("http://", "https://")) or len(url) > LONGEST:
        return code(url)
    style = f"text-decoration:underline;{_APART}"
    return f'<a href="{escape(url)}" rel="noopener noreferrer" style="{style}">{text(url)}</a>'


def block(value: str) -> str:
    """A text of many lines; it can be scrolled by keys, too."""
    return f'<pre tabindex="0" style="{_PRE}">{escape(value)}</pre>' if value else ""


def folded(summary: str, inner: str) -> str:
    """What is shown when somebody wants to see it."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"


def sides(*parts: str) -> str:
    """What stands side by side where there is room."""
    each = "".join(f'<div style="flex:1 1 20em;min-width:0">{part}</div>' for part in parts)
    return f'<div style="display:flex;flex-wrap:wrap;gap:.3em 1.5em">{each}</div>'


def pairs(rows: Iterable[tuple[str, str]], *, inside: bool = False) -> str:
    """Names and their values, which are HTML already; inside of another table, in line with it."""
    rows = list(rows)
    inner = "".join(
        f'<tr style="background:transparent"><th scope="row" style="{_NAME};font-weight:400">'
        f'{text(name)}</th><td style="{_CELL};{_APART}">{value}</td></tr>'
        for name, value in rows[:PAIRS]
    )
    more = line(quiet(f"{len(rows) - PAIRS} more")) if len(rows) > PAIRS else ""
    style = _INNER_TABLE if inside else _TABLE
    return f'<table style="{style}"><tbody>{inner}</tbody></table>{more}' if rows else ""


def grid(columns: Sequence[str], rows: Iterable[Mapping[str, str]], label: str) -> str:
    """A table whose cells are HTML already; a wide one scrolls, by keys as well."""
    head = "".join(
        f'<th scope="col" style="{_NAME};font-weight:600">{text(name)}</th>' for name in columns
    )
    body = "".join(
        f'<tr style="{_LINE}">' + "".join(_cell(row.get(name, "")) for name in columns) + "</tr>"
        for row in rows
    )
    return (
        f'<div tabindex="0" role="group" aria-label="{escape(label)}" style="overflow-x:auto">'
        f'<table style="{_TABLE}"><thead><tr style="{_LINE}">{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(inner: str) -> str:
    """A cell; what is short keeps to one line."""
    is_short = len(_TAG.sub("", inner)) <= 32
    return f'<td style="{_CELL};{_APART};{_SHORT if is_short else _LONG}">{inner}</td>'
