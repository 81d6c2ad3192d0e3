"""The web inspection page in a real browser: requests that are sent again and again."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browsing import House, choose, rows
from processes import wait_until
from test_page_rules import accessible


def schedule_in(page: Page, times: str, seconds: str) -> None:
    page.get_by_role("button", name="More").press("Enter")
    page.get_by_role("button", name="Replay several times…").press("Enter")
    page.get_by_label("Times", exact=True).fill(times)
    page.get_by_label("Seconds between").fill(seconds)
    page.get_by_label("Seconds between").press("Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_schedule_is_started_and_stopped_by_keyboard(
    house: House, page: Page, scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    house.send("/hook?token=abcdef", "POST", b"hello")
    choose(page, "/hook?")
    bar = page.get_by_role("region", name="Replays on a schedule")
    expect(bar).to_have_count(0)

    schedule_in(page, "", "0.05")
    refused = page.get_by_label("Seconds between").evaluate("it => it.validity.rangeUnderflow")
    assert refused
    page.get_by_label("Seconds between").fill("0.1")
    page.get_by_label("Seconds between").press("Enter")

    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(bar).to_contain_text("POST /hook?token=••••••")
    expect(bar).to_contain_text(re.compile(r"every 0.1 s · sent \d+ · last 200 · to tunnel web"))
    stop = page.get_by_role("button", name="Stop schedule-1")
    stop.focus()
    wait_until(lambda: house.client.replay_schedules.get("schedule-1").sent > 4, "replays")
    expect(stop).to_be_focused()
    accessible(page)
    stop.press("Enter")
    expect(bar).to_have_count(0)
    expect(page.locator("#list")).to_be_focused()
    assert house.client.replay_schedules.list().to_list() == []
    # One may have been on its way when the schedule was stopped.
    page.wait_for_timeout(400)
    count = page.locator("#count").inner_text()
    page.wait_for_timeout(400)
    expect(page.locator("#count")).to_have_text(count, timeout=1)
    page.keyboard.press("k")
    expect(page.locator("#detail")).to_contain_text("Sent by")


def test_what_is_too_frequent_for_a_schedule_is_sent_all_the_same(house: House, page: Page) -> None:
    house.send("/hook", "POST", b"hello")
    choose(page, "/hook")

    schedule_in(page, "5", "0.05")

    expect(page.locator("#toasts")).to_contain_text("The request is sent 5 times")
    wait_until(lambda: len(house.client.requests.list().to_list()) == 6, "replays")
    assert house.client.replay_schedules.list().to_list() == []
    # What comes closes the menu of actions.
    expect(rows(page)).to_have_count(6)
    schedule_in(page, "101", "0.05")
    expect(page.get_by_role("dialog")).to_have_count(1)
    expect(page.get_by_label("Seconds between")).to_have_js_property("min", "0.1")
    page.get_by_label("Times", exact=True).fill("5")
    expect(page.get_by_label("Seconds between")).to_have_js_property("min", "0")


def test_the_end_of_a_schedule_is_told(house: House, page: Page) -> None:
    house.send("/status/500/first")
    choose(page, "/status/500/first")
    bar = page.get_by_role("region", name="Replays on a schedule")

    schedule_in(page, "3", "0.5")

    expect(bar).to_contain_text(re.compile(r"sent [123] of 3 · [123] failed · last 500"))
    expect(page.locator("#toasts")).to_contain_text(
        "GET /status/500/first was sent 3 times, 3 failed"
    )
    expect(bar).to_have_count(0)
    first = house.client.requests.list().to_list()[-1].id
    house.client.replay_schedules.add(captured_id=first, interval=60_000)
    expect(bar).to_contain_text(re.compile(r"next in \d+ s"))
    house.client.requests.delete(first)
    expect(bar).to_contain_text(f"ended: the request {first} was deleted")
    accessible(page)
    page.get_by_role("button", name="Dismiss schedule-2").press("Enter")
    expect(bar).to_have_count(0)
