"""Certificates: those that the service makes for itself, and those that it is given."""

from __future__ import annotations

import datetime
import json
import os
import socket
import ssl
import subprocess
import sys
from base64 import encodebytes
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

import ginnel
from test_own_api import own_addresses


def connected(address: tuple[str, int], context: ssl.SSLContext, name: str) -> dict[str, Any]:
    """What the certificate says that an address shows for a name."""
    with (
        socket.create_connection(address, 20) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        shown: Any = secure.getpeercert()
        return dict(shown)


def trusting(service: ginnel.Service) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=service.ca_pem)


def ports(service: ginnel.Service) -> list[int]:
    assert service.agent_addr
    assert service.https_url
    return [int(address.rpartition(":")[2]) for address in (service.agent_addr, service.https_url)]


def test_the_service_is_dialed_by_any_of_its_addresses() -> None:
    options: dict[str, Any] = {"host": "0.0.0.0", "edge_host": "0.0.0.0"}
    with ginnel.Service(public_url="https://api.example.test:8443/x", **options) as service:
        context = trusting(service)
        addresses = [address for address in own_addresses()[1:] if ":" not in address]
        for port in ports(service):
            # OpenSSL checks an address, and asks for no name.
            for host in ("127.0.0.1", *addresses):
                shown = connected((host, port), context, host)
                names = {name for _, name in shown["subjectAltName"]}
                assert {"localhost", "api.example.test", "127.0.0.1"} <= names
                assert "0:0:0:0:0:0:0:1" in names
            for name in ("localhost", "api.example.test", "other.example.test"):
                connected(("127.0.0.1", port), context, name)


def test_an_address_of_its_own_is_in_the_certificate() -> None:
    with ginnel.Service(host="127.0.0.7", edge_host="127.0.0.8") as service:
        for port, host in zip(ports(service), ("127.0.0.7", "127.0.0.8"), strict=True):
            connected((host, port), trusting(service), host)
            with pytest.raises(ssl.SSLCertVerificationError):
                connected((host, port), trusting(service), "127.0.0.9")


def test_an_agent_dials_an_address_of_the_machine() -> None:
    for host in own_addresses()[1:2]:
        with ginnel.Service(host="0.0.0.0") as service:
            address = f"{host}:{ports(service)[0]}"
            with ginnel.Agent(service, server_addr=address, timeout=20) as agent:
                assert agent.url


