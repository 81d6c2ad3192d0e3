"""The console in a real browser: what people do with it, by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import wait_until
from consoling import Shop, focus, heading, open_console, press, show


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.fixture
def page(browser: Browser, service: ginnel.Service) -> Iterator[Page]:
    with open_console(browser, service) as page:
        yield page


def test_an_ip_policy_is_made_changed_and_deleted_by_keyboard(
    service: ginnel.Service, page: Page
) -> None:
    policies = service.client().ip_policies
    press(page, "IP policies", "link")
    heading(page, "IP policies")

    press(page, "Create…")
    page.keyboard.type("Office")
    page.keyboard.press("Enter")
    heading(page, "Office")
    press(page, "Add a rule…")
    focus(page, "CIDR (required)", "textbox")
    page.keyboard.type("10.0.0.1/8")
    focus(page, "Action (required)", "combobox")
    page.keyboard.type("allow")
    press(page, "Create")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(
        "The service refuses a field."
    )
    expect(page.get_by_role("textbox", name="CIDR (required)")).to_be_focused()
    field = page.locator("dialog .field", has_text="CIDR (required)")
    expect(field.locator(".problem")).to_contain_text("write 10.0.0.0/8")
    page.keyboard.press("Control+a")
    page.keyboard.type("10.0.0.0/8")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Rules")).to_contain_text("10.0.0.0/8")

    press(page, "Change…")
    page.keyboard.press("Control+a")
    page.keyboard.type("Office and home")
    page.keyboard.press("Enter")
    heading(page, "Office and home")
    assert [policy.description for policy in policies.list()] == ["Office and home"]
    press(page, "Delete…")
    press(page, "Delete")
    heading(page, "IP policies")
    expect(page.get_by_text("No IP policies yet")).to_be_visible()
    assert policies.list().first() is None


def test_the_token_of_a_new_key_is_shown_once(service: ginnel.Service, page: Page) -> None:
    press(page, "API keys", "link")
    heading(page, "API keys")
    press(page, "Create…")
    focus(page, "Description", "textbox")
    page.keyboard.type("ci")
    page.keyboard.press("Enter")

    token = page.locator("pre.secret").inner_text()
    assert ginnel.RemoteClient(token, base_url=service.url).api_keys.list().first()
    press(page, "I have kept it")
    heading(page, "ci")
    page.reload()
    heading(page, "ci")
    assert token not in page.content()


def test_a_policy_is_written_tried_and_stored_by_keyboard(
    service: ginnel.Service, page: Page
) -> None:
    shop = Shop(service)
    page.evaluate(
        "(view) => { location.hash = view; }",
        f"#/edges.https/{shop.edge.id}/routes/{shop.route.id}",
    )
    heading(page, "/")
    press(page, "Change Traffic policy")
    editor = page.get_by_role("textbox", name="Policy, in YAML or JSON")
    expect(editor).to_be_focused()
    expect(editor).to_have_value(re.compile("no deletions"))
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(
        "inbound:\n  - name: no puts\n    expressions:\n      - req.metod == 'PUT'\n"
        "    actions:\n      - type: deny\n        config:\n          status_code: 405\n"
    )
    expect(page.locator("#policy-state")).to_have_text("1 problem")
    press(page, "Line 4")
    expect(editor).to_be_focused()
    assert page.evaluate("getSelection().toString()") == "      - req.metod == 'PUT'"
    page.keyboard.insert_text("      - req.method == 'PUT'")
    expect(page.locator("#policy-state")).to_contain_text("Nothing is wrong")

    focus(page, "Method", "textbox")
    page.keyboard.press("Control+a")
    page.keyboard.type("PUT")
    page.keyboard.press("Enter")
    expect(page.locator(".outcome")).to_have_text(
        "is answered by the policy by deny of no puts in on_http_request"
    )
    assert shop.visit("/", "PUT") == 200
    press(page, "Save")
    expect(page.get_by_role("dialog")).to_have_count(0)
    heading(page, "/")
    assert (shop.visit("/", "PUT"), shop.visit("/", "DELETE")) == (405, 200)


def test_a_module_is_set_and_removed_by_keyboard(service: ginnel.Service, page: Page) -> None:
    shop = Shop(service)
    page.evaluate(
        "(view) => { location.hash = view; }",
        f"#/edges.https/{shop.edge.id}/routes/{shop.route.id}",
    )
    heading(page, "/")
    press(page, "Set IP restriction")
    page.keyboard.type(shop.networks.id)
    press(page, "Save")
    row = page.get_by_role("row", name=re.compile("IP restriction"))
    expect(row).to_contain_text("Office networks")
    assert shop.visit() == 403

    press(page, "Remove IP restriction")
    press(page, "Remove")
    expect(row).to_contain_text("not set")
    assert shop.visit() == 200


def test_an_edge_and_a_route_are_made_by_keyboard(service: ginnel.Service, page: Page) -> None:
    shop = Shop(service)
    press(page, "HTTPS edges", "link")
    press(page, "Create…")
    focus(page, "Hostports", "textbox")
    page.keyboard.type("new.test")
    press(page, "Create")
    field = page.locator("dialog .field", has_text="Hostports")
    expect(field.locator(".problem")).not_to_be_empty()
    expect(field.get_by_role("textbox")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Control+a")
    page.keyboard.type("new.test:443")
    press(page, "Create")
    heading(page, "new.test:443")

    page.get_by_role("button", name="Add a route…").first.focus()
    page.keyboard.press("Enter")
    focus(page, "Match type (required)", "combobox")
    page.keyboard.type("path_prefix")
    focus(page, "Match (required)", "textbox")
    page.keyboard.type("/")
    page.locator("summary", has_text="Where requests go.").focus()
    page.keyboard.press("Enter")
    focus(page, "Backend", "combobox")
    page.keyboard.type(shop.greeting.id)
    press(page, "Create")
    heading(page, "/")
    assert shop.visit(host="new.test") == 200


def test_traffic_appears_as_it_happens_and_is_filtered(service: ginnel.Service, page: Page) -> None:
    shop = Shop(service)
    press(page, "Live traffic", "link")
    expect(page.get_by_text("Waiting for traffic")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    shop.visit("/one")
    shop.visit("/two", "DELETE")
    rows = page.locator("#rows .row")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("no deletions")

    grid = page.get_by_role("grid", name="Traffic")
    grid.focus()
    page.keyboard.press("ArrowDown")
    detail = page.get_by_role("complementary", name="The event")
    expect(detail).to_contain_text("DELETE /two")
    expect(detail).to_contain_text("no deletions")
    page.keyboard.press("Enter")
    press(page, shop.edge.id, "link")
    heading(page, "shop.test:443")
    press(page, "Traffic", "link")
    expect(page.get_by_role("searchbox", name="Edge or route")).to_have_value(shop.edge.id)
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    shop.visit("/three")
    expect(rows).to_have_count(1)
    press(page, "Pause")
    shop.visit("/four")
    expect(page.get_by_role("status").filter(has_text="1 waiting")).to_be_visible()
    expect(rows).to_have_count(1)
    page.keyboard.press("Enter")
    expect(rows).to_have_count(2)

    focus(page, "Status", "searchbox")
    page.keyboard.type("odd")
    page.keyboard.press("Enter")
    expect(page.locator("main > .view > .problem")).to_contain_text("status")


def test_a_list_follows_what_others_change(service: ginnel.Service, page: Page) -> None:
    policies = service.client().ip_policies
    kept = policies.create(description="Kept")
    gone = policies.create(description="Gone")
    press(page, "IP policies", "link")
    rows = page.locator("#rows .row")
    expect(rows).to_have_count(2)
    page.get_by_role("grid", name="IP policies").focus()
    page.keyboard.press("End")
    expect(page.locator("#rows .row[aria-selected=true]")).to_have_text(re.compile("Kept"))

    policies.delete(gone.id)
    policies.update(kept.id, description="Kept and changed")
    policies.create(description="New")

    expect(rows).to_have_text([re.compile("New"), re.compile("Kept and changed")])
    expect(page.locator("#rows .row[aria-selected=true]")).to_have_text(re.compile("Kept"))


def test_an_agent_is_stopped_by_keyboard(service: ginnel.Service, page: Page) -> None:
    with ginnel.Agent(service) as agent:
        agent.client().tunnels.start(name="web", proto="http", addr=9)
        press(page, "Agents", "link")
        expect(page.locator("#rows .row")).to_have_count(1)
        page.get_by_role("grid", name="Agents").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("table", name="Tunnels")).to_be_visible()
        expect(page.get_by_role("button", name="Change…")).to_have_count(0)
        press(page, "Stop…")
        press(page, "Stop")
        heading(page, "Agents")
        expect(page.get_by_text("No Agents yet")).to_be_visible()


def test_who_logs_out_or_whose_session_ends_sees_nothing_any_more(
    service: ginnel.Service, page: Page
) -> None:
    press(page, "Account")
    press(page, "Log out")
    heading(page, "Console")
    expect(page.get_by_role("navigation", name="Sections")).to_be_hidden()
    page.reload()
    heading(page, "Console")
    assert service.api_key
    page.keyboard.type("not a key")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not have the form of an API key")
    page.keyboard.type(service.api_key)
    page.keyboard.press("Enter")
    heading(page, "Overview")
    page.evaluate("localStorage.setItem('ginnel.console.token', '\"gone\"')")
    press(page, "Bot users", "link")
    heading(page, "Console")
    expect(page.get_by_role("alert")).to_contain_text("The session is over")


def test_ten_thousand_things_scroll_and_are_filtered(service: ginnel.Service, page: Page) -> None:
    with ThreadPoolExecutor(16) as workers:
        create = service.client().ip_policies.create
        descriptions = [f"policy {number:05}" for number in range(10_000)]
        list(workers.map(lambda description: create(description=description), descriptions))
    press(page, "IP policies", "link")
    count = page.locator(".list-tools [role=status]")
    for loaded in range(1000, 10_000, 1000):
        expect(count).to_have_text(f"{loaded} loaded, there are more")
        page.get_by_role("button", name="Load more").click()
    expect(count).to_have_text("10000 in all")
    assert page.locator("#rows .row").count() < 100
    page.get_by_role("grid", name="IP policies").focus()
    page.keyboard.press("End")
    wait_until(page, "document.querySelector('#list').scrollTop > 200000")
    expect(page.locator("#rows .row.chosen")).to_be_visible()
    page.get_by_role("searchbox").fill("policy 01234")
    expect(count).to_have_text("1 of 10000 in all")


def test_a_bot_user_sees_what_is_for_it(browser: Browser, service: ginnel.Service) -> None:
    shop = Shop(service)

    with open_console(browser, service, shop.bot_key) as page:
        expect(page.get_by_role("link", name="Audit")).to_have_count(0)
        expect(page.get_by_role("link", name="Live traffic")).to_have_count(0)
        show(page, "audit_events", "Audit")
        expect(page.get_by_text("Audit cannot be shown")).to_be_visible()
        show(page, "edges.https", "HTTPS edges")
        expect(page.locator("#rows .row")).to_have_count(1)
