"""What has a card of its own in a notebook, and one line of its own everywhere else."""

from __future__ import annotations

from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Shown(Record):
    """A result that is shown as what it stands for, not as its fields."""

    __slots__ = ()

    def __repr__(self) -> str:
        from ._lines import line

        return line(self)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        from ._lines import members

        yield from members(self)

    def _repr_html_(self) -> str:
        from ._cards import card

        return card(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython prints: all of it where it stands alone, a line where it is one of many."""
        from ._lines import line, lines

        printer.text(line(self) if printer.indentation else lines(self))
