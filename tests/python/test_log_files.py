"""Logs of the command: forms, levels, files that are moved away, and the log of requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ginnel
from addresses import free_port
from processes import Command, Upstream, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
REQUEST_ID = r"req_[0-9A-Za-z]{27}"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def logfmt(line: str) -> dict[str, str]:
    """The fields of a line."""
    pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)
    return {name: value.strip('"') for name, value in pairs}


def edge_to(told: dict[str, Any], port: int) -> str:
    with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
        backend = remote.backends.static.create(address=f"127.0.0.1:{port}")
        edge = remote.edges.https.create(hostports=["app.test:80"])
        remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
        )
        return str(edge.id)


def visit(url: str, path: str = "/", **headers: str) -> tuple[int, Any]:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{url}{path}", headers={"Host": "app.test", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return answer.status, answer.headers
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers


def test_a_log_of_json_has_the_stable_keys(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.log"
    arguments = ("--log-format", "json", "--log-level", "debug", "--log-file", str(path))
    with Command("serve", *arguments) as service:
        told = service.line()
        with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
            remote.api_keys.list().first()
        service.process.send_signal(signal.SIGTERM)
        assert service.ended() == (0, "")

    records = [json.loads(line) for line in lines(path)]
    operation = next(it for it in records if it["msg"] == "GET /api_keys")
    assert list(operation)[:4] == ["ts", "lvl", "msg", "target"]
    assert re.fullmatch(STAMP, operation["ts"])
    assert (operation["lvl"], operation["target"]) == ("debug", "ginnel.service")
    assert operation["status"] == 200
    assert operation["op_id"].startswith("op_")
    assert operation["dur_ms"] > 0
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_log_of_logfmt_has_the_levels_of_its_targets(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.log"
    levels = "error,ginnel.service=debug"
    with Command(
        "serve", "--log-format", "logfmt", "--log-level", levels, "--log-file", str(path)
    ) as service:
        told = service.line()
        with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
            remote.api_keys.list().first()
        assert visit(told["http_url"])[0] == 404
        service.process.send_signal(signal.SIGTERM)
        assert service.ended() == (0, "")

    records = [logfmt(line) for line in lines(path)]
    assert any(it["msg"] == "GET /api_keys" and it["status"] == "200" for it in records)
    assert {it["target"] for it in records} == {"ginnel.service"}


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--log-level", "loud", '"loud" is none of off, error, warn, info, debug, trace'),
        ("--log-level", "door=info", '"door" is no target; there are agent, cli, '),
        ("--log-format", "xml", "[possible values: logfmt, json, term]"),
        ("--log-file", "/nowhere/x.log", "cannot write the log /nowhere/x.log: No such file"),
        ("--access-log", "/nowhere/x.log", "cannot write the log /nowhere/x.log: No such file"),
    ],
)
def test_what_cannot_be_logged_is_refused(option: str, value: str, problem: str) -> None:
    command = [sys.executable, "-m", "ginnel", "serve", option, value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)

    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_that_are_moved_away_begin_anew_at_sighup(tmp_path: Path, upstream: Upstream) -> None:
    log, access = tmp_path / "ginnel.log", tmp_path / "access.log"
    arguments = ("--log-level", "debug", "--log-file", str(log), "--access-log", str(access))
    with Command("serve", *arguments) as service:
        told = service.line()
        edge_to(told, upstream.port)
        assert visit(told["http_url"], "/before")[0] == 200
        wait_until(lambda: len(lines(access)) == 1, "the first line")
        log.rename(tmp_path / "ginnel.log.1")
        access.rename(tmp_path / "access.log.1")

        service.process.send_signal(signal.SIGHUP)

        wait_until(lambda: log.exists() and access.exists(), "new files")
        assert visit(told["http_url"], "/after")[0] == 200
        wait_until(lambda: len(lines(access)) == 1, "a line in the new file")
        service.process.send_signal(signal.SIGTERM)
        assert service.ended() == (0, "ginnel: reloaded: no setting has changed\n")

    assert "path=/before" in lines(tmp_path / "access.log.1")[0]
    assert "path=/after" in lines(access)[0]
    assert any("ginnel.gateway" in line for line in lines(log))


def test_a_line_for_each_request_with_the_id_that_visitor_and_upstream_have(
    tmp_path: Path, upstream: Upstream
) -> None:
    path = tmp_path / "access.log"
    with Command("serve", "--access-log", str(path), "--log-format", "json") as service:
        told = service.line()
        edge = edge_to(told, upstream.port)
        status, headers = visit(
            told["http_url"], "/shop?card=planted", X_Request_Id="mine", Cookie="planted"
        )
        assert status == 200
        status, other = visit(told["http_url"], Host="nobody.test")
        assert status == 404
        wait_until(lambda: len(lines(path)) == 2, "two lines")

    assert re.fullmatch(REQUEST_ID, headers["X-Request-Id"])
    first, second = (json.loads(line) for line in lines(path))
    assert first == {
        "ts": first["ts"],
        "request_id": headers["X-Request-Id"],
        "peer": first["peer"],
        "proto": "http",
        "method": "GET",
        "host": "app.test",
        "path": "/shop",
        "status": 200,
        "dur_ms": first["dur_ms"],
        "edge": edge,
        "route": first["route"],
        "backend": first["backend"],
    }
    assert re.fullmatch(STAMP, first["ts"])
    assert first["peer"].startswith("127.0.0.1:")
    assert first["dur_ms"] > 0
    assert (second["status"], second["err"]) == (404, "ERR_NGROK_3200")
    assert re.fullmatch(REQUEST_ID, second["request_id"])
    assert second["request_id"] == other["X-Request-Id"]
    assert "planted" not in path.read_text()


def tcp_edge(started: dict[str, Any], backend_port: int) -> int:
    """The port of a TCP edge."""
    port = free_port()
    with ginnel.RemoteClient(started["api_key"], base_url=started["url"]) as remote:
        backend = remote.backends.static.create(address=f"127.0.0.1:{backend_port}")
        remote.edges.tcp.create(hostports=[f"localhost:{port}"], backend={"backend_id": backend.id})
    return port


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_connection_has_its_bytes_however_it_ends(tmp_path: Path, is_reset: bool) -> None:
    path = tmp_path / "access.log"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Command("serve", "--access-log", str(path)) as service,
    ):
        port = tcp_edge(service.line(), listener.getsockname()[1])
        visitor = socket.create_connection(("127.0.0.1", port))
        visitor.sendall(b"x" * 1000)
        target, _ = listener.accept()
        with visitor, target:
            assert len(target.recv(1000, socket.MSG_WAITALL)) == 1000
            target.sendall(b"y" * 300)
            assert len(visitor.recv(300, socket.MSG_WAITALL)) == 300
            if is_reset:
                # Closing without waiting, which the other side sees as an error.
                linger = struct.pack("ii", 1, 0)
                visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            visitor.close()
            if not is_reset:
                assert target.recv(1) == b""
        wait_until(lambda: len(lines(path)) == 1, "a line")

    line = logfmt(lines(path)[0])
    assert line["proto"] == "tcp"
    assert (line["received_bytes"], line["sent_bytes"]) == ("1000", "300")


def test_the_id_of_a_trusted_proxy_stays(tmp_path: Path, upstream: Upstream) -> None:
    path = tmp_path / "access.log"
    with Command("serve", "--access-log", str(path), "--trusted-proxies", "127.0.0.1") as service:
        told = service.line()
        edge_to(told, upstream.port)
        _, headers = visit(told["http_url"], X_Request_Id="edge-proxy-7")
        _, other = visit(told["http_url"], X_Request_Id="x" * 129)
        wait_until(lambda: len(lines(path)) == 2, "two lines")

    assert headers["X-Request-Id"] == "edge-proxy-7"
    assert logfmt(lines(path)[0])["request_id"] == "edge-proxy-7"
    assert re.fullmatch(REQUEST_ID, other["X-Request-Id"])


def test_without_the_log_requests_have_no_id(upstream: Upstream) -> None:
    with Command("serve") as service:
        told = service.line()
        edge_to(told, upstream.port)
        _, headers = visit(told["http_url"], X_Request_Id="mine")

    assert headers["X-Request-Id"] is None


def full_pipe() -> tuple[int, int]:
    """A pipe that takes nothing more."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 65536)
    os.set_blocking(writing, True)
    return reading, writing


def test_a_log_that_nobody_reads_stops_no_request_and_is_counted() -> None:
    reading, writing = full_pipe()
    arguments = ["serve", "--json", "--admin-addr", "127.0.0.1:0", "--log-level", "debug"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ginnel", *arguments],
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
    )
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline())
        visitor = http.client.HTTPConnection(told["http_url"].removeprefix("http://"), timeout=30)

        def dropped() -> float:
            for _ in range(500):
                visitor.request("GET", "/", headers={"Host": "nobody.test"})
                with visitor.getresponse() as answer:
                    assert answer.status == 404
                    answer.read()
            with urllib.request.urlopen(f"http://{told['admin_addr']}/metrics", timeout=30) as it:
                text = it.read().decode()
            found = re.search(r'^ginnel_log_lines_dropped_total\{log="events"\} (\S+)$', text, re.M)
            assert found, text
            return float(found[1])

        wait_until(lambda: dropped() > 0, "lines that are dropped")
        visitor.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reading)
        os.close(writing)
