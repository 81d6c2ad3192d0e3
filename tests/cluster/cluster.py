"""Three nodes on one PostgreSQL behind HAProxy, all on this machine, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import ginnel
import postgres
from addresses import free_port
from partitions import Partition
from processes import wait_until

DOMAIN = "cluster.test"
NODES = 3

HAPROXY = """
global
    maxconn 4000
defaults
    mode tcp
    timeout connect 1s
    timeout client 60s
    timeout server 90s
    retries 2
    option redispatch
    default-server check inter 500ms fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions
"""
SECTION = """
listen {name}
    bind 127.0.0.1:{port}
    option httpchk GET /readyz
{servers}
"""


class Node:
    """One `ginnel serve`, whose ports stay the same when it is started again."""

    def __init__(self, number: int, folder: pathlib.Path, database: str) -> None:
        self.name = f"node-{number}"
        names = ("api", "http", "agents", "peers", "admin")
        self.ports = {name: free_port() for name in names}
        self._log = folder / f"{self.name}.log"
        # Between it and its database.
        self.link = Partition(database)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, store: str) -> None:
        ports = {name: str(port) for name, port in self.ports.items()}
        arguments = ["serve", "--store", store, "--node-name", self.name, "--json"]
        arguments += ["--peer-addr", f"127.0.0.1:{ports['peers']}", "--port", ports["api"]]
        arguments += ["--http-port", ports["http"], "--https-port", "none"]
        arguments += ["--agent-port", ports["agents"], "--base-domain", DOMAIN]
        arguments += ["--admin-addr", f"127.0.0.1:{ports['admin']}", "--grace", "1s"]
        arguments += ["--proxy-protocol", "--trusted-proxies", "127.0.0.0/8"]
        arguments += ["--log-format", "logfmt", "--log-level", "info,service=debug"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ginnel", *arguments],
                stdout=log,
                stderr=log,
                env={"PATH": ""},
            )

    def kill(self) -> None:
        """Ends it as a failing machine does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def is_ready(self) -> bool:
        """Whether it says that it takes traffic."""
        try:
            with socket.create_connection(("127.0.0.1", self.ports["admin"]), 2) as connection:
                connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(64)
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        try:
            wait_until(self.is_ready, f"{self.name} to be ready", 40)
        except AssertionError as error:
            ended = self.process.poll() if self.process else None
            raise AssertionError(
                f"{error}; exit {ended}; {self._log.read_text()[-3000:]}"
            ) from error


class Cluster:
    """PostgreSQL, the nodes and HAProxy; the ports of HAProxy by the names of those of nodes."""

    def __init__(self, server: postgres.PostgresServer, folder: pathlib.Path) -> None:
        self.server, self.folder = server, folder
        self.store = server.new_database()
        self.ports = {name: free_port() for name in ("api", "http", "agents")}
        self.nodes = [
            Node(number, folder, f"127.0.0.1:{server.port}") for number in range(1, NODES + 1)
        ]
        with ginnel.Service(store=self.store, settings={"node_name": "first"}) as service:
            assert service.api_key is not None
            assert service.authtoken is not None
            self.api_key, self.authtoken = service.api_key, service.authtoken
            self.ca = folder / "ca.pem"
            self.ca.write_text(service.ca_pem)

    def start(self, node: Node) -> None:
        node.start(self.store.replace(f":{self.server.port}/", f":{node.link.port}/"))

    def agent(self) -> ginnel.Agent:
        """An agent that reaches the nodes through HAProxy."""
        address = f"127.0.0.1:{self.ports['agents']}"
        return ginnel.Agent(
            server_addr=address, authtoken=self.authtoken, ca=self.ca, heartbeat=(2.0, 3.0)
        )

    @property
    def database(self) -> str:
        return self.store.rpartition("/")[2]

    def configuration(self) -> str:
        def section(name: str) -> str:
            proxied = "" if name == "api" else " send-proxy-v2"
            servers = (
                f"    server {node.name} 127.0.0.1:{node.ports[name]}"
                f" port {node.ports['admin']}{proxied}"
                for node in self.nodes
            )
            return SECTION.format(name=name, port=self.ports[name], servers="\n".join(servers))

        return HAPROXY + "".join(map(section, self.ports))


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A cluster that takes traffic."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ginnel-cluster-"))
    try:
        with postgres.running(fsync=True) as server, contextlib.ExitStack() as stack:
            cluster = Cluster(server, folder)
            for node in cluster.nodes:
                stack.callback(end, node)
                cluster.start(node)
            for node in cluster.nodes:
                node.wait_until_ready()
            stack.enter_context(haproxy(cluster))
            yield cluster
    finally:
        shutil.rmtree(folder)


def end(node: Node) -> None:
    if node.process is not None:
        node.process.kill()
        node.process.wait(30)
    node.link.close()


@contextlib.contextmanager
def haproxy(cluster: Cluster) -> Iterator[None]:
    """HAProxy before the nodes."""
    configuration = cluster.folder / "haproxy.cfg"
    configuration.write_text(cluster.configuration())
    with (cluster.folder / "haproxy.log").open("w") as log:
        command = [program(), "-db", "-f", str(configuration)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: listens(cluster.ports["api"]), "HAProxy to listen", 10)
        yield
    finally:
        process.kill()
        process.wait(30)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def program() -> str:
    # It is where only administrators look.
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    found = os.environ.get("GINNEL_HAPROXY") or shutil.which("haproxy", path=path)
    assert found, "HAProxy is missing: run `make packages`, or name it in GINNEL_HAPROXY"
    return found
