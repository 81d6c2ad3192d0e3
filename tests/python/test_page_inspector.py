"""The web inspection page in a real browser: reaching tunnels, the list, and bodies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import House, Local, Watch, choose, rows, serving, tab, wait_until

CODES = json.loads((Path(__file__).parent.parent / "data" / "qr.json").read_text())


def titles(page: Page) -> list[str]:
    return page.locator("#list .head [role=columnheader]").all_inner_texts()


def paths(page: Page) -> list[str]:
    return page.locator("#rows .target").all_inner_texts()


def accessible(page: Page) -> None:
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()


# ── Reaching the tunnels ─────────────────────────────────────────────────────────────────────────


def test_a_page_without_requests_says_how_to_send_one(house: House, page: Page) -> None:
    url = house.tunnel.public_url or ""
    block = page.locator("#start")
    expect(block).to_contain_text("Waiting for the first request")
    expect(block.locator(".start-url code")).to_have_text(url)
    expect(block.locator(".start-curl code")).to_have_text(f"curl -i '{url}/'")
    expect(block.get_by_role("img", name=f"QR code of {url}")).to_be_visible()
    expect(page.locator("#list")).to_be_hidden()
    accessible(page)

    block.get_by_role("button", name=f"Copy {url}").focus()
    page.keyboard.press("Enter")
    wait_until(page, "(url) => navigator.clipboard.readText().then((t) => t === url)", url)
    with page.context.expect_page() as opened:
        block.get_by_role("link", name="Send a test request").click()
    opened.value.close()

    expect(rows(page).first).to_be_visible()
    expect(block).not_to_have_attribute("open", "")
    expect(block.locator("summary")).to_contain_text(url)
    block.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(block.locator(".start-url")).to_be_visible()


def test_a_page_without_tunnels_says_how_to_start_one(house: House, page: Page) -> None:
    house.client.tunnels.stop("web")

    expect(page.locator("#start")).to_contain_text("No tunnel runs")


@pytest.mark.parametrize("code", CODES, ids=lambda code: f"version {(len(code['rows']) - 17) // 4}")
def test_codes_are_those_of_an_independent_encoder(page: Page, code: dict[str, Any]) -> None:
    drawn = page.evaluate(
        """async ({ text, mask }) => {
            const { matrix } = await import("/inspect/assets/qr.js");
            return matrix(text, mask).map((row) => row.map((dark) => dark ? "#" : ".").join(""));
        }""",
        code,
    )

    assert drawn == code["rows"]


def test_what_is_too_long_has_no_code(page: Page) -> None:
    longest = page.evaluate(
        """async () => {
            const { matrix } = await import("/inspect/assets/qr.js");
            return [213, 214].map((length) => matrix("x".repeat(length)) !== null);
        }"""
    )

    assert longest == [True, False]


def test_an_agent_without_service_says_so_and_when_it_tries_again(house: House, page: Page) -> None:
    expect(page.locator("#outage")).to_be_hidden()

    house.service.stop()

    expect(page.locator("#outage-reason")).to_contain_text("The agent has lost the service")
    expect(page.locator("#outage-next")).to_have_text(
        re.compile(r"Next attempt in \d+ s\.|Trying now\.")
    )
    accessible(page)
    page.get_by_role("link", name="Status", exact=True).click()
    expect(page.locator("#outage-reason")).to_contain_text("The agent has lost the service")


# ── The list ─────────────────────────────────────────────────────────────────────────────────────


def test_the_list_is_sorted_by_columns_with_keys(house: House, page: Page) -> None:
    for path in ("/b", "/status/500", "/a"):
        house.send(path)
    expect(rows(page)).to_have_count(3)
    column = page.get_by_role("columnheader", name="Path")

    column.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(column).to_have_attribute("aria-sort", "ascending")
    assert paths(page) == ["/a", "/b", "/status/500"]
    house.send("/0")
    expect(rows(page).first).to_contain_text("/0")
    page.keyboard.press("Enter")
    expect(column).to_have_attribute("aria-sort", "descending")
    expect(rows(page).first).to_contain_text("/status/500")
    page.reload()
    expect(rows(page)).to_have_count(4)
    assert paths(page) == ["/status/500", "/b", "/a", "/0"]
    column.get_by_role("button").click()
    expect(rows(page).first).to_contain_text("/0")
    assert paths(page) == ["/0", "/a", "/status/500", "/b"]


def test_columns_are_chosen_and_kept(house: House, page: Page) -> None:
    house.send("/hook")
    expect(rows(page)).to_have_count(1)
    assert "Duration" in titles(page)

    page.get_by_role("button", name="Columns").focus()
    page.keyboard.press("Enter")
    page.get_by_role("checkbox", name="Duration").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="Duration")).to_be_hidden()
    assert "Duration" not in titles(page)
    page.reload()
    expect(rows(page)).to_have_count(1)
    assert "Duration" not in titles(page)


@pytest.mark.parametrize("width", [380, 1280, 1920])
def test_the_path_has_room_on_every_screen(house: House, browser: Browser, width: int) -> None:
    house.send("/api/v2/customers/1841/invoices")
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(house.base)
    cell = rows(page).first.locator(".target")
    expect(cell).to_have_text("/api/v2/customers/1841/invoices")

    share = cell.evaluate("(cell) => cell.clientWidth / cell.closest('#list').clientWidth")
    assert share > (0.3 if width > 380 else 0.4), share
    assert cell.evaluate("(cell) => cell.clientWidth") > 130
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()


def test_a_narrow_page_has_two_rows_above_the_list_and_the_rest_in_menus(
    house: House, browser: Browser
) -> None:
    for number in range(3):
        house.send(f"/{number}", "POST")
    house.send("/status/500")
    context = browser.new_context(viewport={"width": 380, "height": 800})
    page = context.new_page()
    watch = Watch(page, house.base)
    page.goto(house.base)
    expect(rows(page)).to_have_count(4)
    press = page.keyboard.press
    shown = ["#filter-text", "#filter button", "#compose", "#pause", "#more", "#count"]

    def row_tops(*selectors: str) -> set[int]:
        """Where things begin, in rows as high as a tool."""
        boxes = [page.locator(it).first.bounding_box() for it in selectors]
        return {round(box["y"] / 36) for box in boxes if box}

    def open_more() -> None:
        page.locator("#more").focus()
        press("Enter")
        expect(page.locator("#folded .menu")).to_be_visible()

    assert len(row_tops(*shown)) == 2
    expect(page.locator("#seldom > *:visible, .chips > *:visible")).to_have_count(0)
    accessible(page)
    open_more()
    accessible(page)
    menu = page.locator("#folded .menu")
    expect(menu).to_contain_text("1 tunnel")
    page.get_by_role("checkbox", name="Time (no room)").focus()
    press("Space")
    page.get_by_role("checkbox", name="Times as an age").focus()
    press("Space")
    press("Escape")
    open_more()
    expect(menu.get_by_role("checkbox", name="Time", exact=True)).not_to_be_checked()
    expect(menu.get_by_role("checkbox", name="Times as an age")).to_be_checked()
    press("Escape")
    for name, dialog in [("Keys", "Keys"), ("Clear requests…", "Clear requests")]:
        open_more()
        menu.get_by_role("button", name=name).press("Enter")
        expect(page.get_by_role("dialog", name=dialog)).to_be_visible()
        press("Escape")
    open_more()
    with page.expect_download() as saved:
        menu.get_by_role("button", name="Export HAR").press("Enter")
    assert len(json.loads(Path(saved.value.path()).read_text())["log"]["entries"]) == 4
    open_more()
    with page.expect_file_chooser():
        menu.get_by_role("button", name="Import HAR…").press("Enter")
    expect(page.locator("#start")).to_be_hidden()
    open_more()
    menu.get_by_role("button", name="Addresses").press("Enter")
    expect(page.locator("#start summary")).to_be_focused()
    expect(page.locator("#start .start-url")).to_be_visible()
    press("Enter")
    expect(page.locator("#start")).to_be_hidden()

    page.get_by_role("button", name="Saved filters").press("Enter")
    page.get_by_role("checkbox", name="status:5xx").press("Space")
    expect(rows(page)).to_have_count(1)
    accessible(page)
    press("Escape")
    page.get_by_role("button", name="Saved filters").press("Enter")
    page.get_by_role("button", name="No filter").press("Enter")
    expect(rows(page)).to_have_count(4)

    press("j")
    press("x")
    expect(page.locator("#selection")).to_contain_text("1 selected")
    assert len(row_tops("#filter-text", "#selection strong", "#selection .menu-opener")) == 2
    accessible(page)
    page.locator("#selection").get_by_role("button", name="Copy as").press("Enter")
    with page.expect_download() as saved:
        page.get_by_role("button", name="HAR file").press("Enter")
    assert len(json.loads(Path(saved.value.path()).read_text())["log"]["entries"]) == 1
    page.get_by_role("button", name="Select none").press("Enter")
    expect(page.locator("#selection")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()
    assert not watch.wrong


def test_the_bar_between_list_and_request_is_moved_with_keys(house: House, page: Page) -> None:
    house.send("/hook")
    expect(rows(page)).to_have_count(1)
    bar = page.get_by_role("separator", name="Width of the list")
    before = page.locator("#listing").evaluate("(pane) => pane.clientWidth")

    bar.focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    expect(bar).to_have_attribute("aria-valuenow", "42")
    narrower = page.locator("#listing").evaluate("(pane) => pane.clientWidth")
    assert narrower < before
    page.reload()
    expect(bar).to_have_attribute("aria-valuenow", "42")


def test_several_requests_are_selected_and_compared_by_keyboard(house: House, page: Page) -> None:
    for path in ("/first", "/second", "/third"):
        house.send(path, "POST", b"hello")
    expect(rows(page)).to_have_count(3)
    press = page.keyboard.press

    press("j")
    press("x")
    press("Shift+J")
    expect(page.locator("#selection")).to_contain_text("2 selected")
    expect(page.locator("#rows [aria-selected=true]")).to_have_count(2)
    accessible(page)
    page.get_by_role("button", name="Compare").focus()
    press("Enter")
    compared = page.locator("#detail .compared")
    expect(compared).to_contain_text("- POST /second")
    expect(compared.locator(".removed").first).to_contain_text("POST /second")
    expect(compared.locator(".added").first).to_contain_text("POST /third")
    page.get_by_role("group", name="Selected requests").get_by_role(
        "button", name="Copy as"
    ).click()
    page.get_by_role("button", name="URL", exact=True).click()
    url = house.tunnel.public_url
    wait_until(page, "(t) => navigator.clipboard.readText().then((c) => c.includes(t))", "/third")
    assert page.evaluate("navigator.clipboard.readText()") == f"{url}/third\n{url}/second"
    with page.expect_download() as saved:
        page.locator("#selection").get_by_role("link", name="HAR").click()
    archive = json.loads(Path(saved.value.path()).read_text())
    assert len(archive["log"]["entries"]) == 2
    page.locator("#list").focus()
    press("Escape")
    expect(page.locator("#selection")).to_be_hidden()


def test_an_archive_has_secrets_only_while_they_are_shown(house: House, page: Page) -> None:
    house.send("/secret", "POST", b"hello", {"Authorization": "Bearer abcdef"})
    choose(page, "/secret")
    link = page.locator("#selection").get_by_role("link", name="HAR")

    for name, is_shown in [("Show secrets", True), ("Hide secrets", False)]:
        page.get_by_role("button", name=name).click()
        expect(tab(page, "Request", "Headers")).to_contain_text("abcdef" if is_shown else "••••••")
        if is_shown:
            page.locator("#list").focus()
            page.keyboard.press("x")
        with page.expect_download() as saved:
            link.click()
        assert ("abcdef" in Path(saved.value.path()).read_text()) is is_shown
        expect(link).not_to_have_attribute("href", re.compile("reveal"))


def test_rows_are_selected_with_the_mouse(house: House, page: Page) -> None:
    for number in range(5):
        house.send(f"/{number}")
    expect(rows(page)).to_have_count(5)

    rows(page).nth(1).click(modifiers=["ControlOrMeta"])
    rows(page).nth(3).click(modifiers=["Shift"])
    expect(page.locator("#selection")).to_contain_text("3 selected")
    rows(page).nth(2).locator(".select").click()
    expect(page.locator("#selection")).to_contain_text("2 selected")
    house.client.requests.clear()
    expect(page.locator("#selection")).to_be_hidden()


def test_selected_requests_are_deleted_by_keyboard(house: House, page: Page) -> None:
    for path in ("/one", "/two", "/three"):
        house.send(path)
    expect(rows(page)).to_have_count(3)
    press = page.keyboard.press
    press("j")
    press("x")
    press("Shift+J")

    page.locator("#selection").get_by_role("button", name="Delete").press("Enter")
    accessible(page)
    page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")

    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("/one")
    assert [kept.request.uri for kept in house.client.requests.list()] == ["/one"]
    expect(page.locator("#count")).to_have_text("1 requests")


def test_a_request_that_another_program_deletes_leaves_the_list(house: House, page: Page) -> None:
    house.send("/one")
    house.send("/two")
    expect(rows(page)).to_have_count(2)

    house.client.requests.delete(house.newest())

    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("/one")


def test_times_are_shown_as_they_are_or_as_an_age(house: House, page: Page) -> None:
    house.send("/hook")
    when = rows(page).first.locator(".time")
    expect(when).to_have_text(re.compile(r"^\d\d:\d\d:\d\d\.\d{3}$"))

    page.get_by_role("button", name="Age").click()

    expect(when).to_have_text(re.compile(r"^\d+ s$"))
    expect(when.locator("time")).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d "))


def test_a_word_that_is_none_gets_a_hint_with_the_nearest(house: House, page: Page) -> None:
    house.send("/hook", "POST")
    house.send("/hook")
    filtering = page.get_by_role("searchbox", name="Filter")
    hint = page.locator("#suggestion")

    filtering.fill("metod:POST")
    filtering.press("Enter")
    expect(hint).to_contain_text("“metod:” is no word of filters")
    accessible(page)
    hint.get_by_role("button", name="method:").focus()
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(filtering).to_have_value("method:POST")
    expect(hint).to_be_empty()
    filtering.fill("is:reply")
    filtering.press("Enter")
    expect(hint.get_by_role("button", name="is:replay")).to_be_visible()
    filtering.fill("path:/none")
    filtering.press("Enter")
    expect(page.locator("#nothing")).to_contain_text("No request matches the filter")
    page.get_by_role("button", name="Show all requests").click()
    expect(rows(page)).to_have_count(2)


def test_filters_are_saved_and_forgotten_by_keyboard(house: House, page: Page) -> None:
    house.send("/hook", "POST")
    house.send("/hook")
    filtering = page.get_by_role("searchbox", name="Filter")
    saved = page.get_by_role("button", name="Saved filters")
    filtering.fill("method:POST")
    filtering.press("Enter")

    saved.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save this filter…").press("Enter")
    page.get_by_label("Name").fill("<b>posts</b>")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(house.base)
    expect(rows(page)).to_have_count(2)
    saved.press("Enter")
    page.get_by_role("button", name="<b>posts</b>").first.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(filtering).to_have_value("method:POST")
    saved.press("Enter")
    page.get_by_role("button", name="Forget the filter <b>posts</b>").press("Enter")
    page.keyboard.press("Escape")
    saved.press("Enter")
    expect(page.locator(".menu:popover-open")).to_contain_text("No filter was saved yet")


# ── Bodies ───────────────────────────────────────────────────────────────────────────────────────

JSON = {"Content-Type": "application/json"}


def test_bodies_are_folded_and_searched_by_keyboard(house: House, page: Page) -> None:
    content = {"order": {"id": 1, "lines": [{"sku": "A"}, {"sku": "B"}]}, "note": "b"}
    house.send("/json", "POST", json.dumps(content).encode(), JSON)
    choose(page, "/json")
    panel = page.locator("#Request-panel")
    expect(panel.locator(".t-key").first).to_have_text('"order"')
    first = panel.get_by_role("button", name="Line 1", exact=True)

    first.focus()
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_role("button", name="Line 2", exact=True)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(panel.get_by_role("button", name="Line 2", exact=True)).to_have_attribute(
        "aria-expanded", "false"
    )
    expect(panel.locator(".ln", has_text='"sku": "A"')).to_be_hidden()
    expect(panel.locator(".ln", has_text='"note"')).to_be_visible()
    find = panel.get_by_role("textbox", name="Find in the body")
    find.fill('"sku": "b"')
    expect(panel.get_by_role("status")).to_have_text("1 of 1")
    expect(panel.locator(".ln", has_text='"sku": "B"')).to_be_visible()
    find.fill('"')
    expect(panel.get_by_role("status")).to_have_text(re.compile(r"^1 of \d\d$"))
    find.press("Enter")
    expect(panel.get_by_role("status")).to_have_text(re.compile(r"^2 of"))
    find.fill("absent")
    expect(panel.get_by_role("status")).to_have_text("not found")
    accessible(page)


def test_words_found_in_one_body_stay_while_another_is_searched(house: House, page: Page) -> None:
    house.send("/json", "POST", b'{"a": "b"}', JSON)
    choose(page, "/json")
    for part in ("Request", "Response"):
        panel = page.locator(f"#{part}-panel")
        panel.get_by_role("textbox", name="Find in the body").fill('"a"')
        expect(panel.get_by_role("status")).to_have_text("1 of 1")

    assert page.evaluate("CSS.highlights.get('found').size") == 2
    assert page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map(({ id }) => id)).size"
    ) == (page.evaluate("document.querySelectorAll('[id]').length"))


NO_JSON = [
    ("application/graphql", b"{ user { id } }", "{ user { id } }"),
    ("text/plain", b"[2026-11-26] started", "[2026-11-26] started"),
    ("text/javascript", b"[a, b].map(c)", "[a, b].map(c)"),
    ("application/x-ndjson", b'{"a":1}\n{"b":[2]}\n', '{\n  "a": 1\n}\n{\n  "b": [\n    2\n  ]\n}'),
    ("text/plain", b'{"a":1}\n{"b":2}\n', '{\n  "a": 1\n}\n{\n  "b": 2\n}'),
    ("text/plain", b'{"a":1}', '{\n  "a": 1\n}'),
]


@pytest.mark.parametrize(("media_type", "body", "shown"), NO_JSON)
def test_what_only_begins_like_json_is_not_called_wrong(
    house: House, page: Page, media_type: str, body: bytes, shown: str
) -> None:
    house.send("/body", "POST", body, {"Content-Type": media_type})
    choose(page, "/body")
    panel = page.locator("#Request-panel")

    expect(panel.locator(".viewer")).to_have_text(shown)
    expect(panel.locator(".problem")).to_have_count(0)


def test_a_line_that_is_no_json_is_named_among_others(house: House, page: Page) -> None:
    house.send("/body", "POST", b'{"a":1}\nnone\n', {"Content-Type": "application/x-ndjson"})
    choose(page, "/body")

    expect(page.locator("#Request-panel .problem")).to_have_text("Not JSON: line 2.")


def test_trailers_and_bytes_are_edited_before_a_replay(house: House, page: Page) -> None:
    house.send("/bytes", "POST", b"\x00\xff")
    choose(page, "/bytes")
    page.get_by_role("button", name="Edit and replay").press("Enter")
    body = page.get_by_label("Body", exact=True)
    expect(body).to_have_value("00 ff")
    accessible(page)
    body.fill("00 f")
    page.get_by_role("button", name="Send", exact=True).press("Enter")
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_have_text("Body: line 1 has an odd number of digits.")
    body.fill("00 01 fe")
    trailers = page.get_by_label("Trailers, one on each line")
    trailers.fill("Content-Length: 3")
    page.get_by_role("button", name="Send", exact=True).press("Enter")
    expect(alert).to_contain_text("trailers: Content-Length must not come after a body")
    trailers.fill("X-Sum: 7")
    page.get_by_role("button", name="Send", exact=True).press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)

    sent = house.client.requests.get(house.newest())
    assert sent.replay_of
    assert sent.request.body == b"\x00\x01\xfe"
    assert sent.request.trailers == {"X-Sum": ["7"]}


def test_a_column_that_is_asked_for_has_room(house: House, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    house.send("/a")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Type").check()

    expect(page.get_by_role("columnheader", name="Type")).to_be_visible()
    for title in ("Method", "Duration"):
        page.get_by_role("button", name=title, exact=True).click()
        header = page.get_by_role("columnheader", name=title)
        expect(header).to_have_attribute("aria-sort", "ascending")
        assert header.evaluate("it => it.scrollWidth <= it.clientWidth"), title


def test_graphql_is_shown_as_it_was_written(house: House, page: Page) -> None:
    written = "query Order($id: ID!) {\n  order(id: $id) { total }\n}"
    call = {"query": written, "variables": {"id": 7}}
    house.send("/graphql", "POST", json.dumps(call).encode(), JSON)
    choose(page, "/graphql")
    panel = page.locator("#Request-panel")

    expect(panel.locator("pre").first).to_have_text(written)
    expect(panel.locator(".t-word").first).to_have_text("query")
    expect(panel.locator("pre").nth(1)).to_contain_text('"id": 7')


def test_parts_of_forms_are_shown_as_what_they_are(house: House, page: Page) -> None:
    def part(head: str, body: bytes) -> bytes:
        return f"--B\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + body + b"\r\n"

    body = part('name="title"', b"hello") + part(
        'name="data"; filename="<img src=x onerror=alert(1)>.bin"', bytes(range(256))
    )
    body += part('name="meta"\r\nContent-Type: application/json', b'{"a":1}') + b"--B--\r\n"
    house.send("/form", "POST", body, {"Content-Type": "multipart/form-data; boundary=B"})
    choose(page, "/form")
    panel = page.locator("#Request-panel")

    expect(panel.locator("h4")).to_have_text(["title", "data", "meta"])
    expect(panel.locator(".multipart").nth(1)).to_contain_text("“<img src=x onerror=alert(1)>.bin”")
    expect(panel.locator(".multipart").nth(1).locator(".hex")).to_contain_text("000000f0  f0 f1")
    expect(panel.locator(".multipart").nth(2).locator(".viewer")).to_have_text('{\n  "a": 1\n}')


def test_documents_are_saved_and_never_opened(house: House, page: Page) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    house.send("/picture", "POST", svg, {"Content-Type": "image/svg+xml"})
    house.send("/paper", "POST", b"%PDF-1.4 \xff\xfe", {"Content-Type": "application/pdf"})
    for path, name, sent in (
        ("/picture", "body.svg", svg),
        ("/paper", "body.pdf", b"%PDF-1.4 \xff\xfe"),
    ):
        choose(page, path)
        panel = tab(page, "Request", "Body")
        expect(panel.locator("img, embed, object, iframe")).to_have_count(0)
        with page.expect_download() as saved:
            panel.get_by_role("button", name=f"Save the body as {name}").click()
        assert saved.value.suggested_filename == name
        assert Path(saved.value.path()).read_bytes() == sent


def test_sound_has_a_player(house: House, page: Page) -> None:
    samples = bytes(8000)
    wave = b"RIFF" + (36 + len(samples)).to_bytes(4, "little") + b"WAVEfmt \x10\0\0\0\x01\0\x01\0"
    wave += (
        b"\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data" + len(samples).to_bytes(4, "little") + samples
    )
    house.send("/sound", "POST", wave, {"Content-Type": "audio/wav"})
    choose(page, "/sound")

    wait_until(page, "document.querySelector('#Request-panel audio')?.duration === 1")


def test_one_secret_header_is_shown_alone(house: House, page: Page) -> None:
    house.send("/hook", "GET", b"", {"Authorization": "Bearer abcdef", "Cookie": "a=ghijkl"})
    choose(page, "/hook")
    panel = tab(page, "Request", "Headers")
    expect(panel).to_contain_text("Bearer ••••••")

    panel.get_by_role("button", name="Show the value of Authorization").press("Enter")

    expect(panel).to_contain_text("Bearer abcdef")
    expect(panel).not_to_contain_text("ghijkl")


def test_the_part_that_was_looked_at_is_remembered(house: House, page: Page) -> None:
    house.send("/one", "POST", b"hello")
    house.send("/two", "POST", b"hello")
    selected = page.get_by_role("tablist", name="Request").locator("[aria-selected=true]")
    choose(page, "/one")
    expect(selected).to_have_text("Body 5 B")

    tab(page, "Request", "Raw")
    choose(page, "/two")
    expect(selected).to_have_text("Raw")
    page.reload()
    expect(selected).to_have_text("Raw")


# ── Traffic ──────────────────────────────────────────────────────────────────────────────────────


def test_traffic_is_plotted_and_a_time_is_chosen_with_keys(house: House, page: Page) -> None:
    for path in ("/a", "/a", "/status/500"):
        house.send(path)
    page.get_by_role("link", name="Traffic").click()
    plot = page.get_by_role("img", name=re.compile("^Requests, per second: now all"))
    expect(page.locator("#traffic")).to_contain_text("Of 3 captured requests.")
    expect(page.get_by_role("button", name="/a", exact=True)).to_be_visible()
    accessible(page)

    page.get_by_role("button", name="5 min", exact=True).press("Enter")
    expect(page.get_by_role("button", name="5 min", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    plot.focus()
    page.keyboard.press("Home")
    expect(page.locator(".plot-about").first).to_have_text(re.compile(r"^\d\d:\d\d:\d\d  all 0/s"))
    page.keyboard.press("Shift+End")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(r"/inspect/http\?filter=after%3A.*before%3A"))
    expect(rows(page)).to_have_count(3)
    page.go_back()
    page.get_by_role("button", name="500", exact=True).press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_role("searchbox", name="Filter")).to_have_value("status:500")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1920])
def test_new_views_are_accessible_on_every_screen(
    house: House, browser: Browser, scheme: Any, width: int
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(house.base)
    expect(page.locator("#start .start-url")).to_be_visible()
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    house.send("/json", "POST", b'{"a": [1, "b", null, true]}', JSON)
    house.send("/status/500")
    page.goto(f"{house.base}/inspect/traffic")
    expect(page.locator("#traffic")).to_contain_text("Of 2 captured requests.")
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.goto(f"{house.base}/inspect/http")
    choose(page, "/json")
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()


# ── What stays ───────────────────────────────────────────────────────────────────────────────────


def test_a_request_is_pinned_and_noted_by_keyboard(house: House, page: Page) -> None:
    house.send("/hook")
    choose(page, "/hook")
    page.keyboard.press("p")
    expect(page.locator("#pin")).to_have_attribute("aria-pressed", "true")
    expect(rows(page).first.locator("[title=pinned]")).to_be_visible()

    page.keyboard.press("n")
    note = page.get_by_role("textbox", name="Note")
    expect(note).to_be_focused()
    page.keyboard.type("<img src=x onerror=alert(1)>")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.locator("#note")).to_have_text("<img src=x onerror=alert(1)>")
    accessible(page)
    page.reload()
    expect(page.locator("#note")).to_have_text("<img src=x onerror=alert(1)>")
    page.locator("#pin").press("Enter")
    expect(page.locator("#pin")).to_have_attribute("aria-pressed", "false")


def test_pinned_requests_stay_in_the_list(browser: Browser) -> None:
    with (
        serving(Local) as local,
        ginnel.Service() as service,
        ginnel.Agent(service, inspect_db_size=60_000) as agent,
    ):
        house = House(service, agent, local)
        context = browser.new_context(viewport={"width": 1500, "height": 900})
        page = context.new_page()
        page.goto(house.base)
        house.send("/kept")
        choose(page, "/kept")
        page.keyboard.press("p")
        expect(page.locator("#pin")).to_have_attribute("aria-pressed", "true")

        for number in range(40):
            house.send(f"/{number}", "POST", b"x" * 2_000)

        expect(page.locator("#rows")).to_contain_text("/39")
        expect(page.locator("#room")).to_contain_text("evicted")
        column = page.get_by_role("columnheader", name="Path").get_by_role("button")
        column.click()
        column.click()
        expect(rows(page).first).to_contain_text("/kept")
        assert "/0" not in paths(page)
        page.get_by_role("searchbox", name="Filter").fill("is:pinned")
        page.keyboard.press("Enter")
        expect(rows(page)).to_have_count(1)
        context.close()


def test_an_archive_is_imported(house: House, page: Page, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    entry = {
        "startedDateTime": "2026-11-23T10:00:00Z",
        "request": {
            "method": "POST",
            "url": f"https://a.test/{hostile}",
            "headers": [{"name": "X-Hostile", "value": hostile}],
            "postData": {"mimeType": "text/html", "text": hostile},
        },
        "response": {"status": 200, "statusText": hostile, "content": {"text": hostile}},
        "comment": hostile,
        "_note": hostile,
        "_tunnel": hostile,
        "_clientAddress": hostile,
        "_replayOf": hostile,
        "timings": {"wait": 3},
    }
    wrong = {**entry, "request": {"method": hostile, "url": "https://a.test/"}}
    archive = tmp_path / "requests.har"
    archive.write_text(json.dumps({"log": {"entries": [entry, wrong]}}))

    with page.expect_file_chooser() as chooser:
        page.locator("#import").press("Enter")
    chooser.value.set_files(archive)

    expect(page.get_by_role("dialog", name="Some entries were left out")).to_contain_text(
        "log.entries[1].request.method"
    )
    accessible(page)
    page.keyboard.press("Escape")
    expect(rows(page)).to_have_count(1)
    choose(page, "/%3Cscript%3E")
    expect(page.locator("#note")).to_have_text(hostile)
    expect(page.locator("#detail")).to_contain_text("from an archive: no visitor sent it")
    accessible(page)
    archive.write_text("<html>")
    with page.expect_file_chooser() as chooser:
        page.locator("#import").press("Enter")
    chooser.value.set_files(archive)
    expect(page.get_by_role("dialog", name="The archive was not imported")).to_contain_text(
        "requests.har is no JSON"
    )


def test_a_replay_of_an_imported_request_asks_for_a_tunnel(house: House, page: Page) -> None:
    request = {"method": "GET", "url": "https://a.test/kept", "headers": []}
    entry = {"startedDateTime": "2026-11-23T10:00:00Z", "request": request}
    entry["response"] = {"status": 200, "content": {}}
    house.client.requests.load(log={"entries": [entry]})
    choose(page, "/kept")

    page.get_by_role("button", name="↻ Replay").press("Enter")
    asking = page.get_by_role("dialog", name="Replay an imported request")
    expect(asking).to_contain_text("names no tunnel")
    accessible(page)
    asking.get_by_label("Tunnel").select_option("web")
    asking.get_by_role("button", name="Replay").press("Enter")

    expect(rows(page)).to_have_count(2)
    assert house.client.requests.get(house.newest()).tunnel_name == "web"


def test_rules_that_acted_are_shown_as_text(browser: Browser) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    expression = f"req.url.path != '{hostile}'"
    policy = {
        "name": hostile,
        "expressions": [expression],
        "actions": [{"type": "add-headers", "config": {"headers": {"x": "1"}}}],
    }
    with serving(Local) as local, ginnel.Service() as service, ginnel.Agent(service) as agent:
        house = House(service, agent, local)
        document = {"inbound": [policy]}
        tunnel = house.client.tunnels.start(name="ruled", proto="http", addr=local, policy=document)
        assert tunnel.public_url
        with urlopen(f"{tunnel.public_url}/ruled", timeout=30) as answer:
            answer.read()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        watch = Watch(page, house.base)
        page.goto(house.base)
        choose(page, "/ruled")

        shown = page.get_by_role("region", name="Rules that acted on this request")
        expect(shown.locator("strong")).to_have_text(hostile)
        expect(shown.locator("pre")).to_have_text(expression)
        expect(shown).to_contain_text("add-headers")
        expect(rows(page).first.locator("[title^=rules]")).to_be_visible()
        accessible(page)
        context.close()
        assert not watch.wrong


def test_plots_are_there_again_after_a_reload_although_requests_are_not(
    house: House, page: Page
) -> None:
    for path in ("/a", "/status/500", "/b"):
        house.send(path, "POST", b"x" * 100)
    house.client.requests.clear()
    page.goto(f"{house.base}/inspect/traffic")

    expect(page.locator("#traffic")).to_contain_text("Of 0 captured requests.")
    heat = page.get_by_role("img", name=re.compile("^How long requests took: 3 in total"))
    expect(heat).to_be_visible()
    page.reload()
    expect(heat).to_be_visible()
    plot = page.get_by_role("img", name=re.compile("^Requests, per second"))
    expect(plot).to_have_attribute("aria-label", re.compile("failed"))
    accessible(page)
