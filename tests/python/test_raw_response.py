"""Answers as they came, by `with_raw_response`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import ginnel
from conftest import Face
from server import Server, answer

if TYPE_CHECKING:
    from ginnel._core.pager import Page
    from ginnel._core.raw_response import RawResponse
    from ginnel.local.status import Status
    from ginnel.remote.api_keys import ApiKey
    from ginnel.remote.backends.failover import FailoverBackend

KEY = {"id": "ak_1", "uri": "u", "description": "ci"}
PAGE = {"keys": [KEY], "uri": "u", "next_page_uri": "/api_keys?before_id=ak_1"}


@pytest.fixture(params=[ginnel.AgentClient, ginnel.AsyncAgentClient])
def make_agent_client(request: pytest.FixtureRequest) -> Any:
    """Makes clients of an agent, of one of the two kinds."""

    def make(url: str) -> Any:
        client = request.param(url)
        return Face(client) if request.param is ginnel.AgentClient else client

    return make


async def test_a_raw_answer_is_what_came(make_client: Any) -> None:
    came = answer(200, KEY, X_Request_Id="req_7", X_Twice="a", x_twice="b")
    with Server([answer(503, retry_after=0), came]) as server:
        client = make_client("k", base_url=server.url)
        raw = await client.with_raw_response.api_keys.get("ak_1")

    assert (raw.status_code, raw.attempts, raw.request_id) == (200, 2, "req_7")
    assert raw.headers["x-twice"] == "b"
    assert raw.body == b'{"id": "ak_1", "uri": "u", "description": "ci"}'
    assert (raw.method, raw.url) == ("GET", f"{server.url}/api_keys/ak_1")
    assert 0 < raw.elapsed < 60
    assert (raw.parse().id, raw.parse().description) == ("ak_1", "ci")
    assert repr(raw).startswith(f"<RawResponse of GET {server.url}/api_keys/ak_1: 200, 47 bytes, ")


async def test_a_raw_answer_without_a_name_of_the_request_has_none(make_client: Any) -> None:
    with Server([answer(201, KEY)]) as server:
        client = make_client("k", base_url=server.url)
        raw = await client.with_raw_response.api_keys.create(description="ci")

    assert raw.request_id is None
    assert raw.status_code == 201


async def test_the_service_gives_each_request_a_name(client: Any, make_client: Any) -> None:
    created = await client.with_raw_response.api_keys.create(description="ci")
    fetched = await client.with_raw_response.api_keys.get(created.parse().id)
    deleted = await client.with_raw_response.api_keys.delete(created.parse().id)
    with pytest.raises(ginnel.NotFoundError) as missing:
        await client.api_keys.get("ak_none")
    with pytest.raises(ginnel.NotFoundError) as nowhere:
        await client.request("GET", "/nowhere")
    stranger = make_client("no_key", base_url=client.base_url)
    with pytest.raises(ginnel.AuthenticationError) as refused:
        await stranger.api_keys.get("ak_none")

    answers = [created, fetched, deleted, missing.value, nowhere.value, refused.value]
    names = {str(answer.request_id) for answer in answers}
    assert len(names) == len(answers)
    assert all(name.startswith("op_") and len(name) == 30 for name in names)
    assert missing.value.request_id == missing.value.operation_id


async def test_a_raw_list_is_its_first_page(make_client: Any) -> None:
    with Server([answer(200, PAGE)]) as server:
        client = make_client("k", base_url=server.url)
        raw = await client.with_raw_response.api_keys.list(limit=1)
        page = raw.parse()

    assert [request.target for request in server.requests] == ["/api_keys?limit=1"]
    assert [key.id for key in page] == ["ak_1"]
    assert page.next_page_uri == "/api_keys?before_id=ak_1"


async def test_a_raw_answer_without_content_is_parsed_as_none(client: Any) -> None:
    key = await client.api_keys.create()
    raw = await client.with_raw_response.api_keys.delete(key.id)

    assert (raw.status_code, raw.body, raw.parse()) == (204, b"", None)


async def test_any_request_has_a_raw_answer(client: Any) -> None:
    raw = await client.with_raw_response.request("GET", "/api_keys", query={"limit": 1})

    assert raw.status_code == 200
    assert set(raw.parse()) == {"keys", "uri", "next_page_uri"}


async def test_resources_below_others_have_raw_answers(client: Any) -> None:
    raw = await client.with_raw_response.backends.failover.create(backends=[])

    assert (raw.status_code, raw.parse().backends) == (201, [])


async def test_an_error_is_raised_all_the_same(client: Any) -> None:
    with pytest.raises(ginnel.NotFoundError):
        await client.with_raw_response.api_keys.get("ak_" + "0" * 27)


async def test_what_cannot_be_parsed_can_be_looked_at(make_client: Any) -> None:
    with Server([answer(200, b"<html>")]) as server:
        client = make_client("k", base_url=server.url)
        raw = await client.with_raw_response.api_keys.get("ak_1")

    assert raw.body == b"<html>"
    with pytest.raises(ginnel.ResponseDecodeError, match="GET"):
        raw.parse()


async def test_a_large_raw_answer_is_parsed_when_it_is_asked_to_be(make_client: Any) -> None:
    keys = [{"id": f"ak_{number}", "uri": "u", "description": "x" * 100} for number in range(9_000)]
    with Server([answer(200, {"keys": keys, "uri": "u", "next_page_uri": None})]) as server:
        client = make_client("k", base_url=server.url, timeout=60)
        raw = await client.with_raw_response.api_keys.list()

    assert len(raw.body) > 1_000_000
    assert raw.parse()[-1].id == "ak_8999"


async def test_options_and_hooks_are_those_of_the_client(
    service: ginnel.Service, make_client: Any
) -> None:
    seen: list[Any] = []
    client = make_client(service.api_key, base_url=service.url, on_response=seen.append)
    await client.with_raw_response.api_keys.list()

    (event,) = seen
    assert (event.path, event.status) == ("/api_keys", 200)
    assert await client.api_keys.list().to_list()


async def test_agents_have_raw_answers(make_agent_client: Any) -> None:
    tunnels = {"tunnels": [], "uri": "/api/tunnels"}
    with Server([answer(200, {"uri": "/api"}), answer(200, tunnels)]) as server:
        raw = make_agent_client(server.url).with_raw_response
        root, listed = await raw.root(), await raw.tunnels.list()

    assert root.parse().uri == "/api"
    assert listed.parse().data == []
    assert [request.target for request in server.requests] == ["/api/", "/api/tunnels"]


def test_who_asks_for_no_raw_answers_does_not_pay_for_them() -> None:
    program = (
        "import sys, ginnel; ginnel.RemoteClient('k', base_url='http://127.0.0.1:1').api_keys; "
        "print([name for name in sys.modules if 'ginnel' in name and '_raw' in name])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert shown.stdout == "[]\n", shown.stderr


if TYPE_CHECKING:
    # What type checkers are told; the suite runs mypy and pyright over this file.

    def blocking(remote: ginnel.RemoteClient, agent: ginnel.AgentClient) -> None:
        raw = remote.with_raw_response
        assert_type(raw.api_keys.get("ak_1"), RawResponse[ApiKey])
        assert_type(raw.api_keys.get("ak_1").parse(), ApiKey)
        assert_type(raw.api_keys.list(limit=5).parse(), Page[ApiKey])
        assert_type(raw.api_keys.delete("ak_1"), RawResponse[None])
        assert_type(raw.backends.failover.get("bkdfo_1").parse(), FailoverBackend)
        assert_type(raw.request("GET", "/x", query={"a": 1}).parse(), object)
        assert_type(agent.with_raw_response.status().parse(), Status)
        raw.api_keys.get(5)  # type: ignore[arg-type]
        raw.api_keys.list(limits=5)  # type: ignore[call-arg]

    async def awaited(remote: ginnel.AsyncRemoteClient, agent: ginnel.AsyncAgentClient) -> None:
        raw = remote.with_raw_response
        assert_type(await raw.api_keys.get("ak_1"), RawResponse[ApiKey])
        assert_type((await raw.api_keys.list()).parse(), Page[ApiKey])
        assert_type(await raw.api_keys.delete("ak_1"), RawResponse[None])
        assert_type((await raw.request("GET", "/x")).parse(), object)
        assert_type((await agent.with_raw_response.status()).parse(), Status)
