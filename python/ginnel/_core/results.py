"""Lists of results."""

from __future__ import annotations

from .generic import T, overload
from .lazy import call, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import SupportsIndex

    from pandas import DataFrame
    from pyarrow import Table


class Results(list[T]):
    """A list of results: a list in every way, and a table in a notebook."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Results[T]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> T | Results[T]:
        if isinstance(index, slice):
            return Results(super().__getitem__(index))
        return super().__getitem__(index)

    def __add__(self, other: Iterable[T], /) -> Results[T]:  # type: ignore[override]
        if not isinstance(other, list):
            return NotImplemented
        return Results(super().__add__(other))

    def copy(self) -> Results[T]:
        """A list of the same results."""
        return Results(self)

    def to_pandas(self) -> DataFrame:
        """A data frame with a row for each item and a column for each field; needs `pandas`.

        Fields inside fields get dotted names, such as `metrics.conns.count`. Secrets are left out.

        Raises:
            ImportError: pandas is not installed (`pip install ginnel[pandas]`).
        """
        made: DataFrame = call("_export.data_frame.frame", self)
        return made

    def to_arrow(self) -> Table:
        """An Arrow table with a row for each item and a column for each field; needs `pyarrow`.

        Times are `timestamp[us, tz=UTC]`, fields inside fields are structs, lists are lists, and
        objects without a fixed form are JSON text. Secrets are left out. A list without items has
        no columns; `to_arrow` of a pager has them all.

        Raises:
            ImportError: pyarrow is not installed (`pip install ginnel[arrow]`).
            ValueError: A value does not fit its column; the message names the field.
        """
        made: Table = call("_export.arrow.table", type(self[0]) if self else None, self)
        return made

    def _repr_html_(self) -> str:
        return render("results.table", self)
