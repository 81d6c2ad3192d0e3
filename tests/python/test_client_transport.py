"""Attempts, connections and proxies of clients, with servers that break what they can."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import pickle
import re
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

import ginnel
from ginnel.events import Event
from proxies import AddressProxy, ConnectProxy, Proxy, SocksProxy
from server import Server, answer
from stub_server import Connection, Request, Respond, StubServer, echo, hold, lose, until

KEY = "1abcdefghijklmnopqrstuvwxyz/_+1ABCDEFGHIJKLMNOPQRSTU"
"""A key with characters that addresses and JSON may escape."""
MAX_BODY_BYTES = 64 << 20


@dataclass
class Hooks:
    """What the hooks of a client were given."""

    events: list[Event]

    @property
    def options(self) -> dict[str, Any]:
        return dict.fromkeys(("on_request", "on_response", "on_retry"), self.events.append)

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)


@pytest.fixture
def hooks() -> Hooks:
    return Hooks([])


async def get_at_once(client: Any, names: list[str]) -> list[Any]:
    """Gets many objects, each in a thread or a task of its own."""
    blocking = getattr(client, "_target", None)
    if blocking is None:
        return await asyncio.gather(*(client.api_keys.get(name) for name in names))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(names)) as pool:
        calls = [loop.run_in_executor(pool, blocking.api_keys.get, name) for name in names]
        return await asyncio.gather(*calls)


def first_together(count: int, then: Respond) -> Respond:
    """Answers the first requests of `count` connections together; later ones are for `then`."""
    arrived: list[Request] = []

    async def respond(request: Request, connection: Connection) -> None:
        if len(arrived) >= count:
            return await then(request, connection)
        arrived.append(request)
        while len(arrived) < count:
            await asyncio.sleep(0.005)
        await echo(request, connection)

    return respond


async def lose_when_reused(request: Request, connection: Connection) -> None:
    """Answers the first request of a connection; later ones get a reset."""
    await echo(request, connection) if request.turn == 1 else connection.reset()


async def idle_connections(client: Any, server: StubServer, count: int) -> None:
    """Has the client open connections, and forgets the requests for that."""
    await get_at_once(client, [f"ak_{number}" for number in range(count)])
    assert server.connections == count
    server.requests.clear()


# ------------------------------------------------------------ attempts


@pytest.mark.parametrize("retries", [0, 1, 2])
@pytest.mark.parametrize("name", ["get", "update", "delete"])
async def test_a_hundred_stale_connections_are_no_hundred_attempts(
    make_client: Any, hooks: Hooks, name: str, retries: int
) -> None:
    with StubServer(first_together(100, lose)) as server:
        client = make_client("k", base_url=server.url, max_retries=retries, **hooks.options)
        await idle_connections(client, server, 100)
        hooks.events.clear()

        with pytest.raises(ginnel.APIConnectionError) as raised:
            await getattr(client.api_keys, name)("ak_1")

        assert len(server.requests) == retries + 1
        assert raised.value.attempts == retries + 1
        assert hooks.count("request") == hooks.count("failure") == retries + 1
        assert hooks.count("retry") == retries
        assert [event.attempt for event in hooks.events if event.kind == "failure"] == list(
            range(1, retries + 2)
        )


async def test_another_attempt_does_not_go_where_the_first_one_broke(
    make_client: Any, hooks: Hooks
) -> None:
    """A server that forgot its connections forgot all of them."""
    with StubServer(first_together(100, lose_when_reused)) as server:
        client = make_client("k", base_url=server.url, max_retries=1, **hooks.options)
        await idle_connections(client, server, 100)
        hooks.events.clear()

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert [request.turn for request in server.requests] == [2, 1]
        assert hooks.count("request") == 2
        assert hooks.count("retry") == 1


async def test_a_post_on_a_stale_connection_is_sent_once(make_client: Any, hooks: Hooks) -> None:
    with StubServer(lose_when_reused) as server:
        client = make_client("k", base_url=server.url, **hooks.options)
        await client.api_keys.get("ak_1")
        hooks.events.clear()

        with pytest.raises(ginnel.APIConnectionError) as raised:
            await client.api_keys.create(description="once")

        posts = [request for request in server.requests if request.method == "POST"]
        assert len(posts) == 1
        assert raised.value.attempts == 1
        assert hooks.count("retry") == 0


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
async def test_a_replay_on_a_stale_connection_is_sent_once(face: str) -> None:
    async def respond(request: Request, connection: Connection) -> None:
        if request.method == "POST":
            return connection.reset()
        await connection.send(answer(200, {"tunnels": [], "uri": "u"}))

    with StubServer(respond) as server:
        if face == "blocking":
            with ginnel.AgentClient(server.url) as client:
                client.tunnels.list().to_list()
                with pytest.raises(ginnel.APIConnectionError):
                    client.requests.replay("req_1")
        else:
            async with ginnel.AsyncAgentClient(server.url) as awaited:
                await awaited.tunnels.list().to_list()
                with pytest.raises(ginnel.APIConnectionError):
                    await awaited.requests.replay("req_1")

        assert [request.method for request in server.requests] == ["GET", "POST"]


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("name", ["get", "create"])
async def test_connections_that_were_closed_are_noticed_before_use(
    make_client: Any, hooks: Hooks, name: str, count: int
) -> None:
    with StubServer(first_together(count, echo)) as server:
        client = make_client("k", base_url=server.url, max_retries=0, **hooks.options)
        await idle_connections(client, server, count)
        hooks.events.clear()
        server.close_idle()

        if name == "get":
            await client.api_keys.get("ak_1")
        else:
            await client.api_keys.create(description="once")

        assert len(server.requests) == 1
        assert hooks.count("request") == hooks.count("response") == 1


async def test_errors_tell_how_often_a_request_was_sent(make_client: Any, hooks: Hooks) -> None:
    with StubServer(lose) as server:
        client = make_client("k", base_url=server.url, max_retries=3, **hooks.options)

        with pytest.raises(ginnel.APIConnectionError) as raised:
            await client.api_keys.get("ak_1")

        assert raised.value.attempts == len(server.requests) == 4
        assert pickle.loads(pickle.dumps(raised.value)).attempts == 4
        assert "4 attempts" in str(raised.value) or "attempt 4" in str(raised.value)


# ------------------------------------------------------------ DELETE, and what is gone


LOST: dict[str, Callable[[Connection], object]] = {
    "a close": Connection.close,
    "a reset": Connection.reset,
    "half a head": lambda connection: half(connection, b"HTTP/1.1 204 No"),
    "half a body": lambda connection: half(connection, answer(200, b"{}")[:-1]),
    "another protocol": lambda connection: half(connection, b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
}


def half(connection: Connection, data: bytes) -> None:
    connection.writer.write(data)
    connection.writer.close()


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("reused", [False, True], ids=["new", "reused"])
async def test_a_delete_whose_answer_was_lost_has_succeeded(
    make_client: Any, lost: str, reused: bool
) -> None:
    gone: set[str] = set()

    async def respond(request: Request, connection: Connection) -> None:
        if request.method != "DELETE":
            return await echo(request, connection)
        if request.name in gone:
            return await connection.send(answer(404, {"msg": "not found"}))
        gone.add(request.name)
        LOST[lost](connection)

    with StubServer(respond) as server:
        client = make_client("k", base_url=server.url)
        if reused:
            await client.api_keys.get("ak_1")

        await client.api_keys.delete("ak_1")

        assert gone == {"ak_1"}
        assert [request.method for request in server.requests][-2:] == ["DELETE"] * 2


async def test_a_delete_that_was_answered_too_late_has_succeeded(make_client: Any) -> None:
    async def respond(request: Request, connection: Connection) -> None:
        if len(server.requests) == 1:
            return await hold(request, connection)
        await connection.send(answer(404, {"msg": "not found"}))

    with StubServer(respond) as server:
        client = make_client("k", base_url=server.url, timeout=0.3)

        await client.api_keys.delete("ak_1")

        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("statuses", "success"),
    [
        ([404], False),
        ([429, 404], False),
        ([429, 429, 404], False),
        ([502, 404], True),
        ([502, 429, 404], True),
        ([429, 502, 404], True),
        ([500, 404], True),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, list) else None,
)
async def test_a_404_of_delete_counts_what_was_done_before(
    make_client: Any, statuses: list[int], success: bool
) -> None:
    answers = [answer(status, {"msg": "no"}, retry_after=0) for status in statuses]
    with Server(list(answers)) as server:
        client = make_client("k", base_url=server.url)

        if success:
            await client.api_keys.delete("ak_1")
        else:
            with pytest.raises(ginnel.NotFoundError) as raised:
                await client.api_keys.delete("ak_1")
            assert raised.value.attempts == len(statuses)

        assert len(server.requests) == len(statuses)


async def test_a_delete_that_was_refused_at_first_did_nothing(make_client: Any) -> None:
    def serve(_: Event) -> None:
        listener.listen()
        threading.Thread(target=answer_once, daemon=True).start()

    def answer_once() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer(404, {"msg": "not found"}))

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = make_client("k", base_url=url, on_retry=serve)

        with pytest.raises(ginnel.NotFoundError) as raised:
            await client.api_keys.delete("ak_1")

        assert raised.value.attempts == 2


# ------------------------------------------------------------ words


async def test_an_error_of_a_redirect_shows_where_it_leads(make_client: Any) -> None:
    location = f"https://login.example.test/sso?next={quote(KEY, safe='')}"
    with Server([answer(302, None, location=location)]) as server:
        client = make_client(KEY, base_url=server.url)

        with pytest.raises(ginnel.APIStatusError) as raised:
            await client.api_keys.get("ak_1")

        assert "https://login.example.test/sso" in str(raised.value)
        assert "302" in str(raised.value)
        assert quote(KEY, safe="") not in str(raised.value)
        assert KEY not in str(raised.value)


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN: dict[str, tuple[bytes, bool, str]] = {
    "a close": (b"", False, "closed"),
    "a reset": (b"", True, "reset"),
    "a close in the head": (HEAD, False, "closed"),
    "a close in the body": (HEAD + b"Content-Length: 5\r\n\r\nri", False, "closed"),
    "a close in a chunk": (CHUNKED + b"5\r\nri", False, "closed"),
    "a size that is none": (CHUNKED + b"zz\r\nright\r\n0\r\n\r\n", False, "chunk"),
    "a negative size": (CHUNKED + b"-5\r\nright\r\n0\r\n\r\n", False, "chunk"),
    "a chunk without an end": (CHUNKED + b"5\r\nright0\r\n\r\n", False, "chunk"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", False, "HTTP"),
    "two lengths": (HEAD + b"Content-Length: 5\r\nContent-Length: 2\r\n\r\nright", False, "ength"),
    "a long head": (HEAD + b"X: " + b"a" * 300_000 + b"\r\n\r\n", False, "head"),
}
JARGON = re.compile(
    r"hyper|reqwest|h1|Incomplete|Kind|Os \{|os error|io error|error:|connection error"
    r"|message completed|body from connection"
)


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_error_says_what_happened_to_which_request(make_client: Any, broken: str) -> None:
    data, reset, word = BROKEN[broken]

    async def respond(_: Request, connection: Connection) -> None:
        await connection.send(data)
        if reset:
            connection.reset()
        else:
            connection.writer.close()

    with StubServer(respond) as server:
        client = make_client("k", base_url=server.url, max_retries=0)

        with pytest.raises(ginnel.APIConnectionError) as raised:
            await client.api_keys.get("ak_1")

        text = str(raised.value)
        assert "GET" in text
        assert "/api_keys/ak_1" in text
        assert word in text
        assert not JARGON.search(text), text
        assert "\n" not in text


@pytest.mark.parametrize(
    "told",
    [
        b"HTTP/1.1 403 No %s\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 302 Found\r\nLocation: https://x.test/%s\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n%s",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n\r\n",
        b"%s is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: 2\r\n\r\n{}",
        b'HTTP/1.1 500 No\r\nContent-Encoding: %s\r\nContent-Length: 11\r\n\r\n{"msg":"a"}',
        b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n{}",
    ],
    ids=[
        "reason",
        "location",
        "half a body",
        "a chunk's size",
        "another protocol",
        "content coding",
        "content coding of an error",
        "length",
    ],
)
async def test_no_error_shows_a_key_that_came_back(
    make_client: Any, hooks: Hooks, told: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "ginnel")
    key = "ak-1234567890abcdefghijklmnop"

    async def respond(_: Request, connection: Connection) -> None:
        await connection.send(told % key.encode())
        connection.writer.close()

    with StubServer(respond) as server:
        client = make_client(key, base_url=server.url, max_retries=1, **hooks.options)

        with pytest.raises(ginnel.APIError) as raised:
            await client.request("GET", "/api_keys/ak_1")

        errors = (raised.value, raised.value.__cause__, raised.value.__context__)
        shown = caplog.text + repr(hooks.events)
        shown += "".join(f"{error} {error!r} {vars(error)}" for error in errors if error)
        assert key not in shown


# ------------------------------------------------------------ hooks


class Stop(BaseException):
    """What is no Exception."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, Stop, asyncio.CancelledError])
