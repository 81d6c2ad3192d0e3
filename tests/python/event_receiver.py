"""A program that takes events as webhooks or log records, and answers what a test tells it to."""

from __future__ import annotations

import base64
import hmac
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import ginnel
from processes import wait_until

QUICK = {"retry_after": "20ms", "timeout": "1s"}


def quick_service(
    storage: Mapping[str, Any] | None = None,
    *,
    events: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ginnel.Service:
    """A service that does not wait for long before it tries again."""
    both: Any = {"event_delivery": {**QUICK, **(events or {})}, **settings}
    return ginnel.Service(**(storage or {}), settings=both)


@dataclass
class Delivery:
    """One attempt."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    @property
    def type(self) -> str:
        return str(self.event["event_type"])

    def is_signed_with(self, secret: str) -> bool:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        words = [self.headers["webhook-id"], self.headers["webhook-timestamp"], self.body.decode()]
        tag = hmac.digest(key, ".".join(words).encode(), "sha256")
        signatures = self.headers["webhook-signature"].split(" ")
        return "v1," + base64.b64encode(tag).decode() in signatures


Answer = Callable[[BaseHTTPRequestHandler, Delivery], None]


def status(code: int, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, _: Delivery) -> None:
        handler.send_response(code)
        for name, value in {"content-length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


class Receiver:
    """Notes each attempt, and answers it."""

    def __init__(self, answer: Answer | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer or status(204)
        self.attempts: list[Delivery] = []
        self.accepted: list[Delivery] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                delivery = Delivery(self.path, headers, body)
                receiver.attempts.append(delivery)
                self._status = 0
                receiver.answer(self, delivery)
                if 200 <= self._status < 300:
                    receiver.accepted.append(delivery)

            def do_GET(self) -> None:
                raise AssertionError("a redirect was followed")

            def send_response(self, code: int, message: str | None = None) -> None:
                self._status = code
                super().send_response(code, message)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Of connections that the service closes."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        if tls:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}/events"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def of_type(self, kind: str) -> list[Delivery]:
        return [delivery for delivery in list(self.accepted) if delivery.type == kind]

    def wait_for(self, count: int, seconds: float = 30.0) -> list[Delivery]:
        """The first deliveries that were accepted."""
        wait_until(lambda: len(self.accepted) >= count, f"{count} events", seconds)
        return list(self.accepted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
