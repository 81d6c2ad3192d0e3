"""How captured requests, tunnels and errors are shown: readable, without secrets, and harmless."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import ginnel
from ginnel._core.results import Results
from ginnel.local.held_requests import HeldRequest
from ginnel.local.requests import CapturedRequest, StreamMessage
from ginnel.local.tunnels import AgentTunnel

FIGURES = dict.fromkeys(
    ("count", "gauge", "rate1", "rate5", "rate15", "p50", "p90", "p95", "p99"), 0
)
CASES = json.loads((Path(__file__).parents[1] / "data" / "secrets.json").read_text())
"""What is secret, and what is not; the same for the page."""
SECRETS = ("top-secret", "half a cookie", "0f1e2d", "swordfish")


def app(environ: dict[str, Any], start: Any) -> list[bytes]:
    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0))
    start(
        "201 Created", [("Content-Type", "application/json"), ("Set-Cookie", "sid=0f1e2d; Path=/")]
    )
    return [b'{"access_token": "top-secret", "order": {"id": "A-7", "paid": true}}']


def captured(
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    uri: str = "/hooks",
    **fields: object,
) -> CapturedRequest:
    """A captured request as the agent would tell it."""
    headers = {"Content-Type": "application/json"} if headers is None else headers
    head = f"POST {uri} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items())
    request = {
        "method": "POST",
        "proto": "HTTP/1.1",
        "headers": {name: [value] for name, value in headers.items()},
        "uri": uri,
        "raw": b64encode(head.encode() + b"\r\n" + body).decode(),
    }
    return CapturedRequest.from_dict(
        {
            "uri": "/api/requests/http/1",
            "id": "1",
            "tunnel_name": "web",
            "remote_addr": "192.0.2.1",
            "start": "2026-01-02T03:04:05Z",
            "duration": 0,
            "request": request | fields,
        }
    )


def answered(
    asked: CapturedRequest, status: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> CapturedRequest:
    """A captured request with an answer."""
    headers = headers or {"Content-Type": "text/plain"}
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items())
    response = {
        "status": status,
        "status_code": int(status[:3]),
        "proto": "HTTP/1.1",
        "headers": {name: [value] for name, value in headers.items()},
        "raw": b64encode(head.encode() + b"\r\n" + body).decode(),
    }
    told = {**asked.to_dict(), "duration": 3_240_000, "response": response}
    return CapturedRequest.from_dict(told)


def shapes(shown: Any) -> list[str]:
    """Everything that a notebook, a terminal and a log make of something."""
    from ginnel._repr.text import lines

    return [repr(shown), str(shown), lines(shown), shown._repr_html_(), f"{[shown]}"]


class Tags(HTMLParser):
    """The tags and attributes of a piece of HTML, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_an_exchange_is_a_card_of_request_and_response(
    ginnel_tunnel: Callable[..., str], ginnel_agent_client: ginnel.AgentClient
) -> None:
    url = ginnel_tunnel(app)
    headers = {
        "Authorization": "Bearer top-secret",
        "Cookie": "sid=half a cookie",
        "X-Hub-Signature-256": "sha256=0f1e2d",
        "Content-Type": "application/json",
    }
    body = json.dumps({"order": "A-7", "card": {"password": "swordfish"}}).encode()
    with urlopen(Request(f"{url}/hooks?id=7&api_key=swordfish", body, headers)) as answer:
        assert b"top-secret" in answer.read()

    seen = ginnel_agent_client.requests.wait_for(timeout=30)

    assert seen.response is not None
    for shown in (seen, seen.request, seen.response):
        for text in shapes(shown):
            assert not [secret for secret in SECRETS if secret in text], text
    html = Tags(seen._repr_html_()).text
    assert "POST /hooks?id=7&api_key=•••" in html
    assert "201 Created in " in html
    assert '{\n  "order": "A-7",\n  "card": {\n    "password": "•••"\n  }\n}' in html
    assert '"order": {\n    "id": "A-7",\n    "paid": true\n  }' in html
    for left in ("Bearer •••", "sid=•••", "sid=•••; Path=/"):
        assert left in html
    assert repr(seen).startswith(f"<CapturedRequest {seen.id}: POST /hooks?id=7&api_key=••• -> 201")
    assert repr(seen.request).endswith('{ "order": "A-7", "card": { "password": "•••" } }>')
    assert b"swordfish" in seen.request.raw
    listed = ginnel_agent_client.requests.list().to_list()
    assert "201 Created" in listed._repr_html_()
    assert "swordfish" not in listed._repr_html_() + repr(listed)


