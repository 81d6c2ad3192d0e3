"""Commands in processes of their own, what lies before them, and what they forward to."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

PATIENCE = 30.0
"""Longer than anything here takes, and short enough to end a test that hangs."""


def wait_until(is_so: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


class Command:
    """`ginnel` with arguments, printing JSON; both outputs are read all the time."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ginnel", *arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": "", **environment},
        )
        self.complaints: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._listen)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.complaints.extend(self.process.stderr)

    def line(self) -> dict[str, Any]:
        """The next line that it prints."""
        line = self._lines.get(timeout=PATIENCE)
        assert line is not None, f"it ended: {self.complaints}"
        said: dict[str, Any] = json.loads(line)
        return said

    def event(self, kind: str) -> dict[str, Any]:
        """The next event of a kind."""
        while (said := self.line())["event"] != kind:
            pass
        return said

    def ended(self, seconds: float = PATIENCE) -> tuple[int, str]:
        """Waits for its end; the exit code, and what it complained of."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(seconds)
        return code, "".join(self.complaints)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.ended()
        for output in (self.process.stdout, self.process.stderr):
            assert output is not None
            output.close()


class Relay:
    """Lies between an agent and its service; can cut its connections and let none through."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.is_open = True
        self._pairs: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self.target.rpartition(":")
            try:
                if not self.is_open:
                    raise OSError("closed")
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            self._pairs |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        self._end(one, other)
        one.close()

    def _end(self, *ended: socket.socket) -> None:
        for end in ended:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._pairs.discard(end)

    def cut(self) -> None:
        """Ends its connections, and takes no more until `open`."""
        self.is_open = False
        self._end(*list(self._pairs))

    def open(self, target: str | None = None) -> None:
        self.target = target or self.target
        self.is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()


class Upstream:
    """A local service: `/slow` answers when `release` is set, `/endless` never ends."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked = threading.Semaphore(0)
        self.closed: queue.Queue[bytes] = queue.Queue()
        """What visitors' WebSockets were closed with."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked.release()
                with contextlib.suppress(OSError):
                    outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/ws":
            return self._speak(handler)
        if handler.path == "/slow":
            self.release.wait(2 * PATIENCE)
        handler.send_response(200)
        if handler.path != "/endless":
            body = handler.path.encode()
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return None
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while True:
            handler.wfile.write(b"1\r\n.\r\n")
            time.sleep(0.02)

    def _speak(self, handler: BaseHTTPRequestHandler) -> None:
        """Says hello, and answers a close with a close."""
        handler.connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: x\r\n\r\n\x81\x05hello"
        )
        handler.close_connection = True
        head = handler.rfile.read(2)
        masked = handler.rfile.read(4 + (head[1] & 0x7F)) if len(head) == 2 else b""
        mask, data = masked[:4], masked[4:]
        closed = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self.closed.put(bytes([head[0]]) + closed if head else b"")
        handler.connection.sendall(b"\x88\x02" + closed)

    def wait_for(self, requests: int) -> None:
        for _ in range(requests):
            assert self.asked.acquire(timeout=PATIENCE), "the requests did not arrive"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def status(url: str) -> int | None:
    """What a new visitor gets; none where nobody takes the connection."""
    try:
        with urlopen(url, timeout=PATIENCE) as answer:
            answer.read()
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code
    except (URLError, OSError):
        return None


@contextlib.contextmanager
def websocket(url: str) -> Iterator[socket.socket]:
    """A visitor who speaks WebSocket, and has been told hello."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(
            f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        got = b""
        while not got.endswith(b"\x81\x05hello"):
            more = connection.recv(4096)
            assert more, got
            got += more
        yield connection