def test_a_given_certificate_is_shown_to_agents_that_dial_its_name(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    given = authority.issue_cert("agents.example.test")
    chain.write_bytes(b"".join(part.bytes() for part in given.cert_chain_pems))
    key.write_bytes(given.private_key_pem.bytes())
    with ginnel.Service(certificate=(chain, key)) as service:
        theirs = ssl.create_default_context()
        authority.configure_trust(theirs)
        for port in ports(service):
            connected(("127.0.0.1", port), theirs, "agents.example.test")
            for name in ("localhost", "127.0.0.1", "other.example.test"):
                connected(("127.0.0.1", port), trusting(service), name)
                with pytest.raises(ssl.SSLCertVerificationError):
                    connected(("127.0.0.1", port), theirs, name)


Pair = tuple[bytes, bytes]
DAY = datetime.timedelta(days=1)


def pair(private: Any = None, *, named: bool = True, ends: datetime.timedelta = 30 * DAY) -> Pair:
    """A certificate that signs itself, and its key."""
    private = private or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.test")])
    now = datetime.datetime.now(datetime.UTC)
    building = x509.CertificateBuilder(name, name, private.public_key())
    building = building.serial_number(7).not_valid_before(now - 60 * DAY)
    building = building.not_valid_after(now + ends)
    if named:
        names = x509.SubjectAlternativeName([x509.DNSName("a.test")])
        building = building.add_extension(names, critical=False)
    digest = None if isinstance(private, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return building.sign(private, digest).public_bytes(Encoding.PEM), secret(private)


def secret(private: Any, encryption: Any = None) -> bytes:
    encryption = encryption or NoEncryption()
    written: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return written


def wrapped(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def pieces(der: bytes) -> list[bytes]:
    """The values in a sequence, each with its tag and its length."""
    found = []
    while der:
        length, start = der[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        found.append(der[: start + length])
        der = der[start + length :]
    return found


def inside(der: bytes) -> bytes:
    return der[2 + (der[1] & 0x7F if der[1] & 0x80 else 0) :]


def of_version(number: int, pem: bytes) -> bytes:
    """A certificate of an older version: without extensions, and the first without a number."""
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    signed, *rest = pieces(inside(der))
    _, *fields = (piece for piece in pieces(inside(signed)) if piece[0] != 0xA3)
    version = b"" if number == 1 else bytes([0xA0, 3, 2, 1, number - 1])
    signed = wrapped(0x30, version + b"".join(fields))
    return ssl.DER_cert_to_PEM_cert(wrapped(0x30, signed + b"".join(rest))).encode()


def version_one() -> Pair:
    chain, key = pair()
    return of_version(1, chain), key


def version_two() -> Pair:
    chain, key = pair()
    return of_version(2, chain), key


def among_others() -> Pair:
    chain, key = pair()
    return b"words\n" + chain + b"more words\n" + pair()[0] + b"\x00\xff", b"words\n" + key


def encrypted() -> Pair:
    private = ec.generate_private_key(ec.SECP256R1())
    return pair(private)[0], secret(private, BestAvailableEncryption(b"swordfish"))


def damaged() -> Pair:
    chain, key = pair()
    lines = chain.splitlines()
    return b"\n".join([lines[0], lines[1], lines[-1]]), key


def der() -> Pair:
    chain, key = pair()
    return ssl.PEM_cert_to_DER_cert(chain.decode()), key


def no_der() -> Pair:
    text = encodebytes(b"no certificate")
    begin, end = b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"
    return begin + text + end, pair()[1]


GOOD: dict[str, Callable[[], Pair]] = {
    "elliptic curve": pair,
    "RSA": lambda: pair(rsa.generate_private_key(65537, 2048)),
    "Ed25519": lambda: pair(ed25519.Ed25519PrivateKey.generate()),
    "expired": lambda: pair(ends=-DAY),
    "no names": lambda: pair(named=False),
    "among others": among_others,
}
BAD: dict[str, tuple[Callable[[], Pair], str, str]] = {
    "version 1": (version_one, "crt", "X.509 version 1"),
    "version 2": (version_two, "crt", "X.509 version 2"),
    "empty": (lambda: (b"", pair()[1]), "crt", "is empty"),
    "DER": (der, "crt", "is DER, not PEM"),
    "no PEM": (lambda: (b"words", pair()[1]), "crt", "holds no certificate"),
    "a key for a certificate": (lambda: (pair()[1], pair()[1]), "crt", "holds no certificate"),
    "damaged": (damaged, "crt", "damaged"),
    "no certificate inside": (no_der, "crt", "damaged"),
    "empty key": (lambda: (pair()[0], b""), "key", "is empty"),
    "no key": (lambda: (pair()[0], pair()[0]), "key", "holds no private key"),
    "another key": (lambda: (pair()[0], pair()[1]), "key", "is not the key of the certificate"),
    "encrypted key": (encrypted, "key", "is encrypted"),
}
TUNNELS: dict[str, dict[str, object]] = {
    "agent": {"proto": "tls", "terminate_at": "agent"},
    "service": {"proto": "tls", "terminate_at": "edge"},
    "labeled": {"labels": ["a=b"]},
}


def written(folder: Path, made: Pair) -> tuple[Path, Path]:
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made[0])
    key.write_bytes(made[1])
    return chain, key


def start(agent: ginnel.Agent, files: tuple[Path, Path], kind: str) -> tuple[int, str]:
    chain, key = map(str, files)
    given = {"name": kind, "addr": 80, "crt": chain, "key": key, **TUNNELS[kind]}
    body, headers = json.dumps(given).encode(), {"Content-Type": "application/json"}
    try:
        with urlopen(Request(f"{agent.url}/api/tunnels", body, headers), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_certificate_is_taken(service: ginnel.Service, tmp_path: Path, kind: str) -> None:
    files = written(tmp_path, GOOD[kind]())
    with ginnel.Agent(service) as agent:
        for tunnel in TUNNELS:
            status, text = start(agent, files, tunnel)
            assert status == 201, text
    service.use_certificate(*files)


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_certificate_is_refused_with_the_reason(
    service: ginnel.Service, tmp_path: Path, kind: str
) -> None:
    make, field, reason = BAD[kind]
    files = written(tmp_path, make())
    with ginnel.Agent(service) as agent:
        for tunnel in TUNNELS:
            status, text = start(agent, files, tunnel)
            assert status == 400, text
            assert f"{field}: " in text
            assert reason in text, text
    file = files[0] if field == "crt" else files[1]
    for use in (
        lambda: service.use_certificate(*files),
        lambda: ginnel.Service(certificate=files),
    ):
        with pytest.raises(ginnel.ServiceError) as refused:
            use()
        assert file.name in str(refused.value)
        assert reason in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such pipes")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_certificate_is_read_from_a_regular_file_alone(
    service: ginnel.Service, tmp_path: Path, kind: str
) -> None:
    chain, key = written(tmp_path, pair())
    odd = Path("/dev/zero") if kind == "device" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(odd)
    for files in ((odd, key), (chain, odd)):
        command = [sys.executable, "-m", "ginnel", "serve"]
        command += ["--certificate", str(files[0]), "--certificate-key", str(files[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode != 0
        assert f"{odd}: is not a regular file" in done.stderr
    with ginnel.Agent(service) as agent:
        for tunnel in TUNNELS:
            status, text = start(agent, (odd, key), tunnel)
            assert status == 400, text
            assert f"crt: {odd}: is not a regular file" in text


@pytest.mark.parametrize("kind", [*GOOD, *BAD])
def test_an_upload_that_is_no_authority_is_refused(service: ginnel.Service, kind: str) -> None:
    chain = GOOD[kind]()[0] if kind in GOOD else BAD[kind][0]()[0]
    with (
        ginnel.RemoteClient(service.api_key, base_url=service.url, max_retries=0) as remote,
        pytest.raises(ginnel.BadRequestError) as refused,
    ):
        remote.certificate_authorities.create(ca_pem=chain.decode("latin-1"))

    assert "ca_pem" in str(refused.value)
    if kind.startswith("version"):
        assert kind in str(refused.value)
