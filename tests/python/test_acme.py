"""Certificates by ACME, from a real authority: pebble, over both challenges."""

from __future__ import annotations

import contextlib
import signal
import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

import ginnel
from ginnel.remote.reserved_domains import ProvisioningJob
from ginnel.remote.tls_certificates import TlsCertificate
from pebble import BLOCKED, Pebble, pebble
from processes import PATIENCE, Command, wait_until
from test_certificates import connected
from test_reserved_domains import uploaded

LETS_ENCRYPT = ["--acme-directory", "letsencrypt", "--acme-agree-to-terms"]


@dataclass
class Served:
    """A service at work."""

    command: Command
    where: dict[str, Any]
    remote: ginnel.RemoteClient

    def has_said(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.command.complaints)


@contextlib.contextmanager
def serving(
    authority: Pebble, path: Path, *options: str, end: int = signal.SIGTERM
) -> Iterator[Served]:
    """`ginnel serve` on a database, and a client of it."""
    arguments = ("--path", str(path), *authority.ports, *authority.options, *options)
    with Command("serve", *arguments, GINNEL_LOG="info") as command:
        where = command.line()
        key = path.with_suffix(".admin")
        if where["api_key"]:
            key.write_text(where["api_key"])
        with ginnel.RemoteClient(key.read_text(), base_url=where["url"]) as remote:
            yield Served(command, where, remote)
        command.process.send_signal(end)
        command.ended()


def edge(remote: ginnel.RemoteClient, *names: str) -> str:
    return remote.edges.https.create(hostports=[f"{name}:443" for name in names]).id


def of_name(remote: ginnel.RemoteClient, name: str) -> TlsCertificate | None:
    """The certificate for a name that the service has obtained."""
    for certificate in remote.tls_certificates.list():
        names = certificate.subject_alternative_names
        if names and name in (names.dns_names or []):
            return certificate
    return None


def obtained(remote: ginnel.RemoteClient, name: str, seconds: float = PATIENCE) -> TlsCertificate:
    found: list[TlsCertificate] = []

    def is_there() -> bool:
        certificate = of_name(remote, name)
        found.extend([certificate] if certificate else [])
        return certificate is not None

    wait_until(is_there, f"a certificate for {name}", seconds)
    return found[-1]


def shown(authority: Pebble, trust: ssl.SSLContext, name: str) -> dict[str, Any]:
    return connected(("127.0.0.1", authority.https_port), trust, name)


def is_trusted(authority: Pebble, trust: ssl.SSLContext, name: str) -> bool:
    with contextlib.suppress(ssl.SSLCertVerificationError):
        return bool(shown(authority, trust, name))
    return False


@pytest.mark.parametrize("challenge", ["http-01", "tls-alpn-01"])
def test_edges_get_certificates_over_each_challenge(tmp_path: Path, challenge: str) -> None:
    # Nonces are refused so often that some orders fail and are tried again.
    options = ["--acme-challenges", challenge, "--acme-retry-after", "1s"]
    options += ["--acme-email", "ops@example.test"]
    with (
        pebble(tmp_path, PEBBLE_WFE_NONCEREJECT="30") as authority,
        serving(authority, tmp_path / "a.db", *options) as served,
    ):
        remote = served.remote
        edge(remote, "one.example.test", "two.example.test")
        trust = authority.trust()

        for name in ("one.example.test", "two.example.test"):
            certificate = obtained(remote, name, seconds=180)
            assert certificate.issued_at is not None
            assert certificate.private_key_type == "ecdsa"
            assert certificate.issuer_common_name
            assert certificate.issuer_common_name.startswith("Pebble")
            wait_until(partial(is_trusted, authority, trust, name), "it is shown")
        assert len(remote.tls_certificates.list().to_list()) == 2
        log = (tmp_path / "pebble.log").read_text()
        assert ("validate w/ HTTP" in log) == (challenge == "http-01")


def test_tunnels_reserved_domains_and_the_service_itself_get_certificates(tmp_path: Path) -> None:
    options = ("--base-domain", "example.test", "--public-url", "https://api.example.test")
    with (
        pebble(tmp_path) as authority,
        serving(authority, tmp_path / "a.db", *options) as served,
    ):
        remote = served.remote
        assert obtained(remote, "api.example.test")
        domain = remote.reserved_domains.create(domain="mine.example.test")
        certificate = obtained(remote, "mine.example.test")
        domain = remote.reserved_domains.get(domain.id)
        assert domain.certificate
        assert domain.certificate.id == certificate.id
        policy, status = domain.certificate_management_policy, domain.certificate_management_status
        assert policy
        assert (policy.authority, policy.private_key_type) == ("acme", "ecdsa")
        assert status
        assert status.provisioning_job is None
        assert status.renews_at
        assert certificate.not_before
        assert certificate.not_after
        life = certificate.not_after - certificate.not_before
        assert abs((certificate.not_after - status.renews_at) * 3 - life).total_seconds() < 4
        session = ginnel.Agent(
            server_addr=served.where["agent_addr"],
            ca=served.where["ca_path"],
            authtoken=remote.credentials.create().token,
            timeout=20,
        )
        with session as agent:
            agent.client().tunnels.start(addr=1, proto="http", name="a", subdomain="app")
            assert obtained(remote, "app.example.test")


