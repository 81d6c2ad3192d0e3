"""Mocks and holds: both clients, context managers, the fixture, the configuration, the command."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ginnel
from ginnel.local.mocks import Mock


def visit(url: str, body: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def hello(environ: dict[str, str], start: Callable[..., object]) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [environ["REQUEST_METHOD"].encode(), b" ", environ["PATH_INFO"].encode()]


@pytest.fixture
def url(ginnel_tunnel: Callable[..., str]) -> str:
    return ginnel_tunnel(hello)


@pytest.fixture
def here(ginnel_agent: ginnel.Agent) -> Iterator[ginnel.AgentClient]:
    with ginnel_agent.client() as client:
        yield client


def test_a_mock_lasts_for_its_block(here: ginnel.AgentClient, url: str) -> None:
    with pytest.raises(ginnel.BadRequestError, match="status: 99 is not from 200 to 599"):
        here.mocks.add(status=99)
    with here.mocks.open(path="/a", status=418, json={"p": "{{ path }}"}) as mock:
        assert isinstance(mock, Mock)
        assert (mock.enabled, mock.hits) == (True, 0)
        assert visit(f"{url}/a") == (418, '{"p":"/a"}')
        captured = here.requests.list().first()
        assert captured is not None
        assert captured.mock_id == mock.id
        assert captured.response is not None
        assert captured.response.json() == {"p": "/a"}
        assert here.mocks.get(mock.id).hits == 1
    assert here.mocks.list().to_list() == []
    assert visit(f"{url}/a") == (200, "GET /a")
    captured = here.requests.list().first()
    assert captured is not None
    assert captured.mock_id is None


def test_a_mock_keeps_what_an_update_leaves_out(here: ginnel.AgentClient, url: str) -> None:
    here.mocks.add(id="m", path="/a", body="one", times=5)

    changed = here.mocks.update("m", body_base64=b"\x00\x01", enabled=False)

    assert (changed.path, changed.body, changed.body_base64) == ("/a", None, b"\x00\x01")
    assert (changed.times, changed.enabled) == (5, False)
    assert visit(f"{url}/a") == (200, "GET /a")
    here.mocks.clear()
    with pytest.raises(ginnel.NotFoundError):
        here.mocks.get("m")


def test_a_captured_response_becomes_a_mock(here: ginnel.AgentClient, url: str) -> None:
    visit(f"{url}/original")
    captured = here.requests.wait_for()

    here.mocks.add(captured_id=captured.id, path="/other")

    assert visit(f"{url}/other") == (200, "GET /original")


async def test_the_asyncio_client_does_the_same(ginnel_agent: ginnel.Agent, url: str) -> None:
    async with ginnel_agent.async_client() as client:
        async with client.mocks.open(path="/a", body="mocked"):
            assert visit(f"{url}/a") == (200, "mocked")
        with ThreadPoolExecutor() as visitors:
            async with client.holds.open(path="/a") as hold:
                waiting = visitors.submit(visit, f"{url}/a")
                held = await client.held_requests.wait_for(hold.id)
                await client.held_requests.refuse(held.id, status=409, body="not now")
            assert waiting.result() == (409, "not now")


def test_a_held_request_is_changed(here: ginnel.AgentClient, url: str) -> None:
    with ThreadPoolExecutor() as visitors, here.holds.open(method="POST") as hold:
        assert hold.max_wait == 45_000
        waiting = visitors.submit(visit, f"{url}/a", b"body")
        held = here.held_requests.wait_for()
        assert (held.request.method, held.request.body) == ("POST", b"body")
        with pytest.raises(ginnel.BadRequestError, match="target: "):
            here.held_requests.release(held.id, target="no path")

        here.held_requests.release(held.id, method="PUT", target="/b")

        assert waiting.result() == (200, "PUT /b")
    captured = here.requests.get(held.id)
    assert (captured.edited, captured.hold_id, captured.request.uri) == (True, hold.id, "/b")
    with pytest.raises(ginnel.APITimeoutError, match=r"no request was held within 0\.1 s"):
        here.held_requests.wait_for(timeout=0.1)


def test_nothing_is_lost_while_rules_come_and_go(here: ginnel.AgentClient, url: str) -> None:
    with ThreadPoolExecutor(20) as visitors:
        visits = [visitors.submit(visit, f"{url}/{n}") for n in range(400)]
        for _ in range(5):
            with here.holds.open(path="/*1"), here.mocks.open(path="/*2", status=299):
                here.held_requests.list().to_list()
        results = [it.result() for it in visits]

    assert {status for status, _ in results} <= {200, 299}
    assert all(body in ("", f"GET /{n}") for n, (_, body) in enumerate(results))
    assert here.held_requests.list().to_list() == []


def test_the_fixture_responds_for_one_test(
    ginnel_tunnel: Callable[..., str], ginnel_mock: Callable[..., Mock]
) -> None:
    url = ginnel_tunnel(9)
    ginnel_mock(path="/hook", status=503, times=1)

    assert [visit(f"{url}/hook")[0] for _ in range(2)] == [503, 502]


def test_mocks_stand_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.yml"
    path.write_text("version: 2\nmocks:\n  paid: {path: /hook, status: 201}\n  bad: {status: 1}\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ginnel", *arguments, "--config", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    checked = run("config", "check")
    assert checked.returncode != 0
    assert f"{path}:4:3: mocks.bad: status: 1 is not from 200 to 599" in checked.stderr
    path.write_text("version: 2\nmocks:\n  paid: {path: /hook, status: 201}\n")
    assert run("config", "check").returncode == 0, run("config", "check").stderr


def test_the_command_adds_and_lists(ginnel_agent: ginnel.Agent, url: str) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "ginnel", "local", *arguments]
        base = ["--base-url", f"{ginnel_agent.url}/api"]
        return subprocess.run([*command, *base], capture_output=True, text=True, check=True).stdout

    run("mocks", "add", "--id", "m", "--path", "/a", "--status", "201", "--headers", "x-a=b")
    run("holds", "add", "--path", "/none")

    assert visit(f"{url}/a") == (201, "")
    listed = json.loads(run("mocks", "list", "--output", "json"))
    assert [(mock["id"], mock["hits"], mock["headers"]) for mock in listed] == [
        ("m", 1, {"x-a": "b"})
    ]
    assert "hold-1" in run("holds", "list")
    run("mocks", "delete", "m")
    assert visit(f"{url}/a") == (200, "GET /a")
