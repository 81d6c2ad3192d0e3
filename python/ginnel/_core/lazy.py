"""Calls functions of `_repr` and `_export` by name.

Both know the classes of results. Results that imported them would close a cycle, and each import of
the package would load what few programs need.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKAGE = __name__.partition(".")[0]


def render(function: str, *arguments: object) -> str:
    """Returns the text or the HTML that a function of `_repr` makes, such as `results.card`."""
    rendered: str = call(f"_repr.{function}", *arguments)
    return rendered


def call(function: str, *arguments: object) -> Any:
    """Calls a function by the name of its module in this package and its own."""
    module, _, name = f"{PACKAGE}.{function}".rpartition(".")
    return getattr(__import__(module, fromlist=[name]), name)(*arguments)