@pytest.mark.parametrize("hook", ["on_request", "on_response", "on_retry"])
@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_what_is_no_exception_of_a_hook_reaches_the_caller(
    face: str, hook: str, kind: type[BaseException]
) -> None:
    raising: list[type[BaseException]] = [kind]

    def raise_once(_: Event) -> None:
        if raising:
            raise raising.pop()("from the hook")

    answers = [answer(503, None, retry_after=0)] if hook == "on_retry" else [key_answer()]
    with Server([*answers, key_answer(), key_answer()]) as server:
        options: dict[str, Any] = {"base_url": server.url, hook: raise_once}
        caught: list[BaseException] = []
        later: list[str] = []

        def blocking() -> None:
            with ginnel.RemoteClient("k", **options) as client:
                try:
                    client.api_keys.get("ak_1")
                except BaseException as error:
                    caught.append(error)
                later.append(client.api_keys.get("ak_1").id)

        async def awaited() -> None:
            async with ginnel.AsyncRemoteClient("k", **options) as client:
                try:
                    await client.api_keys.get("ak_1")
                except BaseException as error:
                    caught.append(error)
                later.append((await client.api_keys.get("ak_1")).id)

        blocking() if face == "blocking" else asyncio.run(awaited())

        assert [type(error) for error in caught] == [kind]
        assert str(caught[0]) == "from the hook"
        assert later == ["ak_1"]


