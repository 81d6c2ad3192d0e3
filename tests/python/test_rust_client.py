"""The client crate is usable from Rust on its own: the example lists keys and replays a request."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

import ginnel
from listener import Listener
from recorder import read_head

ROOT = Path(__file__).resolve().parents[2]
FEATURES = "ginnel/python,ginnel/test-support"
"""Those of the extension module: with others, Cargo compiles all crates below the client anew."""
SERVER_CRATES = ["axum", "cel", "ginnel-agent", "ginnel-service", "ginnel-store", "rusqlite"]


class Hello(Listener):
    """A local service that greets."""

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            while read_head(lines):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


def run(*command: str | Path, **environment: str | None) -> str:
    given = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def example() -> Path:
    """The program of the example, built with the crates of the extension module."""
    packages = ("-p", "ginnel", "-p", "rust-client")
    run("cargo", "build", "--quiet", *packages, "--bin", "rust-client", "--features", FEATURES)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "rust-client"


def test_the_example_lists_keys_and_replays_a_request(example: Path) -> None:
    with Hello() as web, ginnel.Service() as service, ginnel.Agent(service) as agent:
        key = service.client().api_keys.create(description="from Rust")
        local = agent.client()
        tunnel = local.tunnels.start(addr=web.port, proto="http", name="web")
        urlopen(tunnel.public_url).read()
        captured = local.requests.wait_for()

        printed = run(
            example,
            GINNEL_API_KEY=service.api_key,
            GINNEL_BASE_URL=service.url,
            GINNEL_AGENT_URL=agent.url,
        )

        replayed = local.requests.wait_for(lambda it: it.replay_of == captured.id)
    assert f"{key.id} from Rust" in printed
    assert f"replayed {captured.id} of web" in printed
    assert replayed.response is not None


def test_the_client_is_built_without_parts_of_servers() -> None:
    tree = run("cargo", "tree", "-p", "ginnel-client", "-e", "normal", "--prefix", "none")
    packages = {line.split()[0] for line in tree.splitlines() if line}

    assert "ginnel-http1" in packages
    assert packages.isdisjoint(SERVER_CRATES)
