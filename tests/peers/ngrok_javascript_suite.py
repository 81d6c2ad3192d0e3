"""Runs the own tests of `@ngrok/ngrok`, the official agent library in JavaScript.

    python tests/peers/ngrok_javascript_suite.py CHECKOUT [JEST OPTIONS]

CHECKOUT is a working tree of the library's repository at the tag of `VERSION`, and is changed: what
the tests need is installed into it with npm, and beside it comes the published binary, in which the
authority that the library trusts becomes that of the service. Runs as root of Linux on x86-64, see
`vendor_place.py`. Prints each test that does not pass, and writes the record for `table.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from records import Record
from vendor_place import enter, is_inside, vendor_place

VERSION = "1.7.0"
FILES = ["connect.spec.mjs", "online.spec.mjs"]
BINARY = "ngrok-linux-x64-gnu"
NEEDS = ["jest@29", "babel-jest@29", "expect@29", "@babel/core@7", "@babel/preset-env@7"]
NEEDS += ["axios@1", "axios-retry@4", "express@4", f"@ngrok/{BINARY}@{VERSION}"]
PEM = rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----"

RESULT = r"^\s+([✓✕○]) (?:skipped )?(.+?)(?: \([\d.]+ m?s\))?$"

REASONS = {
    "sites of the vendor": ["tls backend", "unverified tls backend"],
    "looks for the page of Google, and a visitor that is no browser gets 401": ["oauth"],
    "a certificate of X.509 version 1, which has no names of hosts and is refused": [
        "tls listener",
        "forward tls listener",
    ],
    "expects the first heartbeat before the login is answered, and here it comes 0.2 ms later": [
        "connect heartbeat callbacks"
    ],
    "is skipped by its authors": ["root_cas"],
}
"""Why tests do not pass."""


def install(checkout: Path) -> None:
    npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([*npm, *NEEDS], cwd=checkout, check=True)


def trust(checkout: Path, ca_pem: str) -> None:
    """Writes the binary with another authority to where the library looks first."""
    [published] = (checkout / "node_modules" / "@ngrok" / BINARY).glob("*.node")
    binary = published.read_bytes()
    [authority] = set(re.findall(PEM, binary))
    own = ca_pem.encode().ljust(len(authority), b"\n")
    if len(own) > len(authority):
        sys.exit("the authority of the service is longer than that of the library")
    (checkout / published.name).write_bytes(binary.replace(authority, own))


def run(checkout: Path, options: list[str]) -> Record:
    """Runs and counts."""
    jest = ["node_modules/.bin/jest", "--runInBand", "--forceExit", "--verbose"]
    tests: list[tuple[str, str]] = []
    with vendor_place() as place:
        trust(checkout, place.ca_pem)
        # One process for each file: the library keeps listeners that a failed test has not closed.
        for file in FILES:
            done = subprocess.run(
                [*jest, f"__test__/{file}", *options],
                cwd=checkout,
                env=place.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            print(done.stderr)
            tests += re.findall(RESULT, done.stderr, re.MULTILINE)
    failed = [title for mark, title in tests if mark != "✓"]
    return Record.of_tests("ngrok-javascript", VERSION, len(tests), failed, REASONS)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    checkout = Path(sys.argv[1]).resolve()
    if not is_inside():
        install(checkout)
    enter()
    record = run(checkout, sys.argv[2:])
    print(f"{record.passes} of {record.total}")
    if not sys.argv[2:]:
        print(record.write())


if __name__ == "__main__":
    main()
