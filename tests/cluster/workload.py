"""What runs while nodes fail: writers, visitors and revocations, each checking its own results."""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import random
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from calls import Caller, Reply, visit
from cluster import DOMAIN, Addresses, NodeAddresses

LATEST = float(os.environ.get("GINNEL_CLUSTER_LATEST", "10"))
"""How long after its acknowledgement a change may be unseen by another node, in seconds."""
# What callers of the management API and visitors are promised while something is away; 0 is a
# connection that ends without a response.
API_STATUSES = {0, 200, 201, 204, 401, 503}


class Findings:
    """What was counted, and what must not be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()
        self.violations: list[str] = []

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def violated(self, what: str) -> None:
        with self._lock:
            self.violations.append(f"{time.monotonic():.2f}: {what}")

    def add(self, counts: dict[str, int], violations: list[str]) -> None:
        """Adds what another process has found."""
        with self._lock:
            self.counts.update(counts)
            self.violations += violations


class Blindness:
    """Since when each node has not been able to hear of changes, and until when."""

    def __init__(self) -> None:
        self._spans: list[tuple[str, float, float]] = []
        self._open: dict[str, float] = {}

    def begin(self, *nodes: str) -> None:
        for node in nodes:
            self._open.setdefault(node, time.monotonic())

    def end(self, *nodes: str) -> None:
        for node in nodes:
            # It still has to read what it has missed.
            self._spans.append((node, self._open.pop(node), time.monotonic() + LATEST))

    def covers(self, reply: Reply, node: str) -> bool:
        """Whether the node may not have known of changes during a request."""
        spans = list(self._spans) + [(it, at, reply.ended) for it, at in list(self._open.items())]
        return any(
            it == node and reply.began <= end and began <= reply.ended for it, began, end in spans
        )


class Upstream:
    """A local service that sends back the token that came, with its name, and counts each POST."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.posts: collections.Counter[str] = collections.Counter()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                body = body or self.path.removeprefix("/")
                if self.command == "POST":
                    outer.posts[body] += 1
                said = json.dumps(
                    {
                        "name": outer.name,
                        "body": body,
                        "source": self.headers.get("X-Forwarded-For", ""),
                        "posts": outer.posts[body] if self.command == "POST" else 0,
                    }
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Workload:
    """Threads that go on until the end of the `with` block."""

    def __init__(self, addresses: Addresses, seed: int) -> None:
        self.addresses, self.findings, self.blindness = addresses, Findings(), Blindness()
        self.caller = Caller(addresses.api_key)
        self._seed = seed
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, step: Callable[[random.Random], None], pause: float, threads: int = 1) -> None:
        """Repeats a step in threads, each at so many seconds from one beginning to the next.

        A step that takes longer is made up for, so that what is slow is not asked less often.
        """

        def repeat(chance: random.Random) -> None:
            due = time.monotonic() + chance.uniform(0, pause)
            while not self._is_over.wait(max(0, due - time.monotonic())):
                due += pause * chance.uniform(0.5, 1.5)
                try:
                    step(chance)
                except Exception as error:
                    self.findings.violated(f"{step.__qualname__} broke: {error!r}")
                    raise

        for _ in range(threads):
            self._seed += 1
            chance = random.Random(self._seed)
            self._threads.append(threading.Thread(target=repeat, args=(chance,), daemon=True))
            self._threads[-1].start()

    def port(self, chance: random.Random) -> int:
        """The management API of some node."""
        return self.node(chance).ports["api"]

    def node(self, chance: random.Random) -> NodeAddresses:
        return chance.choice(self.addresses.nodes)

    def call(self, port: int, method: str, path: str, **fields: object) -> Reply:
        reply = self.caller.call(port, method, path, **fields)
        self.findings.count(f"api {reply.status or reply.error}")
        if reply.status not in API_STATUSES | {404, 409}:
            self.findings.violated(f"{method} {path}: {reply.status} {reply.body[:200]!r}")
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)


