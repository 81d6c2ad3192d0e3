"""Sessions of TLS that visitors resume."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

import ginnel


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


def an_edge(service: ginnel.Service, host: str, **modules: Any) -> None:
    remote = service.client()
    body = remote.backends.http_response.create(body=host).id
    edge = remote.edges.https.create(hostports=[f"{host}:443"], **modules)
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": body}
    )


def visit(
    service: ginnel.Service, context: ssl.SSLContext, host: str, session: ssl.SSLSession | None
) -> tuple[bool | None, bytes, ssl.SSLSession | None]:
    """Whether a session was resumed, what was answered, and the session for the next time."""
    assert service.https_url
    port = int(service.https_url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain, server_hostname=host, session=session) as secure,
    ):
        request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        secure.sendall(request.encode())
        answer = b""
        while piece := secure.recv(4096):
            answer += piece
        return secure.session_reused, answer, secure.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_however_many_came_since(
    service: ginnel.Service, version: ssl.TLSVersion
) -> None:
    an_edge(service, "a.example.test")
    context = ssl.create_default_context(cadata=service.ca_pem)
    context.maximum_version = version
    reused, answer, first = visit(service, context, "a.example.test", None)
    assert (reused, answer.endswith(b"a.example.test")) == (False, True)

    for _ in range(300):
        assert not visit(service, context, "a.example.test", None)[0]
    reused, answer, _ = visit(service, context, "a.example.test", first)

    assert (reused, answer.endswith(b"a.example.test")) == (True, True)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_one_edge_opens_no_other_that_asks_for_a_certificate(
    service: ginnel.Service, version: ssl.TLSVersion
) -> None:
    authority = trustme.CA()
    made = service.client().certificate_authorities.create(
        ca_pem=authority.cert_pem.bytes().decode()
    )
    an_edge(service, "open.example.test")
    ids = {"certificate_authority_ids": [made.id]}
    an_edge(service, "closed.example.test", mutual_tls=ids)
    context = ssl.create_default_context(cadata=service.ca_pem)
    context.maximum_version = version
    _, _, session = visit(service, context, "open.example.test", None)

    with pytest.raises((ssl.SSLError, ConnectionError)):
        visit(service, context, "closed.example.test", session)

    # With a certificate it opens, and its own session is resumed.
    known = ssl.create_default_context(cadata=service.ca_pem)
    known.maximum_version = version
    authority.issue_cert("visitor@example.test").configure_cert(known)
    _, answer, session = visit(service, known, "closed.example.test", None)
    assert answer.endswith(b"closed.example.test")
    reused, answer, _ = visit(service, known, "closed.example.test", session)
    assert (reused, answer.endswith(b"closed.example.test")) == (True, True)
