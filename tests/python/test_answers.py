"""Whatever an upstream sends, each visitor gets the answer to its own request, or a 502."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from bad_answers import CASES, FAKE, MARK, RIGHT, Case, Upstream, header

PATIENCE = 20
AT_ONCE = 12
"""How many upstreams misbehave at the same time."""

names = itertools.count()


@dataclass
class Place:
    """Where visitors reach an upstream, over one of the ways."""

    host: str
    port: int
    path: str = "/"
    tls: ssl.SSLContext | None = None


@dataclass
class Answer:
    status: int
    head: str
    body: bytes


# Each test has its own: addresses that were caught stay so, and ports come again.
@pytest.fixture
def agent(service: ginnel.Service) -> Iterator[ginnel.Agent]:
    with ginnel.Agent(service) as agent:
        yield agent


class Ways:
    """The ways to an upstream; each makes one for a port."""

    def __init__(self, service: ginnel.Service, agent: ginnel.Agent) -> None:
        self._service = service
        self._remote = service.client()
        self._local = agent.client()
        self._edges: dict[str, str] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self._remote.close()
        self._local.close()

    def tunnel(self, port: int) -> Place:
        """A tunnel; requests without a body pass it as bytes."""
        return self._tunnel(port)

    def not_inspected(self, port: int) -> Place:
        return self._tunnel(port, inspect=False)

    def with_policy(self, port: int) -> Place:
        """A tunnel whose requests are looked at."""
        return self._tunnel(port, response_header={"add": ["x-seen: yes"]})

    def edge(self, port: int) -> Place:
        """An edge with a tunnel group; requests without a body pass it as bytes."""
        return self._edge("group.example.test", self._group(port))

    def edge_with_tls(self, port: int) -> Place:
        return self._edge("tls.example.test", self._group(port), tls=True)

    def edge_with_module(self, port: int) -> Place:
        module = {"response_headers": {"add": {"x-seen": "yes"}}}
        return self._edge("module.example.test", self._group(port), modules=module)

    def static_backend(self, port: int) -> Place:
        backend = self._remote.backends.static.create(address=f"127.0.0.1:{port}")
        return self._edge("static.example.test", backend.id)

    def _tunnel(self, port: int, **options: Any) -> Place:
        name = f"tunnel {next(names)}"
        tunnel = self._local.tunnels.start(addr=port, proto="http", name=name, **options)
        url = urlsplit(tunnel.public_url)
        assert url.hostname
        assert url.port
        return Place(url.hostname, url.port)

    def _group(self, port: int) -> str:
        label = f"upstream-{next(names)}"
        self._local.tunnels.start(addr=port, name=label, labels=[f"to={label}"])
        return self._remote.backends.tunnel_group.create(labels={"to": label}).id

    def _edge(
        self, host: str, backend: str, *, tls: bool = False, modules: dict[str, Any] | None = None
    ) -> Place:
        with self._lock:
            if host not in self._edges:
                made = self._remote.edges.https.create(hostports=[f"{host}:443", f"{host}:80"])
                self._edges[host] = made.id
        path = f"/{next(names)}/"
        self._remote.edges.https.routes.create(
            self._edges[host],
            match_type="path_prefix",
            match=path,
            backend={"backend_id": backend},
            **(modules or {}),
        )
        address = self._service.https_url if tls else self._service.http_url
        assert address
        port = urlsplit(address).port
        assert port
        context = ssl.create_default_context(cadata=self._service.ca_pem) if tls else None
        return Place(host, port, path, context)


@pytest.fixture
def ways(service: ginnel.Service, agent: ginnel.Agent) -> Iterator[Ways]:
    ways = Ways(service, agent)
    yield ways
    ways.close()


class Visitor:
    """One connection to a place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def __aenter__(self) -> Visitor:
        place = self._place
        host = None if place.tls is None else place.host
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", place.port, ssl=place.tls, server_hostname=host, limit=1 << 20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        # A TLS connection that is closed in good order outlives the loop of its test.
        self._writer.transport.abort()
        await asyncio.sleep(0)

    async def ask(self, method: str, path: str, name: str, more: str = "") -> None:
        place = self._place
        body = name if method == "POST" else ""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {place.path}{path} HTTP/1.1\r\nHost: {place.host}\r\nX-Name: {name}\r\n"
        self._writer.write(f"{head}{length}{more}\r\n{body}".encode())
        await self._writer.drain()

    async def answer(self, method: str) -> Answer | None:
        """The next answer; none when it breaks off, or is not well-formed."""
        try:
            while True:
                head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status = int(head.split(" ")[1])
                if status >= 200:
                    break
            return Answer(status, head, await self._body(method, status, head))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return None

    async def rest(self) -> bytes:
        """All that comes until the end."""
        return await self._reader.read()

    async def _body(self, method: str, status: int, head: str) -> bytes:
        if method == "HEAD" or status in (204, 304):
            return b""
        if (header(head, "transfer-encoding") or "").lower() != "chunked":
            length = header(head, "content-length")
            read = self._reader
            return await (read.read() if length is None else read.readexactly(int(length)))
        body = b""
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return body


@dataclass
class Seen:
    """What became of the visitors of one upstream."""

    case: Case
    wrong: list[str]
    served: int = 0

    def check(self, ok: bool, problem: object) -> None:
        if not ok:
            self.wrong.append(f"{self.case.name}: {problem}")


