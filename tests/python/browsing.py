"""A browser, and everything that its page needs."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright
from playwright.sync_api import Error as BrowserError

import ginnel

BROWSERS = (
    os.environ.get("GINNEL_BROWSER"),
    # Without the browser around the pages: a page takes half the processor time to open.
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP rebound.test 127.0.0.1",
]
PATIENCE = 60_000
"""Milliseconds to wait for what the page does: a debug build takes 1 s to mask a long body."""


class Local(BaseHTTPRequestHandler):
    """A local service that answers with what its `answer` says, else with what it was sent.

    `/slow` answers when `release` is set.
    """

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    answer: tuple[int, str, bytes] | None = None
    release = threading.Event()
    arrived = threading.Event()
    """Set when `/slow` has arrived."""

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, media_type, content = self.answer or (200, "text/plain", body)
        if self.path.startswith("/status/"):
            status = int(self.path.removeprefix("/status/")[:3])
        if self.path.startswith("/slow"):
            self.arrived.set()
            self.release.wait(PATIENCE / 1000)
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.handle_one
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class House:
    """A service, an agent with a tunnel, and a local service."""

    def __init__(
        self,
        service: ginnel.Service,
        agent: ginnel.Agent,
        local: int,
        release: threading.Event | None = None,
        arrived: threading.Event | None = None,
    ) -> None:
        self.release = release or threading.Event()
        """Once set, the local service answers `/slow`."""
        self.arrived = arrived or threading.Event()
        """Set when the local service has got a request for `/slow`."""
        self.service = service
        self.agent = agent
        self.local = local
        self.client = agent.client()
        self.tunnel = self.client.tunnels.start(name="web", proto="http", addr=local)

    @property
    def base(self) -> str:
        assert self.agent.url
        return self.agent.url.removesuffix("/api")

    @property
    def port(self) -> int:
        assert self.tunnel.public_url
        return int(self.tunnel.public_url.rstrip("/").rpartition(":")[2])

    def send(
        self,
        target: str,
        method: str = "GET",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> int:
        """Sends a request as it is, hostile or not; the status of its answer."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE / 1000) as connection:
            connection.sendall("\r\n".join(lines).encode() + body)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return int(answer.split(b" ", 2)[1])

    def newest(self) -> str:
        newest = self.client.requests.list(limit=1).first()
        assert newest
        return newest.id


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, (name and shutil.which(name) for name in BROWSERS)), None)
    assert found, "no Chromium was found; tests/install-packages installs it"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def house() -> Iterator[House]:
    release, arrived = threading.Event(), threading.Event()
    handler = type("Handler", (Local,), {"release": release, "arrived": arrived})
    with serving(handler) as local, ginnel.Service() as service, ginnel.Agent(service) as agent:
        try:
            yield House(service, agent, local, release, arrived)
        finally:
            release.set()


class Watch:
    """What a page must not do."""

    def __init__(self, page: Page, base: str) -> None:
        self.wrong: list[str] = []
        page.on("dialog", self.dismiss)
        page.on("pageerror", self.fail)
        page.on("console", self.say)
        page.on("request", lambda request: self.check(request.url, base))

    def dismiss(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def fail(self, error: BrowserError) -> None:
        self.wrong.append(f"error {error}")

    def say(self, told: ConsoleMessage) -> None:
        text = told.text
        if "Content Security Policy" in text or "violates" in text:
            self.wrong.append(text)

    def check(self, url: str, base: str) -> None:
        if not url.startswith((f"{base}/", "blob:", "data:")):
            self.wrong.append(f"request to {url}")


@pytest.fixture
def page(browser: Browser, house: House) -> Iterator[Page]:
    """The page, open on a wide screen; it must not do what pages must not do."""
    context = browser.new_context(viewport={"width": 1500, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=house.base)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    watch = Watch(page, house.base)
    page.goto(house.base)
    expect(page.locator("#state")).to_have_text("● online")
    yield page
    context.close()
    assert not watch.wrong


def wait_until(page: Page, expression: str, argument: object = None) -> None:
    """Waits for an expression to hold; the page's policy lets nobody evaluate text in it."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(10)


def rows(page: Page) -> Any:
    return page.locator("#rows .row")


def choose(page: Page, text: str) -> None:
    page.locator("#rows .row", has_text=text).first.click()
    expect(page.locator("#detail h2")).to_contain_text(text)


def tab(page: Page, part: str, name: str) -> Any:
    page.get_by_role("tablist", name=part).get_by_role("tab", name=name).click()
    return page.locator(f"#{part}-panel")


def copied(page: Page, form: str) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_label("Copy the request as").select_option(form)
    wait_until(page, "navigator.clipboard.readText().then((text) => text.length > 0)")
    copy: str = page.evaluate("navigator.clipboard.readText()")
    return copy
