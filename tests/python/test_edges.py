"""Public traffic of the embedded service, from Python."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

import ginnel
from ginnel import Service, ServiceError
from ginnel.service_settings import ServiceSettings
from ginnel.traffic import TrafficEvent, TrafficEvents


def edge(service: Service, hostport: str, body: str) -> None:
    """An HTTPS edge that answers with a text."""
    with service.client() as remote:
        backend = remote.backends.http_response.create(body=body, headers={"x-by": "edge"})
        made = remote.edges.https.create(hostports=[hostport])
        remote.edges.https.routes.create(
            made.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
        )


def test_an_edge_is_reached_without_names_being_resolved() -> None:
    with Service() as service:
        edge(service, "app.example.test:443", "over TLS")

        with service.opener().open("https://app.example.test/x") as answer:
            assert (answer.status, answer.read()) == (200, b"over TLS")
            assert answer.headers["x-by"] == "edge"
        assert service.https_url is not None
        port = service.https_url.rpartition(":")[2]
        assert service.edge_url("app.example.test", "/x") == f"https://app.example.test:{port}/x"
        with service.opener().open(service.edge_url("app.example.test")) as answer:
            assert answer.read() == b"over TLS"
        # Plain HTTP leads there too.
        with service.opener().open("http://app.example.test/") as answer:
            assert answer.url.startswith("https://app.example.test")
            assert answer.read() == b"over TLS"


def test_a_service_without_tls_serves_edges_over_http() -> None:
    with Service(https_port=None) as service:
        edge(service, "app.example.test:443", "plain")

        assert service.https_url is None
        assert service.edge_url("app.example.test").startswith("http://app.example.test:")
        with service.opener().open("http://app.example.test/") as answer:
            assert answer.read() == b"plain"
        with pytest.raises(urllib.error.HTTPError) as nobody:
            service.opener().open("http://other.example.test/")
        assert nobody.value.code == 404
        assert nobody.value.headers["ngrok-error-code"] == "ERR_NGROK_3200"
        nobody.value.close()


def test_addresses_are_those_of_the_load_balancer() -> None:
    ports: ServiceSettings = {"public_http_port": 80, "public_https_port": 8443}
    with (
        Service(base_domain="tunnels.test", settings=ports) as service,
        ginnel.Agent(service) as agent,
        agent.client() as api,
    ):
        edge(service, "app.example.test:443", "by name")
        for proto, scheme, port in [("https", "https", ":8443"), ("http", "http", "")]:
            # Nobody need listen behind the tunnel to see where it is.
            tunnel = api.tunnels.start(name=proto, addr=1, proto="http", schemes=[proto])
            assert tunnel.public_url.startswith(f"{scheme}://")
            assert tunnel.public_url.endswith(f".tunnels.test{port}")

        assert service.http_url is not None
        own = http.client.HTTPConnection("127.0.0.1", urlsplit(service.http_url).port)
        own.request("GET", "/x?y", headers={"Host": "app.example.test:80"})
        response = own.getresponse()
        assert response.headers["location"] == "https://app.example.test:8443/x?y"
        own.close()
        # A visitor of the load balancer names its port.
        host = {"Host": "app.example.test:8443"}
        request = urllib.request.Request("https://app.example.test/", headers=host)
        with service.opener().open(request) as answer:
            assert answer.read() == b"by name"


def test_where_tls_ends_before_the_service_addresses_are_of_https() -> None:
    ports: ServiceSettings = {"public_http_port": 80, "public_https_port": 443}
    with (
        Service(base_domain="tunnels.test", https_port=None, settings=ports) as service,
        ginnel.Agent(service) as agent,
        agent.client() as api,
    ):
        edge(service, "app.example.test:443", "by name")
        for proto in ("https", "http"):
            tunnel = api.tunnels.start(name=proto, addr=1, proto="http", schemes=[proto])
            assert re.fullmatch(rf"{proto}://[a-z0-9-]+\.tunnels\.test", tunnel.public_url)

        # As the proxy sends it on.
        assert service.http_url is not None
        own = http.client.HTTPConnection("127.0.0.1", urlsplit(service.http_url).port)
        for host in ("app.example.test", "app.example.test:443"):
            own.request("GET", "/", headers={"Host": host, "X-Forwarded-Proto": "https"})
            with own.getresponse() as response:
                assert (response.status, response.read()) == (200, b"by name")
        own.close()


def test_without_public_ports_there_is_no_address() -> None:
    with Service(http_port=None, https_port=None) as service:
        assert (service.http_url, service.https_url) == (None, None)
        with pytest.raises(ValueError, match="http_port"):
            service.edge_url("app.example.test")


def test_the_authority_lives_beside_the_database(tmp_path: Path) -> None:
    with Service(tmp_path / "db") as service:
        assert service.ca_path == tmp_path / "db-ca.pem"
        assert service.ca_path.read_text() == service.ca_pem
    with Service() as service:
        assert service.ca_path is None
        assert service.ca_pem.startswith("-----BEGIN CERTIFICATE-----")


def test_serve_tells_where_public_traffic_goes(tmp_path: Path) -> None:
    arguments = ["serve", "--json", "--path", str(tmp_path / "db"), "--https-port", "none"]
    command = [sys.executable, "-m", "ginnel", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.terminate()

    assert told["http_url"].startswith("http://127.0.0.1:")
    assert told["https_url"] is None
    assert told["ca_path"] == str(tmp_path / "db-ca.pem")


def test_events_tell_what_was_decided() -> None:
    with Service(https_port=None) as service:
        edge(service, "app.example.test:443", "seen")
        events = service.events()

        assert events.get(timeout=0) is None
        service.opener().open("http://app.example.test/x?y").close()
        event = events.get(timeout=30)

        assert event is not None
        assert (event.method, event.host, event.path) == ("GET", "app.example.test", "/x?y")
        assert (event.status, event.code, event.module) == (200, None, None)
        assert str(event.edge_id).startswith("edghts_")
        assert event.time.tzinfo is not None
        assert event.duration_ms >= 0
        service.opener().open("http://app.example.test/last").close()
        service.stop()
        assert [event.path for event in events] in ([], ["/last"])
        assert list(service.events()) == []
        assert events.missed == 0


async def test_events_are_awaited() -> None:
    with Service(https_port=None) as service:
        edge(service, "app.example.test:443", "seen")
        events = service.events()

        def visit(path: str) -> None:
            service.opener().open(f"http://app.example.test/{path}").close()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(events.wait(), 0.05)
        waiting = asyncio.ensure_future(events.wait())
        await asyncio.sleep(0)
        await asyncio.to_thread(visit, "1")
        first = await asyncio.wait_for(waiting, 20)
        for path in "23":
            await asyncio.to_thread(visit, path)

        seen = [event.path async for event in until(events, "/3")]
        ending = asyncio.ensure_future(events.wait())
        await asyncio.sleep(0)
        await asyncio.to_thread(service.stop)

        assert first is not None
        assert [first.path, *seen] == ["/1", "/2", "/3"]
        assert await asyncio.wait_for(ending, 20) is None
        assert [event async for event in events] == []


async def until(events: TrafficEvents, last: str) -> AsyncIterator[TrafficEvent]:
    async for event in events:
        yield event
        if event.path == last:
            return


def shown(address: str, authority: trustme.CA, name: str) -> bool:
    """Whether a listener shows a certificate of an authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    host, _, port = address.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        try:
            context.wrap_socket(plain, server_hostname=name).close()
        except ssl.SSLCertVerificationError:
            return False
    return True