async def visit(seen: Seen, method: str, upstream: Upstream, place: Place) -> None:
    """One visitor meets a bad answer, three others come after it."""
    case = seen.case
    async with Visitor(place) as first:
        await first.ask(method, "bad", f"first-{next(names)}")
        got = await first.answer(method)
        await upstream.sent.wait()
        if case.body is not None:
            seen.check(got is not None and got.body == case.body, ("the first visitor", got))
        for turn in ("GET", "POST", "GET") if method == "POST" else ("POST", "GET", "POST"):
            await follow(turn, place, seen)
        if case.body is not None and got and "close" not in (header(got.head, "connection") or ""):
            name = f"again-{next(names)}"
            await first.ask("GET", "good", name)
            again = await first.answer("GET")
            seen.check(again is not None and again.body == name.encode(), ("again", again))


async def follow(method: str, place: Place, seen: Seen) -> None:
    """A visitor on a connection of its own, who gets its own name or a 502."""
    name = f"visitor-{next(names)}"
    async with Visitor(place) as visitor:
        await visitor.ask(method, "good", name, "Connection: close\r\n")
        got = await visitor.answer(method)
        rest = await visitor.rest()
    if got is None or got.status not in (200, 502):
        return seen.check(False, (method, got))
    seen.served += got.status == 200
    everything = got.head.encode() + got.body + rest
    seen.check(MARK not in everything and rest == b"", (method, got, rest))
    seen.check(got.status == 502 or got.body == name.encode(), (method, name, got))


@asynccontextmanager
async def upstreams(cases: list[Case]) -> AsyncIterator[list[Upstream]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Upstream(case)) for case in cases]


async def meet_all(way: Callable[[int], Place], turned: bool) -> list[Seen]:
    """Lets visitors meet all bad answers, each at an address of its own."""
    permits = asyncio.Semaphore(AT_ONCE)

    async def meet(at: int, upstream: Upstream) -> Seen:
        case = upstream.case
        method = case.method or ("GET", "POST")[(at + turned) % 2]
        async with permits:
            place = await asyncio.to_thread(way, upstream.port)
            seen = Seen(case, [])
            try:
                async with asyncio.timeout(PATIENCE):
                    await visit(seen, method, upstream, place)
            except TimeoutError:
                seen.check(False, "it takes for ever")
            return seen

    async with upstreams(CASES) as all_of_them:
        return await asyncio.gather(*(meet(*pair) for pair in enumerate(all_of_them)))


@pytest.mark.parametrize(
    ("way", "turned"),
    [
        ("tunnel", False),
        ("tunnel", True),
        ("not_inspected", True),
        ("with_policy", False),
        ("edge", False),
        ("edge_with_tls", True),
        ("edge_with_module", False),
        ("static_backend", False),
        ("static_backend", True),
    ],
)
async def test_nobody_gets_the_answer_of_another(ways: Ways, way: str, turned: bool) -> None:
    assert len(CASES) >= 60

    seen = await meet_all(getattr(ways, way), turned)

    assert [problem for one in seen for problem in one.wrong] == []
    # A 502 is for whoever meets the end of a connection, not for many.
    assert sum(one.served for one in seen) >= 3 * len(CASES) * 0.95


GOOD = Case("good", (RIGHT,))
SURPLUS = Case("surplus", (RIGHT + FAKE,))
LATER = Case("surplus later", (RIGHT, 0.02, FAKE))


@pytest.mark.parametrize(
    "way", ["tunnel", "with_policy", "edge", "edge_with_tls", "static_backend"]
)
@pytest.mark.parametrize("case", [SURPLUS, LATER], ids=lambda case: case.name)
async def test_who_sends_surplus_gets_each_request_on_a_new_connection(
    ways: Ways, way: str, case: Case
) -> None:
    async with Upstream(case) as upstream:
        place = await asyncio.to_thread(getattr(ways, way), upstream.port)
        async with asyncio.timeout(PATIENCE), Visitor(place) as visitor:
            await ask_in_turn(visitor, 3)
            before = upstream.connections
            assert before <= 2, "one for each way through the service"

            await visitor.ask("GET", "bad", "x")
            assert await visitor.answer("GET")
            await upstream.sent.wait()
            assert upstream.connections == before
            # The minute goes on from here.
            await ask_in_turn(visitor, 5)
            assert upstream.connections == before + 5


@pytest.mark.parametrize(
    "way", ["tunnel", "not_inspected", "with_policy", "edge", "edge_with_tls", "static_backend"]
)
async def test_who_keeps_to_the_rules_keeps_its_connection(ways: Ways, way: str) -> None:
    async with Upstream(GOOD) as upstream:
        place = await asyncio.to_thread(getattr(ways, way), upstream.port)
        async with asyncio.timeout(PATIENCE):
            for _ in range(5):
                async with Visitor(place) as visitor:
                    await ask_in_turn(visitor, 4)

        assert upstream.connections <= 2, "one for each way through the service"


async def ask_in_turn(visitor: Visitor, times: int) -> None:
    for turn in range(times):
        method, name = ("GET", "POST", "HEAD")[turn % 3], f"turn-{next(names)}"
        await visitor.ask(method, "good", name)
        got = await visitor.answer(method)
        assert got is not None
        assert got.body == (b"" if method == "HEAD" else name.encode())
