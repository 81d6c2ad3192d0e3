"""The web inspection page in a real browser: what is shown follows what happens."""

from __future__ import annotations

import socket
import threading

from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import House, Local, choose, rows, serving, tab, wait_until

TARGETS = "[...document.querySelectorAll('#rows .row')].map((row) => row.querySelector('a').text)"


def test_what_does_not_match_any_more_leaves_the_list(house: House, page: Page) -> None:
    page.get_by_role("searchbox").fill("status:pending")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#count")).to_have_text("0 shown of 0")
    slow = threading.Thread(target=house.send, args=("/slow",))
    slow.start()
    expect(rows(page)).to_have_count(1)
    house.release.set()
    slow.join()

    expect(rows(page)).to_have_count(0)
    expect(page.locator("#count")).to_have_text("0 shown of 1")


def test_what_is_not_kept_any_more_leaves_the_list(house: House, browser: Browser) -> None:
    with ginnel.Agent(house.service, inspect_db_size=20_000) as agent:
        small = House(house.service, agent, house.local)
        context = browser.new_context(viewport={"width": 1500, "height": 900})
        page = context.new_page()
        page.goto(small.base)
        small.send("/oldest")
        expect(rows(page)).to_have_count(1)
        for number in range(12):
            small.send(f"/{number}", "POST", b"x" * 4000)

        # The last bytes are at the visitor a moment before they count.
        while not small.client.requests.get(small.newest()).duration:
            pass
        kept = len(small.client.requests.list().to_list())
        assert kept < 10
        expect(rows(page)).to_have_count(kept)
        expect(page.locator("#room")).to_contain_text(f"{13 - kept} evicted")
        wait_until(page, f"({TARGETS})[0] === '/11'")
        context.close()


def test_what_was_missed_is_got_however_much_it_is(house: House, page: Page) -> None:
    house.send("/first")
    expect(rows(page)).to_have_count(1)
    seen = """(is) => {
        Object.defineProperty(document, "hidden", { value: !is, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(seen, False)
    request = f"GET /r HTTP/1.1\r\nHost: 127.0.0.1:{house.port}\r\n\r\n".encode()
    with (
        socket.create_connection(("127.0.0.1", house.port), timeout=60) as connection,
        connection.makefile("rb") as answers,
    ):
        for _ in range(15):
            connection.sendall(request * 100)
            for _ in range(100):
                while answers.readline().strip():
                    pass

    page.evaluate(seen, True)

    expect(page.locator("#count")).to_have_text("1501 requests")
    page.locator("#list").focus()
    page.keyboard.press("End")
    wait_until(page, f"({TARGETS}).at(-1) === '/first'")
    shown = page.locator("#rows .row").evaluate_all("(rows) => rows.map((row) => row.dataset.id)")
    assert shown == sorted(shown, reverse=True)


def test_rows_are_in_the_order_that_is_seen_for_those_who_are_read_to(
    house: House, page: Page
) -> None:
    for number in range(60):
        house.send(f"/{number}")
    expect(page.locator("#count")).to_have_text("60 requests")
    wait_until(page, f"({TARGETS})[0] === '/59'")

    page.locator("#list").evaluate("(list) => { list.scrollTop = 900 }")
    wait_until(page, f"({TARGETS})[0] !== '/59'")
    page.locator("#list").evaluate("(list) => { list.scrollTop = 300 }")
    wait_until(page, f"({TARGETS}).includes('/55')")

    shown = [int(target.removeprefix("/")) for target in page.evaluate(TARGETS)]
    assert shown == sorted(shown, reverse=True)
    tops = page.evaluate(
        "[...document.querySelectorAll('#rows .row')].map((row) => row.getBoundingClientRect().y)"
    )
    assert tops == sorted(tops)


def test_the_chosen_request_is_drawn_anew_with_focus_and_place(house: House, page: Page) -> None:
    page.set_viewport_size({"width": 1000, "height": 660})
    slow = threading.Thread(target=house.send, args=("/slow", "POST", b"line\n" * 300))
    slow.start()
    choose(page, "/slow")
    expect(page.locator("#detail")).to_contain_text("No response yet.")
    tab(page, "Request", "Body")
    page.locator("#edit").focus()
    page.locator("#detail").evaluate("(detail) => { detail.scrollTop = 60 }")
    place = page.locator("#detail").evaluate("(detail) => detail.scrollTop")
    assert place > 0
    house.release.set()
    slow.join()

    expect(page.locator("#detail .outcome")).to_contain_text("200 OK")

    expect(page.locator("#edit")).to_be_focused()
    assert page.locator("#detail").evaluate("(detail) => detail.scrollTop") == place
    expect(page.get_by_role("tab", name="Body").first).to_have_attribute("aria-selected", "true")


def test_secrets_that_are_shown_are_those_of_one_request(house: House, page: Page) -> None:
    house.send("/one?token=abc")
    house.send("/two?token=def")
    choose(page, "/one")
    page.get_by_role("button", name="Show secrets").click()
    expect(page.locator("#detail h2")).to_have_text("GET /one?token=abc")

    expect(page.locator("#reveal")).to_have_attribute("aria-pressed", "true")

    choose(page, "/two")
    expect(page.locator("#detail h2")).to_have_text("GET /two?token=••••••")
    expect(page.locator("#reveal")).to_have_attribute("aria-pressed", "false")
    choose(page, "/one")
    expect(page.locator("#detail h2")).to_have_text("GET /one?token=••••••")


def test_a_chip_puts_its_term_into_the_filter_and_takes_it_out(house: House, page: Page) -> None:
    house.send("/status/500")
    house.send("/status/200")
    expect(rows(page)).to_have_count(2)
    chip = page.get_by_role("button", name="status:5xx")

    chip.click()
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_role("searchbox")).to_have_value("status:5xx")
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(chip).to_be_focused()
    chip.click()

    expect(rows(page)).to_have_count(2)
    expect(page.get_by_role("searchbox")).to_have_value("")


def test_those_who_do_not_see_the_page_are_told(house: House, page: Page) -> None:
    said = page.locator("#announcer")
    house.send("/hook")
    expect(said).to_have_text("1 requests are listed")
    choose(page, "/hook")
    page.keyboard.press("r")
    expect(said).to_have_text("The request was sent again")


def test_answers_that_are_cut_off_are_compared_as_text(house: House, page: Page) -> None:
    letters = "x" + "é" * (1 << 19) + "end"
    handler = type("Handler", (Local,), {"answer": (200, "text/plain", letters.encode())})
    with serving(handler) as local:
        house.client.tunnels.start(name="letters", proto="http", addr=local)
        house.send("/hook")
        choose(page, "/hook")
        page.keyboard.press("e")
        page.get_by_label("Tunnel").select_option("letters")
        page.get_by_role("button", name="Send").click()

        compared = page.locator(".compared .part").nth(1)
        expect(compared.locator(".added").last).to_contain_text("xéé")


def test_bodies_that_cannot_be_read_are_not_told_to_be_the_same(house: House, page: Page) -> None:
    packed = {"Content-Type": "text/plain", "Content-Encoding": "zstd"}
    house.send("/packed", "POST", b"\x8f\x00one", packed)
    choose(page, "/packed")
    page.keyboard.press("r")

    compared = page.locator(".compared .part").first
    expect(compared).to_contain_text("They are the same, as far as they can be read.")
