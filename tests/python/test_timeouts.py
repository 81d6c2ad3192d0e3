"""Timeouts and limits of `ginnel serve` that are set have their effect."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

import ginnel
from processes import Command

SHORTEST_DEFAULT = 4.0
"""Seconds; less than any of the timeouts has by default."""
GET = b"GET / HTTP/1.1\r\nHost: nobody.example.test\r\n\r\n"
HALF = b"POST /api_keys HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"
HALF += b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"

TIMEOUTS = {
    "api-first-byte-timeout": ("url", b"", b""),
    "api-head-timeout": ("url", b"GET / HT", b""),
    "api-body-timeout": ("url", HALF, b"the body took more than 0.1 seconds"),
    "edge-first-byte-timeout": ("http_url", b"", b""),
    "edge-head-timeout": ("http_url", b"GET / HT", b""),
    "edge-idle-timeout": ("http_url", GET, b"404 Not Found"),
    "edge-handshake-timeout": ("https_url", b"\x16", b""),
    "agent-first-byte-timeout": ("agent_addr", b"", b""),
    "agent-handshake-timeout": ("agent_addr", b"\x16", b""),
}


def connected(addresses: dict[str, Any], name: str) -> socket.socket:
    port = int(addresses[name].rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=SHORTEST_DEFAULT)


def heard(stream: socket.socket) -> bytes:
    """All until the other side closes; fails when it does not in time."""
    text = b""
    while piece := stream.recv(65536):
        text += piece
    return text


@pytest.mark.parametrize("option", TIMEOUTS)
def test_who_takes_longer_than_the_timeout_is_let_go(option: str) -> None:
    place, sent, expected = TIMEOUTS[option]
    with Command("serve", f"--{option}", "100ms") as command:
        addresses = command.line()
        with connected(addresses, place) as stream:
            if b"%s" in sent:
                sent %= addresses["api_key"].encode()
            stream.sendall(sent)

            assert expected in heard(stream)


def test_an_agent_that_does_not_log_in_is_let_go() -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Command("serve", "--agent-login-timeout", "100ms") as command:
        plain = connected(command.line(), "agent_addr")
        with plain, context.wrap_socket(plain, server_hostname="localhost") as stream:
            while stream.recv(65536):
                pass


def test_a_backend_that_thinks_for_too_long_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Command("serve", "--edge-response-timeout", "100ms") as command:
            addresses = command.line()
            remote = ginnel.RemoteClient(addresses["api_key"], base_url=addresses["url"])
            backend = remote.backends.static.create(address=address)
            edge = remote.edges.https.create(hostports=["nobody.example.test:443"])
            remote.edges.https.routes.create(
                edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
            )
            port = int(addresses["https_url"].rpartition(":")[2])
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            plain = socket.create_connection(("127.0.0.1", port), timeout=SHORTEST_DEFAULT)
            with plain, context.wrap_socket(plain, server_hostname="nobody.example.test") as stream:
                stream.sendall(GET)

                assert stream.recv(65536).startswith(b"HTTP/1.1 504 ")


def test_a_body_over_the_limit_is_refused() -> None:
    with Command("serve", "--api-max-body-size", "1KiB") as command:
        addresses = command.line()
        remote = ginnel.RemoteClient(addresses["api_key"], base_url=addresses["url"])

        with pytest.raises(ginnel.APIStatusError, match="over its limit of 1024 bytes"):
            remote.ip_policies.create(metadata="x" * 2000)
