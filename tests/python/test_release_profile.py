"""How the wheel is built: levels of optimization and its size."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())
PROFILE: dict[str, Any] = MANIFEST["profile"]["release"]
LOCKED = set(re.findall(r'^name = "(.+)"$', (ROOT / "Cargo.lock").read_text(), re.M))


def own_crates() -> list[str]:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [package["name"] for package in json.loads(done.stdout)["packages"]]


SPEED, SIZE, LEAST_SIZE = 3, "s", "z"

LEVELS = {
    "ginnel": SPEED,
    "ginnel-agent": SIZE,
    "ginnel-api": SIZE,
    "ginnel-base": SPEED,
    "ginnel-cli": LEAST_SIZE,
    "ginnel-client": SPEED,
    "ginnel-content": SPEED,
    "ginnel-gateway": SPEED,
    "ginnel-http1": SPEED,
    "ginnel-metrics": SPEED,
    "ginnel-mux": SPEED,
    "ginnel-net": SPEED,
    "ginnel-policy": SPEED,
    "ginnel-service": LEAST_SIZE,
    "ginnel-sessions": LEAST_SIZE,
    "ginnel-settings": LEAST_SIZE,
    "ginnel-store": LEAST_SIZE,
    "ginnel-web": LEAST_SIZE,
    "rust-client": SPEED,
}
"""The level of each crate of the project, chosen by the benches."""


def test_every_crate_of_the_project_is_built_at_the_level_that_was_chosen() -> None:
    levels = {
        name: PROFILE["package"].get(name, PROFILE).get("opt-level", PROFILE["opt-level"])
        for name in own_crates()
    }

    assert levels == LEVELS


def test_crates_of_others_are_built_for_speed_or_for_size() -> None:
    for name, options in PROFILE["package"].items():
        assert name in LOCKED, f"{name} is not a dependency any more"
        assert name in LEVELS or options == {"opt-level": SIZE}, name


def test_the_wheel_may_have_16_million_bytes(tmp_path: Path) -> None:
    def check(size: int) -> int:
        wheel = tmp_path / "ginnel-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl"
        with wheel.open("wb") as file:
            file.truncate(size)
        command = [str(ROOT / "tests/check-wheel"), str(wheel), "manylinux_2_28_x86_64"]
        return subprocess.run(command, capture_output=True).returncode

    assert check(16_000_000) == 0
    assert check(16_000_001) == 1


def test_the_page_of_benchmarks_was_measured_with_this_profile() -> None:
    command = [sys.executable, str(ROOT / "bench/release_profile.py")]
    current = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    named = re.findall(r"profile `([0-9a-f]{12})`", (ROOT / "docs/benchmarks.md").read_text())

    assert named == [current], (
        "measure again with `make bench`, and name the profile that it prints"
    )


def test_a_wheel_for_users_has_no_helpers_of_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["tool"]["maturin"]["features"] == ["python"]
    assert "test-support" in MANIFEST["features"]
    assert not any("test-support" in part for part in MANIFEST["features"]["python"])
