"""Addresses of agents that were killed, stopped, or are alive, for others of the account."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ginnel
from addresses import free_port
from processes import Upstream, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ginnel.service_settings import ServiceSettings

CHILD = """
import sys, ginnel
server, token, ca, port, kind, wanted = sys.argv[1:]
agent = ginnel.Agent(server_addr=server, authtoken=token, ca=ca)
named = {"domain": wanted, "schemes": ["http"]} if kind == "http" else {"remote_addr": wanted}
agent.client().tunnels.start(addr=int(port), proto=kind, name="app", **named)
print("up", flush=True)
for line in sys.stdin:
    print(agent.client().tunnels.get("app").status, flush=True)
"""


class Child:
    """An agent with one tunnel, in a process of its own."""

    def __init__(
        self, service: ginnel.Service, folder: Path, *tunnel: str, token: str = ""
    ) -> None:
        ca = folder / "ca.pem"
        ca.write_text(service.ca_pem)
        own = [str(service.agent_addr), token or str(service.authtoken), str(ca)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *own, *tunnel],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        assert self.process.stdout.readline() == "up\n", self.process.stderr.read()

    def status(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service(base_domain="example.test") as service:
        yield service


def visit(service: ginnel.Service, host: str) -> int:
    request = urllib.request.Request(str(service.http_url), headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("kind", ["http", "tcp"])
def test_the_address_of_a_killed_agent_is_had_again_at_once(
    kind: str, service: ginnel.Service, tmp_path: Path, upstream: Upstream
) -> None:
    wanted = "app.example.test" if kind == "http" else f"127.0.0.1:{free_port()}"
    tunnel = (str(upstream.port), kind, wanted)
    with Child(service, tmp_path, *tunnel) as killed:
        killed.wait_until_up()
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
        began = time.monotonic()
        with Child(service, tmp_path, *tunnel) as again:
            again.wait_until_up()
            assert time.monotonic() - began < 5
            if kind == "http":
                assert visit(service, wanted) == 200


def test_the_address_of_a_stopped_process_moves_and_stays(
    service: ginnel.Service, tmp_path: Path, upstream: Upstream
) -> None:
    tunnel = (str(upstream.port), "http", "app.example.test")
    with Child(service, tmp_path, *tunnel) as frozen:
        frozen.wait_until_up()
        frozen.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with Child(service, tmp_path, *tunnel) as again:
            again.wait_until_up()
            assert 4.5 < time.monotonic() - began < 15
            assert visit(service, "app.example.test") == 200

            frozen.process.send_signal(signal.SIGCONT)
            wait_until(lambda: "already online" in frozen.status(), "the former agent to learn it")
            assert again.status() == "online"
            assert visit(service, "app.example.test") == 200


def test_the_address_of_a_live_agent_does_not_move(
    service: ginnel.Service, tmp_path: Path, upstream: Upstream
) -> None:
    definition: dict[str, Any] = {
        "addr": upstream.port,
        "proto": "http",
        "name": "app",
        "domain": "app.example.test",
        "schemes": ["http"],
    }
    with ginnel.Agent(service) as one, ginnel.Agent(service) as two:
        one.client().tunnels.start(**definition)
        until, refused = time.monotonic() + 7, 0
        while time.monotonic() < until:
            with pytest.raises(ginnel.APIError, match="already online"):
                two.client().tunnels.start(**definition)
            refused += 1
            assert one.client().tunnels.get("app").status == "online"
        # A live agent answers at once.
        assert refused > 20


def test_another_account_waits_for_the_address(
    service: ginnel.Service, tmp_path: Path, upstream: Upstream
) -> None:
    tunnel = (str(upstream.port), "http", "app.example.test")
    with service.client() as remote:
        user = remote.bot_users.create(name="other")
        other = remote.credentials.create(owner_id=user.id)
        limited = remote.credentials.create(acl=["bind:else.example.test"])
    with Child(service, tmp_path, *tunnel) as killed:
        killed.wait_until_up()
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
    for token in (other.token, limited.token):
        with Child(service, tmp_path, *tunnel, token=str(token)) as stranger:
            _, problem = stranger.process.communicate(timeout=30)
        assert "already online" in problem or "access list" in problem, problem


def test_in_a_cluster_the_address_moves_between_nodes(
    store: str, tmp_path: Path, upstream: Upstream
) -> None:

    def node(name: str) -> ginnel.Service:
        settings: ServiceSettings = {"node_name": name, "peer_addr": "127.0.0.1:0"}
        return ginnel.Service(store=store, base_domain="example.test", settings=settings)

    with node("one") as one, node("two") as two:
        tunnel = (str(upstream.port), "http", "app.example.test")
        wait_until(lambda: len(one.client().nodes.list().to_list()) == 2, "both nodes")
        with Child(one, tmp_path, *tunnel) as killed:
            killed.wait_until_up()
            with Child(two, tmp_path, *tunnel, token=str(one.authtoken)) as early:
                _, problem = early.process.communicate(timeout=30)
            assert "already online" in problem, problem
            killed.process.send_signal(signal.SIGKILL)
            killed.process.wait()
            began = time.monotonic()
            with Child(two, tmp_path, *tunnel, token=str(one.authtoken)) as again:
                again.wait_until_up()
                assert time.monotonic() - began < 10
                wait_until(lambda: visit(one, "app.example.test") == 200, "the other node", 10)
        with Child(one, tmp_path, *tunnel) as frozen:
            frozen.wait_until_up()
            frozen.process.send_signal(signal.SIGSTOP)
            with Child(two, tmp_path, *tunnel, token=str(one.authtoken)) as again:
                again.wait_until_up()
                frozen.process.send_signal(signal.SIGCONT)
                wait_until(lambda: "already online" in frozen.status(), "the former agent")
                assert again.status() == "online"
