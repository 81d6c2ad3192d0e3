"""Whether a history of one key is linearizable.

A history is what several callers asked for at about the same time, and what they got. It is
linearizable if there is one order of the operations that explains every result, in which whatever
ended before something else began comes first. The search tries the operations that may be next, one
after the other, and remembers which sets of operations led to which state (Wing and Gong 1993, with
the memory of Lowe 2017).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal

Kind = Literal["create", "get", "update", "delete"]
Outcome = Literal["done", "refused", "unknown"]


@dataclasses.dataclass(frozen=True)
class Resource:
    """What is stored under a key."""

    id: str
    description: str = ""
    metadata: str = ""


@dataclasses.dataclass(frozen=True)
class Operation:
    """One call: when it began and ended, and what came of it.

    `refused` is a create of what is there, or anything else with the identifier of what is not.
    What has the outcome `unknown` may have happened at any time since it began, or not at all.
    """

    kind: Kind
    outcome: Outcome
    began: float
    ended: float = math.inf
    id: str = ""
    """The resource asked for, or the one that a create has made."""
    changes: tuple[tuple[str, str], ...] = ()
    """The fields that a create or an update sets."""
    found: Resource | None = None
    """What a get has got."""

    def apply(self, state: Resource | None) -> tuple[Resource | None] | None:
        """The state afterwards, as a tuple; none where the operation cannot have been then."""
        if self.kind == "create":
            return self._create(state)
        if state is None or state.id != self.id:
            return (state,) if self.outcome in ("refused", "unknown") else None
        if self.outcome == "refused":
            return None
        match self.kind:
            case "get":
                return (state,) if self.found in (None, state) else None
            case "update":
                return (dataclasses.replace(state, **dict(self.changes)),)
            case _:
                return (None,)

    def _create(self, state: Resource | None) -> tuple[Resource | None] | None:
        if (state is None) == (self.outcome == "refused"):
            # An unknown one that is refused leaves everything as it is, as if it had not been.
            return None
        # Nobody knows the identifier of what an unknown one has made.
        made = Resource(self.id or f"unknown since {self.began}", **dict(self.changes))
        return (state,) if self.outcome == "refused" else (made,)


def is_linearizable(history: Iterable[Operation], state: Resource | None = None) -> bool:
    """Whether one order explains a history that begins with `state`."""
    operations = sorted(history, key=lambda operation: operation.began)
    required = sum(1 << n for n, one in enumerate(operations) if one.outcome != "unknown")
    seen = {(0, state)}
    open_ends = [(0, state)]
    while open_ends:
        done, state = open_ends.pop()
        if done & required == required:
            return True
        for number in _next(operations, done):
            after = operations[number].apply(state)
            step = (done | 1 << number, *(after or ()))
            if after is not None and step not in seen:
                seen.add(step)
                open_ends.append(step)
    return False


def _next(operations: list[Operation], done: int) -> list[int]:
    """The operations that may be next: those that began before any of the others has ended."""
    left = [number for number in range(len(operations)) if not done >> number & 1]
    first_end = min(operations[number].ended for number in left)
    return [number for number in left if operations[number].began <= first_end]
