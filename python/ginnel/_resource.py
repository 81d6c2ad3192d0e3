"""What all resource classes have in common."""

from __future__ import annotations

from ._spelling import Spelling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native import Core


class Resource(Spelling):
    """A part of an API; it holds the client's connections, not the client."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._core.base_url}>"
