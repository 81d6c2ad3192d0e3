"""Events in a cluster: one node delivers, and another takes over."""

from __future__ import annotations

import contextlib
import signal

import ginnel
from event_receiver import Receiver, quick_service, status
from processes import Command, wait_until
from test_event_delivery import CREATED, UPDATED, subscribe


def node(store: str, name: str) -> Command:
    ports = ("--http-port", "none", "--https-port", "none", "--agent-port", "none")
    own = ("--node-name", name, "--peer-addr", "127.0.0.1:0")
    quick = ("--event-delivery-retry-after", "50ms")
    return Command("serve", "--store", store, *own, *ports, *quick, GINNEL_LOG="info")


def test_another_node_delivers_when_the_one_that_did_is_killed(store: str) -> None:
    with Receiver() as receiver, node(store, "one") as one:
        first = one.line()
        with ginnel.RemoteClient(first["api_key"], base_url=first["url"]) as remote:
            subscribe(remote, CREATED, to=receiver.url)
            made = [remote.ip_policies.create().id]
            receiver.wait_for(1)
        with node(store, "two") as two:
            second = two.line()
            with ginnel.RemoteClient(first["api_key"], base_url=second["url"]) as remote:
                # The other node delivers what is changed at this one.
                made += [remote.ip_policies.create().id for _ in range(3)]
                receiver.wait_for(4)
                assert [it.event["object"]["id"] for it in receiver.accepted] == made

                receiver.answer = status(503)
                made += [remote.ip_policies.create().id for _ in range(5)]
                wait_until(lambda: len(receiver.attempts) > 4, "an attempt")
                one.process.send_signal(signal.SIGKILL)
                one.process.wait()
                receiver.answer = status(200)
                # A lease lasts for half a minute.
                receiver.wait_for(9, 60)

        assert [it.event["object"]["id"] for it in receiver.accepted] == made


def test_a_node_that_stops_leaves_the_rest_to_another_and_none_is_delivered_twice(
    store: str,
) -> None:
    with Receiver() as receiver, contextlib.ExitStack() as first:
        one = quick_service({"store": store}, node_name="one")
        first.enter_context(one)
        with one.client() as remote:
            subscribe(remote, CREATED, to=receiver.url)
            remote.ip_policies.create()
            receiver.wait_for(1)
            with quick_service({"store": store}, node_name="two") as two:
                for _ in range(19):
                    remote.ip_policies.create()
                key = str(one.api_key)
                first.close()
                with ginnel.RemoteClient(key, base_url=two.url) as other:
                    for _ in range(20):
                        other.ip_policies.create()
                receiver.wait_for(40)

    identifiers = [delivery.event["event_id"] for delivery in receiver.attempts]
    assert len(identifiers) == len(set(identifiers)) == 40
    assert identifiers == sorted(identifiers)


def test_who_subscribes_at_one_node_hears_of_the_next_change_at_another(store: str) -> None:
    with (
        Receiver() as receiver,
        quick_service({"store": store}, node_name="one") as one,
        quick_service({"store": store}, node_name="two") as two,
        one.client() as remote,
        ginnel.RemoteClient(str(one.api_key), base_url=two.url) as other,
    ):
        other.ip_policies.create()
        subscribe(remote, CREATED, to=receiver.url)
        made = other.ip_policies.create().id

        (delivery,) = receiver.wait_for(1)

        assert delivery.event["object"]["id"] == made
        for subscription in remote.event_subscriptions.list():
            remote.event_subscriptions.delete(subscription.id)
        other.ip_policies.create()
        subscribe(remote, UPDATED, to=receiver.url)
        other.ip_policies.update(made, description="changed")
        receiver.wait_for(2)

    assert [it.type for it in receiver.accepted] == [CREATED, UPDATED]
