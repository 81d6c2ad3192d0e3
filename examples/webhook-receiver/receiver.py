"""Takes webhooks of a shop: checks who signed them, and books each payment once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def sign(secret: bytes, body: bytes) -> str:
    """The signature that the shop puts into `X-Signature`."""
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


@dataclass
class Receiver:
    """A WSGI application."""

    secret: bytes
    paid: dict[str, int] = field(default_factory=dict)
    """What was paid, in cents, by order."""

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        status, answer = self.take(environ)
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def take(self, environ: dict[str, Any]) -> tuple[str, dict[str, object]]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        given = environ.get("HTTP_X_SIGNATURE", "")
        if not hmac.compare_digest(given.encode(), sign(self.secret, body).encode()):
            return "401 Unauthorized", {"error": "wrong signature"}
        try:
            event = json.loads(body)
            order, cents = str(event["order"]), int(event["cents"])
        except (ValueError, KeyError, TypeError):
            return "422 Unprocessable Content", {"error": "no payment"}
        # Shops send again what they got no answer for, so a second one must not count.
        if order in self.paid:
            return "200 OK", {"booked": False}
        self.paid[order] = cents
        return "201 Created", {"booked": True}


if __name__ == "__main__":
    import os
    import sys
    from wsgiref.simple_server import make_server

    make_server(
        "127.0.0.1", int(sys.argv[1]), Receiver(os.environ["WEBHOOK_SECRET"].encode())
    ).serve_forever()