def test_what_was_captured_is_text_and_never_markup() -> None:
    evil = '<img src="http://192.0.2.1/x" onerror="alert(1)"><script>alert(2)</script>'
    hostile = captured(
        json.dumps({"a": evil}).encode(),
        {"X-<b>": evil, "Content-Type": evil},
        uri=f"/{evil}",
        method=evil,
        proto=evil,
    )
    tunnel = AgentTunnel.from_dict(
        {
            "ID": "1",
            "name": evil,
            "uri": "",
            "public_url": "javascript:alert(1)",
            "proto": evil,
            "config": {"addr": evil, "inspect": True},
            "metrics": {"conns": FIGURES, "http": FIGURES},
        }
    )

    for shown in (hostile, hostile.request, tunnel):
        page = Tags(shown._repr_html_() + Results([shown])._repr_html_())
        assert page.tags <= {
            *("div", "strong", "code", "span", "details", "summary", "pre"),
            *("table", "thead", "tbody", "tr", "th", "td"),
        }
        assert page.attributes <= {"style", "scope", "tabindex", "role", "aria-label"}
    assert evil in Tags(hostile._repr_html_()).text


def test_nothing_acts_on_a_terminal() -> None:
    shown = captured(
        b"\x1b[2J\x07 \xe2\x80\xae done" + b"!" * 40, {"X": "\x1b]0;title\x07"}, uri="/\x1b[31m"
    )

    for text in shapes(shown) + shapes(shown.request):
        assert not set("\x1b\x07\u202e") & set(text)
    assert "\\x1b[2J\\x07 \\u202e done" in shapes(shown.request)[2]


@pytest.mark.parametrize(
    ("body", "headers", "seen"),
    [
        (
            b"a=1&password=swordfish&b=2",
            "application/x-www-form-urlencoded",
            "a=1&password=•••&b=2",
        ),
        (b'{"password": "swordfish", "cut', "application/json", '{"password": "•••", "cut'),
        (b"<a><Token x='1'>swordfish</Token></a>", "text/xml", "<a><Token x='1'>•••</Token></a>"),
        (b"see https://me:swordfish@x.test/", "text/plain", "see https://•••@x.test/"),
        (b"Authorization: Basic swordfish", "text/plain", "Authorization: •••"),
        (b"a eyJhbGciOi.swordfish.0f1e2d b", "text/plain", "a ••• b"),
        ("größer, schöner".encode(), "text/plain", "größer, schöner"),
        (b"\x89PNG\r\n\x1a\n", "image/png", "(8 bytes of image/png)"),
        (bytes(range(256)), "", "(256 bytes)"),
        (b"[" * 100_000, "application/json", "[" * 2000 + "… (100,000 bytes in all)"),
        (b'{"n": 1' + b"0" * 5000 + b"}", "application/json", '{"n": 1' + "0" * 1993),
    ],
)
def test_bodies_of_many_kinds(body: bytes, headers: str, seen: str) -> None:
    shown = captured(body, {"Content-Type": headers} if headers else {}).request

    assert seen in Tags(shown._repr_html_()).text
    assert "swordfish" not in "".join(shapes(shown))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_secrets_are_masked_and_nothing_else_is(case: dict[str, Any]) -> None:
    body = b64decode(case["base64"]) if "base64" in case else case.get("body", "").encode()
    shown = captured(body, case.get("headers", {}), uri=case.get("target", "/")).request

    told = [visible for visible in shapes(shown) if visible]
    assert not [text for text in case["hides"] if text in "".join(told)]
    whole = Tags(shown._repr_html_()).text
    assert not [text for text in case["keeps"] if text not in whole]


def test_a_compressed_body_is_unpacked_as_far_as_it_is_shown() -> None:
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    bomb = captured(gzip.compress(b" " * 50_000_000, mtime=0), packed).request

    shown = captured(gzip.compress(b'{"token": "swordfish", "a": 1}', mtime=0), packed).request

    assert '{\n  "token": "•••",\n  "a": 1\n}' in Tags(shown._repr_html_()).text
    assert "gzip decoded" in Tags(shown._repr_html_()).text
    assert len(bomb._repr_html_()) < 10_000


