"""Requests that go through a proxy."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

import ginnel
from listener import until_closed
from proxies import OPENED, ConnectProxy, SocksProxy
from server import Server, answer

KEY = {"id": "ak_1", "uri": "u"}
ELSEWHERE = "http://api.example.test"
SECURE = "https://api.example.test"
MAX_BODY_BYTES = 64 << 20


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def secure(authority: trustme.CA) -> Any:
    """The context of a server that is api.example.test, or a proxy on this machine."""
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("api.example.test", "127.0.0.1").configure_cert(context)
    return context


async def test_a_proxy_that_was_passed(make_client: Any) -> None:
    with Server([answer(200, KEY)]) as proxy:
        client = make_client("k", base_url=ELSEWHERE, allow_http=True, proxy=proxy.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        request = proxy.requests[0]
        assert request.target == f"{ELSEWHERE}/api_keys/ak_1"
        assert request.headers["host"] == "api.example.test"
        assert request.headers["authorization"] == "Bearer k"


async def test_the_proxy_of_the_environment(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server([answer(200, KEY), answer(404)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        client = make_client("k", base_url=ELSEWHERE, allow_http=True)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert len(proxy.requests) == 1


async def test_nothing_on_this_machine_goes_through_the_environments_proxy(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server([]) as proxy, Server([answer(200, KEY)]) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("all_proxy", proxy.url)
        client = make_client("k", base_url=server.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.connections == 0


async def test_a_compressed_answer(make_client: Any) -> None:
    body = gzip.compress(json.dumps(KEY).encode(), mtime=0)
    with Server([answer(200, body, content_encoding="gzip")]) as proxy:
        client = make_client("k", base_url=ELSEWHERE, allow_http=True, proxy=proxy.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert "gzip" in proxy.requests[0].headers["accept-encoding"]


@pytest.mark.parametrize(
    "address",
    [
        "ftp://proxy.test",
        "socks4://proxy.test",
        "socks://proxy.test/",
        "file:///tmp/proxy",
        "proxy.test:port",
        "http://proxy.test/path",
        "http://",
        "nonsense:",
        "http://proxy.test:",
        "socks5://:1080",
        "http:///proxy.test",
        "user:pw@",
        "3128",
    ],
)
def test_what_is_no_proxy_never_means_a_direct_connection(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = "must be http, https, socks5 or socks5h://"
    with pytest.raises(ginnel.ConfigError, match=takes) as caught:
        ginnel.RemoteClient("k", base_url=SECURE, proxy=address)
    shown = address.replace("user:pw@", "••••••@")
    assert str(caught.value).startswith(f'proxy="{shown}": ')

    for variable in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]:
        with monkeypatch.context() as environment:
            environment.setenv(variable, address)
            with pytest.raises(ginnel.ConfigError, match=takes) as caught:
                ginnel.RemoteClient("k", base_url=SECURE)
            assert str(caught.value).startswith(f'{variable}="{shown}": ')
            ginnel.RemoteClient("k", base_url=SECURE, trust_env=False).close()
            ginnel.RemoteClient("k", base_url="https://127.0.0.1:1").close()
            environment.setenv("no_proxy", "example.test")
            ginnel.RemoteClient("k", base_url=SECURE).close()


CALL = """
import ginnel
with ginnel.RemoteClient("k", base_url="http://api.example.test", allow_http=True,
                         max_retries=0, timeout=20) as client:
    print(client.api_keys.get("ak_1").id)
