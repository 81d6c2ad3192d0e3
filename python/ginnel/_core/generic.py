"""What classes with a type parameter need of `typing`.

To import `typing` takes several times as long as the first call of the API. Type checkers see the
real thing; when the program runs, `Pager[ApiKey]` is what `list[ApiKey]` is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic, TypeVar, overload

    from .record import Record

    T = TypeVar("T", bound=Record)
else:
    T = object

    class Generic:
        """The base of classes that can be written with a parameter."""

        __slots__ = ()

        def __class_getitem__(cls, parameters):
            return type(list[T])(cls, parameters)

    def overload(signature):
        """Returns what type checkers read; the function behind it takes its place."""
        return signature


__all__ = ["Generic", "T", "overload"]
