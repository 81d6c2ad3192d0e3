"""Makes the pictures of the inspection page: `.venv/bin/python docs/images/make.py`."""

from __future__ import annotations

import json
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

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


class Shop(BaseHTTPRequestHandler):
    """A shop that takes webhooks, and some badly."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
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
    """Opens the newest request to the hook, while the list goes on."""
    page.locator("#rows .row", has_text="/hook/orders").first.dispatch_event("click")


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
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
