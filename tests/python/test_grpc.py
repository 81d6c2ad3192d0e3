"""Tunnels to local services that speak HTTP/2: gRPC by its own library, and curl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel

grpc = pytest.importorskip("grpc")

LARGE = 2 << 20


def take(order: bytes, context: Any) -> bytes:
    if order == b"nonsense":
        context.set_trailing_metadata([("x-why", "nobody sells that")])
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such thing")
    return b"taken: " + order


def list_all(order: bytes, context: Any) -> Iterator[bytes]:
    yield from (order + b" %d" % number for number in range(3))


def talk(orders: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for order in orders:
        yield b"heard: " + order


def serve() -> Any:
    """A gRPC server; its port is in `port`."""
    handlers = {
        "Take": grpc.unary_unary_rpc_method_handler(take),
        "List": grpc.unary_stream_rpc_method_handler(list_all),
        "Talk": grpc.stream_stream_rpc_method_handler(talk),
    }
    options = [("grpc.max_receive_message_length", 2 * LARGE)]
    server = grpc.server(ThreadPoolExecutor(8), options=options)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Shop", handlers)])
    server.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server


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


def channel(service: ginnel.Service, url: str) -> Any:
    """A channel to a public address, wherever its name leads."""
    place = urlsplit(url)
    assert service.ca_pem is not None
    trusted = grpc.ssl_channel_credentials(service.ca_pem.encode())
    options = [
        ("grpc.ssl_target_name_override", place.hostname),
        ("grpc.default_authority", place.netloc),
        ("grpc.max_receive_message_length", 2 * LARGE),
    ]
    return grpc.secure_channel(f"127.0.0.1:{place.port}", trusted, options)


def check(calls: Any) -> None:
    """Calls of every kind, and one that fails."""
    take = calls.unary_unary("/Shop/Take")
    assert take(b"tea", timeout=20) == b"taken: tea"
    assert len(take(b"x" * LARGE, timeout=20)) == LARGE + 7
    assert list(calls.unary_stream("/Shop/List")(b"tea", timeout=20)) == [
        b"tea 0",
        b"tea 1",
        b"tea 2",
    ]
    with pytest.raises(grpc.RpcError) as refused:
        take(b"nonsense", timeout=20)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "no such thing"
    assert ("x-why", "nobody sells that") in refused.value.trailing_metadata()
    with pytest.raises(grpc.RpcError) as unknown:
        calls.unary_unary("/Shop/Nothing")(b"", timeout=20)
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


def talk_in_turns(calls: Any) -> None:
    """Each word is said when the answer to the last has come."""
    words: SimpleQueue[bytes | None] = SimpleQueue()
    answers = calls.stream_stream("/Shop/Talk")(iter(words.get, None), timeout=20)
    for word in (b"one", b"two", b"six"):
        words.put(word)
        assert next(answers) == b"heard: " + word
    words.put(None)
    assert list(answers) == []


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

    assert "app_protocol: is http1 or http2" in str(refused.value.details)
