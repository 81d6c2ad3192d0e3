"""The web inspection page in a real browser: mocks, holds, and requests that people make."""

from __future__ import annotations

import re
import threading
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from browsing import PATIENCE, House, Local, choose, rows, serving, tab
from processes import wait_until
from test_page_hostile import HOSTILE as PAYLOADS

HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_VALUES = [payload for payload in PAYLOADS if "*" not in payload]


def path_of(payload: str) -> str:
    """A path that a rule may have."""
    return "/" + "".join(quote(it) if it.isspace() else it for it in payload)


def accessible(page: Page) -> None:
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()


def fetch(house: House, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body of what a visitor gets."""
    request = Request(f"http://127.0.0.1:{house.port}{path}", method=method)
    try:
        with urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def open_rules(page: Page) -> None:
    page.get_by_role("link", name="Mocks").click()
    expect(page.get_by_role("heading", name="Mocks", exact=True)).to_be_visible()


class Visitor(threading.Thread):
    """A visitor who waits for a response."""

    def __init__(self, house: House, path: str, method: str = "GET") -> None:
        super().__init__()
        self.house, self.path, self.method = house, path, method
        self.got: tuple[int, str] | None = None
        self.start()

    def run(self) -> None:
        self.got = fetch(self.house, self.path, self.method)

    def response(self) -> tuple[int, str]:
        self.join()
        assert self.got
        return self.got


def test_a_mock_is_made_changed_and_deleted_by_keyboard(house: House, page: Page) -> None:
    press = page.keyboard.press
    open_rules(page)
    expect(page.locator("#rules")).to_contain_text("No mock yet")
    accessible(page)

    page.get_by_role("button", name="New mock").focus()
    press("Enter")
    page.get_by_label("Path").fill("/orders/*")
    page.get_by_label("Status").fill("503")
    page.get_by_label("Body", exact=True).fill('{"order": "{{ path.2 }}", "q": "{{ query.q }}"}')
    accessible(page)
    page.get_by_role("button", name="Add").press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    row = page.get_by_role("row", name="mock-1")
    expect(row).to_contain_text("/orders/*")
    assert fetch(house, "/orders/7?q=%22") == (503, '{"order":"7","q":"\\""}')
    expect(row.locator(".number")).to_have_text("1")

    on = row.get_by_role("checkbox", name="mock mock-1 is on")
    on.focus()
    press("Space")
    expect(on).not_to_be_checked()
    wait_until(lambda: fetch(house, "/orders/7")[0] == 200, "the local service")
    page.get_by_role("button", name="Edit mock mock-1").press("Enter")
    page.get_by_label("Status").fill("99")
    page.get_by_label("Status").press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Status").fill("404")
    page.get_by_role("button", name="Save").press("Enter")
    expect(row).to_contain_text("404")
    expect(page.get_by_role("button", name="Edit mock mock-1")).to_be_focused()
    accessible(page)
    page.get_by_role("button", name="Delete mock mock-1").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    expect(page.locator("#rules")).to_contain_text("No mock yet")


def test_a_dialog_gives_the_focus_back_although_its_row_has_changed(
    house: House, page: Page
) -> None:
    house.client.mocks.add(path="/a", status=503)
    open_rules(page)
    edit = page.get_by_role("button", name="Edit mock mock-1")
    edit.press("Enter")
    house.client.mocks.update("mock-1", status=404)
    expect(page.locator("tr[data-id=mock-1]")).to_contain_text("404")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(edit).to_be_focused()


def test_a_mistake_in_a_mock_is_said_and_nothing_is_lost(house: House, page: Page) -> None:
    open_rules(page)
    page.get_by_role("button", name="New mock").click()
    dialog = page.get_by_role("dialog")
    body = page.get_by_label("Body", exact=True)
    body.fill('{"a": ')
    expect(dialog.get_by_role("status")).to_contain_text("This is not JSON")
    page.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Body: This is not JSON")

    page.get_by_label("The body is").select_option("text")
    body.fill("{{ nothing.known }}")
    page.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nothing")
    expect(body).to_have_value("{{ nothing.known }}")
    page.get_by_role("checkbox", name="Replace").press("Space")
    page.get_by_label("Headers, one on each line").fill("x-a b")
    page.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("“x-a b” is not written as name: value")
    page.get_by_label("Headers, one on each line").fill("x-a: b\nx-a: c")
    page.get_by_role("button", name="Add").click()

    expect(page.get_by_role("row", name="mock-1")).to_contain_text("every request")
    assert fetch(house, "/") == (200, "{{ nothing.known }}")
    assert house.client.mocks.get("mock-1").headers == {"x-a": "b\nc"}


def test_every_field_of_a_mock_is_kept_and_cleared(house: House, page: Page) -> None:
    house.client.mocks.add(
        id="all",
        method="POST",
        host="shop.*",
        path="/a*?b=1",
        tunnel_name="web",
        match_headers={"x-kind": "paid*"},
        status=202,
        headers={"x-a": "b"},
        body_base64=b"\xff\x00",
        template=False,
        delay=10,
        fault="truncate",
        times=3,
    )
    before = house.client.mocks.get("all")
    open_rules(page)
    row = page.get_by_role("row", name="all")
    for shown in (
        "POST /a*?b=1",
        "host shop.*",
        "tunnel web",
        "x-kind: paid*",
        "after 10",
        "3 at most",
    ):
        expect(row).to_contain_text(shown)

    page.get_by_role("button", name="Edit mock all").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert house.client.mocks.get("all") == before

    page.get_by_role("button", name="Edit mock all").click()
    for label in ("Method", "Path", "Host", "Headers that must match, one on each line"):
        page.get_by_label(label, exact=True).fill("")
    page.get_by_label("Headers, one on each line", exact=True).fill("")
    page.get_by_label("Tunnel", exact=True).select_option("any")
    page.get_by_label("Fault").select_option("none")
    page.get_by_label("Requests at most").fill("")
    page.get_by_label("The body is").select_option("text")
    page.get_by_label("Body", exact=True).fill("hello")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("every request")
    cleared = house.client.mocks.get("all").to_dict()
    gone = ["method", "host", "path", "tunnel_name", "fault", "body_base64", "times"]
    assert [cleared.get(name) for name in gone] == [None] * len(gone)
    assert (cleared["body"], cleared["headers"], cleared["match_headers"]) == ("hello", {}, {})


def test_a_file_is_the_body_of_a_mock(house: House, page: Page) -> None:
    open_rules(page)
    page.get_by_role("button", name="New mock").click()
    page.get_by_label("The body is").select_option("bytes")
    page.get_by_label("A file with the body").set_input_files(
        {"name": "x.bin", "mimeType": "application/octet-stream", "buffer": b"\x00\xff{{ path }}"}
    )
    page.get_by_role("button", name="Add").click()

    expect(page.get_by_role("row", name="mock-1")).to_contain_text("bytes")
    assert house.client.mocks.get("mock-1").body_base64 == b"\x00\xff{{ path }}"


def test_a_captured_response_becomes_a_mock(house: House, page: Page) -> None:
    house.send("/status/418/tea", "POST", b"short and stout")
    choose(page, "/status/418/tea")

    page.get_by_role("button", name="More").press("Enter")
    page.get_by_role("button", name="Respond with this").press("Enter")

    expect(page.get_by_role("dialog", name="New mock")).to_be_visible()
    expect(page.get_by_label("Path")).to_have_value("/status/418/tea")
    expect(page.get_by_label("Body", exact=True)).to_have_value("short and stout")
    accessible(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    house.send("/status/418/tea", "POST", b"seen by the service")
    assert house.client.mocks.list().to_list() == []

    page.get_by_role("button", name="More").press("Enter")
    page.get_by_role("button", name="Respond with this").press("Enter")
    page.get_by_role("button", name="Turn on").press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Mock mock-1 responds")
    assert fetch(house, "/status/418/tea", "POST") == (418, "short and stout")
    expect(rows(page).first).to_contain_text("mock")
    page.get_by_role("button", name="Show", exact=True).press("Enter")
    expect(page.get_by_role("row", name="mock-1")).to_contain_text("418")


class LoggingIn(Local):
    """A local service whose responses hold secrets."""

    def handle_one(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b'{"password":"swordfish", "n": 1.50}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "sid=swordfish; Path=/")
        self.send_header("X-Plain", "before")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_a_mock_of_a_response_hides_its_secrets_and_responds_with_them(
    house: House, page: Page
) -> None:
    with serving(LoggingIn) as local:
        house.client.tunnels.stop("web")
        house.tunnel = house.client.tunnels.start(name="web", proto="http", addr=local)
        house.send("/login", "POST")
        exact = b'{"password":"swordfish", "n": 1.50}'
        choose(page, "/login")
        page.get_by_role("button", name="More").press("Enter")
        page.get_by_role("button", name="Respond with this").press("Enter")
        body = page.get_by_label("Body", exact=True)
        expect(body).to_have_value(re.compile("••••••"))
        expect(page.get_by_label("The body is")).to_have_value("json")
        shown = page.eval_on_selector_all("textarea, input", "all => all.map(it => it.value)")
        assert "swordfish" not in "".join(shown)
        assert "swordfish" not in page.content()
        accessible(page)

        body.fill('{"password": "••••••", "n": 2}')
        page.get_by_role("button", name="Turn on").press("Enter")
        alert = page.get_by_role("dialog").get_by_role("alert")
        expect(alert).to_contain_text("Body: it has masked secrets")
        page.keyboard.press("Escape")
        assert house.client.mocks.list().to_list() == []

        page.get_by_role("button", name="More").press("Enter")
        page.get_by_role("button", name="Respond with this").press("Enter")
        headers = page.get_by_role("dialog").get_by_label("Headers, one on each line")
        headers.fill(headers.input_value().replace("before", "after"))
        page.get_by_role("button", name="Turn on").press("Enter")
        expect(page.locator("#toasts")).to_contain_text("Mock mock-1 responds")

        request = Request(f"http://127.0.0.1:{house.port}/login", method="POST")
        with urlopen(request, timeout=60) as response:
            assert response.read() == exact
            assert response.headers["Set-Cookie"] == "sid=swordfish; Path=/"
            assert response.headers["X-Plain"] == "after"


def test_the_body_of_a_held_request_is_seen_and_changed_where_it_is_looked_at(
    house: House, page: Page
) -> None:
    house.client.holds.add(path="/hook*", max_wait=60_000)
    sending = threading.Thread(target=house.send, args=("/hook", "POST", b'{"hello":"world!"}'))
    sending.start()
    wait_until(lambda: len(house.client.held_requests.list().to_list()) == 1, "the request")
    choose(page, "/hook")

    expect(page.locator("#Request-panel")).to_contain_text('"hello": "world!"')
    expect(page.locator("#sizes")).to_have_text("18 B in, 0 B out")
    expect(page.locator("#detail .outcome")).not_to_contain_text("truncated")
    held = house.client.requests.get(house.newest())
    assert (held.request.body, held.request.truncated) == (b'{"hello":"world!"}', None)
    page.get_by_role("button", name="Change POST /hook").press("Enter")
    page.get_by_label("Body", exact=True).fill("changed")
    page.get_by_role("button", name="Send on").press("Enter")
    sending.join()

    sent = house.client.requests.get(house.newest())
    assert sent.response is not None
    assert (sent.request.body, sent.response.body) == (b"changed", b"changed")


def test_bytes_of_a_held_request_are_changed_as_digits(house: House, page: Page) -> None:
    house.client.holds.add(path="/hook*", max_wait=60_000)
    sending = threading.Thread(target=house.send, args=("/hook", "POST", b"\x00\xff\xfe"))
    sending.start()
    open_rules(page)
    page.get_by_role("button", name="Change POST /hook").press("Enter")

    expect(page.get_by_label("Body")).to_have_value("00 ff fe")
    page.get_by_label("Body").fill("00 ff 0g")
    page.get_by_role("button", name="Send on").press("Enter")
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_have_text("Body: line 1: “g” is no hexadecimal digit.")
    page.get_by_label("Body").fill("01 02\nff")
    page.get_by_role("button", name="Send on").press("Enter")
    sending.join()

    assert house.client.requests.get(house.newest()).request.body == b"\x01\x02\xff"


def test_a_mock_that_no_request_could_match_is_refused(house: House, page: Page) -> None:
    open_rules(page)
    page.get_by_role("button", name="New mock").first.press("Enter")
    page.get_by_label("Method").fill("BAD METHOD")
    page.get_by_label("Path").fill("noslash")
    page.get_by_role("button", name="Add").press("Enter")

    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text('method: "BAD METHOD" is not a method')
    expect(alert).to_contain_text('path: "noslash" is not a path')


def test_a_held_request_is_let_go_and_refused_by_keyboard(house: House, page: Page) -> None:
    open_rules(page)
    page.get_by_role("button", name="New hold").press("Enter")
    page.get_by_label("Path").fill("/hook*")
    accessible(page)
    page.get_by_role("button", name="Add").press("Enter")
    expect(page.get_by_role("row", name="hold-1")).to_contain_text("/hook*")

    visitor = Visitor(house, "/hook?token=abcdef")
    waiting = page.get_by_role("heading", name="1 request is held")
    expect(waiting).to_be_visible()
    expect(page.get_by_role("link", name="Mocks 1 held")).to_be_visible()
    expect(page.locator(".held")).to_contain_text("GET /hook?token=••••••")
    expect(page.locator(".held")).to_contain_text(re.compile(r"goes on by itself in \d+ s"))
    accessible(page)
    page.get_by_role("button", name="Let GET /hook").press("Enter")
    assert visitor.response()[0] == 200
    expect(waiting).to_be_hidden()
    expect(page.get_by_role("link", name="Mocks", exact=True)).to_be_visible()

    visitor = Visitor(house, "/hook/two")
    page.get_by_role("button", name="Refuse GET /hook/two").press("Enter")
    accessible(page)
    page.get_by_label("Status").fill("409")
    page.get_by_label("Body").fill(HOSTILE)
    page.get_by_role("dialog").get_by_role("button", name="Refuse").press("Enter")
    assert visitor.response() == (409, HOSTILE)


def test_all_held_requests_are_let_go(house: House, page: Page) -> None:
    house.client.holds.add(path="/hook/*", max_wait=60_000)
    open_rules(page)
    visitors = [Visitor(house, f"/hook/{number}") for number in range(3)]
    expect(page.get_by_role("heading", name="3 requests are held")).to_be_visible()

    page.get_by_role("button", name="Let all go").press("Enter")

    assert [visitor.response()[0] for visitor in visitors] == [200] * 3


def test_a_held_request_is_changed(house: House, page: Page) -> None:
    house.client.holds.add(path="/hook*", max_wait=60_000)
    open_rules(page)
    visitor = Visitor(house, "/hook", "POST")

    page.get_by_role("button", name="Change POST /hook").press("Enter")
    page.get_by_label("Path and query").fill("/status/201")
    page.get_by_label("Headers, one on each line").press("Control+End")
    page.keyboard.type("\nX-Added: yes")
    page.get_by_label("Body").fill("changed")
    accessible(page)
    page.get_by_role("button", name="Send on").press("Enter")

    assert visitor.response() == (201, "changed")
    page.get_by_role("link", name="Requests", exact=True).click()
    choose(page, "/status/201")
    expect(page.locator("#detail .outcome")).to_contain_text("changed while held")
    expect(tab(page, "Request", "Headers")).to_contain_text("X-Added")


def test_secrets_of_a_held_request_are_shown_to_change_them(house: House, page: Page) -> None:
    house.client.holds.add(path="/hook*", max_wait=60_000)
    open_rules(page)
    body, head = b'{"password": "abcdef"}', {"Content-Type": "application/json"}
    sending = threading.Thread(target=house.send, args=("/hook", "POST", body, head))
    sending.start()

    page.get_by_role("button", name="Change POST /hook").press("Enter")
    expect(page.get_by_label("Body")).to_be_disabled()
    page.get_by_role("button", name="Show secrets").press("Enter")
    expect(page.get_by_label("Body")).to_have_value(body.decode())
    page.get_by_label("Body").fill('{"password": "ghijkl"}')
    page.get_by_role("button", name="Send on").press("Enter")
    sending.join()

    assert house.client.requests.get(house.newest()).request.body == b'{"password": "ghijkl"}'


def test_a_held_request_is_decided_where_it_is_looked_at(house: House, page: Page) -> None:
    house.send("/hook")
    choose(page, "/hook")
    page.get_by_role("button", name="More").press("Enter")
    page.get_by_role("button", name="Hold requests like this…").press("Enter")
    expect(page.get_by_label("Path")).to_have_value("/hook")
    page.get_by_role("button", name="Add").press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Hold hold-1 makes such requests wait")

    visitor = Visitor(house, "/hook")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("held now")
    rows(page).first.click()
    bar = page.get_by_role("group", name="Held request")
    expect(bar).to_contain_text("Held by hold-1")
    accessible(page)
    bar.get_by_role("button", name="Let GET /hook go").press("Enter")

    assert visitor.response()[0] == 200
    expect(bar).to_have_count(0)
    expect(page.locator("#detail .outcome")).to_contain_text("was held")


def test_a_request_that_went_on_meanwhile_cannot_be_changed(house: House, page: Page) -> None:
    house.client.holds.add(path="/hook*", max_wait=60_000)
    open_rules(page)
    visitor = Visitor(house, "/hook")
    page.get_by_role("button", name="Change GET /hook").press("Enter")
    house.client.held_requests.flush()
    assert visitor.response()[0] == 200

    page.get_by_label("Path and query").fill("/other")
    page.get_by_role("button", name="Send on").press("Enter")

    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("does not wait")
    expect(page.get_by_label("Path and query")).to_have_value("/other")


def test_what_strangers_and_rules_say_is_text(house: House, page: Page) -> None:
    for payload in HOSTILE_VALUES:
        rule: dict[str, Any] = {"path": path_of(payload), "match_headers": {"x-hostile": payload}}
        house.client.mocks.add(**rule, headers={"x-hostile": payload}, body=payload, template=False)
        house.client.holds.add(**rule)
    house.client.holds.add(path="/held*", max_wait=60_000)
    open_rules(page)
    elements = page.evaluate("[...document.querySelectorAll('script, iframe, style')].length")
    expect(page.locator("#rules tbody tr")).to_have_count(2 * len(HOSTILE_VALUES) + 1)
    for number, payload in enumerate(HOSTILE_VALUES, 1):
        for name in (f"mock-{number}", f"hold-{number}"):
            row = page.locator(f"tr[data-id={name}]")
            text = row.inner_text()
            assert path_of(payload) in text, name
            assert payload in text.replace(path_of(payload), ""), name
        page.get_by_role("button", name=f"Edit mock mock-{number}", exact=True).click()
        expect(page.get_by_label("Body", exact=True)).to_have_value(payload)
        expect(page.get_by_label("Path")).to_have_value(path_of(payload))
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)

    sending = [
        threading.Thread(
            target=house.send,
            args=(f"/held?{quote(payload, safe='')}", "POST", payload.encode(), {"X-A": payload}),
        )
        for payload in HOSTILE_VALUES
    ]
    for thread in sending:
        thread.start()
    expect(page.locator(".held-row")).to_have_count(len(sending))
    for at in range(len(sending)):
        page.locator(".held-row").nth(at).get_by_role("button", name="Change").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    now = page.evaluate("[...document.querySelectorAll('script, iframe, style')].length")
    assert now == elements
    page.get_by_role("button", name="Let all go").click()
    for thread in sending:
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1280, 1920])
def test_the_rules_are_accessible_on_every_screen(
    house: House, browser: Browser, scheme: Any, width: int
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    expect.set_options(timeout=PATIENCE)
    page.goto(f"{house.base}/inspect/rules")
    expect(page.locator("#rules")).to_contain_text("No mock yet")
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    accessible(page)
    assert page.evaluate(fits)
    for number in range(20):
        house.client.mocks.add(path=f"/orders/{number}/*", status=503, times=3, delay=20)
    house.client.mocks.add(path="/a" * 200, host="shop.example", fault="reset", enabled=False)
    house.client.holds.add(path="/hook*", max_wait=60_000)
    visitor = Visitor(house, "/hook" + "/long" * 60)
    expect(page.get_by_role("heading", name="1 request is held")).to_be_visible()
    expect(page.locator("#rules tbody tr")).to_have_count(22)

    accessible(page)
    assert page.evaluate(fits)
    for name in ("Edit mock mock-1", "Edit hold hold-1", "Change GET /hook"):
        page.get_by_role("button", name=name).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        accessible(page)
        assert page.evaluate("document.querySelector('dialog').scrollWidth <= innerWidth")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Let GET /hook").click()
    visitor.join()
    context.close()


# ── Requests that people make ────────────────────────────────────────────────────────────────────

FORM = ["Content-Type", "application/x-www-form-urlencoded"]
CURL = [
    ("curl https://a.test/x?y=1", ["GET", "/x?y=1", [], ""]),
    (
        "curl 'https://a.test' -H 'X-A: b c' \\\n  --data-raw $'it\\'s\\n\\x41'",
        [
            "POST",
            "/",
            [["X-A", "b c"], ["Content-Type", "application/x-www-form-urlencoded"]],
            "it's\nA",
        ],
    ),
    (
        'curl -XPUT a.test:8080/p --json "{\\"a\\": 1}"',
        ["PUT", "/p", [["Content-Type", "application/json"]], '{"a": 1}'],
    ),
    ("curl -G a.test/s -d q=1 -d r=2", ["GET", "/s?q=1&r=2", [], ""]),
    ("curl -I -u ada:pw a.test", ["HEAD", "/", [["Authorization", "Basic YWRhOnB3"]], ""]),
    ("curl -sSL --compressed -o out a.test/z", ["GET", "/z", [], ""]),
    ("curl a.test -d $'a\\nb\\xc3\\xa9'", ["POST", "/", [FORM], "a\nbé"]),
    ("curl -sXPUT a.test/p", ["PUT", "/p", [], ""]),
    ("curl -iXPOST a.test -kd x", ["POST", "/", [FORM], "x"]),
    (
        "curl --range 0-10 --retry-delay 5 --oauth2-bearer t a.test/r",
        ["GET", "/r", [["Range", "bytes=0-10"], ["Authorization", "Bearer t"]], ""],
    ),
    ("curl a.test --data-raw '@x' --data-raw '&y'", ["POST", "/", [FORM], "@x&&y"]),
    ("curl -d a a.test 2>&1 | jq .", ["POST", "/", [FORM], "a"]),
    ("curl -H 'X-Empty;' -H 'Accept:' a.test", ["GET", "/", [["X-Empty", ""]], ""]),
    # Lines for Windows, as browsers copy them.
    (
        'curl "https://a.test/x?y=1" ^\n  -H "Accept: */*" ^\n  --data-raw "a=1^&b=2"',
        ["POST", "/x?y=1", [["Accept", "*/*"], FORM], "a=1&b=2"],
    ),
    (
        'curl ^"https://a.test/x^%^25^" ^\r\n  --data-raw ^"^{^\\^"a^\\^":^\\^"C:^\\^\\d^\\^"^}^"',
        ["POST", "/x%25", [FORM], '{"a":"C:\\\\d"}'],
    ),
    ('curl.exe a.test -d "{""a"":1}" | more', ["POST", "/", [FORM], '{"a":1}']),
    ('curl a.test ^\n --data-raw ^"one^\n\ntwo^"', ["POST", "/", [FORM], "one\ntwo"]),
    # Copies of this page.
    (
        '# Secrets are masked.\ncurl a.test --data-raw "$(printf \'{"a":\\n\\047%%\\302\\233\')"',
        ["POST", "/", [FORM], '{"a":\n\'%\x9b'],
    ),
    ("printf 'a\\n' | curl a.test --data-binary @-", ["POST", "/", [FORM], "a\n"]),
    (
        "curl a.test -F a=b -F 'j={};type=application/json'",
        [
            "POST",
            "/",
            [["Content-Type", "multipart/form-data; boundary=------------------------form"]],
            "--------------------------form\r\nContent-Disposition: form-data; "
            'name="a"\r\n\r\nb\r\n--------------------------form\r\n'
            'Content-Disposition: form-data; name="j"\r\nContent-Type: application/json\r\n\r\n'
            "{}\r\n--------------------------form--\r\n",
        ],
    ),
]


@pytest.mark.parametrize(("line", "request_parts"), CURL)
def test_curl_lines_are_read(page: Page, line: str, request_parts: list[Any]) -> None:
    found = page.evaluate(
        """async (line) => {
            const { fromCurl } = await import("/inspect/assets/curl.js");
            const { method, target, headers, body } = fromCurl(line);
            return [method, target, headers, body];
        }""",
        line,
    )

    assert found == request_parts


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("wget a.test", "not a curl line"),
        ("curl -F a=@b a.test", "--form a=@b names a file"),
        ("curl -d @file a.test", "--data @file names a file"),
        ("curl -sT file a.test", "-T cannot be taken over: it reads a file"),
        ("curl --aws-sigv4 x a.test", "--aws-sigv4 cannot be taken over"),
        ("curl a.test b.test", "two addresses, a.test and b.test"),
        ("curl 'a.test", "A quote is not closed: 'a.test"),
        ("curl a.test -X", "-X has no value"),
        ("curl", "no address"),
    ],
)
def test_what_cannot_be_read_of_a_curl_line_is_said(
    house: House, page: Page, line: str, problem: str
) -> None:
    page.get_by_role("button", name="Compose…").click()
    page.get_by_text("From a curl line").click()
    page.get_by_label("A curl line").fill(line)

    page.get_by_role("button", name="Take it over").click()

    expect(page.get_by_role("dialog").get_by_role("alert").first).to_contain_text(problem)


def test_a_form_of_a_curl_line_is_sent_with_its_line_ends(house: House, page: Page) -> None:
    page.keyboard.press("c")
    page.get_by_text("From a curl line").press("Enter")
    page.get_by_label("A curl line").fill("curl -F a=b https://shop.test/form")
    page.get_by_role("button", name="Take it over").press("Enter")

    page.get_by_role("button", name="Send", exact=True).press("Enter")

    expect(page.locator("#detail h2")).to_have_text("POST /form")
    sent = house.client.requests.get(house.newest()).request
    assert sent.body.startswith(b"--------------------------form\r\nContent-Disposition")
    assert b"\r\n\r\nb\r\n" in sent.body
    expect(page.locator("#Request-panel h4")).to_have_text(["a"])


def test_a_request_is_composed_from_a_curl_line_by_keyboard(house: House, page: Page) -> None:
    page.keyboard.press("c")
    expect(page.get_by_label("Method")).to_be_focused()
    page.get_by_text("From a curl line").press("Enter")
    page.get_by_label("A curl line").fill(
        "curl -X PATCH https://shop.test/a?b=1 -H 'X-A: b' -d hello"
    )
    page.get_by_role("button", name="Take it over").press("Enter")
    expect(page.get_by_label("Path and query")).to_have_value("/a?b=1")
    accessible(page)

    page.get_by_role("button", name="Send", exact=True).press("Enter")

    expect(page.locator("#detail h2")).to_have_text("PATCH /a?b=1")
    sent = house.client.requests.get(house.newest()).request
    assert (sent.method, sent.uri, sent.body, sent.header("x-a")) == (
        "PATCH",
        "/a?b=1",
        b"hello",
        "b",
    )


def test_a_request_is_replayed_several_times(house: House, page: Page) -> None:
    house.send("/hook", "POST", b"hello")
    choose(page, "/hook")

    page.get_by_role("button", name="More").press("Enter")
    page.get_by_role("button", name="Replay several times…").press("Enter")
    page.get_by_label("Times", exact=True).fill("4")
    accessible(page)
    page.get_by_role("dialog").get_by_role("button", name="Replay").press("Enter")

    expect(rows(page)).to_have_count(5)
