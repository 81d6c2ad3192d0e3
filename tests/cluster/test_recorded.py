"""What nodes do to single keys is linearizable, and is not without the lock of the version."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

import cluster
from histories import Operation, is_linearizable
from recorded import Recording
from workload import Workload

HISTORIES = int(os.environ.get("GINNEL_CLUSTER_HISTORIES", 30))
# The row that makes the writes of all nodes serial becomes a view: versions are counted, and nobody
# waits for anybody.
WITHOUT_LOCK = """
    ALTER TABLE ginnel.cluster RENAME TO cluster_row;
    CREATE SEQUENCE ginnel.versions;
    SELECT setval('ginnel.versions', version) FROM ginnel.cluster_row;
    CREATE VIEW ginnel.cluster AS
        SELECT id, schema, (SELECT last_value FROM ginnel.versions) AS version, last_id
        FROM ginnel.cluster_row;
    CREATE FUNCTION ginnel.count_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.version <> OLD.version THEN
                NEW.version := nextval('ginnel.versions');
            END IF;
            RETURN NEW;
        END $$;
    CREATE TRIGGER count_only INSTEAD OF UPDATE ON ginnel.cluster
        FOR EACH ROW EXECUTE FUNCTION ginnel.count_only();
"""


@pytest.fixture
def running() -> Iterator[cluster.Cluster]:
    with cluster.running() as running:
        yield running


def recorded(running: cluster.Cluster, number: int, seed: int) -> list[Operation]:
    with Workload(running.addresses, seed) as work:
        history = Recording(work, f"key{number}.test", seed + number).record()
    assert not work.findings.violations, work.findings.violations
    return history


def test_histories_of_single_keys_are_linearizable(running: cluster.Cluster) -> None:
    seed = random.randrange(1 << 30)
    kinds: set[tuple[str, str]] = set()
    for number in range(HISTORIES):
        history = recorded(running, number, seed)
        kinds |= {(operation.kind, operation.outcome) for operation in history}
        assert is_linearizable(history), (seed, number, history)

    assert {("create", "done"), ("create", "refused"), ("get", "done"), ("update", "done")} <= kinds


def test_without_the_lock_of_the_version_they_are_not(running: cluster.Cluster) -> None:
    running.server.sql(running.database, WITHOUT_LOCK)

    histories = (recorded(running, number, 7) for number in range(300))
    assert any(not is_linearizable(history) for history in histories)
