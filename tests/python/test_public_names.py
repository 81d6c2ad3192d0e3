"""Names that programs and scripts of users hold: none vanishes unnoticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "python"


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    """The names that there are, and those in the list."""
    code = "from public_names import *; print(*names(), '', *kept(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPTS, check=True, capture_output=True, text=True
    )
    current, _, kept = done.stdout.partition("\n\n")
    return {"current": set(current.splitlines()), "kept": set(kept.splitlines())}


def test_no_public_name_has_vanished(names: dict[str, set[str]]) -> None:
    """One that changes works for one release more, with a notice; then its line is deleted."""
    assert sorted(names["kept"] - names["current"]) == []


def test_every_public_name_is_in_the_list(names: dict[str, set[str]]) -> None:
    assert sorted(names["current"] - names["kept"]) == [], "run `make generate`"


@pytest.mark.parametrize(
    "name",
    [
        "python ginnel.Service(seed)",
        "python ginnel.remote.api_keys.ApiKeys.create(description)",
        "python ginnel.exceptions.APIStatusError.retry_after",
        "cli ginnel http",
        "cli ginnel serve --http-port",
        "environment GINNEL_API_KEY",
        "configuration tunnels.addr",
        "json ApiKey.token",
        "json inspector replay_of",
    ],
)
def test_names_of_each_kind_are_found(names: dict[str, set[str]], name: str) -> None:
    assert name in names["current"]
