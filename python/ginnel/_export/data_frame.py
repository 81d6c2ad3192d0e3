"""Results as a pandas data frame."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from .._core.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pandas import DataFrame


def frame(items: Iterable[Record]) -> DataFrame:
    """A data frame with a row for each item and a column for each field."""
    try:
        import pandas
    except ImportError as missing:
        raise ImportError("to_pandas needs pandas: pip install 'ginnel[pandas]'") from missing
    rows = [dict(_columns(item, "")) for item in items]
    return pandas.DataFrame(rows)


def _columns(record: Record, prefix: str) -> Iterator[tuple[str, object]]:
    for field in fields(record):
        if field.metadata.get("secret") or field.name == "extra":
            continue
        value = getattr(record, field.name)
        if isinstance(value, Record):
            yield from _columns(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value
