"""Histories of single keys, recorded at real nodes.

The key is the name of a reserved domain: of several callers who create it at different nodes one
gets it, and afterwards all of them read, change and delete what there is.
"""

from __future__ import annotations

import random
import threading
from typing import Any

from calls import Reply
from histories import Kind, Operation, Resource, is_linearizable
from workload import Workload

CALLERS, CALLS = 5, 5


class Recording:
    """One history."""

    def __init__(self, work: Workload, name: str, seed: int) -> None:
        self._work, self._name, self._seed = work, name, seed
        self._id = ""
        self.operations: list[Operation] = []

    def record(self) -> list[Operation]:
        """Has all callers call at once, each one thing after the other."""
        callers = [
            threading.Thread(target=self._call_often, args=(random.Random(self._seed + number),))
            for number in range(CALLERS)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        return self.operations

    def _call_often(self, chance: random.Random) -> None:
        for number in range(CALLS):
            self._call(chance, f"{chance.getrandbits(32):x}-{number}")

    def _call(self, chance: random.Random, value: str) -> None:
        id = self._id
        kinds: list[Kind] = ["get", "update", "delete", "create"]
        kind: Kind = chance.choices(kinds, (40, 45, 5, 10))[0] if id else "create"
        field = chance.choice(["description", "metadata"])
        changes = ((field, value),) if kind in ("create", "update") else ()
        reply = self._send(kind, chance, id, dict(changes))
        if not reply.was_sent or (reply.is_unknown and kind == "get"):
            return
        operation = Operation(kind, "done", reply.began, reply.ended, id, changes)
        self.operations.append(self._with_outcome(operation, reply))

    def _send(self, kind: Kind, chance: random.Random, id: str, changes: dict[str, Any]) -> Reply:
        port, path = self._work.port(chance), "/reserved_domains"
        if kind == "create":
            return self._work.call(port, "POST", path, domain=self._name, **changes)
        method = {"get": "GET", "update": "PATCH", "delete": "DELETE"}[kind]
        return self._work.call(port, method, f"{path}/{id}", **changes)

    def _with_outcome(self, operation: Operation, reply: Reply) -> Operation:
        if reply.is_unknown:
            return Operation(
                operation.kind,
                "unknown",
                reply.began,
                id="" if operation.kind == "create" else operation.id,
                changes=operation.changes,
            )
        found, outcome, id = None, "refused", operation.id
        if reply.status < 300:
            outcome = "done"
            if operation.kind in ("get", "create"):
                said = reply.json()
                found = Resource(said["id"], said["description"], said["metadata"])
        if operation.kind == "create":
            id = found.id if found else ""
            self._id = id or self._id
        return Operation(
            operation.kind,
            outcome,  # type: ignore[arg-type]
            reply.began,
            reply.ended,
            id,
            operation.changes,
            found if operation.kind == "get" else None,
        )


class Histories:
    """Histories that are recorded while something fails, and checked at once."""

    MOST_UNKNOWN = 6
    """With more whose outcome is unknown, nearly everything is explained, and searched for long."""

    def __init__(self, work: Workload) -> None:
        self._work = work

    def step(self, chance: random.Random) -> None:
        name = f"key{chance.getrandbits(48):x}.test"
        history = Recording(self._work, name, chance.getrandbits(32)).record()
        unknown = sum(operation.outcome == "unknown" for operation in history)
        if unknown > self.MOST_UNKNOWN:
            self._work.findings.count("histories with too much unknown")
            return
        self._work.findings.count("histories")
        if not is_linearizable(history):
            self._work.findings.violated(f"not linearizable: {history}")
