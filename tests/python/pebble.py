"""A real certificate authority that speaks ACME; `tests/install-packages` installs it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import trustme

from addresses import free_port
from processes import wait_until

PROGRAM = os.environ.get("GINNEL_PEBBLE") or shutil.which("pebble")
DNS = shutil.which("pebble-challtestsrv", path=PROGRAM and f"{Path(PROGRAM).parent}")
BLOCKED = "blocked.example.test"
"""A name that the authority signs for nobody."""


@dataclass
class Pebble:
    """An authority that finds all names at 127.0.0.1, on two ports."""

    folder: Path
    http_port: int
    https_port: int
    port: int
    management: int
    dns: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> list[str]:
        """The options of `ginnel serve` that obtain certificates from here."""
        directory = f"https://127.0.0.1:{self.port}/dir"
        ca = str(self.folder / "directory-ca.pem")
        return ["--acme-directory", directory, "--acme-ca", ca, "--acme-agree-to-terms"]

    @property
    def ports(self) -> list[str]:
        """The options of `ginnel serve` for the ports that this authority looks at."""
        return ["--http-port", str(self.http_port), "--https-port", str(self.https_port)]

    def trust(self) -> ssl.SSLContext:
        """Whoever trusts what this authority signs."""
        root = self.ask(f"https://127.0.0.1:{self.management}/roots/0")
        return ssl.create_default_context(cadata=root.decode())

    def ask(self, url: str, data: dict[str, Any] | None = None) -> bytes:
        trusting = ssl.create_default_context(cafile=self.folder / "directory-ca.pem")
        body = None if data is None else json.dumps(data).encode()
        with urlopen(Request(url, body), context=trusting, timeout=20) as response:
            read: bytes = response.read()
            return read

    def resolve(self, name: str, *, fails: bool) -> None:
        """Has the DNS fail for a name, or work again."""
        action = "set-servfail" if fails else "clear-servfail"
        body = json.dumps({"host": f"{name}."}).encode()
        urlopen(Request(f"http://127.0.0.1:{self.dns}/{action}", body), timeout=20).close()


@contextlib.contextmanager
def pebble(
    folder: Path,
    *,
    lifetime: int = 7 * 24 * 3600,
    http_port: int = 0,
    https_port: int = 0,
    names: int = 0,
    **environment: str,
) -> Iterator[Pebble]:
    """An authority whose certificates live so many seconds.

    It visits names at `http_port` and `https_port`, and its DNS listens at `names`. 0 picks a free
    port.
    """
    if PROGRAM is None or DNS is None:
        pytest.skip("pebble is not installed: run tests/install-packages")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "directory-ca.pem")
    own = authority.issue_cert("127.0.0.1", "localhost")
    own.cert_chain_pems[0].write_to_path(folder / "directory.pem")
    own.private_key_pem.write_to_path(folder / "directory.key")
    http_port, https_port, names = (it or free_port() for it in (http_port, https_port, names))
    port, management, dns = (free_port() for _ in range(3))
    server = Pebble(folder, http_port, https_port, port, management, dns)
    configuration = {
        "listenAddress": f"127.0.0.1:{port}",
        "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(folder / "directory.pem"),
        "privateKey": str(folder / "directory.key"),
        "httpPort": http_port,
        "tlsPort": https_port,
        "domainBlocklist": [BLOCKED],
        "certificateValidityPeriod": lifetime,
        "retryAfter": {"authz": 1, "order": 1},
    }
    (folder / "pebble.json").write_text(json.dumps({"pebble": configuration}))
    command = [DNS, "-dns01", f"127.0.0.1:{names}", "-management", f"127.0.0.1:{dns}"]
    command += ["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.ExitStack() as stack:
        stack.enter_context(ending(subprocess.Popen(command, **quiet)))  # type: ignore[call-overload]
        settings = {
            "PEBBLE_VA_NOSLEEP": "1",
            "PEBBLE_AUTHZREUSE": "0",
            "PEBBLE_WFE_NONCEREJECT": "0",
            **environment,
        }
        log = stack.enter_context((folder / "pebble.log").open("wb"))
        command = [PROGRAM, "-config", str(folder / "pebble.json")]
        command += ["-dnsserver", f"127.0.0.1:{names}"]
        server.process = subprocess.Popen(command, stdout=log, stderr=log, env=settings)
        stack.enter_context(ending(server.process))
        for place in (port, management, dns):
            wait_until(partial(is_open, place), "pebble listens")
        yield server


@contextlib.contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False
