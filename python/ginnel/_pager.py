"""Lists, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from ._progress import counting
from ._results import Results
from .exceptions import PaginationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pandas import DataFrame

    from ._native import Core
    from ._record import Record

T = TypeVar("T", bound="Record")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
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

    def _repr_html_(self) -> str:
        from ._notebook import table

        return table(self.data, "more on the next page" if self.has_next else "")


class _Pages(Generic[T]):
    """What the two pagers share; nothing is fetched before it is asked for."""

    __slots__ = ("_arguments", "_core", "_operation", "_result")

    def __init__(
        self, core: Core, operation: str, result: type[T], arguments: tuple[object, ...]
    ) -> None:
        self._core = core
        self._operation = operation
        self._result = result
        self._arguments = arguments

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._result.__name__}>"


def _note(seen: set[str], next_page_uri: str) -> None:
    if next_page_uri in seen:
        raise PaginationError("next_page_uri leads to a page that was seen before")
    seen.add(next_page_uri)


class Pager(_Pages[T]):
    """A list: iterate over its items, each time from the start. Pages are fetched as needed."""

    __slots__ = ()

    def pages(self) -> Iterator[Page[T]]:
        """The list page by page."""
        seen: set[str] = set()
        following: str | None = None
        while True:
            data, uri, following = self._core.page(
                self._operation, self._result, self._arguments, following
            )
            yield Page(data, uri, following)
            if following is None:
                return
            _note(seen, following)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(page.data for page in self.pages())

    def first(self) -> T | None:
        """The first item; None when there is none."""
        return next(iter(self), None)

    def to_list(self, limit: int | None = None, *, progress: bool = False) -> Results[T]:
        """All items, or at most `limit`; `progress` counts them on stderr meanwhile."""
        items: Results[T] = Results()
        with counting(progress, self._result.__name__, limit) as count:
            for page in self.pages():
                items += page.data
                count(len(page.data))
                if limit is not None and len(items) >= limit:
                    return Results(items[:limit])
        return items

    def to_pandas(self, limit: int | None = None) -> DataFrame:
        """All items, or at most `limit`, as a data frame; needs `pandas`."""
        return self.to_list(limit).to_pandas()


class AsyncPager(_Pages[T]):
    """A list: iterate over its items with `async for`. Pages are fetched as needed."""

    __slots__ = ()

    async def pages(self) -> AsyncIterator[Page[T]]:
        """The list page by page."""
        seen: set[str] = set()
        following: str | None = None
        while True:
            data, uri, following = await self._core.start_page(
                self._operation, self._result, self._arguments, following
            )
            yield Page(data, uri, following)
            if following is None:
                return
            _note(seen, following)

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.data:
                yield item

    async def first(self) -> T | None:
        """The first item; None when there is none."""
        async for item in self:
            return item
        return None

    async def to_list(self, limit: int | None = None, *, progress: bool = False) -> Results[T]:
        """All items, or at most `limit`; `progress` counts them on stderr meanwhile."""
        items: Results[T] = Results()
        with counting(progress, self._result.__name__, limit) as count:
            async for page in self.pages():
                items += page.data
                count(len(page.data))
                if limit is not None and len(items) >= limit:
                    return Results(items[:limit])
        return items

    async def to_pandas(self, limit: int | None = None) -> DataFrame:
        """All items, or at most `limit`, as a data frame; needs `pandas`."""
        return (await self.to_list(limit)).to_pandas()
