"""`/api/endpoints` of the agent: the same tunnels by their public URL and their upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

import ginnel
from conftest import Face
from processes import Upstream
from recorder import get


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


def teapot(status: int) -> dict[str, Any]:
    action = {"type": "custom-response", "config": {"status_code": status}}
    return {"on_http_request": [{"actions": [action]}]}


@pytest.fixture(params=["blocking", "asyncio"])
def named(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Callable[[], int]]]:
    """A client of each kind, and what visitors of a name get."""
    with ginnel.Service(base_domain="example.test") as service, ginnel.Agent(service) as agent:

        def visit(host: str = "web.example.test") -> int:
            return get(urlsplit(service.http_url or "").netloc, host, "/")[0]

        with agent.client() as client:
            is_blocking = request.param == "blocking"
            yield Face(client) if is_blocking else agent.async_client(), visit


async def test_an_endpoint_is_replaced(named: tuple[Any, Callable[[], int]]) -> None:
    here, visit = named
    with Upstream() as local:
        upstream = {"url": local.port}
        made = await here.endpoints.replace("web", upstream=upstream, url="http://web.example.test")
        assert (made.inspect, made.traffic_policy, made.description) == (True, None, "")
        assert visit() == 200

        replaced = await here.endpoints.replace(
            "web", upstream=upstream, traffic_policy=teapot(418), inspect=False, description="d"
        )

        assert (replaced.url, replaced.id != made.id) == (made.url, True)
        assert (replaced.inspect, replaced.description) == (False, "d")
        assert json.loads(replaced.traffic_policy) == teapot(418)
        assert visit() == 418
        # As the vendor documents it, with what is listed.
        path = "/endpoints/web"
        listed = {"uri": made.uri, "name": "web", "url": made.url, "upstream": upstream}
        await here.request("PUT", path, json={**listed, "traffic_policy": teapot(419)})
        assert visit() == 419
        with pytest.raises(ginnel.BadRequestError, match='uri: "/x" is not "/api/endpoints/web"'):
            await here.request("PUT", path, json={**listed, "uri": "/x"})
        with pytest.raises(ginnel.BadRequestError, match="name"):
            await here.request("PUT", path, json={**listed, "name": "other"})
        assert visit() == 419


async def test_an_endpoint_that_cannot_be_replaced_is_still_there(
    named: tuple[Any, Callable[[], int]],
) -> None:
    here, visit = named
    with Upstream() as local:
        upstream: dict[str, Any] = {"url": local.port}
        other = "http://other.example.test"
        await here.endpoints.start(name="other", upstream=upstream, url=other)
        made = await here.endpoints.start(
            name="web", upstream=upstream, url="http://web.example.test"
        )

        with pytest.raises(ginnel.APIStatusError, match="already online") as refused:
            await here.endpoints.replace("web", upstream=upstream, url=other)
        outcome = f'the endpoint "web" before it was started again at {made.url}'
        assert outcome in str(refused.value)
        assert visit() == 200
        proxied = {**upstream, "proxy_protocol": "1"}
        with pytest.raises(ginnel.BadRequestError, match=r"upstream\.proxy_protocol: 1 is only"):
            await here.endpoints.replace("web", upstream=proxied)

        assert (await here.endpoints.get("web")).url == made.url
        assert visit() == 200


def test_the_status_says_whether_an_endpoint_is_new(agent: ginnel.Agent) -> None:
    for expected in (201, 200):
        request = Request(
            f"{agent.url}/api/endpoints/new",
            json.dumps({"upstream": {"url": "80"}}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urlopen(request, timeout=10) as response:
            assert response.status == expected
    agent.client().endpoints.stop("new")


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
