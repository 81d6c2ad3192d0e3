"""Runs the own tests of `ngrok`, the official agent library in Rust, against a service of ginnel.

    python tests/peers/ngrok_rust_suite.py CHECKOUT [NAME OF A TEST]

CHECKOUT is a working tree of the library's repository at the tag of `VERSION`, and is changed: the
authority that the library trusts becomes that of the service. Runs as root of Linux, see
`vendor_place.py`. Prints each test that does not pass, and writes the record for `table.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from records import Record
from vendor_place import enter, is_inside, vendor_place

VERSION = "0.19.0"
FEATURES = "ring,paid-tests,long-tests"

REASONS = {
    "sites of the vendor": ["session_root_cas"],
    "looks for the page of Google, and a visitor that is no browser gets 401": ["oauth"],
    "a certificate of X.509 version 1, which has no names of hosts and is refused": ["tls"],
    "its visitor trusts the authorities of the web alone": ["websocket_conversion"],
}
"""Why tests do not pass."""


def run(checkout: Path, names: list[str]) -> Record:
    """Builds, runs and counts."""
    with vendor_place() as place:
        (checkout / "ngrok" / "assets" / "ngrok.ca.crt").write_text(place.ca_pem)
        cargo = ["cargo", "test", "--offline", "--package", "ngrok", "--lib", "--no-fail-fast"]
        cargo += ["--no-default-features", "--features", FEATURES, "--", "--test-threads=1", *names]
        done = subprocess.run(
            cargo, cwd=checkout, env=place.environment, capture_output=True, text=True, check=False
        )
    print(done.stdout[done.stdout.find("failures:") :], done.stderr[-3000:])
    results = re.findall(r"^test (\S+)(?: - .*)? \.\.\. (ok|FAILED|ignored)", done.stdout, re.M)
    failed = [name.rsplit("::", 1)[1] for name, result in results if result != "ok"]
    return Record.of_tests("ngrok-rust", VERSION, len(results), failed, REASONS)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    checkout = Path(sys.argv[1]).resolve()
    if not is_inside():
        subprocess.run(["cargo", "fetch", "--locked"], cwd=checkout, check=True)
    enter()
    record = run(checkout, sys.argv[2:])
    print(f"{record.passes} of {record.total}")
    if not sys.argv[2:]:
        print(record.write())


if __name__ == "__main__":
    main()