class Writer:
    """Changes policies one after the other at any node, and reads each back from any node."""

    def __init__(self, work: Workload) -> None:
        self._work = work
        self._known: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def step(self, chance: random.Random) -> None:
        """The life of a policy: what is acknowledged is there at all other nodes."""
        made = self._work.call(self._work.port(chance), "POST", "/ip_policies", description="0")
        if made.status != 201:
            return
        self._acknowledged()
        id = made.json()["id"]
        for number in range(1, chance.randrange(4, 12)):
            if chance.random() < 0.3 and not self._check(chance, id, str(number - 1)):
                return
            changed = self._work.call(
                self._work.port(chance), "PATCH", f"/ip_policies/{id}", description=str(number)
            )
            if changed.is_unknown:
                return
            if changed.was_sent:
                self._expect(changed, 200, id)
                self._acknowledged()
            else:
                break
        else:
            self._end(chance, id, str(number))

    def _end(self, chance: random.Random, id: str, last: str) -> None:
        """Deletes it, or leaves it to be found at the end."""
        if chance.random() < 0.5:
            with self._lock:
                self._known[id] = last
            return
        gone = self._work.call(self._work.port(chance), "DELETE", f"/ip_policies/{id}")
        if gone.status == 204:
            self._acknowledged()
            with self._lock:
                self._known[id] = None
            self._check(chance, id, None)
        elif not gone.is_unknown and gone.was_sent:
            self._expect(gone, 204, id)

    def _check(self, chance: random.Random, id: str, description: str | None) -> bool:
        """Whether it could be read; wrong is what differs from the last acknowledgement."""
        found = self._work.call(self._work.port(chance), "GET", f"/ip_policies/{id}")
        if found.is_unknown or not found.was_sent:
            return found.status == 503
        if found.status not in (200, 404):
            self._work.findings.violated(f"{id}: {found.status} {found.body!r}")
        stored = found.json()["description"] if found.status == 200 else None
        if stored != description:
            self._work.findings.violated(f"lost: {id} is {stored!r} instead of {description!r}")
        return True

    def _expect(self, reply: Reply, status: int, id: str) -> None:
        if reply.status != status:
            self._work.findings.violated(f"lost: {id}: {reply.status} {reply.body!r}")

    def _acknowledged(self) -> None:
        self._work.findings.count("acknowledged")

    def check_all(self, chance: random.Random) -> None:
        """Looks for everything that was left, when all nodes are back."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for id in pool.map(lambda known: self._unreadable(chance, *known), self._known.items()):
                assert not id, f"{id} cannot be read"
        self._work.findings.count("checked at the end", len(self._known))

    def _unreadable(self, chance: random.Random, id: str, description: str | None) -> str:
        return "" if self._check(chance, id, description) else id


class Revocations:
    """Keys that are deleted at one node are used at the others."""

    def __init__(self, work: Workload) -> None:
        self._work = work

    def step(self, chance: random.Random) -> None:
        made = self._work.call(self._work.port(chance), "POST", "/api_keys", description="short")
        if made.status != 201:
            return
        key = made.json()
        caller = Caller(key["token"])
        for node in self._work.addresses.nodes:
            caller.call(node.ports["api"], "GET", "/ip_policies?limit=1")
        gone = self._work.call(self._work.port(chance), "DELETE", f"/api_keys/{key['id']}")
        if gone.status != 204:
            return
        self._work.findings.count("revocations")
        time.sleep(chance.uniform(0, 1))
        while time.monotonic() < gone.ended + LATEST + 3:
            for node in self._work.addresses.nodes:
                used = caller.call(node.ports["api"], "GET", "/ip_policies?limit=1")
                self._work.findings.count(f"revoked key {used.status or used.error}")
                if used.status < 300 and used.status and used.began > gone.ended + LATEST:
                    late = used.began - gone.ended
                    self._work.findings.violated(f"revoked key served {late:.2f} s after")
            time.sleep(0.2)


class Changes:
    """A policy of an edge is changed at one node, and visitors are at all of them."""

    def __init__(self, work: Workload, upstream: Upstream) -> None:
        self._work, self._number, self.host = work, 0, f"edge.{DOMAIN}"
        # Acknowledgements: when, and which change.
        self._acknowledged: list[tuple[float, int]] = []
        self._upstream = upstream
        self._route = self._create()

    def _create(self) -> str:
        port = self._work.addresses.ports["api"]

        def create(path: str, **fields: object) -> dict[str, Any]:
            made = self._work.call(port, "POST", path, **fields)
            assert made.status == 201, made
            return made.json()

        backend = create("/backends/tunnel_group", labels={"edge": "changes"})
        edge = create("/edges/https", hostports=[f"{self.host}:443"])
        path = f"/edges/https/{edge['id']}/routes"
        fields = {
            "match_type": "path_prefix",
            "match": "/",
            "backend": {"backend_id": backend["id"]},
        }
        return f"{path}/{create(path, **fields)['id']}"

    def step(self, chance: random.Random) -> None:
        number = self._number = self._number + 1
        headers = {"x-change": str(number)}
        policy = {
            "outbound": [{"actions": [{"type": "add-headers", "config": {"headers": headers}}]}]
        }
        changed = self._work.call(self._work.port(chance), "PATCH", self._route, policy=policy)
        if changed.status == 200:
            self._work.findings.count("policy changes")
            self._acknowledged.append((changed.ended, number))

    def visit(self, chance: random.Random) -> None:
        node = self._work.node(chance)
        reply = visit(node.ports["http"], self.host, source="203.0.113.7")
        self._work.findings.count(f"edge visits {reply.status or reply.error}")
        if reply.status != 200:
            return
        got = int(reply.headers.get("x-change", 0))
        due = [number for at, number in list(self._acknowledged) if at + LATEST < reply.began]
        if got >= max(due, default=0):
            return
        if self._work.blindness.covers(reply, node.name):
            self._work.findings.count("visits on an older policy, without news")
        else:
            self._work.findings.violated(f"{node.name} serves {got} instead of {max(due)}")
