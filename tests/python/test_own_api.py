"""Nothing public leads to the APIs of the process: an agent's own, which asks for no key, and the
management API."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

import ginnel
from addresses import free_port

SPELLINGS = (
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.254",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0.0.0.0",
    "a.localhost",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:7f00:0001]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:127.0.0.2]",
    "[::ffff:0.0.0.0]",
    "[::127.0.0.1]",
    "[::7f00:1]",
)
"""How this machine is addressed, beside its name and the addresses of its interfaces."""


def own_addresses() -> list[str]:
    """The name of this machine and the address that others reach it at, as far as it has any."""
    found = [socket.gethostname()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: only the way there is looked up.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return found
        address = probe.getsockname()[0]
    return [*found, address, f"[::ffff:{address}]"]


@pytest.fixture
def everywhere(service: ginnel.Service) -> Iterator[ginnel.Agent]:
    """An agent whose API listens on all addresses of the machine."""
    with ginnel.Agent(service, web_addr="0.0.0.0:0", web_allow_hosts=["0.0.0.0/0"]) as agent:
        yield agent


def fetch(url: str, path: str) -> tuple[int, str]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, unescape(answer.read().decode())
    finally:
        connection.close()


def port_of(url: str | None) -> int:
    port = urlsplit(url or "").port
    assert port is not None
    return port


def client_of(agent: ginnel.Agent) -> ginnel.AgentClient:
    """A client of an agent that may listen everywhere."""
    return ginnel.AgentClient(f"http://127.0.0.1:{port_of(agent.url)}")


def check_refused(agent: ginnel.Agent, host: str, port: int, path: str) -> None:
    with client_of(agent) as client:
        tunnel = client.tunnels.start(
            name="leak", proto="http", addr=f"{host}:{port}", host_header="rewrite"
        )
        try:
            status, text = fetch(tunnel.public_url, path)
        finally:
            client.tunnels.stop("leak")
    # A spelling that the system does not know has no address.
    assert status == 502, (host, text)
    assert "own API" in text or "ERR_NGROK" in text, (host, text)
    assert "public_url" not in text


@pytest.mark.parametrize("host", [*SPELLINGS, *own_addresses()])
def test_no_spelling_of_an_address_leads_to_the_agents_own_api(
    everywhere: ginnel.Agent, host: str
) -> None:
    check_refused(everywhere, host, port_of(everywhere.url), "/api/tunnels")


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_an_address_leads_to_the_management_api(
    service: ginnel.Service, host: str
) -> None:
    with ginnel.Agent(service) as agent:
        check_refused(agent, host, port_of(service.url), "/openapi.json")


def test_an_address_of_the_machine_is_refused_with_the_reason(everywhere: ginnel.Agent) -> None:
    with client_of(everywhere) as client:
        for host in ("[::ffff:127.0.0.1]", "127.0.0.1", *own_addresses()[1:]):
            addr = f"{host}:{port_of(everywhere.url)}"
            tunnel = client.tunnels.start(name="leak", proto="http", addr=addr)
            status, text = fetch(tunnel.public_url, "/api/tunnels")
            client.tunnels.stop("leak")

            assert status == 502
            assert "is the agent's or the service's own API" in text


def test_an_agent_leads_to_no_other_agent_of_the_process(service: ginnel.Service) -> None:
    with ginnel.Agent(service) as one, ginnel.Agent(service) as other:
        check_refused(one, "127.0.0.1", port_of(other.url), "/api/tunnels")
        check_refused(other, "[::ffff:127.0.0.1]", port_of(one.url), "/api/tunnels")


def test_a_port_is_free_for_tunnels_when_its_api_has_ended(service: ginnel.Service) -> None:
    port = free_port()
    with ginnel.Agent(service, web_addr=f"127.0.0.1:{port}") as first:
        assert port_of(first.url) == port
    with socket.create_server(("127.0.0.1", port)) as listener, ginnel.Agent(service) as agent:
        listener.settimeout(10)
        with agent.client() as client:
            tunnel = client.tunnels.start(name="free", proto="tcp", addr=f"127.0.0.1:{port}")
            parts = urlsplit(tunnel.public_url)
            with socket.create_connection((parts.hostname, parts.port), 10) as visitor:
                visitor.sendall(b"hello")
                with listener.accept()[0] as local:
                    local.settimeout(10)
                    assert local.recv(5) == b"hello"


def visit(service: ginnel.Service, host: str, path: str) -> tuple[int, str]:
    """Asks an edge over TLS."""
    context = ssl.create_default_context(cadata=service.ca_pem)
    with (
        socket.create_connection(("127.0.0.1", port_of(service.https_url)), 20) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        secure.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = HTTPResponse(secure)
        answer.begin()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_a_static_backend_leads_to_no_api(service: ginnel.Service, host: str) -> None:
    with (
        ginnel.Agent(service) as agent,
        ginnel.RemoteClient(service.api_key, base_url=service.url) as remote,
    ):
        for url, path in ((service.url, "/openapi.json"), (agent.url, "/api/tunnels")):
            backend = remote.backends.static.create(address=f"{host}:{port_of(url)}")
            edge = remote.edges.https.create(hostports=["leak.example.test:443"])
            remote.edges.https.routes.create(
                edge.id,
                match="/",
                match_type="path_prefix",
                backend={"enabled": True, "backend_id": backend.id},
            )
            status, text = visit(service, "leak.example.test", path)
            remote.edges.https.delete(edge.id)
            assert status == 502, text
            assert "ERR_NGROK_" in text
            assert "public_url" not in text
            assert "openapi" not in text
