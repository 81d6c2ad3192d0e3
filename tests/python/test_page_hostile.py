"""The web inspection page in a real browser: what strangers send, and pages of other sites."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from browsing import House, Watch, serving, wait_until

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "'-alert(1)-'",
    "</pre></title><script src=http://evil.test/x.js></script>",
    "{{constructor.constructor('alert(1)')()}}",
    "javascript:alert(1)",
    '<iframe srcdoc="<script>parent.alert(1)</script>">',
    "<a href=javascript:alert(1) autofocus onfocus=alert(1)>x</a>",
    "<style>@import 'http://evil.test/x.css';</style>",
    "<link rel=stylesheet href=http://evil.test/x.css>",
    '<meta http-equiv=refresh content="0;url=http://evil.test/">',
]


def hostile(house: House) -> int:
    """Requests with what would be harmful in each place; how many were captured."""
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script>'
        '<image href="http://evil.test/x"/></svg>'
    )
    entity = (
        '<!DOCTYPE a [<!ENTITY x SYSTEM "http://evil.test/x">]><a>&x;<b onload="alert(1)"/></a>'
    )
    part = '--b\r\nContent-Disposition: form-data; name="a"; filename="{}"\r\n\r\nx\r\n--b--\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    markup = {"Content-Type": "text/xml"}
    sent = 0

    def send(*arguments: Any) -> None:
        nonlocal sent
        sent += house.send(*arguments) == 200

    for number, payload in enumerate(HOSTILE):
        kind = {"Content-Type": "application/json"}
        send(f"/{number}/'-alert(1)-'/;alert(1)", "ALERT`1`")
        send(f"/path/{quote(payload, safe='')}")
        send(f"/query?{quote(payload, safe='')}={quote(payload, safe='')}")
        send("/header", "GET", b"", {"X-Hostile": payload, "Referer": payload})
        send("/json", "POST", json.dumps({payload: [payload]}).encode(), kind)
        send("/xml", "POST", f"<a b='&lt;'><![CDATA[{payload}]]></a>".encode(), markup)
        send("/html", "POST", payload.encode(), {"Content-Type": "text/html"})
        send("/file", "POST", part.format(payload).encode(), form)
    send("/svg", "POST", svg.encode(), {"Content-Type": "image/svg+xml"})
    send("/entity", "POST", entity.encode(), {"Content-Type": "application/xml"})
    send("/image", "POST", svg.encode(), {"Content-Type": "image/png"})
    send("/broken", "POST", f'{{"a": {HOSTILE[0]}'.encode(), {"Content-Type": "application/json"})
    return sent


def test_nothing_captured_is_ever_more_than_text(house: House, page: Page) -> None:
    for payload in HOSTILE:
        house.client.tunnels.start(name=payload, proto="http", addr=house.local)
    sent = hostile(house)
    assert sent >= 60
    expect(page.locator("#count")).to_have_text(f"{sent} requests")
    elements = page.evaluate("[...document.querySelectorAll('script, iframe, svg, style')].length")

    shown = 0
    page.keyboard.press("j")
    while True:
        chosen = page.locator("#rows .row.chosen")
        identifier = chosen.get_attribute("data-id")
        wait_until(
            page, "(id) => document.getElementById('detail').textContent.includes(id)", identifier
        )
        page.evaluate("document.querySelectorAll('[role=tab]').forEach((tab) => tab.click())")
        shown += 1
        if shown == sent:
            break
        page.keyboard.press("j")
        wait_until(
            page, "(id) => document.querySelector('#rows .chosen')?.dataset.id !== id", identifier
        )
    page.keyboard.press("e")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    now = page.evaluate("[...document.querySelectorAll('script, iframe, svg, style')].length")
    assert now == elements
    page.goto(f"{house.base}/status")
    expect(page.locator(".card")).to_have_count(len(HOSTILE) + 1)
    for captured in house.client.requests.list(limit=20):
        page.goto(f"{house.base}/inspect/http/{captured.id}")


def test_a_page_to_pass_on_has_no_secrets_and_runs_nothing(
    house: House, page: Page, browser: Browser, tmp_path: Path
) -> None:
    for payload in HOSTILE:
        head = {"X-Hostile": payload, "Authorization": "Bearer abcdef", "Content-Type": "text/html"}
        house.send(f"/{quote(payload, safe='')}?token=abcdef", "POST", payload.encode(), head)
    house.send("/bytes", "POST", bytes([0, 255]), {"Content-Type": "application/octet-stream"})
    count = len(HOSTILE) + 1
    expect(page.locator("#count")).to_have_text(f"{count} requests")
    page.keyboard.press("j")
    page.keyboard.press("x")
    for _ in range(count - 1):
        page.keyboard.press("Shift+J")
    expect(page.locator("#selection")).to_contain_text(f"{count} selected")

    with page.expect_download() as saved:
        page.locator("#selection").get_by_role("button", name="HTML").press("Enter")
    assert saved.value.suggested_filename == "requests.html"
    path = tmp_path / "requests.html"
    saved.value.save_as(path)
    assert "abcdef" not in path.read_text()

    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, viewport={"width": 380, "height": 800})
        shown = context.new_page()
        watch = Watch(shown, path.as_uri())
        shown.goto(path.as_uri())
        expect(shown.locator("article")).to_have_count(count)
        assert shown.locator("script, iframe, svg, img, link, form, body style").count() == 0
        for payload in HOSTILE:
            expect(shown.locator("pre", has_text=payload)).not_to_have_count(0)
        violations = Axe().run(shown)
        assert not violations.violations_count, violations.generate_report()
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        context.close()
        watch.wrong = [what for what in watch.wrong if not what.startswith("request to file:")]
        assert not watch.wrong


ATTACK = """<!doctype html><title>elsewhere</title><body><script>
const told = window.told = [];
const note = (name) => (what) => told.push([name, String(what)]);
const json = {method: "POST", headers: {"content-type": "application/json"}, body: "{}"};
const plain = {method: "POST", mode: "no-cors", headers: {"content-type": "text/plain"},
    body: JSON.stringify({name: "evil", addr: 1, proto: "http"})};