TEXT = b'{"order": "A-7", "paid": true, "note": "' + bytes(range(97, 123)) * 9 + b'"}'
# Python's library has no brotli: this is TEXT by `brotli.compress(TEXT)`.
BROTLI = b64decode(
    "GxMBEIzUYs0Z7oxQ6UabS5X7DJlMii6bl04fOOSA/diWlElIXidg"
    "pMRIBAyl/ogFAsE4KLyMb4UUPxRSaWOdDzHlUlsfc+3jvO7n/QQB"
)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("x-gzip", gzip.compress(TEXT[:20], mtime=0) + gzip.compress(TEXT[20:], mtime=0)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[2:-4]),
        ("br", BROTLI),
        ("identity, BR", BROTLI),
        ("deflate, gzip", gzip.compress(zlib.compress(TEXT), mtime=0)),
    ],
)
def test_bodies_are_unpacked(encoding: str, body: bytes) -> None:
    kind = {"Content-Type": "application/json", "Content-Encoding": encoding}

    shown = captured(body, kind).request

    text = Tags(shown._repr_html_()).text
    assert '{\n  "order": "A-7",\n  "paid": true' in text
    assert f"{len(body)} bytes, {encoding.lower().removeprefix('identity, ')} decoded" in text
    assert "missing" not in text
    cut = Tags(captured(body[: len(body) // 2], kind).request._repr_html_()).text
    assert "its end is missing" in cut


@pytest.mark.parametrize(
    ("encoding", "body", "told"),
    [
        ("gzip", gzip.compress(b"", mtime=0), "bytes, gzip decoded"),
        ("gzip", b"this is no gzip", "15 bytes, the body is not gzip"),
        ("br", b"\xff\xffno brotli", "(11 bytes of application/json, the body is not br)"),
        ("deflate", b"\xff\xff", "(2 bytes of application/json, the body is not deflate)"),
        ("zstd", b"(\xb5/\xfd \x05", "(6 bytes of application/json, zstd, its end is missing)"),
        ("gzip, zstd", b"(\xb5/\xfd \x05", "(6 bytes of application/json, zstd, its end"),
        ("<b>\x1b" * 40, b"1234", "4 bytes, <b>\\x1b<b>"),
    ],
)
def test_what_cannot_be_unpacked_is_told(encoding: str, body: bytes, told: str) -> None:
    kind = {"Content-Type": "application/json", "Content-Encoding": encoding}

    assert told in Tags(captured(body, kind).request._repr_html_()).text


def test_damage_in_the_middle_is_told_with_what_came_before() -> None:
    body = bytearray(gzip.compress(random.Random(7).randbytes(20_000).hex().encode(), mtime=0))
    body[len(body) // 2] ^= 0xFF
    kind = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}

    shown = Tags(captured(bytes(body), kind).request._repr_html_()).text

    assert "gzip decoded, it is damaged" in shown
    assert random.Random(7).randbytes(40).hex() in shown


FORM = (
    b"preamble\r\n--b\r\n"
    b'Content-Disposition: form-data; name="note"\r\n\r\nhello\r\n--bb is no end\r\n--b\r\n'
    b'Content-Disposition: form-data; name="password"\r\n\r\nswordfish\r\n--b \r\n'
    b"Content-Disposition: form-data; name*=UTF-8''access%5Ftoken\r\n\r\nswordfish\r\n--b\r\n"
    b'Content-Disposition: form-data; name="order"; filename="order.json"\r\n'
    b"Content-Type: application/json\r\nX-Api-Key: swordfish\r\n\r\n"
    b'{"token": "swordfish", "id": 7}\r\n--b\r\n'
    b'Content-Disposition: form-data; name="photo"; filename="a.png"\r\n'
    b"Content-Type: image/png\r\n\r\n\x89PNG\r\n\x1a\n\r\n--b\r\n"
    b"\r\nno headers\r\n--b--\r\nepilogue"
)


@pytest.mark.parametrize("boundary", ["b", '"b"'])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_multipart_bodies_are_taken_apart(boundary: str, encoding: str) -> None:
    body = gzip.compress(FORM, mtime=0) if encoding == "gzip" else FORM
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}

    shown = captured(body, kind | {"Content-Encoding": encoding}).request

    for text in (Tags(shown._repr_html_()).text, shapes(shown)[2]):
        for told in (
            *("part 1, 21 bytes", "hello\r\n--bb is no end".replace("\r", "\\r"), 'name="note"'),
            *("part 2, 9 bytes", 'name="password"', "part 3, 9 bytes"),
            *('filename="order.json"', '{\n  "token": "•••",\n  "id": 7\n}', "X-Api-Key"),
            *("part 5, 8 bytes", "(8 bytes of image/png)", "part 6, 10 bytes", "no headers"),
        ):
            assert told in text
        assert "preamble" not in text
        assert "epilogue" not in text
    assert "swordfish" not in "".join(shapes(shown))
    assert "missing" not in "".join(shapes(shown))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (FORM[:60], "the end of its last part is missing"),
        (FORM[:-14], "the end of its last part is missing"),
        (b"--b--", "5 bytes"),
        (b"no boundary", "no boundary"),
        (b"--b\r\nno colon\r\n--b--", "part 1, 0 bytes"),
        (b"--b\r\n--b\r\n--b--", "part 2, 0 bytes"),
        (b"--b\r\n\r\nx\r\n" * 50 + b"--b--", "30 more parts"),
    ],
)
def test_odd_multipart_bodies_are_told(body: bytes, told: str) -> None:
    shown = captured(body, {"Content-Type": "multipart/form-data; boundary=b"}).request

    assert told in Tags(shown._repr_html_()).text
    assert shapes(shown)


