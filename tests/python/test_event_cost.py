"""What events cost those who make changes: no round trip to the database of its own."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import ginnel
from event_receiver import quick_service
from test_event_delivery import UPDATED, subscribe
from test_event_secrets import everything

# What only the connection over which changes are made sends.
LOCK = b"UPDATE cluster SET version = version + 1 RETURNING"
CHANGES = 15
LATENCY = 0.01


@dataclass
class Connection:
    """How often a client has asked something after an answer, and whether it changes anything."""

    is_writer: bool = False
    round_trips: int = 0
    has_answer: bool = True


@dataclass
class CountingProxy:
    """Stands between a service and its database."""

    server: socket.socket
    upstream: tuple[str, int]
    connections: list[Connection] = field(default_factory=list)

    def round_trips(self) -> int:
        """Those over the connections that change something."""
        return sum(it.round_trips for it in list(self.connections) if it.is_writer)

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.server.accept()
                upstream = socket.create_connection(self.upstream)
                for one in (client, upstream):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection()
                self.connections.append(connection)
                for ends in (
                    (client, upstream, connection, True),
                    (upstream, client, connection, False),
                ):
                    threading.Thread(target=pump, args=ends, daemon=True).start()


def pump(source: socket.socket, sink: socket.socket, connection: Connection, asks: bool) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 20):
            if asks:
                connection.is_writer |= LOCK in data
                connection.round_trips += connection.has_answer
            else:
                # What is asked at once comes in pieces, and none of it waits for an answer.
                time.sleep(LATENCY)
            connection.has_answer = not asks
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()


@contextlib.contextmanager
def counting(store: str) -> Iterator[tuple[CountingProxy, str]]:
    """A proxy before a database, and the address of the database behind it."""
    user, place = store.removeprefix("postgres://").split("@")
    host, _, rest = place.partition(":")
    port, _, name = rest.partition("/")
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = CountingProxy(server, (host, int(port)))
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield proxy, f"postgres://{user}@127.0.0.1:{server.getsockname()[1]}/{name}"


def cost(proxy: CountingProxy, remote: ginnel.RemoteClient, policy: str) -> float:
    """Round trips of a change; a beat of the node comes in between at times."""
    remote.ip_policies.update(policy, description="first")
    costs = []
    for number in range(CHANGES):
        before = proxy.round_trips()
        remote.ip_policies.update(policy, description=str(number))
        costs.append(proxy.round_trips() - before)
    return statistics.median(costs)


def test_who_subscribes_to_much_does_not_make_more_subscriptions_dear(store: str) -> None:
    with (
        counting(store) as (proxy, address),
        quick_service({"store": address}) as service,
        service.client() as remote,
    ):
        destination = remote.event_destinations.create(
            target={"webhook": {"url": "https://hooks.example.test/"}}
        )
        everything_there_is = [{"type": name} for name in everything()]

        def cost_of_one() -> int:
            before = proxy.round_trips()
            remote.event_subscriptions.create(
                sources=everything_there_is, destination_ids=[destination.id]
            )
            return proxy.round_trips() - before

        costs = [cost_of_one() for _ in range(12)]

    # All other nodes wait meanwhile, so neither types nor subscriptions may count.
    assert max(costs[1:]) < 25, costs
    assert statistics.median(costs[-3:]) <= statistics.median(costs[1:4]) + 2, costs


def test_who_subscribes_costs_a_change_no_round_trip(store: str) -> None:
    with (
        counting(store) as (proxy, address),
        quick_service({"store": address}) as service,
        service.client() as remote,
    ):
        policy = remote.ip_policies.create().id
        without = cost(proxy, remote, policy)
        remote.event_subscriptions.create(sources=[{"type": "bot_user_updated.v0"}])
        of_others = cost(proxy, remote, policy)
        # Nobody takes it, so nothing is removed meanwhile.
        with socket.create_server(("127.0.0.1", 0)) as dead:
            subscribe(remote, UPDATED, to=f"http://127.0.0.1:{dead.getsockname()[1]}/")
            own = cost(proxy, remote, policy)

    # The lock with all that is read, and all that is written with the commit.
    assert [without, of_others, own] == [2, 2, 2]
