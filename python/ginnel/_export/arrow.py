"""Results as an Arrow table."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin, get_type_hints

from .._core.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyarrow import DataType, Table

    _Conversion = Callable[[Any], object]
    _Column = tuple[DataType, _Conversion]


_NOT_IMPORTED = {"Any": Any, "ClassVar": ClassVar, "datetime": datetime, "Mapping": Mapping}
"""What annotations name that their modules import for type checkers alone."""


def table(kind: type[Record] | None, items: Sequence[Record]) -> Table:
    """A table of results of one kind: a row for each, and a column for each field."""
    try:
        import pyarrow
    except ImportError as missing:
        raise ImportError("to_arrow needs pyarrow: pip install 'ginnel[arrow]'") from missing
    if kind is None:
        return pyarrow.table({})
    columns = {
        name: _array(f"{kind.__name__}.{name}", column, [getattr(item, name) for item in items])
        for name, column in _columns(kind)
    }
    return pyarrow.table(columns)


def _array(name: str, column: _Column, values: list[Any]) -> Any:
    """The values of one field; those that were absent are null."""
    import pyarrow

    kind, convert = column
    try:
        converted = [None if value is None else convert(value) for value in values]
        return pyarrow.array(converted, kind)
    except (OverflowError, UnicodeError, pyarrow.ArrowException) as error:
        raise ValueError(f"{name}: a value is not {kind}: {error}") from error


def _columns(kind: type[Record]) -> Iterator[tuple[str, _Column]]:
    """The fields of a result that are shown, with their types."""
    types = get_type_hints(kind, vars(sys.modules[kind.__module__]), _NOT_IMPORTED)
    for field in fields(kind):
        if not field.metadata.get("secret") and field.name != "extra":
            yield field.name, _column(types[field.name])


def _column(annotation: Any) -> _Column:
    """The type of a field in Arrow, and what makes a value of it."""
    import pyarrow

    if get_origin(annotation) is UnionType:
        parts = [part for part in get_args(annotation) if part is not NoneType]
        # A column has one type: a port or an address is text.
        annotation = parts[0] if len(parts) == 1 else str | int
    if annotation == str | int:
        return pyarrow.string(), str
    scalars: dict[Any, DataType] = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        bytes: pyarrow.binary(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    if annotation in scalars:
        return scalars[annotation], _itself
    match get_origin(annotation), get_args(annotation):
        case (origin, (item,)) if origin is list:
            return _list(_column(item))
        case (origin, (_, item)) if origin is dict and item is not object:
            return _map(_column(item))
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return _struct(annotation)
    return pyarrow.string(), _json


def _itself(value: object) -> object:
    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(item: _Column) -> _Column:
    import pyarrow

    kind, convert = item
    return pyarrow.list_(kind), lambda values: [_or_null(convert, value) for value in values]


def _map(item: _Column) -> _Column:
    import pyarrow

    kind, convert = item

    def pairs(values: Mapping[str, object]) -> list[tuple[str, object]]:
        return [(name, _or_null(convert, value)) for name, value in values.items()]

    return pyarrow.map_(pyarrow.string(), kind), pairs


def _struct(record: type[Record]) -> _Column:
    import pyarrow

    columns = dict(_columns(record))

    def members(value: Record) -> dict[str, object]:
        return {
            name: _or_null(convert, getattr(value, name)) for name, (_, convert) in columns.items()
        }

    return pyarrow.struct([(name, kind) for name, (kind, _) in columns.items()]), members


def _or_null(convert: _Conversion, value: object) -> object:
    return None if value is None else convert(value)
