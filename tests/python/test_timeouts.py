"""Timeouts and limits of `ginnel serve` that are set have their effect."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ginnel
from processes import PATIENCE, Command, Relay, Upstream, status, wait_until
from test_login import AUTH, opened
from test_reserved_domains import bot

SHORTEST_DEFAULT = 4.0
"""Seconds; less than any of the timeouts has by default."""
GET = b"GET / HTTP/1.1\r\nHost: nobody.example.test\r\n\r\n"
HALF = b"POST /api_keys HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"
HALF += b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"

TIMEOUTS = {
    "api-first-byte-timeout": ("url", b"", b""),
    "api-head-timeout": ("url", b"GET / HT", b""),
    "api-body-timeout": ("url", HALF, b"the body took more than 0.1 seconds"),
    "edge-first-byte-timeout": ("http_url", b"", b""),
    "edge-head-timeout": ("http_url", b"GET / HT", b""),
    "edge-idle-timeout": ("http_url", GET, b"404 Not Found"),
    "edge-handshake-timeout": ("https_url", b"\x16", b""),
    "agent-first-byte-timeout": ("agent_addr", b"", b""),
    "agent-handshake-timeout": ("agent_addr", b"\x16", b""),
}


def connected(addresses: dict[str, Any], name: str) -> socket.socket:
    port = int(addresses[name].rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def heard(stream: socket.socket) -> bytes:
    """All until the other side closes; fails when it does not in time."""
    text = b""
    while piece := stream.recv(65536):
        text += piece
    return text


@pytest.mark.parametrize("option", TIMEOUTS)
def test_who_takes_longer_than_the_timeout_is_let_go(option: str) -> None:
    place, sent, expected = TIMEOUTS[option]
    with Command("serve", f"--{option}", "100ms") as command:
        addresses = command.line()
        with connected(addresses, place) as stream:
            stream.settimeout(SHORTEST_DEFAULT)
            if b"%s" in sent:
                sent %= addresses["api_key"].encode()
            stream.sendall(sent)

            assert expected in heard(stream)


def test_an_agent_that_does_not_log_in_is_let_go() -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Command("serve", "--agent-login-timeout", "100ms") as command:
        plain = connected(command.line(), "agent_addr")
        with plain, context.wrap_socket(plain, server_hostname="localhost") as stream:
            # It is 10 s by default.
            stream.settimeout(2 * SHORTEST_DEFAULT)
            while stream.recv(65536):
                pass


HOST = "nobody.example.test"


def backend_at(addresses: dict[str, Any], address: str) -> None:
    """Has an edge lead all its requests to a backend."""
    remote = ginnel.RemoteClient(addresses["api_key"], base_url=addresses["url"])
    backend = remote.backends.static.create(address=address)
    edge = remote.edges.https.create(hostports=[f"{HOST}:443"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
    )


@contextlib.contextmanager
def visitor(addresses: dict[str, Any], *protocols: str) -> Iterator[ssl.SSLSocket]:
    """A visitor of the edge."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    plain = connected(addresses, "https_url")
    with plain, context.wrap_socket(plain, server_hostname=HOST) as stream:
        yield stream


