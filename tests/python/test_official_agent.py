"""The official agent libraries, in Python and in Rust, unmodified, against our service."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import ginnel
from addresses import own_host

pytest.importorskip("ngrok")

VERSIONS = {"python": "1.4.0", "rust": "0.19.0"}


class Mirror(BaseHTTPRequestHandler):
    """Answers with what was asked."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = f"{self.command} {self.path} ".encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def local() -> Iterator[int]:
    """A local web service; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@functools.cache
def command(language: str) -> tuple[str, ...]:
    """Runs the program on the official library of a language."""
    if language == "python":
        return sys.executable, str(Path(__file__).with_name("official_agent.py"))
    root = Path(__file__).parents[2]
    manifest, target = root / "tests/rust_official/Cargo.toml", root / "target/official"
    build = ["cargo", "build", "--quiet", "--locked", "--manifest-path", str(manifest)]
    subprocess.run([*build, "--target-dir", str(target)], check=True)
    return (str(target / "debug" / "official-agent"),)


class Official:
    """The program on an official library."""

    def __init__(self, service: ginnel.Service, language: str) -> None:
        self.service = service
        self.process = subprocess.Popen(
            command(language), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, **command: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer.get("result", answer)

    def connect(self, token: str | None = None) -> Any:
        token = token or self.service.authtoken
        return self.do(connect=token, server=self.service.agent_addr, ca=self.service.ca_pem)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["python", "rust"])
def language(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def official(service: ginnel.Service, language: str) -> Iterator[Official]:
    program = Official(service, language)
    yield program
    program.end()


def get(url: str, body: bytes | None = None) -> bytes:
    with urlopen(Request(url, data=body), timeout=30) as answer:
        content: bytes = answer.read()
        return content


def soon(check: Callable[[], Any]) -> Any:
    """What `check` gives, as soon as it gives something without an error."""
    deadline = time.monotonic() + 30
    while True:
        try:
            if found := check():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def test_http_requests_reach_the_local_service(official: Official, local: int) -> None:
    assert official.connect() == "connected"

    url = official.do(http=local)

    assert get(f"{url}/a?b=c") == b"GET /a?b=c "
    assert get(url, b"x" * 300_000) == b"POST / " + b"x" * 300_000


def test_tcp_is_carried_with_its_half_close(official: Official) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        official.connect()
        url = official.do(tcp=listener.getsockname()[1])
        host, port = url.removeprefix("tcp://").rsplit(":", 1)

        with socket.create_connection((host, int(port)), timeout=30) as visitor:
            visitor.sendall(b"ping")
            visitor.shutdown(socket.SHUT_WR)
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as received:
                assert received.read() == b"ping"
                connection.sendall(b"pong")
            with visitor.makefile("rb") as answer:
                assert answer.read() == b"pong"


def test_what_is_online_is_shown(
    official: Official, service: ginnel.Service, language: str, local: int
) -> None:
    official.connect()
    url = official.do(http=local)
    remote = service.client()

    [tunnel] = remote.tunnels.list()
    [session] = remote.tunnel_sessions.list()

    assert tunnel.public_url == url
    assert tunnel.tunnel_session is not None
    assert tunnel.tunnel_session.id == session.id
    assert session.agent_version == VERSIONS[language]
    official.end()
    soon(lambda: not remote.tunnels.list().to_list())


def test_a_labeled_tunnel_serves_its_backends(
    official: Official, service: ginnel.Service, local: int
) -> None:
    remote = service.client()
    serving = remote.backends.tunnel_group.create(labels={"app": "web"})
    other = remote.backends.tunnel_group.create(labels={"app": "api"})
    edge = remote.edges.https.create(hostports=["shop.test:443"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": serving.id}
    )
    official.connect()

    official.do(labeled=local, labels={"app": "web", "zone": "1"})

    [tunnel] = remote.tunnels.list()
    assert tunnel.labels == {"app": "web", "zone": "1"}
    assert tunnel.backends is not None
    assert [backend.id for backend in tunnel.backends] == [serving.id]
    shown = remote.backends.tunnel_group.get(serving.id).tunnels
    assert shown is not None
    assert [ref.id for ref in shown] == [tunnel.id]
    assert remote.backends.tunnel_group.get(other.id).tunnels == []


def test_a_bad_token_is_refused_in_words_and_by_code(official: Official) -> None:
    unknown = "0" * 27 + "_" + "0" * 21

    refused = official.connect(token=unknown)
    malformed = official.connect(token="nonsense")

    assert "belongs to no credential" in refused["error"][1]
    assert refused["error"][2] == "ERR_NGROK_107"
    assert malformed["error"][2] == "ERR_NGROK_105"


def test_the_agent_comes_back_to_its_address_after_a_restart(
    tmp_path: Path, language: str, local: int
) -> None:
    database, host = tmp_path / "service.db", own_host()
    service = ginnel.Service(database, host, edge_host=host)
    assert service.agent_addr is not None
    official = Official(service, language)
    try:
        official.connect()
        url = official.do(http=local)
        port = int(service.agent_addr.rsplit(":", 1)[1])
        service.stop(0)

        service = ginnel.Service(database, host, edge_host=host, agent_port=port)

        assert soon(lambda: get(f"{url}/again")) == b"GET /again "
    finally:
        official.end()
        service.stop(0)


def test_a_revoked_agent_is_ended_and_refused(
    official: Official, service: ginnel.Service, local: int
) -> None:
    remote = service.client()
    credential = remote.credentials.create()
    other = Official(service, "python")
    try:
        assert official.connect(credential.token) == "connected"
        url = official.do(http=local)
        other.connect()
        stays = other.do(http=local)
        assert get(f"{url}/") == get(f"{stays}/") == b"GET / "

        remote.credentials.delete(credential.id)

        with pytest.raises(OSError, match="refused"):
            get(url)
        refused = official.connect(credential.token)
        assert refused["error"][2] == "ERR_NGROK_107"
        [session] = remote.tunnel_sessions.list()
        assert session.credential is not None
        assert session.credential.id != credential.id
        assert get(f"{stays}/again") == b"GET /again "
        # The program goes on with another token.
        assert official.connect() == "connected"
        assert get(official.do(http=local)) == b"GET / "
    finally:
        other.end()


def test_a_narrower_access_list_stops_the_tunnels_it_names_no_more(
    official: Official, service: ginnel.Service, local: int
) -> None:
    remote = service.client()
    credential = remote.credentials.create()
    official.connect(credential.token)
    one, two = official.do(http=local), official.do(http=local)

    remote.credentials.update(credential.id, acl=[f"bind:{two.split('://')[1]}"])

    with pytest.raises(OSError, match="refused"):
        get(one)
    assert get(f"{two}/") == b"GET / "
    assert official.do(http=local)["error"][2] == "ERR_NGROK_600"
    assert [it.public_url for it in remote.tunnels.list()] == [two]
    assert len(remote.tunnel_sessions.list().to_list()) == 1
