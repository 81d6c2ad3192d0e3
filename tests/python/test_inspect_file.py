"""Captured requests that stay: in a file, pinned, with notes, and from archives."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import ginnel
from browsing import Local, serving
from ginnel.local.requests import CapturedRequest
from processes import Command, wait_until


class Echo(Local):
    """Answers with what it was sent."""


def visit(url: str | None, path: str, body: bytes = b"") -> bytes:
    request = Request(f"{url}{path}", body or None, {"Content-Type": "text/plain"})
    with urlopen(request, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def targets(client: Any) -> list[str]:
    return [captured.request.uri for captured in client.requests.list()]


def rows(file: Path) -> int:
    """How many requests a reader of the file sees; the agent that writes it keeps others out."""
    with sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True) as database:
        count: int = database.execute("SELECT count(*) FROM captures").fetchone()[0]
    return count


def test_what_was_complete_survives_the_sudden_end_of_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "captures.db"
    with serving(Echo) as local, ginnel.Service(tmp_path / "service.db") as service:
        options = ["--server-addr", str(service.agent_addr), "--ca", str(service.ca_path)]
        options += ["--inspect-file", str(file), "--web-addr", "127.0.0.1:0"]
        environment = {"GINNEL_AUTHTOKEN": str(service.authtoken)}

        def start() -> Command:
            return Command("http", str(local), "--name", "web", *options, **environment)

        with start() as command:
            api = command.event("agent_api")["url"]
            url = command.event("tunnel")["public_url"]
            for number in range(20):
                visit(url, f"/{number}", b"x" * 1000)
            client = ginnel.AgentClient(base_url=f"{api}/api")
            before = client.requests.list().to_list()
            client.requests.update(before[-1].id, pinned=True, note="the first")
            # The writer needs a moment, and says when it has written.
            wait_until(lambda: file.with_name("captures.db-wal").stat().st_size > 30_000, "written")
            command.process.send_signal(signal.SIGKILL)
            command.process.wait(30)

        with start() as command:
            client = ginnel.AgentClient(base_url=f"{command.event('agent_api')['url']}/api")
            url = command.event("tunnel")["public_url"]
            after = client.requests.list().to_list()
            visit(url, "/later")
            assert targets(client)[0] == "/later"

    assert len(after) >= 19, "all but what was on its way to the disk"
    kept = {captured.id: captured for captured in before}
    for captured in after:
        known = kept[captured.id]
        assert (captured.request, captured.response) == (known.request, known.response)
        assert captured.duration == known.duration
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_agent_has_its_requests_again_and_clears_them_for_good(tmp_path: Path) -> None:
    file = tmp_path / "captures.db"
    with serving(Echo) as local, ginnel.Service(tmp_path / "service.db") as service:
        with ginnel.Agent(service, inspect_file=file) as agent:
            client = agent.client()
            tunnel = client.tunnels.start(name="web", proto="http", addr=local)
            visit(tunnel.public_url, "/a", b"a secret of somebody")
            [captured] = client.requests.list()
            client.requests.update(captured.id, note="look at this")
            with pytest.raises(ginnel.ConfigError, match="is in use by another agent"):
                ginnel.Agent(service, inspect_file=file)
        assert rows(file) == 1

        with ginnel.Agent(service, inspect_file=file) as agent:
            client = agent.client()
            [restored] = client.requests.list()
            assert (restored.id, restored.note) == (captured.id, "look at this")
            assert restored.request.body == b"a secret of somebody"
            client.tunnels.start(name="web", proto="http", addr=local)
            client.requests.replay(restored.id)
            assert len(targets(client)) == 2
            client.requests.clear()
        assert b"a secret" not in file.read_bytes()

        with ginnel.Agent(service, inspect_file=file) as agent:
            assert targets(agent.client()) == []


def test_a_long_file_is_listed_from_its_newest_request_on_while_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "captures.db"
    entry: dict[str, Any] = {
        "startedDateTime": "2026-11-23T10:00:00Z",
        "response": {"status": 200, "headers": [], "content": {"text": "x" * 2000}},
    }
    count = 3000
    parts: list[dict[str, Any]] = [
        {**entry, "request": {"method": "GET", "url": f"https://a.test/{number}", "headers": []}}
        for number in range(count)
    ]
    expected = [f"/{number}" for number in reversed(range(count))]

    def newest(client: Any) -> list[str]:
        return [captured.request.uri for captured in client.requests.list(limit=2 * count)]

    with serving(Echo) as local, ginnel.Service(tmp_path / "service.db") as service:
        with ginnel.Agent(service, inspect_file=file) as agent:
            assert len(agent.client().requests.load(log={"entries": parts}).ids) == count

        with ginnel.Agent(service, inspect_file=file) as agent:
            client = agent.client()
            tunnel = client.tunnels.start(name="web", proto="http", addr=local)
            visit(tunnel.public_url, "/later")
            expected.insert(0, "/later")
            listed = newest(client)
            while len(listed) < len(expected):
                assert listed == expected[: len(listed)]
                listed = newest(client)
            assert listed == expected

        with ginnel.Agent(service, inspect_file=file) as agent:
            client = agent.client()
            client.requests.clear()
            assert targets(client) == []
        assert rows(file) == 0


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes " * 100)
    with ginnel.Service() as service:
        with pytest.raises(ginnel.ConfigError, match="no file of captured requests"):
            ginnel.Agent(service, inspect_file=file)
        with pytest.raises(ginnel.ConfigError, match="inspect_file"):
            ginnel.Agent(service, inspect_file=tmp_path / "no" / "folder")
        with pytest.raises(ginnel.ConfigError, match="nothing is captured"):
            ginnel.Agent(service, inspect_file=tmp_path / "captures.db", inspect_db_size=-1)

    assert file.read_text() == "my notes " * 100


def test_a_configuration_file_names_it(tmp_path: Path) -> None:
    file, config = tmp_path / "captures.db", tmp_path / "agent.yml"
    with serving(Echo) as local, ginnel.Service(tmp_path / "service.db") as service:
        config.write_text(
            f"version: 3\nagent:\n  authtoken: {service.authtoken}\n"
            f"  connect_url: {service.agent_addr}\n  connect_cas: {service.ca_path}\n"
            f"  inspect_file: {file}\n  inspect_file_size: 2MiB\n  inspect_file_age: 2h\n"
            f"tunnels:\n  web: {{proto: http, addr: {local}}}\n"
        )
        arguments = ["start", "web", "--config", str(config), "--web-addr", "127.0.0.1:0"]
        with Command(*arguments) as command:
            visit(command.event("tunnel")["public_url"], "/a")
            command.event("request")
            command.process.send_signal(signal.SIGINT)
            assert command.ended()[0] == 0

    assert rows(file) == 1


def test_pinned_requests_stay_within_a_limit() -> None:
    with (
        serving(Echo) as local,
        ginnel.Service() as service,
        ginnel.Agent(service, inspect_db_size=40_000) as agent,
    ):
        client = agent.client()
        tunnel = client.tunnels.start(name="web", proto="http", addr=local)
        visit(tunnel.public_url, "/first", b"x" * 5_000)
        [first] = client.requests.list()
        changed = client.requests.update(first.id, pinned=True, note="<b>")
        assert (changed.pinned, changed.note) == (True, "<b>")

        for number in range(30):
            visit(tunnel.public_url, f"/{number}", b"x" * 2_000)

        assert targets(client)[-1] == "/first"
        assert targets(client)[-2] != "/0"
        visit(tunnel.public_url, "/long", b"x" * 9_000)
        [long] = client.requests.list(limit=1)
        with pytest.raises(ginnel.BadRequestError, match="requests that are pinned may take"):
            client.requests.update(long.id, pinned=True)
        with pytest.raises(ginnel.BadRequestError, match="longer than 2000 bytes"):
            client.requests.update(first.id, note="é" * 1001)
        with pytest.raises(ginnel.NotFoundError):
            client.requests.update("0" * 16, pinned=True)
        unpinned = client.requests.update(first.id, pinned=False, note="")
        assert (unpinned.pinned, unpinned.note) == (None, None)
        for number in range(30):
            visit(tunnel.public_url, f"/{number}", b"x" * 2_000)
        assert "/first" not in targets(client)


# ── Archives ─────────────────────────────────────────────────────────────────────────────────────


class Varied(BaseHTTPRequestHandler):
    """Answers with text, bytes, and with what has a coding."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        coding = self.path == "/gzip"
        content = gzip.compress(body, mtime=0) if coding else body
        self.send_response(201)
        self.send_header("Content-Type", "text/plain")
        if coding:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Set-Cookie", "a=b; Path=/")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def exported(agent: ginnel.Agent, query: str = "reveal=1") -> dict[str, Any]:
    with urlopen(f"{agent.url}/inspect/data/export.har?{query}", timeout=30) as answer:
        archive: dict[str, Any] = json.load(answer)
    return archive


