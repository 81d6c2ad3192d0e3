"""Addresses from outside have one reading, in every field and by every way in."""

import json
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from ginnel import policy
from postgres import PostgresServer
from recorder import get
from test_doctor import doctor

NOT_ADDRESSES = [
    "{port}\n",
    "{port}\t",
    "{port}.",
    "{port}/",
    "{port}?",
    "{port}#",
    "0{port}",
    "+{port}",
    " {port}",
    "0x9daf",
    "2130706433:{port}",
    "0177.0.0.1:{port}",
    "127.1:{port}",
    "\uff11\uff12\uff17.0.0.1:{port}",
    "localhost:",
    "localhost:99999",
    "http://localhost:{port}/app",
    "http://localhost:{port}/?site=2",
    "http://localhost:{port}/#part",
    "http://ada:secret@localhost:{port}",
    "ftp://localhost:{port}",
    "[fe80::1%eth0]:{port}",
    "::1:{port}",
]


@pytest.fixture(scope="module")
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.mark.parametrize("form", NOT_ADDRESSES)
@pytest.mark.parametrize("field", ["addr", "upstream.url"])
def test_an_address_with_another_reading_is_refused(
    service: ginnel.Service, tmp_path: Path, form: str, field: str
) -> None:
    text = json.dumps(form.format(port=40367))
    entry = f"proto: http, addr: {text}" if field == "addr" else f"upstream: {{url: {text}}}"
    path = tmp_path / "ginnel.yml"
    if field == "addr":
        path.write_text(f"version: 2\ntunnels:\n  web: {{{entry}}}\n", encoding="utf-8")
    else:
        lines = f"version: 3\nagent: {{}}\nendpoints:\n- {{name: web, {entry}}}\n"
        path.write_text(lines, encoding="utf-8")

    checked = subprocess.run(
        [sys.executable, "-m", "ginnel", "config", "check", "--config", path],
        capture_output=True,
        text=True,
        check=False,
    )

    output = checked.stdout + checked.stderr
    assert checked.returncode != 0
    assert field in output
    assert "secret" not in output


@pytest.fixture
def unix_service(tmp_path: Path) -> Iterator[tuple[Path, list[bytes]]]:
    path, heads = tmp_path / "app.sock", list[bytes]()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head and (data := connection.recv(65536)):
                    head += data
                heads.append(head)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
                )

    threading.Thread(target=accept, daemon=True).start()
    yield path, heads
    listener.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
