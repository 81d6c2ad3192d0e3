"""Encrypted connections: whom a client trusts."""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import ginnel
from server import Server, answer

KEY = {"id": "ak_1", "uri": "u"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(made)
    return made


async def test_a_bundle_is_trusted_and_the_connection_kept(
    make_client: Any, authority: trustme.CA, bundle: Path
) -> None:
    with Server([answer(200, KEY)] * 3, tls=context(authority, "127.0.0.1")) as server:
        client = make_client("k", base_url=server.url, ca_bundle=bundle)

        for _ in range(3):
            await client.api_keys.get("ak_1")

        assert server.connections == 1


async def test_surplus_under_encryption_is_no_answer(
    make_client: Any, authority: trustme.CA, bundle: Path
) -> None:
    answers = [answer(200, {"id": f"ak_{turn}", "uri": "u"}) for turn in range(4)]
    answers[0] += answer(200, {"id": "ak_STOLEN", "uri": "u"})
    with Server(list(answers), tls=context(authority, "127.0.0.1")) as server:
        client = make_client("k", base_url=server.url, ca_bundle=bundle)

        got = [(await client.api_keys.get(f"ak_{turn}")).id for turn in range(4)]

        assert got == [f"ak_{turn}" for turn in range(4)]
        assert server.connections == 4


async def test_the_bundle_of_the_environment(
    make_client: Any, authority: trustme.CA, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GINNEL_CA_BUNDLE", str(bundle))
    with Server([answer(200, KEY)], tls=context(authority, "127.0.0.1")) as server:
        client = make_client("k", base_url=server.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"


@pytest.mark.parametrize(("name", "trusted"), [("127.0.0.1", False), ("other.test", True)])
async def test_a_stranger_gets_no_key(
    make_client: Any, authority: trustme.CA, bundle: Path, name: str, trusted: bool
) -> None:
    with Server([answer(200, KEY)], tls=context(authority, name)) as server:
        options = {"ca_bundle": bundle} if trusted else {}
        client = make_client("k", base_url=server.url, max_retries=0, **options)

        with pytest.raises(ginnel.APIConnectionError, match="certificate"):
            await client.api_keys.get("ak_1")

        assert server.requests == []


DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("name", "days", "trusted", "words"),
    [
        ("127.0.0.1", (-1, 1), False, "is not trusted: no authority that this system trusts"),
        ("127.0.0.1", (-1, 1), None, "is not trusted: none of the authorities in ca_bundle"),
        ("other.test", (-1, 1), True, "is not for 127.0.0.1, but for other.test"),
        ("127.0.0.1", (-3, -2), True, "expired at 20"),
        ("127.0.0.1", (2, 3), True, "is not valid before 20"),
    ],
)
async def test_what_is_wrong_with_a_certificate_is_told(
    make_client: Any,
    authority: trustme.CA,
    tmp_path: Path,
    name: str,
    days: tuple[int, int],
    trusted: bool | None,
    words: str,
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaf = authority.issue_cert(name, not_before=now + days[0] * DAY, not_after=now + days[1] * DAY)
    leaf.configure_cert(made)
    path = tmp_path / "ca.pem"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(path)
    options = {} if trusted is False else {"ca_bundle": path}
    with Server([], tls=made) as server:
        client = make_client("k", base_url=server.url, max_retries=0, **options)

        with pytest.raises(ginnel.APIConnectionError) as caught:
            await client.api_keys.get("ak_1")

    told = str(caught.value)
    at = server.url.removeprefix("https://")
    assert f"the certificate of the server at {at} {words}" in told
    # What the library says stays there for a search.
    assert "(invalid peer certificate: " in told


@contextlib.contextmanager
def saying(text: bytes) -> Iterator[str]:
    """The address of a server that says this to whatever it gets, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(text)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        serving.join(10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS: is its address http://{at}?"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak TLS: is its address http://{at}?"),
        (b"", "closed the connection when TLS was to begin; does it speak TLS there?"),
    ],
)
async def test_a_server_without_tls_is_told(
    make_client: Any, bundle: Path, text: bytes, words: str
) -> None:
    with saying(text) as at:
        client = make_client("k", base_url=f"https://{at}", ca_bundle=bundle, max_retries=0)

        told = f"the server at {at} {words.format(at=at)}"
        with pytest.raises(ginnel.APIConnectionError, match=re.escape(told)):
            await client.api_keys.get("ak_1")


async def test_a_proxy_without_tls_is_told(make_client: Any, bundle: Path) -> None:
    with saying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as at:
        client = make_client(
            "k",
            base_url="https://api.example.test",
            proxy=f"https://{at}",
            ca_bundle=bundle,
            max_retries=0,
        )

        told = f"the proxy at {at} does not speak TLS: is its address http://{at}?"
        with pytest.raises(ginnel.APIConnectionError, match=re.escape(told)):
            await client.api_keys.get("ak_1")


async def test_a_server_with_tls_is_told(make_client: Any) -> None:
    for alert in (b"\x15\x03\x01\x00\x02\x02\x0a", b"\x16\x03\x03\x00\x7a"):
        with saying(alert) as at:
            client = make_client("k", base_url=f"http://{at}", max_retries=0)

            words = "the server speaks TLS there: its address begins with https://"
            with pytest.raises(ginnel.APIConnectionError, match=re.escape(words)):
                await client.api_keys.get("ak_1")


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_bundle_without_certificates_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(content)

    with pytest.raises(ginnel.ConfigError, match="ca_bundle"):
        ginnel.RemoteClient("k", base_url="https://x.test", ca_bundle=path)


@pytest.fixture(scope="module")
def members() -> trustme.CA:
    """The authority of those whom a server lets in."""
    return trustme.CA()


@pytest.fixture
def strict(authority: trustme.CA, members: trustme.CA) -> ssl.SSLContext:
    """The context of a server that lets nobody in without a certificate."""
    made = context(authority, "127.0.0.1")
    members.configure_trust(made)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def files(certificate: trustme.LeafCert, folder: Path) -> tuple[Path, Path]:
    """A certificate with its chain, and its key."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key)
    return chain, key


@pytest.mark.parametrize("form", ["one file", "pair", "pair of texts", "key first"])
async def test_a_server_that_wants_a_certificate_gets_it(
    make_client: Any,
    bundle: Path,
    members: trustme.CA,
    strict: ssl.SSLContext,
    tmp_path: Path,
    form: str,
) -> None:
    # An authority in between shows that the whole chain is sent.
    between = members.create_child_ca()
    chain, key = files(between.issue_cert("client.test"), tmp_path)
    one, other = tmp_path / "one.pem", tmp_path / "other.pem"
    one.write_bytes(chain.read_bytes() + key.read_bytes())
    other.write_bytes(key.read_bytes() + chain.read_bytes())
    forms = {
        "one file": one,
        "pair": (chain, key),
        "pair of texts": (str(chain), str(key)),
        "key first": str(other),
    }
    with Server([answer(200, KEY)] * 2, tls=strict) as server:
        client = make_client("k", base_url=server.url, ca_bundle=bundle, client_cert=forms[form])
        chain.unlink()
        for _ in range(2):
            assert (await client.api_keys.get("ak_1")).id == "ak_1"

        (certificate,) = server.certificates
        assert certificate["subjectAltName"] == (("DNS", "client.test"),)


@pytest.mark.parametrize("certified", [False, True])
async def test_without_the_right_certificate_nothing_is_sent(
    make_client: Any, bundle: Path, strict: ssl.SSLContext, tmp_path: Path, certified: bool
) -> None:
    stranger = files(trustme.CA().issue_cert("client.test"), tmp_path)
    options = {"client_cert": stranger} if certified else {}
    with Server([], tls=strict) as server:
        client = make_client("k", base_url=server.url, ca_bundle=bundle, max_retries=0, **options)
        words = (
            "does not accept the certificate of client_cert" if certified else "wants a certificate"
        )
        with pytest.raises(ginnel.APIConnectionError, match=words):
            await client.api_keys.get("ak_1")

        assert server.requests == []


def test_an_agent_behind_a_server_that_wants_a_certificate(
    bundle: Path, members: trustme.CA, strict: ssl.SSLContext, tmp_path: Path
) -> None:
    own = files(members.issue_cert("client.test"), tmp_path)
    with (
        Server([answer(200, {"uri": "/api", "tunnels": []})] * 2, tls=strict) as server,
        ginnel.AgentClient(server.url, ca_bundle=bundle, client_cert=own) as agent,
    ):
        assert agent.tunnels.list().to_list() == []
        assert agent.with_options(timeout=30).tunnels.list().to_list() == []
        assert len(server.certificates) == 1


def test_what_is_no_certificate_is_told_with_its_file(members: trustme.CA, tmp_path: Path) -> None:
    chain, key = files(members.issue_cert("client.test"), tmp_path)
    (tmp_path / "other").mkdir()
    _, other = files(members.issue_cert("other.test"), tmp_path / "other")
    empty, encrypted, damaged = (tmp_path / name for name in ("empty", "encrypted", "damaged"))
    empty.write_text("")
    sealed = key.read_text().replace("RSA PRIVATE", "ENCRYPTED PRIVATE")
    encrypted.write_text(sealed.replace("EC PRIVATE", "ENCRYPTED PRIVATE"))
    damaged.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    cases: list[tuple[Any, Path, str]] = [
        (tmp_path / "nowhere", tmp_path / "nowhere", "cannot be read: "),
        (tmp_path, tmp_path, "cannot be read: "),
        (empty, empty, "holds no certificate"),
        (key, key, "holds no certificate"),
        (chain, chain, "holds no private key"),
        ((chain, tmp_path / "nowhere"), tmp_path / "nowhere", "cannot be read: "),
        ((chain, empty), empty, "holds no private key"),
        (
            (chain, encrypted),
            encrypted,
            "holds no private key in PKCS #8, PKCS #1 or SEC 1; encrypted",
        ),
        ((chain, other), other, "holds a key that does not belong to the first certificate of "),
        ((damaged, key), damaged, ""),
    ]
    for given, file, problem in cases:
        for kind in (ginnel.RemoteClient, ginnel.AsyncRemoteClient):
            with pytest.raises(ginnel.ConfigError) as caught:
                kind("k", base_url="https://x.test", client_cert=given)
            said = str(caught.value)
            assert said.startswith(f'client_cert="{file}": {problem}'), said
            assert "BEGIN" not in said


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_later_connections_resume_the_session_of_the_first(
    make_client: Any, authority: trustme.CA, bundle: Path, version: str
) -> None:
    made = context(authority, "127.0.0.1")
    made.minimum_version = made.maximum_version = getattr(ssl.TLSVersion, version)
    with Server([answer(200, KEY)] * 4, tls=made, close_after_each=True) as server:
        client = make_client("k", base_url=server.url, ca_bundle=bundle)
        for _ in range(3):
            await client.api_keys.get("ak_1")

        assert server.resumed == [False, True, True]


def test_copies_of_a_client_resume_its_sessions(
    authority: trustme.CA, bundle: Path, members: trustme.CA, tmp_path: Path
) -> None:
    own = files(members.issue_cert("client.test"), tmp_path)
    tls = context(authority, "127.0.0.1")
    for certificate in [None, own]:
        with Server([answer(200, KEY)] * 3, tls=tls, close_after_each=True) as server:
            client = ginnel.RemoteClient(
                "k", base_url=server.url, ca_bundle=bundle, client_cert=certificate
            )
            client.api_keys.get("ak_1")
            client.with_options(timeout=30).api_keys.get("ak_1")
            client.with_options(headers={"x-a": "b"}).with_options(deadline=30).api_keys.get("ak_1")

            assert server.resumed == [False, True, True]
        client.close()


def test_clients_that_trust_the_system_share_their_sessions(
    authority: trustme.CA, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, ginnel\n"
        "for _ in range(3):\n"
        "    with ginnel.RemoteClient('k', base_url=sys.argv[1]) as client:\n"
        "        client.api_keys.get('ak_1')\n"
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    tls = context(authority, "127.0.0.1")
    with Server([answer(200, KEY)] * 3, tls=tls, close_after_each=True) as server:
        subprocess.run([sys.executable, "-c", program, server.url], check=True, timeout=60)

        assert server.resumed == [False, True, True]
