"""Each request that the agent repeats is one whole request, whatever an archive says of it."""

from __future__ import annotations

import base64
import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Queue
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

import ginnel
from listener import Listener
from recorder import read_head, value_of, values_of


@dataclass
class Strict(Listener):
    """Notes head and body of each request, and what follows them on the connection."""

    seen: Queue[tuple[bytes, bytes, bytes]] = field(default_factory=Queue)

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            head = read_head(lines)
            assert head is not None
            body = lines.read(int(value_of(head, b"content-length") or 0))
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
            )
            connection.shutdown(socket.SHUT_WR)
            self.seen.put((head, body, lines.read()))


@dataclass
class House:
    """An agent with one tunnel to a strict local service."""

    client: ginnel.AgentClient
    upstream: Strict
    base: str
    url: str

    def load(self, headers: list[tuple[str, str]], **request: Any) -> str:
        entry = {
            "startedDateTime": "2026-11-23T10:00:00.123+01:00",
            "request": {
                "method": "POST",
                "url": "https://shop.test/orders?a=1",
                "httpVersion": "http/2.0",
                "headers": [{"name": name, "value": value} for name, value in headers],
                "postData": {"mimeType": "text/plain", "text": "hello"},
                **request,
            },
            "response": {"status": 200, "headers": [], "content": {"text": "hi"}},
            "timings": {},
        }
        [id] = self.client.requests.load(log={"entries": [entry]}).ids
        return id

    def sent(self) -> tuple[bytes, bytes]:
        head, body, surplus = self.upstream.seen.get(timeout=20)
        assert surplus == b""
        return head, body


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with ExitStack() as stack:
        upstream = stack.enter_context(Strict())
        service = stack.enter_context(ginnel.Service())
        agent = stack.enter_context(ginnel.Agent(service))
        client = agent.client()
        tunnel = client.tunnels.start(
            addr=upstream.port, proto="http", name="web", schemes=["http"]
        )
        base = (agent.url or "").removesuffix("/")
        yield House(client, upstream, base, tunnel.public_url)


HOST = ("Host", "shop.test")
PSEUDO = [(":authority", "shop.test"), (":method", "POST"), (":path", "/orders?a=1")]
HEADERS = {
    "of HTTP/1.1": [HOST],
    "of HTTP/2": PSEUDO,
    "of HTTP/2 with a length": [*PSEUDO, ("content-length", "5")],
    "with a length": [HOST, ("Content-Length", "5")],
    "with a short length": [HOST, ("Content-Length", "2")],
    "with a long length": [HOST, ("Content-Length", "500")],
    "with two lengths": [HOST, ("Content-Length", "5"), ("content-length", "4")],
    "with chunks": [HOST, ("Transfer-Encoding", "chunked")],
    "with chunks and a length": [HOST, ("Transfer-Encoding", "chunked"), ("Content-Length", "9")],
    "with a coding of transfer": [HOST, ("transfer-encoding", "gzip, chunked")],
    "with another host": [("host", "evil.test")],
    "with two hosts": [HOST, ("host", "evil.test")],
    "with hop-by-hop headers": [
        HOST,
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "gzip"),
        ("Upgrade", "h2c"),
    ],
    "with an expectation": [HOST, ("Expect", "100-continue")],
}
UNWANTED = [
    b"transfer-encoding",
    b"expect",
    b"x-hop",
    b"keep-alive",
    b"connection",
    b"proxy-connection",
    b"upgrade",
    b"te",
]


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("way", ["replay", "edited", "schedule"])
def test_an_imported_request_is_one_whole_request(house: House, kind: str, way: str) -> None:
    known = house.load(HEADERS[kind])
    before = house.client.requests.get(known).request

    if way == "replay":
        house.client.requests.replay(known, tunnel_name="web")
    elif way == "edited":
        edited(house, known, target="/orders?a=1")
    else:
        schedule = house.client.replay_schedules.add(
            captured_id=known, tunnel_name="web", interval=60_000, times=1
        )
        house.client.replay_schedules.delete(schedule.id)

    head, body = house.sent()
    assert (head.split(b"\r\n")[0], body) == (b"POST /orders?a=1 HTTP/1.1", b"hello")
    assert values_of(head, b"host") == [b"shop.test"]
    assert values_of(head, b"content-length") == [b"5"]
    assert [name for name in UNWANTED if values_of(head, name)] == []
    assert house.client.requests.get(known).request == before


def edited(house: House, id: str, **changes: Any) -> None:
    """As the inspector replays."""
    address = f"{house.base}/inspect/data/requests/{id}/replay"
    body = json.dumps({"tunnel": "web", **changes}).encode()
    with urlopen(Request(address, body, {"Content-Type": "application/json"})) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("method", "text", "length"), [("GET", "", []), ("POST", "", [b"0"]), ("GET", "x", [b"1"])]
)
def test_a_length_is_sent_where_it_means_something(
    house: House, method: str, text: str, length: list[bytes]
) -> None:
    data = {"mimeType": "text/plain", "text": text}
    known = house.load([HOST], method=method, postData=data)

    house.client.requests.replay(known, tunnel_name="web")

    head, body = house.sent()
    assert (values_of(head, b"content-length"), body) == (length, text.encode())


