"""What agents cost a real `ginnel serve` before they have authenticated."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ginnel

MIB = 1024 * 1024
CONNECTIONS = 50
# How long the service may take to close a connection, in seconds.
CLOSING = 1.2
HEARTBEAT = b"\xff\xff\xff\xff"
AUTH = b"\0\0\0\0"
SYN, FIN = 2, 1
DATA, WINDOW, UNKNOWN = 1, 2, 15

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


class Process:
    """`ginnel serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "ginnel", "serve", "--path", str(folder / "ginnel.db")]
        command += ["--port", "0", "--agent-port", "0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.told = json.loads(self.process.stdout.readline())
        host, port = self.told["agent_addr"].rsplit(":", 1)
        self.address = (host, int(port))
        # What is there once and for all is there before it is measured.
        idle = [self.connect() for _ in range(CONNECTIONS)]
        for stream in idle:
            stream.close()
        time.sleep(CLOSING)
        self.before = self.resident()

    def resident(self) -> int:
        """The bytes of memory that the process has now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(self.address, timeout=20)
        return context.wrap_socket(plain)

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()


def frame(
    kind: int, flags: int, stream: int, body: bytes = b"", length: int | None = None
) -> bytes:
    length = len(body) if length is None else length
    return length.to_bytes(3, "big") + bytes([kind << 4 | flags]) + stream.to_bytes(4, "big") + body


def opened(stream: int, body: bytes = b"") -> bytes:
    return frame(DATA, SYN, stream, body)


def many_streams() -> Iterator[bytes]:
    for stream in range(3, 1003, 2):
        yield opened(stream, AUTH + b"{" + b" " * 200_000)


def one_message() -> Iterator[bytes]:
    yield opened(3, AUTH + b'{"Extra": {"AuthToken": "')
    while True:
        yield frame(DATA, 0, 3, b"x" * 32_768)


def nothing_but_the_heartbeat() -> Iterator[bytes]:
    yield opened(3, HEARTBEAT)
    while True:
        yield frame(DATA, 0, 3, b"x" * 32_768)


def a_huge_frame() -> Iterator[bytes]:
    yield frame(DATA, SYN, 3, length=(1 << 24) - 1)
    while True:
        yield b"x" * 32_768


def an_unknown_frame() -> Iterator[bytes]:
    yield frame(UNKNOWN, 0, 0, length=(1 << 24) - 1)
    while True:
        yield b"x" * 32_768


def nested_lists() -> Iterator[bytes]:
    yield opened(3, AUTH + b'{"a": ' + b"[" * 60_000)


def many_values() -> Iterator[bytes]:
    yield opened(3, AUTH + b'{"a": [' + b"0," * 30_000 + b"0]}")


def almost_a_login() -> Iterator[bytes]:
    """As much as is let in, and then nothing more."""
    yield opened(3, HEARTBEAT)
    yield opened(5, AUTH + b'{"Extra": {"AuthToken": "' + b"x" * 60_000)


def a_trickle() -> Iterator[bytes]:
    yield opened(3, AUTH + b"{")
    while True:
        yield frame(DATA, 0, 3, b" ") * 100


def windows() -> Iterator[bytes]:
    yield opened(3, AUTH + b"{")
    while True:
        yield frame(WINDOW, 0, 3, b"\x7f\xff\xff\xff") * 100


ATTACKS: list[Callable[[], Iterator[bytes]]] = [
    many_streams,
    one_message,
    nothing_but_the_heartbeat,
    a_huge_frame,
    an_unknown_frame,
    nested_lists,
    many_values,
    almost_a_login,
    a_trickle,
    windows,
]


class Attacker:
    """Sends as much as is taken, up to a limit, and reads nothing."""

    LIMIT = MIB

    def __init__(self, process: Process, attack: Callable[[], Iterator[bytes]]) -> None:
        self.stream = process.connect()
        self.stream.setblocking(False)
        self.pieces, self.rest, self.sent = attack(), b"", 0
        self.is_over = False

    def go_on(self) -> None:
        """Sends until nothing more is taken now."""
        try:
            while self.sent < self.LIMIT:
                if not self.rest:
                    self.rest = next(self.pieces)
                length = self.stream.send(self.rest)
                self.rest, self.sent = self.rest[length:], self.sent + length
        except (ssl.SSLWantWriteError, BlockingIOError):
            return
        except (StopIteration, OSError):
            pass
        self.is_over = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()


def attack(attackers: list[Attacker], process: Process) -> int:
    """Lets all send until they are done or nothing is taken any more; the most memory meanwhile."""
    most = process.resident()
    end = time.monotonic() + 30
    while (busy := [it for it in attackers if not it.is_over]) and time.monotonic() < end:
        for attacker in busy:
            attacker.go_on()
        most = max(most, process.resident())
        waiting = [it.stream for it in busy if not it.is_over]
        if waiting and not select.select([], waiting, [], 1)[1]:
            break
    # What was sent last is still on its way.
    for _ in range(20):
        time.sleep(0.02)
        most = max(most, process.resident())
    return most


@pytest.mark.parametrize("hostile", ATTACKS, ids=lambda it: it.__name__)
def test_agents_that_do_not_log_in_take_little_memory(
    process: Process, hostile: Callable[[], Iterator[bytes]]
) -> None:
    before = process.before

    attackers = [Attacker(process, hostile) for _ in range(CONNECTIONS)]
    most = attack(attackers, process)
    for attacker in attackers:
        attacker.close()

    assert most - before <= 20 * MIB, f"{(most - before) / MIB:.1f} MiB more"
    # The attacks follow each other in one process: what is not given back adds up.
    deadline = time.monotonic() + 20
    while (left := process.resident() - before) > 10 * MIB:
        assert time.monotonic() < deadline, f"{left / MIB:.1f} MiB are not given back"
        time.sleep(0.1)
    print(f"\n{hostile.__name__}: {(most - before) / MIB:.1f} MiB, {left / MIB:.1f} MiB after")
    with ginnel.Agent(
        server_addr=process.told["agent_addr"],
        authtoken=process.told["authtoken"],
        ca=process.told["ca_path"],
        web_addr=None,
    ) as agent:
        assert agent.state == "online"
