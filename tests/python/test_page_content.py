"""The web inspection page in a real browser: requests shown, copied and exported."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
import types
import zlib
from random import Random
from typing import Any
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from browsing import House, choose, copied, rows, tab, wait_until
from ginnel.local.requests import CapturedRequest


def test_a_request_is_shown_in_every_form(house: House, page: Page) -> None:
    head = {"Content-Type": "application/json", "Authorization": "Bearer abcdef"}
    house.send("/json?token=abc&x=a%20b", "POST", b'{"a":[1.50,{}],"password":"abc"}', head)
    choose(page, "/json")

    expect(page.locator("#detail h2")).to_have_text("POST /json?token=••••••&x=a%20b")
    expect(tab(page, "Request", "Headers")).to_contain_text("Bearer ••••••")
    query = tab(page, "Request", "Query").locator("tr")
    assert query.all_inner_texts() == ["token\t••••••", "x\ta b"]
    body = tab(page, "Request", "Body").locator("pre")
    expect(body).to_have_text('{\n  "a": [\n    1.50,\n    {}\n  ],\n  "password": "••••••"\n}')
    expect(tab(page, "Request", "Hex").locator("pre")).to_contain_text("7b 22 61 22 3a 5b")
    page.get_by_role("button", name="Show secrets").click()
    expect(page.locator("#detail h2")).to_contain_text("token=abc")
    expect(tab(page, "Request", "Raw")).to_contain_text("Bearer abcdef")
    expect(tab(page, "Request", "Body")).to_contain_text('"password": "abc"')

    house.send("/broken", "POST", b'{"a": 1,\n "b": }', {"Content-Type": "application/json"})
    choose(page, "/broken")
    expect(tab(page, "Request", "Body")).to_contain_text("not valid JSON: line 2, column 7")
    expect(page.locator("#Request-panel mark")).to_have_text("}")
    house.send("/xml", "POST", b"<a><b>text</b><c/></a>", {"Content-Type": "text/xml"})
    choose(page, "/xml")
    expect(page.locator("#Request-panel pre")).to_have_text("<a>\n  <b>text</b>\n  <c/>\n</a>")
    house.send("/worse", "POST", b"<a>\n<b></a>", {"Content-Type": "application/atom+xml"})
    choose(page, "/worse")
    expect(page.locator("#Request-panel")).to_contain_text("not valid XML: line 2")
    form = b"name=two+words&password=abc"
    house.send("/form", "POST", form, {"Content-Type": "application/x-www-form-urlencoded"})
    choose(page, "/form")
    panel = page.locator("#Request-panel tr")
    expect(panel).to_have_text(["nametwo words", "password••••••"])
    zipped = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    house.send("/zip", "POST", gzipped(b'{"small":true}'), zipped)
    choose(page, "/zip")
    expect(page.locator("#Request-panel")).to_contain_text('"small": true')
    expect(page.locator("#Request-panel")).to_contain_text("gzip decoded")
    packed = {"Content-Type": "application/json", "Content-Encoding": "zstd"}
    house.send("/zstd", "POST", zstd(b'{"token": "abcdef"}'), packed)
    choose(page, "/zstd")
    panel = page.locator("#Request-panel")
    expect(panel).to_contain_text('"token": "••••••"')
    expect(panel).to_contain_text("zstd decoded")
    packed["Content-Encoding"] = "compress"
    house.send("/packed", "POST", zstd(b'{"token": "abcdef"}'), packed)
    choose(page, "/packed")
    hidden = "28 B, compress is not a known content coding: this cannot be read here"
    expect(panel).to_have_text(f"{hidden} and may hold secrets.")
    for name in ("Raw", "Hex", "Body"):
        expect(tab(page, "Request", name)).not_to_contain_text("abcdef")
        expect(panel).not_to_contain_text("61 62 63 64")
    page.get_by_role("button", name="Show secrets").click()
    expect(panel).to_contain_text("compress is not a known content coding")
    expect(panel).to_contain_text("abcdef")
    house.send("/image", "POST", png(), {"Content-Type": "image/png"})
    choose(page, "/image")
    expect(page.locator("#Request-panel figcaption")).to_contain_text("8 \u00d7 8 pixels")
    house.send("/bytes", "POST", bytes(range(256)))
    choose(page, "/bytes")
    expect(page.locator("#Request-panel pre")).to_contain_text("000000f0  f0 f1")
    house.send("/long", "POST", b"x" * (2 << 20))
    choose(page, "/long")
    expect(page.locator("#Request-panel")).to_contain_text("the first 1.05 MB of 2.10 MB")
    expect(page.locator("#detail .outcome")).not_to_contain_text("truncated")


def test_mistakes_in_bodies_are_found_where_they_are(page: Page) -> None:
    random = Random(7)
    letters = '{}[],:"a1 -.e\\\t\n'
    texts = ["".join(random.choices(letters, k=random.randrange(12))) for _ in range(3000)]
    texts += ['{"a":[1,{"b":null}],"c":"\\u00e9"}', '"\\u12"', "[1 2]", "01", "nul"]
    found = page.evaluate(
        """async (texts) => {
            const { mistake } = await import("/inspect/assets/body.js");
            return texts.map(mistake);
        }""",
        texts,
    )
    for text, at in zip(texts, found, strict=True):
        try:
            json.loads(text)
            assert at is None, text
        except json.JSONDecodeError:
            assert isinstance(at, int), text
            assert at <= len(text), text

    pieces = ["<a>", "</a>", "<b c='1'>", "</b>", "<d/>", "x", "&amp;", "&", "<", " ", "<!-- -->"]
    texts = ["".join(random.choices(pieces, k=random.randrange(9))) for _ in range(3000)]
    found = page.evaluate(
        """async (texts) => {
            const { mistakeInXml } = await import("/inspect/assets/body.js");
            return texts.map(mistakeInXml);
        }""",
        texts,
    )
    for text, mistake in zip(texts, found, strict=True):
        try:
            ElementTree.fromstring(text)
            assert mistake is None, text
        except ElementTree.ParseError:
            assert mistake is not None, text


def test_long_bodies_are_drawn_in_part_and_never_for_ever(page: Page) -> None:
    found = page.evaluate(
        r"""async () => {
            const body = await import("/inspect/assets/body.js");
            const { viewer } = await import("/inspect/assets/viewer.js");
            const { difference } = await import("/inspect/assets/difference.js");
            const message = (text) => ({
                line: "GET /", headers: [], media_type: "text/plain", masked: false, kind: "text",
                text, length: text.length, kept: text.length, size: text.length,
                notes: [], parts: [], pairs: [],
            });
            const numbers = (count, each) => Array.from({ length: count }, (_, at) => each(at));
            const part = (at) => ({ name: `${at}`, head: "", media_type: "", text: "x", size: 1 });
            const form = { ...message("x"), kind: "multipart", parts: numbers(2300, part) };
            const lines = numbers(2500, (at) => `${at}`);
            const comment = "#".repeat(200);
            const deep = "[".repeat(40_000) + "]".repeat(40_000);
            const texts = [
                // None of these may need more than a moment, whatever a visitor sends.
                body.json(JSON.stringify({ query: `${comment}\n${comment} no operation` })),
                viewer(`<a ${"b".repeat(100_000)}`, "markup"),
                body.json(deep),
            ].map((element) => element.querySelector("pre").textContent);
            const pairs = body.pairs(numbers(2100, (at) => [`${at}`, "x"]));
            const longer = [...lines, "more"];
            const compared = difference(message(lines.join("\n")), message(longer.join("\n")));
            const tag = viewer(`<a ${"b".repeat(20_000)}>`, "markup");
            return {
                lengths: texts.map((text) => text.length),
                deep: deep.length,
                spans: tag.querySelectorAll("span[class^=t-]").length,
                pairs: [pairs.querySelectorAll("th").length, pairs.rows[2000].textContent],
                parts: body.show(form).querySelectorAll(".multipart").length,
                compared: [compared.children.length, compared.lastChild.textContent],
            };
        }"""
    )
    assert found["lengths"][1:] == [100_003, found["deep"]]
    assert found["lengths"][0] > 400
    assert found["spans"] == 0
    assert found["pairs"] == [2000, "… 100 more are not shown."]
    assert found["parts"] == 2000
    # Two lines stand before the body.
    assert found["compared"] == [2001, "… 503 more are not shown."]


def gzipped(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()


def zstd(body: bytes) -> bytes:
    """One frame with one block, which holds the bytes as they are."""
    block = struct.pack("<I", len(body) << 3 | 1)[:3]
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(body)]) + block + body


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    lines = zlib.compress(b"".join(b"\0" + b"\xff\x80\x00" * 8 for _ in range(8)))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def test_copies_do_what_the_request_did_and_nothing_else(
    house: House, page: Page, tmp_path: Any
) -> None:
    trap = tmp_path / "trap"
    body = f"'; touch {trap}; echo '$(touch {trap})`touch {trap}`\"\\\n@x".encode()
    path = f"/it's/$(touch%20{trap})/;id"
    house.send(path, "POST", body, {"X-Odd": f"'\"$(touch {trap})", "X-Empty": ""})
    choose(page, "/it's")
    page.get_by_role("button", name="Show secrets").click()
    expect(page.get_by_role("button", name="Hide secrets")).to_be_visible()

    script = copied(page, "curl")
    # Shows its words instead of sending anything.
    fake = "curl() { printf '%s\\0' \"$@\"; }\n"
    told = subprocess.run(["sh", "-c", fake + script], capture_output=True, check=True)
    words = told.stdout.split(b"\0")
    assert f"http://127.0.0.1:{house.port}{path}".encode() in words
    assert body in words
    assert f"X-Odd: '\"$(touch {trap})".encode() in words
    assert b"X-Empty;" in words
    assert not trap.exists()

    calls: list[tuple[Any, ...]] = []
    fake_requests = types.ModuleType("requests")

    def request(method: str, url: str, **options: Any) -> Any:
        calls.append((method, url, options))
        return types.SimpleNamespace(status_code=200, text="")

    fake_requests.request = request  # type: ignore[attr-defined]
    code = copied(page, "requests")
    before = sys.modules.get("requests")
    sys.modules["requests"] = fake_requests
    try:
        exec(compile(code, "copy", "exec"), {})
    finally:
        sys.modules.pop("requests")
        if before:
            sys.modules["requests"] = before
    method, url, options = calls[0]
    assert (method, url, options["data"]) == ("POST", f"http://127.0.0.1:{house.port}{path}", body)
    assert options["headers"]["X-Odd"] == f"'\"$(touch {trap})".encode()

    exec(compile(copied(page, "ginnel"), "copy", "exec"), {})
    expect(rows(page)).to_have_count(2)
    raw = copied(page, "raw").encode()
    assert raw.startswith(b"POST " + path.encode())
    assert raw.endswith(body)


@pytest.mark.parametrize(
    ("method", "body", "headers"),
    [
        ("GET", b"", {}),
        ("GET", b"asked", {"Content-Type": "text/plain"}),
        ("HEAD", b"", {"Accept": "*/*"}),
        ("HEAD", b"asked", {"Content-Type": "text/plain"}),
        ("POST", b"", {"User-Agent": "hook/1"}),
        ("POST", b"no type", {}),
        ("PUT", b"\xff\x00'", {}),
        ("DELETE", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}),
        ("POST", b"@file", {"X-Empty": "", "X-Odd": "'\"$HOME"}),
    ],
)
def test_a_copy_for_a_shell_sends_the_same_request(
    house: House, method: str, body: bytes, headers: dict[str, str]
) -> None:
    house.send("/it's?a=b", method, body, headers)
    original = house.client.requests.get(house.newest())
    path = f"{house.base}/inspect/data/requests/{original.id}/copy?as=curl"
    with urlopen(path) as answer:
        script = answer.read()

    subprocess.run(["sh", "-c", script], check=True, timeout=20, capture_output=True)

    again = house.client.requests.get(house.newest())
    assert again.id != original.id

    def told(captured: CapturedRequest) -> Any:
        request = captured.request
        passing = ("Connection", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")
        kept = {name: all for name, all in request.headers.items() if name not in passing}
        if method in ("GET", "HEAD") and not body:
            # It says that there is no body either way.
            kept.pop("Content-Length", None)
        return (request.method, request.uri, kept, request.body)

    assert told(again) == told(original)


def test_exports_are_archives(house: House, page: Page) -> None:
    house.send(
        "/a?token=abc", "POST", b"x=1", {"Content-Type": "application/x-www-form-urlencoded"}
    )
    house.send("/bytes", "POST", b"\xff\x00")
    house.send("/other")
    expect(rows(page)).to_have_count(3)

    with page.expect_download() as download:
        page.get_by_role("link", name="Export HAR").click()
    archive = json.loads(download.value.path().read_text())["log"]

    assert (archive["version"], archive["creator"]["name"]) == ("1.2", "ginnel")
    first, second, _ = archive["entries"]
    assert first["request"]["queryString"] == [{"name": "token", "value": "••••••"}]
    assert first["request"]["postData"]["params"] == [{"name": "x", "value": "1"}]
    assert base64.b64decode(second["response"]["content"]["text"]) == b"\xff\x00"
    assert first["time"] == sum(first["timings"].values())
    for entry in archive["entries"]:
        assert entry.keys() >= {"startedDateTime", "time", "cache", "timings"}
        assert entry["request"].keys() >= {"method", "url", "httpVersion", "cookies", "headersSize"}
        assert entry["response"].keys() >= {"statusText", "content", "redirectURL", "cookies"}
    with urlopen(f"{house.base}/inspect/data/export.har?filter=method:NONE") as answer:
        assert json.load(answer)["log"]["entries"] == []


def test_a_masked_copy_offers_the_one_with_secrets(house: House, page: Page) -> None:
    house.send("/login?token=abc", "POST", b"{}", {"Authorization": "Bearer abcdef"})
    choose(page, "/login")

    masked = copied(page, "curl")
    assert "abc" not in masked
    assert masked.startswith("# Secrets are masked: fill them in")
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_role("button", name="Copy with secrets").click()
    wait_until(page, "navigator.clipboard.readText().then((text) => text.includes('abcdef'))")
    revealed: str = page.evaluate("navigator.clipboard.readText()")

    assert revealed.startswith("curl ")
    assert "token=abc" in revealed
    expect(page.get_by_role("button", name="Copy with secrets")).to_have_count(0)


def test_a_raw_copy_of_bytes_names_another_form(house: House, page: Page) -> None:
    house.send("/bytes", "POST", b"\xff\x00")
    choose(page, "/bytes")

    page.get_by_label("Copy the request as").select_option("raw")

    expect(page.get_by_text("Copy it as curl or for Python")).to_be_visible()