@pytest.mark.parametrize("is_packed", [False, True])
def test_binary_bodies_are_sent_byte_by_byte(house: House, is_packed: bool) -> None:
    bytes_ = gzip.compress(b"hello") if is_packed else bytes(range(256))
    headers = [HOST, ("Content-Encoding", "gzip")] if is_packed else [HOST]
    data = {"text": base64.b64encode(bytes_).decode(), "encoding": "base64"}
    known = house.load(headers, postData=data)

    house.client.requests.replay(known, tunnel_name="web")

    head, body = house.sent()
    assert body == bytes_
    assert values_of(head, b"content-encoding") == ([b"gzip"] if is_packed else [])


def test_a_host_that_is_edited_stays(house: House) -> None:
    known = house.load([HOST])

    edited(house, known, headers=[["Host", "other.test"]])
    assert values_of(house.sent()[0], b"host") == [b"other.test"]

    edited(house, known, headers=[["X", "1"]])
    assert values_of(house.sent()[0], b"host") == [b"shop.test"]


def test_a_composed_request_has_one_host(house: House) -> None:
    with pytest.raises(ginnel.APIError, match="Host is given more than once"):
        house.client.requests.send(
            method="GET", target="/", headers={"Host": ["a.test", "b.test"]}, tunnel_name="web"
        )


def export(house: House, ids: list[str]) -> list[dict[str, Any]]:
    """The entries of an archive with these requests, without what is of one capture only."""
    address = f"{house.base}/inspect/data/export.har?reveal=1&{'&'.join(f'id={id}' for id in ids)}"
    with urlopen(address, timeout=30) as response:
        archive: dict[str, Any] = json.load(response)
    return [
        {key: it for key, it in entry.items() if key != "_id"}
        for entry in archive["log"]["entries"]
    ]


PACKED = gzip.compress(b"hello", mtime=0)
ARCHIVED = {
    "odd target": b'GET /a|b{c}?q="x"&%C3%A9&a=1&a=2 HTTP/1.1\r\n\r\n',
    "fields": b"PUT / HTTP/1.1\r\nX-B: 2\r\nX-A: 1\r\nx-b: 3\r\nX-B: \r\nCookie: a=b; c\r\n\r\n",
    "binary body": b"POST / HTTP/1.1\r\nContent-Length: 256\r\n\r\n" + bytes(range(256)),
    "text": b"PATCH /t HTTP/1.1\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\n"
    b"h\x00\xc3\xa9o",
    "form": b"POST /f HTTP/1.1\r\nContent-Length: 11\r\nContent-Type: "
    b"application/x-www-form-urlencoded\r\n\r\na=1&a=%202+",
    "packed body": b"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    % len(PACKED)
    + PACKED,
    "other method": b"X-SPECIAL /x HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("kind", ARCHIVED)
def test_an_archive_that_is_imported_and_exported_is_the_same(house: House, kind: str) -> None:
    line, rest = ARCHIVED[kind].split(b"\r\n", 1)
    known = {it.id for it in house.client.requests.list()}
    place = urlsplit(house.url)
    with socket.create_connection((place.hostname or "", place.port or 80), timeout=20) as visitor:
        visitor.sendall(line + f"\r\nHost: {place.netloc}\r\n".encode() + rest)
        visitor.recv(65536)
    seen, body = house.sent()
    [id] = {it.id for it in house.client.requests.list()} - known
    [exported] = export(house, [id])

    [imported] = house.client.requests.load(log={"entries": [exported]}).ids

    [again] = export(house, [imported])
    assert again == exported
    house.client.requests.replay(imported, tunnel_name="web")
    head, replayed = house.sent()
    assert head.split(b"\r\n")[0] == line == seen.split(b"\r\n")[0]
    assert replayed == (b"hello" if kind == "packed body" else body)
    for name in (b"x-a", b"x-b", b"cookie"):
        assert values_of(head, name) == values_of(seen, name)


def test_a_target_in_an_archive_is_the_one_that_its_url_shows(house: House) -> None:
    other = base64.b64encode(b"/admin?\xff").decode()
    known = house.load([HOST], _rawTarget=other)

    house.client.requests.replay(known, tunnel_name="web")

    assert house.sent()[0].startswith(b"POST /orders?a=1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"target": "/a#b"}, "fragment"),
        ({"target": "/\u00fc"}, "percent-encoded"),
        ({"target": "http://a.test/"}, "first slash"),
        ({"target": "/a b"}, "percent-encoded"),
        ({"target": "/", "headers": {"Host": ["a b"]}}, "Host: .* white space"),
        ({"target": "/", "headers": {"host": ["http://ada:swordfish@a.test"]}}, "Host: "),
        ({"target": "/", "headers": {"Host": ["127.1"]}}, "Host: .* IPv4"),
    ],
)
def test_a_composed_request_that_cannot_be_sent_is_refused(
    house: House, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ginnel.APIError, match=problem) as refused:
        house.client.requests.send(method="GET", tunnel_name="web", **fields)

    assert "swordfish" not in str(refused.value)
