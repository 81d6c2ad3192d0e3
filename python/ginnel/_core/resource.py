"""What all resource classes have in common, and help with mistyped names.

Both are in one module, because each module makes `import ginnel` slower.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from functools import wraps
    from types import FunctionType
    from typing import Any

    from .._native import Core
else:

    def wraps(method):
        """That of `functools`, whose import takes half as long as that of this package."""

        def dress(call):
            for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
                setattr(call, name, getattr(method, name))
            call.__wrapped__ = method
            return call

        return dress


if TYPE_CHECKING or "functools" in sys.modules:
    from functools import cached_property
else:

    class cached_property:
        """That of `functools`, whose import would take half as long as that of this package."""

        def __init__(self, make):
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            made = instance.__dict__[self._name] = self._make(instance)
            return made


__all__ = ["Resource", "Spelling", "cached_property", "did_you_mean"]

IS_COROUTINE_FUNCTION = 0x80
"""The flag of code that an `async def` makes; `inspect` has it, but takes long to import."""
PYTHON_SUGGESTS = sys.version_info >= (3, 13)
"""Whether Python itself says which keyword was likely meant."""

__tracebackhide__ = True
"""pytest shows the arguments of frames, which may be secrets."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest of the known names; empty where none is near."""
    near = _nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1)), None)


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
            if not (PYTHON_SUGGESTS or name.startswith("_")) and _has_keywords(value):
                setattr(cls, name, _with_keywords(value))


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
    """The error as Python words it from 3.13 on."""
    code = method.__code__
    known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    unknown = next((name for name in keywords if name not in known), "")
    near = _nearest(unknown, known)
    return TypeError(f"{error}. Did you mean {near!r}?") if near else error


def _was_called_wrongly(error: TypeError) -> bool:
    """Whether the call failed before the first line of what was called."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


class Resource(Spelling):
    """A part of an API; it holds the client's connections, not the client."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._core.base_url}>"
