"""Commands in processes of their own with few descriptors, and what asks them."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

GINNEL = [sys.executable, "-m", "ginnel"]


@dataclass
class Process:
    """A command that prints one JSON object a line."""

    pid: int
    lines: IO[bytes]

    def read(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.lines.readline())
        return told

    def resident(self) -> int:
        """How much memory it uses, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) << 10


@contextlib.contextmanager
def running(*arguments: str, descriptors: int | None = None) -> Iterator[Process]:
    """A command, ended by SIGTERM at the end; `descriptors` limits its open files."""

    def restrict() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    process = subprocess.Popen(
        [*GINNEL, *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=restrict,
    )
    assert process.stdout
    try:
        yield Process(process.pid, process.stdout)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()


@dataclass
class Tunnels:
    """The tunnels of an agent in a process of its own."""

    agent: Process
    urls: dict[str, str]
    # Where the agent API is.
    local: str


@contextlib.contextmanager
def tunnels(
    folder: Path, told: dict[str, Any], definitions: dict[str, str], descriptors: int | None = None
) -> Iterator[Tunnels]:
    """An agent of the service that said this, with tunnels: YAML by name."""
    token, config = folder / "token", folder / "agent.yml"
    token.write_text(told["authtoken"])
    config.write_text(
        f"version: 2\nserver_addr: {told['agent_addr']}\nroot_cas: {told['ca_path']}\ntunnels:\n"
        + "".join(f"  {name}: {{{text}}}\n" for name, text in definitions.items())
    )
    options = ["--config", str(config), "--authtoken-file", str(token), "--web-addr", "127.0.0.1:0"]
    with running("start", "--all", *options, descriptors=descriptors) as agent:
        urls: dict[str, str] = {}
        local = ""
        while len(urls) < len(definitions) or not local:
            line = agent.read()
            if line["event"] == "tunnel":
                urls[line["name"]] = line["public_url"]
            local = line.get("url", local)
        # It goes on to tell of each request.
        threading.Thread(target=agent.lines.read, daemon=True).start()
        yield Tunnels(agent, urls, local)


def get(
    port: int,
    path: str,
    token: str | None = None,
    timeout: float = 4.0,
    source: str = "127.0.0.1",
) -> bytes:
    """The whole answer to a request on a connection of its own."""
    headers = "Host: 127.0.0.1\r\nConnection: close\r\nNgrok-Version: 2\r\n"
    if token:
        headers += f"Authorization: Bearer {token}\r\n"
    answer = b""
    place = ("127.0.0.1", port)
    with socket.create_connection(place, timeout, source_address=(source, 0)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
        while piece := connection.recv(65536):
            answer += piece
    return answer