def key_answer() -> bytes:
    return answer(200, {"id": "ak_1", "uri": "u"})


@pytest.mark.parametrize("hook", ["on_request", "on_response", "on_retry"])
async def test_an_exception_of_a_hook_is_told_and_ends_no_call(
    make_client: Any, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: told.append(str(report.exc_value)))

    def fail(_: Event) -> None:
        raise ValueError("from the hook")

    with Server([answer(503, None, retry_after=0), key_answer()]) as server:
        client = make_client("k", base_url=server.url, **{hook: fail})

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert set(told) == {"from the hook"}
        assert len(told) == (1 if hook == "on_retry" else 2)


async def test_a_hook_may_call_the_client(make_client: Any) -> None:
    """No lock is held while a hook runs."""
    inner: list[str] = []

    def call(event: Event) -> None:
        if event.path == "/api_keys/{id}" and not inner:
            inner.append("")
            with ginnel.RemoteClient("k", base_url=server.url) as another:
                inner[0] = another.api_keys.get("ak_inner").id
            target = getattr(client, "_target", None)
            if target is not None:
                inner.append(target.api_keys.get("ak_same").id)

    with StubServer(echo) as server:
        client = make_client("k", base_url=server.url, on_response=call, timeout=5)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert inner[0] == "ak_inner"
        assert inner[1:] in ([], ["ak_same"])


