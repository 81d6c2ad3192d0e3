"""A service of ginnel where the official agent libraries look for the vendor's.

Libraries call `connect.ngrok-agent.com`, and their tests visit hosts below `ngrok.io`. A process
that calls `enter` goes on in a mount namespace of its own, as root of Linux, where
`/etc/resolv.conf` names the DNS server of `serve_names`: it leads these names to this machine, and
no others anywhere.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ginnel
from ginnel.service_settings import ServiceSettings

ADDRESSES = {
    "ngrok-agent.com": "127.0.0.2",
    "ngrok.io": "127.0.0.1",
    "localhost": "127.0.0.1",
}
"""Where names lead, and those below them."""
INSIDE = "GINNEL_PEERS_INSIDE"
A, RESPONSE, NO_SUCH_NAME = 1, 0x8180, 3


@dataclass(frozen=True)
class VendorPlace:
    """What a suite has to know."""

    ca_pem: str
    environment: dict[str, str]


def is_inside() -> bool:
    return INSIDE in os.environ


def enter() -> None:
    """Starts this program anew in a namespace of its own; returns if it is there."""
    if not is_inside():
        environment = os.environ | {INSIDE: "1"}
        os.execvpe("unshare", ["unshare", "--mount", sys.executable, *sys.argv], environment)
    with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as file:
        file.write("nameserver 127.0.0.1\n")
    subprocess.run(["mount", "--bind", file.name, "/etc/resolv.conf"], check=True)
    Path(file.name).unlink()
    serve_names()


def serve_names() -> None:
    """Answers questions for addresses until the process ends."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))

    def serve() -> None:
        while True:
            question, sender = server.recvfrom(512)
            server.sendto(answer(question), sender)

    threading.Thread(target=serve, daemon=True).start()


def answer(question: bytes) -> bytes:
    """The response to a question, RFC 1035, section 4."""
    labels, place = [], 12
    while length := question[place]:
        labels.append(question[place + 1 : place + 1 + length].decode())
        place += 1 + length
    asked = question[12 : place + 5]
    kind = int.from_bytes(question[place + 1 : place + 3])
    name = ".".join(labels).lower()
    address = next((it for end, it in ADDRESSES.items() if f".{name}".endswith(f".{end}")), None)
    code = RESPONSE if address else RESPONSE | NO_SUCH_NAME
    found = address if kind == A else None
    head = question[:2] + b"".join(
        number.to_bytes(2) for number in (code, 1, 1 if found else 0, 0, 0)
    )
    if not found:
        return head + asked
    record = (0xC00C).to_bytes(2) + A.to_bytes(2) + (1).to_bytes(2) + (0).to_bytes(4)
    return head + asked + record + (4).to_bytes(2) + socket.inet_aton(found)


@contextmanager
def vendor_place() -> Iterator[VendorPlace]:
    """The service at work, and the environment that tests run in."""
    settings: ServiceSettings = {
        "agent_host": "127.0.0.2",
        "agent_port": 443,
        "oauth": {"google": {"client_id": "ngrok", "client_secret": "nobody needs it"}},
    }
    service = ginnel.Service(
        base_domain="ngrok.io", https_port=443, http_port=80, settings=settings
    )
    with service, tempfile.TemporaryDirectory() as folder:
        roots = Path(folder) / "ca.pem"
        roots.write_text(service.ca_pem)
        environment = os.environ | {
            "NGROK_AUTHTOKEN": str(service.authtoken),
            "NGROK_API_KEY": str(service.api_key),
            "SSL_CERT_FILE": str(roots),
            "NODE_EXTRA_CA_CERTS": str(roots),
        }
        yield VendorPlace(service.ca_pem, environment)
