"""Answers in a content coding, directly and through a proxy."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import ginnel
from server import Server, answer

KEY = {"id": "ak_1", "uri": "u"}
BODY = json.dumps(KEY).encode()


def raw(body: bytes) -> bytes:
    """`deflate` as some servers send it: without the header of zlib."""
    coder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return coder.compress(body) + coder.flush()


def members(body: bytes) -> bytes:
    return (
        gzip.compress(body[:5], mtime=0)
        + gzip.compress(b"", mtime=0)
        + gzip.compress(body[5:], mtime=0)
    )


def brotli(body: bytes) -> bytes:
    """A block that is stored as it is, and an empty last one (RFC 7932, section 9.2)."""
    # A window of 64 KiB, not the last block, four digits of length, the length, stored.
    bits = (len(body) - 1) << 4 | 1 << 20
    return bits.to_bytes(3, "little") + body + b"\x03"


CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("GZip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("gzip", members),
    ("gzip", lambda body: gzip.compress(body, mtime=0) + b"\0" * 100),
    ("deflate", zlib.compress),
    ("DEFLATE", raw),
    ("br", brotli),
    ("BR", brotli),
    ("identity", bytes),
    ("gzip, br", lambda body: brotli(gzip.compress(body, mtime=0))),
    ("br,gzip ,\tidentity", lambda body: gzip.compress(brotli(body), mtime=0)),
    ("deflate, gzip, deflate", lambda body: zlib.compress(gzip.compress(raw(body), mtime=0))),
]


@pytest.fixture(params=["direct", "proxied"])
def client_of(request: pytest.FixtureRequest, make_client: Any) -> Any:
    """Makes a client of a server, which is taken for a proxy or for the origin."""

    def make(server: Server, **options: Any) -> Any:
        if request.param == "direct":
            return make_client("k", base_url=server.url, **options)
        address = "http://api.example.test"
        return make_client("k", base_url=address, allow_http=True, proxy=server.url, **options)

    return make


@pytest.mark.parametrize(("name", "coded"), CODINGS)
async def test_every_coding_is_taken_off(
    client_of: Any, name: str, coded: Callable[[bytes], bytes]
) -> None:
    with Server([answer(200, coded(BODY), content_encoding=name)]) as server:
        assert (await client_of(server).api_keys.get("ak_1")).id == "ak_1"


async def test_codings_on_several_lines(client_of: Any) -> None:
    coded = brotli(gzip.compress(BODY, mtime=0))
    head, _, body = answer(200, coded, content_encoding="gzip").partition(b"\r\n\r\n")
    with Server([head + b"\r\ncontent-encoding: br\r\n\r\n" + body]) as server:
        assert (await client_of(server).api_keys.get("ak_1")).id == "ak_1"


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
async def test_an_answer_without_a_body_has_no_coding(client_of: Any, name: str) -> None:
    empty = f"HTTP/1.1 204 No Content\r\ncontent-encoding: {name}\r\n\r\n".encode()
    with Server([empty, answer(404, b"", content_encoding=name)]) as server:
        client = client_of(server)
        assert await client.api_keys.delete("ak_1") is None
        with pytest.raises(ginnel.NotFoundError):
            await client.api_keys.get("ak_1")

        assert server.connections == 1


async def test_an_error_in_an_unknown_coding_keeps_its_status(client_of: Any) -> None:
    error = answer(404, b"\x28\xb5\x2f\xfd", content_encoding="zstd", x_request_id="r1")
    with Server([error, error]) as server:
        client = client_of(server)
        with pytest.raises(ginnel.NotFoundError) as caught:
            await client.api_keys.get("ak_1")

        assert (caught.value.status_code, caught.value.attempts) == (404, 1)
        assert caught.value.headers["x-request-id"] == "r1"


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("zstd", b"\x28\xb5\x2f\xfd", 'content coding "zstd" is not supported'),
        ("gzip, zstd", b"\x28\xb5\x2f\xfd", 'content coding "zstd" is not supported'),
        ("gzip,gzip,gzip,gzip", b"x", "it has 4 content codings"),
        (
            "gzip",
            gzip.compress(BODY, mtime=0)[:-1],
            "its content coding gzip is damaged: it ends early",
        ),
        ("gzip", BODY, "its content coding gzip is damaged"),
        ("deflate", zlib.compress(BODY)[:-5], "its content coding deflate is damaged"),
        ("br", brotli(BODY)[:-1], "its content coding br is damaged: it ends early"),
        ("br", b"\x11\x1e" + BODY, "its content coding br is damaged"),
    ],
    ids=["zstd", "gzip, zstd", "four", "cut gzip", "no gzip", "cut zlib", "cut br", "no br"],
)
async def test_what_cannot_be_decoded_is_told(
    client_of: Any, name: str, body: bytes, said: str
) -> None:
    with Server([answer(200, body, content_encoding=name)] * 3) as server:
        with pytest.raises(ginnel.ResponseDecodeError) as caught:
            await client_of(server).api_keys.get("ak_1")

        assert said in str(caught.value)
        assert len(server.requests) == 1


async def test_a_small_answer_does_not_unfold_without_end(client_of: Any) -> None:
    bomb = gzip.compress(gzip.compress(b"\0" * (65 << 20), 9), 9, mtime=0)
    assert len(bomb) < 10_000
    said = "unfolds to more than 67108864 bytes"
    with (
        Server([answer(200, bomb, content_encoding="gzip, gzip")]) as server,
        pytest.raises(ginnel.ResponseDecodeError, match=said),
    ):
        await client_of(server).api_keys.get("ak_1")


async def test_what_is_offered_is_what_is_understood(make_client: Any) -> None:
    with Server([answer(200, KEY)]) as proxy:
        client = make_client(
            "k", base_url="http://api.example.test", allow_http=True, proxy=proxy.url
        )
        await client.api_keys.get("ak_1")

        assert proxy.requests[0].headers["accept-encoding"] == "gzip, deflate, br"
