"""Nodes are killed, stopped and cut off from their database while others write and visit.

`make cluster-torture` runs it for longer; GINNEL_CLUSTER_KILLS and the others below say how often
what is done.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

import pytest

import cluster
import ginnel
from calls import visit
from cluster import DOMAIN
from faults import Faults
from processes import wait_until
from recorded import Histories
from workload import Changes, Revocations, Upstream, Visitors, Workload, Writer

BACK_WITHIN = 20.0


def parameter(name: str, default: int) -> int:
    return int(os.environ.get(f"GINNEL_CLUSTER_{name}", default))


KILLS, RESTARTS = parameter("KILLS", 4), parameter("RESTARTS", 2)
STOPS, PARTITIONS = parameter("STOPS", 2), parameter("PARTITIONS", 2)
WRITERS, AGENTS = parameter("WRITERS", 4), parameter("AGENTS", 3)
SEED = parameter("SEED", random.randrange(1 << 30))


@contextlib.contextmanager
def tunnels(running: cluster.Cluster) -> Iterator[list[Upstream]]:
    """Agents through HAProxy, each with a tunnel of its own name to its own service."""
    with contextlib.ExitStack() as stack:
        upstreams = [Upstream(f"app{number}") for number in range(AGENTS)]
        for upstream in upstreams:
            stack.callback(upstream.close)
            agent = running.agent()
            stack.callback(agent.stop, grace=0)
            start(agent, upstream)
        yield upstreams


def start(agent: ginnel.Agent, upstream: Upstream) -> None:
    with agent.client() as local:
        options = {"proto": "http", "schemes": ["http"], "subdomain": upstream.name}
        local.tunnels.start(name=upstream.name, addr=upstream.port, **options)  # type: ignore[arg-type]
        if upstream.name == "app0":
            local.tunnels.start(name="edge", addr=upstream.port, labels=["edge=changes"])


@pytest.fixture
def running() -> Iterator[cluster.Cluster]:
    with cluster.running() as running:
        yield running


def test_failures_lose_nothing_that_was_acknowledged(running: cluster.Cluster) -> None:
    chance = random.Random(SEED)
    with tunnels(running) as upstreams, Workload(running, SEED) as work:
        writer, visitors = Writer(work), Visitors(work, upstreams)
        revocations, changes = Revocations(work), Changes(work, upstreams[0])
        wait_until(lambda: everywhere(running, upstreams), "visitors to be served everywhere")
        work.run(writer.step, 0.02, WRITERS)
        work.run(visitors.step, 0.02, 3)
        work.run(revocations.step, 0.1, 2)
        work.run(changes.step, 0.3)
        work.run(changes.visit, 0.05)
        work.run(Histories(work).step, 0.5)
        faults = Faults(work, chance)
        planned = [faults.kill] * KILLS + [faults.restart] * RESTARTS
        planned += [faults.stop] * STOPS + [faults.partition] * PARTITIONS
        chance.shuffle(planned)
        for fault in planned:
            began = time.monotonic()
            fault()
            work.findings.count(fault.__name__)
            print(f"{began:.2f}: {fault.__name__} until {time.monotonic():.2f}")
        # The official libraries take as long.
        wait_until(lambda: everywhere(running, upstreams), "agents to be back", BACK_WITHIN)
    writer.check_all(chance)
    visitors.check_all()
    counts = dict(sorted(work.findings.counts.items()))
    print(f"seed {SEED}: {counts}")
    assert not work.findings.violations, (SEED, work.findings.violations[:20])
    assert counts["acknowledged"] > 50 * WRITERS, counts


def everywhere(running: cluster.Cluster, upstreams: list[Upstream]) -> bool:
    """Whether each tunnel is reached at each node, which has the agent or has not."""
    return all(
        visit(node.ports["http"], f"{upstream.name}.{DOMAIN}", source="198.51.100.1").status == 200
        for node in running.nodes
        for upstream in upstreams
    )