# ------------------------------------------------------------ proxies and limits


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.example.test", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def ca_bundle(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


PROXIES: dict[tuple[str, bool], tuple[type[Proxy], str]] = {
    ("proxy", False): (AddressProxy, "http"),
    ("proxy", True): (ConnectProxy, "http"),
    ("SOCKS5", False): (SocksProxy, "socks5h"),
    ("SOCKS5", True): (SocksProxy, "socks5h"),
}
"""What stands between a client and its server, and how it is called."""
WAYS = ["direct", "direct TLS", "proxy", "proxy TLS", "SOCKS5", "SOCKS5 TLS"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, server_tls: ssl.SSLContext, ca_bundle: Path) -> Way:
    name, _, tls = request.param.partition(" ")
    return Way(name, server_tls if tls else None, ca_bundle)


@dataclass
class Way:
    """How a client reaches its server."""

    name: str
    tls: ssl.SSLContext | None
    ca_bundle: Path

    @contextlib.contextmanager
    def server(self, respond: Respond) -> Iterator[StubServer]:
        with StubServer(respond, self.tls) as server:
            yield server

    @contextlib.contextmanager
    def options(self, server: StubServer) -> Iterator[dict[str, Any]]:
        scheme = "https" if self.tls else "http"
        options: dict[str, Any] = {"base_url": server.url, "allow_http": True}
        if self.tls:
            options["ca_bundle"] = self.ca_bundle
        if self.name == "direct":
            yield options
            return
        kind, proxied = PROXIES[self.name, self.tls is not None]
        with kind(server.url) as proxy:
            options |= {
                "base_url": f"{scheme}://api.example.test",
                "proxy": f"{proxied}://{proxy.address}",
            }
            yield options
            assert proxy.connections > 0


