"""The console in a real browser: what it shows is so, and nothing that people write is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import ginnel
from consoling import ConsoleClient, Shop, open_console, show

DENY = """
  - name: no deletions
    expressions:
      - req.method == 'DELETE'
    actions:
      - type: deny
        config:
          status_code: 410
"""
SPELLED = """OnHttpRequest:
  - Name: no deletions
    Expressions: ["req.method == 'DELETE'"]
    Actions:
      - Type: deny
        Config: {StatusCode: 410}
"""


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.fixture
def shop(service: ginnel.Service) -> Shop:
    return Shop(service)


@pytest.fixture
def page(browser: Browser, service: ginnel.Service, shop: Shop) -> Iterator[Page]:
    with open_console(browser, service) as page:
        yield page


def open_module(page: Page, shop: Shop, name: str) -> Locator:
    show(page, f"edges.https/{shop.edge.id}/routes/{shop.route.id}", "/")
    page.get_by_role("button", name=name, exact=True).click()
    return page.get_by_role("dialog")


def save_policy(page: Page, dialog: Locator, text: str) -> None:
    dialog.get_by_role("textbox", name="Policy, in YAML or JSON").fill(text)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".toast").last).to_contain_text("Saved")


@pytest.mark.parametrize(
    "text", [f"inbound:{DENY}", f"on_http_request:{DENY}", "on_http_response: []\n", SPELLED]
)
def test_each_name_of_a_phase_is_stored_with_effect(page: Page, shop: Shop, text: str) -> None:
    dialog = open_module(page, shop, "Change Traffic policy")

    save_policy(page, dialog, text)

    is_rule = "deletions" in text
    assert shop.visit("/", "DELETE") == (410 if is_rule else 200)
    route = shop.service.client().edges.https.routes.get(shop.edge.id, shop.route.id)
    assert route.policy
    assert bool(route.policy.inbound) == is_rule


def test_a_policy_whose_document_says_that_it_is_off_is_stored_as_off(
    page: Page, shop: Shop
) -> None:
    dialog = open_module(page, shop, "Change Traffic policy")

    save_policy(page, dialog, f"enabled: false\ninbound:{DENY}")

    assert shop.visit("/", "DELETE") == 200
    dialog = open_module(page, shop, "Change Traffic policy")
    expect(dialog.get_by_label("The policy is applied")).not_to_be_checked()
    expect(dialog.get_by_role("textbox", name="Policy, in")).to_have_value(re.compile("deletions"))


def test_a_phase_that_edges_do_not_have_is_refused_before_it_is_saved(
    page: Page, shop: Shop
) -> None:
    dialog = open_module(page, shop, "Change Traffic policy")

    dialog.get_by_role("textbox", name="Policy, in YAML or JSON").fill(f"on_tcp_connect:{DENY}")
    dialog.get_by_role("button", name="Save").click()

    expect(dialog.get_by_role("alert").last).to_contain_text("nothing was saved")
    expect(dialog.locator(".problems")).to_contain_text("not available on edges")
    assert shop.visit("/", "DELETE") == 403


def test_a_policy_as_one_document_has_the_editor_and_keeps_its_text(page: Page, shop: Shop) -> None:
    dialog = open_module(page, shop, "Remove Traffic policy")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("button", name="Set Traffic policy", exact=True)).to_be_visible()
    dialog = open_module(page, shop, "Set Traffic policy as one document")
    editor = dialog.get_by_role("textbox", name="Policy, in YAML or JSON")
    editor.fill("on_http_request: [{}]")
    expect(dialog.locator(".problems")).to_contain_text("Line 1")
    text = f"# Orders stay.\non_http_request:{DENY}"

    save_policy(page, dialog, text)

    assert shop.visit("/", "DELETE") == 410
    row = page.get_by_role("row").filter(has=page.get_by_text("Traffic policy", exact=True))
    expect(row).to_contain_text("Traffic policy as one document is set instead")
    dialog = open_module(page, shop, "Change Traffic policy as one document")
    expect(editor).to_have_value(text)


def test_a_header_without_a_colon_is_no_header(page: Page) -> None:
    show(page, "policy", "Try a policy")
    page.locator("summary", has_text="Headers and body").click()
    page.get_by_label("Headers", exact=True).fill("X-Fine: yes\nnonsense")

    page.get_by_role("button", name="Try it").click()

    expect(page.locator(".result")).to_have_text(
        'Headers, line 2: "nonsense" is no header: write name: value'
    )


@pytest.mark.parametrize("view", ["overview", "edges.https", "policy"])
def test_every_view_says_that_the_service_is_away_and_when_it_is_back(
    page: Page, view: str
) -> None:
    page.evaluate("(view) => { location.hash = view; }", f"#/{view}")
    trouble = page.locator("#trouble")
    expect(trouble).to_be_hidden()

    page.context.set_offline(True)

    expect(trouble).to_have_text(re.compile(r"cannot be reached since \d\d:\d\d:\d\d"))
    if view == "overview":
        expect(page.get_by_text("the service is ready")).to_have_count(0)
    page.context.set_offline(False)
    expect(trouble).to_be_hidden()
    expect(page.locator(".toast")).to_contain_text("The service is back")


def test_a_filter_shows_what_has_come_already_and_none_shows_all_again(
    page: Page, shop: Shop
) -> None:
    show(page, "traffic", "Traffic")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    for path, method in [("/one", "GET"), ("/two", "DELETE"), ("/three", "GET")]:
        shop.visit(path, method)
    rows = page.locator("#rows .row")
    expect(rows).to_have_count(3)
    rows.first.click()
    detail = page.get_by_role("complementary", name="The event")
    expect(detail).to_contain_text("/three")

    def filtered(name: str, text: str) -> None:
        page.get_by_role("button", name="No filter").click()
        expect(rows).to_have_count(3)
        page.get_by_role("searchbox", name=name, exact=True).fill(text)
        page.get_by_role("button", name="Filter", exact=True).click()

    filtered("Status", "4xx")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("/two")
    expect(detail).to_be_hidden()
    filtered("Source", "127.0.0.0/8")
    expect(rows).to_have_count(3)
    filtered("Source", "192.0.2.0/24")
    expect(page.get_by_text("Nothing matches the filter")).to_be_visible()
    filtered("Rule", "deletions")
    expect(rows).to_have_count(1)
    rows.first.click()
    expect(detail).to_contain_text("req.method == 'DELETE'")


@pytest.mark.parametrize("width", [380, 768, 1280, 1920])
def test_no_control_of_the_filter_is_cut_off(
    browser: Browser, service: ginnel.Service, width: int
) -> None:
    with open_console(browser, service, viewport={"width": width, "height": 900}) as page:
        show(page, "traffic?host=shop", "Traffic")

        box = page.get_by_role("button", name="No filter").bounding_box()

        assert box
        assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("width", [380, 768, 1024, 1280, 1920])
def test_the_figures_of_the_overview_fill_their_rows(
    browser: Browser, service: ginnel.Service, width: int
) -> None:
    with open_console(browser, service, viewport={"width": width, "height": 900}) as page:
        tops = page.evaluate(
            "[...document.querySelectorAll('.tile')].map((it) => it.getBoundingClientRect().top)"
        )

        rows = [tops.count(top) for top in sorted(set(tops))]

        assert rows in ([6], [3, 3], [2, 2, 2])


def test_a_token_that_is_shown_once_stays_until_somebody_says_that_it_is_kept(page: Page) -> None:
    show(page, "api_keys", "API keys")
    page.get_by_role("button", name="Create…").first.click()
    page.get_by_role("dialog").get_by_label("Description").fill("ci")
    page.keyboard.press("Enter")
    secret = page.locator("pre.secret")
    expect(secret).to_be_visible()

    for _ in range(3):
        page.keyboard.press("Escape")

    expect(secret).to_be_visible()
    expect(page.get_by_text("It is not shown again")).to_be_visible()
    page.get_by_role("button", name="I have kept it").click()
    expect(secret).to_have_count(0)


@pytest.mark.parametrize(
    ("view", "title", "field", "text", "problem"),
    [
        ("edges.https", "HTTPS edges", "Hostports", "bad host!!:443", "not a host name"),
        ("edges.https", "HTTPS edges", "Hostports", "no-port", "has no port"),
        ("edges.https", "HTTPS edges", "Hostports", "a.example:99999", "from 1 to 65535"),
        ("edges.https", "HTTPS edges", "Hostports", "a.example:443\n*.b.example:443", ""),
        ("ip_policy_rules", "IP policy rules", "CIDR", "300.1.2.3/99", "CIDR notation"),
        ("ip_policy_rules", "IP policy rules", "CIDR", "10.0.0.1/8", "they must be 0"),
        ("ip_policy_rules", "IP policy rules", "CIDR", "2001:db8::/32", ""),
        ("backends.static", "Static addresses", "Address", "app.example", "has no port"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_while_somebody_types(
    page: Page, view: str, title: str, field: str, text: str, problem: str
) -> None:
    show(page, view, title)
    page.get_by_role("button", name="Create…").first.click()
    control = page.get_by_role("dialog").get_by_role("textbox", name=field).first

    control.fill(text)

    words = page.locator("dialog .field", has_text=field).first.locator(".problem")
    expect(words).to_have_text(re.compile(re.escape(problem)) if problem else "")


def test_one_of_a_few_words_is_chosen(page: Page, shop: Shop) -> None:
    show(page, "ip_policy_rules", "IP policy rules")
    page.get_by_role("button", name="Create…").first.click()
    action = page.get_by_role("dialog").get_by_role("combobox", name="Action")
    assert action.locator("option").all_inner_texts() == ["Choose one", "allow", "deny"]
    page.keyboard.press("Escape")

    show(page, f"edges.https/{shop.edge.id}", "shop.test:443")
    page.get_by_role("button", name="Add a route…").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", level=2)).to_have_text("New route")
    expect(dialog.locator("summary")).to_contain_text(["Backend", "OpenID Connect"])
    dialog.get_by_role("combobox", name="Match type").select_option("exact path")


def test_agents_are_listed_with_their_tunnels_and_how_far_they_are(
    page: Page, service: ginnel.Service
) -> None:
    with ginnel.Agent(service) as agent:
        agent.client().tunnels.start(name="web", proto="http", addr=9)
        show(page, "tunnel_sessions", "Agents")

        row = page.locator("#rows .row").first

        expect(row).to_contain_text(re.compile(r"1\s*\d+(\.\d+)? ms"))
        row.get_by_role("link").click()
        expect(page.locator(".facts")).to_contain_text(re.compile(r"Latency\s*\d+(\.\d+)? ms"))
        console = ConsoleClient(service)
        console.log_in(service.api_key)
        (figure,) = console.send("GET", "/console/data/agents").json()["agents"].values()
        assert figure["tunnels"] == 1
        assert figure["latency_ms"] > 0


def test_the_last_changes_are_told_in_words_and_logins_are_none(page: Page) -> None:
    changes = page.locator(".events li")
    expect(changes.first).to_be_visible()

    texts = json.dumps(changes.all_inner_texts())

    assert "Created a TLS edge" in texts
    assert not re.search(r"console\.|\w\.\w+\.\w", texts)
