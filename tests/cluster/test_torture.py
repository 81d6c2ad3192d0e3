"""Nodes are killed, stopped and cut off from everything while others write and visit.

`make cluster-torture` runs it for longer; GINNEL_CLUSTER_KILLS and the others below say how often
what is done, GINNEL_CLUSTER_PAUSE for how many seconds nothing is done in between,
GINNEL_CLUSTER_WRITER_PAUSE how many seconds lie between two steps of a writer,
GINNEL_CLUSTER_LATEST within how many seconds all nodes must know of a change, and
GINNEL_CLUSTER_BACK_WITHIN within how many the tunnels must be back. GINNEL_CLUSTER_RECORD names a
file that gets a line with the counts of each run, which `summary.py` adds up and compares with the
goals for visitors: these depend on how busy the machine is, and mean something where a fault comes
every few thousand requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cluster
import ginnel
import load
from calls import visit
from cluster import DOMAIN
from faults import Faults
from owners import Contender, Owners
from processes import wait_until
from visitors import OFFICIAL, OURS, kind_of
from workload import Changes, Revocations, Upstream, Workload

# When three tries fail, the official library waits for 125 seconds before the fourth.
OFFICIAL_BACK_WITHIN = 140.0


def parameter(name: str, default: int) -> int:
    return int(os.environ.get(f"GINNEL_CLUSTER_{name}", default))


KILLS, RESTARTS = parameter("KILLS", 4), parameter("RESTARTS", 1)
BACK_WITHIN = parameter("BACK_WITHIN", 60)
STOPS, JUMPS = parameter("STOPS", 1), parameter("JUMPS", 2)
# Of each of the three ways: to the database, to other nodes and to agents.
PARTITIONS = parameter("PARTITIONS", 1)
WRITERS, AGENTS = parameter("WRITERS", 4), parameter("AGENTS", 4)
VISITS = parameter("VISITS", 60)
PAUSE = parameter("PAUSE", 0)
SEED = parameter("SEED", random.randrange(1 << 30))
RECORD = os.environ.get("GINNEL_CLUSTER_RECORD")


class OfficialAgent:
    """An agent on the official library, with one session."""

    def __init__(self, running: cluster.Cluster) -> None:
        program = pathlib.Path(__file__).parents[1] / "python/official_agent.py"
        self._process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        server, ca = f"127.0.0.1:{running.ports['agents']}", running.ca.read_text()
        self.do(connect=running.authtoken, server=server, ca=ca)

    def do(self, **command: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "result" in answer, answer

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def tunnels(running: cluster.Cluster) -> Iterator[list[Upstream]]:
    """Agents through HAProxy, each with a tunnel of its own name to its own service.

    Every other one is on the official library.
    """
    with contextlib.ExitStack() as stack:
        kinds = [OURS, OFFICIAL] * (AGENTS // 2)
        upstreams = [Upstream(f"{kind}{number}") for number, kind in enumerate(kinds)]
        for upstream, kind in zip(upstreams, kinds, strict=True):
            stack.callback(upstream.close)
            if kind == OFFICIAL:
                official = OfficialAgent(running)
                stack.callback(official.end)
                host = f"{upstream.name}.{DOMAIN}"
                official.do(http=upstream.port, domain=host, scheme="http")
            else:
                agent = running.agent()
                stack.callback(agent.stop, grace=0)
                start(agent, upstream)
        yield upstreams


def start(agent: ginnel.Agent, upstream: Upstream) -> None:
    with agent.client() as local:
        options = {"proto": "http", "schemes": ["http"], "subdomain": upstream.name}
        local.tunnels.start(name=upstream.name, addr=upstream.port, **options)  # type: ignore[arg-type]
        if upstream.name == f"{OURS}0":
            local.tunnels.start(name="edge", addr=upstream.port, labels=["edge=changes"])


@pytest.fixture
def running() -> Iterator[cluster.Cluster]:
    with cluster.running() as running:
        yield running


@contextlib.contextmanager
def contenders(work: Workload, running: cluster.Cluster, port: int) -> Iterator[list[Contender]]:
    agents = [running.agent() for _ in range(2)]
    try:
        yield [Contender(work, agent, port) for agent in agents]
    finally:
        for agent in agents:
            agent.stop(grace=0)


def test_failures_lose_nothing_that_was_acknowledged(running: cluster.Cluster) -> None:
    chance = random.Random(SEED)
    began = time.monotonic()
    with (
        tunnels(running) as upstreams,
        load.processes() as processes,
        Workload(running.addresses, SEED) as work,
        contenders(work, running, upstreams[0].port) as competing,
    ):
        changes = Changes(work, upstreams[0])
        wait_until(lambda: everywhere(running, upstreams), "visitors to be served everywhere")
        names = [upstream.name for upstream in upstreams]
        processes.start(load.write, running.addresses, SEED, WRITERS)
        processes.start(load.visit, running.addresses, SEED, names, VISITS)
        work.run(Revocations(work).step, 0.1, 2)
        work.run(changes.step, 0.3)
        work.run(changes.visit, 0.05)
        work.run(Owners(work, running).step, 1)
        for contender in competing:
            work.run(contender.step, 0.5)
        faults = planned(Faults(work, running, chance), chance)
        times = list(performed(work, faults))
        for kind, limit in ((OURS, BACK_WITHIN), (OFFICIAL, OFFICIAL_BACK_WITHIN)):
            of_kind = [upstream for upstream in upstreams if kind_of(upstream.name) == kind]
            due = time.monotonic() + limit
            while (lost := missing(running, of_kind)) and time.monotonic() < due:
                time.sleep(0.1)
            work.findings.violations += [f"not back: {it}" for it in lost]
        written, visited = processes.end(work.findings)
    for upstream in upstreams:
        again = [token for token, times in upstream.posts.items() if times > 1]
        work.findings.violations += [f"POST {token}: more than once" for token in again]
        work.findings.count("POSTs at upstreams", len(upstream.posts))
    seen = max((written, visited), key=lambda result: len(result.longest_outages))
    counts = dict(sorted(work.findings.counts.items()))
    record = {
        "seed": SEED,
        "seconds": time.monotonic() - began,
        "counts": counts,
        "longest_outages": seen.longest_outages,
        "violations": work.findings.violations,
        "faults": times,
        "failures": seen.failures,
    }
    if RECORD:
        with open(RECORD, "a") as file:
            file.write(json.dumps(record) + "\n")
    print(f"seed {SEED}: {counts}, {seen.longest_outages}")
    assert not work.findings.violations, (SEED, work.findings.violations[:20])
    assert counts["acknowledged"] > 50 * WRITERS, counts


def planned(faults: Faults, chance: random.Random) -> list[Callable[[], None]]:
    """What is done, in some order."""
    kinds = [(faults.kill, KILLS), (faults.restart, RESTARTS), (faults.stop, STOPS)]
    ways = [faults.cut_from_database, faults.cut_from_peers, faults.cut_from_agents]
    kinds += [(way, PARTITIONS) for way in ways] + [(faults.jump, JUMPS)]
    planned = [fault for fault, times in kinds for _ in range(times)]
    chance.shuffle(planned)
    return planned


def performed(
    work: Workload, faults: list[Callable[[], None]]
) -> Iterator[tuple[str, float, float]]:
    """Does one after the other; a node that does not come back ends the run, not its record."""
    try:
        for fault in faults:
            yield perform(work, fault)
            time.sleep(PAUSE)
    except AssertionError as error:
        work.findings.violated(f"{error}")


def perform(work: Workload, fault: Callable[[], None]) -> tuple[str, float, float]:
    """Does something; when it began and ended."""
    began = time.monotonic()
    fault()
    work.findings.count(fault.__name__)
    ended = time.monotonic()
    print(f"{began:.2f}: {fault.__name__} until {ended:.2f}", flush=True)
    return fault.__name__, began, ended


def everywhere(running: cluster.Cluster, upstreams: list[Upstream]) -> bool:
    """Whether each tunnel is reached at each node, which has the agent or has not."""
    return not missing(running, upstreams)


def missing(running: cluster.Cluster, upstreams: list[Upstream]) -> list[str]:
    """The tunnels that are not reached, and where."""
    return [
        f"{upstream.name} at {node.name}: {reply.status or reply.error}"
        for node in running.nodes
        for upstream in upstreams
        for reply in [visit(node.ports["http"], f"{upstream.name}.{DOMAIN}", source="198.51.100.1")]
        if reply.status != 200
    ]
