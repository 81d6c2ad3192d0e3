"""Calls of the management API and requests of visitors, each one attempt that is never repeated."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

TIMEOUT = 8.0


@dataclasses.dataclass
class Reply:
    """A response, or what was there instead of one: then the status is 0."""

    status: int
    began: float
    ended: float
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    error: str = ""
    was_sent: bool = True

    @property
    def is_unknown(self) -> bool:
        """Whether the request may have had an effect that nobody knows of."""
        return self.was_sent and (self.status == 0 or self.status >= 500)

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Caller:
    """A caller of the management API with a key."""

    def __init__(self, key: str) -> None:
        self._headers = {"Authorization": f"Bearer {key}", "Ngrok-Version": "2"}

    def call(self, port: int, method: str, path: str, **fields: object) -> Reply:
        body = json.dumps(fields) if fields else None
        kind = {"Content-Type": "application/json"} if fields else {}
        return send(port, method, path, body, {**self._headers, **kind})


def visit(port: int, host: str, method: str = "GET", token: str = "", source: str = "") -> Reply:
    """A request of a visitor; with a `source` the PROXY protocol says that it comes from there.

    The token is the body of a POST and the path of a GET, which has no body, as browsers do it.
    """
    path, body = (f"/{token}", None) if method == "GET" else ("/", token)
    return send(port, method, path, body, {"Host": host, "User-Agent": "visitor"}, source)


def send(
    port: int,
    method: str,
    path: str,
    body: str | None,
    headers: Mapping[str, str],
    source: str = "",
) -> Reply:
    began, was_sent = time.monotonic(), False
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.connect()
        if source:
            connection.sock.sendall(proxied(source))
        was_sent = True
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        content = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, began, time.monotonic(), found, content)
    except (OSError, http.client.HTTPException) as error:
        return Reply(0, began, time.monotonic(), error=type(error).__name__, was_sent=was_sent)
    finally:
        connection.close()


def proxied(source: str) -> bytes:
    """The head of the PROXY protocol, version 2, for a TCP connection from an address."""
    places = socket.inet_aton(source) + socket.inet_aton("127.0.0.1") + struct.pack("!HH", 4711, 80)
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack("!H", len(places)) + places
