"""Events on their way: from the commit of a change to a program elsewhere, or to a file."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme

import ginnel
from addresses import free_port
from event_receiver import Delivery, Receiver, quick_service, status
from postgres import ON_BOTH_STORES, PostgresServer
from processes import Command, wait_until
from test_monitoring import Watched

CREATED, UPDATED = "ip_policy_created.v0", "ip_policy_updated.v0"
DELETED = "ip_policy_deleted.v0"
ANY = "127.0.0.1:0"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def service(storage: dict[str, Any]) -> Iterator[ginnel.Service]:
    with quick_service(storage) as service:
        yield service


@pytest.fixture
def remote(service: ginnel.Service) -> Iterator[ginnel.RemoteClient]:
    with service.client() as remote:
        yield remote


def subscribe(remote: Any, *types: str, to: str, **target: Any) -> Any:
    """The destination of a new subscription; `to` is a webhook, unless there is a target."""
    target = target or {"webhook": {"url": to}}
    destination = remote.event_destinations.create(target=target)
    sources = [{"type": name} for name in types]
    remote.event_subscriptions.create(sources=sources, destination_ids=[destination.id])
    return destination


@ON_BOTH_STORES
def test_changes_are_told_in_their_order_as_get_shows_them(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    destination = subscribe(remote, CREATED, UPDATED, DELETED, to=receiver.url)
    policy = remote.ip_policies.create(description="first", metadata='{"a": [1]}')
    changed = remote.ip_policies.update(policy.id, description="second")
    remote.ip_policies.delete(policy.id)
    remote.bot_users.create(name="of another type")

    deliveries = receiver.wait_for(3)
    events = [delivery.event for delivery in deliveries]

    assert [event["event_type"] for event in events] == [CREATED, UPDATED, DELETED]
    shown = [
        json.loads(json.dumps(row.to_dict(), default=str)) for row in (policy, changed, changed)
    ]
    for event, row in zip(events, shown, strict=True):
        assert {name: event["object"][name] for name in ("id", "uri", "description")} == {
            name: row[name] for name in ("id", "uri", "description")
        }
    assert events[0]["object"]["metadata"] == '{"a": [1]}'
    assert len({event["event_id"] for event in events}) == 3
    assert [event["event_id"] for event in events] == sorted(event["event_id"] for event in events)
    audit = remote.audit_events.list(resource_id=policy.id).first()
    assert audit is not None
    assert events[0]["principal"] == {"id": audit.owner_id, "key_id": audit.key_id}
    secret = destination.target.webhook.secret
    for delivery in deliveries:
        assert delivery.is_signed_with(secret)
        assert delivery.headers["webhook-id"] == delivery.event["event_id"]
        assert delivery.headers["content-type"] == "application/json"
        assert abs(int(delivery.headers["webhook-timestamp"]) - time.time()) < 60


def test_what_goes_with_a_resource_is_told_too(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    types = ["https_edge_route_deleted.v0", "https_edge_deleted.v0", "https_edge_route_updated.v0"]
    subscribe(remote, *types, to=receiver.url)
    edge = remote.edges.https.create(hostports=["a.example.test:443"])
    route = remote.edges.https.routes.create(edge.id, match_type="path_prefix", match="/")
    remote.edges.https.routes.compression.replace(edge.id, route.id)
    remote.edges.https.delete(edge.id)

    events = [delivery.event for delivery in receiver.wait_for(3)]

    assert events[0]["event_type"] == "https_edge_route_updated.v0"
    assert events[0]["object"]["compression"] == {"enabled": True}
    assert {(event["event_type"], event["object"]["id"]) for event in events[1:]} == {
        ("https_edge_route_deleted.v0", route.id),
        ("https_edge_deleted.v0", edge.id),
    }


@ON_BOTH_STORES
def test_a_failure_is_tried_again_with_the_same_identifier_and_the_rest_waits(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    receiver.answer = status(503)
    subscribe(remote, CREATED, to=receiver.url)
    policies = [remote.ip_policies.create(description=str(number)).id for number in range(3)]
    wait_until(lambda: len(receiver.attempts) >= 3, "three attempts")
    receiver.answer = status(200)

    accepted = receiver.wait_for(3)

    assert [delivery.event["object"]["id"] for delivery in accepted] == policies
    first = [it for it in receiver.attempts if it.event["object"]["id"] == policies[0]]
    assert len(first) >= 4
    assert len({delivery.headers["webhook-id"] for delivery in first}) == 1
    assert len({delivery.body for delivery in first}) == 1


@ON_BOTH_STORES
def test_a_changed_url_is_used_at_once_and_a_deleted_subscription_sends_nothing(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dead:
        nowhere = f"http://127.0.0.1:{dead.getsockname()[1]}/"
        destination = subscribe(remote, CREATED, to=nowhere)
        unwanted = remote.event_subscriptions.create(
            sources=[{"type": UPDATED}], destination_ids=[destination.id]
        )
        policy = remote.ip_policies.create()
        remote.ip_policies.update(policy.id, description="unwanted")
        remote.event_subscriptions.delete(unwanted.id)
        remote.event_destinations.update(destination.id, target={"webhook": {"url": receiver.url}})

        receiver.wait_for(1)
        remote.ip_policies.create(description="last")
        accepted = receiver.wait_for(2)

    assert [delivery.type for delivery in accepted] == [CREATED, CREATED]


def test_a_secret_is_replaced_while_receivers_still_have_the_old_one(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    destination = subscribe(remote, CREATED, to=receiver.url)
    old = destination.target.webhook.secret
    new = "whsec_" + base64.b64encode(b"n" * 32).decode()
    webhook = {"url": receiver.url, "secret": new}
    remote.event_destinations.update(destination.id, target={"webhook": webhook})
    remote.ip_policies.create()

    [delivery] = receiver.wait_for(1)

    assert delivery.is_signed_with(new)
    assert delivery.is_signed_with(old)
    assert delivery.headers["webhook-signature"].count(" ") == 1


def test_a_new_receiver_learns_nothing_of_the_secret_of_the_old_one(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    destination = subscribe(remote, CREATED, to="http://127.0.0.1:9/")
    old = destination.target.webhook.secret
    new = "whsec_" + base64.b64encode(b"n" * 32).decode()
    webhook = {"url": receiver.url, "secret": new}
    remote.event_destinations.update(destination.id, target={"webhook": webhook})
    remote.ip_policies.create()

    [delivery] = receiver.wait_for(1)

    assert delivery.is_signed_with(new)
    assert not delivery.is_signed_with(old)
    assert " " not in delivery.headers["webhook-signature"]


def test_what_waits_for_a_deleted_destination_vanishes(
    service: ginnel.Service, remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    receiver.answer = status(503)
    destination = subscribe(remote, CREATED, to=receiver.url)
    remote.ip_policies.create()
    wait_until(lambda: receiver.attempts, "an attempt")
    for subscription in remote.event_subscriptions.list():
        remote.event_subscriptions.delete(subscription.id)
    remote.event_destinations.delete(destination.id)
    time.sleep(0.1)
    receiver.answer, count = status(200), len(receiver.attempts)

    subscribe(remote, CREATED, to=receiver.url)
    time.sleep(0.3)

    assert len(receiver.attempts) == count


@pytest.mark.parametrize(("code", "attempts"), [(400, 3), (413, 3), (410, 1)])
def test_an_event_that_is_refused_too_often_is_given_up(code: int, attempts: int) -> None:
    with Receiver() as elsewhere, Receiver() as receiver:
        receiver.answer = status(code, location=elsewhere.url)
        sooner = {"retry_after": "10ms"}
        with quick_service(events=sooner, admin_addr=ANY) as service, service.client() as remote:
            subscribe(remote, CREATED, to=receiver.url)
            refused = remote.ip_policies.create().id
            watched = watched_of(service)
            wait_until(lambda: given_up(watched, "refused") == 1, "it is given up", 60)
            receiver.answer = status(200)
            taken = remote.ip_policies.create().id

            accepted = receiver.wait_for(1)

            assert [delivery.event["object"]["id"] for delivery in accepted] == [taken]
            tried = [it for it in receiver.attempts if it.event["object"]["id"] == refused]
            assert len(tried) == attempts
            assert not elsewhere.attempts
            failed = watched.scrape()[
                "ginnel_event_attempts_failed_total", frozenset({("target", "webhook")})
            ]
            assert failed.value == attempts


@pytest.mark.parametrize("code", [301, 401, 403, 404, 429, 503])
def test_a_status_that_is_about_the_receiver_gives_nothing_up(code: int) -> None:
    with Receiver() as elsewhere, Receiver() as receiver:
        receiver.answer = status(code, location=elsewhere.url)
        sooner = {"retry_after": "10ms"}
        with quick_service(events=sooner, admin_addr=ANY) as service, service.client() as remote:
            subscribe(remote, CREATED, to=receiver.url)
            made = [remote.ip_policies.create().id for _ in range(3)]
            wait_until(lambda: len(receiver.attempts) >= 6, "six attempts")
            receiver.answer = status(200)

            accepted = receiver.wait_for(3)

            assert [delivery.event["object"]["id"] for delivery in accepted] == made
            assert given_up(watched_of(service), "refused") == 0
            assert not elsewhere.attempts


LOCK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_nothing_is_sent_while_what_was_sent_cannot_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with (
        Receiver(status(503)) as receiver,
        quick_service({"path": str(path)}) as service,
        service.client() as remote,
    ):
        subscribe(remote, CREATED, to=receiver.url)
        remote.ip_policies.create()
        remote.ip_policies.create()
        wait_until(lambda: receiver.attempts, "an attempt")
        # Of another process: locks of files are not held against the own one.
        lock = subprocess.Popen(
            [sys.executable, "-c", LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with lock:
            assert lock.stdin
            assert lock.stdout
            assert lock.stdout.readline() == b"locked\n"
            receiver.answer = status(200)
            receiver.wait_for(2)
            # Longer than one wait for the lock and the pause behind it.
            time.sleep(8)
            assert len(receiver.accepted) == 2
            lock.stdin.close()
        remote.ip_policies.create()
        receiver.wait_for(3)
        time.sleep(0.3)

    identifiers = [delivery.event["event_id"] for delivery in receiver.accepted]
    assert len(identifiers) == len(set(identifiers)) == 3


def test_the_url_of_a_receiver_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with caplog.at_level("DEBUG"), quick_service() as service, service.client() as remote:
        subscribe(remote, CREATED, to=f"http://127.0.0.1:{port}/services/swordfish")
        remote.ip_policies.create()
        wait_until(lambda: "could not be delivered" in caplog.text, "a failure is logged")
    assert "swordfish" not in caplog.text


def watched_of(service: ginnel.Service) -> Watched:
    return Watched(str(service.admin_url).removeprefix("http://"))


def given_up(watched: Watched, reason: str) -> float:
    sample = watched.scrape()["ginnel_events_given_up_total", frozenset({("reason", reason)})]
    return float(sample.value)


def endless(handler: Any, _: Delivery) -> None:
    """Says that it is well, and then much more."""
    handler.send_response(200)
    handler.send_header("content-length", str(10 << 30))
    handler.end_headers()
    piece = bytes(1 << 16)
    while True:
        handler.wfile.write(piece)


def drop(handler: Any, _: Delivery) -> None:
    handler.connection.close()


def never(handler: Any, _: Delivery) -> None:
    time.sleep(120)


def test_a_body_without_end_is_not_read(remote: ginnel.RemoteClient, receiver: Receiver) -> None:
    receiver.answer = endless
    subscribe(remote, CREATED, to=receiver.url)
    for _ in range(3):
        remote.ip_policies.create()

    wait_until(lambda: len({it.event["event_id"] for it in receiver.attempts}) == 3, "all three")

    assert len(receiver.attempts) == 3


@pytest.mark.parametrize("answer", [drop, never])
def test_a_dead_receiver_holds_up_neither_others_nor_the_end(answer: Any) -> None:
    patience = 60
    with Receiver() as receiver, Receiver(answer) as dead:
        with (
            quick_service(events={"timeout": f"{patience}s"}) as service,
            service.client() as remote,
        ):
            subscribe(remote, CREATED, to=dead.url)
            subscribe(remote, CREATED, to=receiver.url)
            for _ in range(20):
                remote.ip_policies.create()
            receiver.wait_for(20)
            wait_until(lambda: dead.attempts, "an attempt")
            began = time.monotonic()
        assert time.monotonic() - began < patience / 2
        assert len({delivery.event["event_id"] for delivery in dead.attempts}) == 1


def test_what_waits_for_a_dead_receiver_is_bounded_in_number_and_age(tmp_path: Path) -> None:
    bounds = {"max_waiting": 5, "max_age": "3s"}
    with (
        Receiver(status(503)) as receiver,
        quick_service(events=bounds, admin_addr=ANY) as service,
        service.client() as remote,
    ):
        watched = watched_of(service)
        subscribe(remote, CREATED, to=receiver.url)
        made = [remote.ip_policies.create().id for _ in range(12)]
        wait_until(lambda: given_up(watched, "overflow") >= 6, "the oldest are given up")
        waiting = watched.scrape()["ginnel_events_waiting", frozenset()]
        assert waiting.value <= 6
        wait_until(lambda: given_up(watched, "expired") >= 5, "the others are too old")
        receiver.answer = status(200)
        last = remote.ip_policies.create().id

        accepted = receiver.wait_for(1)

        assert [delivery.event["object"]["id"] for delivery in accepted] == [last]
        assert made[-1] != last


@ON_BOTH_STORES
def test_what_waits_for_a_dead_receiver_is_bounded_in_bytes(storage: dict[str, Any]) -> None:
    bounds = {"max_waiting_size": "64KiB"}
    with (
        Receiver(status(503)) as receiver,
        quick_service(storage, events=bounds, admin_addr=ANY) as service,
        service.client() as remote,
    ):
        watched = watched_of(service)
        subscribe(remote, CREATED, to=receiver.url)
        made = [remote.ip_policies.create(metadata="m" * 4000).id for _ in range(40)]
        wait_until(lambda: given_up(watched, "overflow") >= 24, "the oldest are given up")
        assert given_up(watched, "overflow") <= 26
        assert 60_000 < watched.scrape()["ginnel_events_waiting_bytes", frozenset()].value <= 65_536
        receiver.answer = status(200)

        accepted = receiver.wait_for(14)

    left = [delivery.event["object"]["id"] for delivery in accepted]
    assert left == made[-len(left) :]


COUNT = """
import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0])
"""


def rows(storage: dict[str, Any], server: PostgresServer, table: str) -> int:
    """How many a table has, of a database that is in use."""
    if "store" in storage:
        name = storage["store"].rpartition("/")[2]
        return int(server.sql(name, f"SELECT count(*) FROM ginnel.{table}"))
    # Of another process: this one would give up the locks of the service.
    command = [sys.executable, "-c", COUNT, storage["path"], f"SELECT count(*) FROM {table}"]
    return int(subprocess.check_output(command))


def wait_for_rows(storage: dict[str, Any], server: PostgresServer, table: str, count: int) -> None:
    def has_as_many() -> bool:
        return rows(storage, server, table) == count

    wait_until(has_as_many, f"{count} rows in {table}")


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_an_event_is_stored_once_and_goes_with_its_last_destination(
    engine: str, tmp_path: Path, postgres_server: PostgresServer, store: str
) -> None:
    storage: Any = {"store": store} if engine == "postgresql" else {"path": str(tmp_path / "db")}
    with (
        Receiver(status(503)) as one,
        Receiver(status(503)) as two,
        quick_service(storage) as service,
        service.client() as remote,
    ):
        first = subscribe(remote, CREATED, to=one.url)
        second = subscribe(remote, CREATED, to=two.url)
        for _ in range(5):
            remote.ip_policies.create()
        assert rows(storage, postgres_server, "waiting_events") == 10
        assert rows(storage, postgres_server, "events") == 5

        one.answer = status(200)
        one.wait_for(5)
        wait_until(lambda: rows(storage, postgres_server, "waiting_events") == 5, "the removal")
        assert rows(storage, postgres_server, "events") == 5
        for subscription in remote.event_subscriptions.list():
            remote.event_subscriptions.delete(subscription.id)
        for destination in (first, second):
            remote.event_destinations.delete(destination.id)
        wait_until(lambda: rows(storage, postgres_server, "events") == 0, "what is left is removed")
        assert rows(storage, postgres_server, "waiting_events") == 0


def test_what_waited_in_the_tables_of_schema_3_is_delivered_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with Receiver(status(503)) as receiver:
        with quick_service({"path": str(path)}) as service, service.client() as remote:
            subscribe(remote, CREATED, to=receiver.url)
            made = [remote.ip_policies.create().id for _ in range(3)]
            admin_key = service.api_key
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(
                "INSERT INTO event_deliveries SELECT destination_id, event_id, at, '[]', body"
                " FROM waiting_events JOIN events ON id = event_id"
            )
            database.execute("DELETE FROM waiting_events")
            database.execute("DELETE FROM events")
            database.commit()
        receiver.answer = status(200)
        storage = {"path": str(path), "api_key": admin_key}
        with quick_service(storage) as service, service.client() as remote:
            made.append(remote.ip_policies.create().id)
            receiver.wait_for(4)
        with contextlib.closing(sqlite3.connect(path)) as database:
            for table in ("event_deliveries", "waiting_events", "events"):
                assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)

    assert [delivery.event["object"]["id"] for delivery in receiver.accepted] == made


@ON_BOTH_STORES
def test_what_waits_for_a_destination_that_is_gone_is_removed(
    storage: dict[str, Any], postgres_server: PostgresServer, tmp_path: Path
) -> None:
    storage = storage or {"path": str(tmp_path / "ginnel.db")}
    with Receiver(status(503)) as receiver:
        with quick_service(storage) as service, service.client() as remote:
            admin_key = service.api_key
            gone = subscribe(remote, CREATED, to=receiver.url).id
            kept = subscribe(remote, CREATED, to=receiver.url).id
            policy = remote.ip_policies.create().id
        # As nodes of schema 3 leave it, which know nothing of the tables of schema 4.
        more = [f"('{gone}', 'ev_0{number}', 0, 1)" for number in range(1300)]
        prefix = "ginnel." if "store" in storage else ""
        statements = [
            f"INSERT INTO {prefix}waiting_events VALUES {', '.join(more)}",
            f"INSERT INTO {prefix}events SELECT event_id, 'x' FROM {prefix}waiting_events"
            f" WHERE event_id LIKE 'ev_0%' AND destination_id = '{gone}' AND at = 0",
            f"INSERT INTO {prefix}event_deliveries VALUES ('{gone}', 'ev_0', 0, '[]', 'x')",
            f"DELETE FROM {prefix}links WHERE to_id = '{gone}'",
            f"DELETE FROM {prefix}resources WHERE id = '{gone}'",
        ]
        if "store" in storage:
            name = storage["store"].rpartition("/")[2]
            postgres_server.sql(name, "; ".join(statements))
        else:
            with contextlib.closing(sqlite3.connect(storage["path"])) as database:
                for statement in statements:
                    database.execute(statement)
                database.commit()

        with quick_service({**storage, "api_key": admin_key}):
            for table, left in (("event_deliveries", 0), ("waiting_events", 1), ("events", 1)):
                wait_for_rows(storage, postgres_server, table, left)
            receiver.answer = status(200)
            receiver.wait_for(1)

    assert kept != gone
    assert [it.event["object"]["id"] for it in receiver.accepted] == [policy]


def test_the_deletion_of_a_destination_changes_nothing_of_what_waits_for_it(
    store: str, postgres_server: PostgresServer
) -> None:
    name = store.rpartition("/")[2]
    with (
        quick_service({"store": store}) as service,
        service.client() as remote,
    ):
        target = {"webhook": {"url": "https://hooks.example.test/"}}
        destination = remote.event_destinations.create(target=target)
        # The service does not hear of it, so nothing else uses the row.
        row = f"INSERT INTO ginnel.waiting_events VALUES ('{destination.id}', 'ev_0', 0, 1)"
        postgres_server.sql(name, row)
        sleeping = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'"

        def lock() -> None:
            statements = "SELECT FROM ginnel.waiting_events FOR UPDATE; SELECT pg_sleep(60)"
            with pytest.raises(AssertionError, match="canceling statement"):
                postgres_server.sql(name, statements)

        with ThreadPoolExecutor(1) as pool:
            locking = pool.submit(lock)
            wait_until(
                lambda: postgres_server.sql(name, f"SELECT count(*) {sleeping}") == "1",
                "the lock",
            )

            remote.event_destinations.delete(destination.id)

            is_locked = not locking.done()
            postgres_server.sql(name, f"SELECT pg_cancel_backend(pid) {sleeping}")
            locking.result()
        wait_for_rows({"store": store}, postgres_server, "waiting_events", 0)
    assert is_locked, "it waited for the rows of what waits"


def test_what_a_node_of_schema_3_stores_beside_a_newer_one_is_delivered(
    store: str, postgres_server: PostgresServer, receiver: Receiver
) -> None:
    name = store.rpartition("/")[2]
    with quick_service({"store": store}) as service, service.client() as remote:
        destination = subscribe(remote, CREATED, to=receiver.url)
        remote.ip_policies.create()
        (first,) = receiver.wait_for(1)
        row = first.event["event_id"] + "_again"
        body = first.body.decode().replace(first.event["event_id"], row)
        postgres_server.sql(
            name,
            "INSERT INTO ginnel.event_deliveries VALUES"
            f" ('{destination.id}', '{row}', {int(time.time())}, '[]', $body${body}$body$)",
        )
        # An older node says that something waits there, as this change does.
        remote.ip_policies.create()

        deliveries = receiver.wait_for(3)

        for table in ("event_deliveries", "waiting_events", "events"):
            wait_for_rows({"store": store}, postgres_server, table, 0)
    assert row in [delivery.event["event_id"] for delivery in deliveries]


def test_a_receiver_says_how_long_it_wants_to_be_left_alone(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    receiver.answer = status(429, **{"retry-after": "1"})
    subscribe(remote, CREATED, to=receiver.url)
    remote.ip_policies.create()
    wait_until(lambda: receiver.attempts, "an attempt")
    began, receiver.answer = time.monotonic(), status(200)

    receiver.wait_for(1)

    # Without the header it would be 20 ms.
    assert time.monotonic() - began > 0.8
    assert len(receiver.attempts) == 2


def test_connections_to_receivers_are_used_again(
    remote: ginnel.RemoteClient, receiver: Receiver
) -> None:
    def answer(handler: Any, _: Delivery) -> None:
        ports.add(handler.client_address[1])
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(b"x" * 1000)

    ports: set[int] = set()
    receiver.answer = answer
    subscribe(remote, CREATED, to=receiver.url)
    for _ in range(20):
        remote.ip_policies.create()
    receiver.wait_for(20)

    assert len(ports) <= 2


def test_the_own_api_is_not_a_receiver() -> None:
    with quick_service(admin_addr=ANY) as service, service.client() as remote:
        own, agents = service.url.rsplit(":", 1)[1], free_port()
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"):
            with pytest.raises(ginnel.BadRequestError, match="must lead elsewhere"):
                subscribe(remote, CREATED, to=f"http://{host}:{own}/bot_users")
        subscribe(remote, CREATED, to=f"http://127.0.0.1:{agents}/api/tunnels")
        with ginnel.Agent(service, web_addr=f"127.0.0.1:{agents}"):
            remote.ip_policies.create()
            watched, failed = watched_of(service), frozenset({("target", "webhook")})
            attempts = "ginnel_event_attempts_failed_total"
            wait_until(lambda: watched.scrape()[attempts, failed].value >= 2, "attempts")


def test_receivers_may_be_kept_to_public_addresses(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("WARNING"),
        quick_service(events={"private_receivers": False}) as service,
        service.client() as remote,
    ):
        for host in ("127.0.0.1", "169.254.169.254", "[fd00::1]", "[::ffff:127.0.0.1]"):
            for kind in ("webhook", "otlp"):
                target: Any = {kind: {"url": f"http://{host}:{receiver.port}/"}}
                problem = f"{kind}.url: .* is not a public address: .*private_receivers"
                with pytest.raises(ginnel.BadRequestError, match=problem):
                    remote.event_destinations.create(target=target)
        subscribe(remote, CREATED, to=f"http://localhost:{receiver.port}/")
        remote.ip_policies.create()
        wait_until(lambda: "could not be delivered" in caplog.text, "a failure is logged")

    assert "1 is not a public address" in caplog.text
    assert receiver.attempts == []


def test_events_are_appended_to_a_file_in_the_folder(tmp_path: Path) -> None:
    with quick_service(events={"folder": str(tmp_path)}) as service, service.client() as remote:
        subscribe(remote, CREATED, to="", file={"name": "events.jsonl"})
        made = [remote.ip_policies.create().id for _ in range(30)]
        path = tmp_path / "events.jsonl"
        wait_until(lambda: path.exists() and path.read_text().count("\n") == 30, "all lines")

        (tmp_path / "rotated").write_bytes(path.read_bytes())
        path.unlink()
        later = remote.ip_policies.create().id
        wait_until(lambda: path.exists() and path.read_text().count("\n") == 1, "a new file")

    lines = [json.loads(line) for line in (tmp_path / "rotated").read_text().splitlines()]
    assert [line["object"]["id"] for line in lines] == made
    assert json.loads(path.read_text())["object"]["id"] == later
    assert path.stat().st_mode & 0o077 == 0


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to(tmp_path / "elsewhere")
    with quick_service(events={"folder": str(tmp_path)}) as service, service.client() as remote:
        subscribe(remote, CREATED, to="", file={"name": "events.jsonl"})
        remote.ip_policies.create()
        time.sleep(0.2)
        assert not (tmp_path / "elsewhere").exists()
        (tmp_path / "events.jsonl").unlink()
        wait_until((tmp_path / "events.jsonl").is_file, "the file")


def test_a_collector_gets_log_records(remote: ginnel.RemoteClient, receiver: Receiver) -> None:
    subscribe(remote, CREATED, to="", otlp={"url": receiver.url})
    policy = remote.ip_policies.create(description="logged")
    wait_until(lambda: receiver.accepted, "a request")

    (resource,) = receiver.accepted[0].event["resourceLogs"]
    (scope,) = resource["scopeLogs"]
    (record,) = scope["logRecords"]
    assert receiver.accepted[0].headers["content-type"] == "application/json"
    assert {"key": "service.name", "value": {"stringValue": "ginnel"}} in resource["resource"][
        "attributes"
    ]
    assert scope["scope"]["name"] == "ginnel.events"
    assert abs(int(record["timeUnixNano"]) / 1e9 - time.time()) < 60
    assert (record["severityNumber"], record["eventName"]) == (9, CREATED)
    event = json.loads(record["body"]["stringValue"])
    assert event["object"]["id"] == policy.id
    attributes = {it["key"]: it["value"]["stringValue"] for it in record["attributes"]}
    assert attributes == {"event.id": event["event_id"], "event.type": CREATED}


def test_what_a_collector_drops_is_given_up_and_not_sent_again() -> None:
    def answer(handler: Any, _: Delivery) -> None:
        body = json.dumps({"partialSuccess": {"rejectedLogRecords": "1"}}).encode()
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with (
        Receiver(answer) as receiver,
        quick_service(admin_addr=ANY) as service,
        service.client() as remote,
    ):
        subscribe(remote, CREATED, to="", otlp={"url": receiver.url})
        remote.ip_policies.create()
        watched = watched_of(service)
        wait_until(lambda: given_up(watched, "refused") == 1, "it is counted")
        time.sleep(0.2)

        assert len(receiver.attempts) == 1
        delivered = watched.scrape()[
            "ginnel_events_delivered_total", frozenset({("target", "otlp")})
        ]
        assert delivered.value == 0


def test_nothing_is_lost_when_the_service_is_killed(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answer = status(503)
    place = ("--path", str(tmp_path / "db"), "--event-delivery-retry-after", "50ms")
    ports = ("--http-port", "none", "--https-port", "none", "--agent-port", "none")
    with Command("serve", *place, *ports) as command:
        told = command.line()
        with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
            subscribe(remote, CREATED, to=receiver.url)
            made = [remote.ip_policies.create().id for _ in range(50)]
        command.process.send_signal(signal.SIGKILL)
        command.process.wait()
    tried = {it.headers["webhook-id"] for it in receiver.attempts}
    receiver.answer = status(200)
    with Command("serve", *place, *ports, GINNEL_LOG="info") as command:
        command.line()
        # What was on its way at the end may come twice.
        wait_until(lambda: len({it.headers["webhook-id"] for it in receiver.accepted}) >= 50, "all")
        wait_until(lambda: "events wait from before" in "".join(command.complaints), "the log")

    ids = [delivery.event["object"]["id"] for delivery in receiver.accepted]
    assert list(dict.fromkeys(ids)) == made
    assert tried <= {delivery.headers["webhook-id"] for delivery in receiver.accepted}


@pytest.mark.usefixtures("receiver")
def test_there_is_no_thread_more_for_a_destination(receiver: Receiver) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    with quick_service() as service, service.client() as remote:
        remote.ip_policies.create()
        before = threads()
        subscribe(remote, CREATED, to=receiver.url)
        for _ in range(20):
            remote.ip_policies.create()
        receiver.wait_for(20)
        # Names are looked up on a thread of the runtime, which ends by itself.
        served = threading.active_count()
        assert threads() <= before + served + 2


def test_certificates_of_receivers_are_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ports = ("--http-port", "none", "--https-port", "none", "--agent-port", "none")
    quick = ("--event-delivery-retry-after", "50ms", "--path", str(tmp_path / "db"))

    def serve(trusted: Path) -> Command:
        return Command("serve", *ports, *quick, GINNEL_LOG="warn", SSL_CERT_FILE=str(trusted))

    with Receiver(tls=tls) as receiver:
        (tmp_path / "other.pem").write_bytes(trustme.CA().cert_pem.bytes())
        with serve(tmp_path / "other.pem") as command:
            told = command.line()
            with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
                subscribe(remote, CREATED, to=receiver.url)
                remote.ip_policies.create()
            refusal = "an event could not be delivered"
            wait_until(lambda: refusal in "".join(command.complaints), "the refusal")
            assert not receiver.attempts
        with serve(tmp_path / "ca.pem") as command:
            command.line()
            receiver.wait_for(1)
