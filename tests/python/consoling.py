"""The console of a service: a client that speaks as its page does, and a browser that shows it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import PATIENCE, Watch


class Answer:
    """A response of the console."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class ConsoleClient:
    """What the page sends, with the secrets of its session; each may be left out."""

    def __init__(self, service: ginnel.Service) -> None:
        address = urlsplit(service.url)
        assert address.hostname
        assert address.port
        self.host, self.port = address.hostname, address.port
        self.cookie: str | None = None
        self.token: str | None = None

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        own = {"Cookie": self.cookie, "Console-Token": self.token}
        if body is not None:
            own["Content-Type"] = "application/json"
        sent = {name: value for name, value in own.items() if value} | (headers or {})
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def log_in(self, key: str | None, **headers: str) -> Answer:
        given = {"Authorization": f"Bearer {key}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        answer = self.send("POST", "/console/session", headers=given)
        if answer.status == 200:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
            self.token = answer.json()["token"]
        return answer

    @contextmanager
    def follow(self, query: str = "") -> Iterator[Iterator[dict[str, Any]]]:
        """The updates of the stream of events."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        headers = {"Cookie": self.cookie or "", "Console-Token": self.token or ""}
        connection.request("GET", f"/console/data/events{query}", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()

        def updates() -> Iterator[dict[str, Any]]:
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

        try:
            yield updates()
        finally:
            connection.close()


class Shop:
    """Something of everything, with one edge that takes traffic."""

    def __init__(self, service: ginnel.Service) -> None:
        self.service = service
        remote = service.client()
        self.greeting = remote.backends.http_response.create(
            body="hello", status_code=200, description="Greeting"
        )
        self.networks = remote.ip_policies.create(description="Office networks")
        remote.ip_policy_rules.create(
            cidr="192.0.2.0/24", ip_policy_id=self.networks.id, action="allow"
        )
        self.edge = remote.edges.https.create(hostports=["shop.test:443"], description="The shop")
        self.route = remote.edges.https.routes.create(
            self.edge.id,
            match_type="path_prefix",
            match="/",
            backend={"backend_id": self.greeting.id},
            policy={
                "inbound": [
                    {
                        "name": "no deletions",
                        "expressions": ["req.method == 'DELETE'"],
                        "actions": [{"type": "deny", "config": {"status_code": 403}}],
                    }
                ]
            },
        )
        self.bot = remote.bot_users.create(name="deploy")
        key = remote.api_keys.create(description="ci", owner_id=self.bot.id)
        assert key.token
        self.bot_key = key.token
        remote.credentials.create(description="laptops")
        remote.reserved_domains.create(domain="shop.test")
        self.vault = remote.vaults.create(name="payments", description="Of the provider")
        self.secret = remote.vault_secrets.create(
            name="api_key", value="swordfish", vault_id=self.vault.id
        )
        self.destination = remote.event_destinations.create(
            target={"webhook": {"url": "https://chat.example/hook"}}, description="Chat"
        )
        self.subscription = remote.event_subscriptions.create(
            sources=[{"type": "credential_created.v0"}],
            destination_ids=[self.destination.id],
            description="Credentials",
        )
        self.tls_edge = remote.edges.tls.create(hostports=["mail.test:443"])

    def visit(self, path: str = "/", method: str = "GET", host: str = "shop.test") -> int:
        """Sends a request to the edge; the status of its answer."""
        address = urlsplit(self.service.https_url or "")
        assert address.hostname
        assert address.port
        context = ssl.create_default_context(cadata=self.service.ca_pem)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection((address.hostname, address.port), timeout=20)
        with context.wrap_socket(plain, server_hostname=host) as connection:
            head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return int(answer.split(b" ", 2)[1])


@contextmanager
def open_console(
    browser: Browser, service: ginnel.Service, key: str | None = None, **options: Any
) -> Iterator[Page]:
    """The console in a browser, logged in; it must not do what pages must not do."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}} | options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    watch = Watch(page, service.url)
    page.goto(f"{service.url}/console")
    page.get_by_label("API key").fill(key or service.api_key or "")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    try:
        yield page
    finally:
        context.close()
    assert not watch.wrong


def show(page: Page, view: str, heading: str) -> None:
    """Goes to a view by its address."""
    page.evaluate("(view) => { location.hash = view; }", f"#/{view}")
    expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()


def focus(page: Page, name: str, role: str = "button") -> None:
    """Goes on by Tab until something has the focus."""
    element = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
    expect(element).to_be_visible()
    for _ in range(120):
        if element.evaluate("(it) => it === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name} cannot be reached by Tab")


def press(page: Page, name: str, role: str = "button") -> None:
    focus(page, name, role)
    page.keyboard.press("Enter")


def heading(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)
