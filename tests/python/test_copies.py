"""Copies of requests, each run by the program that it is for, against a recording service."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import ginnel
from listener import Listener
from recorder import read_head, value_of

COUNT = 200
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "post", "M-SEARCH"]
SEGMENTS = ["a", "it's", "$(id)", "%20b", "%2Fc", "%7e", "caf%C3%A9", ".", "..", "", "a;v=1", "x'y"]
ODD_SEGMENTS = ['"q"', "a|b", "{x}", "[1]", "café", "^", "`id`", "\\n"]
QUERIES = ["", "a=b&c=d", "x=%41", "q[]=1", "e=", "!important", "a='b'", "u=http://x/?y", "*"]
HEADERS = [
    ("Accept", "*/*"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Authorization", "Basic dTpw"),
    ("Content-Type", "application/json"),
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Cookie", "a=1; b=2"),
    ("Referer", "https://a.test/?x='y'"),
    ("TE", "trailers"),
    ("Upgrade-Insecure-Requests", "1"),
    ("User-Agent", "hook/1 (it's; $HOME `id` !x)"),
    ("X-Backslash", 'a\\"b\\\\c'),
    ("X-Double", "one"),
    ("X-Double", "two"),
    ("X-Empty", ""),
    ("X-Json", '{"a": [1, "%d"]}'),
    ("X-Letters", "Zoë, 東京"),
    ("X-Signs", "=@;:&|<>"),
    ("X-Signs", "@/etc/hostname"),
    ("X-Tab", "a\tb"),
    ("X-Windows", "C:\\a\\;b"),
]
BODIES = [
    b"",
    b"plain",
    b"@/etc/hostname",
    b"-n it's $(id) `id` %d !x",
    b'{"a": "b\\nc", "n": 1e3}',
    b"a=1&b=%20",
    b"one\ntwo\n",
    b"\r\n--XX\r\n\r\n",
    b"a\tb \x1b[31m\x03\x7f",
    "Zoë ‮ ".encode(),
    b"\x00\xff\xfe\x80",
    gzip.compress(b"packed", mtime=0),
    b"%s" * 800,
    b"x" * 30_000,
]
OWN = {b"host", b"connection", b"content-length"}
"""Fields that a program writes by itself."""


@dataclass
class Notes(Listener):
    """Notes method, target, fields and body of each request."""

    seen: Queue[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]] = field(
        default_factory=Queue
    )

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            head = read_head(lines)
            assert head is not None
            method, target, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
            body = read_body(lines, head)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
                + (b"" if method == b"HEAD" else b"ok")
            )
            connection.shutdown(socket.SHUT_WR)
            # What follows the request is a part of it that was framed wrongly.
            body += lines.read()
            pairs = [line.split(b":", 1) for line in head.split(b"\r\n")[1:-2]]
            fields = sorted((name.lower(), value.strip()) for name, value in pairs)
            self.seen.put((method, target, [it for it in fields if it[0] not in OWN], body))


def read_body(lines: Any, head: bytes) -> bytes:
    if value_of(head, b"transfer-encoding") != b"chunked":
        return bytes(lines.read(int(value_of(head, b"content-length") or 0)))
    body = b""
    while size := int(lines.readline(), 16):
        body += lines.read(size)
        lines.readline()
    while lines.readline() != b"\r\n":
        pass
    return body


@dataclass
class House:
    """An agent, and the local service that copies go to."""

    client: ginnel.AgentClient
    notes: Notes
    base: str

    def copied(self, id: str, form: str, reveal: str = "1") -> bytes:
        url = f"{self.base}/inspect/data/requests/{id}/copy?as={form}&reveal={reveal}"
        with urlopen(url, timeout=20) as answer:
            return bytes(answer.read())

    def load(self, requests: list[dict[str, Any]]) -> list[str]:
        entries = [
            {
                "startedDateTime": "2026-11-23T10:00:00.123+01:00",
                "request": request,
                "response": {"status": 0},
            }
            for request in requests
        ]
        answer = self.client.requests.load(log={"entries": entries})
        assert answer.problems == []
        return list(answer.ids)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with ExitStack() as stack:
        notes = stack.enter_context(Notes())
        service = stack.enter_context(ginnel.Service())
        agent = stack.enter_context(ginnel.Agent(service))
        client = stack.enter_context(agent.client())
        yield House(client, notes, (agent.url or "").removesuffix("/api"))


def generated(port: int, seed: int) -> dict[str, Any]:
    """A request as an archive has it, with what programs and shells like to change."""
    chance = random.Random(seed)
    segments = SEGMENTS + (ODD_SEGMENTS if chance.random() < 0.3 else [])
    path = "".join(f"/{chance.choice(segments)}" for _ in range(chance.randint(1, 4)))
    query = chance.choice(QUERIES)
    target = path + (f"?{query}" if query or chance.random() < 0.1 else "")
    headers = chance.sample(HEADERS, chance.randint(0, 6))
    if ("X-Double", "two") in headers and chance.random() < 0.5:
        headers.append(("x-double", "three"))
    request: dict[str, Any] = {
        "method": chance.choice(METHODS),
        "url": f"http://127.0.0.1:{port}{target}",
        "_rawTarget": base64.b64encode(target.encode()).decode(),
        "headers": [{"name": name, "value": value} for name, value in headers],
    }
    if body := chance.choice(BODIES) if chance.random() < 0.7 else b"":
        text = base64.b64encode(body).decode()
        request["postData"] = {"mimeType": "", "text": text, "encoding": "base64"}
    return request


def run_shell(command: bytes, tmp_path: Path) -> None:
    """Runs a copy from a file: an argument of a program has less room than a paste."""
    script = tmp_path / "copy.sh"
    script.write_bytes(command)
    folder = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["sh", str(script)],
        env={"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (command[:2000], done.stderr)


def run_python(script: bytes, _: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(script, "copy", "exec"), {})


def send_raw(port: int) -> Callable[[bytes, Path], None]:
    def send(raw: bytes, _: Path) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(raw)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")

    return send


def test_every_copy_sends_the_captured_request(house: House, tmp_path: Path) -> None:
    port = house.notes.port
    requests = [generated(port, seed) for seed in range(COUNT)]
    ids = house.load(requests)
    programs: dict[str, Callable[[bytes, Path], None]] = {
        "raw": send_raw(port),
        "curl": run_shell,
        "requests": run_python,
        "httpie": run_shell,
    }
    wrong, compared = [], dict.fromkeys(programs, 0)
    for id, request in zip(ids, requests, strict=True):
        expected = None
        for form, run in programs.items():
            copy = house.copied(id, form)
            # Remarks name what HTTPie cannot send.
            if form == "httpie" and copy.startswith(b"# HTTPie"):
                continue
            if form != "raw":
                stray = {byte for byte in copy if byte < 32 and byte != ord("\n")}
                assert not stray, (form, stray, copy)
            run(copy, tmp_path)
            sent = house.notes.seen.get(timeout=20)
            expected = expected or sent
            compared[form] += 1
            if sent != expected:
                wrong.append((form, copy[:300], request["url"], sent, expected))
        assert expected is not None
        assert expected[0] == request["method"].encode()
        assert expected[1] == base64.b64decode(request["_rawTarget"])
    assert not wrong, f"{len(wrong)} copies send other requests, such as {wrong[0]}"
    assert min(compared.values()) >= 20, compared
    assert compared["curl"] == compared["requests"] == compared["raw"] == COUNT


SECRET = "correct-horse"
PACKED = gzip.compress(b'{"size": "five", "password": "%s"}' % SECRET.encode(), mtime=0)


@pytest.mark.parametrize("form", ["curl", "requests", "httpie", "raw"])
@pytest.mark.parametrize("reveal", ["", "1"])
def test_head_and_body_of_a_masked_copy_agree(
    house: House, tmp_path: Path, form: str, reveal: str
) -> None:
    [id] = house.load(
        [
            {
                "method": "POST",
                "url": f"http://127.0.0.1:{house.notes.port}/login?token={SECRET}",
                "headers": [
                    {"name": "Content-Type", "value": "application/json"},
                    {"name": "Content-Encoding", "value": "gzip"},
                    {"name": "Authorization", "value": f"Bearer {SECRET}"},
                ],
                "postData": {
                    "mimeType": "application/json",
                    "text": base64.b64encode(PACKED).decode(),
                    "encoding": "base64",
                },
            }
        ]
    )
    copy = house.copied(id, form, reveal)
    run = {"raw": send_raw(house.notes.port), "requests": run_python}.get(form, run_shell)

    run(copy, tmp_path)

    _, target, fields, body = house.notes.seen.get(timeout=20)
    is_packed = (b"content-encoding", b"gzip") in fields
    assert is_packed == bool(reveal)
    text = gzip.decompress(body) if is_packed else body
    assert b'"five"' in text
    secret = SECRET.encode()
    assert [secret in it for it in (target, text)] == [bool(reveal)] * 2
    is_said = b"# Secrets are masked: fill them in" in copy
    assert is_said == (not reveal and form != "raw")


def test_a_request_that_is_not_text_is_copied_with_its_bytes(tmp_path: Path) -> None:
    with (
        Notes() as notes,
        ginnel.Service() as service,
        ginnel.Agent(service) as agent,
        agent.client() as client,
    ):
        tunnel = client.tunnels.start(addr=notes.port, proto="http", name="web", schemes=["http"])
        house = House(client, notes, (agent.url or "").removesuffix("/api"))
        place = urlsplit(tunnel.public_url)
        request = (
            b'POST /a|"b"?a=%41 HTTP/1.1\r\nHost: '
            + place.netloc.encode()
            + b"\r\nX-Name: J\xfcrgen\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"4\r\n\x00\xff\r\n\r\n0\r\n\r\n"
        )
        address = (place.hostname or "", place.port or 80)
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(request)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        original = notes.seen.get(timeout=20)
        captured = client.requests.wait_for(timeout=20)
        assert captured is not None

        for form, run in (
            ("curl", run_shell),
            ("requests", run_python),
            ("raw", send_raw(address[1])),
        ):
            run(house.copied(captured.id, form), tmp_path)
            sent = notes.seen.get(timeout=20)
            passing = (b"transfer-encoding", b"x-forwarded-")
            assert sent[:2] + sent[3:] == original[:2] + original[3:]
            assert sent[1] == b'/a|"b"?a=%41'
            assert sent[3] == b"\x00\xff\r\n"
            own = [
                [it for it in one[2] if not it[0].startswith(passing)] for one in (sent, original)
            ]
            assert own[0] == own[1], form
