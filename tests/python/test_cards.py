"""How captured requests, tunnels and errors are shown: readable, without secrets, and harmless."""

from __future__ import annotations

import gzip
import json
import pickle
from base64 import b64decode
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import ginnel
from ginnel.local.requests import CapturedRequest
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
    from base64 import b64encode

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


def shapes(shown: Any) -> list[str]:
    """Everything that a notebook, a terminal and a log make of something."""
    from ginnel._lines import lines

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

    seen = ginnel_agent_client.requests.wait_for(timeout=10)

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
        page = Tags(shown._repr_html_() + ginnel._results.Results([shown])._repr_html_())
        assert page.tags <= {
            *("div", "strong", "code", "span", "details", "summary", "pre"),
            *("table", "thead", "tbody", "tr", "th", "td"),
        }
        assert page.attributes <= {"style", "scope"}
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
        (b'{"password": "swordfish", "cut', "application/json", '{"password": •••, "cut'),
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
    bomb = captured(gzip.compress(b" " * 50_000_000), packed).request
    broken = captured(b"no gzip", packed).request

    shown = captured(gzip.compress(b'{"token": "swordfish", "a": 1}'), packed).request

    assert '{\n  "token": "•••",\n  "a": 1\n}' in Tags(shown._repr_html_()).text
    assert len(bomb._repr_html_()) < 10_000
    assert "(7 bytes of application/json)" in Tags(broken._repr_html_()).text


def test_a_request_without_answer_says_so() -> None:
    assert repr(captured()) == "<CapturedRequest 1: POST /hooks -> no answer yet, tunnel web>"
    assert "no answer yet" in captured()._repr_html_()


def test_a_tunnel_is_a_card_with_its_figures(
    ginnel_tunnel: Callable[..., str], ginnel_agent_client: ginnel.AgentClient
) -> None:
    url = ginnel_tunnel(app, name="shop")
    urlopen(url).close()
    ginnel_agent_client.requests.wait_for(timeout=10)

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
