"""The commands that run an agent, each in a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel

GINNEL = [sys.executable, "-m", "ginnel"]


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Runs a command that prints events; gives a function that waits for one of a kind."""
    process = subprocess.Popen(
        [*GINNEL, *arguments, "--json", "--web-addr", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "", **environment},
    )
    assert process.stdout is not None
    lines = process.stdout

    def event(kind: str) -> dict[str, Any]:
        for line in lines:
            told: dict[str, Any] = json.loads(line)
            if told["event"] == kind:
                return told
        raise AssertionError(f"the command ended without {kind}")

    try:
        yield event
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    """Runs a command to its end; its exit code, and what it complained of."""
    done = subprocess.run(
        [*GINNEL, *arguments], capture_output=True, text=True, timeout=30, env=environment
    )
    return done.returncode, done.stderr


def test_one_command_makes_a_folder_public(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello")

    with running("dev", "http", f"file://{tmp_path}") as event:
        url = event("tunnel")["public_url"]
        with urlopen(f"{url}/hello.txt", timeout=30) as answer:
            assert answer.read() == b"hello"
        request = event("request")

    assert (request["method"], request["uri"], request["status"]) == ("GET", "/hello.txt", "200 OK")


def test_tunnels_of_a_file_start_at_a_service(tmp_path: Path) -> None:
    service = ginnel.Service(tmp_path / "service.db")
    assert service.agent_addr is not None
    assert service.authtoken is not None
    config = tmp_path / "agent.yml"
    config.write_text(
        f"version: 2\nserver_addr: {service.agent_addr}\nroot_cas: {service.ca_path}\n"
        f"tunnels:\n  files: {{proto: http, addr: 'file://{tmp_path}'}}\n"
    )

    with (
        service,
        running(
            "start", "files", "--config", str(config), GINNEL_AUTHTOKEN=service.authtoken
        ) as event,
    ):
        tunnel = event("tunnel")
        [online] = service.client().tunnels.list()

    assert online.public_url == tunnel["public_url"]


def test_a_configuration_is_checked(tmp_path: Path) -> None:
    config = tmp_path / "agent.yml"
    config.write_text("version: 2\nauthtokn: x\ntunnels:\n  web:\n    adr: 80\n")

    code, told = run("config", "check", "--config", str(config))

    assert code == 2
    assert told.splitlines() == [
        f'ginnel: {config}:2:1: unknown key "authtokn"; did you mean "authtoken"?',
        f'ginnel: {config}:5:5: unknown key "tunnels.web.adr"; did you mean "tunnels.web.addr"?',
    ]


def test_what_cannot_be_started_is_refused_before_anything_is(tmp_path: Path) -> None:
    config = tmp_path / "agent.yml"
    nowhere = f"file://{tmp_path}/nowhere"
    for field, more, told in [
        ("addr", {"addr": nowhere}, "is not a folder on this machine"),
        ("subdomain", {"subdomain": "../x"}, "is not a label of a host name"),
        ("name", {"name": "x" * 256}, "is 256 bytes long, the limit is 255"),
    ]:
        given: dict[str, str] = {"addr": "80", "name": "web"} | more
        options = [f"--{name}={value}" for name, value in given.items() if name != "addr"]
        # Nobody is there: to refuse it takes neither a service nor an agent.
        server = {"GINNEL_SERVER_ADDR": "127.0.0.1:1", "GINNEL_AUTHTOKEN": "x"}
        for command in (["dev", "http"], ["http"]):
            code, complaint = run(*command, given["addr"], *options, **server)
            assert (code, f"{field}: " in complaint, told in complaint) == (2, True, True), (
                complaint
            )
        name = given.pop("name")
        tunnels = {name: {"proto": "http", **given}}
        config.write_text(f"version: 2\ntunnels: {json.dumps(tunnels)}\n")
        code, complaint = run("config", "check", "--config", str(config))
        assert (code, f"{field}: " in complaint) == (2, True), complaint
        assert told in complaint


def test_a_refused_token_has_its_own_exit_code(service: ginnel.Service, tmp_path: Path) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.write_text(service.ca_pem)
    server = service.agent_addr or ""

    code, told = run(
        *("http", "80", "--server-addr", server, "--ca", str(certificate)),
        *("--web-addr", "127.0.0.1:0"),
        GINNEL_AUTHTOKEN="0" * 27 + "_" + "0" * 21,
    )

    assert code == 5
    assert "ERR_NGROK_107" in told


@pytest.mark.parametrize("as_json", [True, False])
def test_each_request_has_one_line(tmp_path: Path, as_json: bool) -> None:
    (tmp_path / "hello.txt").write_text("hello")
    count, at_once = 400, 8
    silent = socket.create_server(("127.0.0.1", 0))
    process = subprocess.Popen(
        [*GINNEL, "dev", "http", f"file://{tmp_path}", "--web-addr", "127.0.0.1:0", "--grace", "1"]
        + (["--json"] if as_json else []),
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": ""},
    )
    assert process.stdout is not None
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        lines.extend(process.stdout)

    def wait_for(part: str) -> str:
        deadline = time.monotonic() + 30
        while True:
            for line in list(lines):
                if part in line:
                    return line
            assert time.monotonic() < deadline, (part, lines[-5:])
            time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        if as_json:
            url = json.loads(wait_for('"tunnel"'))["public_url"]
            api = json.loads(wait_for('"agent_api"'))["url"]
        else:
            url = wait_for(" -> file://").split(" ")[-3]
            api = wait_for("Inspect: ").split(" ")[-1].strip()
        host, _, port = url.removeprefix("http://").rpartition(":")

        def ask(number: int) -> None:
            with socket.create_connection((host, int(port)), timeout=20) as visitor:
                for each in range(count // at_once):
                    path = f"/hello.txt?{number}-{each}"
                    visitor.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                    answer = b""
                    while not answer.endswith(b"hello"):
                        piece = visitor.recv(65536)
                        assert piece, answer
                        answer += piece

        with ThreadPoolExecutor(at_once) as visitors:
            list(visitors.map(ask, range(at_once)))
        wait_for(f"?{at_once - 1}-{count // at_once - 1}")
        client = ginnel.AgentClient(base_url=api)
        silent.settimeout(20)
        [newest] = client.requests.list(limit=1).to_list()[:1]
        client.requests.replay(newest.id)
        client.tunnels.start(name="silent", proto="http", addr=silent.getsockname()[1])
        waiting = client.tunnels.get("silent").public_url or ""
        host, _, port = waiting.removeprefix("http://").rpartition(":")
        client.close()
        with socket.create_connection((host, int(port)), timeout=20) as visitor:
            visitor.sendall(f"GET /waiting HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            waiting_one, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            process.wait(30)
            waiting_one.close()
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        silent.close()
    told = [line for line in lines if "GET" in line]
    if as_json:
        events = [json.loads(line) for line in lines]
        told_events = [event for event in events if event["event"] == "request"]
        assert len({event["id"] for event in told_events}) == len(told_events) == len(told)
        assert [event.get("error") is not None for event in told_events].count(True) == 1
        told = [event["uri"] for event in told_events]
    assert len([line for line in told if "hello.txt" in line]) == count + 1
    assert len([line for line in told if "/waiting" in line]) == 1


def test_who_stops_an_agent_is_told_what_it_waits_for(tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    command = [*GINNEL, "dev", "http", str(port), "--web-addr", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": ""}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        told: dict[str, dict[str, Any]] = {}
        while not {"tunnel", "agent_api"} <= told.keys():
            event = json.loads(process.stdout.readline())
            told[event["event"]] = event
        host, _, public = told["tunnel"]["public_url"].removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(public)), timeout=20) as visitor:
            visitor.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{public}\r\n\r\n".encode())
            waiting, _ = silent.accept()

            process.send_signal(signal.SIGINT)

            assert process.stderr.readline() == (
                "ginnel: waiting up to 30 s for 1 open connection of visitors; "
                "Ctrl-C again stops now\n"
            )
            page = told["agent_api"]["url"].removesuffix("/api")
            with urlopen(f"{page}/inspect/data/status") as status:
                assert json.load(status)["state"] == "stopping"
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 1
            waiting.close()
    finally:
        process.kill()
        process.communicate()
        silent.close()


def test_missing_settings_are_named() -> None:
    code, told = run("http", "80")

    assert (code, "GINNEL_SERVER_ADDR" in told) == (2, True)
