"""Endpoints of one account that share a URL, and its load."""

from __future__ import annotations

import collections
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from postgres import ON_BOTH_STORES
from processes import Relay, wait_until
from recorder import get
from test_reserved_domains import bot

HOST = "shared.example.test"


@contextlib.contextmanager
def named(name: str) -> Iterator[int]:
    """A local service that responds with its name, and to `/slow` after a moment."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/slow":
                time.sleep(0.3)
            length = int(self.headers.get("content-length", 0))
            self.rfile.read(length)
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def place(service: ginnel.Service) -> str:
    assert service.http_url is not None
    return urlsplit(service.http_url).netloc


def who(service: ginnel.Service, path: str = "/", host: str = HOST) -> str:
    status, _, body = get(place(service), host, path)
    return body.decode() if status == 200 else str(status)


def names(service: ginnel.Service, requests: int = 60) -> set[str]:
    """Who responds to some requests, each on a connection of its own."""
    return {who(service) for _ in range(requests)}


def shared(agent: ginnel.Agent, port: int, name: str = "t", **options: Any) -> Any:
    defaults: dict[str, Any] = {"domain": HOST, "schemes": ["http"], "pooling_enabled": True}
    with agent.client() as here:
        return here.tunnels.start(addr=port, proto="http", name=name, **defaults | options)


@ON_BOTH_STORES
def test_two_agents_share_a_url_until_one_leaves(service: ginnel.Service) -> None:
    with named("a") as a, named("b") as b, ginnel.Agent(service) as one:
        shown = shared(one, a)
        assert shown.pooling_enabled is True
        with ginnel.Agent(service) as other:
            assert shared(other, b).public_url == shown.public_url

            assert names(service) == {"a", "b"}

            with one.client() as here:
                assert here.endpoints.get("t").pooling_enabled is True
            with service.client() as remote:
                both = remote.endpoints.list().to_list()
                assert [it.pooling_enabled for it in both] == [True, True]
                assert {it.url for it in both} == {shown.public_url}
            with other.client() as here:
                here.tunnels.stop("t")
            assert names(service) == {"a"}
            shared(other, b)
            assert names(service) == {"a", "b"}
        assert names(service) == {"a"}
    assert names(service, 1) == {"404"}


@pytest.mark.parametrize("first", [True, False])
def test_both_have_to_ask_for_it(service: ginnel.Service, first: bool) -> None:
    with named("a") as a, ginnel.Agent(service) as one, ginnel.Agent(service) as other:
        shared(one, a, pooling_enabled=first)

        with pytest.raises(ginnel.APIStatusError, match="already online") as refused:
            shared(other, a, pooling_enabled=not first)

        assert "ERR_NGROK_334" in str(refused.value)
        assert "pooling_enabled" in str(refused.value)
        assert names(service, 10) == {"a"}


def test_agents_of_other_accounts_do_not_join(service: ginnel.Service) -> None:
    with (
        named("a") as a,
        bot(service) as (_, _, token),
        ginnel.Agent(service) as one,
        ginnel.Agent(service, authtoken=token) as other,
    ):
        shared(one, a)

        with pytest.raises(ginnel.APIStatusError, match="already online") as refused:
            shared(other, a)

        assert "agents of one account that all ask for it" in str(refused.value)


def test_each_endpoint_has_its_own_policy(service: ginnel.Service) -> None:
    def header(value: str) -> dict[str, Any]:
        config = {"headers": {"x-from": value}}
        return {"on_http_response": [{"actions": [{"type": "add-headers", "config": config}]}]}

    with (
        named("a") as a,
        named("b") as b,
        ginnel.Agent(service) as one,
        ginnel.Agent(service) as two,
    ):
        shared(one, a, traffic_policy=header("policy-a"))
        shared(two, b, traffic_policy=header("policy-b"))

        seen = set()
        for _ in range(60):
            _, head, body = get(place(service), HOST, "/")
            seen.add((body, b"policy-a" in head, b"policy-b" in head))

    assert seen == {(b"a", True, False), (b"b", False, True)}


def test_what_one_cannot_reach_another_serves(service: ginnel.Service) -> None:
    with socket.socket() as closed, named("a") as a:
        closed.bind(("127.0.0.1", 0))
        with ginnel.Agent(service) as one, ginnel.Agent(service) as other:
            shared(one, a)
            # Nobody listens there.
            shared(other, closed.getsockname()[1])

            assert names(service, 40) == {"a"}


def test_what_one_cannot_reach_passes_no_policy_by(service: ginnel.Service) -> None:
    with socket.socket() as closed, named("a") as a:
        closed.bind(("127.0.0.1", 0))
        with ginnel.Agent(service) as one, ginnel.Agent(service) as other:
            shared(one, a, basic_auth=["user:password"])
            # Nobody listens there, and nobody asks for a password.
            shared(other, closed.getsockname()[1])

            assert names(service, 40) == {"401", "502"}


def test_endpoints_that_end_tls_in_other_ways_do_not_share(
    service: ginnel.Service, tmp_path: Path
) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text(service.ca_pem)
    with ginnel.Agent(service) as one, ginnel.Agent(service) as other:
        shared(one, 1, schemes=["https"])

        with pytest.raises(ginnel.APIStatusError, match="how TLS ends"):
            shared(other, 1, schemes=["https"], mutual_tls_cas=str(authorities))


def test_internal_endpoints_are_shared_and_have_no_wildcards(service: ginnel.Service) -> None:
    inward = {"type": "forward-internal", "config": {"url": "http://app.internal"}}
    policy = json.dumps({"on_http_request": [{"actions": [inward]}]})
    with (
        named("a") as a,
        named("b") as b,
        ginnel.Agent(service) as one,
        ginnel.Agent(service) as two,
    ):
        shared(one, a, domain="app.internal")
        shared(two, b, domain="app.internal")
        with service.client() as remote:
            remote.endpoints.create(url=f"http://{HOST}", traffic_policy=policy)

            assert names(service) == {"a", "b"}

        with pytest.raises(ginnel.APIStatusError, match="no wildcards"):
            shared(two, b, name="wild", domain="*.internal")


def test_tcp_ports_are_shared_as_well(service: ginnel.Service) -> None:
    with (
        named("a") as a,
        named("b") as b,
        ginnel.Agent(service) as one,
        ginnel.Agent(service) as two,
    ):
        with one.client() as here:
            url = here.tunnels.start(addr=a, proto="tcp", name="t", pooling_enabled=True).public_url
        address = url.removeprefix("tcp://")
        with two.client() as here:
            joined = here.tunnels.start(
                addr=b, proto="tcp", name="t", remote_addr=address, pooling_enabled=True
            )
            assert joined.public_url == url

            assert {get(address, "x", "/")[2] for _ in range(40)} == {b"a", b"b"}

            here.tunnels.stop("t")
        assert {get(address, "x", "/")[2] for _ in range(20)} == {b"a"}


def test_an_agent_that_is_lost_leaves_the_others(service: ginnel.Service) -> None:
    with (
        named("a") as a,
        named("b") as b,
        Relay(str(service.agent_addr)) as relay,
        ginnel.Agent(service) as one,
        ginnel.Agent(service, server_addr=relay.address) as other,
    ):
        shared(one, a)
        shared(other, b)
        assert names(service) == {"a", "b"}

        relay.is_open = False
        relay.cut()
        wait_until(lambda: session_count(service) == 1, "the end of the session")
        assert names(service) == {"a"}

        relay.open()
        wait_until(lambda: names(service) == {"a", "b"}, "the return of the agent")


def session_count(service: ginnel.Service) -> int:
    with service.client() as remote:
        return len(remote.tunnel_sessions.list().to_list())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_is_lost_while_one_leaves_under_load(service: ginnel.Service, method: str) -> None:
    """About 200 requests a second, over connections that are kept."""
    over = threading.Event()
    counts: collections.Counter[str] = collections.Counter()

    def visit() -> None:
        connection = HTTPConnection(place(service), timeout=20)
        while not over.is_set():
            body = b"x" * 100 if method == "POST" else None
            connection.request(method, "/", body=body, headers={"Host": HOST})
            with connection.getresponse() as response:
                said = response.read().decode()
                counts[said if response.status == 200 else f"{response.status} {said}"] += 1
            time.sleep(0.02)
        connection.close()

    with named("a") as a, named("b") as b, ginnel.Agent(service) as stays:
        shared(stays, a)
        with ThreadPoolExecutor(4) as visitors:
            visits = [visitors.submit(visit) for _ in range(4)]
            try:
                for _ in range(3):
                    with ginnel.Agent(service) as leaves:
                        shared(leaves, b)
                        wanted = counts["b"] + 20
                        while counts["b"] < wanted and not any(it.done() for it in visits):
                            time.sleep(0.01)
                        with leaves.client() as here:
                            here.tunnels.stop("t")
                        shared(leaves, b)
            finally:
                over.set()
            for visit_ in visits:
                visit_.result()

    assert set(counts) == {"a", "b"}, counts


def test_a_request_in_flight_ends_before_its_tunnel_stops(service: ginnel.Service) -> None:
    with named("a") as a, ginnel.Agent(service) as agent, ThreadPoolExecutor(1) as visitors:
        shared(agent, a)
        visit = visitors.submit(who, service, "/slow")
        time.sleep(0.1)

        with agent.client() as here:
            here.tunnels.stop("t")

        assert visit.result() == "a"


def node(store: str, name: str) -> ginnel.Service:
    settings: Any = {"node_name": name, "peer_addr": "127.0.0.1:0"}
    return ginnel.Service(store=store, settings=settings)


def test_agents_of_two_nodes_share_a_url(store: str, tmp_path: Path) -> None:
    with (
        node(store, "one") as one,
        node(store, "two") as two,
        named("a") as a,
        named("b") as b,
        ginnel.Agent(one) as here,
        ginnel.Agent(two, authtoken=one.authtoken) as there,
    ):
        shared(here, a)
        shared(there, b)

        # Each node serves its own agents first.
        assert (names(one, 10), names(two, 10)) == ({"a"}, {"b"})
        with there.client() as local:
            local.tunnels.stop("t")
        wait_until(lambda: names(two, 10) == {"a"}, "the way to the other node")
        with pytest.raises(ginnel.APIStatusError, match="already online"):
            shared(there, b, name="alone", pooling_enabled=False)
        shared(there, b)
        assert names(two, 10) == {"b"}
        # What nobody can decide for both is the same at both.
        authorities = tmp_path / "ca.pem"
        authorities.write_text(one.ca_pem)
        secure: dict[str, Any] = {"domain": "s.example.test", "schemes": ["https"], "name": "s"}
        shared(here, a, **secure)
        with pytest.raises(ginnel.APIStatusError, match="already online"):
            shared(there, b, **secure, mutual_tls_cas=str(authorities))


def test_nothing_is_lost_while_one_leaves_at_another_node(store: str) -> None:
    over = threading.Event()
    counts: collections.Counter[str] = collections.Counter()
    with (
        node(store, "one") as one,
        node(store, "two") as two,
        node(store, "three") as three,
        named("a") as a,
        named("b") as b,
        ginnel.Agent(two, authtoken=one.authtoken) as stays,
        ginnel.Agent(three, authtoken=one.authtoken) as leaves,
        ThreadPoolExecutor(2) as visitors,
    ):
        shared(stays, a)
        shared(leaves, b)
        wait_until(lambda: names(one, 20) == {"a", "b"}, "the way to both nodes")

        def visit() -> None:
            while not over.is_set():
                counts[who(one)] += 1
                time.sleep(0.01)

        visits = [visitors.submit(visit) for _ in range(2)]
        try:
            wait_until(lambda: {"a", "b"} <= set(counts), "both to be visited")
            with leaves.client() as local:
                local.tunnels.stop("t")
            left = counts["a"] + 40
            wait_until(lambda: counts["a"] >= left, "more requests")
        finally:
            over.set()
        for visit_ in visits:
            visit_.result()

    assert set(counts) == {"a", "b"}, counts
