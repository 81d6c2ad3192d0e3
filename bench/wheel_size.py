#!/usr/bin/env python3
"""Prints how many bytes of the extension module come from which crate.

    CARGO_PROFILE_RELEASE_STRIP=none tests/build-wheel release FOLDER
    bench/wheel_size.py FOLDER/*.whl [--most 25]

Reads the symbols of the library with `nm`. A function made from a generic one counts for the crate that defines
the generic one, so the share of `core` and `alloc` contains code that other crates asked for.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

# C and assembly have no paths.
FOREIGN = {
    r"sqlite3|sqlite|fts|json|vdbe|btree|pcache|pager|unix|whereLoop|expr": "SQLite (C)",
    r"ring_core|bn_|GFp|x25519|fe_|ge_|CRYPTO|ecp_|p256|p384": "ring (C and assembly)",
}
CRATE = re.compile(r"[<&*(\[ ]*(?:dyn |mut |const )*([a-z][a-z0-9_]*)::")


def crate_of(symbol: str) -> str:
    """Returns the crate that defines a demangled symbol."""
    if found := CRATE.match(symbol):
        return found[1]
    for pattern, name in FOREIGN.items():
        if re.match(pattern, symbol):
            return name
    return "other C and data"


def sizes(library: Path) -> Counter[str]:
    command = ["nm", "--print-size", "--demangle", "--defined-only", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for line in listed.splitlines():
        fields = line.split(" ", 3)
        if len(fields) == 4 and fields[2] in "tTrRdD":
            found[crate_of(fields[3])] += int(fields[1], 16)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("wheel", type=Path)
    arguments.add_argument("--most", type=int, default=25)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(chosen.wheel) as wheel:
        [name] = [name for name in wheel.namelist() if "_native" in name and name.endswith(".so")]
        by_crate = sizes(Path(wheel.extract(name, folder)))
    if not by_crate:
        sys.exit("the library has no symbols: build it with CARGO_PROFILE_RELEASE_STRIP=none")
    total = by_crate.total()
    print("| crate | bytes | share |\n| --- | ---: | ---: |")
    for crate, size in by_crate.most_common(chosen.most):
        print(f"| {crate} | {size:,} | {size / total:.1%} |")
    rest = total - sum(size for _, size in by_crate.most_common(chosen.most))
    print(f"| {len(by_crate) - chosen.most} others | {rest:,} | {rest / total:.1%} |")


if __name__ == "__main__":
    main()