const text = (answer) => answer.text();
const tries = {
    read: fetch(target + "/api/requests/http").then(text),
    opaque: fetch(target + "/inspect/data/requests", {mode: "no-cors"}).then(text),
    clear: fetch(target + "/api/requests/http", {method: "DELETE"}),
    replay: fetch(target + "/api/requests/http", json),
    plain: fetch(target + "/api/tunnels", plain),
    page: fetch(target + "/inspect/data/requests/x/replay", json),
};
const framed = () => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.src = target + "/inspect/http";
    frame.onload = () => {
        told.push(["frame", frame.contentDocument ? "read" : "refused"]);
        done();
    };
    document.body.append(frame);
    const events = new EventSource(target + "/inspect/data/events");
    events.onmessage = () => told.push(["events", "read"]);
});
window.done = Promise.all(Object.entries(tries).map(([name, attempt]) =>
    attempt.then(note(name), () => told.push([name, "refused"])))).then(framed);
</script>"""


class Attacker(BaseHTTPRequestHandler):
    """A page on another origin that tries to reach the agent from the visitor's browser."""

    target = ""

    def do_GET(self) -> None:
        target = f"<script>const target = {json.dumps(self.target)};</script>"
        body = (target + ATTACK).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_of_another_origin_reads_and_changes_nothing(house: House, browser: Browser) -> None:
    house.send("/secret")
    before = house.newest()
    handler = type("Handler", (Attacker,), {"target": house.base})
    with serving(handler) as port:
        for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
            context = browser.new_context()
            page = context.new_page()
            page.goto(origin)
            page.evaluate("window.done")
            told = dict(page.evaluate("window.told"))
            assert set(told.values()) <= {"refused", "", "[object Response]"}, told
            assert told["read"] == told["clear"] == told["replay"] == told["page"] == "refused"
            context.close()
    assert house.newest() == before
    assert [tunnel.name for tunnel in house.client.tunnels.list()] == ["web"]


def test_a_name_that_was_pointed_here_is_refused(house: House, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    port = house.base.rpartition(":")[2]
    for path in ("/", "/api/requests/http", "/inspect/data/requests", "/inspect/assets/dom.js"):
        answer = page.goto(f"http://rebound.test:{port}{path}")
        assert answer
        assert answer.status == 403, path
    context.close()
