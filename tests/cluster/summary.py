#!/usr/bin/env python3
"""Adds up runs of the torture, whose lines GINNEL_CLUSTER_RECORD has kept: summary.py FILE..."""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from typing import Any

FAULTS = (
    "kill",
    "restart",
    "stop",
    "cut_from_database",
    "cut_from_peers",
    "cut_from_agents",
    "jump",
)
WORK = (
    "acknowledged",
    "checked at the end",
    "histories",
    "revocations",
    "policy changes",
    "POSTs at upstreams",
    "owners read",
    "contested name bound",
)


def runs(files: list[str]) -> list[dict[str, Any]]:
    lines = [line for file in files for line in pathlib.Path(file).read_text().splitlines()]
    return [json.loads(line) for line in lines]


SUCCESS = 0.999
BACK_WITHIN = 20.0


def total(runs: list[dict[str, Any]]) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for run in runs:
        counts.update(run["counts"])
    return counts


def visits(counts: collections.Counter[str], kind: str) -> tuple[int, float]:
    """How many there were for tunnels of an agent of this kind, and the part that was served."""
    place = f"visits of {kind} "
    number = sum(times for name, times in counts.items() if name.startswith(place))
    return number, counts[f"{place}200"] / max(number, 1)


def outage(runs: list[dict[str, Any]], kind: str) -> float:
    """The longest that no request for a tunnel of this kind was served, in seconds."""
    return float(max(run["longest_outages"].get(kind, 0) for run in runs))


def summary(runs: list[dict[str, Any]]) -> str:
    """A table in markdown."""
    counts = total(runs)
    minutes = sum(run["seconds"] for run in runs) / 60
    rows = [("runs", str(len(runs))), ("minutes", f"{minutes:.0f}")]
    rows += [(name.replace("_", " "), f"{counts[name]:,}") for name in FAULTS + WORK]
    for kind in ("ours", "official"):
        number, served = visits(counts, kind)
        rows.append((f"visits, {kind}", f"{number:,}"))
        rows.append((f"served, {kind}", f"{served:.3%}"))
        rows.append((f"longest outage of a tunnel, {kind}", f"{outage(runs, kind):.1f} s"))
    rows.append(("violations", str(sum(len(run["violations"]) for run in runs))))
    return "\n".join(
        ["| | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rows)]
    )


def missed(runs: list[dict[str, Any]]) -> list[str]:
    """The goals that were not reached."""
    served, out = visits(total(runs), "ours")[1], outage(runs, "official")
    checks = [
        (any(run["violations"] for run in runs), "there are violations"),
        (served < SUCCESS, f"{served:.3%} of visits of our agents were served, not {SUCCESS:.1%}"),
        (out > BACK_WITHIN, f"a tunnel of an official library was out for {out:.0f} s"),
    ]
    return [text for is_missed, text in checks if is_missed]


def main() -> None:
    found = runs(sys.argv[1:])
    print(summary(found))
    if goals := missed(found):
        sys.exit("\n".join(goals))


if __name__ == "__main__":
    main()
