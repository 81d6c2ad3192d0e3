"""Visitors who take nothing of what they ask for leave an agent's streams to others."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from limited_processes import Process, Tunnels, get, running, tunnels

VISITORS = 5
STREAMS = 128
LARGE = 1 << 20
SMALL = 32 << 10
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs addresses beside 127.0.0.1"
)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(index: int, value: str) -> bytes:
    """A header of HPACK that is in no table, with a name of the static one."""
    return bytes([index, len(value)]) + value.encode()


class StalledVisitor:
    """A visitor with HTTP/2 whose window is shut: it hears heads, and no body."""

    def __init__(self, port: int, address: str, trust: ssl.SSLContext) -> None:
        raw = socket.socket()
        raw.bind((address, 0))
        raw.settimeout(20)
        raw.connect(("127.0.0.1", port))
        self.socket = trust.wrap_socket(raw, server_hostname="localhost")
        assert self.socket.selected_alpn_protocol() == "h2"
        # The initial window is 0.
        settings = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
        self.authority = f"127.0.0.1:{port}"
        self.heard = b""
        # Whose head has come; whose stream is over.
        self.answered: set[int] = set()

    def ask(self, path: str, numbers: range) -> None:
        fields = b"\x82\x87" + literal(4, path) + literal(1, self.authority)
        ids = [2 * number + 1 for number in numbers]
        flags = END_STREAM | END_HEADERS
        self.socket.sendall(b"".join(frame(HEADERS, flags, stream, fields) for stream in ids))

    def listen(self) -> None:
        """Takes what has come."""
        self.socket.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            while piece := self.socket.recv(65536):
                self.heard += piece
        self.socket.settimeout(20)
        while len(self.heard) >= 9:
            length = int.from_bytes(self.heard[:3])
            if len(self.heard) < 9 + length:
                return
            kind, flags, stream = struct.unpack(">BBI", self.heard[3:9])
            self.heard = self.heard[9 + length :]
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0))
            assert kind != DATA or length == 0
            if kind == HEADERS:
                self.answered.add(stream)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, dict[str, Any]]]:
    database = tmp_path_factory.mktemp("service") / "db"
    with running("serve", "--path", str(database), "--tls-endpoints") as service:
        yield service, service.read()


@pytest.fixture
def agent(tmp_path: Path, service: tuple[Process, dict[str, Any]]) -> Iterator[Tunnels]:
    (tmp_path / "large").write_bytes(b"l" * LARGE)
    (tmp_path / "small").write_bytes(b"s" * SMALL)
    files = f"proto: http, addr: 'file://{tmp_path}'"
    definitions = {
        "secure": files + ", schemes: [https]",
        "plain": files + ", schemes: [http]",
        "other": files + ", schemes: [http]",
    }
    with tunnels(tmp_path, service[1], definitions) as agent:
        yield agent


def trust(told: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=told["ca_path"])
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    return context


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


@pytest.mark.parametrize("path", ["/large", "/small"])
def test_stalled_streams_of_a_few_visitors_leave_an_agent_to_others(
    service: tuple[Process, dict[str, Any]], agent: Tunnels, path: str
) -> None:
    process, told = service
    port = port_of(agent.urls["secure"])
    with contextlib.ExitStack() as stack:
        visitors = []
        for number in range(VISITORS):
            visitor = StalledVisitor(port, f"127.0.0.{number + 3}", trust(told))
            stack.enter_context(visitor.socket)
            visitors.append(visitor)
            # Everything that a first answer needs is there before memory is compared.
            visitor.ask(path, range(1))
        # The tunnels that are asked later have no connection yet that is kept for another request.
        before = process.resident()

        for visitor in visitors:
            visitor.ask(path, range(1, STREAMS))
        # As many as the agent carries are under way, and the rest have been refused.
        deadline = time.monotonic() + 20
        while sum(len(visitor.answered) for visitor in visitors) < VISITORS * STREAMS:
            assert time.monotonic() < deadline, [len(visitor.answered) for visitor in visitors]
            for visitor in visitors:
                visitor.listen()

        for _ in range(10):
            for name in ("plain", "other"):
                answer = get(port_of(agent.urls[name]), "/small")
                assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
                assert len(answer) > SMALL
        grown = process.resident() - before
        print(f"{path}: {grown / (1 << 20):.1f} MiB more")
        assert grown <= 32 << 20
