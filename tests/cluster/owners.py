"""Two agents that ask for one name again and again, and who has which name as the database says."""

from __future__ import annotations

import random
from typing import Any

import ginnel
from cluster import Cluster
from workload import Workload

NAME = "contested"
# Names of tunnels that several binds have at present epochs, and epochs of several nodes.
TWO_OWNERS = """
    WITH nodes AS (
        SELECT body::json ->> 'id' AS id, body::json ->> 'epoch' AS epoch
        FROM ginnel.resources
        WHERE kind = 'node' AND body::json ->> 'fenced' = 'false'
            AND body::json ->> 'stopped' = 'false'
    ), tunnels AS (
        SELECT body::json -> 'endpoint' ->> 'key' AS name, body::json ->> 'bind_id' AS bind
        FROM ginnel.resources JOIN nodes
            ON nodes.id = body::json ->> 'node_id' AND nodes.epoch = body::json ->> 'epoch'
        WHERE kind = 'tn'
    )
    SELECT 'name', name FROM tunnels WHERE name <> ''
        GROUP BY name HAVING count(DISTINCT bind) > 1
    UNION ALL SELECT 'epoch', epoch FROM nodes GROUP BY epoch HAVING count(*) > 1
"""


class Contender:
    """An agent that has the name for a moment, unless another has it."""

    def __init__(self, work: Workload, agent: ginnel.Agent, port: int) -> None:
        self._work, self._client, self._port = work, agent.client(), port

    def step(self, chance: random.Random) -> None:
        definition: dict[str, Any] = {"proto": "http", "schemes": ["http"], "subdomain": NAME}
        try:
            self._client.tunnels.start(name=NAME, addr=self._port, **definition)
        except ginnel.APIError as error:
            status = getattr(error, "status_code", 0)
            self._work.findings.count(f"contested name refused {status}")
            return
        self._work.findings.count("contested name bound")
        self._client.tunnels.stop(NAME)


class Owners:
    """Looks who has which name."""

    def __init__(self, work: Workload, cluster: Cluster) -> None:
        self._work, self._cluster = work, cluster

    def step(self, _: random.Random) -> None:
        try:
            found = self._cluster.server.sql(self._cluster.database, TWO_OWNERS)
        except AssertionError:
            # The server is being restarted.
            self._work.findings.count("owners not read")
            return
        self._work.findings.count("owners read")
        if found:
            self._work.findings.violated(f"two owners: {found}")
