"""Mistyped names: what is said of them names the one that was likely meant."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from functools import wraps
    from types import FunctionType
    from typing import Any
else:

    def wraps(method):
        """That of `functools`, whose import takes half as long as that of this package."""

        def dress(call):
            for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
                setattr(call, name, getattr(method, name))
            call.__wrapped__ = method
            return call

        return dress


IS_COROUTINE_FUNCTION = 0x80
"""The flag of code that an `async def` makes; `inspect` has it, but takes long to import."""
PYTHON_SUGGESTS = sys.version_info >= (3, 13)
"""Whether Python itself says which keyword was likely meant."""


TAKE_OPTIONS = ("__init__", "with_options")
"""The methods whose keywords are options of a client."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest of the known names; empty where none is near."""
    from difflib import get_close_matches

    nearest = get_close_matches(name, list(known), 1)
    return f". Did you mean {nearest[0]!r}?" if nearest else ""


class Spelling:
    """A class that helps with mistyped attributes, and mistyped keywords of its methods."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            kind = type(self)
            message = f"{kind.__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                message += did_you_mean(name, (n for n in dir(kind) if not n.startswith("_")))
            # Without the object, Python does not look for a suggestion of its own.
            raise AttributeError(message, name=name, obj=None)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, value in vars(cls).copy().items():
            if name in TAKE_OPTIONS:
                setattr(cls, name, _with_options(value))
            elif not (PYTHON_SUGGESTS or name.startswith("_")) and _has_keywords(value):
                setattr(cls, name, _with_keywords(value))


def _with_options(method: FunctionType) -> Callable[..., Any]:
    """A method that takes a client's options; its errors name the class of the client."""

    @wraps(method)
    def call(self: object, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except TypeError as error:
            if not _was_called_wrongly(error):
                raise
            raise _naming(type(self).__name__, error, method, options) from None

    return call


def _naming(client: str, error: TypeError, method: FunctionType, options: Any) -> TypeError:
    called = client if method.__name__ == "__init__" else f"{client}.{method.__name__}"
    known = _keywords(method)
    unknown = next((name for name in options if name not in known), None)
    if unknown is None:
        return TypeError(str(error).replace(f"{method.__qualname__}()", f"{called}()"))
    nearest = did_you_mean(unknown, known) or f"; it has {', '.join(known)}"
    return TypeError(f"{called}() has no option {unknown!r}{nearest}")


def _has_keywords(value: object) -> bool:
    """Whether a member is a method with keywords; those without are called without a detour."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_kwonlyargcount > 0


def _with_keywords(method: FunctionType) -> Callable[..., Any]:
    """A method whose error for an unknown keyword says which one was likely meant."""
    if method.__code__.co_flags & IS_COROUTINE_FUNCTION:

        @wraps(method)
        async def perform(*arguments: Any, **keywords: Any) -> Any:
            try:
                coroutine = method(*arguments, **keywords)
            except TypeError as error:
                raise _suggesting(error, method, keywords) from None
            return await coroutine

        return perform

    @wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return method(*arguments, **keywords)
        except TypeError as error:
            if not _was_called_wrongly(error):
                raise
            raise _suggesting(error, method, keywords) from None

    return call


def _suggesting(error: TypeError, method: FunctionType, keywords: Iterable[str]) -> TypeError:
    known = _keywords(method)
    nearest = (did_you_mean(name, known) for name in keywords if name not in known)
    return TypeError(f"{error}{next(nearest, '')}")


def _was_called_wrongly(error: TypeError) -> bool:
    """Whether the call failed before the first line of what was called."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _keywords(method: FunctionType) -> tuple[str, ...]:
    code = method.__code__
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
