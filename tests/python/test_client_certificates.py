"""What rules see of the certificates of visitors: `conn.tls.client`."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
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

HOST = "mutual.example.test"
BEGIN = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
END = datetime.datetime(2046, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
ATTRIBUTES = {
    "country": NameOID.COUNTRY_NAME,
    "locality": NameOID.LOCALITY_NAME,
    "organization": NameOID.ORGANIZATION_NAME,
    "organizational_unit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "postal_code": NameOID.POSTAL_CODE,
    "province": NameOID.STATE_OR_PROVINCE_NAME,
    "street_address": NameOID.STREET_ADDRESS,
    "common_name": NameOID.COMMON_NAME,
}


def named(**values: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(ATTRIBUTES[name], it) for name, it in values.items()])


ISSUER = named(
    country="GB",
    locality="York",
    organization="Tea",
    organizational_unit="Leaves",
    postal_code="YO1",
    province="Yorkshire",
    street_address="1 Pot Lane",
    common_name="the tea authority",
)
SUBJECT = named(
    country="SE",
    locality="Lund",
    organization="Milk, Ltd",
    organizational_unit="Cows",
    postal_code="222",
    province="Skåne",
    street_address="2 Churn Way",
    common_name="ada",
)


class Certificates:
    """An authority, and a visitor with a certificate of it."""

    def __init__(self, folder: Path) -> None:
        key, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        common = x509.CertificateBuilder().issuer_name(ISSUER)
        common = common.not_valid_before(BEGIN).not_valid_after(END).serial_number(0xB530)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        authority = common.subject_name(ISSUER).public_key(key.public_key())
        authority = authority.add_extension(constraints, critical=True)
        self.authority = self.text(authority.sign(key, hashes.SHA256()))
        names = x509.SubjectAlternativeName(
            [
                x509.DNSName("ada.example.test"),
                x509.RFC822Name("ada@example.test"),
                x509.IPAddress(ipaddress.ip_address("192.0.2.1")),
                x509.UniformResourceIdentifier("spiffe://example.test/ada"),
            ]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        visitor = common.subject_name(SUBJECT).public_key(own.public_key())
        visitor = visitor.add_extension(names, critical=False).add_extension(usage, critical=True)
        self.visitor = self.text(visitor.sign(key, hashes.SHA256()))
        private = own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.path = folder / "visitor.pem"
        self.path.write_text(self.visitor + private.decode())

    @staticmethod
    def text(certificate: x509.Certificate) -> str:
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def expected(certificates: Certificates) -> dict[str, Any]:
    """Each variable, or what is asked of it, with what it holds."""
    san = "DNS:ada.example.test, email:ada@example.test, IP Address:192.0.2.1"
    subject = r"CN=ada,STREET=2 Churn Way,ST=Skåne,POSTALCODE=222,OU=Cows,O=Milk\, Ltd,L=Lund,C=SE"
    holds = {
        "issuer": "CN=the tea authority,STREET=1 Pot Lane,ST=Yorkshire,POSTALCODE=YO1,OU=Leaves,"
        "O=Tea,L=York,C=GB",
        "issuer.common_name": "the tea authority",
        "issuer.country": ["GB"],
        "issuer.locality": ["York"],
        "issuer.organization": ["Tea"],
        "issuer.organizational_unit": ["Leaves"],
        "issuer.postal_code": ["YO1"],
        "issuer.province": ["Yorkshire"],
        "issuer.street_address": ["1 Pot Lane"],
        "pem": certificates.visitor.strip(),
        "san": f"{san}, URI:spiffe://example.test/ada",
        "san.dns_names": ["ada.example.test"],
        "san.email_addresses": ["ada@example.test"],
        "san.ip_addresses": ["192.0.2.1"],
        "san.uris": ["spiffe://example.test/ada"],
        "serial_number": "b530",
        "signature_algorithm": "ECDSA-SHA256",
        "subject": subject,
        "subject.common_name": "ada",
        "subject.country": ["SE"],
        "subject.locality": ["Lund"],
        "subject.organization": ["Milk, Ltd"],
        "subject.organizational_unit": ["Cows"],
        "subject.postal_code": ["222"],
        "subject.province": ["Skåne"],
        "subject.street_address": ["2 Churn Way"],
    }
    asked = {f"conn.tls.client.{name}": value for name, value in holds.items()}
    extensions, validity = "conn.tls.client.extensions", "conn.tls.client.validity"
    return asked | {
        f"{extensions}.map(it, it.id)": ["2.5.29.17", "2.5.29.37"],
        f"{extensions}.map(it, it.critical)": [False, True],
        f"size({extensions}[1].value) > 0": True,
        f"{validity}.not_before == timestamp('2026-01-02T03:04:05Z')": True,
        f"{validity}.not_after.getFullYear()": 2046,
    }


def answer(questions: list[str]) -> dict[str, Any]:
    """A rule that answers with the values of expressions, a line each."""
    content = "\n".join(f"${{json.encode({question})}}" for question in questions)
    config = {"status_code": 200, "content": content}
    return {"actions": [{"type": "custom-response", "config": config}]}


def ask(
    service: ginnel.Service, url: str, *, shown: Path | None = None, alpn: str = "http/1.1"
) -> list[str] | None:
    """The lines of the answer at the address of an edge; none where there was none."""
    context = ssl.create_default_context(cadata=service.ca_pem)
    context.set_alpn_protocols([alpn])
    if shown:
        context.load_cert_chain(shown)
    parts = urlsplit(url)
    try:
        with (
            socket.create_connection(("127.0.0.1", parts.port or 443), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as visitor,
        ):
            host = f"{parts.hostname}:{parts.port}"
            visitor.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            received = b"".join(iter(lambda: visitor.recv(65536), b""))
    except (ssl.SSLError, ConnectionError):
        return None
    return received.partition(b"\r\n\r\n")[2].decode().splitlines()


def edge(service: ginnel.Service, policy: Any, **modules: Any) -> str:
    with service.client() as remote:
        made = remote.edges.https.create(hostports=[f"{HOST}:443"], **modules)
        remote.edges.https.routes.create(
            made.id, match_type="path_prefix", match="/", policy=policy
        )
    return service.edge_url(HOST)


def mutual(service: ginnel.Service, certificates: Certificates) -> dict[str, Any]:
    with service.client() as remote:
        made = remote.certificate_authorities.create(ca_pem=certificates.authority)
    return {"certificate_authority_ids": [made.id]}


def test_rules_of_an_edge_see_each_part_of_a_certificate(
    service: ginnel.Service, certificates: Certificates
) -> None:
    wanted = expected(certificates)
    policy = {"inbound": [answer(list(wanted))]}
    url = edge(service, policy, mutual_tls=mutual(service, certificates))

    lines = ask(service, url, shown=certificates.path)

    assert lines is not None
    seen = dict(zip(wanted, map(json.loads, lines), strict=True))
    assert seen == wanted
    assert ask(service, url) is None, "nobody comes in without a certificate"


def test_rules_of_an_agent_that_ends_tls_see_it(
    service: ginnel.Service, certificates: Certificates
) -> None:
    ends = {"mutual_tls_certificate_authorities": [certificates.authority]}
    policy = {
        "on_tcp_connect": [{"actions": [{"type": "terminate-tls", "config": ends}]}],
        "on_http_request": [
            {
                "expressions": ["conn.tls.client.subject.common_name != 'ada'"],
                "actions": [{"type": "deny"}],
            },
            answer(["conn.tls.client.san.uris"]),
        ],
    }
    with Recorder() as recorder, ginnel.Agent(service) as agent, agent.client() as local:
        tunnel = local.tunnels.start(
            addr=recorder.port,
            proto="http",
            schemes=["https"],
            hostname=HOST,
            name="web",
            traffic_policy=policy,
        )
        port = urlsplit(tunnel.public_url or "").port or urlsplit(service.edge_url(HOST)).port

        lines = ask(service, f"https://{HOST}:{port}", shown=certificates.path)

    assert lines == ['["spiffe://example.test/ada"]']


def test_without_a_certificate_texts_and_lists_are_empty(service: ginnel.Service) -> None:
    wanted = {
        "conn.tls.client.subject.common_name": "",
        "conn.tls.client.issuer": "",
        "conn.tls.client.san.dns_names": [],
        "conn.tls.client.subject.organization": [],
        "conn.tls.client.extensions": [],
    }
    url = edge(service, {"inbound": [answer(list(wanted))]})

    lines = ask(service, url)

    assert lines is not None
    assert dict(zip(wanted, map(json.loads, lines), strict=True)) == wanted


def test_a_variable_that_no_certificate_has_is_refused(service: ginnel.Service) -> None:
    policy = {"inbound": [answer(["conn.tls.client.subject.mood"])]}

    with pytest.raises(ginnel.BadRequestError, match="unknown variable"):
        edge(service, policy)