"""


def call_in(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A call to a host that only a proxy knows, by a program with these variables."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and name != "REQUEST_METHOD"
    }
    return subprocess.run(
        [sys.executable, "-c", CALL],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "names",
    [
        {"http_proxy": "{http}"},
        {"HTTP_PROXY": "{http}"},
        {"all_proxy": "{http}"},
        {"ALL_PROXY": "{http}"},
        {"http_proxy": "{bare}"},
        {"all_proxy": "{socks5h}"},
        {"ALL_PROXY": "{socks5h}", "https_proxy": "ftp://other"},
        {"http_proxy": "{http}", "HTTP_PROXY": "http://127.0.0.1:1"},
        {"HTTP_PROXY": "{http}", "all_proxy": "http://127.0.0.1:1"},
        {"http_proxy": "", "HTTP_PROXY": "", "all_proxy": "{http}"},
        {"http_proxy": "{http}", "no_proxy": "other.test"},
        {"http_proxy": "{http}", "REQUEST_METHOD": "GET"},
    ],
)
def test_each_variable_leads_to_the_proxy(names: dict[str, str]) -> None:
    with Server([answer(200, KEY)]) as server, SocksProxy(server.url) as socks:
        bare = server.url.removeprefix("http://")
        addresses = {"http": server.url, "bare": bare, "socks5h": f"socks5h://{socks.address}"}
        called = call_in({name: value.format(**addresses) for name, value in names.items()})

        assert called.stdout == "ak_1\n", called.stderr
        assert [request.headers["host"] for request in server.requests] == ["api.example.test"]


@pytest.mark.parametrize(
    "names",
    [
        {"https_proxy": "{http}"},
        {"http_proxy": "{http}", "no_proxy": "example.test"},
        {"http_proxy": "{http}", "NO_PROXY": "*"},
        {"HTTP_PROXY": "{http}", "REQUEST_METHOD": "GET"},
    ],
)
def test_variables_that_lead_nowhere(names: dict[str, str]) -> None:
    with Server([answer(200, KEY)]) as server:
        called = call_in({name: value.format(http=server.url) for name, value in names.items()})

        assert "APIConnectionError" in called.stderr
        assert server.connections == 0


@pytest.mark.parametrize(
    ("exempt", "is_direct"),
    [
        ("api.example.test:80", True),
        ("api.example.test:8080", False),
        (".example.test:80", True),
        ("other.test *.example.test", True),
        ("*", True),
        ("192.0.2.0/24", False),
    ],
)
def test_no_proxy_with_ports_and_wildcards(
    exempt: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "nonsense:")
    monkeypatch.setenv("NO_PROXY", exempt)

    # What is exempt needs no proxy, so nobody looks at its address.
    if is_direct:
        ginnel.RemoteClient("k", base_url=ELSEWHERE, allow_http=True).close()
    else:
        with pytest.raises(ginnel.ConfigError, match='http_proxy="nonsense:"'):
            ginnel.RemoteClient("k", base_url=ELSEWHERE, allow_http=True)


async def test_a_proxy_sees_no_certificate_of_the_client(
    make_client: Any, authority: trustme.CA, bundle: Path, tmp_path: Path
) -> None:
    import ssl

    members = trustme.CA()
    own = tmp_path / "own.pem"
    members.issue_cert("client.test").private_key_and_cert_chain_pem.write_to_path(own)

    def context(name: str, verify_mode: ssl.VerifyMode) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name).configure_cert(made)
        members.configure_trust(made)
        made.verify_mode = verify_mode
        return made

    to_proxy = context("127.0.0.1", ssl.CERT_OPTIONAL)
    with (
        Server([answer(200, KEY)], tls=context("api.example.test", ssl.CERT_REQUIRED)) as server,
        ConnectProxy(server.url, tls=to_proxy) as proxy,
    ):
        client = make_client(
            "k", base_url=SECURE, proxy=proxy.url, ca_bundle=bundle, client_cert=own
        )

        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.certificates == [{}]
        (certificate,) = server.certificates
        assert certificate["subjectAltName"] == (("DNS", "client.test"),)


async def test_a_login_goes_to_the_proxy_with_each_request(make_client: Any) -> None:
    with Server([answer(200, KEY)] * 2) as proxy:
        address = proxy.url.replace("://", "://us%65r:p%40ss@")
        client = make_client("k", base_url=ELSEWHERE, allow_http=True, proxy=address)
        for _ in range(2):
            await client.api_keys.get("ak_1")

        sent = [request.headers["proxy-authorization"] for request in proxy.requests]
        assert sent == ["Basic dXNlcjpwQHNz"] * 2


@pytest.mark.parametrize("tls", [False, True])
async def test_a_tunnel_to_an_origin_with_tls(
    make_client: Any, bundle: Path, secure: Any, tls: bool
) -> None:
    with (
        Server([answer(200, KEY)] * 3, tls=secure) as server,
        ConnectProxy(server.url, tls=secure if tls else None) as proxy,
    ):
        address = proxy.url.replace("://", "://user:pw@")
        client = make_client("k", base_url=SECURE, ca_bundle=bundle, proxy=address)
        for _ in range(3):
            assert (await client.api_keys.get("ak_1")).id == "ak_1"

        (head,) = proxy.heads
        assert head.startswith("CONNECT api.example.test:443 HTTP/1.1\r\n")
        assert "host: api.example.test:443\r\n" in head.lower()
        assert "proxy-authorization: basic dxnlcjpwdw==\r\n" in head.lower()
        assert "Bearer" not in head
        for request in server.requests:
            assert request.target == "/api_keys/ak_1"
            assert "proxy-authorization" not in request.headers


async def test_a_proxy_with_tls_for_an_origin_without(
    make_client: Any, bundle: Path, secure: Any
) -> None:
    with Server([answer(200, KEY)], tls=secure) as proxy:
        client = make_client(
            "k", base_url=ELSEWHERE, allow_http=True, ca_bundle=bundle, proxy=proxy.url
        )
        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.requests[0].target == f"{ELSEWHERE}/api_keys/ak_1"


@pytest.mark.parametrize(
    "opened",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
async def test_a_tunnel_begins_right_behind_the_head(
    make_client: Any, bundle: Path, secure: Any, opened: bytes
) -> None:
    with (
        Server([answer(200, KEY)], tls=secure) as server,
        ConnectProxy(server.url, answers=[opened]) as proxy,
    ):
        client = make_client("k", base_url=SECURE, ca_bundle=bundle, proxy=proxy.url)

        assert (await client.api_keys.get("ak_1")).id == "ak_1"


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
@pytest.mark.parametrize("login", [None, (b"user", b"p@ss")])
@pytest.mark.parametrize("base_url", [SECURE, ELSEWHERE])
async def test_socks(
    make_client: Any, bundle: Path, secure: Any, scheme: str, login: Any, base_url: str
) -> None:
    host = "api.example.test"
    if scheme == "socks5":
        # Resolved here, where that name has no address.
        base_url = base_url.replace(host, "127.0.0.1")
        host = "127.0.0.1"
    tls = secure if base_url.startswith("https") else None
    with (
        Server([answer(200, KEY)] * 2, tls=tls) as server,
        SocksProxy(server.url, login=login) as proxy,
    ):
        address = f"{scheme}://{'user:p%40ss@' if login else ''}{proxy.address}"
        client = make_client(
            "k", base_url=base_url, ca_bundle=bundle, allow_http=True, proxy=address
        )
        for _ in range(2):
            assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.asked == [(host, 443 if tls else 80)]
        assert [request.target for request in server.requests] == ["/api_keys/ak_1"] * 2
        assert server.requests[0].headers["host"] == host


async def test_socks5_resolves_names_here(make_client: Any) -> None:
    with Server([answer(200, KEY)]) as server, SocksProxy(server.url) as proxy:
        client = make_client(
            "k", base_url="http://localhost:8765", proxy=f"socks5://{proxy.address}"
        )
        assert (await client.api_keys.get("ak_1")).id == "ak_1"

        assert proxy.asked[0] in [("127.0.0.1", 8765), ("::1", 8765)]


async def test_a_refused_tunnel_says_why(make_client: Any, bundle: Path, secure: Any) -> None:
    refused = answer(407, {"error": "who are you?"}, proxy_authenticate="Basic").replace(
        b"407 Status", b"407 Proxy Authentication Required"
    )
    with (
        Server([], tls=secure) as server,
        ConnectProxy(server.url, answers=[refused]) as proxy,
    ):
        client = make_client("k", base_url=SECURE, ca_bundle=bundle, proxy=proxy.url)

        said = "the proxy refused the tunnel: 407 Proxy Authentication Required"
        with pytest.raises(ginnel.APIConnectionError, match=said) as caught:
            await client.api_keys.create()

        # Another attempt would be refused as well.
        assert (caught.value.attempts, len(proxy.heads), proxy.connections) == (1, 1, 1)
        assert server.connections == 0


async def test_a_post_that_reached_no_tunnel_is_sent_again(
    make_client: Any, bundle: Path, secure: Any
) -> None:
    busy = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"
    answers = [busy, b"HTTP/1.1 502 Bad Gateway\r\n\r\n", OPENED]
    with (
        Server([answer(201, KEY)], tls=secure) as server,
        ConnectProxy(server.url, answers=answers) as proxy,
    ):
        client = make_client("k", base_url=SECURE, ca_bundle=bundle, proxy=proxy.url)

        assert (await client.api_keys.create()).id == "ak_1"

        assert (len(proxy.heads), len(server.requests)) == (3, 1)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x05\xff",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000,
        b"HTTP/1.1 500 x\r\n" + b"x: y\r\n" * 4_000,
    ],
)
async def test_a_broken_answer_opens_no_tunnel(
    make_client: Any, bundle: Path, secure: Any, broken: bytes
) -> None:
    class Broken(ConnectProxy):
        def open(self, stream: Any) -> bool:
            super().open(stream)
            return False

    with Server([], tls=secure) as server, Broken(server.url, answers=[broken]) as proxy:
        client = make_client("k", base_url=SECURE, ca_bundle=bundle, proxy=proxy.url, max_retries=0)
        with pytest.raises(ginnel.APIConnectionError, match="proxy"):
            await client.api_keys.create()

        assert server.connections == 0


async def test_a_refusal_of_socks_says_why(make_client: Any, bundle: Path) -> None:
    with (
        SocksProxy("http://127.0.0.1:1", reply=2) as rules,
        SocksProxy("http://127.0.0.1:1", login=(b"user", b"pw")) as login,
    ):
        for address, said in [
            (rules.address, "the proxy refused the tunnel: not allowed by its rules"),
            (login.address, "the proxy refused the tunnel: it wants another login"),
            (f"user:s3cret@{login.address}", "it does not accept the user and the password"),
        ]:
            client = make_client(
                "k", base_url=SECURE, ca_bundle=bundle, proxy=f"socks5h://{address}"
            )
            with pytest.raises(ginnel.APIConnectionError, match=said) as caught:
                await client.api_keys.create()
            assert caught.value.attempts == 1
            assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_a_proxied_answer_has_the_limit_of_every_answer(
    make_client: Any, coding: str
) -> None:
    body = b"x" * (MAX_BODY_BYTES + 1)
    body = gzip.compress(body, 1, mtime=0) if coding == "gzip" else body
    with Server([answer(200, body, content_encoding=coding)]) as proxy:
        client = make_client(
            "k", base_url=ELSEWHERE, allow_http=True, proxy=proxy.url, max_retries=0
        )
        with pytest.raises(ginnel.ResponseDecodeError, match=r"cannot be used|more than"):
            await client.api_keys.get("ak_1")


async def test_a_post_is_not_lost_with_an_idle_connection_of_the_proxys(make_client: Any) -> None:
    with Server([answer(201, KEY)] * 20, close_after_each=True) as proxy:
        client = make_client("k", base_url=ELSEWHERE, allow_http=True, proxy=proxy.url)
        for turn in range(20):
            assert (await client.api_keys.create()).id == "ak_1"
            await until_closed(proxy, turn + 1)

        assert len(proxy.requests) == 20


async def test_a_post_is_not_lost_with_an_idle_tunnel(
    make_client: Any, bundle: Path, secure: Any
) -> None:
    with (
        Server([answer(201, KEY)] * 20, tls=secure, close_after_each=True) as server,
        ConnectProxy(server.url) as proxy,
    ):
        client = make_client("k", base_url=SECURE, ca_bundle=bundle, proxy=proxy.url)
        for turn in range(20):
            assert (await client.api_keys.create()).id == "ak_1"
            await until_closed(proxy, turn + 1)

        assert len(server.requests) == 20
