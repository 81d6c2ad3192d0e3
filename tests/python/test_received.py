"""`assert_received`, the report of failed tests, and how long the service of a test lasts."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import ginnel
from ginnel.testing import assert_received


def app(environ: dict[str, Any], start: Any) -> list[bytes]:
    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0))
    missing = environ["PATH_INFO"] == "/missing"
    start("404 Not Found" if missing else "202 Accepted", [])
    return [b"thanks"]


def send(url: str, body: object = None, method: str = "POST", **headers: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        urlopen(Request(url, data, named, method=method), timeout=20).read()
    except HTTPError as error:
        error.close()


Asserting = Callable[..., Any]


@pytest.fixture(params=["client", "requests", "async_client", "async_requests", "list"])
def asserting(
    request: pytest.FixtureRequest,
    ginnel_agent_client: ginnel.AgentClient,
    ginnel_async_agent_client: ginnel.AsyncAgentClient,
) -> Asserting:
    """`assert_received` with each of what it takes, awaited."""

    async def check(**expected: Any) -> Any:
        match request.param:
            case "client":
                return assert_received(ginnel_agent_client, **expected)
            case "requests":
                return assert_received(ginnel_agent_client.requests, **expected)
            case "async_client":
                return await assert_received(ginnel_async_agent_client, **expected)
            case "async_requests":
                return await assert_received(ginnel_async_agent_client.requests, **expected)
            case _:
                return assert_received(list(ginnel_agent_client.requests.list()), **expected)

    return check


async def test_what_was_received_is_returned(ginnel_tunnel: Any, asserting: Asserting) -> None:
    url = ginnel_tunnel(app)
    hook = {"order": {"id": 7, "paid": True}}
    await asyncio.to_thread(send, f"{url}/hook?x=1", hook, X_Event="paid", X_Kind="order.paid")
    await asyncio.to_thread(send, f"{url}/missing", b"other")

    for expected in (
        {"path": "/hook", "method": "post", "count": 1},
        {"path": "/hook?x=1"},
        {"path": re.compile(r"^/ho+k\?")},
        {"headers": {"x-event": "paid", "X-KIND": re.compile("^order"), "x-none": None}},
        {"json": hook, "timeout": 5},
        {"body": json.dumps(hook)},
        {"status": 202, "tunnel_name": "test-1"},
    ):
        (found,) = await asserting(**expected)
        assert found.request.uri == "/hook?x=1", expected

    assert [found.request.uri for found in await asserting(count=2)] == ["/hook?x=1", "/missing"]
    assert await asserting(path="/never", count=0) == []


async def test_a_failure_names_the_nearest_and_what_differs(
    ginnel_tunnel: Any, asserting: Asserting
) -> None:
    url = ginnel_tunnel(app)
    hook = {"order": {"id": 7, "items": [{"price": 13}, 2]}, "token": "s3cret", "more": None}
    await asyncio.to_thread(send, f"{url}/missing", b"{}", "PUT")
    await asyncio.to_thread(
        send, f"{url}/hook", hook, X_Event="ping", Authorization="Bearer s3cret"
    )

    with pytest.raises(AssertionError) as failed:
        await asserting(
            path="/hook",
            method="POST",
            headers={"X-Event": "push", "Authorization": "Bearer other-s3cret", "Missing": "yes"},
            json={"order": {"id": "7", "items": [{"price": 12}]}, "token": "other-s3cret", "a": 1},
            timeout=0.2,
        )

    text = str(failed.value)
    lines = text.splitlines()
    assert lines[0].startswith("expected POST /hook with header X-Event 'push', ")
    assert lines[0].endswith("; 0 of 2 captured requests matched")
    assert re.fullmatch(r"nearest: POST /hook 202 \(id [0-9a-f]+\)", lines[1])
    assert lines[2:-3] == [
        "  header X-Event: expected 'push', got 'ping'",
        "  header Authorization: expected 'Bearer •••', got 'Bearer •••'",
        "  header Missing: expected 'yes', got none",
        '  json.order.id: expected "7", got 7',
        "  json.order.items[0].price: expected 12, got 13",
        "  json.order.items: expected 1 items, got 2",
        "  json.token: expected •••, got •••",
        "  json.a: expected 1, got nothing",
        "  json.more: expected nothing, got null",
    ]
    assert lines[-3:] == ["did not match:", "  PUT /missing 404", "  POST /hook 202"]
    assert "s3cret" not in text


async def test_a_count_that_is_not_met_lists_what_matched(
    ginnel_tunnel: Any, asserting: Asserting
) -> None:
    url = ginnel_tunnel(app)
    for number in range(2):
        await asyncio.to_thread(send, f"{url}/{number}")

    with pytest.raises(AssertionError, match=r"never; 2 of 2 captured requests matched\nmatched:"):
        await asserting(count=0)
    with pytest.raises(AssertionError, match=r"once.*; 2 of 2 .*\nmatched:\n  POST /0 202\n"):
        await asserting(count=1)
    with pytest.raises(AssertionError, match=r"3 times.*; 2 of 2 "):
        await asserting(count=3, timeout=0.2)
    with pytest.raises(AssertionError, match=r"nearest: POST /0 .*\n  path: expected /2, got '/0'"):
        await asserting(path="/2", timeout=0.2)
    with pytest.raises(ginnel.ValidationError, match="count=-1: must be 0 or more"):
        await asserting(count=-1)


async def test_nothing_captured_is_said(ginnel_tunnel: Any, asserting: Asserting) -> None:
    ginnel_tunnel(app)

    with pytest.raises(AssertionError, match=r"expected GET /hook.*; 0 of 0 captured requests"):
        await asserting(method="GET", path="/hook", timeout=0.1)


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
async def test_what_is_still_to_come_is_waited_for(
    ginnel_tunnel: Any, ginnel_agent: ginnel.Agent, face: str
) -> None:
    url = ginnel_tunnel(app)
    here, waiting = ginnel_agent.client(), ginnel_agent.async_client()
    assert_received(here, count=0)

    def send_all() -> None:
        for number in range(3):
            send(f"{url}/{number}")

    later = threading.Timer(0.3, send_all)
    later.start()
    if face == "blocking":
        found = await asyncio.to_thread(assert_received, here, count=3, timeout=30)
    else:
        found = await assert_received(waiting, count=3, timeout=30)
    later.join()

    assert [request.request.uri for request in found] == ["/0", "/1", "/2"]
    here.close()
    waiting.close()


def test_a_packed_body_is_compared_as_it_was_meant(
    ginnel_tunnel: Any, ginnel_agent_client: ginnel.AgentClient
) -> None:
    url = ginnel_tunnel(app)
    body = {"text": "ü" * 100_000}
    send(url, gzip.compress(json.dumps(body).encode(), mtime=0), content_encoding="gzip")

    assert_received(ginnel_agent_client, json=body, body=json.dumps(body))

    with pytest.raises(AssertionError, match=r"json\.text: expected \"x\", got \"üüü"):
        assert_received(ginnel_agent_client, json={"text": "x"}, timeout=0)
    with pytest.raises(AssertionError) as failed:
        assert_received(ginnel_agent_client, body="x", timeout=0)
    assert len(str(failed.value)) < 1000


def test_a_body_that_is_not_json_and_booleans_are_told_apart(
    ginnel_tunnel: Any, ginnel_agent_client: ginnel.AgentClient
) -> None:
    url = ginnel_tunnel(app)
    send(f"{url}/text", b"plain words")
    send(f"{url}/number", {"paid": 1})

    with pytest.raises(AssertionError, match="json: the body is not JSON: 'plain words'"):
        assert_received(ginnel_agent_client, path="/text", json={}, timeout=0)
    with pytest.raises(AssertionError, match=r"json\.paid: expected true, got 1"):
        assert_received(ginnel_agent_client, path="/number", json={"paid": True}, timeout=0)


FAILING = """
import urllib.request

