"""What is done to a cluster while it works."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime

from calls import Reply
from cluster import Cluster, Node
from partitions import Partition
from processes import wait_until
from workload import Workload

HOUR = 3600
# An agent whose connections were cut is back when its heartbeat has failed.
PAUSE = 1.0


class Faults:
    """Faults of one kind at a time, each over before the next begins."""

    def __init__(self, work: Workload, cluster: Cluster, chance: random.Random) -> None:
        self._work, self._chance, self._cluster = work, chance, cluster

    def kill(self) -> None:
        """Kills a node, and starts it again."""
        node = self._node()
        self._begin(node)
        node.kill()
        time.sleep(self._chance.uniform(0, 1))
        self._cluster.start(node)
        node.wait_until_ready()
        self._end(node)
        time.sleep(self._chance.uniform(0, 1))

    def restart(self) -> None:
        """Ends PostgreSQL without warning, and starts it again."""
        self._begin(*self._cluster.nodes)
        self._cluster.server.stop(signal.SIGQUIT)
        time.sleep(self._chance.uniform(0, 3))
        self._cluster.server.start()
        time.sleep(1)
        self._end(*self._cluster.nodes)

    def stop(self) -> None:
        """Stops a node for a while, as a machine that is suspended."""
        node = self._node()
        self._begin(node)
        node.signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 5))
        node.signal(signal.SIGCONT)
        self._end(node)
        time.sleep(self._chance.uniform(0, 1))

    def cut_from_database(self) -> None:
        """Keeps a node and its database apart."""
        node = self._node()
        self._begin(node)
        self._disturb([node.database])
        time.sleep(PAUSE)
        self._end(node)

    def cut_from_peers(self) -> None:
        """Keeps one or two nodes and the others apart.

        Of each two nodes the older one connects: what leads to the newest two is all that there is.
        """
        nodes = self._chance.sample(self._cluster.nodes, self._chance.choice([1, 1, 2]))
        self._disturb([node.peers for node in nodes])
        time.sleep(PAUSE)

    def cut_from_agents(self) -> None:
        """Keeps a node and its agents apart."""
        self._disturb([self._node().agents])
        time.sleep(PAUSE)

    def _disturb(self, links: list[Partition]) -> None:
        """Nothing gets through, or all is late, or connections are reset."""

        def hold() -> None:
            for link in links:
                link.hold()
            time.sleep(self._chance.uniform(0.2, 6))

        def hold_and_reset() -> None:
            hold()
            reset()

        def delay() -> None:
            seconds = self._chance.uniform(0.02, 0.3)
            for link in links:
                link.delay(seconds)
            time.sleep(self._chance.uniform(1, 4))

        def reset() -> None:
            for link in links:
                link.reset()

        ways: list[Callable[[], None]] = [hold, hold_and_reset, delay, reset]
        way = self._chance.choice(ways)
        way()
        self._work.findings.count(f"links: {way.__name__}")
        for link in links:
            link.release()

    def jump(self) -> None:
        """Sets the clock of a node an hour off, and back: it creates by the database's clock."""
        (node,) = (node for node in self._cluster.nodes if node.clock)
        assert node.clock
        before = self._epochs()
        offset = self._chance.choice([-HOUR, HOUR])
        node.clock.set(offset)
        wait_until(
            lambda: abs(self._clock_error(node) - offset) < HOUR / 2, "the clock to jump", 40
        )
        error = self._date_error(node)
        if abs(error) > HOUR / 2:
            self._work.findings.violated(f"a date is {error} s off by the clock of one node")
        time.sleep(self._chance.uniform(1, 4))
        node.clock.set(0)
        wait_until(lambda: abs(self._clock_error(node)) < HOUR / 2, "the clock to be right", 40)
        if self._epochs() != before:
            self._work.findings.violated(f"epochs {before} became {self._epochs()} by a clock")

    def _clock_error(self, node: Node) -> float:
        """How many seconds the clock of a node is off, by its log."""
        self._work.call(node.ports["api"], "GET", "/nodes")
        at = node.last_log_time()
        return (at - datetime.now(UTC)).total_seconds() if at else float("nan")

    def _date_error(self, node: Node) -> float:
        """How many seconds the date of what a node creates is off."""
        replies: list[Reply] = []

        def is_made() -> bool:
            port = node.ports["api"]
            replies.append(self._work.call(port, "POST", "/ip_policies", description="clock"))
            return replies[-1].status == 201

        wait_until(is_made, "a node to create something")
        at = datetime.fromisoformat(replies[-1].json()["created_at"])
        return (at - datetime.now(UTC)).total_seconds()

    def _epochs(self) -> dict[str, int]:
        """The epochs of the nodes that live, by their names, when all of them say the same."""
        found: list[dict[str, int]] = []

        def are_known() -> bool:
            replies = [self._work.call(it.ports["api"], "GET", "/nodes") for it in self._nodes]
            if any(reply.status != 200 for reply in replies):
                return False
            found[:] = [alive(reply) for reply in replies]
            return len(found[0]) == len(self._nodes) and all(it == found[0] for it in found)

        wait_until(are_known, "all nodes to be alive", 40)
        return found[0]

    @property
    def _nodes(self) -> list[Node]:
        return self._cluster.nodes

    def _node(self) -> Node:
        return self._chance.choice(self._cluster.nodes)

    def _begin(self, *nodes: Node) -> None:
        self._work.blindness.begin(*(node.name for node in nodes))

    def _end(self, *nodes: Node) -> None:
        self._work.blindness.end(*(node.name for node in nodes))


def alive(reply: Reply) -> dict[str, int]:
    rows = (row for row in reply.json()["nodes"] if row["state"] == "alive")
    return {row["name"]: row["epoch"] for row in rows}
