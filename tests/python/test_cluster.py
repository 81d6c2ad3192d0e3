"""Several `ginnel serve` on one database: leases, names, and what `ginnel cluster status` shows."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from addresses import free_port
from processes import Command, wait_until


def node(store: str, name: str) -> Command:
    ports = ("--http-port", "none", "--https-port", "none")
    own = ("--node-name", name, "--peer-addr", "127.0.0.1:0")
    return Command("serve", "--store", store, *own, *ports)


def states(client: ginnel.RemoteClient) -> dict[str | None, str | None]:
    return {node.name: node.state for node in client.nodes.list()}


async def test_both_clients_list_the_nodes(store: str, make_client: Any) -> None:
    one = ginnel.Service(store=store, settings={"node_name": "one"})
    with one, ginnel.Service(store=store, settings={"node_name": "two"}) as two:
        client = make_client(one.api_key, base_url=two.url)

        nodes = await client.nodes.list().to_list()

        assert [(node.name, node.own) for node in nodes] == [("two", True), ("one", False)]
        assert {node.state for node in nodes} == {"alive"}


def test_a_service_of_its_own_has_no_nodes(ginnel_remote: ginnel.RemoteClient) -> None:
    assert ginnel_remote.nodes.list().to_list() == []


def test_a_node_that_is_killed_lapses_and_its_name_is_free_at_once(store: str) -> None:
    with node(store, "one") as one, contextlib.ExitStack() as stack:
        service = one.line()
        two = stack.enter_context(node(store, "two"))
        two.line()
        with ginnel.RemoteClient(service["api_key"], base_url=service["url"]) as client:
            wait_until(lambda: states(client) == {"one": "alive", "two": "alive"}, "both")
            two.process.send_signal(signal.SIGKILL)
            wait_until(lambda: states(client)["two"] == "lapsed", "the lease to lapse", 40)

            again = stack.enter_context(node(store, "two"))
            again.line()

            wait_until(lambda: "alive" in by_name(client, "two"), "the node to be back")


def by_name(client: ginnel.RemoteClient, name: str) -> set[str | None]:
    return {node.state for node in client.nodes.list() if node.name == name}


def test_a_node_that_was_stopped_for_a_while_comes_back_in_a_new_epoch(store: str) -> None:
    with node(store, "one") as one, node(store, "two") as two:
        service, other = one.line(), two.line()
        # Whichever came first has made it.
        service["api_key"] = service["api_key"] or other["api_key"]
        with ginnel.RemoteClient(service["api_key"], base_url=service["url"]) as client:
            wait_until(lambda: by_name(client, "two") == {"alive"}, "the nodes to know each other")
            epoch = epoch_of(client, "two")
            two.process.send_signal(signal.SIGSTOP)
            try:
                wait_until(lambda: "lapsed" in by_name(client, "two"), "the lease to lapse", 40)
                time.sleep(1)
            finally:
                two.process.send_signal(signal.SIGCONT)

            wait_until(lambda: by_name(client, "two") == {"alive"}, "the node to be back")
            assert epoch_of(client, "two") > epoch
            assert by_name(client, "one") == {"alive"}


def test_a_node_that_stops_is_seen_to_drain(store: str) -> None:
    one = ginnel.Service(store=store, settings={"node_name": "one"})
    two = ginnel.Service(store=store, settings={"node_name": "two"})
    with one, two, one.client() as client, socket.create_server(("127.0.0.1", 0)) as slow:
        slow.settimeout(30)
        token = one.authtoken
        with ginnel.Agent(two, authtoken=token) as agent, agent.client() as local:
            addr = slow.getsockname()[1]
            tunnel = local.tunnels.start(addr=addr, proto="http", name="slow", schemes=["http"])
            url = urlsplit(tunnel.public_url)
            with socket.create_connection((url.hostname, url.port), 30) as visitor:
                visitor.sendall(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % url.netloc.encode())
                taken, _ = slow.accept()
                with taken, ThreadPoolExecutor(1) as pool:
                    wait_until(lambda: by_name(client, "two") == {"alive"}, "the nodes to meet")
                    stopping = pool.submit(two.stop, grace=30)

                    wait_until(lambda: by_name(client, "two") == {"draining"}, "the node to leave")
                    assert by_name(client, "one") == {"alive"}
                    taken.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                    stopping.result(60)


def epoch_of(client: ginnel.RemoteClient, name: str) -> int:
    found = [node.epoch for node in client.nodes.list() if node.name == name]
    assert len(found) == 1
    assert found[0] is not None
    return found[0]


def ready(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_node_is_ready_once_it_has_met_the_others_or_waited(store: str) -> None:
    with node(store, "one") as one, contextlib.ExitStack() as stack:
        one.line()
        one.process.send_signal(signal.SIGSTOP)
        address = f"127.0.0.1:{free_port()}"
        own = ("--node-name", "two", "--peer-addr", "127.0.0.1:0", "--admin-addr", address)
        stack.enter_context(Command("serve", "--store", store, *own))
        obstacles: set[str] = set()

        def is_ready() -> bool:
            with contextlib.suppress(OSError):
                code, text = ready(f"http://{address}")
                assert code in (200, 503), text
                obstacles.update([text] if code == 503 else [])
                return code == 200
            return False

        # It is asked from its first moment on: it waits for five seconds only.
        wait_until(is_ready, "it to wait no longer")

        unmet = 'there is no session with the node \\"one\\" yet'
        assert any(unmet in text for text in obstacles), obstacles
        one.process.send_signal(signal.SIGCONT)


def test_the_command_shows_the_nodes(store: str) -> None:
    with node(store, "one") as one:
        service = one.line()
        key = {"GINNEL_API_KEY": service["api_key"]}
        status = [sys.executable, "-m", "ginnel", "cluster", "status", "--base-url", service["url"]]
        shown = subprocess.run([*status, "--json"], env=key, capture_output=True, check=True)
        table = subprocess.run(status, env=key, capture_output=True, check=True, text=True)

    nodes = json.loads(shown.stdout)
    assert [(node["name"], node["own"]) for node in nodes] == [("one", True)]
    assert "alive" in table.stdout


def test_a_second_node_of_a_name_is_refused_while_the_first_lives(store: str) -> None:
    with node(store, "one") as one:
        one.line()
        with node(store, "one") as other:
            code, complaints = other.ended()

    assert (code, "--node-name" in complaints) == (2, True), complaints


def ask(node: ginnel.Service, host: str) -> int:
    """The status that a visitor gets at a node."""
    assert node.http_url is not None
    address = node.http_url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/", headers={"Host": host})
        return connection.getresponse().status


@contextlib.contextmanager
def edge_on_two_nodes(
    store: str, address: str, **route: Any
) -> Iterator[tuple[ginnel.Service, ginnel.Service]]:
    """Two nodes that serve the edge `edge.test`, whose backend is at an address."""

    def settings(name: str) -> Any:
        return {"node_name": name, "peer_addr": "127.0.0.1:0", "http_port": 0}

    with (
        ginnel.Service(store=store, settings=settings("one")) as one,
        ginnel.Service(store=store, settings=settings("two")) as two,
        ginnel.RemoteClient(one.api_key, base_url=one.url) as client,
    ):
        backend = client.backends.static.create(address=address)
        edge = client.edges.https.create(hostports=["edge.test:443", "edge.test:80"])
        client.edges.https.routes.create(
            edge.id,
            match_type="path_prefix",
            match="/",
            backend={"backend_id": backend.id},
            **route,
        )
        wait_until(lambda: ask(two, "edge.test") != 404, "the edge at the other node")
        yield one, two


class Failing(http.server.BaseHTTPRequestHandler):
    """Fails, and counts how often."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def failing() -> Iterator[str]:
    """The address of a server whose responses are errors."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_rate_limit_of_an_edge_is_a_nodes_own(store: str, failing: str) -> None:
    limit = {
        "name": "visitors",
        "algorithm": "sliding_window",
        "capacity": 3,
        "rate": "600s",
        "bucket_key": ["conn.client_ip"],
    }
    policy = {"inbound": [{"actions": [{"type": "rate-limit", "config": limit}]}]}
    with edge_on_two_nodes(store, failing, policy=policy) as nodes:
        statuses = [[ask(node, "edge.test") for _ in range(4)] for node in nodes]

        # One visitor at the second node has found out that it knows the edge.
        assert statuses == [[500, 500, 500, 429], [500, 500, 429, 429]]


def test_a_circuit_breaker_of_an_edge_is_a_nodes_own(store: str, failing: str) -> None:
    breaker = {
        "volume_threshold": 4,
        "tripped_duration": 600,
        "error_threshold_percentage": 0.5,
    }
    with edge_on_two_nodes(store, failing, circuit_breaker=breaker) as (one, two):
        assert [ask(one, "edge.test") for _ in range(5)] == [500, 500, 500, 500, 503]

        assert ask(two, "edge.test") == 500
