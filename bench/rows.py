"""Rows of measurements: what the benchmarks write, and what is read out of it.

A row is one figure of one suite: samples, one a round, and those of a peer in the same rounds where
there is one. The figure is the median of the ratios round by round then, and the median of the samples
otherwise.
"""

from __future__ import annotations

import json
import random
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESAMPLES = 2_000


@dataclass
class Row:
    suite: str
    name: str
    unit: str
    samples: list[float]
    peer: str = ""
    peer_samples: list[float] = field(default_factory=list)
    more_is_better: bool = True

    @property
    def key(self) -> str:
        return f"{self.suite} {self.name}"

    @property
    def measure(self) -> str:
        return f"x {self.peer}" if self.peer else self.unit

    def figures(self) -> list[float]:
        """One figure a round."""
        if not self.peer:
            return self.samples
        return [
            ours / theirs for ours, theirs in zip(self.samples, self.peer_samples, strict=False)
        ]

    def figure(self) -> float:
        return statistics.median(self.figures())

    def reaches(self, goal: float) -> bool:
        return self.figure() >= goal if self.more_is_better else self.figure() <= goal


def save(path: Path, about: dict[str, str], rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"about": about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
    )


def load(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())["rows"]]


def change(old: Row, new: Row) -> tuple[float, float, float]:
    """Returns the new figure as a ratio to the old one, and the bounds of its 95 % interval."""
    chance = random.Random(f"{old.key} {len(old.samples)} {len(new.samples)}")
    before, after = old.figures(), new.figures()

    def median_of(figures: list[float]) -> float:
        return statistics.median(chance.choices(figures, k=len(figures)))

    ratios = sorted(median_of(after) / median_of(before) for _ in range(RESAMPLES))
    edge = RESAMPLES // 40
    return new.figure() / old.figure(), ratios[edge], ratios[-edge - 1]


def confidence(row: Row) -> tuple[float, float]:
    """Returns the bounds of the figure that 95 of 100 resamplings of its rounds keep to."""
    chance = random.Random(row.key)
    figures = row.figures()
    medians = sorted(
        statistics.median(chance.choices(figures, k=len(figures))) for _ in range(RESAMPLES)
    )
    edge = RESAMPLES // 40
    return medians[edge], medians[-edge - 1]


def table(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )
