#!/usr/bin/env python3
"""Prints the tables of docs/benchmarks.md: `bench/tables.py RESULT.json [RESULT.json ...]`.

Each file is what bench/run.py has written. A suite is taken from the last file that contains it.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from rows import Row, confidence, load, table

HERE = Path(__file__).resolve().parent


def goal_of(row: Row) -> float | None:
    """Returns the goal of a row. A ratio is not compared if the peer is not the one that the goal is for."""
    goals = tomllib.loads((HERE / "goals.toml").read_text())
    if row.suite == "tunnel" and row.peer != "rathole":
        return None
    goal: float | None = goals.get(row.suite, {}).get(row.name)
    return goal


def cells(row: Row) -> list[str]:
    goal = goal_of(row)
    figure = f"{row.figure():.4g}"
    if goal is not None and not row.reaches(goal):
        figure = f"**{figure}**"
    low, high = confidence(row)
    bound = "" if goal is None else f"{'≥' if row.more_is_better else '≤'} {goal:g}"
    return [row.name, row.measure, bound, figure, f"{low:.4g} to {high:.4g}"]


def markdown(rows: list[Row]) -> str:
    """Returns a table for each suite. Figures that miss their goal are bold."""
    head = ["row", "unit or peer", "goal", "median", "95 % interval"]
    suites = dict.fromkeys(row.suite for row in rows)
    parts = [
        f"### {suite}\n\n" + table(head, [cells(row) for row in rows if row.suite == suite])
        for suite in suites
    ]
    return "\n\n".join(parts)


def main() -> None:
    found: dict[str, list[Row]] = {}
    for file in sys.argv[1:]:
        rows = load(Path(file))
        found |= {suite: [row for row in rows if row.suite == suite] for suite in {r.suite for r in rows}}
    print(markdown([row for rows in found.values() for row in rows]))


if __name__ == "__main__":
    main()