def write(certificate: trustme.LeafCert, folder: Path) -> tuple[Path, Path]:
    """A certificate as two files."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    return chain, key


def test_a_certificate_is_exchanged_while_the_service_runs(tmp_path: Path) -> None:
    first, second = trustme.CA(), trustme.CA()
    files = write(first.issue_cert("app.example.test"), tmp_path)
    with Service(certificate=files) as service:
        assert service.https_url is not None
        assert shown(service.https_url, first, "app.example.test")
        assert not shown(service.https_url, first, "other.example.test")

        service.use_certificate(*write(second.issue_cert("app.example.test"), tmp_path))
        assert shown(service.https_url, second, "app.example.test")
        with pytest.raises(ServiceError, match="missing"):
            service.use_certificate(tmp_path / "missing", files[1])


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP on this system")
def test_serve_reads_its_certificate_again(tmp_path: Path) -> None:
    first, second = trustme.CA(), trustme.CA()
    chain, key = write(first.issue_cert("app.example.test"), tmp_path)
    options = ["--json", "--certificate", str(chain), "--certificate-key", str(key)]
    command = [sys.executable, "-m", "ginnel", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["https_url"]
        try:
            assert shown(url, first, "app.example.test")
            write(second.issue_cert("app.example.test"), tmp_path)
            process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 30
            while not shown(url, second, "app.example.test"):
                assert time.monotonic() < deadline
        finally:
            process.terminate()


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
@pytest.mark.parametrize("what", ["no edge", "backend", "rule", "unreachable"])
def test_responses_of_the_service_to_head_have_a_length_and_no_body(
    tmp_path: Path, version: str, what: str
) -> None:
    with ginnel.Service() as service, service.client() as remote:
        (ca := tmp_path / "ca.pem").write_text(service.ca_pem)
        if what != "no edge":
            edge = remote.edges.https.create(hostports=["a.example.test:443"])
            backend: Any = remote.backends.http_response.create(body="hello")
            if what == "unreachable":
                backend = remote.backends.static.create(address="127.0.0.1:1")
            teapot = {"type": "custom-response", "config": {"status_code": 418, "content": "hello"}}
            remote.edges.https.routes.create(
                edge.id,
                match_type="path_prefix",
                match="/",
                backend={"backend_id": backend.id},
                policy={"inbound": [{"name": "a", "actions": [teapot]}]}
                if what == "rule"
                else None,
            )
        port = service.edge_url("a.example.test").rpartition(":")[2].strip("/")
        curl = ["curl", "--silent", "--show-error", version, "--cacert", str(ca)]
        curl += ["--connect-to", f"::127.0.0.1:{port}", "https://a.example.test/"]

        body = subprocess.run(curl, check=True, capture_output=True).stdout
        head = subprocess.run([*curl, "--head"], check=True, capture_output=True, text=True).stdout

    assert f"content-length: {len(body)}\n" in head.lower()
