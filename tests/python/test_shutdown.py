"""How `ginnel serve` and the commands of the agent end: what is in flight is finished first."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import ginnel
from addresses import own_host
from processes import PATIENCE, Command, Upstream, status, wait_until, websocket

GOING_AWAY = b"\x88\x02" + (1001).to_bytes(2, "big")
IN_FLIGHT = 60
WAITING = "ginnel: waiting up to 1 s for 1 open connection of visitors; Ctrl-C again stops now\n"
CUT_OFF = [(0, ""), (0, WAITING)]
"""How a service ends, and an agent, which says what it waits for."""


@dataclass
class Site:
    """A tunnel to `upstream`, and one of the two programs that carry it."""

    command: Command
    upstream: Upstream
    url: str

    def end(self) -> None:
        self.command.process.send_signal(signal.SIGTERM)

    def is_refused(self) -> bool:
        return status(f"{self.url}/new") != 200


Start = Callable[..., contextlib.AbstractContextManager[Site]]


@contextlib.contextmanager
def agent_command(tmp_path: Path, *options: str) -> Iterator[Site]:
    """`ginnel http` in a process, the service in this one."""
    certificate = tmp_path / "ca.pem"
    with ginnel.Service() as service, Upstream() as upstream:
        certificate.write_text(service.ca_pem)
        server = ("--server-addr", service.agent_addr or "", "--ca", str(certificate))
        arguments = ["http", str(upstream.port), *server, "--web-addr", "false", *options]
        with Command(*arguments, GINNEL_AUTHTOKEN=service.authtoken or "") as command:
            yield Site(command, upstream, command.event("tunnel")["public_url"])


@contextlib.contextmanager
def service_command(tmp_path: Path, *options: str) -> Iterator[Site]:
    """`ginnel serve` in a process, the agent in this one."""
    path = tmp_path / "service.db"
    with Command("serve", "--path", str(path), *options) as command, Upstream() as upstream:
        said = command.line()
        agent = ginnel.Agent(
            server_addr=said["agent_addr"], authtoken=said["authtoken"], ca=said["ca_path"]
        )
        try:
            tunnel = agent.client().tunnels.start(addr=upstream.port, proto="http", name="web")
            yield Site(command, upstream, tunnel.public_url)
        finally:
            agent.stop(0.1)


@pytest.fixture(params=[agent_command, service_command], ids=["agent", "service"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    def start(*options: str) -> contextlib.AbstractContextManager[Site]:
        site: contextlib.AbstractContextManager[Site] = request.param(tmp_path, *options)
        return site

    return start


def test_requests_in_flight_are_answered_and_new_visitors_are_refused(start: Start) -> None:
    with start() as site, ThreadPoolExecutor(IN_FLIGHT) as visitors:
        answers = [visitors.submit(status, f"{site.url}/slow") for _ in range(IN_FLIGHT)]
        site.upstream.wait_for(IN_FLIGHT)

        site.end()
        wait_until(site.is_refused, "new visitors are refused")
        assert site.command.process.poll() is None
        site.upstream.release.set()

        assert [answer.result() for answer in answers] == [200] * IN_FLIGHT
        code, complaints = site.command.ended()
    assert code == 0
    # A wait that lasts long enough to be noticed is named.
    assert re.fullmatch(r"(ginnel: waiting up to 30 s for \d+ open connections .*\n)?", complaints)


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    with start() as site, ThreadPoolExecutor(1) as visitor:
        cut = visitor.submit(status, f"{site.url}/slow")
        site.upstream.wait_for(1)
        site.end()
        wait_until(site.is_refused, "new visitors are refused")

        site.end()

        assert site.command.ended(10) == (1, "ginnel: stopped by a second signal\n")
        assert cut.result() != 200


def test_what_never_ends_is_cut_off_after_the_grace(start: Start) -> None:
    with start("--grace", "1") as site:
        host, _, port = site.url.removeprefix("http://").rpartition(":")
        visitor = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        visitor.request("GET", "/endless")
        answer = visitor.getresponse()
        assert answer.read(10) == b"." * 10

        site.end()

        with pytest.raises((http.client.HTTPException, OSError)):
            answer.read()
        assert site.command.ended() in CUT_OFF
        visitor.close()


def test_an_idle_one_ends_although_visitors_keep_their_connections(start: Start) -> None:
    with start("--grace", "3600") as site:
        host, _, port = site.url.removeprefix("http://").rpartition(":")
        visitors = [http.client.HTTPConnection(host, int(port)) for _ in range(5)]
        for visitor in visitors:
            visitor.request("GET", "/kept")
            assert visitor.getresponse().read() == b"/kept"

        site.end()

        assert site.command.ended() == (0, "")
        for visitor in visitors:
            visitor.close()


def test_a_websocket_is_told_that_its_server_goes_away(start: Start) -> None:
    with start("--grace", "3600") as site, websocket(site.url) as visitor:
        site.end()

        got = b""
        while len(got) < len(GOING_AWAY) and (more := visitor.recv(4096)):
            got += more
        assert got == GOING_AWAY
        mask = b"\x01\x02\x03\x04"
        masked = bytes(byte ^ mask[at] for at, byte in enumerate(GOING_AWAY[2:]))
        visitor.sendall(b"\x88\x82" + mask + masked)

        # The local service sees the same, and whoever was told last closes.
        assert site.upstream.closed.get(timeout=PATIENCE) == b"\x88" + GOING_AWAY[2:]
        assert visitor.recv(4096) == b""
        assert site.command.ended() == (0, "")


def test_a_websocket_that_does_not_answer_is_cut_off_after_the_grace(start: Start) -> None:
    with start("--grace", "1") as site, websocket(site.url) as visitor:
        site.end()

        got = b""
        with contextlib.suppress(ConnectionResetError):
            while more := visitor.recv(4096):
                got += more
        assert got == GOING_AWAY
        assert site.command.ended() in CUT_OFF


def test_a_hangup_ends_nothing_and_says_so(start: Start) -> None:
    with start() as site:
        complaints = site.command.complaints
        for _ in range(3):
            before = len(complaints)
            site.command.process.send_signal(signal.SIGHUP)
            wait_until(partial(changed, complaints, before), "it says so")

        assert status(f"{site.url}/still") == 200
        site.end()
        assert site.command.ended() == (
            0,
            "ginnel: SIGHUP: there is nothing to reload\n" * 3,
        )


def changed(complaints: list[str], before: int) -> bool:
    return len(complaints) > before


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def test_an_agent_in_python_does_not_wait_for_visitors_who_only_keep_connections(
    service: ginnel.Service, upstream: Upstream
) -> None:
    agent = ginnel.Agent(service)
    url = agent.client().tunnels.start(addr=upstream.port, proto="http").public_url
    host, _, port = url.removeprefix("http://").rpartition(":")
    visitor = http.client.HTTPConnection(host, int(port))
    visitor.request("GET", "/kept")
    assert visitor.getresponse().read() == b"/kept"

    stopped = threading.Thread(target=agent.stop, args=(3600.0,))
    stopped.start()
    stopped.join(PATIENCE)

    assert not stopped.is_alive()
    visitor.close()


@pytest.mark.parametrize("proto", ["http", "tcp"])
def test_an_agent_in_python_finishes_what_it_serves(
    service: ginnel.Service, upstream: Upstream, proto: str
) -> None:
    agent = ginnel.Agent(service)
    url = web_address(agent, upstream, proto)
    with ThreadPoolExecutor(2) as both:
        answer = both.submit(status, f"{url}/slow")
        upstream.wait_for(1)
        stopped = both.submit(agent.stop)
        wait_until(lambda: status(f"{url}/new") != 200, "new visitors are refused")
        assert not stopped.done()
        upstream.release.set()
        stopped.result(PATIENCE)

    assert answer.result() == 200
    remote = service.client()
    wait_until(lambda: remote.tunnels.list().first() is None, "the tunnel is gone")


@pytest.mark.parametrize("proto", ["http", "tcp"])
def test_an_agent_in_python_cuts_off_what_takes_longer_than_it_may(
    service: ginnel.Service, upstream: Upstream, proto: str
) -> None:
    agent = ginnel.Agent(service)
    url = web_address(agent, upstream, proto)
    with ThreadPoolExecutor(1) as visitor:
        answer = visitor.submit(status, f"{url}/slow")
        upstream.wait_for(1)

        agent.stop(grace=0.1)

    assert answer.result() != 200
    assert not agent.is_running


def test_one_tunnel_does_not_wait_for_another(service: ginnel.Service, upstream: Upstream) -> None:
    agent = ginnel.Agent(service)
    tunnels = agent.client().tunnels
    slow, chat = (
        tunnels.start(addr=upstream.port, proto="http", name=name).public_url
        for name in ("slow", "chat")
    )
    with ThreadPoolExecutor(2) as both, websocket(chat) as visitor:
        answer = both.submit(status, f"{slow}/slow")
        upstream.wait_for(2)
        stopped = both.submit(agent.stop, PATIENCE)

        assert visitor.recv(4) == GOING_AWAY
        assert not stopped.done()
        assert not answer.done()
        visitor.close()
        upstream.release.set()
        stopped.result(PATIENCE)

    assert answer.result() == 200


def web_address(agent: ginnel.Agent, upstream: Upstream, proto: str) -> str:
    tunnel = agent.client().tunnels.start(addr=upstream.port, proto=proto, name="web")
    return tunnel.public_url.replace("tcp://", "http://")


def test_an_address_is_free_as_soon_as_its_agent_has_stopped() -> None:
    with ginnel.Service(edge_host=own_host()) as service:
        with ginnel.Agent(service) as first:
            taken = first.client().tunnels.start(addr=9, proto="tcp", name="raw").public_url
        remote_addr = taken.removeprefix("tcp://")
        with ginnel.Agent(service) as second:
            tunnels = second.client().tunnels
            again = tunnels.start(addr=9, proto="tcp", name="raw", remote_addr=remote_addr)

    assert again.public_url == taken


def test_a_terminated_agent_leaves_no_listener_behind(tmp_path: Path) -> None:
    with agent_command(tmp_path) as site:
        site.end()
        assert site.command.ended() == (0, "")

        host, _, port = site.url.removeprefix("http://").rpartition(":")
        with pytest.raises(ConnectionError):
            socket.create_connection((host, int(port)), PATIENCE)


class Interrupted(Exception):
    """What the handler of a signal raises."""


@contextlib.contextmanager
def interrupts(number: signal.Signals) -> Iterator[None]:
    def raise_it(*_: object) -> None:
        raise Interrupted

    before = signal.signal(number, raise_it)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("stopped", ["agent", "service"])
def test_a_signal_ends_a_stop_at_once(
    service: ginnel.Service, upstream: Upstream, stopped: str
) -> None:
    agent = ginnel.Agent(service)
    url = agent.client().tunnels.start(addr=upstream.port, proto="http").public_url
    host, _, port = url.removeprefix("http://").rpartition(":")
    visitor = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    visitor.request("GET", "/endless")
    answer = visitor.getresponse()
    assert answer.read(10) == b"." * 10
    stopping = agent if stopped == "agent" else service
    over = threading.Event()

    def interrupt() -> bool:
        wait_until(lambda: not stopping.is_running, "it stops")
        signal.raise_signal(signal.SIGUSR1)
        is_at_once = over.wait(PATIENCE)
        if not is_at_once and visitor.sock:
            # Nobody is waited for any more.
            visitor.sock.shutdown(socket.SHUT_RDWR)
        return is_at_once

    with interrupts(signal.SIGUSR1), ThreadPoolExecutor(1) as other:
        is_at_once = other.submit(interrupt)
        with pytest.raises(Interrupted):
            stopping.stop(grace=3600)
        over.set()
        assert is_at_once.result()

    assert not stopping.is_running
    with pytest.raises((http.client.HTTPException, OSError)):
        answer.read()
    visitor.close()
    agent.stop()


@pytest.mark.parametrize("grace", [-1, 3600.5, float("nan"), float("inf"), 1e300])
def test_a_grace_is_from_0_to_3600_seconds(service: ginnel.Service, grace: float) -> None:
    with ginnel.Agent(service) as agent:
        for stopped in (agent, service):
            with pytest.raises(ginnel.ConfigError) as caught:
                stopped.stop(grace=grace)
            assert str(caught.value) == (
                f"grace={grace!r}: must be a number of seconds from 0 to 3600"
            )
            assert stopped.is_running
