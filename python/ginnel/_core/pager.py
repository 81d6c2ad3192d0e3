"""Lists, page by page."""

from __future__ import annotations

from itertools import chain

from ..exceptions import PaginationError, ValidationError
from .dataclass import Dataclass, dataclass
from .generic import Generic, T, overload
from .lazy import call, render
from .progress import counting
from .results import Results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

    from pandas import DataFrame
    from pyarrow import Table

    from .._native import Core

MAX_SHORT_PAGE = 50
"""How many items a page is asked to hold where no more are needed; each list holds that many."""


@dataclass(frozen=True, slots=True, repr=False)
class Page(Dataclass, Generic[T]):
    """One page of a list."""

    data: list[T]
    """The items, newest first."""
    uri: str | None
    """The address of the list."""
    next_page_uri: str | None
    """The address of the next page; None on the last."""

    @property
    def has_next(self) -> bool:
        """True when another page follows."""
        return self.next_page_uri is not None

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Results[T]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> T | Results[T]:
        return Results(self.data[index]) if isinstance(index, slice) else self.data[index]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.data, self.uri, self.next_page_uri)

    def __repr__(self) -> str:
        shown = f"data={self.data!r}, uri={self.uri!r}, next_page_uri={self.next_page_uri!r}"
        return f"{type(self).__qualname__}({shown})"

    def _repr_html_(self) -> str:
        return render("results.table", self.data, "more on the next page" if self.has_next else "")


def filled_page(data: list[T], uri: str | None, next_page_uri: str | None) -> Page[T]:
    """A page, without what `dataclasses` would write for its constructor."""
    page: Page[T] = object.__new__(Page)
    for name, value in (("data", data), ("uri", uri), ("next_page_uri", next_page_uri)):
        object.__setattr__(page, name, value)
    return page


class _Pages(Generic[T]):
    """What the two pagers share; nothing is fetched before it is asked for."""

    __slots__ = ("_arguments", "_core", "_operation", "_result")

    _all: ClassVar[str]
    """How the whole list is fetched."""

    def __init__(
        self, core: Core, operation: str, result: type[T], arguments: tuple[object, ...]
    ) -> None:
        self._core = core
        self._operation = operation
        self._result = result
        self._arguments = arguments

    def __len__(self) -> NoReturn:
        raise TypeError(
            "a pager has no len(): it does not know how long its list is before it has fetched all "
            f"of it; use len({self._all})"
        )

    def __bool__(self) -> bool:
        # As before there was `__len__`: a pager is something, whatever its list holds.
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._result.__name__}>"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "of", self._result.__name__

    def _repr_html_(self) -> str:
        return render("clients.pager", type(self).__name__, self._result.__name__, self._all)

    def _short(self, count: int | None) -> Self:
        """The same list, in pages that hold no more than is needed, unless they were asked for."""
        if count is None or count > MAX_SHORT_PAGE:
            return self
        at = _position_of_limit(self._operation)
        if at is None or self._arguments[at] is not None:
            return self
        arguments = (*self._arguments[:at], count, *self._arguments[at + 1 :])
        return type(self)(self._core, self._operation, self._result, arguments)


def _bounds(part: slice) -> tuple[int, int | None, int]:
    """Start, stop and step of a part of a list that is fetched from its start."""
    shown = ":".join("" if at is None else repr(at) for at in (part.start, part.stop, part.step))
    shown = shown.removesuffix(":") if part.step is None else shown
    start = _position(part.start or 0, shown)
    stop = None if part.stop is None else _position(part.stop, shown)
    step = 1 if part.step is None else _position(part.step, shown)
    if step == 0:
        raise ValueError(f"pager[{shown}]: the step must be 1 or more")
    return start, stop, step


def _position(value: Any, shown: object) -> int:
    from operator import index

    try:
        position = index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"pager[{shown}]: positions are whole numbers, not {kind}") from None
    if position < 0:
        raise IndexError(
            f"pager[{shown}]: a pager counts from the start of its list, since it does not know "
            f"where that ends; use to_list()[{shown}]"
        )
    return position


def _item(items: Results[T], position: int) -> T:
    if position < len(items):
        return items[position]
    count = "1 item" if len(items) == 1 else f"{len(items)} items"
    raise IndexError(f"pager[{position}]: the list has {count}")


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValidationError(f"limit={limit}: must be 0 or more")


_positions_of_limit: dict[str, int | None] = {}


def _position_of_limit(operation: str) -> int | None:
    """Where the argument `limit` stands among those of a list; None where it has none."""
    if operation not in _positions_of_limit:
        names = _parameters(operation)
        _positions_of_limit[operation] = names.index("limit") if "limit" in names else None
    return _positions_of_limit[operation]


def _parameters(operation: str) -> list[str]:
    import json

    from .._native import operations

    is_local = operation.startswith("agent.")
    resource, _, method = operation.removeprefix("agent.").rpartition(".")
    return [
        parameter["name"]
        for known in json.loads(operations("local" if is_local else "remote"))
        if known["name"] == resource
        for known_method in known["operations"]
        if known_method["name"] == method
        for parameter in known_method["parameters"]
    ]


def _note(seen: set[str], next_page_uri: str) -> None:
    if next_page_uri in seen:
        raise PaginationError("next_page_uri leads to a page that was seen before")
    seen.add(next_page_uri)


