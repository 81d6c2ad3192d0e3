"""The asyncio client of the management API."""

from __future__ import annotations

from .client import _Awaited, _RemoteOptions
from .remote_tree_asyncio import AsyncRemoteResources
from .resource import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..remote._raw import AsyncRawRemoteResources

__tracebackhide__ = True
"""pytest shows the arguments of frames, which may be secrets."""


class AsyncRemoteClient(_RemoteOptions, _Awaited, AsyncRemoteResources):
    """A client of the management API whose calls are awaited.

    Its names are those of RemoteClient. It is bound to no event loop. Cancelling a call drops its
    request.
    """

    @cached_property
    def with_raw_response(self) -> AsyncRawRemoteResources:
        """The same calls, which return a `RawResponse` each when they are awaited."""
        from ..remote._raw import AsyncRawRemoteResources

        return AsyncRawRemoteResources(self._core.raw())
