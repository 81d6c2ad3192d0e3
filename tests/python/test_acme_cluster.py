"""Certificates by ACME in a cluster: one node orders, whichever node is asked answers."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ginnel
from pebble import Pebble, pebble
from processes import Command, wait_until
from test_acme import edge, is_trusted, obtained
from test_certificates import connected

ANY_PORTS = ["--http-port", "0", "--https-port", "0"]


def node(store: str, name: str, *options: str) -> Command:
    own = ("--node-name", name, "--peer-addr", "127.0.0.1:0")
    return Command("serve", "--store", store, *own, *options, GINNEL_LOG="info")


def port_of(where: dict[str, Any]) -> int:
    return int(where["https_url"].rsplit(":", 1)[1])


def shows(port: int, trust: ssl.SSLContext, name: str) -> bool:
    with contextlib.suppress(ssl.SSLCertVerificationError):
        return bool(connected(("127.0.0.1", port), trust, name))
    return False


def issued(authority: Pebble) -> int:
    return (authority.folder / "pebble.log").read_text().count("Issued certificate")


@pytest.mark.parametrize("challenge", ["http-01", "tls-alpn-01"])
def test_a_node_answers_challenges_of_another(tmp_path: Path, store: str, challenge: str) -> None:
    # Where a challenge is asked for before all nodes show it, the order fails and is tried again.
    options = ("--acme-challenges", challenge, "--acme-retry-after", "1s")
    with (
        pebble(tmp_path) as authority,
        # The one that the authority asks has no authority in its own configuration.
        node(store, "asked", *authority.ports) as asked,
        node(store, "orders", *ANY_PORTS, *authority.options, *options) as by,
    ):
        where, other = asked.line(), by.line()
        where["api_key"] = where["api_key"] or other["api_key"]
        with ginnel.RemoteClient(where["api_key"], base_url=where["url"]) as remote:
            edge(remote, "one.example.test")

            assert obtained(remote, "one.example.test")

        trust = authority.trust()
        wait_until(partial(is_trusted, authority, trust, "one.example.test"), "it is shown")
        port = port_of(other)
        wait_until(partial(shows, port, trust, "one.example.test"), "the other node shows it")


def test_each_name_is_ordered_by_one_node(tmp_path: Path, store: str) -> None:
    names = [f"n{number}.example.test" for number in range(6)]
    # Where a challenge is asked for before all nodes show it, the order fails and is tried again.
    again = ("--acme-retry-after", "1s")
    with (
        pebble(tmp_path) as authority,
        node(store, "one", *authority.ports, *authority.options, *again) as one,
        node(store, "two", *ANY_PORTS, *authority.options, *again) as two,
    ):
        where, other = one.line(), two.line()
        where["api_key"] = where["api_key"] or other["api_key"]
        with ginnel.RemoteClient(where["api_key"], base_url=where["url"]) as remote:
            edge(remote, *names)
            for name in names:
                assert obtained(remote, name)

            assert len(remote.tls_certificates.list().to_list()) == len(names)
        assert issued(authority) == len(names)


def test_an_order_of_a_node_that_was_killed_is_made_by_another(tmp_path: Path, store: str) -> None:
    with contextlib.ExitStack() as stack:
        authority = stack.enter_context(pebble(tmp_path))
        # The authority waits for an answer, so that the order is under way when its node is killed.
        silent = stack.enter_context(socket.create_server(("127.0.0.1", authority.http_port)))
        first = node(store, "one", *ANY_PORTS, *authority.options, "--acme-challenges", "http-01")
        killed = stack.enter_context(first)
        where = killed.line()
        with ginnel.RemoteClient(where["api_key"], base_url=where["url"]) as remote:
            edge(remote, "late.example.test")
        log = tmp_path / "pebble.log"
        wait_until(lambda: "Attempting to validate" in log.read_text(), "an order")
        killed.process.send_signal(signal.SIGKILL)
        killed.ended()
        silent.close()

        options = [*authority.ports, *authority.options, "--acme-retry-after", "1s"]
        second = stack.enter_context(node(store, "two", *options)).line()
        # A node of the same name ends what the killed one had.
        stack.enter_context(node(store, "one", *ANY_PORTS)).line()

        with ginnel.RemoteClient(where["api_key"], base_url=second["url"]) as remote:
            assert obtained(remote, "late.example.test")
