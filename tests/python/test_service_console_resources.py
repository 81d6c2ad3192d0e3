"""What the console does with every resource alike, tried with vaults, events, users and logins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import wait_until
from consoling import ConsoleClient, Shop, focus, heading, open_console, press, show

SECRET = "sk_live_51ünïque"


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.fixture
def page(browser: Browser, service: ginnel.Service) -> Iterator[Page]:
    with open_console(browser, service) as page:
        yield page


def write(page: Page, name: str, text: str, role: str = "textbox") -> None:
    """Writes into a field in place of what is in it."""
    focus(page, name, role)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def choices(page: Page, name: str) -> list[str]:
    """What a field offers, once that has come."""
    field = page.get_by_role("combobox", name=name)
    wait_until(
        page,
        "(id) => document.getElementById(id).options.length > 0",
        field.get_attribute("list"),
    )
    return field.evaluate("(it) => [...it.list.options].map(({ value }) => value)")  # type: ignore[no-any-return]


def test_a_secret_is_written_once_and_never_shown(service: ginnel.Service, page: Page) -> None:
    remote = service.client()
    press(page, "Vaults", "link")
    press(page, "Create…")
    write(page, "Name (required)", "no spaces")
    page.keyboard.press("Enter")
    problem = page.locator("dialog .field", has_text="Name (required)").locator(".problem")
    expect(problem).not_to_be_empty()
    write(page, "Name (required)", "payments")
    page.keyboard.press("Enter")
    heading(page, "payments")

    press(page, "Add a secret…")
    write(page, "Name (required)", "api_key")
    write(page, "Value (required)", f"{SECRET}\nline 2")
    value = page.get_by_label("Value (required)")
    assert value.evaluate("(it) => getComputedStyle(it).webkitTextSecurity") == "disc"
    press(page, "Create")
    expect(page.get_by_role("table", name="Secrets")).to_contain_text("api_key")
    assert SECRET not in page.content()
    (secret,) = remote.vault_secrets.list()
    assert (secret.name, secret.vault_name) == ("api_key", "payments")

    press(page, "api_key", "link")
    heading(page, "api_key")
    press(page, "Change…")
    expect(page.get_by_label("Value")).to_have_value("")
    write(page, "Description", "Of the provider")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("Of the provider")
    press(page, "Delete…")
    press(page, "Delete")
    heading(page, "Secrets")
    assert remote.vault_secrets.list().first() is None
    show(page, f"vaults/{remote.vaults.list().to_list()[0].id}", "payments")
    press(page, "Delete…")
    press(page, "Delete")
    expect(page.get_by_text("No Vaults yet")).to_be_visible()


def test_the_value_that_was_written_is_the_one_that_policies_read(
    service: ginnel.Service, page: Page
) -> None:
    shop = Shop(service)
    show(page, f"vaults/{shop.vault.id}", "payments")
    press(page, "Add a secret…")
    write(page, "Name (required)", "status")
    write(page, "Value (required)", "swordfish")
    press(page, "Create")
    expect(page.get_by_role("table", name="Secrets")).to_contain_text("status")
    answer = {
        "type": "deny",
        "config": {"status_code": 418},
    }
    expression = "secrets.get('payments', 'status') == 'swordfish'"
    service.client().edges.https.routes.update(
        shop.edge.id,
        shop.route.id,
        policy={"inbound": [{"expressions": [expression], "actions": [answer]}]},
    )

    assert shop.visit() == 418


def test_events_are_sent_to_where_the_console_says(service: ginnel.Service, page: Page) -> None:
    remote = service.client()
    press(page, "Event destinations", "link")
    press(page, "Create…")
    form = page.get_by_role("dialog")
    form.locator("summary", has_text="A program that takes").focus()
    page.keyboard.press("Enter")
    write(page, "URL", "nowhere")
    page.keyboard.press("Enter")
    field = form.locator(".field", has_text="The http or https URL that each event")
    expect(field.locator(".problem")).to_contain_text("invalid URL")
    expect(field.get_by_role("textbox")).to_be_focused()
    write(page, "URL", "https://chat.example/hook")
    write(page, "Description", "Chat")
    page.keyboard.press("Enter")
    secret = page.locator("pre.secret").inner_text()
    assert secret.startswith("whsec_")
    press(page, "I have kept it")
    heading(page, "Chat")
    assert secret not in page.content()
    (destination,) = remote.event_destinations.list()
    assert destination.target
    assert destination.target.webhook
    assert destination.target.webhook.url == "https://chat.example/hook"

    press(page, "Add an event subscription…")
    write(page, "Description", "Policies")
    focus(page, "Add to Sources", "combobox")
    assert "ip_policy_created.v0" in choices(page, "Add to Sources")
    page.keyboard.insert_text("ip_policy_created.v0")
    page.keyboard.press("Tab")
    expect(page.get_by_role("textbox", name="Sources")).to_have_value("ip_policy_created.v0")
    press(page, "Create")
    press(page, "Policies", "link")
    heading(page, "Policies")
    (subscription,) = remote.event_subscriptions.list()
    assert [it.id for it in subscription.destinations or []] == [destination.id]

    press(page, "Add a type of events…")
    write(page, "Type (required)", "ip_policy_creatd.v0", "combobox")
    page.keyboard.press("Enter")
    field = page.get_by_role("dialog").locator(".field", has_text="Type (required)")
    expect(field.locator(".problem")).to_contain_text('did you mean "ip_policy_created.v0"?')
    write(page, "Type (required)", "api_key_deleted.v0", "combobox")
    page.keyboard.press("Enter")
    types = page.get_by_role("table", name="Types of events")
    expect(types).to_contain_text("api_key_deleted.v0")
    press(page, "Remove ip_policy_created.v0")
    press(page, "Remove")
    expect(types).not_to_contain_text("ip_policy_created.v0")
    sources = remote.event_subscriptions.get(subscription.id).sources or []
    assert [source.type for source in sources] == ["api_key_deleted.v0"]

    press(page, "Change…")
    write(page, "Description", "Keys")
    page.keyboard.press("Enter")
    heading(page, "Keys")
    press(page, "Delete…")
    press(page, "Delete")
    expect(page.get_by_text("No Event subscriptions yet")).to_be_visible()
    show(page, f"event_destinations/{destination.id}", "Chat")
    press(page, "Change…")
    write(page, "URL", "https://chat.example/other")
    page.keyboard.press("Enter")
    # Its secret was left empty, so it stays, and there is none to show.
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("https://chat.example/other")
    press(page, "Delete…")
    press(page, "Delete")
    expect(page.get_by_text("No Event destinations yet")).to_be_visible()


def test_a_service_user_gets_a_key_and_is_stopped(service: ginnel.Service, page: Page) -> None:
    press(page, "Service users", "link")
    press(page, "Create…")
    write(page, "Name (required)", "deploy")
    page.keyboard.press("Enter")
    heading(page, "deploy")
    press(page, "Add an API key…")
    write(page, "Description", "ci")
    page.keyboard.press("Enter")
    token = page.locator("pre.secret").inner_text()
    press(page, "I have kept it")
    expect(page.get_by_role("table", name="API keys")).to_contain_text("ci")
    own = ginnel.RemoteClient(token, base_url=service.url)
    assert own.api_keys.list().first()

    press(page, "Change…")
    page.get_by_label("Active").focus()
    page.keyboard.press("n")
    press(page, "Save")
    expect(page.get_by_role("dialog")).to_have_count(0)
    with pytest.raises(ginnel.AuthenticationError):
        own.api_keys.list().first()
    press(page, "Delete…")
    press(page, "Delete")
    heading(page, "Service users")
    assert service.client().service_users.list().first() is None


def test_a_tls_edge_is_made_by_keyboard(service: ginnel.Service, page: Page) -> None:
    backend = service.client().backends.static.create(address="127.0.0.1:9")
    press(page, "TLS edges", "link")
    press(page, "Create…")
    write(page, "Hostports", "mail.test:443")
    press(page, "Create")
    heading(page, "mail.test:443")
    press(page, "Set Backend")
    page.keyboard.insert_text(backend.id)
    press(page, "Save")
    row = page.get_by_role("row", name=re.compile("^Backend"))
    expect(row).to_contain_text("127.0.0.1:9")
    press(page, "Set TLS termination")
    write(page, "Min version", "1.3", "combobox")
    press(page, "Save")
    expect(page.get_by_role("row", name=re.compile("^TLS termination"))).to_contain_text("1.3")
    press(page, "Delete…")
    press(page, "Delete")
    expect(page.get_by_text("No TLS edges yet")).to_be_visible()


def test_a_login_is_changed_without_its_secret(service: ginnel.Service, page: Page) -> None:
    shop = Shop(service)
    oidc = service.client().edges.https.routes.oidc
    show(page, f"edges.https/{shop.edge.id}/routes/{shop.route.id}", "/")
    press(page, "Set OpenID Connect")
    write(page, "Issuer (required)", "https://login.example")
    write(page, "Client ID (required)", "shop")
    press(page, "Save")
    field = page.get_by_role("dialog").locator(".field", has_text="Client secret (required)")
    expect(field.locator(".problem")).to_have_text("is required")
    page.keyboard.insert_text(SECRET)
    press(page, "Save")
    row = page.get_by_role("row", name=re.compile("^OpenID Connect"))
    expect(row).to_contain_text("Client secret: •••••• is kept")

    press(page, "Change OpenID Connect")
    expect(page.get_by_label("Client secret")).to_have_value("")
    write(page, "Client ID (required)", "shop-2")
    press(page, "Save")
    expect(row).to_contain_text("shop-2")
    stored = oidc.get(shop.edge.id, shop.route.id)
    assert (stored.client_id, stored.client_secret) == ("shop-2", SECRET)
    assert SECRET not in page.content()
    assert SECRET not in str(
        page.evaluate("[...document.querySelectorAll('input')].map((it) => it.value)")
    )

    press(page, "Remove OpenID Connect")
    press(page, "Remove")
    expect(row).to_contain_text("not set")


def test_a_bot_user_is_offered_what_its_key_may(browser: Browser, service: ginnel.Service) -> None:
    shop = Shop(service)
    with open_console(browser, service, shop.bot_key) as page:
        for title in ["Event destinations", "Event subscriptions", "Audit"]:
            expect(page.get_by_role("link", name=title)).to_have_count(0)
        show(page, "event_destinations", "Event destinations")
        expect(page.locator("main")).to_contain_text("only an admin may see")
        expect(page.locator("#rows .row")).to_have_count(0)
        show(page, "vaults", "Vaults")
        expect(page.locator("#rows .row")).to_have_count(1)
        show(page, "service_users", "Service users")
        press(page, "Create…")
        write(page, "Name (required)", "another")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("admin")


def test_what_a_login_has_inside_stays_when_something_else_changes(
    service: ginnel.Service, page: Page
) -> None:
    shop = Shop(service)
    oauth = service.client().edges.https.routes.oauth
    client: Any = {"client_id": "shop", "client_secret": SECRET, "email_domains": ["shop.test"]}
    oauth.replace(shop.edge.id, shop.route.id, provider={"github": client})
    show(page, f"edges.https/{shop.edge.id}/routes/{shop.route.id}", "/")
    expect(page.get_by_role("row", name=re.compile("^OAuth"))).to_contain_text("is kept")
    press(page, "Change OAuth")
    write(page, "Cookie prefix", "own")
    press(page, "Save")
    expect(page.get_by_role("row", name=re.compile("^OAuth"))).to_contain_text("own")

    stored = oauth.get(shop.edge.id, shop.route.id)
    assert stored.cookie_prefix == "own"
    assert stored.provider
    assert stored.provider.github
    assert stored.provider.github.client_secret == SECRET
    assert stored.provider.github.email_domains == ["shop.test"]
    assert SECRET not in page.content()


def test_a_login_needs_no_more_than_the_name_of_a_provider(browser: Browser) -> None:
    client = {"client_id": "the-operators", "client_secret": SECRET}
    settings: Any = {"oauth": {"gitlab": client, "github": client}}
    with (
        ginnel.Service(settings=settings) as service,
        open_console(browser, service) as page,
    ):
        shop = Shop(service)
        oauth = service.client().edges.https.routes.oauth
        show(page, f"edges.https/{shop.edge.id}/routes/{shop.route.id}", "/")
        press(page, "Set OAuth")
        provider = page.get_by_role("combobox", name="Provider (required)")
        problem = page.get_by_role("dialog").locator(".field", has=provider).locator(".problem")
        press(page, "Save")
        expect(problem).to_have_text("is required")
        expect(provider).to_be_focused()
        provider.select_option(label="Google")
        press(page, "Save")
        expect(problem).to_contain_text("oauth.google.client_id, which this service does not have")
        provider.select_option(label="GitLab")
        expect(problem).to_be_empty()
        expect(page.get_by_role("textbox", name="Teams")).to_have_count(0)
        press(page, "Save")
        row = page.get_by_role("row", name=re.compile("^OAuth"))
        expect(row).to_contain_text("GitLab")
        stored = oauth.get(shop.edge.id, shop.route.id).provider
        assert stored
        assert stored.gitlab
        assert (stored.gitlab.client_id, stored.github) == (None, None)

        press(page, "Change OAuth")
        expect(provider).to_have_value("gitlab")
        provider.select_option(label="GitHub")
        write(page, "Client ID", "shop")
        press(page, "Save")
        needed = page.get_by_role("dialog").locator(".field", has_text="Client secret")
        expect(needed.locator(".problem")).to_have_text("is required with a client_id")
        focus(page, "Client ID", "textbox")
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")
        write(page, "Email domains", "shop.test")
        press(page, "Save")
        expect(row).to_contain_text("GitHub")
        stored = oauth.get(shop.edge.id, shop.route.id).provider
        assert stored
        assert stored.github
        assert (stored.github.email_domains, stored.gitlab) == (["shop.test"], None)
        assert SECRET not in page.content()


def test_a_secret_is_put_into_a_vault_that_is_chosen_by_its_name(
    service: ginnel.Service, page: Page
) -> None:
    remote = service.client()
    payments, _ = [remote.vaults.create(name=name) for name in ("payments", "mail")]
    show(page, "vault_secrets", "Secrets")
    press(page, "Create…")
    vault = page.get_by_role("combobox", name="Vault (required)")
    expect(vault.locator("option")).to_have_text(["Choose one", "mail", "payments"])
    expect(page.get_by_role("dialog")).not_to_contain_text("Vault name")
    write(page, "Name (required)", "api_key")
    write(page, "Value (required)", SECRET)
    press(page, "Create")
    field = page.get_by_role("dialog").locator(".field", has=vault)
    expect(field.locator(".problem")).to_have_text("is required")
    vault.select_option(label="payments")
    press(page, "Create")
    heading(page, "api_key")
    (secret,) = remote.vault_secrets.list()
    assert secret.vault
    assert secret.vault.id == payments.id

    show(page, f"vaults/{payments.id}", "payments")
    press(page, "Add a secret…")
    expect(vault).to_have_value(payments.id)
    expect(vault.locator("option:checked")).to_have_text("payments")


def test_a_destination_says_what_waits_for_it_and_why(service: ginnel.Service, page: Page) -> None:
    shop = Shop(service)
    show(page, f"event_destinations/{shop.destination.id}", "Chat")
    waiting = page.get_by_role("region", name="Waiting to be delivered")
    expect(waiting).to_contain_text("none that this node knows of")

    service.client().credentials.create(description="late")

    expect(waiting.locator("div", has_text=re.compile("^Events")).last).to_have_text("Events1")
    expect(waiting).to_contain_text(re.compile(r"Size.* B"))
    expect(waiting).to_contain_text(re.compile(r"Oldest.* ago"))
    expect(waiting).to_contain_text(re.compile(r"failed attempts?.*ago.*\w"))


def test_what_waits_is_for_admins_and_of_destinations_that_are_there(
    service: ginnel.Service,
) -> None:
    shop = Shop(service)
    for key, id, status in [
        (service.api_key, shop.destination.id, 200),
        (service.api_key, "ed_" + "0" * 27, 404),
        (shop.bot_key, shop.destination.id, 403),
    ]:
        console = ConsoleClient(service)
        console.log_in(key)
        answer = console.send("GET", f"/console/data/deliveries?id={id}")
        assert answer.status == status, answer.body
        if status == 200:
            assert answer.json() == {
                "count": 0,
                "bytes": 0,
                "oldest_at": None,
                "last_failure": None,
            }
