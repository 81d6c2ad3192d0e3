"""Local services and backends that serve one connection at a time, as development servers do."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

import ginnel

VISITORS = 4
"""How many visitors come at once; each request takes 0.2 s."""
SECONDS = 15.0
"""More than they need, and less than a connection is kept."""


class OneAtATime(BaseHTTPRequestHandler):
    """Keeps its connection, so that the server takes no other one."""

    protocol_version = "HTTP/1.1"
    posted: list[bytes]

    def do_GET(self) -> None:
        time.sleep(0.2)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_POST(self) -> None:
        self.posted.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


class QuietRequests(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def application(_: object, start_response: Callable[..., object]) -> list[bytes]:
    time.sleep(0.2)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@pytest.fixture(params=["http.server", "wsgiref"])
def server(request: pytest.FixtureRequest) -> Iterator[HTTPServer]:
    OneAtATime.posted = []
    if request.param == "http.server":
        server = HTTPServer(("127.0.0.1", 0), OneAtATime)
    else:
        server = make_server("127.0.0.1", 0, application, handler_class=QuietRequests)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield server
    server.shutdown()
    server.server_close()
    serving.join()


@pytest.fixture(params=["tunnel", "backend"])
def url(request: pytest.FixtureRequest, server: HTTPServer) -> Iterator[tuple[str, str]]:
    """Where visitors connect, and the host that they name."""
    with ginnel.Service() as service, service.client() as remote, ginnel.Agent(service) as agent:
        if request.param == "tunnel":
            here = agent.client().tunnels.start(
                addr=server.server_port, proto="http", name="one", schemes=["http"]
            )
            yield here.public_url, urlsplit(here.public_url).netloc
            return
        backend = remote.backends.static.create(address=f"127.0.0.1:{server.server_port}")
        edge = remote.edges.https.create(hostports=["one.example.test:80"])
        remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
        )
        yield service.http_url or "", "one.example.test"


def visit(url: tuple[str, str], method: str = "GET", body: bytes | None = None) -> int:
    """The status of a response to a visitor with a connection of its own."""
    place = urlsplit(url[0])
    visitor = HTTPConnection(place.hostname or "", place.port, timeout=30)
    visitor.request(method, "/", body, {"Host": url[1]})
    status = visitor.getresponse().status
    visitor.close()
    return status


def test_visitors_at_once_do_not_wait_for_an_idle_connection(url: tuple[str, str]) -> None:
    began = time.monotonic()

    with ThreadPoolExecutor(VISITORS) as visitors:
        statuses = list(visitors.map(lambda _: visit(url), range(VISITORS)))

    assert statuses == [200] * VISITORS
    assert time.monotonic() - began < SECONDS


def test_visitors_who_keep_their_connections_do_not_keep_the_server(url: tuple[str, str]) -> None:
    began = time.monotonic()
    place = urlsplit(url[0])
    visitors = [HTTPConnection(place.hostname or "", place.port, timeout=30) for _ in range(2)]

    for _ in range(3):
        for visitor in visitors:
            visitor.request("GET", "/", headers={"Host": url[1]})
            assert visitor.getresponse().read() == b"ok"

    assert time.monotonic() - began < SECONDS
    for visitor in visitors:
        visitor.close()


@pytest.mark.parametrize("server", ["http.server"], indirect=True)
def test_each_post_is_sent_once(url: tuple[str, str]) -> None:
    bodies = [str(number).encode() for number in range(VISITORS)]

    with ThreadPoolExecutor(VISITORS) as visitors:
        statuses = list(visitors.map(lambda body: visit(url, "POST", body), bodies))

    assert statuses == [200] * VISITORS
    assert sorted(OneAtATime.posted) == bodies
