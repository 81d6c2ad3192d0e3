"""Three nodes on one PostgreSQL behind HAProxy, all on this machine, each a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime

import ginnel
import postgres
from addresses import free_port
from clocks import Clock
from partitions import Partition
from processes import wait_until

DOMAIN = "cluster.test"
NODES = 3
# What is delivered is what is tested: its ports are replaced by those of this machine.
HAPROXY = pathlib.Path(__file__).parents[2] / "deploy/cluster/haproxy.cfg"
BALANCED = {"http": (80, 8080), "agents": (4443, 4443), "api": (4000, 4000)}


@dataclasses.dataclass(frozen=True)
class NodeAddresses:
    """Where a node is reached: ports by what they are for."""

    name: str
    ports: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Addresses:
    """All that callers and visitors know of a cluster, in whichever process they are."""

    api_key: str
    ports: dict[str, int]
    nodes: list[NodeAddresses]


class Node:
    """One `ginnel serve`, whose ports stay the same when it is started again."""

    def __init__(self, number: int, folder: pathlib.Path, database: str) -> None:
        self.name = f"node-{number}"
        names = ("api", "http", "agents", "peers", "admin")
        self.ports = {name: free_port() for name in names}
        self._log = folder / f"{self.name}.log"
        self.clock = Clock(folder / f"{self.name}.clock") if number == NODES else None
        # Between it and its database, and what leads to it of other nodes and of agents.
        self.database = Partition(database)
        self.peers = Partition(f"127.0.0.1:{self.ports['peers']}")
        self.agents = Partition(f"127.0.0.1:{self.ports['agents']}")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def links(self) -> list[Partition]:
        return [self.database, self.peers, self.agents]

    def start(self, store: str) -> None:
        if self.process is not None:
            for link in (self.peers, self.agents):
                link.open()
        ports = {name: str(port) for name, port in self.ports.items()}
        arguments = ["serve", "--store", store, "--node-name", self.name, "--json"]
        arguments += ["--peer-addr", f"127.0.0.1:{self.peers.port}", "--port", ports["api"]]
        arguments += ["--peer-listen-addr", f"127.0.0.1:{ports['peers']}"]
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
                env={"PATH": ""} | (self.clock.environment if self.clock else {}),
            )

    def kill(self) -> None:
        """Ends it as a failing process does: its addresses refuse whoever comes."""
        assert self.process is not None
        for link in (self.peers, self.agents):
            link.refuse()
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

    def last_log_time(self) -> datetime | None:
        """When it has written the last line of its log, by its own clock."""
        times = re.findall(r"^ts=(\S+)", self._log.read_text(errors="replace"), re.MULTILINE)
        return datetime.fromisoformat(times[-1]) if times else None

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
        node.start(self.store.replace(f":{self.server.port}/", f":{node.database.port}/"))

    @property
    def addresses(self) -> Addresses:
        nodes = [NodeAddresses(node.name, node.ports) for node in self.nodes]
        return Addresses(self.api_key, self.ports, nodes)

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
        """That of HAProxy."""
        # Nobody asks for HTTPS here.
        sections = HAPROXY.read_text().split("\n\n")
        text = "\n\n".join(part for part in sections if "frontend https" not in part)
        for name, (public, own) in BALANCED.items():
            for bind in (f"bind :{public}", f"bind 127.0.0.1:{public}"):
                text = text.replace(f"{bind}\n", f"bind 127.0.0.1:{self.ports[name]}\n")
            for number, node in enumerate(self.nodes, 1):
                port = node.agents.port if name == "agents" else node.ports[name]
                text = text.replace(f"10.0.0.1{number}:{own}", f"127.0.0.1:{port}")
        for number, node in enumerate(self.nodes, 1):
            lines = (
                line.replace("port 4090", f"port {node.ports['admin']}")
                if line.strip().startswith(f"server node{number} ")
                else line
                for line in text.splitlines()
            )
            text = "\n".join(lines) + "\n"
        return text.replace("maxconn 20000", "maxconn 4000")


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A cluster that takes traffic."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ginnel-cluster-"))
    is_kept = "GINNEL_CLUSTER_KEEP" in os.environ
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
        if is_kept:
            print(f"logs are in {folder}")
        else:
            shutil.rmtree(folder)


def end(node: Node) -> None:
    if node.process is not None:
        node.process.kill()
        node.process.wait(30)
    for link in node.links:
        link.close()


@contextlib.contextmanager
def haproxy(cluster: Cluster) -> Iterator[None]:
    """HAProxy before the nodes."""
    configuration = cluster.folder / "haproxy.cfg"
    configuration.write_text(cluster.configuration())
    with (cluster.folder / "haproxy.log").open("w") as log:
        command = [program(), "-db", "-f", str(configuration)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: listens(cluster.ports["api"]), "HAProxy to listen", 40)
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
