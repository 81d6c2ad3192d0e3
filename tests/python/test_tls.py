"""Encrypted connections: whom a client trusts."""

from __future__ import annotations

import ssl
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


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_bundle_without_certificates_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(content)

    with pytest.raises(ginnel.ConfigError, match="ca_bundle"):
        ginnel.RemoteClient("k", base_url="https://x.test", ca_bundle=path)
