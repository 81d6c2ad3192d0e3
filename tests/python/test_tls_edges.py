"""TLS edges through both clients, on both stores: what they hold, and what their visitors reach."""

from __future__ import annotations

import socket
import ssl
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import trustme

import ginnel
from listener import Listener
from postgres import ON_BOTH_STORES
from processes import wait_until

NAME = "db.example.test"


class TlsEcho(Listener):
    """Says what it hears, over TLS with a certificate of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.authority = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(NAME).configure_cert(self.context)

    def serve(self, connection: socket.socket) -> None:
        with self.context.wrap_socket(connection, server_side=True) as stream:
            while heard := stream.recv(1 << 16):
                stream.sendall(heard)


class Echo(Listener):
    """Says what it hears."""

    def serve(self, connection: socket.socket) -> None:
        while heard := connection.recv(1 << 16):
            connection.sendall(heard)


def trusting(service: ginnel.Service) -> ssl.SSLContext:
    """Trusts the authority of a service."""
    return ssl.create_default_context(cadata=service.ca_pem)


def say(service: ginnel.Service, context: ssl.SSLContext, text: bytes) -> bytes:
    """What a visitor of the edge hears who says something."""
    assert service.https_url
    place = urlsplit(service.https_url)
    assert place.hostname
    assert place.port
    with (
        socket.create_connection((place.hostname, place.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as stream,
    ):
        stream.sendall(text)
        heard = b""
        while len(heard) < len(text) and (more := stream.recv(1 << 16)):
            heard += more
        return heard


@ON_BOTH_STORES
async def test_modules_come_inside_an_edge_or_on_their_own(client: Any) -> None:
    authority = trustme.CA().cert_pem.bytes().decode()
    known = await client.certificate_authorities.create(ca_pem=authority)
    policy = await client.ip_policies.create()
    backend = await client.backends.static.create(address="localhost:1")
    edge = await client.edges.tls.create(
        hostports=[f"{NAME}:443", "*.b.test:443"],
        description="d",
        metadata="m",
        backend={"backend_id": backend.id},
        ip_restriction={"ip_policy_ids": [policy.id]},
        mutual_tls={"certificate_authority_ids": [known.id]},
        tls_termination={"terminate_at": "edge", "min_version": "1.3"},
        traffic_policy={"value": '{"inbound": []}'},
    )

    tls = client.edges.tls
    assert edge.id.startswith("edgtls_")
    assert edge.uri.endswith(f"/edges/tls/{edge.id}")
    assert (edge.description, edge.metadata) == ("d", "m")
    assert edge.backend.backend.id == backend.id
    assert edge.mutual_tls.certificate_authorities[0].uri == known.uri
    assert (await tls.tls_termination.get(edge.id)).min_version == "1.3"
    with pytest.raises(ginnel.ConflictError):
        await client.certificate_authorities.delete(known.id)
    with pytest.raises(ginnel.ConflictError):
        await client.backends.static.delete(backend.id)
    assert await tls.update(edge.id, description="e") == await tls.get(edge.id)

    await tls.mutual_tls.delete(edge.id)
    ending = await tls.tls_termination.replace(edge.id, terminate_at="upstream")
    assert (ending.enabled, ending.terminate_at, ending.min_version) == (True, "upstream", None)
    for module in (tls.backend, tls.ip_restriction, tls.traffic_policy, tls.tls_termination):
        assert await module.get(edge.id)
        await module.delete(edge.id)
        with pytest.raises(ginnel.NotFoundError):
            await module.get(edge.id)
    rule = {"actions": [{"type": "deny"}]}
    assert (await tls.policy.replace(edge.id, inbound=[rule])).inbound[0].actions[0].type == "deny"
    await tls.delete(edge.id)
    await client.certificate_authorities.delete(known.id)


@ON_BOTH_STORES
async def test_visitors_come_through_and_are_listed(client: Any, service: ginnel.Service) -> None:
    with TlsEcho() as through, Echo() as plain:
        backend = await client.backends.static.create(address=through.address)
        edge = await client.edges.tls.create(
            hostports=[f"{NAME}:443"], description="d", backend={"backend_id": backend.id}
        )
        own = ssl.create_default_context()
        through.authority.configure_trust(own)

        events = service.events()
        assert say(service, own, b"x" * 200_000) == b"x" * 200_000
        event = events.get(timeout=20)
        assert event
        assert (event.proto, event.edge_id) == ("tls", edge.id)
        assert (event.backend_id, event.status) == (backend.id, None)

        [endpoint] = [it async for it in client.endpoints.list()]
        port = urlsplit(service.https_url or "").port
        assert endpoint.url == f"tls://{NAME}:{port}"
        assert (endpoint.proto, endpoint.hostport, endpoint.type) == ("tls", f"{NAME}:443", "edge")
        assert (endpoint.edge.id, endpoint.description) == (edge.id, "d")
        assert endpoint.tcp_addr is None
        assert await client.endpoints.get(endpoint.id) == endpoint

        other = await client.backends.static.create(address=plain.address)
        await client.edges.tls.backend.replace(edge.id, backend_id=other.id)
        await client.edges.tls.tls_termination.replace(edge.id, terminate_at="edge")
        assert say(service, trusting(service), b"hello") == b"hello"
        await client.edges.tls.backend.delete(edge.id)
        assert [it async for it in client.endpoints.list()] == []


async def test_the_certificate_of_a_reserved_domain_is_shown(
    client: Any, service: ginnel.Service
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert(NAME)
    certificate = await client.tls_certificates.create(
        certificate_pem=issued.cert_chain_pems[0].bytes().decode(),
        private_key_pem=issued.private_key_pem.bytes().decode(),
    )
    domain = await client.reserved_domains.create(domain=NAME, certificate_id=certificate.id)
    with Echo() as plain:
        backend = await client.backends.static.create(address=plain.address)
        edge = await client.edges.tls.create(
            hostports=[f"{NAME}:443"],
            backend={"backend_id": backend.id},
            tls_termination={"terminate_at": "edge"},
        )
        own = ssl.create_default_context()
        authority.configure_trust(own)

        assert say(service, own, b"hello") == b"hello"
        with pytest.raises(ginnel.ConflictError) as refused:
            await client.reserved_domains.delete(domain.id)
        assert edge.id in refused.value.message
        [endpoint] = [it async for it in client.endpoints.list()]
        assert endpoint.domain.id == domain.id


def test_the_domain_of_another_is_refused(service: ginnel.Service) -> None:
    with service.client() as admin:
        bot = admin.bot_users.create(name="bot", active=True)
        key = admin.api_keys.create(owner_id=bot.id)
        admin.reserved_domains.create(domain=NAME)
        assert key.token
        with (
            ginnel.RemoteClient(key.token, base_url=service.url) as other,
            pytest.raises(ginnel.BadRequestError) as refused,
        ):
            other.edges.tls.create(hostports=[f"{NAME}:443"])
        assert refused.value.error_code == "ERR_NGROK_7118"


def test_edges_are_served_after_a_restart(tmp_path: Any) -> None:
    store = tmp_path / "ginnel.db"
    with Echo() as plain:
        with ginnel.Service(store) as service, service.client() as client:
            backend = client.backends.static.create(address=plain.address)
            client.edges.tls.create(
                hostports=[f"{NAME}:443"],
                backend={"backend_id": backend.id},
                tls_termination={"terminate_at": "edge"},
            )
        with ginnel.Service(store) as service:
            assert say(service, trusting(service), b"hello") == b"hello"


def test_connections_are_counted() -> None:
    with (
        ginnel.Service(admin_addr="127.0.0.1:0") as service,
        service.client() as client,
        Echo() as plain,
    ):
        backend = client.backends.static.create(address=plain.address)
        edge = client.edges.tls.create(
            hostports=[f"{NAME}:443"],
            backend={"backend_id": backend.id},
            tls_termination={"terminate_at": "edge"},
        )
        assert say(service, trusting(service), b"hello") == b"hello"

        def counted() -> bool:
            with urlopen(f"{service.admin_url}/metrics", timeout=20) as response:
                lines = response.read().decode().splitlines()
            return any(edge.id in line and 'proto="tls"' in line for line in lines)

        wait_until(counted, "the connection to be counted")