@pytest.mark.parametrize("proto", ["http", "tcp"])
def test_a_unix_socket_below_a_root_is_reached(
    service: ginnel.Service, unix_service: tuple[Path, list[bytes]], proto: str
) -> None:
    path, heads = unix_service
    schemes = ["http"] if proto == "http" else None
    with ginnel.Agent(service, unix_socket_roots=[path.parent]) as agent, agent.client() as here:
        tunnel = here.tunnels.start(addr=f"unix:{path}", proto=proto, name="sock", schemes=schemes)

        url = tunnel.public_url.replace("tcp://", "http://")
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.read() == b"ok"

        assert tunnel.config.addr == f"unix:{path}"
        if proto == "http":
            assert b"\r\nhost: localhost\r\n" in heads[0].lower()


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
def test_a_unix_socket_outside_of_the_roots_is_refused(
    service: ginnel.Service, unix_service: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    path, _ = unix_service
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.sock").symlink_to(path)
    for roots in ([], [inside]):
        with (
            ginnel.Agent(service, unix_socket_roots=roots) as agent,
            agent.client() as here,
        ):
            for socket_path in (path, inside / "link.sock", inside / ".." / "app.sock"):
                with pytest.raises(ginnel.GinnelError, match=r"[uU]nix"):
                    here.tunnels.start(addr=f"unix:{socket_path}", proto="http", name="sock")


def test_backends_and_edges_have_no_unix_sockets(service: ginnel.Service) -> None:
    with service.client() as remote:
        for address in ("unix:/run/app.sock", "0x7f000001:80", "127.1:80", "a.test:080", "a.test"):
            with pytest.raises(ginnel.BadRequestError, match="address"):
                remote.backends.static.create(address=address)
        for hostport in ("unix:/a:443", "0x7f.1:443", "a.test:443\n", "\uff11.test.:44\uff13"):
            with pytest.raises(ginnel.BadRequestError, match="hostports"):
                remote.edges.https.create(hostports=[hostport])


@pytest.mark.parametrize(
    "form", ["https://{}", "{}/", "127.0.0.1", "127.0.0.1:", "127.0.0.1:https"]
)
def test_an_address_of_a_service_that_cannot_be_is_refused_at_once(
    service: ginnel.Service, form: str
) -> None:
    address = form.format(service.agent_addr)

    with pytest.raises(ginnel.ConfigError, match="server_addr"):
        ginnel.Agent(server_addr=address, authtoken="x")


def test_a_hostport_in_another_spelling_is_stored_in_one(service: ginnel.Service) -> None:
    with service.client() as remote:
        edge = remote.edges.https.create(hostports=["B\u00dccher.Example.test.:443"])

        assert edge.hostports == ["xn--bcher-kva.example.test:443"]
        with pytest.raises(ginnel.ConflictError, match="another edge"):
            remote.edges.https.create(hostports=["XN--bcher-kva.example.test:443"])
        remote.edges.https.delete(edge.id)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_listeners_on_all_addresses_are_reached_on_loopback(host: str) -> None:
    with ginnel.Service(host=host, edge_host=host, admin_addr=None) as service:
        with ginnel.Agent(service, timeout=5) as agent:
            assert agent.state == "online"
        for address in (service.url, service.agent_addr):
            assert address is not None
            assert "0.0.0.0" not in address
            assert "[::]" not in address


NOT_URLS = [
    "http://127.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://\uff1127.0.0.1/",
    "http://a.test\n/",
    " http://a.test/",
    "http:\\\\a.test/",
    "http://a.test\\@b.test/",
    "http:a.test",
    "http://a.test:080/",
    "http://a.test:0/",
    "http://[fe80::1%25eth0]/",
]


@pytest.mark.parametrize("url", NOT_URLS)
def test_a_url_with_another_reading_is_refused(service: ginnel.Service, url: str) -> None:
    ask = {"type": "http-request", "config": {"url": url}}
    login = {"issuer_url": url.replace("http:", "https:"), "client_id": "x", "client_secret": "y"}
    with service.client() as remote:
        for target in ({"webhook": {"url": url}}, {"otlp": {"url": url}}):
            with pytest.raises(ginnel.BadRequestError, match="url"):
                remote.event_destinations.create(target=target)

    for action in (ask, {"type": "openid-connect", "config": login}):
        [problem, *_] = policy.check({"on_http_request": [{"actions": [action]}]})
        assert "url" in problem.message
    settings: Any = {"acme.directory": login["issuer_url"], "acme.agree_to_terms": True}
    with pytest.raises(ginnel.ConfigError, match=r"acme\.directory"):
        ginnel.Service(settings=settings)
    # Spaces around this URL were always removed.
    base_url = url if url.strip() == url else "http://a b/"
    with pytest.raises(ginnel.ConfigError, match="base_url"):
        ginnel.RemoteClient("key", base_url=base_url, allow_http=True)


def test_a_redirect_with_another_reading_is_not_followed(service: ginnel.Service) -> None:
    places = ["http://127.1/", "\\\\in.internal/", "//in.internal\\@b.test/", "http:in.internal"]
    rules = [
        {
            "expressions": [f"req.url.path == '/{number}'"],
            "actions": [
                {
                    "type": "custom-response",
                    "config": {"status_code": 302, "headers": {"location": place}},
                }
            ],
        }
        for number, place in enumerate([*places, "/end"])
    ]
    target = "http://in.internal/${req.url.query}"
    ask = {"type": "http-request", "config": {"url": target, "max_redirects": 1}}
    show = {"content": "${actions.ngrok.http_request.res.status_code}"}
    asking = [{"actions": [ask, {"type": "custom-response", "config": show}]}]
    end = [*rules, {"actions": [{"type": "custom-response", "config": {"content": "end"}}]}]
    with service.client() as remote:
        made = [
            remote.endpoints.create(
                url=f"http://{host}", traffic_policy=json.dumps({"on_http_request": document})
            )
            for host, document in (("in.internal", end), ("ask.example.test", asking))
        ]

        def visit(query: str) -> bytes:
            assert service.http_url is not None
            request = urllib.request.Request(f"{service.http_url}/?{query}")
            request.add_header("host", "ask.example.test")
            with urllib.request.urlopen(request, timeout=10) as response:
                return bytes(response.read())

        seen = [visit(str(number)) for number in range(len(places) + 1)]
        for endpoint in made:
            remote.endpoints.delete(endpoint.id)

    assert seen == [b"302"] * len(places) + [b"200"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.1", 400),
        ("0x7f000001", 400),
        ("a..test", 400),
        ("a.test:080", 404),
        ("a.test:+80", 400),
        ("ada@a.test", 400),
        ("127.0.0.1.", 400),
        ("nothing.example.test.", 404),
        ("[::1]:80", 404),
        ("", 404),
    ],
)
def test_a_host_with_another_reading_is_refused(
    service: ginnel.Service, host: str, status: int
) -> None:
    place = urlsplit(service.http_url or "").netloc

    answered = [
        get(place, host, "/")[0],
        raw(place, f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        if host
        else status,
    ]

    assert answered == [status, status]


def raw(place: str, head: str) -> int:
    address, _, port = place.rpartition(":")
    with socket.create_connection((address, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        return int(connection.makefile("rb").readline().split()[1])


def test_stored_addresses_that_are_refused_are_a_503_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as remote:
        key = service.api_key
        backend = remote.backends.static.create(address="192.0.2.7:80")
        hook = remote.event_destinations.create(target={"webhook": {"url": "https://192.0.2.7/"}})
        edge = remote.edges.https.create(hostports=["stored.example.test:443"])
        remote.edges.https.routes.create(
            edge.id, match="/", match_type="path_prefix", backend={"backend_id": backend.id}
        )
    with sqlite3.connect(path) as database:
        database.execute("UPDATE resources SET body = replace(body, '192.0.2.7', '127.1')")
    database.close()

    def visit() -> int:
        request = service.edge_url("stored.example.test")
        try:
            with service.opener().open(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return int(error.code)

    with ginnel.Service(path, admin_addr="127.0.0.1:0") as service:
        status = visit()
        code, found = doctor("--url", service.url, GINNEL_API_KEY=key or "")
        reasons = ready_reasons(service)
        with ginnel.RemoteClient(key, base_url=service.url) as remote:
            remote.backends.static.update(backend.id, address="127.0.0.1:1")
        after = ready_reasons(service)

    assert status == 503
    assert code == 1
    messages = [finding["message"] for finding in found["addresses"]]
    assert any(backend.id in message and "127.1:80" in message for message in messages)
    assert any(hook.id in message for message in messages)
    [reason] = reasons
    assert backend.id in reason
    assert after == []


def ready_reasons(service: ginnel.Service) -> list[str]:
    with urllib.request.urlopen(f"{service.admin_url}/readyz", timeout=10) as answer:
        return list(json.load(answer)["reasons"])


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
def test_the_socket_of_the_own_database_is_refused(postgres_server: PostgresServer) -> None:
    folder, port = postgres_server.folder, postgres_server.port
    path = folder / f".s.PGSQL.{port}"
    with postgres_server.database() as address:
        name = address.rpartition("/")[2]
        store = f"postgres://ginnel@{str(folder).replace('/', '%2F')}:{port}/{name}"
        with (
            ginnel.Service(store=store) as service,
            ginnel.Agent(service, unix_socket_roots=[folder]) as agent,
            agent.client() as here,
            pytest.raises(ginnel.GinnelError, match="ginnel itself uses"),
        ):
            here.tunnels.start(addr=f"unix:{path}", proto="tcp", name="database")
