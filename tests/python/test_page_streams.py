"""The web inspection page in a real browser: messages and events of connections that stay open."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.request import urlopen

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from browsing import House, choose, rows, serving

KEY = base64.b64encode(bytes(16)).decode()
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HOSTILE = "<img src=x onerror=alert(1)>"
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def frame(kind: int, content: bytes, mask: bool = False) -> bytes:
    """A frame with a short content (RFC 6455 section 5.2)."""
    assert len(content) < 126
    head = bytes([0x80 | kind, len(content) | (0x80 if mask else 0)])
    if not mask:
        return head + content
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(content))


def call(content: bytes) -> bytes:
    """A message of gRPC with its prefix."""
    return b"\0" + len(content).to_bytes(4, "big") + content


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


class Streaming(BaseHTTPRequestHandler):
    """A local service that echoes messages in capitals, and sends events."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for number in range(3):
                self.wfile.write(f"event: tick\nid: {number}\ndata: {HOSTILE}{number}\n\n".encode())
                self.wfile.flush()
            self.close_connection = True
            return
        accept = base64.b64encode(
            hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + GUID).digest()
        )
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        self.wfile.flush()
        self.echo()

    def do_POST(self) -> None:
        """Responds to a call of gRPC as a service does that has no such order."""
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        while self.rfile.readline().strip():
            pass
        self.send_response(200)
        self.send_header("Content-Type", "application/grpc")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "grpc-status")
        self.end_headers()
        self.wfile.write(chunk(call(b"\x0a\x04none")) + b"0\r\ngrpc-status: 5\r\n\r\n")
        self.wfile.flush()

    def echo(self) -> None:
        while True:
            kind, length = self.rfile.read(1)[0] & 15, self.rfile.read(1)[0] & 127
            key = self.rfile.read(4)
            content = bytes(byte ^ key[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            if kind == CLOSE:
                self.wfile.write(frame(CLOSE, content))
                self.wfile.flush()
                self.close_connection = True
                return
            self.wfile.write(frame(10 if kind == PING else kind, content.upper()))
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


class WebSocket:
    """A visitor's connection for messages."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        head = [
            "GET /socket HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {KEY}",
            "Sec-WebSocket-Version: 13",
            "",
            "",
        ]
        self.connection.sendall("\r\n".join(head).encode())
        self.reader = self.connection.makefile("rb")
        assert b" 101 " in self.reader.readline()
        while self.reader.readline().strip():
            pass

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
        self.connection.close()

    def send(self, kind: int, content: bytes) -> bytes:
        """Sends a message; the content of the one that comes back."""
        self.connection.sendall(frame(kind, content, mask=True))
        self.reader.read(1)
        return self.reader.read(self.reader.read(1)[0] & 127)


@contextmanager
def streaming(house: House) -> Iterator[int]:
    with serving(Streaming) as local:
        tunnel = house.client.tunnels.start(name="streams", proto="http", addr=local)
        assert tunnel.public_url
        yield int(tunnel.public_url.rstrip("/").rpartition(":")[2])


def messages(page: Page) -> Any:
    return page.locator(".messages li")


def accessible(page: Page) -> None:
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()


def test_messages_of_a_websocket_appear_while_it_is_open(house: House, page: Page) -> None:
    with streaming(house) as port, WebSocket(port) as visitor:
        choose(page, "/socket")
        expect(rows(page).first).to_contain_text("101")
        assert visitor.send(TEXT, b'{"a": 1}') == b'{"A": 1}'
        expect(messages(page)).to_have_count(2)
        expect(messages(page).first).to_contain_text('{"a": 1}')
        expect(messages(page).first).to_contain_text("to the service")
        expect(messages(page).nth(1)).to_contain_text("to the visitor")
        accessible(page)

        page.get_by_role("button", name="Pause", exact=True).last.press("Enter")
        visitor.send(TEXT, HOSTILE.encode())
        visitor.send(BINARY, bytes([0, 1, 255]))
        visitor.send(PING, b"")
        expect(messages(page)).to_have_count(2)
        page.locator(".stream").get_by_role("button", name="Resume").press("Enter")
        expect(messages(page)).to_have_count(8)
        expect(messages(page).nth(2)).to_contain_text(HOSTILE)
        messages(page).nth(4).locator("summary").press("Enter")
        expect(messages(page).nth(4).locator(".hex")).to_contain_text("00 01 ff")

        page.get_by_label("Filter messages").fill("onerror")
        expect(messages(page)).to_have_count(2)
        page.get_by_label("Filter messages").fill("")
        page.get_by_label("Kinds of messages").select_option("control")
        expect(messages(page)).to_have_count(2)
        page.get_by_label("Kinds of messages").select_option("")
        visitor.send(CLOSE, (1000).to_bytes(2, "big") + b"bye")
        expect(messages(page).last).to_contain_text("close 1000")


def test_events_are_shown_with_their_types_and_identifiers(house: House, page: Page) -> None:
    with streaming(house) as port:
        urlopen(f"http://127.0.0.1:{port}/events").read()
        choose(page, "/events")

        expect(messages(page)).to_have_count(3)
        expect(messages(page).nth(1)).to_contain_text("event tick")
        expect(messages(page).nth(1)).to_contain_text("id 1")
        expect(messages(page).nth(1)).to_contain_text(f"{HOSTILE}1")
        accessible(page)


def test_messages_of_a_failed_call_are_shown_by_their_fields(house: House, page: Page) -> None:
    content = b"\x08\x96\x01\x12" + bytes([len(HOSTILE)]) + HOSTILE.encode()
    with streaming(house) as port:
        head = [
            "POST /shop.Orders/Get HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Content-Type: application/grpc",
            "TE: trailers",
            "Transfer-Encoding: chunked",
            "Connection: close",
        ]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            body = chunk(call(content)) + b"0\r\n\r\n"
            connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
            while connection.recv(65536):
                pass
        choose(page, "/shop.Orders/Get")

        expect(page.locator("#detail .outcome")).to_contain_text("gRPC 5 NOT_FOUND")
        badge = rows(page).first.locator(".status .badge")
        expect(badge).to_have_text("gRPC 5")
        expect(badge).to_have_class(re.compile(r"\bbad\b"))
        house.client.requests.update(house.newest(), pinned=True, note="look")
        expect(rows(page).first.locator(".marks")).to_contain_text("★")
        fits = """row => [...row.querySelectorAll(".status .badge, .marks")].every((it) => {
            const [own, cell] = [it, it.parentElement].map((one) => one.getBoundingClientRect());
            return own.width > 0 && own.right <= cell.right + 1;
        })"""
        assert rows(page).first.evaluate(fits)
        for term, count in (("is:failed", 1), ("grpc:5", 1), ("grpc:0", 0)):
            page.locator("#filter-text").fill(term)
            page.locator("#filter-text").press("Enter")
            expect(rows(page)).to_have_count(count)
        page.locator("#filter-text").fill("")
        page.locator("#filter-text").press("Enter")
        found = page.evaluate("fetch('/inspect/data/traffic').then((it) => it.json())")
        [streams] = [it for it in found["tunnels"] if it["name"] == "streams"]
        assert sum(slot["errors"] for slot in streams["slots"]) == 1
        expect(messages(page)).to_have_count(2)
        messages(page).first.locator("summary").press("Enter")
        fields = messages(page).first.locator(".message-full > div > pre")
        expect(fields).to_have_text(f'1: 150\n2: "{HOSTILE}"')
        accessible(page)


FIELDS = [
    ("", []),
    ("0896 01", ["1: 150"]),
    ("0a 04 74657374", ['1: "test"']),
    ("1a 03 08 96 01", ["3 {", "  1: 150", "}"]),
    ("0a 02 ff00", ["1: ff 00"]),
    ("0d 0000803f", ["1: 1065353216 (as a float 1)"]),
    ("09 000000000000f03f", ["1: 4607182418800017408 (as a float 1)"]),
    ("08 ffffffffffffffffff01", ["1: 18446744073709551615"]),
    ("08", None),
    ("0a 05 74", None),
    ("00 01", None),
    ("0b", None),
]


def test_fields_are_read_without_their_description(page: Page) -> None:
    found = page.evaluate(
        """async (all) => {
            const { fieldsOf } = await import("/inspect/assets/protobuf.js");
            return all.map((bytes) => fieldsOf(new Uint8Array(bytes)));
        }""",
        [list(bytes.fromhex(data)) for data, _ in FIELDS],
    )

    assert found == [lines for _, lines in FIELDS]


def test_the_time_of_a_request_is_shown_by_stages(house: House, page: Page) -> None:
    def release() -> None:
        house.arrived.wait()
        time.sleep(0.3)
        house.release.set()

    threading.Thread(target=release, daemon=True).start()
    house.send("/slow")
    choose(page, "/slow")

    timing = page.get_by_role("region", name="Timing")
    expect(timing).to_contain_text(re.compile(r"first byte ([3-9]\d\d ms|\d+\.\d\d s)"))
    for stage in ("waited", "connected", "body"):
        expect(timing).to_contain_text(stage)