def test_a_certificate_is_renewed_at_two_thirds_of_its_life(tmp_path: Path) -> None:
    with (
        pebble(tmp_path, lifetime=30) as authority,
        serving(authority, tmp_path / "a.db") as served,
    ):
        remote, name = served.remote, "app.example.test"
        edge(remote, name)
        first = obtained(remote, name)
        remote.tls_certificates.update(first.id, description="kept")

        def renewed() -> TlsCertificate:
            return remote.tls_certificates.get(first.id)

        wait_until(lambda: renewed().serial_number != first.serial_number, "a renewal", 90)
        second = renewed()
        assert (second.description, second.created_at) == ("kept", first.created_at)
        assert first.not_before
        assert second.not_before
        # A third of thirty seconds may be left; pebble and the service round to whole ones.
        assert (second.not_before - first.not_before).total_seconds() >= 19
        assert len(remote.tls_certificates.list().to_list()) == 1
        trust = authority.trust()

        def is_new() -> bool:
            # One that has ended meanwhile is trusted no more.
            with contextlib.suppress(ssl.SSLCertVerificationError):
                serial = shown(authority, trust, name)["serialNumber"].lower().lstrip("0")
                return bool(serial == (renewed().serial_number or "").lstrip("0"))
            return False

        wait_until(is_new, "the new one is shown")


def test_a_refused_name_says_why_and_holds_up_nobody(tmp_path: Path) -> None:
    with pebble(tmp_path) as authority, serving(authority, tmp_path / "a.db") as served:
        remote = served.remote
        domain = remote.reserved_domains.create(domain=BLOCKED)
        edge(remote, "app.example.test")

        assert obtained(remote, "app.example.test")
        job = failed(remote, domain.id)
        assert job.error_code == "rejectedIdentifier"
        assert BLOCKED in (job.msg or "")
        assert job.started_at
        assert job.retries_at
        assert (job.retries_at - job.started_at).total_seconds() == 24 * 3600
        assert served.has_said(BLOCKED, "could not be obtained", "rejectedIdentifier")
        assert of_name(remote, BLOCKED) is None


def failed(remote: ginnel.RemoteClient, domain: str) -> ProvisioningJob:
    found: list[ProvisioningJob] = []

    def has_failed() -> bool:
        status = remote.reserved_domains.get(domain).certificate_management_status
        job = status.provisioning_job if status else None
        found.extend([job] if job and job.error_code else [])
        return bool(found)

    wait_until(has_failed, "a failure")
    return found[-1]


def test_a_name_is_tried_again_until_the_authority_finds_it(tmp_path: Path) -> None:
    options = ("--acme-retry-after", "1s")
    with (
        pebble(tmp_path) as authority,
        serving(authority, tmp_path / "a.db", *options) as served,
    ):
        remote, name = served.remote, "late.example.test"
        authority.resolve(name, fails=True)
        domain = remote.reserved_domains.create(domain=name)

        job = failed(remote, domain.id)
        authority.resolve(name, fails=False)

        assert job.error_code in ("dns", "connection", "unauthorized")
        assert name in (job.msg or "")
        assert obtained(remote, name)
        status = remote.reserved_domains.get(domain.id).certificate_management_status
        assert status
        assert status.provisioning_job is None


def test_a_service_that_was_killed_goes_on_with_its_account(tmp_path: Path) -> None:
    path, name = tmp_path / "a.db", "slow.example.test"
    # The authority looks at a name only after some seconds.
    with pebble(tmp_path, PEBBLE_VA_NOSLEEP="0", PEBBLE_VA_SLEEPTIME="3") as authority:
        log = tmp_path / "pebble.log"
        with serving(authority, path, end=signal.SIGKILL) as served:
            edge(served.remote, name, "other.example.test")
            wait_until(lambda: "There are now 2 orders" in log.read_text(), "two orders")
            assert of_name(served.remote, name) is None

        with serving(authority, path) as served:
            for one in (name, "other.example.test"):
                assert obtained(served.remote, one)
            first = obtained(served.remote, name)
        assert log.read_text().count("There are now 1 accounts") == 1
        assert "There are now 2 accounts" not in log.read_text()

        # What is valid is shown at once after the next start, and not ordered again.
        orders = log.read_text().count("POST /order-plz")
        with serving(authority, path) as served:
            trust = authority.trust()
            assert is_trusted(authority, trust, name)
            time.sleep(1)
            again = obtained(served.remote, name)
            assert (again.id, again.serial_number) == (first.id, first.serial_number)
        assert log.read_text().count("POST /order-plz") == orders


