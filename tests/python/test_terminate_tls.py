"""`terminate-tls`: how TLS ends at the service is said by the policy of an endpoint."""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import ginnel
from recorder import Recorder

NAME = "tls.example.test"


class Authority:
    """Who signs certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self.builder(self.name, self.key).add_extension(constraints, critical=True)
        self.pem = self.text(made.sign(self.key, hashes.SHA256()))

    def builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    @staticmethod
    def text(certificate: x509.Certificate) -> str:
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, usage: x509.ObjectIdentifier) -> tuple[str, str]:
        """A certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self.builder(subject, key)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self.text(made.sign(self.key, hashes.SHA256())), private.decode()

    def visitor(self) -> str:
        """The path of a certificate and a key for a visitor."""
        path = self.folder / "visitor.pem"
        path.write_text("".join(self.issue("visitor.test", ExtendedKeyUsageOID.CLIENT_AUTH)))
        return str(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "an authority")


@pytest.fixture
def upstream() -> Iterator[int]:
    with Recorder() as recorder:
        yield recorder.port


def policy(**config: Any) -> dict[str, Any]:
    return {"on_tcp_connect": [{"actions": [{"type": "terminate-tls", "config": config}]}]}


def visit(
    address: tuple[str, int],
    trusted: str,
    *,
    name: str = NAME,
    most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    shown: str | None = None,
) -> str | None:
    """Asks over TLS; the version that was spoken, or none where the service would not."""
    context = ssl.create_default_context(cadata=trusted)
    context.maximum_version = most
    if shown:
        context.load_cert_chain(shown)
    try:
        with (
            socket.create_connection(address, timeout=20) as plain,
            context.wrap_socket(plain, server_hostname=name) as visitor,
        ):
            visitor.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            if not visitor.recv(12).startswith(b"HTTP/1.1 200"):
                return None
            return visitor.version()
    except (ssl.SSLError, ConnectionError):
        return None


def place(url: str | None) -> tuple[str, int]:
    parts = urlsplit(url or "")
    assert parts.port
    return "127.0.0.1", parts.port


def test_tls_ends_at_the_service_in_the_versions_of_the_policy(
    service: ginnel.Service, upstream: int
) -> None:
    with ginnel.Agent(service) as agent, agent.client() as local:
        newest = policy(min_version="1.3")
        with local.tunnels.open(
            addr=upstream, proto="tls", name="new", traffic_policy=newest
        ) as tunnel:
            address = place(tunnel.public_url)
            assert visit(address, service.ca_pem) == "TLSv1.3"
            assert visit(address, service.ca_pem, most=ssl.TLSVersion.TLSv1_2) is None
        with local.tunnels.open(
            addr=upstream,
            proto="tls",
            name="old",
            traffic_policy=policy(max_version="1.2"),
        ) as tunnel:
            assert visit(place(tunnel.public_url), service.ca_pem) == "TLSv1.2"


def test_tls_ends_with_the_certificate_of_the_policy(
    service: ginnel.Service, upstream: int, authority: Authority
) -> None:
    chain, key = authority.issue(NAME, ExtendedKeyUsageOID.SERVER_AUTH)
    own = policy(server_certificate=chain, server_private_key=key)

    with ginnel.Agent(service) as agent, agent.client() as local:
        with local.tunnels.open(
            addr=upstream, proto="tls", name="own", traffic_policy=own
        ) as tunnel:
            assert visit(place(tunnel.public_url), authority.pem) == "TLSv1.3"
            assert visit(place(tunnel.public_url), service.ca_pem) is None
        wrong = policy(server_certificate=chain, server_private_key=chain)
        with pytest.raises(ginnel.APIStatusError, match="key"):
            local.tunnels.start(addr=upstream, proto="tls", name="wrong", traffic_policy=wrong)


def test_visitors_must_show_a_certificate_that_the_policy_trusts(
    service: ginnel.Service, upstream: int, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "another authority")
    mutual = policy(mutual_tls_certificate_authorities=[authority.pem])

    with (
        ginnel.Agent(service) as agent,
        agent.client() as local,
        local.tunnels.open(
            addr=upstream, proto="tls", name="mutual", traffic_policy=mutual
        ) as tunnel,
    ):
        address = place(tunnel.public_url)
        assert visit(address, service.ca_pem, shown=authority.visitor())
        assert visit(address, service.ca_pem, shown=other.visitor()) is None
        assert visit(address, service.ca_pem) is None


def test_https_ends_as_the_policy_says(
    service: ginnel.Service, upstream: int, authority: Authority
) -> None:
    chain, key = authority.issue(NAME, ExtendedKeyUsageOID.SERVER_AUTH)
    own = policy(server_certificate=chain, server_private_key=key, min_version="1.3")
    shared = place(service.edge_url(NAME))

    with (
        ginnel.Agent(service) as agent,
        agent.client() as local,
        local.tunnels.open(
            addr=upstream,
            proto="http",
            schemes=["https"],
            hostname=NAME,
            name="https",
            traffic_policy=own,
        ) as tunnel,
    ):
        address = place(tunnel.public_url) if urlsplit(tunnel.public_url or "").port else shared
        assert visit(address, authority.pem) == "TLSv1.3"
        assert visit(address, authority.pem, most=ssl.TLSVersion.TLSv1_2) is None
        assert visit(address, service.ca_pem) is None


@pytest.mark.parametrize("proto", ["tcp", "http"])
def test_an_endpoint_without_tls_has_none_to_end(
    service: ginnel.Service, upstream: int, proto: Any
) -> None:
    options: dict[str, Any] = {"schemes": ["http"]} if proto == "http" else {}
    with (
        ginnel.Agent(service) as agent,
        agent.client() as local,
        pytest.raises(ginnel.APIStatusError, match="needs an endpoint with TLS"),
    ):
        local.tunnels.start(
            addr=upstream, proto=proto, name="plain", traffic_policy=policy(), **options
        )
