"""Certificates of upstreams: static backends are verified, local services are not."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

import ginnel
from listener import Listener
from recorder import get, read_head
from test_doctor import doctor

HOST = "app.example.test"
NAME = "db.example.test"


@dataclass
class TlsServer(Listener):
    """Responds to each request over TLS with the name in SNI."""

    context: ssl.SSLContext = field(kw_only=True)
    names: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
            self.names.append(name)

        self.context.sni_callback = note

    def serve(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self.context.wrap_socket(connection, server_side=True) as tls,
            tls.makefile("rb") as lines,
        ):
            while read_head(lines) is not None:
                tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def context_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


@pytest.fixture(scope="module")
def backend_server(authority: trustme.CA) -> Iterator[TlsServer]:
    with TlsServer(context=context_of(authority.issue_cert(NAME))) as server:
        yield server


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[ginnel.Service, ginnel.RemoteClient, Any]]:
    """A service, its client, and a static backend behind the host `HOST`."""
    with ginnel.Service() as service, service.client() as remote:
        yield service, remote, routed(remote)


def routed(remote: ginnel.RemoteClient, **options: Any) -> Any:
    backend = remote.backends.static.create(address="127.0.0.1:9", **options)
    edge = remote.edges.https.create(hostports=[f"{HOST}:443", f"{HOST}:80"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
    )
    return backend


def visit(service: ginnel.Service) -> int:
    assert service.http_url is not None
    status, _, _ = get(urlsplit(service.http_url).netloc, HOST, "/")
    return status


def test_a_new_backend_is_verified_by_its_name_and_authority(
    shop: Any, backend_server: TlsServer, pem: str
) -> None:
    service, remote, backend = shop
    assert (backend.tls.enabled, backend.tls.verify) == (False, True)
    assert (backend.tls.ca, backend.tls.server_name) == ("", "")
    other = trustme.CA().cert_pem.bytes().decode()

    def status(**tls: Any) -> int:
        changed = {"enabled": True, "verify": True, "ca": "", "server_name": ""} | tls
        address = backend_server.address
        remote.backends.static.update(backend.id, address=address, tls=changed)
        return visit(service)

    assert status() == 502, "no authority of the system has signed it"
    assert status(ca=pem) == 502, "it is not for 127.0.0.1"
    assert status(ca=pem, server_name=NAME) == 200
    assert backend_server.names[-1] == NAME
    assert status(ca=other, server_name=NAME) == 502, "another authority has signed it"
    assert status(ca=pem, server_name="other.example.test") == 502, "it is for another name"
    assert status(ca=other + pem, server_name=NAME.upper()) == 200
    # A connection that was not verified is not reused for a verified request.
    assert status(verify=False) == 200
    assert status(verify=True) == 502


@pytest.mark.parametrize("days", [-1, 1])
def test_an_expired_certificate_is_refused(
    shop: Any, authority: trustme.CA, pem: str, days: int
) -> None:
    service, remote, backend = shop
    until = datetime.now(UTC) + timedelta(days=days)
    from_ = until - timedelta(days=30)
    certificate = authority.issue_cert(NAME, not_before=from_, not_after=until)
    tls = {"enabled": True, "verify": True, "ca": pem, "server_name": NAME}
    with TlsServer(context=context_of(certificate)) as server:
        remote.backends.static.update(backend.id, address=server.address, tls=tls)

        assert visit(service) == (200 if days > 0 else 502)


def test_a_self_signed_certificate_can_be_its_own_authority(shop: Any, tmp_path: Path) -> None:
    service, remote, backend = shop
    # `-x509` makes certificates of authorities, which must not be those of servers otherwise.
    context = self_signed(tmp_path, "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    own = (tmp_path / "crt.pem").read_text()
    tls = {"enabled": True, "verify": True, "ca": own, "server_name": NAME}
    with TlsServer(context=context) as server:

        def status(**changed: str) -> int:
            remote.backends.static.update(backend.id, address=server.address, tls=tls | changed)
            return visit(service)

        assert status() == 200
        assert status(server_name="other.example.test") == 502
        assert status(ca="") == 502


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("ca", "not PEM", "holds no certificate in PEM"),
        ("ca", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ""),
        ("ca", "x" * (65 << 10), "the limit is 65536"),
        ("server_name", "https://db.example.test", "db.example.test"),
        ("server_name", "db.example.test:443", "db.example.test:443"),
        ("server_name", "0x7f.1", "0x7f.1"),
    ],
)
def test_a_wrong_field_is_refused(shop: Any, field: str, value: str, problem: str) -> None:
    _, remote, backend = shop

    with pytest.raises(ginnel.BadRequestError, match=f"tls.{field}") as refused:
        remote.backends.static.create(address="127.0.0.1:9", tls={field: value})
    with pytest.raises(ginnel.BadRequestError, match=f"tls.{field}"):
        remote.backends.static.update(backend.id, tls={field: value})
    assert problem in str(refused.value)


def test_only_certificates_of_a_text_are_kept(shop: Any, authority: trustme.CA, pem: str) -> None:
    _, remote, _ = shop
    key = authority.private_key_pem.bytes().decode()

    made = remote.backends.static.create(address="127.0.0.1:9", tls={"ca": key + pem})

    assert "PRIVATE" not in made.tls.ca
    assert ssl.PEM_cert_to_DER_cert(made.tls.ca) == ssl.PEM_cert_to_DER_cert(pem)
    remote.backends.static.delete(made.id)


def test_a_stored_backend_stays_unverified_and_is_listed(
    tmp_path: Path, authority: trustme.CA, backend_server: TlsServer, pem: str
) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as remote:
        key = service.api_key or ""
        backend = routed(remote)
        quiet = remote.backends.static.create(address="127.0.0.1:9", tls={"enabled": True})
    with sqlite3.connect(path) as database:
        # As versions stored it that knew only `enabled`.
        changed = database.execute(
            "UPDATE resources SET body = json_set(body, '$.tls', json('{\"enabled\": true}'),"
            " '$.address', ?) WHERE id = ?",
            (backend_server.address, backend.id),
        )
        assert changed.rowcount == 1
    database.close()
    [offline] = doctor("--path", path)[1]["backends"]
    assert offline["severity"] == "warning"
    assert backend.id in offline["message"]
    assert quiet.id not in offline["message"]

    started = subprocess.run(
        [sys.executable, "-c", START, path],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"GINNEL_LOG": "warn"},
    )
    assert f"{backend.id} ({backend_server.address})" in started.stderr
    assert "tls.verify" in started.stderr
    assert quiet.id not in started.stderr

    with (
        ginnel.Service(path, admin_addr="127.0.0.1:0") as service,
        ginnel.RemoteClient(key, base_url=service.url) as remote,
    ):
        assert visit(service) == 200
        stored: Any = remote.backends.static.get(backend.id)
        assert stored.tls.verify is False
        for tls in ({}, {"enabled": True}, {"server_name": NAME}, {"ca": pem}):
            kept: Any = remote.backends.static.update(backend.id, description="x", tls=tls)
            assert (kept.tls.enabled, kept.tls.verify) == (True, False)
        assert backend.id in warnings(service)
        look = {"GINNEL_API_KEY": key}
        [online] = doctor("--url", service.url, **look)[1]["backends"]
        assert online["severity"] == "warning"
        assert "tls.verify" in online["remedy"]

        verified: Any = remote.backends.static.update(backend.id, tls={"verify": True})

        assert (verified.tls.ca, verified.tls.server_name) == (pem_of(pem), NAME)
        assert visit(service) == 200
        assert backend.id not in warnings(service)
        [sound] = doctor("--url", service.url, **look)[1]["backends"]
        assert sound["severity"] == "ok"


START = "import ginnel, sys; ginnel.Service(sys.argv[1]).stop()"


def warnings(service: ginnel.Service) -> str:
    """The warnings of the readiness page, which the console shows as well."""
    with urllib.request.urlopen(f"{service.admin_url}/readyz", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def pem_of(text: str) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(text))


def self_signed(folder: Path, *algorithm: str) -> ssl.SSLContext:
    """The context of a certificate that `openssl` makes."""
    key, crt = folder / "key.pem", folder / "crt.pem"
    openssl("req", "-x509", "-nodes", "-newkey", *algorithm, *named(key, crt))
    return loaded(key, crt)


def named(key: Path, crt: Path) -> list[str]:
    subject = ["-subj", "/CN=appliance", "-addext", f"subjectAltName=DNS:{NAME}", "-days", "30"]
    return ["-keyout", str(key), "-out", str(crt), *subject]


def loaded(key: Path, crt: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(crt, key)
    return context


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def version_1(folder: Path) -> ssl.SSLContext:
    key, csr, crt = (folder / name for name in ("key.pem", "csr.pem", "crt.pem"))
    new = ["-newkey", "rsa:2048", "-keyout", str(key), "-out", str(csr)]
    openssl("req", "-new", "-nodes", *new, "-subj", "/CN=appliance")
    openssl("x509", "-req", "-in", str(csr), "-signkey", str(key), "-out", str(crt))
    return loaded(key, crt)


def expired(_: Path) -> ssl.SSLContext:
    until = datetime.now(UTC) - timedelta(days=1)
    return context_of(trustme.CA().issue_cert("other.example.test", not_after=until))


CONTEXTS: dict[str, Callable[[Path], ssl.SSLContext]] = {
    "expired": expired,
    "version 1": version_1,
    "RSA 1024": lambda folder: self_signed(folder, "rsa:1024"),
    "SHA-1": lambda folder: self_signed(folder, "rsa:2048", "-sha1"),
    "P-521": lambda folder: self_signed(folder, "ec", "-pkeyopt", "ec_paramgen_curve:P-521"),
    "Ed448": lambda folder: self_signed(folder, "ed448"),
    "RSASSA-PSS": lambda folder: self_signed(folder, "rsa-pss"),
}


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    with ginnel.Service() as service, ginnel.Agent(service) as agent, agent.client() as local:
        yield local


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
@pytest.mark.parametrize("kind", CONTEXTS)
def test_nothing_of_a_local_service_is_verified(
    local: Any, shop: Any, kind: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    if version == ssl.TLSVersion.TLSv1_2 and kind in ("P-521", "Ed448", "RSASSA-PSS"):
        pytest.skip("the library has no such key exchange or signature in TLS 1.2")
    service, remote, backend = shop
    context = CONTEXTS[kind](tmp_path)
    context.maximum_version = version
    with TlsServer(context=context) as server:
        addr = f"https://{server.address}"
        with local.tunnels.open(addr=addr, proto="http", name="web", schemes=["http"]) as tunnel:
            place = urlsplit(tunnel.public_url).netloc
            status, _, body = get(place, place, "/")
        assert (status, body) == (200, b"ok")
        tls = {"enabled": True, "verify": False}
        remote.backends.static.update(backend.id, address=server.address, tls=tls)

        assert visit(service) == 200
