"""What the runs of the peers write down, for the table in the guide."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "target" / "peers"
ABSENT = " is not there yet"
"""The end of a reason that the table joins with others of its kind."""


@dataclass(frozen=True)
class Record:
    """One run of one peer."""

    peer: str
    version: str
    what: str
    """What is counted, such as `tests`."""
    passes: int
    total: int
    others: dict[str, int]
    """How many do not pass, by reason."""
    details: dict[str, object] = field(default_factory=dict)
    """What does not pass, one by one."""

    def write(self, path: Path | None = None) -> Path:
        path = path or FOLDER / f"{self.peer}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")
        return path

    @classmethod
    def of_tests(
        cls, peer: str, version: str, total: int, names: list[str], reasons: dict[str, list[str]]
    ) -> Record:
        """That of a suite of tests; `names` are those that do not pass, `reasons` says why."""
        known = {name: reason for reason, listed in reasons.items() for name in listed}
        others = Counter(known.get(name, f"`{name}`, not explained") for name in names)
        return cls(peer, version, "tests", total - len(names), total, dict(others))

    @classmethod
    def read(cls, path: Path) -> Record:
        return cls(**json.loads(path.read_text()))
