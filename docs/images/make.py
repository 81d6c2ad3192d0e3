"""Makes the pictures of the inspection page: `.venv/bin/python docs/images/make.py`."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from phone import HEIGHT, WIDTH, side_by_side
from playwright.sync_api import FloatRect, Page, ViewportSize, sync_playwright

import ginnel

FOLDER = Path(__file__).parent
VIEW: ViewportSize = {"width": 1440, "height": 810}
START: FloatRect = {"x": 0, "y": 0, "width": 1440, "height": 420}
SCHEMES: list[tuple[Literal["light", "dark"], str]] = [("light", ""), ("dark", "-dark")]
EVENTS = [
    ("GET", "/", None),
    ("POST", "/hook/orders?source=shop", {"event": "order.created", "id": 1841, "total": "42.50"}),
    ("POST", "/hook/orders?source=shop", {"event": "order.paid", "id": 1841, "token": "tok_1"}),
    ("GET", "/orders/1841", None),
    ("POST", "/hook/refunds", {"event": "refund.failed", "id": 77}),
    ("GET", "/favicon.ico", None),
    ("POST", "/hook/orders?source=shop", {"event": "order.created", "id": 1842, "lines": [1, 2]}),
]


NEWS = [
    {"type": "ready", "session": 7},
    {"type": "subscribed", "channel": "orders", "since": 1841},
    {"type": "order.created", "id": 1843, "total": "19.90", "items": [{"sku": "mug-blue"}]},
    {"type": "order.paid", "id": 1843},
    {"type": "stock", "sku": "mug-blue", "left": 3},
]
FOLLOW = """async (url) => {
    const socket = new WebSocket(url.replace("http", "ws") + "/live?channel=orders");
    const opened = new Promise((done) => { socket.onopen = done; });
    const pause = (time) => new Promise((done) => setTimeout(done, time));
    await opened;
    socket.send(JSON.stringify({ type: "login", token: "tok_1" }));
    await pause(220);
    socket.send(JSON.stringify({ type: "subscribe", channel: "orders" }));
    await pause(300);
    socket.send(JSON.stringify({ type: "ack", id: 1843 }));
    await pause(400);
    socket.send(new Uint8Array([8, 150, 1, 18, 3, 97, 98, 99]));
    await pause(100);
    socket.close(1000, "done");
}"""


class Shop(BaseHTTPRequestHandler):
    """A shop that takes webhooks, and some badly."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        if self.headers.get("Upgrade") == "websocket":
            self.follow()
            return
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 404 if "favicon" in self.path else 500 if "refunds" in self.path else 200
        time.sleep(len(self.path) / 1000)
        body = json.dumps({"status": status, "path": self.path.partition("?")[0]}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def follow(self) -> None:
        """Sends news of orders over a WebSocket until the visitor closes it."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.flush()
        for message in NEWS:
            time.sleep(0.15)
            text = json.dumps(message).encode()
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.wfile.flush()
        while self.rfile.read(1):
            pass
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def visit(url: str, times: int) -> None:
    """Sends what a shop's visitors send."""
    for number in range(times):
        method, path, content = EVENTS[number % len(EVENTS)]
        headers = {"Authorization": "Bearer secret", "User-Agent": "shop-webhooks/2.1"}
        body = None
        if content:
            headers |= {"Content-Type": "application/json", "X-Signature": "sha256=4f1c"}
            body = json.dumps(content).encode()
        request = Request(url.rstrip("/") + path, data=body, headers=headers, method=method)
        try:
            urlopen(request).close()
        except HTTPError as error:
            error.close()
        except OSError:
            # The pictures are taken and the agent is gone.
            return


def take_start(page: Page, base: str, suffix: str) -> None:
    """Takes the picture of a page without requests."""
    page.goto(base)
    page.locator("#start .qr").wait_for()
    page.screenshot(path=FOLDER / f"start{suffix}.png", clip=START)


def choose(page: Page) -> None:
    """Opens the newest request to the hook that has its response, while the list goes on."""
    answered = page.locator("#rows .row", has_text="/hook/orders").filter(
        has=page.locator(".status .badge")
    )
    answered.first.dispatch_event("click")
    page.locator("#detail .outcome .badge").wait_for()
    page.locator("#Response-panel pre").first.wait_for()


def take(page: Page, base: str, suffix: str) -> None:
    """Takes the pictures in one colour scheme."""
    page.goto(base)
    choose(page)
    page.screenshot(path=FOLDER / f"requests{suffix}.png")
    # Without a secret, so that its body can be changed.
    page.goto(f"{base}/inspect/http?filter=body:order.created")
    choose(page)
    page.keyboard.press("e")
    page.locator("#edit-body").fill('{"event": "order.created", "id": 1843}')
    page.get_by_role("button", name="Send").click()
    page.locator(".compared .added").first.wait_for()
    page.locator(".compared").evaluate("(compared) => compared.scrollIntoView()")
    page.screenshot(path=FOLDER / f"replay{suffix}.png")
    page.goto(f"{base}/inspect/traffic")
    page.get_by_role("button", name="5 min", exact=True).click()
    page.get_by_role("button", name="/hook/orders").wait_for()
    page.screenshot(path=FOLDER / f"traffic{suffix}.png")
    page.goto(f"{base}/status")
    page.locator(".card").wait_for()
    page.wait_for_timeout(12_000)
    page.screenshot(path=FOLDER / f"status{suffix}.png")


def prepare(agent: ginnel.AgentClient) -> None:
    """Makes mocks and holds as somebody has them who works on a shop."""
    paid = {"order": "{{ path.3 }}", "status": "paid"}
    agent.mocks.add(id="paid", method="POST", path="/pay/orders/*", status=201, json=paid)
    busy = {"retry-after": "1"}
    agent.mocks.add(id="busy", path="/cart*", status=503, headers=busy, delay=250, times=3)
    agent.mocks.add(id="refused", path="/pay/refunds", fault="reset", enabled=False)
    agent.mocks.add(id="partner", path="/rates", host="*.partner.example", body="1.0842")
    agent.holds.add(id="orders", method="POST", path="/stock/*", max_wait=50_000)
    agent.holds.add(id="deletions", method="DELETE", enabled=False)


def take_rules(page: Page, base: str, url: str, suffix: str) -> None:
    """Takes the pictures of mocks, holds and a held request that is changed."""
    order = {"Content-Type": "application/json", "User-Agent": "shop-webhooks/2.1"}
    for number in range(6):
        urlopen(Request(f"{url}/pay/orders/{1840 + number}", data=b"{}", headers=order)).close()
    held = [
        threading.Thread(
            target=lambda number=number: urlopen(
                Request(
                    f"{url}/stock/{number}?token=tok_1",
                    data=json.dumps({"item": number, "count": 3}).encode(),
                    headers=order,
                )
            ).close()
        )
        for number in (77, 78)
    ]
    for thread in held:
        thread.start()
    page.goto(f"{base}/inspect/rules")
    page.locator(".held-row").nth(1).wait_for()
    page.screenshot(path=FOLDER / f"mocks{suffix}.png")
    page.get_by_role("button", name="Change POST /stock/77").click()
    page.get_by_label("Body").fill('{"item": 77, "count": 0}')
    page.screenshot(path=FOLDER / f"hold{suffix}.png")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Let all go").click()
    for thread in held:
        thread.join()


def take_stream(page: Page, base: str, url: str, suffix: str) -> None:
    """Takes the picture of the messages of a WebSocket."""
    page.evaluate(FOLLOW, url)
    page.goto(f"{base}/inspect/http?filter=path:/live")
    page.locator("#rows .row", has_text="/live").first.click()
    page.locator(".messages li").nth(8).wait_for()
    page.locator(".messages summary").nth(3).click()
    page.locator(".message-full pre").first.wait_for()
    page.screenshot(path=FOLDER / f"streams{suffix}.png")


def views_of_phone(page: Page, base: str) -> list[bytes]:
    """Takes what is done on a phone, and leaves the list open."""
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    page.goto(base)
    page.locator("#rows .row").nth(5).wait_for()
    views = [page.screenshot()]
    page.goto(f"{base}/inspect/http?filter=body:order.created")
    choose(page)
    views.append(page.screenshot())
    page.goto(base)
    page.get_by_role("button", name="Compose…").click()
    page.get_by_role("dialog").wait_for()
    views.append(page.screenshot())
    page.goto(f"{base}/inspect/rules")
    page.get_by_role("button", name="New mock").click()
    page.get_by_role("dialog").wait_for()
    views.append(page.screenshot())
    page.goto(base)
    page.locator("#rows .row").nth(5).wait_for()
    return views


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with ginnel.Service() as service, ginnel.Agent(service) as agent, sync_playwright() as play:
        assert agent.url
        tunnel = agent.client().tunnels.start(name="shop", proto="http", addr=server.server_port)
        assert tunnel.public_url
        base = agent.url.removesuffix("/api")
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        contexts = [
            (browser.new_context(color_scheme=scheme, viewport=VIEW), suffix)
            for scheme, suffix in SCHEMES
        ]
        for context, suffix in contexts:
            take_start(context.new_page(), base, suffix)
        visit(tunnel.public_url, 42)
        threading.Thread(target=visit, args=(tunnel.public_url, 1500), daemon=True).start()
        for context, suffix in contexts:
            take(context.new_page(), base, suffix)
        prepare(agent.client())
        for context, suffix in contexts:
            take_stream(context.new_page(), base, tunnel.public_url, suffix)
            take_rules(context.new_page(), base, tunnel.public_url, suffix)
        phones = [context.new_page() for context, _ in contexts]
        views = [views_of_phone(page, base) for page in phones]
        service.stop()
        for page, own, (scheme, suffix) in zip(phones, views, SCHEMES, strict=True):
            page.locator("#outage:not([hidden])").wait_for()
            own.append(page.screenshot())
            side_by_side(page.context, own, scheme, FOLDER / f"phone{suffix}.png")
        browser.close()


if __name__ == "__main__":
    main()