async def test_every_way_leads_to_the_server(make_client: Any, way: Way) -> None:
    with way.server(echo) as server, way.options(server) as options:
        client = make_client("k", **options)

        for number in range(5):
            assert (await client.api_keys.get(f"ak_{number}")).id == f"ak_{number}"
        assert (await client.api_keys.create(description="d")).id == "d"

        assert server.connections == 1


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *((way, "declared") for way in WAYS),
        *((way, "chunks") for way in ("direct", "proxy", "proxy TLS", "SOCKS5")),
        *((way, kind) for way in ("direct", "proxy") for kind in ("gzip", "until the close")),
    ],
    indirect=["way"],
)
async def test_no_way_takes_more_than_64_mib(make_client: Any, way: Way, kind: str) -> None:
    sent = 0

    async def respond(_: Request, connection: Connection) -> None:
        nonlocal sent
        with contextlib.suppress(OSError):
            async for piece in pieces(kind):
                await connection.send(piece)
                sent += len(piece)
        connection.writer.close()

    with way.server(respond) as server, way.options(server) as options:
        client = make_client("k", max_retries=0, timeout=60, **options)

        with pytest.raises(ginnel.APIError, match=r"64 MiB|67,?108,?864"):
            await client.request("GET", "/api_keys/ak_1")

        # What sockets and relays on the way hold is not read by the client.
        assert sent < 2 * MAX_BODY_BYTES
        assert len(server.requests) == 1


