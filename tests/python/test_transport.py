"""What clients do with servers that misbehave, and with their own life."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ginnel
from ginnel.remote.api_keys import ApiKey
from listener import until_closed
from server import Server, answer

KEY = {"id": "ak_1", "uri": "u"}


def silent(release: threading.Event) -> Callable[[], None]:
    """An answer that does not come before the test releases it."""

    def wait() -> None:
        release.wait(20)

    return wait


async def test_every_request_carries_what_the_specification_asks_for(make_client: Any) -> None:
    with Server([answer(200, KEY), answer(200, KEY)]) as server:
        client = make_client("secret-token", base_url=server.url, app="deploy/1")

        await client.api_keys.get("ak_1")
        await client.api_keys.update("ak_1", metadata="m")

        get, patch = server.requests
        assert get.headers["authorization"] == "Bearer secret-token"
        assert get.headers["service-version"] == "2"
        assert get.headers["user-agent"] == f"deploy/1 ginnel/{ginnel.__version__}"
        assert "content-type" not in get.headers
        assert patch.headers["content-type"] == "application/json"
        assert json.loads(patch.body) == {"id": "ak_1", "metadata": "m"}


async def test_ten_calls_use_one_connection(make_client: Any) -> None:
    with Server([answer(200, KEY)] * 10) as server:
        client = make_client("k", base_url=server.url)

        for _ in range(10):
            await client.api_keys.get("ak_1")

        assert server.connections == 1


@pytest.mark.parametrize(
    "surplus",
    [b"x", b"\r\n", answer(200, {"id": "ak_STOLEN", "uri": "u"}), answer(500)],
    ids=["a byte", "a line end", "an answer", "an error"],
)
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
async def test_nothing_but_an_answer_is_taken_for_one(
    make_client: Any, surplus: bytes, later: bool
) -> None:
    names = [f"ak_{turn}" for turn in range(8)]
    answers = [answer(200, {"id": name, "uri": "u"}) for name in names]
    if not later:
        answers[2] += surplus
    with Server(list(answers)) as server:
        client = make_client("k", base_url=server.url)
        for name in names[:3]:
            assert (await client.api_keys.get(name)).id == name
        assert server.connections == 1
        if later:
            server.serving[0].sendall(surplus)

        got = [(await client.api_keys.get(name)).id for name in names[3:6]]
        got += [(await client.api_keys.update(name, metadata="m")).id for name in names[6:]]

        assert got == names[3:]
        # Who sends more than it was asked for gets each request on a connection of its own.
        assert server.connections == 1 + len(got)


async def test_an_idle_connection_that_was_closed_is_no_reason_for_another_each_time(
    make_client: Any,
) -> None:
    with Server([answer(200, KEY)] * 5) as server:
        client = make_client("k", base_url=server.url)
        await client.api_keys.get("ak_1")
        server.serving[0].shutdown(socket.SHUT_RDWR)

        for _ in range(4):
            await client.api_keys.get("ak_1")

        assert server.connections == 2


async def test_absent_null_and_unknown_fields(make_client: Any) -> None:
    wire = {
        "id": "bkdtg_1",
        "uri": "u",
        "labels": None,
        "new": {"a": [1]},
        'é"': 1,
        "tunnels": None,
    }
    with Server([answer(200, wire)]) as server:
        client = make_client("k", base_url=server.url)

        group = await client.backends.tunnel_group.get("bkdtg_1")

        assert (group.description, group.labels, group.tunnels) == (None, None, None)
        assert group.extra == {"new": {"a": [1]}, 'é"': 1}
        assert group.to_dict() == wire
        assert pickle.loads(pickle.dumps(group)).to_dict() == wire
        assert copy.deepcopy(group) == group


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error_code": "ERR_NGROK_215", "msg": "two\nlines"}, ginnel.BadRequestError),
        (401, None, ginnel.AuthenticationError),
        (403, {"error_code": "ERR_NGROK_203", "msg": "no"}, ginnel.AuthenticationError),
        (403, {"error_code": "ERR_NGROK_630", "msg": "no"}, ginnel.PermissionDeniedError),
        (404, b"<html>", ginnel.NotFoundError),
        (409, None, ginnel.ConflictError),
        (418, [1], ginnel.APIStatusError),
        (302, None, ginnel.APIStatusError),
        (500, b"oops", ginnel.ServerError),
        (503, None, ginnel.ServerError),
    ],
)
async def test_errors_of_any_shape_have_a_place(
    make_client: Any, status: int, body: object, kind: type[ginnel.APIStatusError]
) -> None:
    with Server([answer(status, body)]) as server:
        client = make_client("k", base_url=server.url, max_retries=0)

        with pytest.raises(kind) as raised:
            await client.api_keys.get("ak_1")

        error = raised.value
        assert type(error) is kind
        assert error.status_code == status
        assert "\n" not in str(error)
        assert str(status) in str(error)
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(twin) is kind
            assert str(twin) == str(error)
            assert twin.__dict__ == error.__dict__


@pytest.mark.parametrize("body", [b"no json", b"[]", b"{}", b'{"id": 1, "uri": "u"}', b'{"id": "'])
async def test_an_answer_that_is_none(make_client: Any, body: bytes) -> None:
    with Server([answer(200, body)]) as server:
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.ResponseDecodeError) as raised:
            await client.api_keys.get("ak_1")

        assert raised.value.body == body


async def test_too_many_requests_then_success(make_client: Any) -> None:
    with Server([answer(429, None, retry_after=1), answer(201, KEY)]) as server:
        client = make_client("k", base_url=server.url)
        started = time.monotonic()

        await client.api_keys.create()

        assert 1 <= time.monotonic() - started < 20
        assert len(server.requests) == 2


async def test_a_post_that_may_have_been_done_is_not_repeated(make_client: Any) -> None:
    with Server([answer(503), None]) as server:
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.ServerError):
            await client.api_keys.create()
        with pytest.raises(ginnel.APIConnectionError):
            await client.api_keys.create()

        assert len(server.requests) == 2


async def test_a_repeated_delete_that_finds_nothing_has_succeeded(make_client: Any) -> None:
    with Server([answer(502), answer(404)]) as server:
        client = make_client("k", base_url=server.url)

        await client.api_keys.delete("ak_1")

        assert len(server.requests) == 2


async def test_the_deadline_bounds_retries_and_pauses(make_client: Any) -> None:
    with Server([answer(503, None, retry_after=30)] * 9) as server:
        client = make_client("k", base_url=server.url, deadline=0.5)
        started = time.monotonic()

        with pytest.raises(ginnel.ServerError) as raised:
            await client.api_keys.get("ak_1")

        assert time.monotonic() - started < 10
        assert raised.value.retry_after == 30


async def test_a_server_that_never_answers(make_client: Any) -> None:
    release = threading.Event()
    with Server([silent(release)] * 9) as server:
        client = make_client("k", base_url=server.url, timeout=0.2, max_retries=1)

        with pytest.raises(TimeoutError) as raised:
            await client.api_keys.get("ak_1")

        assert isinstance(raised.value, ginnel.APITimeoutError)
        assert raised.value.attempts == 2
        release.set()


async def test_a_connection_that_was_closed_meanwhile(make_client: Any) -> None:
    with Server([answer(200, KEY), answer(200, KEY), answer(201, KEY)], True) as server:
        client = make_client("k", base_url=server.url, max_retries=0)

        await client.api_keys.get("ak_1")
        await until_closed(server, 1)
        await client.api_keys.get("ak_1")
        await until_closed(server, 2)
        await client.api_keys.create()

        assert len(server.requests) == 3


@pytest.mark.parametrize("following", ["http://elsewhere.test/api_keys", "//x", "http://["])
async def test_the_key_goes_nowhere_else(make_client: Any, following: str) -> None:
    with Server([answer(200, {"keys": [KEY], "uri": "u", "next_page_uri": following})]) as server:
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.PaginationError):
            await client.api_keys.list().to_list()

        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "following", ["/v2/api_keys?before_id=1", "?before_id=1", "api_keys?before_id=1"]
)
async def test_the_address_of_a_page_may_be_relative(make_client: Any, following: str) -> None:
    pages = [{"keys": [KEY], "next_page_uri": following}, {"keys": [KEY], "next_page_uri": ""}]
    with Server([answer(200, page) for page in pages]) as server:
        client = make_client("k", base_url=f"{server.url}/v2")

        keys = await client.api_keys.list().to_list()

        assert len(keys) == 2
        targets = [request.target for request in server.requests]
        assert targets == ["/v2/api_keys", "/v2/api_keys?before_id=1"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"uri":"u","next_page_uri":null}', "keys is missing"),
        (b"{}", "keys is missing"),
        (b"[]", "a value that is not an object at byte 0"),
        (b'{"keys":{}}', "keys: a value that is not an array at byte 8"),
        (
            b'{"keys":[{"id":"1","uri":"u"},7]}',
            r"keys\[1\]: a value that is not an object at byte 30",
        ),
        (
            b'{"keys":[{"id":"1","uri":2}]}',
            r"keys\[0\].uri: a value that is not a string at byte 25",
        ),
        (b'{"keys":[{"id":"1"}]}', r"keys\[0\].uri is missing"),
        (b'{"keys":[{"id":null,"uri":"u"}]}', r"keys\[0\].id is null"),
        (
            b'{"keys":[],"next_page_uri":1}',
            "next_page_uri: a value that is not a string at byte 27",
        ),
        (b'{"keys":[],"new":[1,]}', "new: a missing value at byte 20"),
    ],
)
async def test_a_page_that_is_none_says_where(make_client: Any, body: bytes, problem: str) -> None:
    with Server([answer(200, body)]) as server:
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.ResponseDecodeError, match=problem) as refused:
            await client.api_keys.list().to_list()

        assert refused.value.body == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"keys":null,"keys":[{"id":"1","uri":"u"}],"next_page_uri":"/x","next_page_uri":null}',
        b'{"keys":[{"id":"2","uri":"u"}],"keys":[{"id":"1","uri":"u"}],"next_page_uri":""}',
        b'{"\\u006beys":[{"\\u0069d":"1","uri":"u"}]}',
        b'{"keys":[{"id":5,"uri":"u","id":"1"}]}',
        b'{"keys":[{"id":null,"uri":"u","\\u0069d":"1"}]}',
    ],
)
async def test_the_last_of_two_fields_counts(make_client: Any, body: bytes) -> None:
    with Server([answer(200, body)]) as server:
        client = make_client("k", base_url=server.url)

        keys = await client.api_keys.list().to_list()

        assert [key.to_dict() for key in keys] == [{"id": "1", "uri": "u"}]


async def test_a_list_that_is_null_is_empty(make_client: Any) -> None:
    with Server([answer(200, b'{"keys":null,"uri":"u"}')]) as server:
        client = make_client("k", base_url=server.url)

        assert await client.api_keys.list().to_list() == []


@pytest.mark.parametrize(
    ("body", "code", "details"),
    [
        (b'{"msg":"no","details":null,"error_code":"E"}', "E", {}),
        (b'{"msg":"no","status_code":"400","details":{"a":0.1}}', None, {"a": 0.1}),
        (b'{"msg":"no","status_code":[],"details":[],"error_code":{}}', None, {}),
        (b'{"msg":"no","details":{"a":"\\ud800"},"error_code":218}', "218", {}),
        (b'{"msg":"no","details":{"a":1e400},"new":"\xff"}', None, {}),
        (
            b'{"msg":"no","details":{"a":' + b"7" * 40 + b',"b":[-18446744073709551617],"c":0.10}}',
            None,
            {"a": int("7" * 40), "b": [-18446744073709551617], "c": 0.1},
        ),
    ],
)
async def test_each_field_of_an_error_is_read_by_itself(
    make_client: Any, body: bytes, code: str | None, details: object
) -> None:
    with Server([answer(400, body)]) as server:
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.BadRequestError) as refused:
            await client.api_keys.get("1")

        error = refused.value
        assert (error.message, error.error_code, error.details) == ("no", code, details)


async def test_pages_in_a_circle(make_client: Any) -> None:
    with Server([]) as server:
        page = {"keys": [KEY], "uri": "u", "next_page_uri": f"{server.url}/api_keys?before_id=1"}
        server.answers += [answer(200, page)] * 3
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.PaginationError, match="seen before"):
            await client.api_keys.list().to_list()

        assert len(server.requests) == 2


async def test_a_closed_client_says_so(make_client: Any) -> None:
    client = make_client("k", base_url="http://127.0.0.1:1")

    client._target.close() if hasattr(client, "_target") else client.close()

    assert client.is_closed
    with pytest.raises(ginnel.ClientClosedError):
        await client.api_keys.get("ak_1")


async def test_nobody_listens(make_client: Any) -> None:
    client = make_client("k", base_url="http://127.0.0.1:1", max_retries=0)

    with pytest.raises(ConnectionError):
        await client.api_keys.get("ak_1")


async def test_other_options_share_the_connections(make_client: Any) -> None:
    with Server([answer(200, KEY), answer(200, KEY)]) as server:
        client = make_client("k", base_url=server.url)
        target = getattr(client, "_target", client)
        patient = target.with_options(timeout=60)

        await client.api_keys.get("ak_1")
        second = patient.api_keys.get("ak_1")
        if target is client:
            await second

        assert server.connections == 1


def test_cancelling_drops_the_request() -> None:
    dropped = threading.Event()
    with Server([]) as server:

        def wait_for_the_end() -> bytes:
            # The client's end of the connection closes while the server still thinks.
            server.serving[-1].settimeout(5)
            if server.serving[-1].recv(1) == b"":
                dropped.set()
            return answer(200, KEY)

        server.answers.append(wait_for_the_end)

        async def main() -> None:
            client = ginnel.AsyncRemoteClient("k", base_url=server.url)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.api_keys.get("ak_1"), 0.2)
            assert await asyncio.to_thread(dropped.wait, 5)

        asyncio.run(main())


def test_one_client_serves_two_loops(service: ginnel.Service) -> None:
    client = service.async_client()

    async def main() -> ApiKey:
        return await client.api_keys.create()

    assert asyncio.run(main()) != asyncio.run(main())
    gc.collect()


def test_a_loop_that_cannot_watch_a_descriptor_is_called(service: ginnel.Service) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:
            raise NotImplementedError

    client = service.async_client()

    async def main() -> list[ApiKey]:
        calls = (client.api_keys.create(description=str(n)) for n in range(100))
        return await asyncio.gather(*calls)

    with asyncio.Runner(loop_factory=Loop) as runner:
        created = runner.run(main())

    assert [key.description for key in created] == [str(n) for n in range(100)]


async def test_a_blocking_call_in_a_running_loop_stays_a_value(service: ginnel.Service) -> None:
    assert isinstance(service.client().api_keys.create(), ApiKey)


def test_thirty_two_threads_share_a_client(service: ginnel.Service) -> None:
    client = service.client()
    created = client.api_keys.create()

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda _: client.api_keys.get(created.id).id, range(640)))

    assert found == [created.id] * 640


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_on_connections_of_its_own(service: ginnel.Service) -> None:
    program = f"""
