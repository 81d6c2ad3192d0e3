"""Runs the own tests of `ngrok`, the official agent library in Python, against a service of ginnel.

    python tests/peers/ngrok_python_suite.py CHECKOUT [PYTEST OPTIONS]

CHECKOUT is a working tree of the library's repository at the tag of `VERSION`. The library itself
is the published wheel of that version; it and what its tests need are installed with pip into a
folder that is removed afterwards. Listens on ports 80 and 443, so it runs as root. Prints each test
that does not pass, and writes the record for the table of `table.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from pyngrok_suite import kept
from records import Record

VERSION = "1.4.0"
FILES = ["test.py", "test_connect.py", "test_main.py"]
NEEDS = [f"ngrok=={VERSION}", "requests", "aiohttp"]

REASONS = {
    "sites of the vendor": ["test_root_cas", "test_tls_backend", "test_tls_backend_no_verify"],
    "looks for the page of Google, and a visitor that is no browser gets 401": ["test_oauth"],
    "expects the first heartbeat before the login is answered, and here it comes 0.2 ms later": [
        "test_connect_heartbeat_callbacks"
    ],
}
"""Why tests do not pass."""

PLUGIN = """
import functools
import os
import socket
import tempfile
from pathlib import Path

import ginnel
import ngrok

application = {"client_id": "ngrok", "client_secret": "nobody comes as far as to need it"}
service = ginnel.Service(
    base_domain="ngrok.io",
    https_port=443,
    http_port=80,
    settings={"oauth": {"google": application}},
)
roots = Path(tempfile.mkdtemp()) / "ca.pem"
roots.write_text(service.ca_pem)
os.environ |= {
    "NGROK_AUTHTOKEN": service.authtoken,
    "REQUESTS_CA_BUNDLE": str(roots),
    "SSL_CERT_FILE": str(roots),
}
resolve = socket.getaddrinfo


def resolve_ours(host, port, *arguments, **options):
    if str(host).endswith("ngrok.io"):
        host = "127.0.0.1"
    return resolve(host, port, *arguments, **options)


socket.getaddrinfo = resolve_ours

# Where the service is, a program says once; the tests never do.
authority = bytearray(service.ca_pem.encode())
Builder = ngrok.SessionBuilder


def session_builder():
    return Builder().server_addr(str(service.agent_addr)).ca_cert(authority)


def with_place(function):
    @functools.wraps(function)
    def call(*arguments, **options):
        place = {"server_addr": str(service.agent_addr), "session_ca_cert": authority}
        return function(*arguments, **(place | options))

    return call


for module in (ngrok, ngrok.ngrok):
    module.SessionBuilder = session_builder
    for name in ("connect", "forward"):
        setattr(module, name, with_place(getattr(module, name)))
"""


def run(checkout: Path, folder: Path, options: list[str]) -> Record:
    """Installs, runs and counts."""
    packages = folder / "packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
    subprocess.run([*pip, *NEEDS], check=True)
    (packages / "official_service.py").write_text(PLUGIN)
    environment = os.environ | {"PYTHONPATH": str(packages)}
    pytest = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=line", "-p", "no:cacheprovider"]
    pytest += ["-p", "official_service", "-o", "log_cli=false", "-o", "asyncio_mode=strict"]
    tests: list[ElementTree.Element] = []
    for name in FILES:
        # One process for each file: the library keeps sessions until the interpreter ends.
        results = folder / f"{name}.xml"
        command = [*pytest, f"test/{name}", f"--junitxml={results}", *options]
        subprocess.run(command, cwd=checkout, env=environment, check=False)
        tests += ElementTree.parse(results).iter("testcase")
    names = [str(test.get("name")) for test in tests if kept(test)]
    return Record.of_tests("ngrok-python", VERSION, len(tests), names, REASONS)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        record = run(Path(sys.argv[1]).resolve(), Path(folder), sys.argv[2:])
    print(record)
    if not sys.argv[2:]:
        print(record.write())


if __name__ == "__main__":
    main()
