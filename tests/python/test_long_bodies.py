"""Long bodies of captured requests: kept, listed, replayed and sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import ginnel
from browsing import serving
from ginnel.local.requests import CapturedRequest
from ginnel.testing import assert_received

MIB = 1 << 20

StartAgent = Callable[..., ginnel.Agent]
Visit = Callable[[ginnel.Agent, bytes], CapturedRequest]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def pattern(length: int) -> bytes:
    """Bytes without a short period, so that a part that is lost or moved changes them."""
    block = b"".join(hashlib.sha256(index.to_bytes(8, "big")).digest() for index in range(2047))
    return (block * (length // len(block) + 1))[:length]


class Upstream:
    """A local service that keeps the digests of the bodies that it gets."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.digests: list[str] = []


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    digests: list[str] = []

    class Keeper(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            digests.append(digest(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Keeper) as address:
        local = Upstream(str(address))
        local.digests = digests
        yield local


@pytest.fixture
def open_agent(ginnel_service: ginnel.Service) -> Iterator[StartAgent]:
    """Starts agents with limits, and stops them at the end of the test."""
    agents: list[ginnel.Agent] = []

    def start(**limits: Any) -> ginnel.Agent:
        agents.append(ginnel.Agent(ginnel_service, **limits))
        return agents[-1]

    yield start
    for agent in agents:
        agent.stop()


@pytest.fixture
def visit(upstream: Upstream) -> Visit:
    """Sends a body through a new tunnel. Returns the captured request as lists have it."""

    def send(agent: ginnel.Agent, body: bytes) -> CapturedRequest:
        here = agent.client()
        url = here.tunnels.start(addr=upstream.address, proto="http", name="up").public_url
        with urlopen(Request(f"{url}/", body), timeout=60) as response:
            assert response.status == 204
        here.requests.wait_for(lambda captured: bool(captured.duration))
        listed = here.requests.list().first()
        assert listed is not None
        return listed

    return send


def test_a_long_body_is_replayed_as_it_came(
    open_agent: StartAgent, upstream: Upstream, visit: Visit
) -> None:
    agent, body = open_agent(), pattern(9 * MIB)

    listed = visit(agent, body)
    agent.client().requests.replay(listed.id)

    assert upstream.digests == [digest(body)] * 2


def test_a_larger_store_keeps_longer_bodies(
    open_agent: StartAgent, upstream: Upstream, visit: Visit
) -> None:
    agent, body = open_agent(inspect_db_size=100 * MIB), pattern(15 * MIB)

    listed = visit(agent, body)
    agent.client().requests.replay(listed.id)

    assert upstream.digests == [digest(body)] * 2


def test_lists_carry_the_beginning_and_one_request_carries_all(
    open_agent: StartAgent, visit: Visit
) -> None:
    agent, body = open_agent(), pattern(3 * MIB)

    listed = visit(agent, body)
    with pytest.raises(ValueError, match="the body is truncated"):
        listed.request.json()
    here = agent.client()
    whole = here.requests.get(listed.id)
    waited = here.requests.wait_for(lambda captured: captured.request.body == body)

    assert (listed.request.truncated, len(listed.request.raw)) == (True, MIB)
    assert body.startswith(listed.request.body)
    assert (whole.request.truncated, digest(whole.request.body)) == (None, digest(body))
    assert waited == whole
    assert_received(here, body=body, count=1)


def test_a_body_beyond_the_limit_is_cut_and_marked(open_agent: StartAgent, visit: Visit) -> None:
    agent, body = open_agent(inspect_body_limit=100_000), pattern(100_001)

    listed = visit(agent, body)

    assert listed.request.truncated is True
    assert listed.request.body == body[:100_000]
    with pytest.raises(ginnel.BadRequestError, match="the body of the request is not whole"):
        agent.client().requests.replay(listed.id)


def test_the_size_of_all_requests_limits_a_body_too(open_agent: StartAgent, visit: Visit) -> None:
    agent, body = open_agent(inspect_db_size=400_000), pattern(400_000)

    listed = visit(agent, body)

    assert (listed.request.truncated, len(listed.request.body)) == (True, 300_000)


def test_a_long_body_survives_a_restart(
    open_agent: StartAgent, visit: Visit, tmp_path: Path
) -> None:
    agent, body = open_agent(inspect_file=tmp_path / "captures.db"), pattern(5 * MIB)

    listed = visit(agent, body)
    agent.stop()
    kept = open_agent(inspect_file=tmp_path / "captures.db").client().requests.get(listed.id)

    assert digest(kept.request.body) == digest(body)


def test_a_long_body_can_be_sent(open_agent: StartAgent, upstream: Upstream) -> None:
    here, body = open_agent().client(), pattern(6 * MIB)
    here.tunnels.start(addr=upstream.address, proto="http", name="up")

    sent = here.requests.send(method="POST", target="/", body_base64=body, tunnel_name="up")

    assert upstream.digests == [digest(body)]
    assert sent.id is not None
    assert digest(here.requests.get(sent.id).request.body) == digest(body)