async def pieces(kind: str) -> AsyncIterator[bytes]:
    """An answer with a body of more than the client takes, unless it stops before."""
    block = b" " * (1 << 20)
    if kind == "declared":
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + block
        return
    if kind == "gzip":
        body = gzip.compress(b'{"a":"' + b" " * (MAX_BODY_BYTES + 1) + b'"}', 1, mtime=0)
        yield answer(200, body, content_encoding="gzip")
        return
    framing = {
        "chunks": b"Transfer-Encoding: chunked\r\n",
        "until the close": b"Connection: close\r\n",
    }[kind]
    yield b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n"
    for _ in range(3 * MAX_BODY_BYTES // len(block)):
        yield b"100000\r\n" + block + b"\r\n" if kind == "chunks" else block


async def test_every_way_takes_a_large_answer(make_client: Any, way: Way) -> None:
    filler = "é" * (1 << 20)

    async def respond(request: Request, connection: Connection) -> None:
        await connection.send(answer(200, {"id": request.name, "uri": "u", "more": filler}))

    with way.server(respond) as server, way.options(server) as options:
        client = make_client("k", **options)

        key = await client.api_keys.get("ak_1")

        assert key.extra == {"more": filler}


async def test_no_post_is_lost_to_a_connection_that_was_closed(make_client: Any, way: Way) -> None:
    with way.server(echo) as server, way.options(server) as options:
        client = make_client("k", max_retries=0, **options)

        for number in range(20):
            assert (await client.api_keys.create(description=f"k{number}")).id == f"k{number}"
            server.close_idle()
            if way.name != "direct":
                await asyncio.sleep(0.02)

        assert len(server.requests) == 20


async def test_stale_connections_of_every_way_are_counted(
    make_client: Any, hooks: Hooks, way: Way
) -> None:
    with way.server(first_together(10, lose)) as server, way.options(server) as options:
        client = make_client("k", max_retries=1, **options, **hooks.options)
        await idle_connections(client, server, 10)
        hooks.events.clear()

        with pytest.raises(ginnel.APIConnectionError) as raised:
            await client.api_keys.update("ak_1", metadata="m")

        assert len(server.requests) == raised.value.attempts == 2
        assert hooks.count("request") == 2


@pytest.mark.parametrize("scheme", ["ftp", "file", "socks9", "gopher", "ws"])
@pytest.mark.parametrize("kind", [ginnel.RemoteClient, ginnel.AsyncRemoteClient])
def test_a_proxy_of_an_unknown_kind_is_refused(kind: Any, scheme: str) -> None:
    with pytest.raises(ginnel.ConfigError, match="proxy"):
        kind("k", base_url="https://api.example.test", proxy=f"{scheme}://127.0.0.1:1")


# ------------------------------------------------------------ the limit of connections


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_connections_than_allowed(make_client: Any, limit: int) -> None:
    with StubServer(echo) as server:
        client = make_client("k", base_url=server.url, max_connections=limit)
        names = [f"ak_{number}" for number in range(60)]

        got = await get_at_once(client, names)

        assert [key.id for key in got] == names
        assert server.peak <= limit


async def test_a_hundred_connections_unless_told_otherwise(make_client: Any) -> None:
    with StubServer(first_together(100, echo)) as server:
        client = make_client("k", base_url=server.url, timeout=30)
        names = [f"ak_{number}" for number in range(300)]

        got = await get_at_once(client, names)

        assert [key.id for key in got] == names
        assert server.peak == 100


async def test_a_call_that_waits_for_a_connection_has_a_deadline(make_client: Any) -> None:
    with StubServer(hold) as server:
        client = make_client("k", base_url=server.url, max_connections=1, deadline=3, max_retries=0)
        # Copies share connections, and what makes blocking clients awaitable makes no copies.
        target = getattr(client, "_target", None)
        hurried = (target or client).with_options(deadline=0.5)
        hurried = type(client)(hurried) if target else hurried
        holding = asyncio.ensure_future(get_at_once(client, ["ak_1"]))
        while not server.requests:
            await asyncio.sleep(0.005)

        with pytest.raises(ginnel.APITimeoutError):
            await get_at_once(hurried, ["ak_2", "ak_3"])

        assert not holding.done()
        with pytest.raises(ginnel.APITimeoutError):
            await holding
        assert len(server.requests) == 1


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many"])
@pytest.mark.parametrize("kind", [ginnel.RemoteClient, ginnel.AsyncRemoteClient])
def test_a_limit_of_connections_that_is_none(kind: Any, limit: object) -> None:
    with pytest.raises(ginnel.ConfigError, match="max_connections"):
        kind("k", base_url="https://api.example.test", max_connections=limit)


def test_thirty_two_threads_get_what_they_asked_for() -> None:
    with StubServer(echo) as server, ginnel.RemoteClient("k", base_url=server.url) as client:

        def work(thread: int) -> list[str]:
            names = [f"ak_{thread}_{turn}" for turn in range(30)]
            assert [client.api_keys.get(name).id for name in names] == names
            return names

        with ThreadPoolExecutor(32) as pool:
            names = list(chain.from_iterable(pool.map(work, range(32))))

        assert Counter(request.name for request in server.requests) == Counter(names)
        assert server.connections <= 32


def test_connections_that_are_idle_serve_all_threads() -> None:
    """A thread that has ended leaves its connection to the others."""
    with StubServer(echo) as server, ginnel.RemoteClient("k", base_url=server.url) as client:
        for turn in range(10):
            thread = threading.Thread(target=client.api_keys.get, args=(f"ak_{turn}",))
            thread.start()
            thread.join()

        assert server.connections == 1


def test_closing_leaves_no_call_behind() -> None:
    """What is in flight gets its answer, or learns that the client was closed."""
    release = threading.Event()
    results: list[object] = []

    async def respond(request: Request, connection: Connection) -> None:
        while not release.is_set():
            await asyncio.sleep(0.005)
        await echo(request, connection)

    def call(client: ginnel.RemoteClient) -> None:
        try:
            results.append(client.api_keys.get("ak_1").id)
        except BaseException as error:
            results.append(type(error))

    with StubServer(respond) as server:
        client = ginnel.RemoteClient("k", base_url=server.url, timeout=60)
        thread = threading.Thread(target=call, args=(client,), daemon=True)
        thread.start()
        until(lambda: server.requests)

        client.close()
        release.set()
        thread.join(10)

        assert results in (["ak_1"], [ginnel.ClientClosedError])
        until(lambda: not server.open)
