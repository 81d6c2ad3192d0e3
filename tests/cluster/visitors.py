"""Visitors of tunnels, each request one attempt."""

from __future__ import annotations

import random
import threading
import time

from calls import Reply, visit
from cluster import DOMAIN
from workload import Workload

# What visitors are promised while something is away; 0 is a connection without a response.
STATUSES = {0, 200, 404, 502, 503, 504}
OURS, OFFICIAL = "ours", "official"


def kind_of(name: str) -> str:
    """Whose agent a tunnel of this name has."""
    return name.rstrip("0123456789")


class Visitors:
    """Ask for tunnels through HAProxy, and now and then directly at nodes as HAProxy does."""

    def __init__(self, work: Workload, names: list[str]) -> None:
        self._work, self._names = work, names
        self._lock = threading.Lock()
        # Since when no request for a tunnel has had a response, and the longest that it took.
        self._out: dict[str, float] = {}
        self.longest: dict[str, float] = {OURS: 0, OFFICIAL: 0}
        self.failures: list[tuple[float, float, str, str]] = []

    def step(self, chance: random.Random) -> None:
        name = chance.choice(self._names)
        method, token = chance.choice(["GET", "POST"]), f"{chance.getrandbits(64):x}"
        is_direct = chance.random() < 0.1
        source = f"198.51.{chance.randrange(256)}.{chance.randrange(256)}" if is_direct else ""
        ports = self._work.node(chance).ports if is_direct else self._work.addresses.ports
        reply = visit(ports["http"], f"{name}.{DOMAIN}", method, token, source)
        place = "direct visits" if is_direct else f"visits of {kind_of(name)}"
        self._work.findings.count(f"{place} {reply.status or reply.error}")
        if not is_direct:
            self._note(name, method, reply)
        if reply.status == 200:
            self._check(reply, name, method, token, source or "127.0.0.1")
        elif reply.status not in STATUSES:
            self._work.findings.violated(f"visitor: {reply.status} {reply.body[:200]!r}")

    def _note(self, name: str, method: str, reply: Reply) -> None:
        """Notes since when a tunnel is not reached."""
        with self._lock:
            if reply.status == 200:
                since = self._out.pop(name, reply.ended)
                kind = kind_of(name)
                self.longest[kind] = max(self.longest[kind], reply.ended - since)
            else:
                self._out.setdefault(name, reply.ended)
                said = f"{method} {reply.status or reply.error} {reply.body[:60]!r}"
                self.failures.append((reply.began, reply.ended, name, said))

    def _check(self, reply: Reply, name: str, method: str, token: str, source: str) -> None:
        said = reply.json()
        posts = said.pop("posts")
        if said != {"name": name, "body": token, "source": source}:
            self._work.findings.violated(f"wrong visitor: {said} instead of {name} {token}")
        if method == "POST" and posts != 1:
            self._work.findings.violated(f"{token}: {posts} times")

    def end(self) -> None:
        """Counts outages that are not over."""
        for name, since in self._out.items():
            kind = kind_of(name)
            self.longest[kind] = max(self.longest[kind], time.monotonic() - since)
