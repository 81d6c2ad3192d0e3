"""Records with a card of their own in a notebook, and one line of their own everywhere else."""

from __future__ import annotations

from .lazy import call, render
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class CustomRepr(Record):
    """A result that is shown as what it stands for, not as its fields."""

    __slots__ = ()

    def __repr__(self) -> str:
        return render("text.line", self)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield from call("_repr.text.members", self)

    def _repr_html_(self) -> str:
        return render("captures.card", self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython prints: all of it where it stands alone, a line where it is one of many."""
        printer.text(render("text.line" if printer.indentation else "text.lines", self))
