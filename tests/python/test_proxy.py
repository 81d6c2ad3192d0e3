"""Requests that go through a proxy."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from server import Server, answer

KEY = {"id": "ak_1", "uri": "u"}
ELSEWHERE = "http://api.example.test"


async def test_a_proxy_that_was_passed(make_client: Any) -> None:
    with Server([answer(200, KEY)]) as proxy:
        client = make_client("k", base_url=ELSEWHERE, allow_http=True, proxy=proxy.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        request = proxy.requests[0]
        assert request.target == f"{ELSEWHERE}/api_keys/ak_1"
        assert request.headers["host"] == "api.example.test"
        assert request.headers["authorization"] == "Bearer k"


async def test_the_proxy_of_the_environment(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server([answer(200, KEY), answer(404)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        client = make_client("k", base_url=ELSEWHERE, allow_http=True)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert len(proxy.requests) == 1


async def test_nothing_on_this_machine_goes_through_the_environments_proxy(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server([]) as proxy, Server([answer(200, KEY)]) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("all_proxy", proxy.url)
        client = make_client("k", base_url=server.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.connections == 0


async def test_a_compressed_answer(make_client: Any) -> None:
    body = gzip.compress(json.dumps(KEY).encode())
    with Server([answer(200, body, content_encoding="gzip")]) as proxy:
        client = make_client("k", base_url=ELSEWHERE, allow_http=True, proxy=proxy.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.requests[0].headers["accept-encoding"] == "gzip"
