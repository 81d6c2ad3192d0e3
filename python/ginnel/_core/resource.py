"""What all resource classes have in common."""

from __future__ import annotations

import sys

from .spelling import Spelling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._native import Core

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


__all__ = ["Resource", "cached_property"]


class Resource(Spelling):
    """A part of an API; it holds the client's connections, not the client."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._core.base_url}>"