def test_names_with_a_certificate_of_their_own_are_not_ordered(tmp_path: Path) -> None:
    theirs = trustme.CA()
    given = theirs.issue_cert("given.example.test", "*.wild.example.test")
    given.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    given.private_key_pem.write_to_path(tmp_path / "key.pem")
    options = ["--certificate", str(tmp_path / "chain.pem")]
    options += ["--certificate-key", str(tmp_path / "key.pem")]
    with (
        pebble(tmp_path) as authority,
        serving(authority, tmp_path / "a.db", *options) as served,
    ):
        remote = served.remote
        own = remote.tls_certificates.create(**uploaded(theirs, "own.example.test"))
        remote.reserved_domains.create(domain="own.example.test", certificate_id=own.id)
        edge(remote, "own.example.test", "given.example.test", "a.wild.example.test")
        edge(remote, "*.example.test", "app.internal", "a_b.example.test", "127.0.0.1")
        edge(remote, "last.example.test")

        assert obtained(remote, "last.example.test")

        listed = [certificate.id for certificate in remote.tls_certificates.list()]
        assert listed[1:] == [own.id]


def test_a_deleted_certificate_is_obtained_again(tmp_path: Path) -> None:
    with pebble(tmp_path) as authority, serving(authority, tmp_path / "a.db") as served:
        remote, name = served.remote, "app.example.test"
        edge_id = edge(remote, name)
        first = obtained(remote, name)

        remote.tls_certificates.delete(first.id)

        second = obtained(remote, name)
        assert second.id != first.id
        remote.edges.https.delete(edge_id)
        time.sleep(1)
        # It may come back before the certificate expires.
        assert obtained(remote, name) == second


def test_secrets_are_neither_listed_nor_logged(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pebble(tmp_path) as authority, serving(authority, path) as served:
        edge(served.remote, "app.example.test")
        certificate = obtained(served.remote, "app.example.test")

        wait_until(lambda: served.has_said("app.example.test", "was obtained"), "a line")
        assert "PRIVATE KEY" not in repr(certificate.to_dict())
        assert "PRIVATE KEY" not in "".join(served.command.complaints)
    assert path.stat().st_mode & 0o077 == 0
    with contextlib.closing(sqlite3.connect(path)) as database:
        settings = dict(database.execute("SELECT name, value FROM meta"))
    [account] = [value for name, value in settings.items() if name.startswith("acme_account:")]
    assert "key_pkcs8" in account


def test_other_requests_are_served_while_challenges_are_open(tmp_path: Path) -> None:
    with (
        pebble(tmp_path, PEBBLE_VA_NOSLEEP="0", PEBBLE_VA_SLEEPTIME="2") as authority,
        serving(authority, tmp_path / "a.db") as served,
    ):
        remote, name = served.remote, "app.example.test"
        backend = remote.backends.http_response.create(body="ours", status_code=200).id
        remote.edges.https.routes.create(
            edge(remote, name),
            match_type="path_prefix",
            match="/",
            backend={"backend_id": backend},
        )
        trust = ssl.create_default_context(cafile=served.where["ca_path"])
        address = ("127.0.0.1", authority.https_port)
        # A token that is not ours is for whoever is behind the edge, such as another ACME client.
        while of_name(remote, name) is None:
            for path in ("/", "/.well-known/acme-challenge/theirs"):
                with contextlib.suppress(ssl.SSLCertVerificationError):
                    assert fetched(address, trust, name, path) == "ours"


def fetched(address: tuple[str, int], trust: ssl.SSLContext, name: str, path: str) -> str:
    with (
        socket.create_connection(address, 20) as plain,
        trust.wrap_socket(plain, server_hostname=name) as secure,
    ):
        secure.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        text = b"".join(iter(lambda: secure.recv(4096), b"")).decode()
        return text.partition("\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([*LETS_ENCRYPT[:2]], "agree_to_terms"),
        (["--acme-directory", "http://a.test/", "--acme-agree-to-terms"], "https://"),
        ([*LETS_ENCRYPT, "--acme-email", "ops"], "acme-email"),
        ([*LETS_ENCRYPT, "--https-port", "none"], "HTTPS"),
        ([*LETS_ENCRYPT, "--acme-ca", "/nowhere"], "/nowhere"),
        ([*LETS_ENCRYPT, "--acme-challenges", "dns-01"], "dns-01"),
        ([*LETS_ENCRYPT, "--acme-retry-after", "0s"], "acme-retry-after"),
    ],
)
def test_options_that_cannot_work_are_refused(options: list[str], problem: str) -> None:
    with Command("serve", *options) as command:
        code, complaint = command.ended()

    assert code != 0
    assert problem in complaint
    assert complaint.count("\n") == 1
