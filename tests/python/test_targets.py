"""Targets of an agent's command: whether they accept connections, and when that changes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ginnel
from test_console import terminal

GINNEL = [sys.executable, "-m", "ginnel"]
STAMPED = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ")


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[Callable[[str], str]]:
    """Runs a command; yields a function that waits for a line that contains a text."""
    process = subprocess.Popen(
        [*GINNEL, *arguments, "--web-addr", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "", **environment},
    )
    assert process.stdout is not None
    lines = process.stdout
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()

    def line_with(text: str) -> str:
        for line in lines:
            if text in line:
                return line.rstrip("\n")
        raise AssertionError(f"the command ended without {text!r}")

    try:
        yield line_with
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def listening(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port))
    listener.settimeout(30)
    return listener


@pytest.mark.parametrize("proto", ["http", "tcp", "tls"])
def test_lines_report_a_target_that_comes_and_goes(proto: str) -> None:
    port = free_port()
    with running("dev", proto, str(port)) as line_with:
        first = line_with("Target: ")
        assert first == f"Target: localhost:{port} does not accept connections"

        with listening(port):
            came = line_with(f"localhost:{port} accepts connections")
        went = line_with(f"localhost:{port} does not accept connections")

    assert STAMPED.match(came)
    assert STAMPED.match(went)


def test_the_start_is_a_block_without_times() -> None:
    with listening(0) as local, running("dev", "http", str(local.getsockname()[1])) as line_with:
        wanted = [
            "Management API: ",
            "Inspect: ",
            "Local URL: ",
            "Forwarding: ",
            "Target: ",
            "try: ",
        ]
        block = [line_with(name) for name in wanted]

    assert not any(STAMPED.match(line) for line in block)
    assert [line.split(": ")[0] + ": " for line in block] == wanted
    assert block[4].endswith(" accepts connections")


def test_the_attempts_are_connections_without_data() -> None:
    with listening(0) as local, running("dev", "http", str(local.getsockname()[1])) as line_with:
        line_with("Target: ")
        for _ in range(3):
            attempt, _ = local.accept()
            attempt.settimeout(30)
            assert attempt.recv(1) == b""
            attempt.close()


def test_json_has_the_target_in_new_fields_and_events() -> None:
    port = free_port()
    with running("dev", "http", str(port), "--json") as line_with:
        tunnel = json.loads(line_with('"event":"tunnel"'))
        with listening(port):
            came = json.loads(line_with('"event":"target"'))

    assert tunnel["public_url"].startswith("http://")
    assert (tunnel["addr"], tunnel["target_accepts"]) == (f"localhost:{port}", False)
    assert (came["addr"], came["accepts"]) == (f"localhost:{port}", True)


def test_a_folder_is_not_tried(tmp_path: Path) -> None:
    with running("dev", "http", f"file://{tmp_path}", "--json") as line_with:
        tunnel = json.loads(line_with('"event":"tunnel"'))

    assert "target_accepts" not in tunnel


def test_a_tunnel_of_a_service_elsewhere_has_a_public_url_and_a_target(tmp_path: Path) -> None:
    port = free_port()
    with ginnel.Service(tmp_path / "service.db") as service:
        server = ("--server-addr", str(service.agent_addr), "--ca", str(service.ca_path))
        token = {"GINNEL_AUTHTOKEN": str(service.authtoken)}
        with running("http", str(port), *server, **token) as line_with:
            assert line_with("Public URL: ").startswith("Public URL: http")
            assert line_with("Target: ").endswith("does not accept connections")
            with listening(port):
                line_with(f"localhost:{port} accepts connections")


def test_the_view_shows_the_local_url_and_the_target() -> None:
    port = free_port()
    with terminal("dev", "http", str(port)) as shown:
        shown.until(r"Local URL +http://127\.0\.0\.1:\d+")
        shown.until(rf"Target +localhost:{port} does not accept connections")
        assert not re.search("Public URL", "\n".join(shown.screen))
        with listening(port):
            shown.until(rf"Target +localhost:{port} accepts connections")
        shown.until(rf"Target +localhost:{port} does not accept connections")
