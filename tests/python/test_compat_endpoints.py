"""`/api/endpoints` of the agent: the same tunnels by their public URL and their upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel
from processes import Upstream


@pytest.fixture(scope="module")
def agent() -> Iterator[ginnel.Agent]:
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        yield agent


def test_one_tunnel_is_seen_through_both_resources(agent: ginnel.Agent) -> None:
    here = agent.client()
    with Upstream() as local:
        made = here.endpoints.start(
            name="web", url="http://", upstream={"url": local.port}, bindings=["public"]
        )
        with urlopen(f"{made.url}/x", timeout=10) as response:
            assert response.read() == b"/x"
        tunnel = here.tunnels.get("web")
        [listed] = here.endpoints.list()
        here.tunnels.stop("web")

    assert made.uri == "/api/endpoints/web"
    assert (made.url, made.id) == (tunnel.public_url, tunnel.ID)
    assert made.upstream.url == f"http://localhost:{local.port}"
    assert made.upstream.protocol == "http1"
    assert tunnel.config.addr == f"localhost:{local.port}"
    assert listed.metrics.http.count == 1
    assert list(here.endpoints.list()) == []


async def test_asyncio_has_the_same_calls(agent: ginnel.Agent) -> None:
    async with agent.async_client() as here:
        await here.tunnels.start(addr="localhost:22", proto="tcp", name="raw")
        found = await here.endpoints.get("raw")
        await here.endpoints.stop("raw")

        with pytest.raises(ginnel.NotFoundError):
            await here.endpoints.get("raw")

    assert found.proto == "tcp"
    assert found.upstream.url == "localhost:22"
    assert found.upstream.protocol is None


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"upstream": {}}, "upstream.url: is required"),
        ({"upstream": {"url": "80"}, "url": "ftp://x"}, "begins with none of https://"),
        ({"upstream": {"url": "80"}, "url": "https://u:secret@x"}, "a user or a password"),
        ({"upstream": {"url": "80"}, "pooling_enabled": 1}, "pooling_enabled: "),
        ({"upstream": {"url": "80"}, "bindings": ["internal"]}, "bindings: "),
        ({"upstream": {"url": "80", "protocl": "x"}}, "upstream.protocl: "),
        ({"upstream": {"url": "80"}, "traffic_policy": "{"}, ""),
    ],
)
def test_what_is_wrong_or_has_no_effect_is_refused(
    agent: ginnel.Agent, document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ginnel.APIStatusError) as raised:
        agent.client().request("POST", "/endpoints", json=document)

    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_command_line_has_endpoints(agent: ginnel.Agent) -> None:
    call = [sys.executable, "-m", "ginnel", "local", "endpoints"]
    where = ["--base-url", str(agent.url), "--output", "json"]

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [*call, *arguments, *where], capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(done.stdout) if done.stdout else None

    made = run("start", "--name", "cli", "--url", "http://", "--upstream", '{"url": "80"}')
    listed = run("list")
    run("stop", "cli")

    assert made["upstream"]["url"] == "http://localhost:80"
    assert [item["name"] for item in listed] == ["cli"]