def entries(archive: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries without what is of one agent alone."""
    return [{k: v for k, v in it.items() if k != "_id"} for it in archive["log"]["entries"]]


def sized(entries: list[dict[str, Any]], query: str) -> list[dict[str, Any]]:
    """The entries without the sizes of heads where masks stand in place of what was sent."""
    if not query:
        for part in ("request", "response"):
            for entry in entries:
                del entry[part]["headersSize"]
    return entries


@pytest.mark.parametrize("query", ["reveal=1", ""])
def test_what_is_exported_imported_and_exported_is_the_same(query: str) -> None:
    with serving(Varied) as local, ginnel.Service() as service:
        with ginnel.Agent(service) as agent:
            client = agent.client()
            tunnel = client.tunnels.start(name="web", proto="http", addr=local)
            visit(tunnel.public_url, "/text?q=1&token=abc", "päper".encode())
            visit(tunnel.public_url, "/bytes", bytes(range(256)))
            visit(tunnel.public_url, "/gzip", b"hello " * 500)
            visit(tunnel.public_url, "/gzip", b"x")
            client.requests.update(client.requests.list().to_list()[0].id, note="the last")
            archive = exported(agent, query)
        with ginnel.Agent(service) as other:
            loaded = other.client().requests.load(log=archive["log"])
            assert (len(loaded.ids), loaded.skipped, loaded.problems) == (4, 0, [])
            again = exported(other, query)
            imported = other.client().requests.list().to_list()

    assert sized(entries(again), query) == sized(entries(archive), query)
    assert all(captured.imported for captured in imported)
    assert imported[0].note == "the last"


def test_an_imported_request_is_sent_only_when_somebody_asks() -> None:
    seen: list[str] = []

    class Counting(Varied):
        def do_POST(self) -> None:
            seen.append(self.path)
            super().do_POST()

    with serving(Varied) as first, serving(Counting) as second, ginnel.Service() as service:
        with ginnel.Agent(service) as agent:
            tunnel = agent.client().tunnels.start(name="web", proto="http", addr=first)
            visit(tunnel.public_url, "/gzip", b"hello " * 50)
            archive = exported(agent)
        with ginnel.Agent(service) as agent:
            client = agent.client()
            client.tunnels.start(name="other", proto="http", addr=second)
            [id] = client.requests.load(log=archive["log"]).ids
            assert seen == []
            with pytest.raises(ginnel.NotFoundError):
                client.requests.replay(id)
            client.requests.replay(id, tunnel_name="other")
            assert seen == ["/gzip"]
            replayed: CapturedRequest = client.requests.list().to_list()[0]
            assert replayed.request.body == b"hello " * 50


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "EOF"),
        (b"\xff\xfe{}", "expected"),
        (b"[1]", "object"),
        (b'{"log": []}', "log"),
        (b'{"log": {}}', "entries"),
        (b'{"log": {"entries": 7}}', "entries"),
        (b'{"log": {"entries": ' + b"[" * 5000, "recursion"),
        (b'{"log": {"entries": ["\xff"]}}', ""),
    ],
    ids=["nothing", "no UTF-8", "list", "no log", "no entries", "number", "deep", "bytes"],
)
def test_what_is_no_archive_is_refused(body: bytes, message: str) -> None:
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        connection = HTTPConnection(urlsplit(str(agent.url)).netloc, timeout=30)
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/api/requests/import", body, kind)
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        assert targets(agent.client()) == []

    assert answer.status == 400, said
    assert message in said


def test_what_cannot_be_imported_is_said_and_the_rest_is() -> None:
    good: dict[str, Any] = {
        "startedDateTime": "2026-11-23T10:00:00Z",
        "request": {"method": "GET", "url": "https://a.test/x", "headers": []},
        "response": {"status": 0},
    }
    hostile: list[Any] = [
        {**good, "request": {**good["request"], "url": "file:///etc/passwd"}},
        {**good, "request": {**good["request"], "method": "GET / HTTP/1.1\r\n"}},
        {**good, "response": {"status": 200, "content": {"text": "?", "encoding": "base64"}}},
        7,
        None,
    ]
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        loaded = agent.client().requests.load(log={"entries": [*hostile, good]})
        [captured] = agent.client().requests.list()

    assert (len(loaded.ids), loaded.skipped) == (1, 5)
    assert [problem.split(":")[0] for problem in loaded.problems] == [
        "log.entries[0].request.url",
        "log.entries[1].request.method",
        "log.entries[2].response.content.text",
        "log.entries[3].request.url",
        "log.entries[4].request.url",
    ]
    assert (captured.request.uri, captured.response) == ("/x", None)


# ── Rules ────────────────────────────────────────────────────────────────────────────────────────


def rule(name: str, expression: str, *actions: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "expressions": [expression], "actions": list(actions)}


def add(**headers: str) -> dict[str, Any]:
    return {"type": "add-headers", "config": {"headers": headers}}


def test_the_rules_that_acted_on_a_request_are_with_it() -> None:
    rewrite = {"type": "url-rewrite", "config": {"from": "/old/", "to": "/new/"}}
    log = {"type": "log", "config": {"metadata": {"a": "b"}}}
    seen: list[list[str]] = []

    class Seeing(Echo):
        def handle_one(self) -> None:
            seen.append([name.lower() for name in self.headers])
            super().handle_one()

    with serving(Seeing) as local, ginnel.Service() as service, ginnel.Agent(service) as agent:
        client, remote = agent.client(), service.client()
        client.tunnels.start(addr=local, name="web", labels=["app=shop"])
        group = remote.backends.tunnel_group.create(labels={"app": "shop"})
        edge = remote.edges.https.create(hostports=["shop.example.test:443"])
        route = remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": group.id}
        )
        policy = remote.edges.https.routes.policy

        def send(path: str) -> CapturedRequest:
            url = service.edge_url("shop.example.test", path)
            with service.opener().open(Request(url, headers={"X-Key": "1"})) as answer:
                answer.read()
            newest = client.requests.list(limit=1).first()
            assert newest is not None
            return newest

        assert send("/none").rules is None
        tagged = rule("tagged", "req.url.path.startsWith('/a')", add(**{"x-tag": "1"}))
        # By their heads alone, and with more to do.
        for others in ([], [rule("", "req.url.path.startsWith('/old')", rewrite, log)]):
            policy.replace(edge.id, route.id, inbound=[tagged, *others])
            assert send("/b").rules is None
            captured = send("/a")
            assert captured.rules is not None
            [decided] = captured.rules
            assert (decided.module, decided.index, decided.name) == ("policy", 0, "tagged")
            assert decided.expressions is None, "who runs a tunnel may not read policies of edges"
            assert decided.actions == ["add-headers"]
            assert captured.request.header("x-tag") == "1"
            assert (captured.edge_id, captured.route_id) == (edge.id, route.id)
            assert not any(name.lower().startswith("ginnel-") for name in captured.request.headers)
        [second] = send("/old/1").rules or []
        assert (second.index, second.name, second.actions) == (1, None, ["url-rewrite", "log"])

        document = {"inbound": [tagged]}
        own = client.tunnels.start(addr=local, name="own", proto="http", policy=document)
        visit(own.public_url, "/a")
        newest = client.requests.list(limit=1).first()
        assert newest is not None
        [decided] = newest.rules or []
        assert decided.expressions == ["req.url.path.startsWith('/a')"]

    assert seen
    assert not any(name.startswith("ginnel-") for names in seen for name in names)


# ── On a terminal ────────────────────────────────────────────────────────────────────────────────


def test_requests_are_followed_with_their_marks() -> None:
    with serving(Echo) as local, ginnel.Service() as service, ginnel.Agent(service) as agent:
        client = agent.client()
        tunnel = client.tunnels.start(name="web", proto="http", addr=local)
        visit(tunnel.public_url, "/before")
        client.mocks.add(path="/mocked", status=418)
        command = [sys.executable, "-m", "ginnel", "local", "requests", "list", "--follow"]
        following = subprocess.Popen(
            [*command, "--base-url", f"{agent.url}/api"],
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": ""},
        )
        try:
            assert following.stdout is not None
            before = following.stdout.readline()
            visit(tunnel.public_url, "/hook?token=swordfish")
            hook = following.stdout.readline()
            with pytest.raises(HTTPError):
                visit(tunnel.public_url, "/mocked")
            mocked = following.stdout.readline()
        finally:
            following.kill()
            following.communicate()

    assert "/before" in before
    assert " 200 " in hook
    assert "/hook?token=" in hook
    assert "swordfish" not in hook
    assert " 418 " in mocked
    assert mocked.rstrip().endswith("[mock]")
