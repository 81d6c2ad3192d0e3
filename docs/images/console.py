"""Makes the pictures of the service's console: `.venv/bin/python docs/images/console.py`."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from phone import HEIGHT, WIDTH, side_by_side
from playwright.sync_api import FloatRect, Page, sync_playwright

import ginnel

FOLDER = Path(__file__).parent
VISITS = [
    ("GET", "/"),
    ("GET", "/cart"),
    ("GET", "/orders/1841"),
    ("DELETE", "/orders/1841"),
    ("GET", "/admin/stock"),
    ("POST", "/orders"),
    ("GET", "/favicon.ico"),
]
POLICY = {
    "inbound": [
        {
            "name": "orders stay",
            "expressions": ["req.method == 'DELETE'"],
            "actions": [{"type": "deny", "config": {"status_code": 403}}],
        }
    ]
}
MINUTES_OF_TRAFFIC = 2
PART: FloatRect = {"x": 0, "y": 0, "width": 1440, "height": 520}


class Shop(NamedTuple):
    """The identifiers of what the pictures show."""

    edge: str
    route: str
    inner_route: str
    vault: str
    destination: str


def fill(service: ginnel.Service) -> Shop:
    """Makes a shop with two routes, secrets, a login, and events that are sent."""
    remote = service.client()
    shop = remote.backends.http_response.create(body="ok", status_code=200, description="Shop")
    office = remote.ip_policies.create(description="Office networks")
    remote.ip_policy_rules.create(cidr="192.0.2.0/24", ip_policy_id=office.id, action="allow")
    edge = remote.edges.https.create(hostports=["shop.example:443"], description="The shop")
    routes = remote.edges.https.routes
    backend = {"backend_id": shop.id}
    route = routes.create(
        edge.id, match_type="path_prefix", match="/", backend=backend, policy=POLICY
    )
    inner = routes.create(
        edge.id,
        match_type="path_prefix",
        match="/admin",
        backend=backend,
        ip_restriction={"ip_policy_ids": [office.id]},
    )
    remote.edges.https.create(hostports=["*.preview.example:443"], description="Previews")
    remote.bot_users.create(name="deploy")
    vault = remote.vaults.create(name="payments", description="Keys of the payment provider")
    for name, about in [("api_key", "Live, since May"), ("webhook", "Signs its calls")]:
        remote.vault_secrets.create(name=name, value="x", vault_id=vault.id, description=about)
    routes.oidc.replace(
        edge.id,
        inner.id,
        issuer="https://login.example",
        client_id="shop",
        client_secret="x",
        scopes=["email", "profile"],
    )
    chat = remote.event_destinations.create(
        target={"webhook": {"url": "https://chat.example/hooks/7f3a"}}, description="Chat"
    )
    remote.event_subscriptions.create(
        description="Who may do what",
        destination_ids=[chat.id],
        sources=[{"type": f"api_key_{change}.v0"} for change in ("created", "deleted")],
    )
    return Shop(edge.id, route.id, inner.id, vault.id, chat.id)


def visit(service: ginnel.Service, stop: threading.Event) -> None:
    """Sends what a shop's visitors send, now more and now less."""
    address = urlsplit(service.https_url or "")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    number = 0
    while not stop.is_set():
        method, path = VISITS[number % len(VISITS)]
        host = "shop.example" if number % 23 else "old.example"
        try:
            plain = socket.create_connection((address.hostname, address.port))
            with context.wrap_socket(plain, server_hostname=host) as connection:
                head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode())
                while connection.recv(65536):
                    pass
        except OSError:
            # The pictures are taken and the service is gone.
            return
        number += 1
        time.sleep(0.02 + 0.04 * abs((time.monotonic() % 40) - 20) / 20)


def take_login(page: Page, service: ginnel.Service) -> bytes:
    """Takes the page that asks for a key."""
    page.goto(f"{service.url}/console/")
    page.get_by_label("API key").wait_for()
    return page.screenshot()


def take_resources(page: Page, service: ginnel.Service, shop: Shop, suffix: str) -> None:
    """Takes the pictures of secrets, events and a login."""

    def go(view: str) -> None:
        page.goto(f"{service.url}/console/#/{view}")
        page.wait_for_timeout(700)

    go(f"vaults/{shop.vault}")
    page.screenshot(path=FOLDER / f"console-vault{suffix}.png", clip=PART)
    go(f"event_destinations/{shop.destination}")
    page.screenshot(path=FOLDER / f"console-events{suffix}.png", clip=PART)
    go(f"edges.https/{shop.edge}/routes/{shop.inner_route}")
    page.get_by_role("button", name="Change OpenID Connect").click()
    page.get_by_label("Client secret").wait_for()
    page.screenshot(path=FOLDER / f"console-login{suffix}.png")
    page.keyboard.press("Escape")


def views_of_phone(page: Page, service: ginnel.Service, shop: Shop) -> list[bytes]:
    """Takes the overview, a list, one thing and a form on a phone."""
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    views = []
    edge = f"edges.https/{shop.edge}"
    for view in ["overview", "edges.https", f"{edge}/routes/{shop.inner_route}"]:
        page.goto(f"{service.url}/console/#/{view}")
        page.wait_for_timeout(700)
        views.append(page.screenshot())
    page.goto(f"{service.url}/console/#/vaults/{shop.vault}")
    page.get_by_role("button", name="Add a secret…").click()
    page.get_by_role("dialog").wait_for()
    return [*views, page.screenshot()]


def take(page: Page, service: ginnel.Service, shop: Shop, suffix: str) -> None:
    """Takes the pictures in one colour scheme."""
    page.goto(f"{service.url}/console/")
    page.get_by_label("API key").fill(service.api_key or "")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Overview").wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=FOLDER / f"console-overview{suffix}.png")
    page.get_by_role("link", name="Live traffic").click()
    row = page.locator("#rows .row", has_text="orders stay").first
    row.wait_for()
    page.wait_for_timeout(2000)
    page.get_by_role("button", name="Pause").click()
    row.click()
    page.screenshot(path=FOLDER / f"console-traffic{suffix}.png")
    page.goto(f"{service.url}/console/#/edges.https/{shop.edge}/routes/{shop.route}")
    page.get_by_role("button", name="Change Traffic policy").click()
    page.get_by_label("Method").fill("DELETE")
    page.get_by_role("button", name="Try it").click()
    page.locator(".outcome").wait_for()
    page.screenshot(path=FOLDER / f"console-policy{suffix}.png")
    page.keyboard.press("Escape")


def main() -> None:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    stop = threading.Event()
    with (
        ginnel.Service(admin_addr="127.0.0.1:0") as service,
        ginnel.Agent(service) as agent,
        sync_playwright() as play,
    ):
        agent.client().tunnels.start(name="shop", proto="http", addr=8080)
        shop = fill(service)
        threading.Thread(target=visit, args=(service, stop), daemon=True).start()
        time.sleep(60 * MINUTES_OF_TRAFFIC)
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for scheme, suffix in [("light", ""), ("dark", "-dark")]:
            context = browser.new_context(
                color_scheme="dark" if scheme == "dark" else "light",
                viewport={"width": WIDTH, "height": HEIGHT},
            )
            page = context.new_page()
            views = [take_login(page, service)]
            page.set_viewport_size({"width": 1440, "height": 860})
            take(page, service, shop, suffix)
            take_resources(page, service, shop, suffix)
            views += views_of_phone(page, service, shop)
            side_by_side(context, views, scheme, FOLDER / f"console-phone{suffix}.png")
            context.close()
        stop.set()
        browser.close()


if __name__ == "__main__":
    main()