import pytest


def app(environ, start):
    start("202 Accepted", [])
    return [b""]


def test_passes(ginnel_tunnel):
    urllib.request.urlopen(ginnel_tunnel(app) + "/passed").read()


def test_fails(ginnel_tunnel):
    url = ginnel_tunnel(app)
    for number in range(25):
        urllib.request.urlopen(f"{url}/hook/{number}?token=s3cret").read()
    assert False


@pytest.fixture
def broken(ginnel_tunnel):
    urllib.request.urlopen(ginnel_tunnel(app) + "/setup").read()
    raise ValueError


def test_fixture_fails(broken):
    pass


def test_nothing_came(ginnel_async_agent_client):
    assert False


def test_agent_is_gone(ginnel_agent):
    ginnel_agent.stop()
    assert False


def test_no_agent(ginnel_remote):
    assert False
"""


def run(
    folder: Path, tests: str, *arguments: str, ini: str = ""
) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n")
    plain = ["-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "--color=no"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_failed_test_reports_what_was_captured(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    if arguments:
        pytest.importorskip("xdist")
    done = run(tmp_path, FAILING, *arguments)

    assert "4 failed, 1 passed, 1 error" in done.stdout, done.stdout
    title = re.compile(r"^-+ ginnel: captured requests -+$", re.MULTILINE)
    told = re.split(r"^=+ short test summary", done.stdout, flags=re.MULTILINE)[0]
    reports = re.split(r"^_{3,} .*?(test_\w+) _{3,}$", told, flags=re.MULTILINE)
    sections = {
        name: [section.strip().splitlines() for section in title.split(text)[1:]]
        for name, text in zip(reports[1::2], reports[2::2], strict=True)
    }
    assert set(sections) == {
        "test_fails",
        "test_fixture_fails",
        "test_nothing_came",
        "test_agent_is_gone",
        "test_no_agent",
    }
    (listed,) = sections["test_fails"]
    assert listed[0] == "… 5 earlier ones"
    assert len(listed) == 21
    line = r"\d\d:\d\d:\d\d  test-1  GET /hook/24\?token=••• -> 202 Accepted in [\d.]+ ms"
    assert re.fullmatch(line, listed[20])
    assert "s3cret" not in "".join(listed)
    assert "GET /setup -> 202 Accepted" in sections["test_fixture_fails"][0][0]
    assert sections["test_nothing_came"][0][0] == "none during this test"
    assert sections["test_agent_is_gone"][0][0].startswith("cannot be fetched: ")
    assert sections["test_no_agent"] == []


SHARED = """
import pytest

