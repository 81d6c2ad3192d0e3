"""The agent in this process and its two clients, with real traffic."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import ginnel
from addresses import free_port
from conftest import Face
from ginnel.local.requests import CapturedRequest
from server import Server, answer


class Shop(BaseHTTPRequestHandler):
    """A local web service that takes orders."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 422 if b"refuse" in body else 201
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        answer = b'{"taken": %d}' % len(body)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def local() -> Iterator[int]:
    """A local web service; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def agent(service: ginnel.Service) -> Iterator[ginnel.Agent]:
    with ginnel.Agent(service) as agent:
        yield agent


@pytest.fixture(params=["blocking", "asyncio"])
def here(request: pytest.FixtureRequest, agent: ginnel.Agent) -> Iterator[Any]:
    """A client of the agent, of each kind."""
    client: Any = agent.client() if request.param == "blocking" else agent.async_client()
    yield Face(client) if request.param == "blocking" else client
    client.close()


def send(url: str, body: bytes | None = None) -> int:
    request = Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=30) as answer:
            answer.read()
            status: int = answer.status
            return status
    except HTTPError as error:
        with error:
            error.read()
            return error.code


async def visit(url: str, body: bytes | None = None) -> int:
    return await asyncio.to_thread(send, url, body)


def test_a_key_that_is_there_twice_is_named(agent: ginnel.Agent) -> None:
    body = b'{"addr": "1", "\\u0061ddr": "2", "proto": "http", "name": "x"}'
    headers = {"Content-Type": "application/json"}

    with pytest.raises(HTTPError) as refused:
        urlopen(Request(f"{agent.url}/api/tunnels", data=body, headers=headers), timeout=30)

    with refused.value as answer:
        assert answer.code == 400
        assert b'the key \\"addr\\" is there twice' in answer.read()


async def test_a_request_is_listed_read_replayed_and_deleted(here: Any, local: int) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")

    assert await visit(f"{tunnel.public_url}/orders?id=7", b'{"item": "tea"}') == 201

    [captured] = await here.requests.list().to_list()
    assert (captured.request.method, captured.request.uri) == ("POST", "/orders?id=7")
    assert captured.request.raw.startswith(b"POST /orders?id=7 HTTP/1.1\r\n")
    assert captured.request.raw.endswith(b'\r\n\r\n{"item": "tea"}')
    assert captured.request.json() == {"item": "tea"}
    assert captured.request.header("content-type") == "application/json"
    assert captured.response is not None
    assert (captured.response.status, captured.response.text) == ("201 Created", '{"taken": 15}')
    assert captured.start.tzinfo is not None
    assert captured.duration > 0
    assert await here.requests.get(captured.id) == captured
    await here.requests.replay(captured.id)
    again, first = await here.requests.list(tunnel_name="shop").to_list()
    assert first == captured
    assert again.request == captured.request
    assert again.remote_addr == "127.0.0.1"
    assert (first.raw, first.body) == (first.request.raw, b'{"item": "tea"}')
    assert (first.text, first.json()) == ('{"item": "tea"}', {"item": "tea"})
    assert first.header("CONTENT-TYPE") == "application/json"
    assert first.header("x-none") is None
    await here.requests.clear()
    assert await here.requests.list().to_list() == []


async def test_tunnels_are_started_listed_and_stopped(here: Any, local: int) -> None:
    started = await here.tunnels.start(addr=f"127.0.0.1:{local}", proto="http", name="a (b)/c")

    listed = await here.tunnels.list().to_list()
    found = await here.tunnels.get("a (b)/c")

    assert [tunnel.name for tunnel in listed] == ["a (b)/c"]
    assert found.public_url == started.public_url
    assert found.config.addr == f"127.0.0.1:{local}"
    assert found.metrics.http.count == 0
    await here.tunnels.stop("a (b)/c")
    with pytest.raises(ginnel.NotFoundError):
        await here.tunnels.get("a (b)/c")


async def test_metrics_count_requests_and_connections(here: Any, local: int) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")

    for _ in range(3):
        await visit(tunnel.public_url)

    metrics = (await here.tunnels.get("shop")).metrics
    assert metrics.http.count == 3
    assert metrics.conns.count >= 1
    assert 0 < metrics.http.p50 <= metrics.http.p99


async def test_a_local_service_that_is_away_is_a_502_with_a_record(here: Any) -> None:
    tunnel = await here.tunnels.start(addr=free_port(), proto="http", name="away")

    assert await visit(tunnel.public_url) == 502

    captured = await here.requests.wait_for(tunnel_name="away")
    assert captured.response.status == "502 Bad Gateway"


async def test_what_is_waited_for_is_found(here: Any, local: int) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")

    with ThreadPoolExecutor() as visitors:
        for number in range(5):
            visitors.submit(send, tunnel.public_url, b"%d" % number)
        found = await here.requests.wait_for(lambda captured: captured.request.body == b"3")

    assert found.request.text == "3"
    with pytest.raises(ginnel.APITimeoutError, match="saw 5: POST / 201, "):
        await here.requests.wait_for(lambda captured: False, timeout=1)


async def test_a_predicate_that_raises_does_not_match_and_is_told(here: Any, local: int) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")
    for number, body in enumerate((b"no json", b'{"wanted": 0}', b'{"wanted": 1}', b"[]")):
        await asyncio.to_thread(send, f"{tunnel.public_url}/{number}?token=s3cret", body)

    found = await here.requests.wait_for(lambda captured: captured.json()["wanted"])
    with pytest.raises(ginnel.APITimeoutError) as late:
        await here.requests.wait_for(lambda captured: captured.json()["wanted"] == 7, timeout=1.5)

    assert found.request.uri.startswith("/2?")
    listed = ", ".join(f"POST /{number}?token=••• 201" for number in range(4))
    assert str(late.value) == (
        f"no captured request matched within 1.5 s; saw 4: {listed}; "
        "predicate raised JSONDecodeError on 1, TypeError on 1"
    )
    assert isinstance(late.value.__cause__, json.JSONDecodeError)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_what_ends_a_program_ends_a_wait(
    here: Any, local: int, kind: type[BaseException]
) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")
    assert await visit(tunnel.public_url) == 201

    def interrupted(captured: CapturedRequest) -> bool:
        raise kind

    with pytest.raises(kind):
        await here.requests.wait_for(interrupted)


async def test_a_long_list_of_what_was_seen_is_cut(here: Any, local: int) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")
    for number in range(7):
        await asyncio.to_thread(send, f"{tunnel.public_url}/{number}", b"")

    with pytest.raises(ginnel.APITimeoutError, match=r"saw 7: POST /0 201, .*POST /4 201, …$"):
        await here.requests.wait_for(lambda captured: False, timeout=1)


async def test_a_wait_counts_what_it_looked_at(
    here: Any, local: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")
    assert await visit(tunnel.public_url) == 201

    await here.requests.wait_for(progress=True)

    assert "captured requests: 1" in capsys.readouterr().err


async def test_a_search_shows_each_request_once(here: Any, local: int) -> None:
    tunnel = await here.tunnels.start(addr=local, proto="http", name="shop")
    shown: list[bytes] = []

    def all_were_shown(captured: CapturedRequest) -> bool:
        shown.append(captured.body)
        return len(shown) == 60

    with ThreadPoolExecutor(8) as visitors:
        for number in range(60):
            visitors.submit(send, tunnel.public_url, b"%d" % number)
        await here.requests.wait_for(all_were_shown)

    assert sorted(shown) == sorted(b"%d" % number for number in range(60))


@pytest.mark.parametrize("kind", [ginnel.AgentClient, ginnel.AsyncAgentClient])
async def test_waiting_ends_in_time_when_the_agent_hangs(kind: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client: Any = kind(url)
        client = Face(client) if kind is ginnel.AgentClient else client
        with pytest.raises(ginnel.APITimeoutError, match=r"within 0\.1 s; saw 0$"):
            await client.requests.wait_for(timeout=0.1)
        with pytest.raises(ginnel.APITimeoutError, match="not answering, not online"):
            await client.wait_ready(timeout=0.1)


async def test_waiting_for_nobody_says_so() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(ginnel.APITimeoutError, match="the agent is not running"):
        ginnel.AgentClient(url).wait_ready(timeout=0.5)
    with pytest.raises(ginnel.APITimeoutError, match="the agent is not running"):
        await ginnel.AsyncAgentClient(url).wait_ready(timeout=0.5)


def test_a_post_is_sent_once_and_a_get_again() -> None:
    with Server([answer(429, retry_after=0), answer(503), answer(200, {})]) as server:
        client = ginnel.AgentClient(server.url)

        with pytest.raises(ginnel.RateLimitError):
            client.requests.replay("548fb5c700000002")
        client.request("GET", "/")

    targets = [(request.method, request.target) for request in server.requests]
    assert targets == [("POST", "/api/requests/http"), ("GET", "/api/"), ("GET", "/api/")]


def test_an_address_may_have_a_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server([answer(200, {})] * 4) as server:
        for address in ("", "/", "/api", "/behind/a/proxy/"):
            monkeypatch.setenv("GINNEL_AGENT_URL", server.url + address)
            ginnel.AgentClient().request("GET", "/status")

    targets = [request.target for request in server.requests]
    assert targets == ["/api/status"] * 3 + ["/behind/a/proxy/status"]


async def test_bad_definitions_are_refused_with_their_fields(here: Any) -> None:
    definitions: list[tuple[dict[str, Any], str]] = [
        ({"addr": 80, "proto": "https"}, "Invalid protocol name 'https'"),
        ({"addr": "nowhere:port", "proto": "http"}, "addr"),
        ({"addr": 80, "proto": "tcp", "subdomain": "x"}, "subdomain"),
        ({"addr": 80, "proto": "http", "basic_auth": ["short:pw"]}, "basic_auth"),
        ({"addr": 80}, "proto"),
        ({"addr": "file:///no/such/folder", "proto": "http"}, "addr: "),
        ({"addr": f"file://{__file__}", "proto": "http"}, "addr: "),
        ({"addr": 80, "proto": "http", "subdomain": "../x"}, "subdomain: "),
        ({"addr": 80, "proto": "tls", "subdomain": "a.b"}, "subdomain: "),
    ]
    for definition, told in definitions:
        with pytest.raises(ginnel.BadRequestError) as caught:
            await here.tunnels.start(**definition, name="x")
        assert caught.value.error_code == "102"
        assert told in str(caught.value.details["err"])


async def test_a_tunnel_is_stopped_by_whatever_name_it_was_started(here: Any, local: int) -> None:
    names = [
        *("a/b", "a?b=c", "a#b", "a%2Fb", "a+b", "a b", "a&b=c", "a\\b", "...", "/", "%", ";"),
        *(
            "größer",
            "名前",
            "\U0001f680",
            "a\tb\n",
            "\x00",
            "(http)",
            "../up",
            "..%2f",
            "",
            "é" * 127,
        ),
    ]
    for name in names:
        await here.tunnels.start(addr=local, name=name, labels=["a=b"])
    listed = [tunnel async for tunnel in here.tunnels.list()]
    assert sorted(tunnel.name for tunnel in listed) == sorted(names)

    for name in names:
        assert (await here.tunnels.get(name)).name == name
        await here.tunnels.stop(name)

    assert not [tunnel async for tunnel in here.tunnels.list()]


async def test_a_name_is_no_longer_than_the_limit(here: Any, local: int) -> None:
    with pytest.raises(ginnel.BadRequestError) as caught:
        await here.tunnels.start(addr=local, proto="http", name="é" * 128)

    assert caught.value.details["err"] == "name: is 256 bytes long, the limit is 255"


async def test_a_subdomain_needs_a_base_domain(
    here: Any, local: int, service: ginnel.Service
) -> None:
    with pytest.raises(ginnel.ServerError) as caught:
        await here.tunnels.start(addr=local, proto="http", name="web", subdomain="web")

    assert "subdomain: the service has no base domain" in str(caught.value.details["err"])


async def test_root_and_status(here: Any) -> None:
    root, status = await here.root(), await here.status()

    assert root.tunnels_uri == "/api/tunnels"
    assert (await here.wait_ready()).status == "online"
    assert status.status == "online"
    assert [leg.region for leg in status.session.legs] == ["local"]


def test_a_tunnel_lives_as_long_as_its_block(agent: ginnel.Agent, local: int) -> None:
    client = agent.client()

    with client.tunnels.open(addr=local, name="short") as tunnel:
        assert send(tunnel.public_url) == 201

    assert client.tunnels.list().to_list() == []


def test_a_block_stops_both_tunnels_of_its_schemes(agent: ginnel.Agent, local: int) -> None:
    client = agent.client()

    with client.tunnels.open(addr=local, name="both", schemes=["http", "https"]):
        assert len(client.tunnels.list().to_list()) == 2

    assert client.tunnels.list().to_list() == []


def test_a_block_ends_well_when_its_tunnel_is_gone(agent: ginnel.Agent, local: int) -> None:
    client = agent.client()

    with client.tunnels.open(addr=local, name="one"):
        client.tunnels.stop("one")
    with client.tunnels.open(addr=local, name="two"):
        agent.stop()


async def test_an_asyncio_tunnel_lives_as_long_as_its_block(
    agent: ginnel.Agent, local: int
) -> None:
    client = agent.async_client()

    async with client.tunnels.open(addr=local, name="short") as tunnel:
        assert await visit(tunnel.public_url) == 201

    assert await client.tunnels.list().to_list() == []


async def test_nobody_there_is_an_error_of_its_own() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(ginnel.AgentNotRunningError) as caught:
        ginnel.AgentClient(url).status()
    with pytest.raises(ginnel.AgentNotRunningError):
        await ginnel.AsyncAgentClient(url).status()

    assert isinstance(caught.value, ConnectionError)


def test_a_bad_token_is_told(service: ginnel.Service) -> None:
    with pytest.raises(ginnel.AgentError, match="ERR_NGROK_107"):
        ginnel.Agent(service, authtoken="0" * 27 + "_" + "0" * 21)


def test_missing_options_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GINNEL_AUTHTOKEN", raising=False)

    with pytest.raises(ginnel.ConfigError, match="server_addr"):
        ginnel.Agent()
    with pytest.raises(ginnel.ConfigError, match="authtoken"):
        ginnel.Agent(server_addr="127.0.0.1:1")


@pytest.mark.parametrize("addresses", [[], (), "", ["127.0.0.1:1", ""]])
def test_no_address_is_a_missing_one(addresses: list[str]) -> None:
    with pytest.raises(ginnel.ConfigError, match="server_addr"):
        ginnel.Agent(server_addr=addresses, authtoken="x")


def test_the_next_address_is_tried_when_one_does_not_answer(service: ginnel.Service) -> None:
    assert service.agent_addr
    with ginnel.Agent(service, server_addr=["127.0.0.1:1", service.agent_addr]) as agent:
        status = agent.client().status()

    assert status.session
    [leg] = status.session.legs
    assert leg.node is None, "a service on SQLite has no nodes, and so gets one session"


def test_an_authtoken_is_no_longer_than_the_limit(service: ginnel.Service) -> None:
    with pytest.raises(ginnel.ConfigError) as caught:
        ginnel.Agent(service, authtoken="x" * 4097)

    assert str(caught.value) == "authtoken: is longer than 4096 bytes"
    with pytest.raises(ginnel.AgentError, match="ERR_NGROK_105"):
        ginnel.Agent(service, authtoken="x" * 4096)


def test_an_agent_stops_and_its_address_goes(agent: ginnel.Agent, local: int) -> None:
    tunnel = agent.client().tunnels.start(addr=local, proto="http", name="shop")
    client = agent.client()

    agent.stop()
    agent.stop()

    assert not agent.is_running
    with pytest.raises(ginnel.AgentNotRunningError):
        client.status()
    with pytest.raises(OSError, match="refused"):
        send(tunnel.public_url)
