"""Agents whose service is away, or fails: what is for good, and what is tried again."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ginnel
from addresses import own_host
from processes import Command, Relay, Upstream, status, wait_until

Fault = Callable[[Command, Path], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def locked(_: Command, path: Path) -> Iterator[None]:
    """Somebody else writes to the database, and does not finish."""
    database = sqlite3.connect(path, isolation_level=None, timeout=10)
    with contextlib.closing(database):
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


@contextlib.contextmanager
def full(service: Command, path: Path) -> Iterator[None]:
    """No file may grow, as on a disk without room."""
    files = [path, path.with_name(f"{path.name}-wal")]
    size = min(file.stat().st_size for file in files if file.exists())
    _, hard = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def tunnel(agent: ginnel.Agent) -> Any:
    return agent.client().tunnels.get("web")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set")
@pytest.mark.parametrize("fault", [locked, full])
def test_a_tunnel_outlives_a_fault_of_its_service(fault: Fault, tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    serve = ("serve", "--path", str(path), "--edge-host", own_host(), "--grace", "0")
    with contextlib.ExitStack() as opened:
        upstream = opened.enter_context(Upstream())
        with Command(*serve) as first:
            said = first.line()
            relay = opened.enter_context(Relay(said["agent_addr"]))
            agent = opened.enter_context(
                ginnel.Agent(
                    server_addr=relay.address, authtoken=said["authtoken"], ca=said["ca_path"]
                )
            )
            tunnels = agent.client().tunnels
            url = tunnels.start(addr=upstream.port, proto="http", name="web").public_url
            relay.cut()
            first.process.terminate()
            assert first.ended() == (0, "")
            wait_until(lambda: agent.state == "reconnecting", "the agent to notice")
        with Command(*serve) as second:
            address = second.line()["agent_addr"]
            with fault(second, path):
                relay.open(address)
                wait_until(lambda: agent.state == "online", "a session")
                shown = tunnel(agent)
                assert shown.public_url == url
                assert shown.status.startswith("reconnecting: "), shown
                # It stays so, and is tried again.
                time.sleep(1.5)
                assert tunnel(agent).status.startswith("reconnecting: ")
                assert agent.is_running

            wait_until(lambda: tunnel(agent).status == "online", "the tunnel")

            assert tunnel(agent).public_url == url
            assert status(f"{url}/back") == 200


def test_an_agent_whose_token_is_revoked_ends_with_the_code_of_a_refusal(
    service: ginnel.Service, tmp_path: Path
) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.write_text(service.ca_pem)
    credential = service.client().credentials.create(description="to be revoked")
    assert credential.token
    with (
        Upstream() as upstream,
        Relay(service.agent_addr or "") as relay,
        Command(
            *("http", str(upstream.port), "--server-addr", relay.address),
            *("--ca", str(certificate), "--web-addr", "false"),
            GINNEL_AUTHTOKEN=credential.token,
        ) as command,
    ):
        command.event("tunnel")
        service.client().credentials.delete(credential.id)
        relay.cut()
        relay.open()

        code, complaint = command.ended()

    assert code == 5
    assert complaint.startswith("ginnel: the service refused the agent: authentication failed")
    assert "ERR_NGROK_107" in complaint


def test_an_agent_is_back_soon_after_a_restart_of_three_seconds(tmp_path: Path) -> None:
    path, host = tmp_path / "service.db", own_host()
    first = ginnel.Service(path, host, edge_host=host)
    port = int((first.agent_addr or "").rpartition(":")[2])
    with Upstream() as upstream, ginnel.Agent(first) as agent:
        url = agent.client().tunnels.start(addr=upstream.port, proto="http", name="web").public_url
        first.stop(0)
        wait_until(lambda: agent.state == "reconnecting", "the agent to notice")
        time.sleep(3)

        with ginnel.Service(path, host, edge_host=host, agent_port=port):
            # The pauses promise two seconds; what a busy machine adds is not ours.
            wait_until(lambda: agent.state == "online", "the agent is back", 15)
            assert status(f"{url}/back") == 200


def test_tunnels_say_why_visitors_cannot_reach_them(service: ginnel.Service) -> None:
    with (
        Relay(service.agent_addr or "") as relay,
        ginnel.Agent(service, server_addr=relay.address) as agent,
    ):
        started = agent.client().tunnels.start(addr=9, proto="http", name="web")
        assert started.status == "online"

        relay.cut()

        wait_until(lambda: tunnel(agent).status.startswith("reconnecting: "), "the loss")
        assert tunnel(agent).public_url == started.public_url
        relay.open()
        wait_until(lambda: tunnel(agent).status == "online", "the tunnel")


def test_lines_tell_why_there_is_no_service_and_which_tunnels_are_back(tmp_path: Path) -> None:
    with ginnel.Service() as service, Relay(service.agent_addr or "") as relay:
        certificate = tmp_path / "ca.pem"
        certificate.write_text(service.ca_pem)
        arguments = ["http", "80", "--server-addr", relay.address, "--ca", str(certificate)]
        with Command(
            *arguments, "--web-addr", "false", GINNEL_AUTHTOKEN=service.authtoken or ""
        ) as command:
            command.event("tunnel")
            relay.cut()

            assert command.event("state")["state"] == "reconnecting"
            relay.open()
            # It may say once more, and for another reason, that it tries again.
            while (told := command.event("state"))["state"] != "online":
                assert told["state"] == "reconnecting"
            assert told["reason"] is None
