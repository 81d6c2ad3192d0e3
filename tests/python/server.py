"""A server that answers what a test tells it to, byte for byte."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from listener import Listener

TLS_HANDSHAKE = b"\x16"
"""The first byte of a connection over TLS."""


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server(Listener):
    """Each request gets the next answer; an answer of None closes the connection instead."""

    answers: list[bytes | Callable[[], bytes | None] | None]
    close_after_each: bool = False
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    serving: list[socket.socket] = field(default_factory=list)
    # Of each connection with TLS: whether it resumed a session, and the client's certificate.
    resumed: list[bool | None] = field(default_factory=list)
    certificates: list[Any] = field(default_factory=list)

    def __enter__(self) -> Self:
        super().__enter__()
        self.url = f"{'https' if self.tls else 'http'}://{self.address}"
        return self

    def serve(self, connection: socket.socket) -> None:
        self.serving.append(connection)
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_side=True)
            self.resumed.append(connection.session_reused)
            self.certificates.append(connection.getpeercert())
        self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                if line[:1] == TLS_HANDSHAKE:
                    # A client of whoever had the port before, such as an agent that connects again.
                    return
                method, target, _ = line.decode().split(" ")
                headers = {}
                while (line := lines.readline()).strip():
                    name, value = line.decode().split(":", 1)
                    headers[name.lower()] = value.strip()
                body = lines.read(int(headers.get("content-length", 0)))
                self.requests.append(Request(method, target, headers, body))
                answer = self.answers.pop(0)
                answer = answer() if callable(answer) else answer
                if answer is None:
                    return
                connection.sendall(answer)
                if self.close_after_each:
                    return


def answer(status: int, body: object = None, **headers: object) -> bytes:
    """An answer; a body that is no bytes is sent as JSON."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    text = b"" if body is None else text
    lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(text)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + text