class Pager(_Pages[T]):
    """A list: iterate over its items, each time from the start. Pages are fetched as needed.

    `pager[0]` and `pager[:5]` fetch no more than they need.
    """

    __slots__ = ()
    _all = "pager.to_list()"

    def pages(self) -> Iterator[Page[T]]:
        """The list page by page."""
        seen: set[str] = set()
        following: str | None = None
        while True:
            data, uri, following = self._core.page(
                self._operation, self._result, self._arguments, following
            )
            yield filled_page(data, uri, following)
            if following is None:
                return
            _note(seen, following)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(page.data for page in self.pages())

    @overload
    def __getitem__(self, part: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, part: slice, /) -> Results[T]: ...
    def __getitem__(self, part: SupportsIndex | slice, /) -> T | Results[T]:
        """One item, or those of a slice; pages are fetched up to the last of them and no further.

        Raises:
            IndexError: The list ends before, or a position is negative.
        """
        if not isinstance(part, slice):
            position = _position(part, part)
            return _item(self.to_list(position + 1), position)
        start, stop, step = _bounds(part)
        if stop is not None and stop <= start:
            return Results()
        return self.to_list(stop)[start::step]

    def first(self) -> T | None:
        """The first item; None when there is none."""
        return next(iter(self._short(1)), None)

    def to_list(self, limit: int | None = None, *, progress: bool = False) -> Results[T]:
        """All items, or at most `limit`; `progress` counts them on stderr meanwhile."""
        _check_limit(limit)
        items: Results[T] = Results()
        if limit == 0:
            return items
        with counting(progress, self._result.__name__, limit) as count:
            for page in self._short(limit).pages():
                items += page.data
                count(len(page.data))
                if limit is not None and len(items) >= limit:
                    return Results(items[:limit])
        return items

    def to_pandas(self, limit: int | None = None) -> DataFrame:
        """All items, or at most `limit`, as a data frame; needs `pandas`."""
        return self.to_list(limit).to_pandas()

    def to_arrow(self, limit: int | None = None) -> Table:
        """All items, or at most `limit`, as an Arrow table; needs `pyarrow`."""
        made: Table = call("_export.arrow.table", self._result, self.to_list(limit))
        return made


class AsyncPager(_Pages[T]):
    """A list: iterate over its items with `async for`. Pages are fetched as needed.

    `await pager[0]` and `await pager[:5]` fetch no more than they need.
    """

    __slots__ = ()
    _all = "await pager.to_list()"

    # Else Python would count up `__getitem__`, for ever.
    __iter__: ClassVar[None] = None

    async def pages(self) -> AsyncIterator[Page[T]]:
        """The list page by page."""
        seen: set[str] = set()
        following: str | None = None
        while True:
            data, uri, following = await self._core.start_page(
                self._operation, self._result, self._arguments, following
            )
            yield filled_page(data, uri, following)
            if following is None:
                return
            _note(seen, following)

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.data:
                yield item

    @overload
    def __getitem__(self, part: SupportsIndex, /) -> Coroutine[Any, Any, T]: ...
    @overload
    def __getitem__(self, part: slice, /) -> Coroutine[Any, Any, Results[T]]: ...
    def __getitem__(
        self, part: SupportsIndex | slice, /
    ) -> Coroutine[Any, Any, T] | Coroutine[Any, Any, Results[T]]:
        """One item, or those of a slice, to be awaited: `await pager[0]`, `await pager[:5]`.

        Pages are fetched up to the last of them and no further.

        Raises:
            IndexError: The list ends before, or a position is negative.
        """
        if isinstance(part, slice):
            return self._part(*_bounds(part))
        return self._at(_position(part, part))

    async def _at(self, position: int) -> T:
        return _item(await self.to_list(position + 1), position)

    async def _part(self, start: int, stop: int | None, step: int) -> Results[T]:
        if stop is not None and stop <= start:
            return Results()
        return (await self.to_list(stop))[start::step]

    async def first(self) -> T | None:
        """The first item; None when there is none."""
        async for item in self._short(1):
            return item
        return None

    async def to_list(self, limit: int | None = None, *, progress: bool = False) -> Results[T]:
        """All items, or at most `limit`; `progress` counts them on stderr meanwhile."""
        _check_limit(limit)
        items: Results[T] = Results()
        if limit == 0:
            return items
        with counting(progress, self._result.__name__, limit) as count:
            async for page in self._short(limit).pages():
                items += page.data
                count(len(page.data))
                if limit is not None and len(items) >= limit:
                    return Results(items[:limit])
        return items

    async def to_pandas(self, limit: int | None = None) -> DataFrame:
        """All items, or at most `limit`, as a data frame; needs `pandas`."""
        return (await self.to_list(limit)).to_pandas()

    async def to_arrow(self, limit: int | None = None) -> Table:
        """All items, or at most `limit`, as an Arrow table; needs `pyarrow`."""
        items = await self.to_list(limit)
        made: Table = call("_export.arrow.table", self._result, items)
        return made


def pager(core: Core, operation: str, result: type[T], arguments: tuple[object, ...]) -> Pager[T]:
    """A list; through a core for raw responses, the response that is its first page."""
    if core.is_raw:
        response: Pager[T] = core.page(operation, result, arguments)  # type: ignore[assignment]
        return response
    return Pager(core, operation, result, arguments)


def async_pager(
    core: Core, operation: str, result: type[T], arguments: tuple[object, ...]
) -> AsyncPager[T]:
    """As `pager`; the response is awaited."""
    if core.is_raw:
        response: AsyncPager[T] = core.start_page(operation, result, arguments)  # type: ignore[assignment]
        return response
    return AsyncPager(core, operation, result, arguments)
