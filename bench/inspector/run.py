"""Measures the inspector's page in a browser while many requests come; README.md says what."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

import ginnel

KEY_SECONDS = 0.1
BATCH = 10
DELAYS = """() => {
    window.delays = [];
    addEventListener("keydown", (event) => {
        requestAnimationFrame(() => setTimeout(() => {
            window.delays.push(performance.now() - event.timeStamp);
        }));
    }, true);
}"""


class Local(BaseHTTPRequestHandler):
    """A local service with a short response."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "11")
        self.end_headers()
        self.wfile.write(b'{"ok":true}')

    def log_message(self, *_: object) -> None:
        pass


class Sender:
    """Sends requests over one connection, so many each second."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent = 0
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.answers = self.connection.makefile("rb")

    def send(self, count: int) -> None:
        """Sends requests at once, and reads their responses."""
        numbers = range(self.sent, self.sent + count)
        heads = (
            f"GET /orders/{number} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
            for number in numbers
        )
        self.connection.sendall("".join(heads).encode())
        for _ in range(count):
            length = 0
            while line := self.answers.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            self.answers.read(length)
        self.sent += count

    def keep_on(self, rate: int, stop: threading.Event) -> None:
        """Sends at a rate until it is told to stop; what is late is not made up for."""
        due = time.monotonic()
        while not stop.is_set():
            self.send(BATCH)
            due = max(due + BATCH / rate, time.monotonic() - 1)
            stop.wait(max(due - time.monotonic(), 0))


def metrics(session: CDPSession) -> dict[str, float]:
    """What the browser says of the page."""
    found = session.send("Performance.getMetrics")["metrics"]
    return {metric["name"]: metric["value"] for metric in found}


def heap(session: CDPSession) -> float:
    """Megabytes of scripts after a collection."""
    session.send("HeapProfiler.collectGarbage")
    return metrics(session)["JSHeapUsedSize"] / 1e6


def measure(page: Page, sender: Sender, seconds: float, rate: int) -> dict[str, Any]:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.enable")
    page.evaluate(DELAYS)
    stop = threading.Event()
    sending = threading.Thread(target=sender.keep_on, args=(rate, stop))
    before, sent, began = metrics(session), sender.sent, time.monotonic()
    sending.start()
    heaps: list[float] = []
    while time.monotonic() - began < seconds:
        page.keyboard.press("j")
        page.wait_for_timeout(KEY_SECONDS * 1000)
        if not heaps and time.monotonic() - began > seconds / 10:
            heaps.append(heap(session))
    after, took = metrics(session), time.monotonic() - began
    stop.set()
    sending.join()
    heaps.append(heap(session))
    delays = sorted(page.evaluate("window.delays"))
    at = [delays[int(len(delays) * share)] for share in (0.5, 0.95, 0.99)]
    return {
        "main_thread": round((after["TaskDuration"] - before["TaskDuration"]) / took, 3),
        "script": round((after["ScriptDuration"] - before["ScriptDuration"]) / took, 3),
        "input_ms": [round(delay, 1) for delay in at],
        "keys": len(delays),
        "heap_mb": [round(size, 1) for size in heaps],
        "rate": round((sender.sent - sent) / took, 1),
        "rows": int(page.locator("#list").get_attribute("aria-rowcount") or 1) - 1,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--rows", type=int, default=10_000)
    options.add_argument("--rate", type=int, default=500)
    chosen = options.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Local)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with ginnel.Service() as service, ginnel.Agent(service) as agent, sync_playwright() as play:
        assert agent.url
        tunnel = agent.client().tunnels.start(name="web", proto="http", addr=server.server_port)
        assert tunnel.public_url
        sender = Sender(int(tunnel.public_url.rstrip("/").rpartition(":")[2]))
        while sender.sent < chosen.rows:
            sender.send(BATCH)
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{agent.url.removesuffix('/api')}/inspect/http")
        page.locator(f"#list[aria-rowcount='{chosen.rows + 1}']").wait_for()
        json.dump(measure(page, sender, chosen.seconds, chosen.rate), sys.stdout)
        print()
        browser.close()


if __name__ == "__main__":
    main()
