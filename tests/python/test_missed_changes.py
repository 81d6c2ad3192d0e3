"""Nodes that cannot find out what others have changed: they read everything again."""

from __future__ import annotations

import contextlib
import http.client
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import ginnel
import postgres
from processes import Command, Upstream, wait_until


def visit(address: str | None, host: str) -> tuple[int, bytes]:
    """What a visitor gets at a node."""
    assert address is not None
    place = address.removeprefix("http://").rstrip("/")
    with contextlib.closing(http.client.HTTPConnection(place, timeout=30)) as visitor:
        visitor.request("GET", "/", headers={"Host": host})
        response = visitor.getresponse()
        return response.status, response.read()


class Node:
    """A node in a process of its own, which can be stopped."""

    def __init__(self, store: str, stack: contextlib.ExitStack) -> None:
        own = ("--node-name", "two", "--peer-addr", "127.0.0.1:0", "--http-port", "0")
        more = ("--https-port", "none", "--agent-port", "0", "--base-domain", "tunnels.test")
        self._command = stack.enter_context(Command("serve", "--store", store, *own, *more))
        printed = self._command.line()
        self.url: str = printed["url"]
        self.agent_addr: str = printed["agent_addr"]
        self.http_url: str = printed["http_url"]

    def visit(self, host: str) -> tuple[int, bytes]:
        return visit(self.http_url, host)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Has it miss what happens meanwhile."""
        self._command.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._command.process.send_signal(signal.SIGCONT)


def add_edge(client: ginnel.RemoteClient, host: str) -> str:
    """An HTTPS edge that responds with the name of its host."""
    backend = client.backends.http_response.create(body=host)
    edge = client.edges.https.create(hostports=[f"{host}:443"])
    client.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
    )
    return edge.id


def serves(address: str | None, host: str, status: int) -> bool:
    return visit(address, host)[0] == status


def is_refused(key: str, url: str) -> bool:
    with ginnel.RemoteClient(key, base_url=url) as client:
        try:
            client.ip_policies.list().to_list()
        except ginnel.AuthenticationError:
            return True
    return False


def test_a_node_that_has_missed_more_changes_than_are_kept_reads_everything_again(
    postgres_server: postgres.PostgresServer, store: str, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(ginnel.Service(store=store, settings={"node_name": "one"}))
        admin = stack.enter_context(one.client())
        old, edge = admin.api_keys.create(), add_edge(admin, "old.test")
        credential = admin.credentials.create()
        assert old.token
        assert credential.token
        two = Node(store, stack)
        local = stack.enter_context(Upstream())
        authority = tmp_path / "ca.pem"
        authority.write_text(one.ca_pem)
        agent = ginnel.Agent(server_addr=two.agent_addr, authtoken=credential.token, ca=authority)
        stack.callback(agent.stop, grace=0)
        with agent.client() as inside:
            inside.tunnels.start(name="t", addr=local.port, proto="http", hostname="t.tunnels.test")
        wait_until(lambda: two.visit("t.tunnels.test")[0] == 200, "the tunnel")
        wait_until(lambda: two.visit("old.test") == (200, b"old.test"), "the edge")
        assert not is_refused(old.token, two.url)

        with two.stopped():
            admin.api_keys.delete(old.id)
            admin.credentials.delete(credential.id)
            admin.edges.https.delete(edge)
            add_edge(admin, "new.test")
            name = store.rpartition("/")[2]
            postgres_server.sql(name, "DELETE FROM ginnel.changes")

        wait_until(lambda: two.visit("new.test") == (200, b"new.test"), "the new edge to be served")
        wait_until(lambda: two.visit("old.test")[0] == 404, "the old edge to be gone")
        wait_until(lambda: two.visit("t.tunnels.test")[0] == 404, "the agent to be sent away")
        wait_until(lambda: is_refused(old.token or "", two.url), "the key to be refused")


def test_nodes_whose_database_is_restored_read_everything_again(
    postgres_server: postgres.PostgresServer, store: str
) -> None:
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(
                ginnel.Service(store=store, https_port=None, settings={"node_name": name})
            )
            for name in ("one", "two")
        )
        admin = stack.enter_context(ginnel.RemoteClient(one.api_key, base_url=one.url))
        kept, edge = admin.api_keys.create().token, add_edge(admin, "kept.test")
        backup = Backup(postgres_server, store)
        admin.edges.https.delete(edge)
        lost = admin.api_keys.create().token
        add_edge(admin, "lost.test")
        assert kept
        assert lost
        for node in (one, two):
            wait_until(lambda: visit(node.http_url, "lost.test")[0] == 200, "the edge")  # noqa: B023
            assert not is_refused(lost, node.url)

        backup.restore()

        for node in (one, two):
            for host, status in (("kept.test", 200), ("lost.test", 404)):
                served = partial(serves, node.http_url, host, status)
                wait_until(served, f"{host} of the backup to be {status}")
            wait_until(partial(is_refused, lost, node.url), "the later key to be refused")
            assert not is_refused(kept, node.url)
        wait_until(lambda: states(admin) == {"one": "alive", "two": "alive"}, "both nodes")
        added = add_edge(admin, "added.test")
        wait_until(lambda: visit(two.http_url, "added.test")[0] == 200, "what is added now")
        assert added > edge


def test_nodes_whose_database_is_restored_announce_their_agents_again(
    postgres_server: postgres.PostgresServer, store: str, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(
                ginnel.Service(
                    store=store,
                    https_port=None,
                    base_domain="tunnels.test",
                    settings={"node_name": name, "peer_addr": "127.0.0.1:0"},
                )
            )
            for name in ("one", "two")
        )
        admin = stack.enter_context(ginnel.RemoteClient(one.api_key, base_url=one.url))
        local = stack.enter_context(Upstream())
        authority = tmp_path / "ca.pem"
        authority.write_text(one.ca_pem)

        def agent_at(node: ginnel.Service, token: str) -> ginnel.AgentClient:
            agent = ginnel.Agent(server_addr=node.agent_addr, authtoken=token, ca=authority)
            stack.callback(agent.stop, grace=0)
            return stack.enter_context(agent.client())

        def bind(agent: ginnel.AgentClient, name: str) -> None:
            host = f"{name}.tunnels.test"
            agent.tunnels.start(
                name=name, addr=local.port, proto="http", schemes=["http"], hostname=host
            )

        def is_found(name: str) -> bool:
            return visit(two.http_url, f"{name}.tunnels.test")[0] == 200

        assert one.authtoken
        own = agent_at(one, one.authtoken)
        bind(own, "gone")
        wait_until(lambda: is_found("gone"), "the first tunnel")
        stranger = admin.credentials.create(owner_id=admin.bot_users.create(name="other").id)
        assert stranger.token
        backup, before = Backup(postgres_server, store), epochs(admin)
        own.tunnels.stop("gone")
        bind(own, "late")
        wait_until(lambda: is_found("late") and not is_found("gone"), "the second tunnel")

        backup.restore()

        wait_until(lambda: states(admin) == {"one": "alive", "two": "alive"}, "both nodes")
        wait_until(lambda: min(epochs(admin)) > max(before), "both to begin anew")
        wait_until(lambda: len(admin.tunnels.list().to_list()) == 1, "the tunnels")
        wait_until(lambda: is_found("late"), "the tunnel that the backup lacks")
        assert not is_found("gone")
        other = agent_at(two, stranger.token)
        with pytest.raises(ginnel.APIError, match="already online"):
            bind(other, "late")
        assert is_found("late")


class Backup:
    """What a database holds now."""

    def __init__(self, server: postgres.PostgresServer, store: str) -> None:
        self._server, self._name = server, store.rpartition("/")[2]
        self._at = ("-h", "127.0.0.1", "-p", server.port, "-U", "ginnel", "-d", self._name)
        server.call("pg_dump", *self._at, "-n", "ginnel", "--clean", "--if-exists", "-f", "dump")

    def restore(self) -> None:
        """All at once; the nodes that use it may be in the way at first."""
        options = ("-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-f", "dump")

        def is_restored() -> bool:
            with contextlib.suppress(postgres.DeadlockError):
                self._server.call("psql", *self._at, *options)
                return True
            return False

        wait_until(is_restored, "the backup to be restored")


def epochs(client: ginnel.RemoteClient) -> list[int]:
    return [node.epoch or 0 for node in client.nodes.list()]


def states(client: ginnel.RemoteClient) -> dict[str | None, str | None]:
    return {node.name: node.state for node in client.nodes.list()}
