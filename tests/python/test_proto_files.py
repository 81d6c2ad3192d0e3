"""Messages of gRPC by their `.proto` files: over the API, on the command line, and in a browser."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import ginnel
from browsing import PATIENCE, Watch
from grpc_shop import channel
from test_page_hostile import HOSTILE

grpc = pytest.importorskip("grpc")

DATA = Path(__file__).parents[1] / "data" / "proto"
FILES = {
    "shop.proto": (DATA / "shop.proto").read_text(),
    "common/money.proto": (DATA / "common" / "money.proto").read_text(),
}
ORDER = (DATA / "order.bin").read_bytes()
ORDER_JSON = json.loads((DATA / "order.json").read_text())


@pytest.fixture
def agent() -> Iterator[ginnel.Agent]:
    """An agent that has captured one call, whose receipt says what the order is called."""
    handlers = {"Take": grpc.unary_unary_rpc_method_handler(lambda order, _: b"\n" + order[1:8])}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("shop.v1.Shop", handlers)]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with ginnel.Service(base_domain="tunnels.test") as service, ginnel.Agent(service) as agent:
        tunnel = agent.client().tunnels.start(
            addr=port, proto="http", name="shop", app_protocol="http2"
        )
        with channel(service, tunnel.public_url) as calls:
            take = calls.unary_unary("/shop.v1.Shop/Take")
            assert take(ORDER, timeout=20) == b"\n\x06o-1841"
        yield agent
    server.stop(None).wait()


def messages(agent: ginnel.Agent) -> list[tuple[str | None, Any]]:
    """The types of the messages of the call, and what they say."""
    client = agent.client()
    captured = client.requests.wait_for()
    return [(it.message_type, it.message) for it in client.requests.messages(captured.id)]


def test_a_call_says_what_it_means_by_its_files(agent: ginnel.Agent) -> None:
    proto_files = agent.client().proto_files
    assert messages(agent) == [(None, None), (None, None)]

    added = proto_files.add(files=FILES).proto_files

    assert [file.name for file in added] == ["common/money.proto", "shop.proto"]
    assert added[1].methods == ["/shop.v1.Shop/Take", "/shop.v1.Shop/Talk"]
    assert "shop.v1.Order.Line" in added[1].messages
    assert messages(agent) == [
        ("shop.v1.Order", ORDER_JSON),
        ("shop.v1.Receipt", {"order_id": "o-1841"}),
    ]
    assert proto_files.get("common/money.proto") == added[0]
    assert [file.name for file in proto_files.list()] == ["common/money.proto", "shop.proto"]
    proto_files.delete("shop.proto")
    assert messages(agent) == [(None, None), (None, None)]


async def test_a_descriptor_set_does_the_same(agent: ginnel.Agent) -> None:
    async with ginnel.AsyncAgentClient(base_url=agent.url) as client:
        await client.proto_files.add(descriptor_set=(DATA / "shop.binpb").read_bytes())
        assert messages(agent)[0] == ("shop.v1.Order", ORDER_JSON)
        await client.proto_files.clear()
    assert messages(agent) == [(None, None), (None, None)]


def test_what_is_wrong_is_said_with_its_line(agent: ginnel.Agent) -> None:
    proto_files = agent.client().proto_files

    for arguments, problem in [
        (
            {"files": {"shop.proto": FILES["shop.proto"]}},
            "shop.proto:6: imports common/money.proto",
        ),
        (
            {"files": {"a.proto": "message A {\n  string a = 1\n}"}},
            'a.proto:3: expected ";", found',
        ),
        ({"descriptor_set": b"no set"}, "descriptor_set: is no set of file descriptors"),
        ({}, "files or descriptor_set must be there"),
        ({"files": {"a.txt": ""}}, "ends in .proto"),
    ]:
        with pytest.raises(ginnel.BadRequestError, match="invalid") as refused:
            proto_files.add(**arguments)  # type: ignore[arg-type]
        assert problem in f"{refused.value} {refused.value.details}", arguments
    with pytest.raises(ginnel.APIStatusError) as long:
        proto_files.add(files={"a.proto": "// " + "x" * (1 << 20)})
    assert long.value.status_code == 413
    assert proto_files.list().to_list() == []


def test_files_are_added_on_the_command_line(agent: ginnel.Agent) -> None:
    def local(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ginnel", "local", "proto-files", *arguments]
        command += ["--base-url", agent.url or ""]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    encoded = base64.b64encode((DATA / "shop.binpb").read_bytes()).decode()
    added = local("add", "--descriptor-set", encoded, "--output", "json")
    assert added.returncode == 0, added.stderr
    assert messages(agent)[0] == ("shop.v1.Order", ORDER_JSON)
    refused = local("add", "--files", "a.proto=message A {\n")
    assert refused.returncode != 0
    assert "a.proto:1: expected" in refused.stderr


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser, agent: ginnel.Agent) -> Iterator[Page]:
    assert agent.url
    base = agent.url.removesuffix("/api")
    context = browser.new_context(
        color_scheme=request.param, viewport={"width": 1400, "height": 900}
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    watch = Watch(page, base)
    page.goto(base)
    page.locator("#rows .row", has_text="/shop.v1.Shop/Take").click()
    expect(page.locator(".messages li")).to_have_count(2)
    yield page
    context.close()
    assert not watch.wrong


def test_files_are_chosen_in_the_page_and_messages_are_read_by_them(page: Page) -> None:
    first = page.locator(".messages li").first
    page.get_by_role("button", name="Proto files…").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("None yet")
    choose = page.get_by_label("Proto files or a descriptor set")
    expect(choose).to_be_focused()
    choose.set_input_files(DATA / "shop.proto")
    expect(dialog.get_by_role("alert")).to_contain_text("shop.proto:6: imports common/money.proto")
    assert not Axe().run(page).response["violations"]

    choose.set_input_files([DATA / "shop.proto", DATA / "common" / "money.proto"])
    expect(dialog.locator("li")).to_have_count(2)
    expect(dialog.get_by_role("alert")).to_have_count(0)
    assert not Axe().run(page).response["violations"]
    page.keyboard.press("Escape")

    expect(first).to_contain_text("Order")
    expect(first).to_contain_text('"id":"o-1841"')
    first.locator("summary").first.press("Enter")
    body = first.locator(".message-full")
    expect(body).to_contain_text("STATUS_LOST")
    expect(body).to_contain_text("2026-11-23T10:20:30.125Z")
    # Its name says that it is secret, and what cannot be read is counted.
    assert "swordfish" not in page.locator(".messages").inner_text()
    expect(first).to_contain_text("masked")
    expect(body.get_by_text("By the numbers of the fields")).to_have_count(0)
    expect(body).to_contain_text("(5 bytes)")
    assert not Axe().run(page).response["violations"]

    page.get_by_role("button", name="Proto files…").press("Enter")
    page.get_by_role("button", name="Remove money.proto").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("shop.proto:6")
    page.get_by_role("button", name="Remove shop.proto").press("Enter")
    expect(dialog.locator("li")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(first).not_to_contain_text('"id"')


def test_nothing_of_a_file_or_a_message_is_more_than_text(
    agent: ginnel.Agent, browser: Browser
) -> None:
    assert agent.url
    names = [re.sub(r"[\x00-\x1f\x7f]", "", payload)[:100] + ".proto" for payload in HOSTILE]
    agent.client().proto_files.add(files=dict.fromkeys(names, "// nothing"))
    agent.client().proto_files.add(files=FILES)
    context = browser.new_context()
    page = context.new_page()
    watch = Watch(page, agent.url.removesuffix("/api"))
    page.goto(agent.url.removesuffix("/api"))
    page.locator("#rows .row", has_text="/shop.v1.Shop/Take").click()
    page.get_by_role("button", name="Proto files…").click()
    expect(page.get_by_role("dialog").locator("li")).to_have_count(len(set(names)) + 2)
    harmful = "[onerror], [onload], [onfocus], main img, dialog img, dialog script, iframe"
    assert page.locator(harmful).count() == 0
    context.close()
    assert not watch.wrong