SEEN = []


def test_one(ginnel_service, ginnel_remote, ginnel_session_service):
    SEEN.append(ginnel_service.url)
    ginnel_remote.ip_policies.create(description="one")
    ginnel_service.fail("ip_policies.list", status=503, times=None)
    assert ginnel_service is ginnel_session_service


def test_two(ginnel_service, ginnel_remote):
    assert ginnel_service.url in SEEN
    assert ginnel_service.calls == []
    assert ginnel_remote.ip_policies.list().to_list() == []


@pytest.mark.ginnel_service(seed=7)
def test_own(ginnel_service, ginnel_remote):
    assert ginnel_service.url not in SEEN
    ginnel_service.advance(1)


def test_captures_are_those_of_this_test(ginnel_tunnel):
    assert ginnel_tunnel(80)


def test_tunnels_are_new(ginnel_tunnel, ginnel_agent_client):
    ginnel_tunnel(80)
    assert [tunnel.name for tunnel in ginnel_agent_client.tunnels.list()] == ["test-1"]


def test_stops(ginnel_service):
    ginnel_service.stop()


def test_after(ginnel_service):
    pass
"""


def test_one_service_can_last_for_the_session(tmp_path: Path) -> None:
    done = run(tmp_path, SHARED, ini="ginnel_service_scope = session")

    assert "6 passed, 1 error" in done.stdout, done.stdout
    assert "one of its own: @pytest.mark.ginnel_service" in done.stdout


def test_a_session_service_lasts_beside_those_of_tests(tmp_path: Path) -> None:
    tests = """
def test_one(ginnel_session_service, ginnel_service):
    assert ginnel_session_service.url != ginnel_service.url
    ginnel_session_service.client().ip_policies.create(description="kept")


def test_two(ginnel_session_service):
    with ginnel_session_service.client() as remote:
        assert [policy.description for policy in remote.ip_policies.list()] == ["kept"]
"""
    done = run(tmp_path, tests)

    assert "2 passed" in done.stdout, done.stdout


def test_a_scope_that_is_not_one_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, SHARED, ini="ginnel_service_scope = class")

    assert "ginnel_service_scope=class: must be function or session" in done.stdout + done.stderr
    assert done.returncode == 4
