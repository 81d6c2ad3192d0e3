"""Three nodes on PostgreSQL behind HAProxy, on this machine, and what happens when one dies.

Run it with `make cluster-demo`. It starts everything in a folder of its own, as ordinary processes,
with the configuration of `deploy/cluster/haproxy.cfg`, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ginnel

HERE = Path(__file__).parent
NODES = ("node1", "node2", "node3")
NOBODY = 65534


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def free_ports() -> Iterator[int]:
    """Ports below those that connections are made from."""
    for port in range(20_000, 32_000):
        with socket.socket() as probe:
            is_free = probe.connect_ex(("127.0.0.1", port)) != 0
        if is_free:
            yield port


PORTS = free_ports()


def wait(what: str, check: Callable[[], object], seconds: float = 30) -> float:
    """How many seconds passed until something was true."""
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > seconds:
            sys.exit(f"{what} did not happen within {seconds:.0f} seconds")
        time.sleep(0.05)
    return time.monotonic() - began


class Cluster:
    """PostgreSQL, three nodes and HAProxy as processes."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.database = f"postgres://ginnel@127.0.0.1:{self._postgres()}/postgres"
        self.ports = {
            name: {kind: next(PORTS) for kind in ("api", "http", "agent", "admin", "peer")}
            for name in NODES
        }
        self.nodes = {name: self.start(name) for name in NODES}
        self.front = {kind: next(PORTS) for kind in ("http", "agent", "api")}
        self._haproxy()

    def _run(self, command: list[str], name: str, nobody: bool = False) -> subprocess.Popen[bytes]:
        user = NOBODY if nobody and os.geteuid() == 0 else None
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, user=user, group=user
            )
        self.stack.callback(stop, process)
        return process

    def _postgres(self) -> int:
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        if not programs:
            sys.exit("PostgreSQL is missing: run `make packages`")
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        port = next(PORTS)
        make = [f"{programs[0]}/initdb", "-D", "data", "-U", "ginnel", "-A", "trust"]
        self._run(make, "initdb", nobody=True).wait(60)
        at = ["-D", "data", "-k", str(self.folder), "-p", str(port)]
        self._run([f"{programs[0]}/postgres", *at, "-h", "127.0.0.1"], "postgres", nobody=True)
        ready = [f"{programs[0]}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait("PostgreSQL's start", lambda: subprocess.run(ready).returncode == 0)
        return port

    def start(self, name: str) -> subprocess.Popen[bytes]:
        ports = self.ports[name]
        process = self._run(
            [
                sys.executable, "-m", "ginnel", "serve", "--json",
                "--store", self.database,
                "--node-name", name,
                "--peer-addr", f"127.0.0.1:{ports['peer']}",
                "--port", str(ports["api"]),
                "--http-port", str(ports["http"]),
                "--https-port", "none",
                "--agent-port", str(ports["agent"]),
                "--admin-addr", f"127.0.0.1:{ports['admin']}",
                "--base-domain", "tunnels.test",
                "--proxy-protocol",
                "--trusted-proxies", "127.0.0.1",
            ],
            name,
        )  # fmt: skip
        wait(f"the start of {name}", lambda: self.is_ready(name))
        return process

    def is_ready(self, name: str) -> bool:
        url = f"http://127.0.0.1:{self.ports[name]['admin']}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def first_line(self) -> dict[str, str]:
        """What the first node has said: the admin key and the authtoken, shown this once."""
        lines = (self.folder / "node1.log").read_text().splitlines()
        found: dict[str, str] = json.loads(next(line for line in lines if line.startswith("{")))
        return found

    def authority(self) -> Path:
        """The certificate authority of all nodes, which agents trust; it is in the database."""
        select = "SELECT value FROM ginnel.meta WHERE name = 'ca_certificate'"
        psql = [sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1], "-XAt", "-c", select]
        path = self.folder / "authority.pem"
        path.write_bytes(subprocess.run([*psql, self.database], capture_output=True).stdout)
        return path

    def _haproxy(self) -> None:
        """The file of this folder, with the ports of this machine."""
        program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
        if not program:
            sys.exit("HAProxy is missing: run `make packages`")
        text = (HERE / "haproxy.cfg").read_text().replace("maxconn 20000", "maxconn 2000")
        kinds = {"8080": "http", "8443": "http", "4443": "agent", "4000": "api"}
        for number, name in enumerate(NODES, 11):
            ports = self.ports[name]
            line = rf"10\.0\.0\.{number}:(\d+)(.*) port 4090"
            text = re.sub(
                line,
                lambda found, ports=ports: (  # type: ignore[misc]
                    f"127.0.0.1:{ports[kinds[found[1]]]}{found[2]} port {ports['admin']}"
                ),
                text,
            )
        for bind, port in (
            ("bind :80\n", self.front["http"]),
            ("bind :443\n", next(PORTS)),
            ("bind :4443\n", self.front["agent"]),
            ("bind 127.0.0.1:4000\n", self.front["api"]),
        ):
            text = text.replace(bind, f"bind 127.0.0.1:{port}\n")
        config = self.folder / "haproxy.cfg"
        config.write_text(text)
        self._run([program, "-f", str(config)], "haproxy")


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Shop(BaseHTTPRequestHandler):
    """The local service behind the tunnels."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"visitor": self.headers["X-Forwarded-For"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def shop() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()


class Visitors:
    """Visitors who come through HAProxy."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/"

    def visit(self, host: str) -> int:
        """The status that a visitor gets; 0 where there is no response."""
        request = urllib.request.Request(self.address, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                response.read()
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, ValueError):
            return 0

    def count(self, host: str, number: int) -> int:
        """How many of so many visits are served."""
        return sum(self.visit(host) == 200 for _ in range(number))


