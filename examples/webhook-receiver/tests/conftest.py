"""What the tests have in common: a receiver, and a shop that sends to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.error import HTTPError
from urllib.request import OpenerDirector, Request, build_opener

import pytest

from receiver import Receiver, sign

SECRET = b"whsec"

Shop = Callable[..., tuple[int, dict[str, object]]]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver(SECRET)


@pytest.fixture
def shop() -> Shop:
    """Sends an event as the shop would; returns status and answer."""

    def send(
        url: str,
        event: object,
        *,
        secret: bytes = SECRET,
        opener: OpenerDirector | None = None,
    ) -> tuple[int, dict[str, object]]:
        body = json.dumps(event).encode()
        headers = {"Content-Type": "application/json", "X-Signature": sign(secret, body)}
        opener = opener or build_opener()
        try:
            with opener.open(Request(url, body, headers), timeout=20) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    return send
