"""`ginnel_loopback_only`: no connection and no datagram leaves the machine, whoever sends it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from ginnel._testing.loopback import loopback_only
from ginnel.service_settings import ServiceSettings
from recorder import get
from visitor import Visitor

HOST = "cloud.example.test"
TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.AAAA"


def own_address() -> str | None:
    """An address of this machine that is not loopback: it stands for another machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.254", 9))  # Sends nothing.
        except OSError:
            return None
        address: str = asked.getsockname()[0]
    return None if address.startswith("127.") else address


ADDRESS = own_address()
pytestmark = pytest.mark.skipif(ADDRESS is None, reason="the machine has no other address")


@dataclass
class Elsewhere:
    """A port of another machine."""

    listener: socket.socket
    datagrams: socket.socket

    @property
    def place(self) -> str:
        host, port = self.listener.getsockname()
        return f"{host}:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def is_reached(self) -> bool:
        """Connections to a listener are made before it accepts them, so that none is late."""
        for waiting in (self.listener, self.datagrams):
            waiting.setblocking(False)
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            pass
        else:
            return True
        try:
            self.datagrams.recv(100)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with (
        socket.create_server((ADDRESS or "", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind((ADDRESS, listener.getsockname()[1]))
        found = Elsewhere(listener, datagrams)
        yield found
        assert not found.is_reached()


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[ginnel.Service, ginnel.RemoteClient, ginnel.Agent]]:
    with (
        ginnel.Service() as service,
        service.client() as remote,
        ginnel.Agent(service) as agent,
    ):
        yield service, remote, agent


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_the_fixture_connections_are_noticed() -> None:
    with (
        socket.create_server((ADDRESS or "", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind((ADDRESS, listener.getsockname()[1]))
        elsewhere = Elsewhere(listener, datagrams)
        assert not elsewhere.is_reached()
        with socket.create_connection(listener.getsockname()):
            assert elsewhere.is_reached()
        send_datagram(datagrams.getsockname())
        assert elsewhere.is_reached()


def connect(place: tuple[str, int]) -> None:
    socket.create_connection(place, timeout=5).close()


def send_datagram(place: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.sendto(b"x", place)


def send_message(place: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.sendmsg([b"x"], [], 0, place)


def connect_mapped(place: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET6) as sending:
        sending.connect((f"::ffff:{place[0]}", place[1]))


def connect_in_a_thread(place: tuple[str, int]) -> None:
    failed: list[OSError] = []

    def run() -> None:
        try:
            connect(place)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


async def loop_connection(place: tuple[str, int]) -> None:
    _, writer = await asyncio.open_connection(*place)
    writer.close()


async def loop_socket(place: tuple[str, int]) -> None:
    with socket.socket() as used:
        used.setblocking(False)
        await asyncio.get_running_loop().sock_connect(used, place)


async def loop_datagrams(place: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=place)
    transport.close()


class Sending(asyncio.DatagramProtocol):
    """Sends a datagram as soon as it can."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.place = place
        self.sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        try:
            transport.sendto(b"x", self.place)
        except OSError as error:
            self.sent.set_exception(error)
        else:
            self.sent.set_result(None)

    def error_received(self, exc: Exception) -> None:
        self.sent = asyncio.get_running_loop().create_future()
        self.sent.set_exception(exc)


async def loop_sends(place: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: Sending(place), local_addr=("0.0.0.0", 0)
    )
    try:
        assert isinstance(protocol, Sending)
        await protocol.sent
        transport.sendto(b"x", place)
        await protocol.sent
    finally:
        transport.close()


BLOCKING = [connect, send_datagram, send_message, connect_mapped, connect_in_a_thread]
ON_A_LOOP = [loop_connection, loop_socket, loop_datagrams, loop_sends]


@pytest.mark.parametrize("way", BLOCKING)
def test_sockets_of_python(way: Any, elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    with pytest.raises(OSError, match="is not this machine"):
        way(elsewhere.listener.getsockname())


@pytest.mark.parametrize("way", ON_A_LOOP)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_event_loops(loop: str, way: Any, elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None

    with (
        asyncio.Runner(loop_factory=factory) as runner,
        pytest.raises(OSError, match="is not this machine"),
    ):
        runner.run(way(elsewhere.listener.getsockname()))


def test_a_name_of_another_machine(
    elsewhere: Elsewhere, ginnel_loopback_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    uvloop = pytest.importorskip("uvloop")
    place = elsewhere.listener.getsockname()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    with socket.socket() as used, pytest.raises(OSError, match="is not this machine"):
        used.connect(("localhost", place[1]))
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(OSError, match="is not this machine"),
    ):
        runner.run(loop_connection(("localhost", place[1])))


def test_this_machine_is_reached_as_before(ginnel_loopback_only: None) -> None:
    uvloop = pytest.importorskip("uvloop")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("localhost", port)):
            connect_mapped(("127.0.0.1", port))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for way in (loop_connection, loop_socket, loop_datagrams, loop_sends):
                runner.run(way(("127.0.0.1", port)))
            runner.run(loop_connection(("localhost", port)))


def test_a_connection_from_before_carries_no_call(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ginnel.Service(host=ADDRESS or "") as service:
        place = urlsplit(service.url)
        client = make_client(service.api_key, base_url=service.url, allow_http=True, max_retries=0)

        async def call() -> Any:
            return await client.api_keys.list().first()

        with asyncio.Runner() as runner:
            assert runner.run(call())
            with (
                monkeypatch.context() as patch,
                loopback_only(patch),
                pytest.raises(ginnel.APIConnectionError, match="only this machine"),
            ):
                runner.run(call())
            assert runner.run(call())
        assert place.hostname == ADDRESS


def test_an_agent(elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    with pytest.raises((OSError, ginnel.GinnelError), match="only this machine"):
        ginnel.Agent(server_addr=elsewhere.place, authtoken="a" * 20, timeout=1)


def status_of(url: str) -> int:
    place = urlsplit(url)
    status, _, _ = get(place.netloc, place.netloc, "/")
    return status


def test_a_local_service(shop: Any, elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    _, _, agent = shop
    for addr in (elsewhere.place, f"https://{elsewhere.place}"):
        with (
            agent.client() as local,
            local.tunnels.open(addr=addr, proto="http", name="away", schemes=["http"]) as tunnel,
        ):
            assert status_of(tunnel.public_url) == 502


def visit(service: ginnel.Service, host: str, path: str = "/") -> int:
    assert service.http_url is not None
    status, _, _ = get(urlsplit(service.http_url).netloc, host, path)
    return status


@pytest.mark.parametrize("tls", [False, True])
def test_a_static_backend(
    shop: Any, elsewhere: Elsewhere, ginnel_loopback_only: None, tls: bool
) -> None:
    service, remote, _ = shop
    host = f"static-{tls}.example.test".lower()
    backend = remote.backends.static.create(
        address=elsewhere.place, tls={"enabled": tls, "verify": False}
    )
    edge = remote.edges.https.create(hostports=[f"{host}:443", f"{host}:80"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
    )

    assert visit(service, host) == 502


def status_under(shop: Any, *actions: dict[str, Any]) -> int:
    """The status that a visitor of an endpoint with a policy gets."""
    service, remote, _ = shop
    policy = json.dumps({"on_http_request": [{"actions": list(actions)}]})
    endpoint = remote.endpoints.create(url=f"http://{HOST}", traffic_policy=policy)
    try:
        place = urlsplit(service.http_url).netloc
        return get(place, HOST, "/", f"Authorization: Bearer {TOKEN}")[0]
    finally:
        remote.endpoints.delete(endpoint.id)


def test_keys_of_an_issuer(shop: Any, elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    keys = {"sources": {"additional_jkus": [f"https://{elsewhere.place}/keys"]}}
    tokens = [{"type": "jwt", "method": "header", "name": "Authorization", "prefix": "Bearer "}]
    validation = {
        "issuer": {"allow_list": [{"value": "https://issuer.example.test/"}]},
        "audience": {"allow_list": [{"value": "api"}]},
        "http": {"tokens": tokens},
        "jws": {"allowed_algorithms": ["RS256"], "keys": keys},
    }

    assert status_under(shop, {"type": "jwt-validation", "config": validation}) == 502


def test_a_login(shop: Any, elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    login = {"issuer_url": f"https://{elsewhere.place}", "client_id": "a", "client_secret": "b"}
    service, remote, _ = shop
    policy = {"on_http_request": [{"actions": [{"type": "openid-connect", "config": login}]}]}
    edge = remote.edges.https.create(hostports=["login.example.test:443"])
    remote.edges.https.routes.create(
        edge.id,
        match_type="path_prefix",
        match="/",
        backend={"backend_id": remote.backends.http_response.create(body="in").id},
        traffic_policy={"value": json.dumps(policy)},
    )

    assert Visitor(service, "login.example.test").go().status == 502


def test_deliveries_of_events(
    shop: Any,
    elsewhere: Elsewhere,
    ginnel_loopback_only: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    _, remote, _ = shop
    destinations = [
        remote.event_destinations.create(target={"webhook": {"url": f"{elsewhere.url}/events"}}),
        remote.event_destinations.create(target={"otlp": {"url": f"{elsewhere.url}/v1/logs"}}),
    ]
    subscription = remote.event_subscriptions.create(
        sources=[{"type": "ip_policy_created.v0"}],
        destination_ids=[destination.id for destination in destinations],
    )
    remote.ip_policies.create()

    def refused() -> set[str]:
        texts = [record.getMessage() for record in list(caplog.records)]
        failed = [text for text in texts if "only this machine" in text]
        return {it.id for it in destinations for text in failed if it.id in text}

    until(lambda: len(refused()) == 2)
    remote.event_subscriptions.delete(subscription.id)


def test_certificates_by_acme(
    elsewhere: Elsewhere, ginnel_loopback_only: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    settings = ServiceSettings(
        acme={"directory": f"https://{elsewhere.place}/dir", "agree_to_terms": True}
    )
    with ginnel.Service(settings=settings) as service, service.client() as remote:
        remote.reserved_domains.create(
            domain="shop.example.test",
            certificate_management_policy={"authority": "letsencrypt", "private_key_type": "ecdsa"},
        )
        until(lambda: [it for it in caplog.records if "only this mach" in it.getMessage()])


def test_a_database(elsewhere: Elsewhere, ginnel_loopback_only: None) -> None:
    with pytest.raises(ginnel.GinnelError, match="only this machine"):
        ginnel.Service(store=f"postgres://me@{elsewhere.place}/tunnels")


def test_other_nodes(
    store: str, elsewhere: Elsewhere, ginnel_loopback_only: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    one: ServiceSettings = {"node_name": "one", "peer_addr": "127.0.0.1:0"}
    # The other node says that it is reached at another machine.
    two: ServiceSettings = {
        "node_name": "two",
        "peer_addr": elsewhere.place,
        "peer_listen_addr": "127.0.0.1:0",
    }

    with (
        ginnel.Service(store=store, settings=one),
        ginnel.Service(store=store, settings=two),
    ):
        until(lambda: [it for it in caplog.records if "only this mach" in it.getMessage()])
