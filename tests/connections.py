#!/usr/bin/env python3
"""Runs the tests under strace, and says with whom this package, its programs and the tests connect.

    tests/connections.py [arguments of pytest]

The exit code is 0 when nothing leaves this machine but look-ups of names, 1 when something does,
and 2 when the tests or strace fail. Files that drive a browser are left out: browsers connect to
their makers. Needs strace 5.3 or newer.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

TESTS = Path(__file__).parent / "python"
CALL = re.compile(
    r"connect\(\d+<(?P<kind>\w+)[^,]*, \{sa_family=(?P<family>AF_INET6?), "
    r"sin6?_port=htons\((?P<port>\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )\"(?P<host>[^\"]+)\""
    r".*= (?P<result>.+)$"
)
DNS = 53
Address = IPv4Address | IPv6Address


def drives_browser(file: Path) -> bool:
    return "browsing" in file.read_text() or "playwright" in file.read_text()


def own_addresses() -> set[Address]:
    """The addresses of this machine."""
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return {ip_address(address) for address in found}


def name_servers() -> set[Address]:
    lines = Path("/etc/resolv.conf").read_text().splitlines()
    return {ip_address(line.split()[1]) for line in lines if line.startswith("nameserver ")}


def destination(host: str, port: int, kind: str, own: set[Address], names: set[Address]) -> str:
    """Where a connection leads; empty where it leaves the machine."""
    address = ip_address(host)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified or address in own:
        return "this machine"
    if port == DNS and address in names:
        return "look-ups of names"
    # A socket for datagrams that is connected has sent nothing: so the system is asked for a route.
    return "routes, without a packet" if kind.startswith("UDP") else ""


def traced(arguments: list[str], output: Path) -> int:
    ignored = [f"--ignore={file}" for file in TESTS.glob("test_*.py") if drives_browser(file)]
    strace = ["strace", "--follow-forks", "--seccomp-bpf", "-yy", "-qq", "--trace=connect"]
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, *arguments]
    return subprocess.run([*strace, f"--output={output}", *pytest]).returncode


def main() -> int:
    own, names = own_addresses(), name_servers()
    places: Counter[str] = Counter()
    leaving: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "calls"
        code = traced(sys.argv[1:], output)
        with output.open(errors="replace") as lines:
            for call in map(CALL.search, lines):
                if call is None:
                    continue
                host, port, kind = call["host"], int(call["port"]), call["kind"]
                place = destination(host, port, kind, own, names)
                places[place or "elsewhere"] += 1
                if not place:
                    leaving[f"{host}:{port} ({kind}): {call['result']}"] += 1
    for place, count in places.most_common():
        print(f"{count:8}  {place}")
    for where, count in leaving.most_common():
        print(f"{count:8}    {where}")
    if code not in (0, 5) or not places:
        return 2
    return 1 if leaving else 0


if __name__ == "__main__":
    sys.exit(main())
