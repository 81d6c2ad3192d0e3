"""Addresses from outside have one reading, in every field and by every way in."""

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import ginnel

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
