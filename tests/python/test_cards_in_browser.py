"""Cards in a real browser, on a page like the output area of a notebook: legible and harmless."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

import ginnel
from browsing import PATIENCE
from ginnel import policy
from ginnel._core.custom_repr import CustomRepr as Special
from ginnel._core.results import Results
from ginnel.local.status import Status
from ginnel.local.tunnels import AgentTunnel
from ginnel.remote.edges.https import HttpsEdge
from ginnel.remote.ip_policies import IpPolicy
from ginnel.traffic import TrafficEvent
from test_cards import FIGURES, answered, captured

LIGHT = "--back: #fff; --fore: rgba(0, 0, 0, .87); --odd: #f5f5f5; --code: #eee; --link: #0d47a1"
DARK = "--back: #111; --fore: #fff; --odd: #212121; --code: #424242; --link: #64b5f6"
THEMES: dict[str, tuple[Literal["light", "dark"], str]] = {
    "light": ("light", LIGHT),
    "dark": ("dark", DARK),
    # The theme is the page's, whatever the system prefers.
    "light in a dark system": ("dark", LIGHT),
    "dark in a light system": ("light", DARK),
    "no theme": ("light", ""),
    "no theme in a dark system": ("dark", ""),
}
# What notebooks set for what is shown in them: to the left of each cell is its number, tables are
# in the middle with rows of two colours and text at the right, and what is too wide is scrolled.
STYLE = """
:root { color-scheme: light dark; %s }
body { margin: 0; background: var(--back, Canvas); color: var(--fore, CanvasText);
  font: 14px/1.6 system-ui, sans-serif; }
.output { margin: 4px 8px 4px 64px; padding-right: 20px; overflow: auto; }
table { border-collapse: collapse; margin: 0 auto 1em; table-layout: fixed; font-size: 13px; }
td, th, tr { text-align: right; padding: .5em; line-height: normal; max-width: none; }
tbody tr { background: var(--back, Canvas); }
tbody tr:nth-child(even) { background: var(--odd, Canvas); }
pre, code { background: var(--back, Canvas); color: var(--fore, CanvasText);
  font: 13px/1.5 monospace; }
