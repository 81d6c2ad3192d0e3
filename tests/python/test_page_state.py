"""The web inspection page in a real browser: what was chosen, paused or copied stays right."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from browsing import House, choose, copied, rows, tab


def holding(page: Page, pattern: re.Pattern[str]) -> Callable[[], None]:
    """Holds back what the page asks for; gives what lets all of it through."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    def release() -> None:
        for route in held:
            route.continue_()
        page.unroute(pattern, hold)

    page.route(pattern, hold)
    return release


def settled(page: Page) -> None:
    """Waits until the page has nothing more to ask and to draw."""
    page.wait_for_timeout(200)


def test_a_late_answer_does_not_draw_over_a_later_one(house: House, page: Page) -> None:
    house.send("/hook?token=abc")
    choose(page, "/hook")
    release = holding(page, re.compile(r"reveal=1"))
    page.get_by_role("button", name="Show secrets").click()
    with page.expect_response(re.compile(r"/requests/[0-9a-f]+$")):
        page.get_by_role("button", name="Show secrets").click()

    with page.expect_response(re.compile(r"reveal=1")):
        release()
    settled(page)

    expect(page.locator("#detail h2")).to_have_text("GET /hook?token=••••••")
    expect(page.get_by_role("button", name="Show secrets")).to_be_visible()


def test_the_editor_is_about_the_request_that_is_chosen(house: House, page: Page) -> None:
    house.send("/two")
    two = house.newest()
    house.send("/one")
    choose(page, "/one")
    release = holding(page, re.compile(f"/requests/{two}$"))

    page.keyboard.press("j")
    page.keyboard.press("e")
    settled(page)
    expect(page.get_by_role("dialog")).to_have_count(0)
    release()

    expect(page.get_by_label("Path and query")).to_have_value("/two")


def test_a_paused_page_keeps_each_request_once_and_tells_how_things_are(
    house: House, page: Page
) -> None:
    house.send("/before")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    slow = threading.Thread(target=house.send, args=("/slow",))
    slow.start()
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    house.release.set()
    slow.join()
    house.client.tunnels.start(name="second", proto="http", addr=house.local)
    house.send("/more")
    expect(page.get_by_role("button", name="Resume (2 new)")).to_be_visible()
    expect(page.locator("#room")).to_contain_text("2 tunnels")
    expect(rows(page)).to_have_count(1)

    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_count(3)
    expect(rows(page).nth(1)).to_contain_text("200")
    expect(rows(page)).to_contain_text(["/more", "/slow", "/before"])


def test_a_paused_page_tells_how_the_session_is(house: House, page: Page) -> None:
    page.get_by_role("button", name="Pause").click()

    house.service.stop()

    expect(page.locator("#state")).to_have_text("◌ reconnecting")


def test_what_is_not_kept_while_the_page_is_paused_is_not_shown(house: House, page: Page) -> None:
    house.send("/before")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    house.send("/while-paused")
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()

    house.client.requests.clear()
    expect(page.get_by_role("button", name="Resume (0 new)")).to_be_visible()
    page.get_by_role("button", name="Resume").click()

    expect(rows(page)).to_have_count(0)


def test_what_stops_to_match_while_the_page_is_paused_is_not_shown(
    house: House, page: Page
) -> None:
    page.get_by_role("searchbox").fill("status:pending")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#count")).to_have_text("0 shown of 0")
    page.get_by_role("button", name="Pause").click()
    slow = threading.Thread(target=house.send, args=("/slow",))
    slow.start()
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    house.release.set()
    slow.join()
    expect(page.get_by_role("button", name="Resume (0 new)")).to_be_visible()

    page.get_by_role("button", name="Resume").click()
    settled(page)

    expect(rows(page)).to_have_count(0)


def test_going_back_to_the_list_forgets_the_request(house: House, page: Page) -> None:
    house.send("/hook")
    page.get_by_role("searchbox").fill("path:/hook")
    page.get_by_role("searchbox").press("Enter")
    choose(page, "/hook")

    page.go_back()

    expect(page.locator("#detail")).to_have_text("Select a request to see it.")
    expect(page.locator("#rows .chosen")).to_have_count(0)
    page.locator("#list").focus()
    page.keyboard.press("r")
    page.keyboard.press("e")
    settled(page)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(rows(page)).to_have_count(1)


