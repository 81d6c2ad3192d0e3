"""The embedded service."""

from __future__ import annotations

from . import _native
from ._client import AsyncRemoteClient, RemoteClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType
    from typing import Self


class Service:
    """The management API, served from this process until `stop` or the end of a `with` block."""

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        api_key: str | None = None,
        public_url: str | None = None,
        rate_limit: tuple[int, float] | None = None,
    ) -> None:
        """Start a service.

        Args:
            path: The database, a SQLite file; None for one in memory that ends with the service.
            host: The address to listen on; only this machine by default.
            port: The port to listen on; 0 for any that is free.
            api_key: The admin key of a new database, or of an existing one that holds it; made if
                left out.
            public_url: The address to put into `uri` fields, where it is not the listener's.
            rate_limit: How many requests an account may make in how many seconds; none by default.

        Raises:
            ServiceError: The address or the database cannot be used; the message says why.
        """
        self._service = _native.Service(path, host, port, api_key, public_url, rate_limit)

    @property
    def url(self) -> str:
        """The address of the API."""
        return self._service.url

    @property
    def api_key(self) -> str | None:
        """The admin key: the one given, or the one made for a new database; else None."""
        return self._service.api_key

    @property
    def is_running(self) -> bool:
        """True until `stop`."""
        return self._service.is_running

    def client(self) -> RemoteClient:
        """A client with the admin key."""
        return RemoteClient(self.api_key, base_url=self.url)

    def async_client(self) -> AsyncRemoteClient:
        """An asyncio client with the admin key."""
        return AsyncRemoteClient(self.api_key, base_url=self.url)

    def stop(self, grace: float = 10.0) -> None:
        """Stop; requests in flight are answered for `grace` seconds. Stopping twice is fine."""
        self._service.stop(grace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "" if self.is_running else ", stopped"
        return f"<Service at {self.url}{state}>"
