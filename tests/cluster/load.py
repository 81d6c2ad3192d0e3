"""Writers and visitors in processes of their own, so that they do not wait for each other."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

from cluster import Addresses
from recorded import Histories
from visitors import Visitors
from workload import Findings, Workload, Writer

# Fresh processes: copies of one with threads may hang.
PROCESSES = multiprocessing.get_context("spawn")
END_TIMEOUT = 300.0
# A writer creates so often, and changes a few times what it has created.
WRITER_PAUSE = float(os.environ.get("GINNEL_CLUSTER_WRITER_PAUSE", "1.5"))


@dataclasses.dataclass
class Result:
    """What a process has seen."""

    counts: dict[str, int]
    violations: list[str]
    longest_outages: dict[str, float] = dataclasses.field(default_factory=dict)
    failures: list[tuple[float, float, str, str]] = dataclasses.field(default_factory=list)


def write(addresses: Addresses, seed: int, writers: int, over: Event) -> Result:
    """Writers, and histories of single keys; in the end, what was acknowledged is looked for."""
    writer_of: list[Writer] = []
    with Workload(addresses, seed) as work:
        writer_of.append(Writer(work))
        work.run(writer_of[0].step, WRITER_PAUSE, writers)
        work.run(Histories(work).step, 0.5, 2)
        over.wait()
    writer_of[0].check_all(random.Random(seed))
    return Result(dict(work.findings.counts), work.findings.violations)


def visit(addresses: Addresses, seed: int, names: list[str], rate: int, over: Event) -> Result:
    """So many requests of visitors a second."""
    threads = max(1, rate // 5)
    with Workload(addresses, seed) as work:
        visitors = Visitors(work, names)
        work.run(visitors.step, threads / rate, threads)
        over.wait()
    visitors.end()
    findings = work.findings
    return Result(dict(findings.counts), findings.violations, visitors.longest, visitors.failures)


def report(results: Queue[Any], perform: Callable[..., Result], *arguments: Any) -> None:
    """The whole of a process."""
    try:
        results.put(perform(*arguments))
    except BaseException as error:
        results.put(Result({}, [f"{perform.__name__} broke: {error!r}"]))
        raise


class Load:
    """Processes that go on until they are to end."""

    def __init__(self) -> None:
        self._over = PROCESSES.Event()
        self._results: Queue[Any] = PROCESSES.Queue()
        self._processes: list[Any] = []

    def start(self, perform: Callable[..., Result], *arguments: Any) -> None:
        given = (self._results, perform, *arguments, self._over)
        self._processes.append(PROCESSES.Process(target=report, args=given, daemon=True))
        self._processes[-1].start()

    def end(self, findings: Findings) -> list[Result]:
        """Ends all of them; adds what they have found."""
        self._over.set()
        results: list[Result] = [self._results.get(timeout=END_TIMEOUT) for _ in self._processes]
        for result in results:
            findings.add(result.counts, result.violations)
        return results

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@contextlib.contextmanager
def processes() -> Iterator[Load]:
    load = Load()
    try:
        yield load
    finally:
        load.close()
