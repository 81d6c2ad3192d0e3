"""The console in a real browser: every view on every screen, and what strangers write into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import ginnel
from consoling import Shop, open_console
from test_page_hostile import HOSTILE


@pytest.fixture(scope="module")
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service(admin_addr="127.0.0.1:0") as service:
        yield service


@pytest.fixture(scope="module")
def shop(service: ginnel.Service) -> Shop:
    return Shop(service)


FORMS = [
    "Create…",
    "Change…",
    "Delete…",
    "Change Traffic policy",
    "Set Compression",
    "Change OpenID Connect",
    "Add a secret…",
    "Add a type of events…",
]
HARMFUL = "[onerror], [onload], [onfocus], img, meta[http-equiv]"


def views(shop: Shop) -> list[str]:
    """The address of every view that has something in it."""
    edge = f"edges.https/{shop.edge.id}"
    return [
        "overview",
        "traffic",
        "policy",
        "tunnel_sessions",
        "tunnels",
        "edges.https",
        edge,
        f"{edge}/routes/{shop.route.id}",
        "edges.tcp",
        "edges.tls",
        "backends.tunnel_group",
        "backends.http_response",
        f"backends.http_response/{shop.greeting.id}",
        "ip_policies",
        f"ip_policies/{shop.networks.id}",
        "ip_policy_rules",
        "reserved_domains",
        "tls_certificates",
        "certificate_authorities",
        "api_keys",
        "credentials",
        "bot_users",
        f"bot_users/{shop.bot.id}",
        "service_users",
        f"service_users/{shop.bot.id}",
        "vaults",
        f"vaults/{shop.vault.id}",
        "vault_secrets",
        f"vault_secrets/{shop.secret.id}",
        "event_destinations",
        f"event_destinations/{shop.destination.id}",
        "event_subscriptions",
        f"event_subscriptions/{shop.subscription.id}",
        f"edges.tls/{shop.tls_edge.id}",
        "endpoints",
        "ip_restrictions",
        "reserved_addrs",
        "audit_events",
        "nodes",
        "nothing",
    ]


def go(page: Page, view: str) -> None:
    page.evaluate("(view) => { location.hash = view; }", f"#/{view}")
    expect(page.locator("main")).to_have_attribute("data-view", view)
    page.wait_for_timeout(150)


def check(page: Page, view: str) -> None:
    results = Axe().run(page)
    assert not results.response["violations"], f"{view}: {results.generate_report()}"
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1], f"{view}: {widths}"


@pytest.mark.parametrize(
    ("width", "scheme"), [(380, "light"), (768, "dark"), (1280, "dark"), (1920, "light")]
)
def test_every_view_is_accessible_on_every_screen(
    browser: Browser, service: ginnel.Service, shop: Shop, width: int, scheme: str
) -> None:
    options: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with open_console(browser, service, **options) as page:
        for view in views(shop):
            go(page, view)
            check(page, view)


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1280, "light")])
def test_every_form_is_accessible(
    browser: Browser, service: ginnel.Service, shop: Shop, width: int, scheme: str
) -> None:
    options: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with open_console(browser, service, **options) as page:
        for view in views(shop):
            go(page, view)
            for name in FORMS:
                opener = page.get_by_role("button", name=name, exact=True).first
                if not opener.count():
                    continue
                opener.click()
                expect(page.get_by_role("dialog")).to_be_visible()
                page.wait_for_timeout(100)
                check(page, f"{view}: {name}")
                page.keyboard.press("Escape")
                expect(page.get_by_role("dialog")).to_have_count(0)
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(f"{service.url}/console/")
    expect(page.get_by_label("API key")).to_be_focused()
    check(page, "login")
    context.close()


def test_nothing_that_is_stored_is_ever_more_than_text(browser: Browser) -> None:
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        remote, shop = service.client(), Shop(service)
        things: list[str] = views(shop)
        for payload in HOSTILE:
            log = {"type": "log", "config": {"metadata": {"said": payload}}}
            labels = {"a": payload.replace("=", "≈")}
            words: Any = {"description": payload, "metadata": payload}
            edge = remote.edges.https.create(**words)
            route = remote.edges.https.routes.create(
                edge.id,
                match_type="exact_path",
                match=f"/{payload}",
                policy={"inbound": [{"name": payload, "actions": [log]}]},
                **words,
            )
            static = remote.backends.static.create(address="127.0.0.1:9", **words)
            group = remote.backends.tunnel_group.create(labels=labels, **words)
            response = remote.backends.http_response.create(
                body=payload, headers={"X-A": payload}, **words
            )
            policy = remote.ip_policies.create(**words)
            key = remote.api_keys.create(**words)
            credential = remote.credentials.create(**words)
            bot = remote.bot_users.create(name=payload)
            vault = remote.vaults.create(name=f"vault-{len(things)}", **words)
            secret = remote.vault_secrets.create(
                name=f"secret-{len(things)}", value=payload, vault_id=vault.id, **words
            )
            address = f"https://chat.example/{quote(payload)}?{payload}"
            target: Any = {"webhook": {"url": address.replace(" ", "+")}}
            destination = remote.event_destinations.create(target=target, **words)
            subscription = remote.event_subscriptions.create(
                sources=[{"type": "api_key_created.v0"}],
                destination_ids=[destination.id],
                **words,
            )
            tls_edge = remote.edges.tls.create(**words)
            remote.edges.https.routes.oidc.replace(
                edge.id,
                route.id,
                issuer=f"https://login.example/{quote(payload)}",
                client_id=payload,
                client_secret=payload,
            )
            agent.client().tunnels.start(name=payload, proto="http", addr=9, metadata=payload)
            things += [
                f"edges.https/{edge.id}",
                f"edges.https/{edge.id}/routes/{route.id}",
                f"backends.static/{static.id}",
                f"backends.tunnel_group/{group.id}",
                f"backends.http_response/{response.id}",
                f"ip_policies/{policy.id}",
                f"api_keys/{key.id}",
                f"credentials/{credential.id}",
                f"bot_users/{bot.id}",
                f"vaults/{vault.id}",
                f"vault_secrets/{secret.id}",
                f"event_destinations/{destination.id}",
                f"event_subscriptions/{subscription.id}",
                f"edges.tls/{tls_edge.id}",
            ]
        things += [f"tunnels/{tunnel.id}" for tunnel in remote.tunnels.list()]
        with open_console(browser, service) as page:
            harmless = page.evaluate("document.querySelectorAll('script, style, iframe').length")
            for view in things:
                go(page, view)
                elements = page.evaluate(
                    "(harmful) => ['script, style, iframe', harmful]"
                    ".map((it) => document.querySelectorAll(it).length)",
                    HARMFUL,
                )
                assert elements == [harmless, 0], view
            go(page, "traffic")
            expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
            for payload in HOSTILE:
                safe = payload.replace(" ", "%20")
                shop.visit(f"/{safe}", "DELETE")
            rows = page.locator("#rows .row")
            expect(rows.first).to_be_visible()
            rows.first.click()
            expect(page.get_by_role("complementary")).to_contain_text("DELETE")
            go(page, f"edges.https/{shop.edge.id}")
            page.get_by_role("button", name="Change…").first.click()
            expect(page.get_by_role("dialog")).to_be_visible()
