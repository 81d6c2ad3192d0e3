"""Asynchronous clients where no asyncio loop runs: one clear line says what to do."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import ginnel

ASYNCIO_NEEDED = r"^asynchronous clients of ginnel need a running asyncio loop: [^\n]+$"
NOT_TRIO = r"^asynchronous clients of ginnel need asyncio, and this is trio: [^\n]+$"


async def call(service: ginnel.Service) -> object:
    async with service.async_client() as remote:
        return await remote.api_keys.get("ak_1")


async def page(service: ginnel.Service) -> object:
    async with service.async_client() as remote:
        return await remote.api_keys.list().first()


async def request(service: ginnel.Service) -> object:
    async with service.async_client() as remote:
        return await remote.request("GET", "/api_keys")


async def wait_for(service: ginnel.Service) -> object:
    async with ginnel.AsyncAgentClient(service.url) as here:
        return await here.requests.wait_for()


async def event(service: ginnel.Service) -> object:
    return await service.events().wait()


# `_asyncio` looks the loop up, and does not say this yet.
CALLS = [call, page, request, wait_for, event]
Call = Callable[[ginnel.Service], Coroutine[Any, Any, object]]


@pytest.mark.parametrize("awaited", CALLS)
def test_under_trio_the_error_says_how_to_run_asyncio(
    service: ginnel.Service, awaited: Call
) -> None:
    trio = pytest.importorskip("trio")

    with pytest.raises(RuntimeError, match=NOT_TRIO) as refused:
        trio.run(awaited, service)

    assert 'anyio.run(main, backend="asyncio")' in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    assert service.calls == []


@pytest.mark.parametrize("awaited", CALLS)
def test_without_a_loop_the_error_says_what_is_needed(
    service: ginnel.Service, awaited: Call
) -> None:
    with pytest.raises(RuntimeError, match=ASYNCIO_NEEDED):
        awaited(service).send(None)

    assert service.calls == []


def test_anyio_on_asyncio_is_fine(service: ginnel.Service) -> None:
    anyio = pytest.importorskip("anyio")

    assert anyio.run(page, service, backend="asyncio") is not None