:not(pre) > code { background: var(--code, Canvas); padding: 1px 5px; }
a { color: var(--link, LinkText); text-decoration: none; }
"""
HOSTILE = [
    "<script>alert(1)</script><img src=http://evil.test/x onerror=alert(1)>",
    "</div></td></tr></table></pre></details><div><h1>unclosed <b><i><!--",
    "'\"><svg/onload=alert(1)><style>@import 'http://evil.test/x.css';*{display:none}</style>",
    "שלום \u202e\u2066 עולם 123 (404) مرحبا",
    "\x00\x07\x1b[31m\ufeff\ud7ff\r\n\t",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞" * 20,
    "unbroken" * 400,
]


class CustomRepr(Protocol):
    def _repr_html_(self) -> str: ...


def tunnel(name: str = "shop", url: str = "https://shop.example.test") -> AgentTunnel:
    figures = {**FIGURES, "count": 40, "rate1": 1.5, "p50": 2_100_000.0, "p99": 38_000_000.0}
    return AgentTunnel.from_dict(
        {
            "ID": "1",
            "name": name,
            "uri": f"/api/tunnels/{name}",
            "public_url": url,
            "proto": "https",
            "config": {
                "addr": "http://localhost:8080" if name == "shop" else name,
                "inspect": True,
            },
            "metrics": {"conns": figures, "http": figures},
        }
    )


def edge(text: str = "the shop") -> HttpsEdge:
    reference = {"id": "bkdhr_1", "uri": "http://127.0.0.1/backends/http_response/bkdhr_1"}
    route = {"id": "edghtsrt_1", "uri": "u", "edge_id": "edghts_1", "match": text}
    routed = {**route, "backend": {"enabled": True, "backend": reference}}
    made = {"id": "edghts_1", "uri": "http://127.0.0.1/edges/https/edghts_1", "metadata": text}
    hostports = [f"{name}.example.test:443" for name in ("shop", "www", "api")] + [text]
    return HttpsEdge.from_dict({**made, "hostports": hostports, "routes": [routed] * 3})


def event(text: str = "/admin?token=abc", status: int | None = 403) -> TrafficEvent:
    when = datetime(2026, 1, 2, 3, 4, 5, 123_000, UTC)
    told: dict[str, Any] = {"method": "GET", "host": "shop.example.test", "path": text}
    told |= {"status": status, "edge_id": "edghts_1", "module": "policy", "rule": text}
    return TrafficEvent(when, "https", "192.0.2.1:4711", 1.25, **told, logs=({"a": text},))


def report(text: str = "staff only") -> policy.Report:
    deny = {"type": "deny", "config": {"status_code": 404}}
    rules: list[object] = [
        {"name": "office", "expressions": ["conn.client_ip == '10.0.0.1'"], "actions": [deny]},
        {
            "name": text[:50],
            "actions": [{"type": "log", "config": {"metadata": {"m": text}}}, deny],
        },
    ]
    request: policy.GivenRequest = {"method": "POST", "url": "http://x.test/?a=1", "body": text}
    return policy.test({"on_http_request": rules}, request=request, response=200)


def cards(remote: ginnel.RemoteClient) -> Iterator[CustomRepr]:
    """One of each kind."""
    yield remote.api_keys.create(description="ci of the shop", metadata='{"team": "payments"}')
    for description in ("office", "a description that is longer than its column " * 5):
        remote.ip_policies.create(description=description)
    yield remote.ip_policies.list().to_list()
    yield next(remote.ip_policies.list().pages())
    yield from (edge(), Results([edge()] * 3), Results([]))
    with pytest.raises(ginnel.NotFoundError) as missing:
        remote.api_keys.get("ak_" + "0" * 27)
    yield missing.value
    with pytest.raises(ginnel.AgentNotRunningError) as silent:
        ginnel.AgentClient("http://127.0.0.1:1/api").tunnels.list().first()
    yield silent.value
    listed = []
    for status in ("201 Created", "304 Not Modified", "404 Not Found", "502 Bad Gateway"):
        listed.append(answered(captured(b'{"order": 7, "token": "abc"}'), status))
        yield listed[-1]
    yield from (captured(), captured().request, Results([*listed, captured()]))
    form = (
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\ntext\r\n--b\r\n\r\n\0\1\r\n--b--'
    )
    yield captured(form, {"Content-Type": "multipart/form-data; boundary=b"})
    yield from (tunnel(), tunnel().metrics, Results([tunnel()] * 2))
    legs = [{"region": "eu", "latency": "12ms"}]
    yield Status.from_dict({"status": "online", "uri": "/api/status", "session": {"legs": legs}})
    yield from (event(), event(status=None), report())
    yield policy.check({"on_http_request": [{"actions": [{"type": "dance"}]}]})
    yield policy.check({})
    yield from (remote, remote.ip_policies.list(), ginnel.AsyncAgentClient(), running_cards())


class Drawn:
    """Cards as they were at some moment."""

    def __init__(self, *shown: CustomRepr) -> None:
        self._html = "".join(one._repr_html_() for one in shown)

    def _repr_html_(self) -> str:
        return self._html


def running_cards() -> Drawn:
    """The cards of a service, an agent and its client, that run and that have stopped."""
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        here = agent.async_client()
        running = Drawn(service, agent, here, here.tunnels.list())
        here.close()
    return Drawn(running, service, agent, here)


def hostile_cards() -> Iterator[CustomRepr]:
    """Cards of what strangers sent, each of a kind in every place."""
    for evil in HOSTILE:
        head = {"X-" + evil.split("\r")[0]: evil, "Content-Type": "application/json"}
        body = json.dumps({evil: [evil]}).encode()
        yield answered(captured(body, head, f"/{evil}", method=evil, proto=evil), f"200 {evil}")
        part = f'--b\r\nX: {evil}\r\nContent-Disposition: form-data; name="{evil}"\r\n\r\n{evil}'
        yield captured(
            part.encode(), {"Content-Type": "multipart/form-data; boundary=b"}, f"/{evil}"
        )
        yield IpPolicy.from_dict({"id": evil, "uri": evil, "description": evil, evil: evil})
        yield from (edge(evil), Results([edge(evil)]), tunnel(evil, f"https://{evil}"))
        yield Results([tunnel(evil, f"javascript:{evil}"), captured(b"", {}, evil)])
        yield ginnel.NotFoundError(evil, method=evil, url=evil, status_code=404, message=evil)
        yield from (event(evil), report(evil))
        yield policy.check({"on_http_request": [{"actions": [{"type": evil}]}]})


def large_cards() -> Iterator[CustomRepr]:
    """Cards of what is large in some way, a megabyte of it."""
    much = "x" * 1_000_000
    for body in (much, "<" * 1_000_000, json.dumps([["\u202e"]] * 100_000), "[" * 1_000_000):
        yield captured(body.encode())
    parts = "".join(f"--b\r\nX-{n}: {n}\r\n\r\n{n}\r\n" for n in range(40_000))
    yield captured(parts.encode(), {"Content-Type": "multipart/mixed; boundary=b"})
    yield captured(b"", {f"X-{n}": "y" * 100 for n in range(10_000)})
    yield answered(captured(b"", {"X" + much: much}, f"/{much}", method=much), f"200 {much}")
    yield from (tunnel(much, f"https://{much}"), edge(much), Results([edge(much)] * 2000))
    yield from (event(much), ginnel.NotFoundError(much, url=much, status_code=404, message=much))
    yield Results([answered(captured(b"", {}, f"/{much}"), f"200 {much}")] * 20)


@contextmanager
def opened(
    browser: Browser, theme: str, shown: list[CustomRepr], width: int = 600
) -> Iterator[Page]:
    """A page with an output for each card; it reaches for nothing and runs nothing."""
    system, colours = THEMES[theme]
    outputs = "".join(f'<div class="output">{one._repr_html_()}</div>' for one in shown)
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=system)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("request", lambda request: wrong.append(request.url))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.set_content(
        f'<!doctype html><html lang="en"><head><title>Notebook</title><style>{STYLE % colours}'
        f"</style></head><body><main><h1>Notebook</h1>{outputs}</main></body></html>"
    )
    yield page
    page.wait_for_timeout(50)
    context.close()
    assert not wrong


def printed(shown: object) -> str:
    """What IPython prints."""
    pretty: Any = importlib.import_module("IPython.lib.pretty")
    return str(pretty.pretty(shown))


def too_wide(page: Page) -> list[str]:
    """The outputs in which something is wider than they are, outside of what can be scrolled."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(".output")]
            .filter((output) => output.scrollWidth > output.clientWidth)
            .map((output) => output.innerText.slice(0, 80))
            .concat(document.documentElement.scrollWidth > innerWidth ? ["page"] : [])"""
    )
    return found


@pytest.mark.parametrize("theme", THEMES)
def test_cards_can_be_read_in_every_theme(
    browser: Browser, ginnel_remote: ginnel.RemoteClient, theme: str
) -> None:
    with opened(browser, theme, list(cards(ginnel_remote))) as page:
        page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")

        found = Axe().run(page).response["violations"]

        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
        assert too_wide(page) == []
        page.set_viewport_size({"width": 1100, "height": 900})
        assert too_wide(page) == []


def test_what_strangers_sent_is_text_and_stays_in_its_card(browser: Browser) -> None:
    shown = list(hostile_cards())
    assert len(shown) >= 70

    with opened(browser, "light", shown) as page:
        assert page.locator("main > .output").count() == len(shown)
        tags = set(
            page.evaluate("[...document.querySelectorAll('.output *')].map((e) => e.localName)")
        )
        assert tags <= {
            *("div", "strong", "code", "span", "details", "summary", "pre", "a"),
            *("table", "thead", "tbody", "tr", "th", "td"),
        }
        attributes = page.evaluate(
            "[...document.querySelectorAll('.output *')].flatMap((e) => e.getAttributeNames())"
        )
        assert set(attributes) <= {
            "style",
            "scope",
            "tabindex",
            "role",
            "aria-label",
            "href",
            "rel",
        }
        for href in page.locator("a").evaluate_all("(all) => all.map((each) => each.href)"):
            assert href.startswith("https://")
        assert too_wide(page) == []


def test_letters_from_right_to_left_move_nothing_else(browser: Browser) -> None:
    shown = answered(captured(b"", {}, "/שלום עולם", method="مرحبا"), "404 לא")

    with opened(browser, "light", [shown], width=1000) as page:
        title = page.locator(".output > div > div").first
        places = title.evaluate(
            "(title) => [...title.children].map((e) => e.getBoundingClientRect().x)"
        )
        assert places == sorted(places)
        assert len(places) == 4


def test_what_is_large_is_bounded(browser: Browser) -> None:
    shown = list(large_cards())
    for one in shown:
        assert len(one._repr_html_()) < 200_000, repr(one)[:80]
        if isinstance(one, Special | TrafficEvent):
            assert len(repr(one)) < 2000
            assert len(printed(one)) < 200_000

    with opened(browser, "light", shown) as page:
        assert too_wide(page) == []


def test_cards_share_no_identifiers(browser: Browser, ginnel_remote: ginnel.RemoteClient) -> None:
    shown = list(cards(ginnel_remote))

    with opened(browser, "light", shown + shown) as page:
        assert page.locator(".output [id], .output [class], .output [name]").count() == 0
