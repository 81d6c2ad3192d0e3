"""A gRPC service, and a client that tries it: for tests of tunnels."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
