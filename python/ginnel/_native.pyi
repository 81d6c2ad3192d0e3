from asyncio import Future
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, final, overload

from ._record import Record

__all__ = [
    "Bridge",
    "Core",
    "Events",
    "Service",
    "__version__",
    "decode",
    "main",
    "operations",
    "parse",
    "shapes",
]

__version__: str

_R = TypeVar("_R")

@final
class Core:
    def __new__(cls, options: dict[str, object]) -> Core: ...
    def with_options(self, options: dict[str, object]) -> Core: ...
    @overload
    def call(self, operation: str, result: type[_R], arguments: tuple[object, ...]) -> _R: ...
    @overload
    def call(self, operation: str, result: None, arguments: tuple[object, ...]) -> None: ...
    def page(
        self,
        operation: str,
        result: type[_R],
        arguments: tuple[object, ...],
        next: str | None = None,
    ) -> tuple[list[_R], str | None, str | None]: ...
    def request(
        self, method: str, path: str, json: object = None, query: object = None
    ) -> object: ...
    def start(
        self,
        bridge: Bridge,
        future: Future[Any],
        operation: str,
        result: type[object] | None,
        arguments: tuple[object, ...],
    ) -> int: ...
    def start_page(
        self,
        bridge: Bridge,
        future: Future[Any],
        operation: str,
        result: type[object],
        arguments: tuple[object, ...],
        next: str | None = None,
    ) -> int: ...
    def start_request(
        self,
        bridge: Bridge,
        future: Future[Any],
        method: str,
        path: str,
        json: object = None,
        query: object = None,
    ) -> int: ...
    def close(self) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def base_url(self) -> str: ...
    @property
    def key_hint(self) -> str: ...

@final
class Bridge:
    def __new__(cls, notify: Callable[[], None] | None = None) -> Bridge: ...
    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def abandon(self, ticket: int) -> None: ...

@final
class Events:
    def next(self, timeout: float | None) -> str | None: ...

@final
class Service:
    def __new__(
        cls,
        path: str | PathLike[str] | None,
        host: str,
        port: int,
        api_key: str | None,
        public_url: str | None,
        rate_limit: tuple[int, float] | None,
        edges: dict[str, object],
    ) -> Service: ...
    def stop(self, grace: float) -> None: ...
    def events(self) -> Events | None: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def url(self) -> str: ...
    @property
    def public_url(self) -> str: ...
    @property
    def api_key(self) -> str | None: ...
    @property
    def http_address(self) -> str | None: ...
    @property
    def https_address(self) -> str | None: ...
    @property
    def ca_pem(self) -> str: ...
    @property
    def ca_path(self) -> Path | None: ...

def decode(class_: type[Record], json: bytes) -> Any: ...
def parse(json: bytes) -> Mapping[str, object]: ...
def operations() -> str: ...
def shapes() -> str: ...
def main(arguments: list[str]) -> int: ...
