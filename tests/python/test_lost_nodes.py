"""Nodes that are killed while they have requests of other nodes' visitors."""

from __future__ import annotations

import collections
import contextlib
import http.client
import pathlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import ginnel
from addresses import free_port
from processes import PATIENCE, Command, wait_until

DOMAIN = "nodes.test"
HOST = f"shop.{DOMAIN}"
# The second takes another way through the gateway.
WAYS: list[dict[str, str]] = [{}, {"TE": "trailers", "Connection": "TE"}]
REQUESTS = 8


class Node(Command):
    """A node, with its ports by what they are for."""

    def __init__(self, store: str, name: str) -> None:
        self.http, self.agents = free_port(), free_port()
        own = ("--node-name", name, "--peer-addr", "127.0.0.1:0", "--base-domain", DOMAIN)
        ports = ("--port", "0", "--http-port", str(self.http), "--https-port", "none")
        agents = ("--agent-port", str(self.agents))
        super().__init__("serve", "--store", store, *own, *ports, *agents)

    def visit(
        self, method: str, token: str, headers: dict[str, str], timeout: float = PATIENCE
    ) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout)
        with contextlib.closing(connection):
            body = "body" if method == "POST" else None
            connection.request(method, f"/{token}", body, {"Host": HOST, **headers})
            response = connection.getresponse()
            response.read()
            return response.status

    def wait_for_tunnel(self) -> None:
        wait_until(lambda: self.visit("GET", "begin", {}) == 204, "the tunnel")


class SlowService:
    """A local service that counts requests by their paths, and answers while it may."""

    def __init__(self) -> None:
        self.seen: collections.Counter[str] = collections.Counter()
        self.may_answer = threading.Event()
        self.may_answer.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.seen[f"{self.command} {self.path}"] += 1
                outer.may_answer.wait(PATIENCE)
                self.send_response(204)
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[SlowService]:
    service = SlowService()
    yield service
    service.close()


def is_served_by(node: Node, visited: Node) -> bool:
    """Whether requests that come to `visited` go to a node."""
    node.process.send_signal(signal.SIGSTOP)
    try:
        visited.visit("GET", "probe", {}, timeout=2)
    except TimeoutError:
        return True
    finally:
        node.process.send_signal(signal.SIGCONT)
    return False


def test_what_may_be_repeated_survives_the_node_that_had_it(
    store: str, service: SlowService, tmp_path: pathlib.Path
) -> None:
    with ginnel.Service(store=store, settings={"node_name": "first"}) as first:
        authtoken = first.authtoken
        (tmp_path / "ca.pem").write_text(first.ca_pem)
    with contextlib.ExitStack() as stack:
        visited, *others = [
            stack.enter_context(Node(store, name)) for name in ("visited", "one", "two")
        ]
        for node in (visited, *others):
            node.line()
        addresses = [f"127.0.0.1:{node.agents}" for node in others]
        agent = ginnel.Agent(server_addr=addresses, authtoken=authtoken, ca=tmp_path / "ca.pem")
        stack.callback(agent.stop, grace=0)
        with agent.client() as local:
            local.tunnels.start(
                name="shop", addr=service.port, proto="http", schemes=["http"], subdomain="shop"
            )
        for node in (visited, *others):
            node.wait_for_tunnel()
        for node, other in (others, list(reversed(others))):
            wait_until(lambda: not is_served_by(node, other), "each to have the agent itself")  # noqa: B023
        serving: list[Node] = []

        def is_one_serving() -> bool:
            # On a busy machine, a request may take as long as one whose node is stopped.
            serving[:] = [node for node in others if is_served_by(node, visited)]
            return len(serving) == 1

        wait_until(is_one_serving, "one node to serve the requests")
        (lost,) = serving

        service.may_answer.clear()
        service.seen.clear()
        with ThreadPoolExecutor(4 * REQUESTS) as pool:
            visits = {
                f"{method} /{way}-{number}": pool.submit(
                    visited.visit, method, f"{way}-{number}", headers
                )
                for method in ("GET", "POST")
                for way, headers in enumerate(WAYS)
                for number in range(REQUESTS)
            }
            wait_until(lambda: visits.keys() <= service.seen.keys(), "the requests to be in flight")
            lost.process.kill()
            lost.process.wait(PATIENCE)
            service.may_answer.set()
            statuses = {name: visit.result(PATIENCE) for name, visit in visits.items()}

    gets = {name: status for name, status in statuses.items() if name.startswith("GET")}
    posts = {name: status for name, status in statuses.items() if name.startswith("POST")}
    assert set(gets.values()) == {204}, gets
    assert set(posts.values()) == {502}, posts
    assert {service.seen[name] for name in gets} == {2}
    assert {service.seen[name] for name in posts} == {1}
