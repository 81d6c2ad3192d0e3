"""Writes `THIRD-PARTY-LICENSES.txt`: the licence of every crate that the wheel holds.

Crates that say the same are listed together above one text. What a crate is for building or testing
alone is not in the wheel, and not here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "THIRD-PARTY-LICENSES.txt"
PATTERNS = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "COPYRIGHT*", "UNLICENSE*", "license*")
HEAD = """Licences of the crates that are linked into ginnel's extension module.
Written by python/licenses.py from what the crates bring; see Cargo.lock for where they come from.
"""
RULE = "=" * 78


def metadata() -> dict[str, Any]:
    """What cargo knows of the crate with the features of the wheel, on Linux."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--features=python"]
    command += ["--filter-platform=x86_64-unknown-linux-gnu"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(said)
    return result


def linked(known: dict[str, Any]) -> list[dict[str, Any]]:
    """The packages that are linked, without our own."""
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    packages = {package["id"]: package for package in known["packages"]}
    root = known["resolve"]["root"]
    found, left = {root}, [root]
    while left:
        for dependency in nodes[left.pop()]["deps"]:
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            is_macro = any(
                "proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"]
            )
            if is_normal and not is_macro and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                left.append(dependency["pkg"])
    own = set(known["workspace_members"])
    chosen = [packages[each] for each in found if each not in own]
    return sorted(chosen, key=lambda package: (package["name"], package["version"]))


def texts_of(package: dict[str, Any]) -> list[str]:
    """The licence texts in the folder of a crate."""
    folder = Path(package["manifest_path"]).parent
    files = {file for pattern in PATTERNS for file in folder.glob(pattern) if file.is_file()}
    # Where MIT's may be chosen, it is.
    if any(file.name.upper().startswith(("LICENSE-MIT", "LICENSE.MIT")) for file in files):
        files = {file for file in files if "APACHE" not in file.name.upper()}
    read = (file.read_text("utf-8", "replace") for file in sorted(files))
    # Lines end alike, and nothing is at their ends.
    return ["\n".join(line.rstrip() for line in text.splitlines()).strip() for text in read]


def page() -> str:
    """The whole file."""
    packages = linked(metadata())
    users: dict[str, list[str]] = {}
    lines = [HEAD]
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {package['license'] or 'see below'}")
        for text in texts_of(package):
            users.setdefault(text, []).append(name)
    for text, names in users.items():
        lines += ["", RULE, ", ".join(names), RULE, "", text]
    return "\n".join(lines) + "\n"


def main() -> None:
    written = page()
    if "--check" in sys.argv[1:]:
        if not OUTPUT.exists() or OUTPUT.read_text("utf-8") != written:
            sys.exit(f"{OUTPUT.name} is not up to date; run `make generate`")
        return
    OUTPUT.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
