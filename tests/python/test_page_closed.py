"""Mocks and holds under load: nothing is lost when their page is closed in the middle."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import ThreadingHTTPServer

from playwright.sync_api import Browser, expect

import browsing
from browsing import PATIENCE, House

RATE = 200
"""Requests a second."""
COUNT = 1200
VISITORS = 120
"""More than wait at a time, so that nobody waits for a visitor."""
MAX_WAIT = 1500
KINDS = ["mock", "hold", "pass", "mock"]


class Local(browsing.Local):
    """A local service that counts what it gets."""

    seen: Counter[str]
    lock = threading.Lock()

    def handle_one(self) -> None:
        with self.lock:
            self.seen[self.path] += 1
        super().handle_one()


class LocalServer(ThreadingHTTPServer):
    """Takes as many connections at a time as requests are let go at a time."""

    request_queue_size = 2 * VISITORS
    daemon_threads = True


def visit(port: int, number: int, begin: float) -> tuple[str, int, str]:
    """Sends one request at its time; its path, and status and body of the response."""
    time.sleep(max(0.0, begin + number / RATE - time.monotonic()))
    path = f"/{KINDS[number % len(KINDS)]}/{number}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body=str(number))
        response = connection.getresponse()
        return path, response.status, response.read().decode()
    finally:
        connection.close()


def test_nothing_is_lost_when_the_page_is_closed_in_the_middle(
    house: House, browser: Browser
) -> None:
    seen: Counter[str] = Counter()
    handler = type("Handler", (Local,), {"seen": seen})
    with LocalServer(("127.0.0.1", 0), handler) as local, ThreadPoolExecutor(VISITORS) as visitors:
        threading.Thread(target=local.serve_forever, args=(0.01,), daemon=True).start()
        tunnel = house.client.tunnels.start(name="load", proto="http", addr=local.server_port)
        assert tunnel.public_url
        port = int(tunnel.public_url.rstrip("/").rpartition(":")[2])
        house.client.mocks.add(path="/mock/*", status=201, body="{{ path.2 }} mocked")
        house.client.holds.add(path="/hold/*", max_wait=MAX_WAIT)
        expect.set_options(timeout=PATIENCE)
        page = browser.new_page()
        page.goto(f"{house.base}/inspect/rules")
        expect(page.locator("#rules tbody tr")).to_have_count(2)

        begin = time.monotonic()
        sent: list[Future[tuple[str, int, str]]] = [
            visitors.submit(visit, port, number, begin) for number in range(COUNT)
        ]
        let_go = 0
        while sum(future.done() for future in sent) < COUNT / 2:
            release = page.get_by_role("button", name="Let all go")
            if release.is_visible():
                release.click()
                let_go += 1
            page.wait_for_timeout(50)
        expect(page.locator(".held-row").first).to_be_visible()
        page.close()
        responses = {path: (status, body) for path, status, body in (f.result() for f in sent)}
        local.shutdown()

    assert let_go
    assert len(responses) == COUNT
    for number in range(COUNT):
        kind = KINDS[number % len(KINDS)]
        response = (201, f"{number} mocked") if kind == "mock" else (200, str(number))
        assert responses[f"/{kind}/{number}"] == response
        assert seen[f"/{kind}/{number}"] == (0 if kind == "mock" else 1)
    client = house.client
    counts = Counter(KINDS[number % len(KINDS)] for number in range(COUNT))
    assert client.mocks.get("mock-1").hits == counts["mock"]
    assert client.held_requests.list().to_list() == []
    captured = client.requests.list(limit=2 * COUNT, tunnel_name="load").to_list()
    assert Counter(record.request.uri for record in captured) == Counter(list(responses))
    assert Counter(record.mock_id for record in captured)["mock-1"] == counts["mock"]
    assert all(record.duration for record in captured)
    # A request beyond the hundredth that waits is not held.
    held = Counter(record.hold_id for record in captured)["hold-1"]
    assert 0 < client.holds.get("hold-1").hits == held <= counts["hold"]
