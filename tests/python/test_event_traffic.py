"""Events of traffic: requests of visitors and connections that carried bytes."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

import ginnel
from event_receiver import Receiver, quick_service, status
from processes import wait_until
from test_event_delivery import given_up, never, subscribe, watched_of

REQUEST, CONNECTION = "http_request_complete.v0", "tcp_connection_closed.v0"


def page(remote: Any) -> str:
    """The address of an edge that answers."""
    backend = remote.backends.http_response.create(body="hello")
    edge = remote.edges.https.create(hostports=["a.example.test:443"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
    )
    return str(edge.id)


def visit(service: ginnel.Service, path: str) -> None:
    with service.opener().open(service.edge_url("a.example.test").rstrip("/") + path) as answer:
        answer.read()


def visit_often(service: ginnel.Service, visits: int) -> None:
    """Sends requests on one connection, because a handshake takes longer than a request."""
    address = urlsplit(service.https_url or "")
    trust = ssl.create_default_context(cadata=service.ca_pem)
    plain = socket.create_connection((str(address.hostname), address.port or 443))
    connection = http.client.HTTPConnection("a.example.test")
    connection.sock = trust.wrap_socket(plain, server_hostname=connection.host)
    with contextlib.closing(connection):
        for _ in range(visits):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"hello"


def test_requests_are_told_without_their_secrets() -> None:
    with Receiver() as receiver, quick_service() as service, service.client() as remote:
        edge_id = page(remote)
        visit(service, "/before")
        subscribe(remote, REQUEST, to=receiver.url)
        wait_until(lambda: is_told(service, receiver), "traffic is told")
        visit(service, "/orders?id=7&token=swordfish")
        wait_until(lambda: "/orders" in receiver.accepted[-1].body.decode(), "the request")
        event = receiver.accepted[-1].event

    shown = event["object"]
    assert (shown["method"], shown["status"], shown["edge_id"]) == ("GET", 200, edge_id)
    assert shown["path"].startswith("/orders?id=7&token=")
    assert "principal" not in event
    assert event["event_type"] == REQUEST
    assert event["event_id"].startswith("ev_")
    everything = b"".join(delivery.body for delivery in receiver.accepted)
    assert b"swordfish" not in everything
    assert b"/before" not in everything


def is_told(service: ginnel.Service, receiver: Receiver) -> bool:
    visit(service, "/probe")
    return bool(receiver.accepted)


def test_a_connection_of_bytes_is_told_when_it_is_over() -> None:
    with (
        Receiver() as receiver,
        socket.create_server(("127.0.0.1", 0)) as upstream,
        quick_service() as service,
        service.client() as remote,
        ginnel.Agent(service) as agent,
        agent.client() as here,
    ):
        subscribe(remote, CONNECTION, to=receiver.url)
        address = upstream.getsockname()[1]
        tunnel = here.tunnels.start(addr=address, proto="tcp", name="bytes")
        host, port = str(tunnel.public_url).removeprefix("tcp://").split(":")
        for _ in range(2):
            visitor = socket.create_connection((host, int(port)))
            accepted, _ = upstream.accept()
            visitor.sendall(b"12345")
            assert accepted.recv(5) == b"12345"
            accepted.close()
            visitor.close()
        delivery = receiver.wait_for(1)[0]

    assert delivery.type == CONNECTION
    assert delivery.event["object"]["received_bytes"] == 5
    assert delivery.event["object"]["method"] is None


def test_traffic_that_cannot_be_told_is_dropped_and_counted() -> None:
    with (
        Receiver(status(400)) as receiver,
        quick_service(admin_addr="127.0.0.1:0") as service,
        service.client() as remote,
    ):
        page(remote)
        subscribe(remote, REQUEST, to=receiver.url)
        wait_until(lambda: bool(receiver.attempts) or is_told(service, receiver), "an attempt")
        watched = watched_of(service)
        wait_until(lambda: given_up(watched, "traffic") >= 1, "a drop is counted")
        remote.ip_policies.create()


def test_a_receiver_that_never_answers_bounds_what_waits() -> None:
    visits = 1300
    with (
        Receiver(never) as receiver,
        quick_service(events={"timeout": "60s"}, admin_addr="127.0.0.1:0") as service,
        service.client() as remote,
    ):
        page(remote)
        subscribe(remote, REQUEST, to=receiver.url)
        wait_until(lambda: bool(receiver.attempts) or is_told(service, receiver), "an attempt")
        visit_often(service, visits)
        watched = watched_of(service)
        wait_until(lambda: given_up(watched, "traffic") >= visits - 1024 - 2, "drops are counted")


def test_a_receiver_behind_the_own_gateway_makes_no_loop() -> None:
    with (
        Receiver() as receiver,
        quick_service() as service,
        service.client() as remote,
        ginnel.Agent(service) as agent,
        agent.client() as here,
    ):
        page(remote)
        tunnel = here.tunnels.start(addr=receiver.port, proto="http", schemes=["http"], name="hook")
        subscribe(remote, REQUEST, to=f"{tunnel.public_url}/events")
        wait_until(lambda: is_told(service, receiver), "traffic is told")
        visit(service, "/last")
        wait_until(lambda: "/last" in receiver.accepted[-1].body.decode(), "the last visit")
        count = len(receiver.attempts)
        time.sleep(0.5)

    assert len(receiver.attempts) == count
    shown = [delivery.event["object"] for delivery in receiver.accepted]
    assert {event["method"] for event in shown} == {"GET"}
