#!/usr/bin/env python3
"""Reads how the wheel is built, and prints a hash of it.

    bench/release_profile.py             prints the hash that docs/benchmarks.md must name
    bench/release_profile.py --config    prints the release profile as a configuration file of Cargo

The hash covers what decides about speed and size: the release profile with the levels of single crates, the
options of maturin, the environment of the build, and the linker's options in tests/build-wheel.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def read_toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


def release_profile() -> dict[str, Any]:
    """Returns `profile.release` of Cargo.toml."""
    profile: dict[str, Any] = read_toml("Cargo.toml")["profile"]["release"]
    return profile


def profile_hash() -> str:
    """Returns the first 12 hexadecimal digits of the hash."""
    options = re.findall(r"^ *options=\((.*--.*)\)$", (ROOT / "tests/build-wheel").read_text(), re.M)
    facts = {
        "profile": release_profile(),
        "environment": read_toml(".cargo/config.toml").get("env", {}),
        "maturin": read_toml("pyproject.toml")["tool"]["maturin"],
        "options": options,
    }
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cargo_config() -> str:
    """Returns a configuration for `cargo --config FILE` with the same profile, for programs outside of the package."""
    profile = release_profile()
    packages = profile.pop("package", {})
    lines = ["[profile.release]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in profile.items()]
    for name, options in packages.items():
        lines.append(f'[profile.release.package."{name}"]')
        lines += [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    sys.stdout.write(cargo_config() if sys.argv[1:] == ["--config"] else profile_hash() + "\n")


if __name__ == "__main__":
    main()
