"""Fixtures: a service in this process, and each client behind one awaitable face."""

from __future__ import annotations

import inspect
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import ginnel
import postgres
from ginnel._core.pager import Pager
from ginnel._core.resource import Resource

pytest_plugins = ["browsing"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Jobs in the background of a shell ignore it, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # What nohup starts ignores this one.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Face:
    """A blocking client that can be awaited, so that a test is written once for both clients."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if isinstance(value, Resource):
            return Face(value)
        return self._awaitable(value) if inspect.ismethod(value) else value

    @staticmethod
    def _awaitable(method: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            async def perform() -> Any:
                return method(*arguments, **keywords)

            is_list = method.__name__ in ("list", "get_secrets_by_vault")
            if is_list and not method.__self__._core.is_raw:
                listed = method(*arguments, **keywords)
                return PagerFace(listed) if isinstance(listed, Pager) else finished(listed)
            return perform()

        return call


async def finished(result: Any) -> Any:
    return result


class PagerFace:
    """A blocking pager that can be iterated over asynchronously."""

    def __init__(self, pager: Pager[Any]) -> None:
        self._pager = pager

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self._pager:
            yield item

    async def pages(self) -> AsyncIterator[Any]:
        for page in self._pager.pages():
            yield page

    def __getitem__(self, part: int | slice) -> Any:
        async def fetch() -> Any:
            return self._pager[part]

        return fetch()

    def __len__(self) -> int:
        return len(self._pager)

    def __bool__(self) -> bool:
        return bool(self._pager)

    async def to_list(self, limit: int | None = None, *, progress: bool = False) -> Any:
        return self._pager.to_list(limit, progress=progress)

    async def to_arrow(self, limit: int | None = None) -> Any:
        return self._pager.to_arrow(limit)

    async def first(self) -> Any:
        return self._pager.first()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    with postgres.running() as server:
        yield server


@pytest.fixture
def store(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """The address of an empty database on PostgreSQL."""
    with postgres_server.database() as address:
        yield address


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where a service keeps its data: in memory, or for `ON_BOTH_STORES` on PostgreSQL too."""
    if getattr(request, "param", "memory") == "memory":
        return {}
    return {"store": request.getfixturevalue("store")}


@pytest.fixture
def service(storage: dict[str, str]) -> Iterator[ginnel.Service]:
    with ginnel.Service(**storage) as service:  # type: ignore[arg-type]
        yield service


@pytest.fixture(params=["blocking", "asyncio"])
def make_client(request: pytest.FixtureRequest) -> Any:
    """Makes clients of one of the two kinds."""
    opened: list[Any] = []

    def make(*arguments: Any, **options: Any) -> Any:
        kind = ginnel.RemoteClient if request.param == "blocking" else ginnel.AsyncRemoteClient
        client = kind(*arguments, **options)
        opened.append(client)
        return Face(client) if request.param == "blocking" else client

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def client(service: ginnel.Service, make_client: Any) -> Any:
    return make_client(service.api_key, base_url=service.url)
