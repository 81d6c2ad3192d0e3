"""Lists of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pandas import DataFrame

    from ._record import Record

T = TypeVar("T", bound="Record")


class Results(list[T]):
    """A list of results: a list in every way, and a table in a notebook."""

    __slots__ = ()

    def to_pandas(self) -> DataFrame:
        """A data frame with a row for each item and a column for each field; needs `pandas`.

        Fields inside fields get dotted names, such as `metrics.conns.count`. Secrets are left out.

        Raises:
            ImportError: pandas is not installed (`pip install ginnel[pandas]`).
        """
        from ._frame import frame

        return frame(self)

    def _repr_html_(self) -> str:
        from ._notebook import table

        return table(self)
