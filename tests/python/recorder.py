"""An upstream that notes what it is sent, byte for byte, and a visitor who says just that."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import BinaryIO

from listener import Listener


@dataclass
class Recorder(Listener):
    """Notes the head of every request, and answers with it."""

    heads: list[bytes] = field(default_factory=list)

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            while (head := read_head(lines)) is not None:
                lines.read(int(value_of(head, b"content-length") or 0))
                self.heads.append(head)
                length = f"Content-Length: {len(head)}\r\n\r\n".encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + length + head)

    @property
    def last(self) -> bytes:
        """The head of the last request."""
        return self.heads[-1]

    @property
    def targets(self) -> list[str]:
        """What the first lines of the requests ask for."""
        return [head.split(b" ", 2)[1].decode() for head in self.heads]


def read_head(lines: BinaryIO) -> bytes | None:
    head = b""
    while line := lines.readline():
        head += line
        if line == b"\r\n":
            return head
    return None


def values_of(head: bytes, name: bytes) -> list[bytes]:
    """The values of a header, line by line; an underscore counts as a hyphen."""
    found = []
    for line in head.split(b"\r\n")[1:]:
        known, _, value = line.partition(b":")
        if known.lower().replace(b"_", b"-") == name:
            found.append(value.strip())
    return found


def value_of(head: bytes, name: bytes) -> bytes | None:
    return next(iter(values_of(head, name)), None)


def say(address: str, request: bytes) -> tuple[int, bytes, bytes]:
    """What a visitor gets for some bytes: status, head and body."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as lines:
            head = read_head(lines)
            assert head is not None, "closed without a response"
            status = int(head.split(b" ", 2)[1])
            if status == 101:
                return status, head, b""
            return status, head, lines.read(int(value_of(head, b"content-length") or 0))


def get(address: str, host: str, target: str, *lines: str) -> tuple[int, bytes, bytes]:
    """What a visitor gets for a target, as it is written here."""
    head = [f"GET {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]
    return say(address, "\r\n".join(head).encode())
