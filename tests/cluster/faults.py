"""What is done to a cluster while it works."""

from __future__ import annotations

import random
import signal
import time

from workload import Workload


class Faults:
    """Faults of one kind at a time, each over before the next begins."""

    def __init__(self, work: Workload, chance: random.Random) -> None:
        self._work, self._chance, self._cluster = work, chance, work.cluster

    def kill(self) -> None:
        """Kills a node, and starts it again."""
        node = self._chance.choice(self._cluster.nodes)
        self._work.blindness.begin(node)
        node.kill()
        time.sleep(self._chance.uniform(0, 1))
        self._cluster.start(node)
        node.wait_until_ready()
        self._work.blindness.end(node)
        time.sleep(self._chance.uniform(0, 1))

    def restart(self) -> None:
        """Ends PostgreSQL without warning, and starts it again."""
        self._work.blindness.begin(*self._cluster.nodes)
        self._cluster.server.stop(signal.SIGQUIT)
        time.sleep(self._chance.uniform(0, 3))
        self._cluster.server.start()
        time.sleep(1)
        self._work.blindness.end(*self._cluster.nodes)

    def stop(self) -> None:
        """Stops a node for a while, as a machine that is suspended."""
        node = self._chance.choice(self._cluster.nodes)
        self._work.blindness.begin(node)
        node.signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 5))
        node.signal(signal.SIGCONT)
        self._work.blindness.end(node)
        time.sleep(self._chance.uniform(0, 1))

    def partition(self) -> None:
        """Keeps a node and its database apart, and sometimes resets its connections."""
        node = self._chance.choice(self._cluster.nodes)
        self._work.blindness.begin(node)
        node.link.hold()
        time.sleep(self._chance.uniform(0.2, 6))
        if self._chance.random() < 0.5:
            node.link.reset()
        node.link.release()
        time.sleep(1)
        self._work.blindness.end(node)
