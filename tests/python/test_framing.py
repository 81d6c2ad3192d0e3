"""Where requests begin and answers end, told by what the agent has captured."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel
from addresses import free_port
from ginnel.local.requests import CapturedRequest

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def local_service(serve: Callable[[socket.socket, list[bytes]], None]) -> Iterator[Any]:
    """Serves each connection with a function; gives the port and what the function notes."""
    heard: list[bytes] = []

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=run, args=(connection,), daemon=True).start()

    def run(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            serve(connection, heard)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1], heard


def answer_all(connection: socket.socket, heard: list[bytes]) -> None:
    """Notes each head, reads its body of three bytes where it is a POST, and answers."""
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            piece = connection.recv(65536)
            if not piece:
                return
            buffer += piece
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        heard.append(head)
        if b"POST" in head[:8]:
            while len(buffer) < 3:
                piece = connection.recv(65536)
                assert piece, buffer
                buffer += piece
            buffer = buffer[3:]
        connection.sendall(OK)


@pytest.fixture
def agent(service: ginnel.Service) -> Iterator[ginnel.Agent]:
    with ginnel.Agent(service) as agent:
        yield agent


def place(tunnel: Any) -> tuple[str, int]:
    host, _, port = tunnel.public_url.removeprefix("http://").rstrip("/").rpartition(":")
    return host, int(port)


def until(found: Callable[[], Any]) -> Any:
    """Waits for something that must come."""
    deadline = time.monotonic() + 20
    while not (value := found()):
        assert time.monotonic() < deadline, "it has not come in time"
        time.sleep(0.01)
    return value


def ended(client: Any, count: int = 1) -> list[CapturedRequest]:
    """The captured requests, oldest first, when so many have ended."""

    def look() -> list[CapturedRequest]:
        listed: list[CapturedRequest] = client.requests.list().to_list()
        return listed[::-1] if len([one for one in listed if one.duration]) >= count else []

    found: list[CapturedRequest] = until(look)
    return found


@pytest.mark.parametrize("way", ["fast path", "full path"])
@pytest.mark.parametrize("host_header", ["preserve", "rewrite"])
@pytest.mark.parametrize("piece", [1, 2, 3, 4096])
def test_one_empty_line_before_a_request_is_no_part_of_it(
    agent: ginnel.Agent, host_header: str, piece: int, way: str
) -> None:
    head = "Host: a.test\r\n" + ("TE: trailers\r\n" if way == "full path" else "")
    get = f"GET /get HTTP/1.1\r\n{head}\r\n"
    post = f"POST /post HTTP/1.1\r\n{head}Content-Length: 3\r\n\r\nabc"
    # The second stands behind the body of a request, as old clients send it.
    asked = f"\r\n{get}{post}\r\n{get}\r\n{post}".encode()
    with local_service(answer_all) as (port, heard), agent.client() as client:
        tunnel = client.tunnels.start(addr=port, proto="http", name="web", host_header=host_header)
        with socket.create_connection(place(tunnel), timeout=20) as visitor:
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(asked), piece):
                visitor.sendall(asked[at : at + piece])
            answers = b""
            while answers.count(b"ok") < 4:
                piece_of_it = visitor.recv(65536)
                assert piece_of_it, answers
                answers += piece_of_it
        captured = ended(client, 4)

    assert answers.count(b"HTTP/1.1 200 OK") == 4
    methods = ["GET", "POST", "GET", "POST"]
    assert [one.request.method for one in captured] == methods
    assert [head.split(b" ")[0].decode() for head in heard] == methods
    host = "a.test" if host_header == "preserve" else f"localhost:{port}"
    for one, head in zip(captured, heard, strict=True):
        assert head.startswith(f"{one.request.method} {one.request.uri} HTTP/1.1\r\n".encode())
        assert f"\r\nHost: {host}\r\n".encode() in head
        assert one.request.raw.startswith(head)
        assert "X-Forwarded-For" in one.request.headers


@pytest.mark.parametrize("before", [b"\r\n\r\n", b"\n", b"\r", b"\r\n\n", b"\n\r\n"])
def test_other_lines_before_a_request_are_400(agent: ginnel.Agent, before: bytes) -> None:
    with local_service(answer_all) as (port, heard), agent.client() as client:
        tunnel = client.tunnels.start(addr=port, proto="http", name="web")
        for way in (b"", b"TE: trailers\r\n"):
            with socket.create_connection(place(tunnel), timeout=20) as visitor:
                visitor.sendall(before + b"GET / HTTP/1.1\r\nHost: a.test\r\n" + way + b"\r\n")
                answer = b"".join(iter(lambda: visitor.recv(65536), b""))
                assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert (heard, client.requests.list().to_list()) == ([], [])


CUT = {
    b"Content-Length: 100\r\n\r\n0123456789": "closed the connection after 10 of 100 bytes",
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n": (
        "closed the connection after 5 bytes of a body in chunks"
    ),
    b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello": (
        "closed the connection after 5 bytes of a body in chunks"
    ),
}


ONCE = b"GET /cut HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"


def read_all(tunnel: Any, request: bytes = ONCE) -> bytes:
    with socket.create_connection(place(tunnel), timeout=20) as visitor:
        visitor.sendall(request)
        with suppress(ConnectionResetError):
            return b"".join(iter(lambda: visitor.recv(65536), b""))
    return b""


@pytest.mark.parametrize("body", CUT)
def test_an_answer_that_breaks_off_says_so_everywhere(agent: ginnel.Agent, body: bytes) -> None:
    def serve(connection: socket.socket, _: list[bytes]) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + body)

    with local_service(serve) as (port, _), agent.client() as client:
        tunnel = client.tunnels.start(addr=port, proto="http", name="web")
        read_all(tunnel)
        [captured] = ended(client)
        assert agent.url
        page = agent.url.removesuffix("/api")
        with urlopen(f"{page}/inspect/data/export.har", timeout=30) as answer:
            [entry] = json.load(answer)["log"]["entries"]
        with urlopen(f"{page}/inspect/http/{captured.id}", timeout=30) as answer:
            shown = answer.read().decode()

    error = f"the local service {CUT[body]}"
    assert (captured.error, captured.request.truncated) == (error, None)
    assert captured.response
    assert (captured.response.status, captured.response.truncated) == ("200 OK", True)
    assert error in repr(captured)
    assert error in captured._repr_html_()
    response = entry["response"]
    assert (response["_error"], response["comment"]) == (error, error)
    assert error in shown
    assert "truncated" in shown


def test_a_connection_that_is_reset_is_told(agent: ginnel.Agent) -> None:
    def serve(connection: socket.socket, _: list[bytes]) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
        # The visitor has these bytes when the connection is reset.
        time.sleep(0.2)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with local_service(serve) as (port, _), agent.client() as client:
        read_all(client.tunnels.start(addr=port, proto="http", name="web"))
        [captured] = ended(client)

    assert captured.error
    assert captured.error.startswith("the local service broke off (")
    assert captured.error.endswith("after 10 of 100 bytes")


@pytest.mark.parametrize("compression", [False, True], ids=["fast path", "full path"])
def test_an_answer_without_a_length_that_is_reset_is_not_complete(
    agent: ginnel.Agent, compression: bool
) -> None:
    hold = threading.Event()

    def serve(connection: socket.socket, _: list[bytes]) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
        hold.wait(20)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with local_service(serve) as (port, _), agent.client() as client:
        tunnel = client.tunnels.start(addr=port, proto="http", name="web", compression=compression)
        visitor = http.client.HTTPConnection(*place(tunnel), timeout=20)
        visitor.request("GET", "/")
        answer = visitor.getresponse()
        assert answer.read(5) == b"hello"
        hold.set()
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        visitor.close()
        [captured] = ended(client)

    assert captured.error
    assert captured.error.endswith("after 5 bytes")


def test_a_visitor_who_leaves_is_told(agent: ginnel.Agent) -> None:
    def serve(connection: socket.socket, _: list[bytes]) -> None:
        while connection.recv(65536):
            pass

    with local_service(serve) as (port, _), agent.client() as client:
        tunnel = client.tunnels.start(addr=port, proto="http", name="web")
        with socket.create_connection(place(tunnel), timeout=20) as visitor:
            visitor.sendall(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nabc")
            until(lambda: [one for one in client.requests.list() if one.request.body == b"abc"])
        [captured] = ended(client)

    assert captured.error == "the visitor left after 3 of 9 bytes of the request"
    assert (captured.request.truncated, captured.response) == (True, None)


def test_a_service_that_is_away_is_told(agent: ginnel.Agent) -> None:
    port = free_port()
    with agent.client() as client:
        read_all(client.tunnels.start(addr=port, proto="http", name="web"))
        [captured] = ended(client)

    assert captured.error
    assert f"localhost:{port}" in captured.error


def test_what_goes_well_has_no_error(agent: ginnel.Agent) -> None:
    with local_service(answer_all) as (port, _), agent.client() as client:
        tunnel = client.tunnels.start(addr=port, proto="http", name="web")
        read_all(tunnel)
        [captured] = ended(client)

    assert (captured.error, captured.extra) == (None, {})
    assert captured.response
    assert captured.response.truncated is None


def test_what_is_no_file_is_403_at_once(agent: ginnel.Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "index.html")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "hello.txt").write_text("hello")
    with (
        socket.socket(socket.AF_UNIX) as listener,
        agent.client() as client,
    ):
        listener.bind(str(tmp_path / "socket"))
        here = client.tunnels.start(addr=f"file://{tmp_path}", proto="http", name="here")
        devices = client.tunnels.start(addr="file:///dev", proto="http", name="devices")

        def status(tunnel: Any, path: str) -> int:
            request = f"GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
            return int(read_all(tunnel, request.encode()).split(b" ")[1])

        for path in ("/pipe", "/link", "/socket", "/folder/"):
            assert status(here, path) == 403, path
        for path in ("/zero", "/null"):
            assert status(devices, path) == 403, path
        # A link that leads out of the folder is not followed.
        assert status(here, "/zero") == 404
        assert status(here, "/folder") == 301
        assert status(here, "/hello.txt") == 200


@pytest.mark.parametrize("pause", [0, 0.05])
def test_a_folder_answers_requests_with_bodies(
    agent: ginnel.Agent, tmp_path: Path, pause: float
) -> None:
    (tmp_path / "hello.txt").write_text("hello")
    bodies = {
        b"Content-Length: 5\r\n": b"abcde",
        b"Transfer-Encoding: chunked\r\n": b"5\r\nabcde\r\n0\r\n\r\n",
    }
    with agent.client() as client:
        tunnel = client.tunnels.start(addr=f"file://{tmp_path}", proto="http", name="files")
        host, port = tunnel.public_url.removeprefix("http://").split(":")
        for method, expected in [(b"POST", b"405"), (b"GET", b"200")]:
            for field, body in bodies.items():
                with socket.create_connection((host, int(port)), timeout=30) as visitor:
                    head = b" /hello.txt HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n"
                    first = body if not pause else b""
                    visitor.sendall(method + head + field + b"\r\n" + first)
                    time.sleep(pause)
                    visitor.sendall(body[len(first) :])

                    answer = b"".join(iter(lambda: visitor.recv(4096), b""))

                assert answer.split(b" ")[1:2] == [expected], (method, field)
                assert answer.endswith(b"hello") == (method == b"GET")


def test_folders_send_parts_and_what_has_changed(agent: ginnel.Agent, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello world")
    with agent.client() as client:
        tunnel = client.tunnels.start(addr=f"file://{tmp_path}", proto="http", name="here")

        def ask(method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
            fields = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
            lines = [f"{method} /hello.txt HTTP/1.1", "Host: a.test", "Connection: close", *fields]
            answer = read_all(tunnel, "\r\n".join([*lines, "", ""]).encode())
            head, _, body = answer.partition(b"\r\n\r\n")
            status, *answered = head.decode().split("\r\n")
            return int(status.split()[1]), dict(line.split(": ") for line in answered), body

        status, headers, body = ask()
        assert (status, body) == (200, b"hello world")
        tag, date = headers["ETag"], headers["Last-Modified"]
        assert ask(If_None_Match=tag)[::2] == (304, b"")
        assert ask(If_Modified_Since=date)[::2] == (304, b"")
        assert ask("HEAD", Range="bytes=0-1")[1]["Content-Length"] == "11"

        status, headers, body = ask(Range="bytes=6-", If_Range=tag)
        assert (status, body, headers["Content-Range"]) == (206, b"world", "bytes 6-10/11")
        status, headers, body = ask(Range="bytes=11-")
        assert (status, body, headers["Content-Range"]) == (416, b"", "bytes */11")

        (tmp_path / "hello.txt").write_text("another world")
        assert ask(If_None_Match=tag)[::2] == (200, b"another world")
        assert ask(Range="bytes=6-", If_Range=tag)[::2] == (200, b"another world")
        assert ask(If_Match=tag)[0] == 412
