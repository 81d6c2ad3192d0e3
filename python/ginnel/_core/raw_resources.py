"""What the resources of `with_raw_response` are made of.

They have the methods of the others over a core that returns answers as they came. Here is what type
checkers are told of that: the same parameters, and a `RawResponse` of the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from .client import _Awaited, _Blocking
from .resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Concatenate, ParamSpec, TypeAlias

    from .pager import AsyncPager, Page, Pager
    from .raw_response import RawResponse
    from .record import Record

    P = ParamSpec("P")
    R = TypeVar("R", bound=Record)
    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)

    class Call(Protocol[P, T_co]):
        """A method with its object."""

        def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> T_co: ...

    Awaited: TypeAlias = Coroutine[Any, Any, T]


if TYPE_CHECKING:

    def raw(method: Callable[Concatenate[Any, P], T]) -> Call[P, RawResponse[T]]:
        """A method that waits for its result."""
        ...

    def raw_list(
        method: Callable[Concatenate[Any, P], Pager[R]],
    ) -> Call[P, RawResponse[Page[R]]]:
        """A method that gives a pager."""
        ...

    def raw_async(
        method: Callable[Concatenate[Any, P], Awaited[T]],
    ) -> Call[P, Awaited[RawResponse[T]]]:
        """A method that is awaited."""
        ...

    def raw_async_list(
        method: Callable[Concatenate[Any, P], AsyncPager[R]],
    ) -> Call[P, Awaited[RawResponse[Page[R]]]]:
        """A method that gives a pager of an asyncio client."""
        ...

else:

    def raw(method):
        """The method itself: what it returns is the core's decision."""
        return method

    raw_list = raw_async = raw_async_list = raw


class RawCalls(Resource):
    """What the calls of a blocking client have in common."""

    request = raw(_Blocking.request)


class AsyncRawCalls(Resource):
    """What the calls of an asyncio client have in common."""

    request = raw_async(_Awaited.request)