@contextlib.contextmanager
def listening(backlog: int = 5) -> Iterator[tuple[socket.socket, str]]:
    """A backend that accepts when it is told to, and its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as listener:
        listener.settimeout(PATIENCE)
        yield listener, f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_backend_that_thinks_for_too_long_is_given_up() -> None:
    with (
        listening() as (_, address),
        Command("serve", "--edge-response-timeout", "100ms") as command,
    ):
        backend_at(addresses := command.line(), address)
        with visitor(addresses) as stream:
            stream.sendall(GET)

            assert stream.recv(65536).startswith(b"HTTP/1.1 504 ")


OFF: dict[str, tuple[list[str], dict[str, str]]] = {
    "flag": (["--edge-response-timeout", "off"], {}),
    "variable": ([], {"GINNEL_EDGE_RESPONSE_TIMEOUT": "off"}),
}


@pytest.mark.parametrize("source", OFF)
def test_a_backend_has_any_time_if_its_timeout_is_off(source: str, tmp_path: Path) -> None:
    config = tmp_path / "ginnel.yml"
    config.write_text("edge:\n  response_timeout: 100ms\n")
    options, environment = OFF[source]
    command = Command("serve", "--config", str(config), *options, **environment)
    with listening() as (listener, address), command:
        backend_at(addresses := command.line(), address)
        with visitor(addresses) as stream:
            stream.sendall(GET)
            backend, _ = listener.accept()
            with backend:
                assert backend.recv(65536).startswith(b"GET / ")
                # Longer than the timeout of the file.
                time.sleep(0.5)
                backend.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

                assert stream.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_files_and_keywords_turn_the_response_timeout_off(tmp_path: Path) -> None:
    config = tmp_path / "ginnel.yml"
    config.write_text("edge:\n  response_timeout: off\n")
    with Command("serve", "--check", "--config", str(config)) as command:
        assert command.ended()[0] == 0
    with ginnel.Service(settings={"edge": {"response_timeout": "off"}}) as service:
        assert service.url
    with pytest.raises(ginnel.ConfigError, match="or 'off'"):
        ginnel.Service(settings={"edge": {"response_timeout": "never"}})


def test_a_backend_that_takes_no_connection_is_given_up() -> None:
    with (
        listening(0) as (listener, address),
        Command("serve", "--edge-dial-timeout", "100ms") as command,
        contextlib.ExitStack() as queued,
    ):
        backend_at(addresses := command.line(), address)
        # The queue is full when a connection is not answered any more.
        with contextlib.suppress(TimeoutError):
            for _ in range(20):
                waiting = socket.create_connection(listener.getsockname(), 0.2)
                queued.enter_context(waiting)
        with visitor(addresses) as stream:
            # It is 10 s by default.
            stream.settimeout(2 * SHORTEST_DEFAULT)
            stream.sendall(GET)

            assert stream.recv(65536).startswith((b"HTTP/1.1 502 ", b"HTTP/1.1 504 "))


@pytest.mark.parametrize(
    ("head", "is_cut"),
    [
        (b"Content-Length: 10", True),
        (b"Connection: close", False),
        (b"Content-Length: 10\r\nContent-Type: text/event-stream", False),
    ],
)
def test_a_tunnel_cuts_off_bodies_that_stop(head: bytes, is_cut: bool) -> None:
    settings: Any = {"edge": {"upstream_stall_timeout": "100ms"}}
    with (
        ginnel.Service(settings=settings) as service,
        ginnel.Agent(service) as agent,
        listening() as (listener, address),
    ):
        tunnel = agent.client().tunnels.start(addr=address, proto="http", name="web")
        host = tunnel.public_url.removeprefix("http://")
        name, _, port = host.rpartition(":")
        with socket.create_connection((name, int(port)), timeout=PATIENCE) as stream:
            stream.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            backend, _ = listener.accept()
            with backend:
                assert backend.recv(65536).startswith(b"GET / ")
                backend.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nbegun")
                # Longer than the timeout.
                time.sleep(0.5)
                with contextlib.suppress(ConnectionError):
                    backend.sendall(b"ended")
            body = heard(stream)

    assert b"begun" in body
    assert (b"ended" not in body) == is_cut


def test_a_visitor_whose_body_does_not_move_is_let_go() -> None:
    with listening() as (_, address), Command("serve", "--edge-stall-timeout", "100ms") as command:
        backend_at(addresses := command.line(), address)
        with visitor(addresses) as stream:
            # It is 30 s by default.
            stream.settimeout(4 * SHORTEST_DEFAULT)
            stream.sendall(
                f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 9\r\n\r\n{{".encode()
            )

            with contextlib.suppress(ssl.SSLError, ConnectionError):
                heard(stream)


def test_a_connection_to_a_backend_that_has_waited_for_too_long_is_closed() -> None:
    options = ["--edge-upstream-idle-timeout", "100ms"]
    with listening() as (listener, address), Command("serve", *options) as command:
        backend_at(addresses := command.line(), address)
        with visitor(addresses) as stream:
            stream.sendall(GET)
            backend, _ = listener.accept()
            with backend:
                assert backend.recv(65536).startswith(b"GET / ")
                backend.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

                # It is 20 s by default.
                backend.settimeout(4 * SHORTEST_DEFAULT)
                assert backend.recv(65536) == b""


@pytest.mark.parametrize("kept", [0, 1])
def test_so_many_connections_to_a_backend_wait_for_another_request(kept: int) -> None:
    options = ["--edge-upstream-idle-connections", str(kept)]
    with listening() as (listener, address), Command("serve", *options) as command:
        backend_at(addresses := command.line(), address)
        with visitor(addresses) as stream:
            stream.sendall(GET)
            backend, _ = listener.accept()
            with backend:
                assert backend.recv(65536).startswith(b"GET / ")
                backend.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                assert stream.recv(65536).startswith(b"HTTP/1.1 200 ")
                stream.sendall(GET)

                assert bool(backend.recv(65536)) == bool(kept)


def test_a_connection_may_carry_so_many_requests_with_http2() -> None:
    with (
        Command("serve", "--edge-http2-streams", "7") as command,
        visitor(command.line(), "h2") as stream,
    ):
        stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        head = stream.recv(9)
        payload = stream.recv(int.from_bytes(head[:3], "big"))

    settings = dict(struct.iter_unpack(">HI", payload))
    max_concurrent_streams = 3
    assert head[3] == 4
    assert settings[max_concurrent_streams] == 7


@contextlib.contextmanager
def agent_limits(**limits: Any) -> Iterator[ginnel.Service]:
    """A service with limits of agents, in which dials take a moment at most."""
    settings: Any = {"agent": limits, "edge": {"dial_timeout": "500ms"}}
    with ginnel.Service(settings=settings) as service:
        yield service


@pytest.mark.parametrize(("queue_timeout", "expected"), [("0s", 503), ("9s", 200)])
def test_a_visitor_waits_for_one_of_so_many_streams(queue_timeout: str, expected: int) -> None:
    with (
        agent_limits(max_streams=1, queue_timeout=queue_timeout) as service,
        ginnel.Agent(service) as agent,
        Upstream() as upstream,
        ThreadPoolExecutor(2) as visitors,
    ):
        tunnels = agent.client().tunnels
        url = tunnels.start(addr=upstream.port, proto="http", name="web").public_url
        first = visitors.submit(status, f"{url}/slow")
        upstream.wait_for(1)
        second = visitors.submit(status, f"{url}/quick")
        if expected == 200:
            # It is in line behind the first, and nowhere else, for longer than a dial may take.
            assert not upstream.asked.acquire(timeout=1)
        else:
            assert second.result(PATIENCE) == expected
        upstream.release.set()

        assert (first.result(), second.result()) == (200, expected)


@pytest.mark.parametrize("queue_timeout", ["0s", "60s"])
def test_a_stream_that_idles_makes_room_for_visitors_of_other_tunnels(queue_timeout: str) -> None:
    streams = 8
    with (
        agent_limits(max_streams=streams, queue_timeout=queue_timeout) as service,
        ginnel.Agent(service) as agent,
        Upstream() as upstream,
        ThreadPoolExecutor(streams) as visitors,
    ):
        web, other = (
            agent.client().tunnels.start(addr=upstream.port, proto="http", name=name).public_url
            for name in ("web", "other")
        )
        assert status(f"{web}/quick") == 200

        slow = [visitors.submit(status, f"{other}/slow") for _ in range(streams)]

        upstream.wait_for(1 + streams)
        upstream.release.set()
        assert {visit.result() for visit in slow} == {200}


def test_a_visitor_of_a_tcp_tunnel_gets_a_stream_that_idles_elsewhere() -> None:
    with (
        agent_limits(max_streams=4, queue_timeout="60s") as service,
        ginnel.Agent(service) as agent,
        Upstream() as upstream,
        contextlib.ExitStack() as held,
    ):
        tunnels = agent.client().tunnels
        web = tunnels.start(addr=upstream.port, proto="http", name="web").public_url
        tcp = tunnels.start(addr=upstream.port, proto="tcp", name="tcp").public_url
        assert status(f"{web}/quick") == 200

        for _ in range(4):
            stream = held.enter_context(connected({"tcp": tcp}, "tcp"))
            # A stream idles for 20 s before it ends by itself.
            stream.settimeout(4 * SHORTEST_DEFAULT)
            stream.sendall(b"GET / HTTP/1.1\r\n\r\n")

            assert stream.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_an_agent_that_sends_more_than_a_login_has_is_let_go() -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # A call of 20 KiB that does not end: within the default, and over a limit of 4 KiB.
    sent = opened(3, AUTH + b"{" + b" " * 20_000)

    def is_let_go(service: ginnel.Service, within: float) -> bool:
        plain = connected({"agent_addr": service.agent_addr}, "agent_addr")
        with plain, context.wrap_socket(plain, server_hostname="localhost") as stream:
            stream.settimeout(within)
            try:
                stream.sendall(sent)
                heard(stream)
            except TimeoutError:
                return False
            except (ConnectionError, ssl.SSLError):
                return True
            return True

    with agent_limits(max_login_size="4KiB", login_timeout="2m") as service:
        assert is_let_go(service, within=PATIENCE)
    with agent_limits() as service:
        assert not is_let_go(service, within=0.5)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped and go on")
def test_an_agent_that_misses_a_heartbeat_is_gone(tmp_path: Path) -> None:
    limits = {"heartbeat_interval": 0.05, "heartbeat_tolerance": timedelta(seconds=1)}
    with agent_limits(**limits) as service, service.client() as remote:
        (ca := tmp_path / "ca.pem").write_text(service.ca_pem)
        with Command(
            *("http", "80", "--server-addr", service.agent_addr or "", "--ca", str(ca)),
            *("--web-addr", "false"),
            GINNEL_AUTHTOKEN=service.authtoken or "",
        ) as agent:
            agent.event("tunnel")
            wait_until(lambda: remote.tunnel_sessions.list().first(), "it is there")

            agent.process.send_signal(signal.SIGSTOP)

            wait_until(lambda: not remote.tunnel_sessions.list().first(), "it is gone", 10)


@pytest.mark.parametrize(("reserve", "is_free"), [("0s", True), ("1h", False)])
def test_the_addresses_of_an_agent_that_is_gone_are_kept_for_it(
    reserve: str, is_free: bool
) -> None:
    settings: Any = {"agent": {"reserve": reserve}}
    wanted: Any = {"addr": 1, "proto": "http", "name": "app", "domain": "app.example.test"}
    with (
        ginnel.Service(base_domain="example.test", settings=settings) as service,
        service.client() as remote,
        bot(service) as (_, _, token),
        Relay(service.agent_addr or "") as relay,
        ginnel.Agent(service, server_addr=relay.address) as gone,
        ginnel.Agent(service, authtoken=token) as other,
    ):
        gone.client().tunnels.start(**wanted)
        relay.cut()
        wait_until(lambda: len(remote.tunnel_sessions.list().to_list()) == 1, "it is gone")

        def is_bound() -> bool:
            with contextlib.suppress(ginnel.APIStatusError):
                other.client().tunnels.start(**wanted)
            return bool(other.client().tunnels.list().to_list())

        if is_free:
            wait_until(is_bound, "the address is free")
        else:
            # As long as it takes where they are not kept, and longer.
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                assert not is_bound()


def test_a_body_over_the_limit_is_refused() -> None:
    with Command("serve", "--api-max-body-size", "1KiB") as command:
        addresses = command.line()
        remote = ginnel.RemoteClient(addresses["api_key"], base_url=addresses["url"])

        with pytest.raises(ginnel.APIStatusError, match="over its limit of 1024 bytes"):
            remote.ip_policies.create(metadata="x" * 2000)
