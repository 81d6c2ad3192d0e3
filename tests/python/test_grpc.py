"""Tunnels to local services that speak HTTP/2: gRPC by its own library, and curl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import ginnel
from grpc_shop import channel, check, serve, talk_in_turns


@pytest.fixture
def shop() -> Iterator[int]:
    server = serve()
    yield server.port
    server.stop(None).wait()


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service(base_domain="tunnels.test") as service:
        yield service


@pytest.fixture
def agent(service: ginnel.Service) -> Iterator[ginnel.Agent]:
    with ginnel.Agent(service) as agent:
        yield agent


def test_calls_of_every_kind_pass_a_tunnel(
    service: ginnel.Service, agent: ginnel.Agent, shop: int
) -> None:
    tunnel = agent.client().tunnels.start(
        addr=shop, proto="http", name="shop", app_protocol="http2"
    )

    with channel(service, tunnel.public_url) as calls:
        check(calls)
        talk_in_turns(calls)


def test_calls_pass_an_edge_and_are_replayed(
    service: ginnel.Service, agent: ginnel.Agent, shop: int
) -> None:
    remote, local = service.client(), agent.client()
    group = remote.backends.tunnel_group.create(labels={"app": "shop"})
    edge = remote.edges.https.create(hostports=["shop.example.test:443"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": group.id}
    )
    local.tunnels.start(addr=shop, name="shop", labels=["app=shop"], app_protocol="http2")

    with channel(service, service.edge_url("shop.example.test")) as calls:
        check(calls)
        talk_in_turns(calls)
        local.requests.clear()
        assert calls.unary_unary("/Shop/Take")(b"tea", timeout=20) == b"taken: tea"

    captured = local.requests.wait_for()
    assert captured.request.uri == "/Shop/Take"
    assert captured.response is not None
    assert captured.response.trailers is not None
    assert captured.response.trailers["Grpc-Status"] == ["0"]
    # What gRPC sends is one byte of flags, the length in four, and the message.
    assert captured.request.raw.endswith(b"\0\0\0\0\x03tea")
    local.requests.replay(captured.id)
    newest = next(iter(local.requests.list()))
    assert newest.id != captured.id
    assert newest.response is not None
    assert newest.response.raw.endswith(b"taken: tea")


def test_curl_speaks_http2_from_end_to_end(
    service: ginnel.Service, agent: ginnel.Agent, shop: int, tmp_path: Path
) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl")
    tunnel = agent.client().tunnels.start(
        addr=shop, proto="http", name="shop", app_protocol="http2"
    )
    place = urlsplit(tunnel.public_url)
    (tmp_path / "ca.pem").write_text(service.ca_pem or "")
    (tmp_path / "order").write_bytes(b"\0\0\0\0\x03tea")

    options = {
        "--max-time": "20",
        "--cacert": str(tmp_path / "ca.pem"),
        "--resolve": f"{place.netloc}:127.0.0.1",
        "--data-binary": f"@{tmp_path / 'order'}",
    }
    headers = ["--header", "content-type: application/grpc", "--header", "te: trailers"]

    asked = subprocess.run(
        [curl, "--silent", "--http2", "--include", *headers]
        + [text for option in options.items() for text in option]
        + [f"{tunnel.public_url}/Shop/Take"],
        capture_output=True,
        check=True,
    )

    assert asked.stdout.startswith(b"HTTP/2 200")
    assert b"taken: teagrpc-status: 0\r\n" in asked.stdout


def test_an_unknown_protocol_is_refused_with_those_that_there_are(agent: ginnel.Agent) -> None:
    with pytest.raises(ginnel.BadRequestError) as refused:
        agent.client().tunnels.start(addr=80, proto="http", name="x", app_protocol="http3")

    assert "app_protocol: must be http1 or http2" in str(refused.value.details)
