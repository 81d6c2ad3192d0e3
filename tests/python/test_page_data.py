"""What the scripts of the inspection page ask the agent for, asked without a browser."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from contextlib import ExitStack
from http.client import HTTPResponse
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from browsing import House

TOGETHER = 8


def test_replays_at_one_moment_tell_each_its_own_request(house: House) -> None:
    house.send("/", "POST", b"original")
    path = f"/inspect/data/requests/{house.newest()}/replay"
    host, _, port = house.base.removeprefix("http://").rpartition(":")
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with ExitStack() as open_ones:
        connections = [
            open_ones.enter_context(socket.create_connection((host, int(port)), timeout=20))
            for _ in range(TOGETHER)
        ]
        for turn in range(30):
            bodies = [f"{turn} of {number}".encode() for number in range(TOGETHER)]
            for connection, body in zip(connections, bodies, strict=True):
                changes = json.dumps({"body": b64encode(body).decode()})
                asked = f"{head}Content-Length: {len(changes)}\r\n\r\n{changes}"
                connection.sendall(asked.encode())
            for connection, body in zip(connections, bodies, strict=True):
                answer = HTTPResponse(connection)
                answer.begin()
                new = json.loads(answer.read())["id"]
                assert house.client.requests.get(new).request.body == body


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/inspect/data/requests", "GET, HEAD"),
        ("PUT", "/inspect/data/events", "GET, HEAD"),
        ("DELETE", "/inspect/data/status", "GET, HEAD"),
        ("POST", "/inspect/data/export.har", "GET, HEAD"),
        ("DELETE", "/inspect/data/requests/00", "GET, HEAD"),
        ("PATCH", "/inspect/data/requests/00/copy", "GET, HEAD"),
        ("GET", "/inspect/data/requests/00/replay", "POST"),
        ("HEAD", "/inspect/data/requests/00/replay", "POST"),
        ("POST", "/inspect/http", "GET, HEAD"),
        ("POST", "/inspect/assets/dom.js", "GET, HEAD"),
        ("POST", "/status", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_from_a_wrong_path(
    house: House, method: str, path: str, allowed: str
) -> None:
    assert refused(house, method, path) == (405, allowed)
    for nowhere in ("/inspect/data/nowhere", "/inspect/data/requests/00/nowhere", "/inspect/x"):
        assert refused(house, method, nowhere) == (404, None)


def refused(house: House, method: str, path: str) -> tuple[int, str | None]:
    """The status of a refusal, and the methods that it allows."""
    kind = {"Content-Type": "application/json"}
    try:
        urlopen(Request(house.base + path, method=method, headers=kind), timeout=20).read()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Allow"]
    raise AssertionError("it was not refused")