def test_a_request_without_answer_says_so() -> None:
    assert repr(captured()) == "<CapturedRequest 1: POST /hooks -> no response yet, tunnel web>"
    assert "no response yet" in captured()._repr_html_()


def test_a_tunnel_is_a_card_with_its_figures(
    ginnel_tunnel: Callable[..., str], ginnel_agent_client: ginnel.AgentClient
) -> None:
    url = ginnel_tunnel(app, name="shop")
    urlopen(url).read()
    ginnel_agent_client.requests.wait_for(timeout=30)

    tunnel = ginnel_agent_client.tunnels.get("shop")

    assert repr(tunnel).startswith(f"<AgentTunnel shop: {url} -> ")
    card = Tags(tunnel._repr_html_())
    assert "a" in card.tags
    assert "1 requests, half within " in card.text
    assert url in Tags(ginnel_agent_client.tunnels.list().to_list()._repr_html_()).text


def test_ipython_prints_all_of_one_and_a_line_of_many() -> None:
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    one = captured(b'{"a": 1}')

    assert '\n\n{\n  "a": 1\n}' in pretty(one)
    assert pretty([one]) == f"[{one!r}]"


def test_an_error_says_what_failed(ginnel_remote: ginnel.RemoteClient) -> None:
    with pytest.raises(ginnel.NotFoundError) as caught:
        ginnel_remote.api_keys.get("ak_" + "0" * 27)
    error = caught.value

    assert repr(error).startswith("NotFoundError('")
    assert "status_code=404" in repr(error)
    assert "method='GET', url='http://127.0.0.1" in repr(error)
    assert repr(pickle.loads(pickle.dumps(error))) == repr(error)
    assert str(error.operation_id) in error._repr_html_()
    assert ginnel_remote._core.key_hint is None or ginnel_remote._core.key_hint not in repr(error)


def test_a_list_says_which_requests_have_no_answer() -> None:
    failed = CapturedRequest.from_dict({**captured().to_dict(), "error": "connection refused"})

    shown = Tags(Results([answered(captured(), "200 OK"), captured(), failed])._repr_html_()).text

    assert "200 OK" in shown
    assert shown.count("no response yet") == 1
    assert shown.count("no response") == 2


def test_messages_of_streams_are_shown_without_secrets() -> None:
    def message(data: bytes, **fields: object) -> StreamMessage:
        wire = {"index": 1, "sender": "client", "kind": "text", "size": len(data)}
        return StreamMessage.from_dict(wire | {"data": b64encode(data).decode()} | fields)

    text = message(b'{"password": "swordfish", "order": "A-7"}', event_id="Bearer top-secret-0123")
    binary = message(b"\xffswordfish", kind="binary")
    packed = message(b"swordfish", compressed=True)

    for one in (text, binary, packed):
        pages = (
            Results([one])._repr_html_(),
            one._repr_html_(),
            repr(one),
            str(dict(one.__rich_repr__())),
        )
        assert not any(secret in page for page in pages for secret in SECRETS)
    assert "A-7" in repr(text)
    assert "A-7" in text._repr_html_()
    assert "10 bytes" in repr(binary)
    assert "9 bytes" in packed._repr_html_()


def test_a_held_request_is_shown_without_secrets() -> None:
    asked = captured(
        b'{"password": "swordfish"}',
        {"Authorization": "Bearer top-secret"},
        "/hooks?token=swordfish",
    )
    held = HeldRequest.from_dict(
        {
            "id": "1",
            "uri": "/api/requests/held/1",
            "hold_id": "h",
            "tunnel_name": "web",
            "start": "2026-01-02T03:04:05Z",
            "until": "2026-01-02T03:04:50Z",
            "request": asked.request.to_dict(),
        }
    )

    pages = Results([held])._repr_html_(), held._repr_html_(), repr(held)

    assert not any(secret in page for page in pages for secret in SECRETS)
    assert all("/hooks?token=" in page for page in pages)
