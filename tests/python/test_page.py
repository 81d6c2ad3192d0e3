"""The web inspection page in a real browser: what people do with it."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import House, choose, rows, wait_until


def test_traffic_appears_while_the_page_is_open(house: House, page: Page) -> None:
    page.evaluate(
        """() => {
            window.seen = {};
            new MutationObserver(() => {
                for (const row of document.querySelectorAll("#rows .row")) {
                    window.seen[row.querySelector("a").textContent] ??= Date.now();
                }
            }).observe(document.getElementById("rows"), { childList: true, subtree: true });
        }"""
    )
    delays = []
    for number in range(6):
        sent = time.time() * 1000
        house.send(f"/live/{number}")
        wait_until(page, f"'/live/{number}' in window.seen")
        delays.append(page.evaluate(f"window.seen['/live/{number}']") - sent)

    assert min(delays) < 2000, delays
    expect(rows(page).first).to_contain_text("/live/5")
    expect(rows(page).first).to_contain_text("200")
    threading.Thread(target=house.send, args=("/slow",)).start()
    expect(rows(page).first).to_contain_text("pending")
    house.release.set()
    expect(rows(page).first).to_contain_text("200")


def test_requests_are_filtered_and_the_filter_is_in_the_address(house: House, page: Page) -> None:
    house.send("/status/500")
    house.send("/status/404")
    house.send("/hook/one", "POST", b'{"event": "push"}', {"X-Id": "abc"})
    expect(rows(page)).to_have_count(3)
    filtering = page.get_by_role("searchbox")

    for wanted, shown in [
        ("status:5xx", "/status/500"),
        ("path:/hook*", "/hook/one"),
        ("body:PUSH", "/hook/one"),
        ("header:x-id=a*", "/hook/one"),
        ("method:GET -status:500", "/status/404"),
    ]:
        filtering.fill(wanted)
        filtering.press("Enter")
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text(shown)
        assert page.url.endswith("?filter=" + quote(wanted, safe="*-").replace("%20", "+"))
    expect(page.locator("#count")).to_have_text("1 shown of 3")
    house.send("/hook/two", "POST")
    house.send("/status/404/again")
    expect(rows(page)).to_have_count(2)
    page.reload()
    expect(filtering).to_have_value("method:GET -status:500")
    expect(rows(page)).to_have_count(2)

    filtering.fill("status:many")
    filtering.press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("status:many: must be a number")
    page.get_by_role("button", name="No filter").click()
    expect(rows(page)).to_have_count(5)
    page.get_by_role("button", name="status:5xx").click()
    expect(rows(page)).to_have_count(1)
    page.go_back()
    expect(rows(page)).to_have_count(5)


def test_a_request_is_replayed_and_changed_by_keyboard_alone(house: House, page: Page) -> None:
    house.send("/first")
    house.send("/second?token=abc", "POST", b"hello", {"X-Kept": "1", "Cookie": "a=b"})
    expect(rows(page)).to_have_count(2)
    press = page.keyboard.press

    press("j")
    expect(page.locator("#detail h2")).to_contain_text("/second")
    press("j")
    expect(page.locator("#detail h2")).to_contain_text("/first")
    press("k")
    expect(page.locator("#detail h2")).to_contain_text("/second")
    press("Enter")
    expect(page.locator("#detail")).to_be_focused()
    press("r")
    expect(rows(page)).to_have_count(3)
    expect(page.locator("#detail")).to_contain_text("Replay of")
    expect(page.locator("#detail .compared")).to_contain_text("They are the same.")
    press("e")
    expect(page.get_by_label("Method")).to_be_focused()
    press("Control+a")
    page.keyboard.type("PUT")
    press("Tab")
    press("Tab")
    press("Tab")
    expect(page.get_by_label("Body", exact=True)).to_be_focused()
    press("Control+a")
    page.keyboard.type("hello again")
    press("Tab")
    press("Tab")
    press("Tab")
    expect(page.get_by_role("button", name="Send")).to_be_focused()
    press("Enter")
    expect(rows(page)).to_have_count(4)
    expect(page.locator("#detail h2")).to_have_text("PUT /second?token=••••••")
    expect(page.locator("#detail .removed").first).to_have_text(
        "before: - POST /second?token=•••••• HTTP/1.1"
    )
    expect(page.locator("#detail .added", has_text="hello again")).to_have_count(2)
    sent = house.client.requests.get(house.newest()).request
    assert (sent.method, sent.uri, sent.body) == ("PUT", "/second?token=abc", b"hello again")
    assert (sent.header("cookie"), sent.header("content-length")) == ("a=b", "11")
    press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    press("Escape")
    expect(page.locator("#list")).to_be_focused()


def test_mistakes_in_the_editor_are_told_and_nothing_is_lost(house: House, page: Page) -> None:
    house.send("/path", "POST", b"hello")
    choose(page, "/path")
    page.keyboard.press("e")
    for field, wrong, told in [
        ("Path and query", "no path", 'target: "no path" is not a path'),
        ("Method", "A B", 'method: "A B" is not a method'),
        ("Headers, one on each line", "nothing", "“nothing” is not written as name: value"),
    ]:
        control = page.get_by_label(field)
        before = control.input_value()
        control.fill(wrong)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(told)
        assert control.input_value() == wrong
        control.fill(before)
    page.get_by_role("button", name="Cancel").click()
    expect(rows(page)).to_have_count(1)


def test_an_edited_body_keeps_what_was_not_edited(house: House, page: Page) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=B"}
    part = '--B\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    house.send("/plain", "POST", (part.format("a", "one") + "--B--\r\n").encode(), form)
    house.send("/secret", "POST", (part.format("password", "abc") + "--B--\r\n").encode(), form)
    body = page.get_by_label("Body", exact=True)

    choose(page, "/plain")
    page.get_by_role("button", name="Edit and replay").click()
    body.fill(body.input_value().replace("one", "two"))
    page.get_by_role("button", name="Send").click()
    expect(rows(page)).to_have_count(3)
    sent = house.client.requests.get(house.newest()).request.body
    assert sent == (part.format("a", "two") + "--B--\r\n").encode()

    choose(page, "/secret")
    page.get_by_role("button", name="Edit and replay").click()
    expect(body).to_be_disabled()
    expect(page.get_by_role("dialog")).not_to_contain_text("abc")
    page.get_by_label("Method").fill("PUT")
    page.get_by_role("button", name="Send").click()
    expect(rows(page)).to_have_count(4)
    sent = house.client.requests.get(house.newest()).request.body
    assert sent == (part.format("password", "abc") + "--B--\r\n").encode()


def test_the_selection_stays_while_the_list_lives(house: House, page: Page) -> None:
    for number in range(80):
        house.send(f"/old/{number}")
    expect(page.locator("#count")).to_have_text("80 requests")
    page.locator("#list").evaluate("(list) => { list.scrollTop = 600 }")
    row = page.locator("#rows .row", has_text="/old/50")
    row.click()
    place = row.bounding_box()

    for number in range(30):
        house.send(f"/new/{number}")

    expect(page.get_by_role("button", name="↑ 30 new")).to_be_visible()
    expect(row).to_have_attribute("aria-selected", "true")
    now = row.bounding_box()
    assert place
    assert now
    assert abs(place["y"] - now["y"]) < 2
    page.get_by_role("button", name="↑ 30 new").click()
    expect(page.locator("#rows .row", has_text="/new/29")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    house.send("/while-paused")
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    expect(page.locator("#rows .row", has_text="/while-paused")).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#rows .row", has_text="/while-paused")).to_have_count(1)


def test_ten_thousand_rows_need_few_elements(house: House, page: Page) -> None:
    request = f"GET /r HTTP/1.1\r\nHost: 127.0.0.1:{house.port}\r\n\r\n".encode()

    def visit() -> None:
        with socket.create_connection(("127.0.0.1", house.port), timeout=60) as connection:
            answers = connection.makefile("rb")
            for _ in range(25):
                connection.sendall(request * 100)
                for _ in range(100):
                    while answers.readline().strip():
                        pass

    visitors = [threading.Thread(target=visit) for _ in range(4)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    page.set_default_timeout(60_000)

    expect(page.locator("#count")).to_have_text("10000 requests")
    page.reload()
    expect(page.locator("#count")).to_have_text("10000 requests")
    assert page.locator("#list").get_attribute("aria-rowcount") == "10001"
    page.locator("#list").focus()
    page.keyboard.press("End")
    expect(page.locator("#rows .row").last).to_have_attribute("aria-rowindex", "10001")
    shown = page.locator("#rows .row").evaluate_all("(rows) => rows.map((row) => row.dataset.id)")
    assert shown == sorted(shown, reverse=True)
    page.keyboard.press("Home")
    wait_until(page, "document.querySelector('#rows .row').ariaRowIndex === '2'")
    first = page.locator("#rows .row").first
    assert first.get_attribute("data-id") == house.newest()
    page.keyboard.press("End")
    frames = page.evaluate(
        """async () => {
            const list = document.getElementById("list");
            let most = 0;
            for (let step = 0; step < 60; step += 1) {
                list.scrollTop = (step * 7919 * 28) % list.scrollHeight;
                await new Promise(requestAnimationFrame);
                most = Math.max(most, document.querySelectorAll("#rows .row").length);
            }
            return most;
        }"""
    )
    assert frames < 100


def test_all_requests_are_cleared_after_a_question(house: House, page: Page) -> None:
    house.send("/one")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Clear requests…").click()
    page.get_by_role("button", name="Cancel").click()
    assert house.client.requests.list().to_list()
    page.get_by_role("button", name="Clear requests…").click()
    page.get_by_role("button", name="Clear requests", exact=True).click()
    expect(rows(page)).to_have_count(0)
    assert not house.client.requests.list().to_list()


def test_the_page_comes_back_with_its_agent(house: House, page: Page) -> None:
    house.send("/before")
    expect(rows(page)).to_have_count(1)
    address = house.base.removeprefix("http://")
    house.agent.stop()
    expect(page.locator("#state")).to_have_text("○ the agent does not respond")
    with ginnel.Agent(house.service, web_addr=address) as agent:
        expect(page.locator("#state")).to_contain_text("● online")
        expect(rows(page)).to_have_count(0)
        again = House(house.service, agent, house.local)
        again.send("/after")
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("/after")


def test_a_page_that_is_not_seen_keeps_no_connection(house: House, page: Page) -> None:
    house.send("/one")
    expect(rows(page)).to_have_count(1)
    seen = """(is) => {
        Object.defineProperty(document, "hidden", { value: !is, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(seen, False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    house.send("/two")
    page.wait_for_timeout(300)
    expect(rows(page)).to_have_count(1)
    assert not asked
    page.evaluate(seen, True)
    expect(rows(page)).to_have_count(2)
    # It asks for what it has not seen, not for everything.
    assert "since=" in asked[0]


def test_without_events_the_page_asks_again_and_again(house: House, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/inspect/data/events*", lambda route: route.abort())
    page.goto(house.base)
    expect(page.locator("#state")).to_contain_text("asking each second")
    house.send("/polled")
    expect(rows(page)).to_have_count(1)
    with page.expect_request(lambda request: "/data/requests?" in request.url) as asked:
        pass
    assert "since=" in asked.value.url
    context.close()


@pytest.mark.parametrize("path", ["/inspect/http", "/status"])
def test_without_script_the_page_says_where_the_same_is(house: House, path: str) -> None:
    # Playwright's pages without script keep to themselves what is for such pages.
    with urlopen(house.base + path, timeout=20) as answer:
        [told] = re.findall("<noscript>(.*)</noscript>", answer.read().decode())

    assert "This page needs JavaScript." in told
    links = re.findall('href="(.*?)"', told)
    assert links
    for link in links:
        with urlopen(house.base + link, timeout=20) as answer:
            assert json.load(answer)


def test_what_the_page_came_with_is_drawn_before_anything_is_asked_for(
    house: House, browser: Browser
) -> None:
    house.send("/first", "POST", b"<b>hello</b>")
    house.send("/second")
    context = browser.new_context()
    page = context.new_page()
    page.route("**/inspect/data/**", lambda route: route.abort())
    page.goto(house.base)
    expect(rows(page)).to_have_count(2)
    link = rows(page).last.get_by_role("link").get_attribute("href")
    page.goto(f"{house.base}{link}")
    expect(page.locator("#detail h2")).to_have_text("POST /first")
    page.goto(f"{house.base}/status")
    expect(page.locator(".card")).to_contain_text("Requests2")
    context.close()


def test_the_status_page_lives_and_starts_and_stops_tunnels(house: House, page: Page) -> None:
    for _ in range(3):
        house.send("/x")
    page.get_by_role("link", name="Status", exact=True).click()
    card = page.locator(".card")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("Requests3")
    expect(card.locator(".plot-line").first).to_have_attribute(
        "d", re.compile(r"M[\d.]+ [\d.]+.*L[\d.]+ ")
    )
    expect(page.locator("#options")).to_contain_text("authtoken••••••")
    expect(page.get_by_role("meter")).to_be_visible()

    page.get_by_label("Name").fill("second")
    page.get_by_label("Local port or address").fill("nonsense:port")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("form").get_by_role("alert")).to_contain_text("addr: ")
    page.get_by_label("Local port or address").fill(str(house.local))
    page.get_by_role("button", name="Start").click()
    expect(card).to_have_count(2)
    assert house.client.tunnels.get("second").proto == "http"
    page.get_by_role("button", name="Stop the tunnel second").click()
    expect(card).to_have_count(1)
    assert [tunnel.name for tunnel in house.client.tunnels.list()] == ["web"]


def test_the_way_through_an_edge_is_told(house: House, page: Page) -> None:
    house.client.tunnels.start(name="shop", addr=house.local, labels=["app=shop"])
    with house.service.client() as remote:
        group = remote.backends.tunnel_group.create(labels={"app": "shop"})
        edge = remote.edges.https.create(hostports=["shop.example.test:443"])
        route = remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": group.id}
        )
        address = house.service.edge_url("shop.example.test")
        house.service.opener().open(f"{address}/through-an-edge").close()
    choose(page, "/through-an-edge")
    facts = page.locator("#detail .facts")
    for told in ("a route of an HTTPS edge", edge.id, route.id):
        expect(facts).to_contain_text(told)