def show_nodes(client: ginnel.RemoteClient) -> None:
    for node in sorted(client.nodes.list(), key=lambda node: node.name or ""):
        say(f"{node.name}: {node.state}, {node.sessions} sessions, {node.tunnels} tunnels")


def main() -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ginnel-cluster-")))
        folder.chmod(0o755)
        print("Starting PostgreSQL, three nodes and HAProxy")
        cluster = Cluster(folder, stack)
        said = cluster.first_line()
        api = f"http://127.0.0.1:{cluster.front['api']}"
        client = stack.enter_context(ginnel.RemoteClient(said["api_key"], base_url=api))
        wait("HAProxy's start", lambda: reaches(client))
        local = stack.enter_context(shop())

        print("Two agents, each through HAProxy to whichever node has the fewest")
        addr, ca = f"127.0.0.1:{cluster.front['agent']}", cluster.authority()
        for name in ("one", "two"):
            agent = ginnel.Agent(server_addr=addr, authtoken=said["authtoken"], ca=ca)
            stack.enter_context(agent)
            with agent.client() as here:
                tunnel = here.tunnels.start(
                    addr=local, name=name, proto="http", domain=f"{name}.tunnels.test"
                )
                say(f"{name}: {tunnel.public_url}")
        time.sleep(6)
        show_nodes(client)

        print("Visitors through HAProxy, who come to any node")
        visitors = Visitors(cluster.front["http"])
        for name in ("one", "two"):
            say(f"{name}: {visitors.count(f'{name}.tunnels.test', 60)} of 60 served")

        print("kill -9 of node2")
        cluster.nodes["node2"].send_signal(signal.SIGKILL)
        for name in ("one", "two"):
            host = f"{name}.tunnels.test"
            seconds = wait(f"{name} to be back", lambda host=host: visitors.count(host, 6) == 6)
            say(f"{name}: all of 6 visitors in a row are served after {seconds:.1f} s")

        print("node2 again, and a key that every node knows at once")
        cluster.nodes["node2"] = cluster.start("node2")
        key = client.api_keys.create(description="made at one node")
        for name in NODES:
            at = f"http://127.0.0.1:{cluster.ports[name]['api']}"
            with ginnel.RemoteClient(key.token, base_url=at) as other:
                say(f"{name} says that it is {other.api_keys.get(key.id).description!r}")
        show_nodes(client)


def reaches(client: ginnel.RemoteClient) -> bool:
    try:
        return len(client.nodes.list().to_list()) == len(NODES)
    except ginnel.GinnelError:
        return False


if __name__ == "__main__":
    main()