def test_copying_is_seen_for_two_seconds(house: House, page: Page) -> None:
    """Also when the request is drawn anew meanwhile, as each answer to a replay makes it."""
    house.send("/hook")
    choose(page, "/hook")
    first = page.get_by_label("Copy the request as").locator("option").first
    room = page.locator("#room")
    before = room.text_content() or ""
    # Time stands still from here on, however busy the machine is.
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") + 60_000)

    assert "/hook" in copied(page, "url")
    expect(first).to_have_text("Copied ✓")
    house.client.requests.replay(house.newest())
    expect(room).not_to_have_text(before)
    page.clock.run_for(1000)
    expect(page.locator("#detail")).to_contain_text("Replays")
    expect(first).to_have_text("Copied ✓")
    page.clock.run_for(1000)

    expect(first).to_have_text("Copy as…")


def test_a_key_that_is_held_down_replays_once_and_moves_on(house: House, page: Page) -> None:
    for number in range(4):
        house.send(f"/{number}")
    expect(rows(page)).to_have_count(4)
    for _ in range(3):
        page.keyboard.down("j")
    page.keyboard.up("j")
    expect(page.locator("#detail h2")).to_have_text("GET /1")

    for _ in range(5):
        page.keyboard.down("r")
    page.keyboard.up("r")

    expect(page.locator("#detail")).to_contain_text("Replay of")
    settled(page)
    expect(rows(page)).to_have_count(5)


def test_text_that_is_cut_off_is_text(house: House, page: Page) -> None:
    house.send("/letters", "POST", b"x" + "é".encode() * (1 << 19) + b"end")
    choose(page, "/letters")
    expect(page.locator("#Request-panel")).to_contain_text("the first 1.05 MB of 1.05 MB")
    expect(tab(page, "Request", "Body").locator("pre")).to_contain_text("xéé")
    expect(tab(page, "Request", "Raw").locator("pre")).to_contain_text("\n\nxéé")

    part = '--B\r\nContent-Disposition: form-data; filename="f"; name="{}"\r\n\r\n{}'
    form = f"{part.format('whole', 'one')}\r\n{part.format('cut', 'tw')}"
    house.send("/form", "POST", form.encode(), {"Content-Type": "multipart/form-data; boundary=B"})
    choose(page, "/form")
    expect(tab(page, "Request", "Body").locator("h4")).to_have_text(["whole", "cut"])


def test_a_filter_with_a_mistake_leaves_nothing_to_wait_for(house: House, page: Page) -> None:
    house.send("/hook")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("searchbox").fill("is:odd")
    page.get_by_role("searchbox").press("Enter")

    expect(page.get_by_role("alert").first).to_contain_text("is:odd")
    expect(page.locator("#count")).not_to_have_class("busy")


def test_a_card_follows_the_tunnel_that_has_the_name(house: House, page: Page) -> None:
    page.get_by_role("link", name="Status", exact=True).click()
    address = page.locator(".card a")
    expect(address).to_have_text(house.tunnel.public_url or "")
    release = holding(page, re.compile(r"/inspect/data/status$"))
    house.client.tunnels.stop("web")
    now = house.client.tunnels.start(name="web", proto="http", addr=1)
    assert now.public_url != house.tunnel.public_url

    release()

    expect(address).to_have_text(now.public_url or "")
    expect(address).to_have_attribute("href", now.public_url or "")
    expect(page.locator(".card")).to_contain_text("localhost:1")


def test_a_selection_stays_while_the_status_page_is_drawn_anew(house: House, page: Page) -> None:
    house.client.tunnels.start(name="away", proto="http", addr=1)
    house.service.stop()
    page.get_by_role("link", name="Status", exact=True).click()
    oldest = page.locator(".failures li").last
    expect(oldest.locator("time")).to_be_visible()
    told = oldest.inner_text()
    oldest.evaluate("(item) => getSelection().selectAllChildren(item)")
    assert page.evaluate("getSelection().toString()") == told

    for _ in range(3):
        with page.expect_response(re.compile(r"/inspect/data/status$")):
            pass
    settled(page)

    assert page.evaluate("getSelection().toString()") == told
    times = page.locator(".failures time").all_inner_texts()
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)