import asyncio, os, ginnel
client = ginnel.RemoteClient({service.api_key!r}, base_url={service.url!r}, timeout=5)
later = ginnel.AsyncRemoteClient({service.api_key!r}, base_url={service.url!r}, timeout=5)
async def call(): return await later.api_keys.create()
client.api_keys.create(), asyncio.run(call())
child = os.fork()
ids = [client.api_keys.create(description=str(os.getpid())) for _ in range(50)]
assert all(key.description == str(os.getpid()) for key in ids)
asyncio.run(call())
if child == 0: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_ctrl_c_ends_a_blocking_call_at_once() -> None:
    release = threading.Event()
    with Server([silent(release)]) as server:
        program = (
            f"import ginnel; ginnel.RemoteClient('k', base_url='{server.url}').api_keys.get('a')"
        )
        process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
        while not server.requests:
            time.sleep(0.01)
        started = time.monotonic()

        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)

        assert b"KeyboardInterrupt" in stderr
        assert time.monotonic() - started < 10
        release.set()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "GINNEL_API_KEY"),
        ({"api_key": "k"}, "GINNEL_BASE_URL"),
        ({"api_key": "k", "base_url": "ftp://x"}, "base_url"),
        ({"api_key": "k", "base_url": "http://example.test"}, "allow_http"),
        ({"api_key": "k", "base_url": "https://u:p@example.test"}, "base_url"),
        ({"api_key": "k\n", "base_url": "https://x.test", "headers": {"a": "\n"}}, "headers"),
        ({"api_key": "k", "base_url": "https://x.test", "ca_bundle": "/nowhere"}, "ca_bundle"),
        ({"api_key": "k", "base_url": "https://x.test", "timeout": -1}, "timeout"),
        ({"api_key": "k", "base_url": "https://x.test", "max_retries": "2"}, "max_retries"),
    ],
)
def test_bad_options_are_named(
    options: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GINNEL_API_KEY", raising=False)
    monkeypatch.delenv("GINNEL_BASE_URL", raising=False)
    if not options:
        monkeypatch.setenv("GINNEL_BASE_URL", "https://x.test")

    with pytest.raises(ginnel.ConfigError, match=named):
        ginnel.RemoteClient(**options)


def test_the_environment_fills_in(service: ginnel.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GINNEL_API_KEY", service.api_key or "")
    monkeypatch.setenv("GINNEL_BASE_URL", service.url)

    client = ginnel.RemoteClient()

    assert client.api_keys.list().first()
    assert (service.api_key or "") not in repr(client)
