"""Archives of requests (HAR) that other programs write and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC
from email import message_from_bytes
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from jsonschema import Draft6Validator
from playwright.sync_api import Browser
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT6

import ginnel
from browsing import House as BrowsedHouse

SCHEMAS = Path(__file__).parents[1] / "data/har-schema"


@dataclass
class House:
    """An agent that archives are loaded into."""

    client: ginnel.AgentClient
    base: str

    def load(self, *entries: dict[str, Any], **log: Any) -> Any:
        return self.client.requests.load(log={"entries": list(entries), **log})

    def one(self, entry: dict[str, Any]) -> Any:
        loaded = self.load(entry)
        assert (len(loaded.ids), loaded.problems) == (1, [])
        return self.client.requests.get(loaded.ids[0])

    def exported(self, query: str = "reveal=1") -> dict[str, Any]:
        with urlopen(f"{self.base}/inspect/data/export.har?{query}", timeout=20) as answer:
            log: dict[str, Any] = json.load(answer)["log"]
        return log


@pytest.fixture
def agent() -> Iterator[House]:
    with ExitStack() as stack:
        service = stack.enter_context(ginnel.Service())
        agent = stack.enter_context(ginnel.Agent(service))
        client = stack.enter_context(agent.client())
        yield House(client, (agent.url or "").removesuffix("/api"))


def entry(request: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "startedDateTime": "2026-11-23T10:00:00.123+01:00",
        "request": {
            "method": "POST",
            "url": "https://shop.test/orders?a=1",
            "headers": [{"name": "Host", "value": "shop.test"}],
            **(request or {}),
        },
        "response": {"status": 200, "headers": [], "content": {"text": "hi"}},
        "timings": {},
        **more,
    }


def named(**headers: str) -> list[dict[str, str]]:
    return [{"name": name.replace("_", "-"), "value": value} for name, value in headers.items()]


FIELDS = [
    {"name": "title", "value": "tea"},
    {"name": 'a "file"', "fileName": "tea.txt", "contentType": "text/plain", "value": "green"},
]


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        ("multipart/form-data; boundary=XX", "multipart/form-data; boundary=XX"),
        ('multipart/form-data; boundary="X X"', "multipart/form-data"),
        ("multipart/form-data", "multipart/form-data; boundary=XX"),
        ("multipart/form-data", "multipart/form-data"),
        (None, "multipart/form-data; boundary=XX"),
    ],
)
def test_a_form_of_parameters_has_the_boundary_of_its_header(
    agent: House, header: str | None, media_type: str
) -> None:
    headers = named(Content_Type=header) if header else []
    data = {"mimeType": media_type, "params": FIELDS}

    request = agent.one(entry({"headers": headers, "postData": data, "bodySize": 900})).request

    assert not request.truncated

    kind = request.header("content-type")
    parts = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + request.body)
    assert parts.is_multipart(), (kind, request.body)
    title, file = list(parts.walk())[1:]
    assert title.get_payload() == "tea"
    assert file.get_filename() == "tea.txt"
    assert (file.get_content_type(), file.get_payload()) == ("text/plain", "green")


@pytest.mark.parametrize(
    ("request_part", "expected"),
    [
        (
            {"postData": {"mimeType": "", "params": [{"name": "a b", "value": "ü&"}]}},
            (
                "/orders?a=1",
                {"Content-Type": ["application/x-www-form-urlencoded"]},
                b"a+b=%C3%BC%26",
            ),
        ),
        (
            {"postData": {"mimeType": "text/plain", "params": [{"name": "a", "value": "b c"}]}},
            ("/orders?a=1", {"Content-Type": ["text/plain"]}, b"a=b c\r\n"),
        ),
        (
            {"cookies": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]},
            ("/orders?a=1", {"Cookie": ["a=1; b=2"]}, b""),
        ),
        (
            {"url": "http://a.test/s", "queryString": [{"name": "q", "value": "a b"}]},
            ("/s?q=a+b", {}, b""),
        ),
        (
            {"headers": {"X-One": "1", "X-Two": ["2", 3]}},
            ("/orders?a=1", {"X-One": ["1"], "X-Two": ["2", "3"]}, b""),
        ),
        ({"headers": [["X-One", "1"]]}, ("/orders?a=1", {"X-One": ["1"]}, b"")),
        ({"url": "/relative"}, ("/relative", {}, b"")),
        (
            {"postData": {"text": "aGVs\r\nbG8", "encoding": "Base64"}},
            ("/orders?a=1", {}, b"hello"),
        ),
        ({"postData": {"text": "_-8", "encoding": "base64"}}, ("/orders?a=1", {}, b"\xff\xef")),
    ],
)
def test_requests_are_read_as_programs_write_them(
    agent: House, request_part: dict[str, Any], expected: tuple[str, dict[str, Any], bytes]
) -> None:
    request = agent.one(entry(request_part)).request

    assert (request.uri, request.headers, request.body) == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-11-23T10:00:00", "2026-11-23T10:00:00+00:00"),
        ("2026-11-23 10:00:00.5", "2026-11-23T10:00:00+00:00"),
        ("2026-11-23T10:00:00+0100", "2026-11-23T09:00:00+00:00"),
        ("Mon, 23 Nov 2026 10:00:00 GMT", "2026-11-23T10:00:00+00:00"),
        (1795428000000, "2026-11-23T10:00:00+00:00"),
    ],
)
def test_times_are_read_without_a_zone(agent: House, time: Any, expected: str) -> None:
    captured = agent.one(entry(startedDateTime=time))

    assert captured.start.astimezone(UTC).isoformat() == expected


def test_nothing_of_an_archive_is_lost_in_silence(agent: House) -> None:
    strange = entry(
        {"headers": [*named(x="1"), {"name": "not a name", "value": "x"}], "_priority": "high"},
        startedDateTime="yesterday",
        serverIPAddress="10.0.0.1",
        cache={},
        pageref="page_1",
        _webSocketMessages=[{"type": "neither"}],
    )

    loaded = agent.load(strange, browser={"name": "x"}, pages=[])

    assert len(loaded.ids) == 1
    assert loaded.problems == [
        'log.entries[0].request.headers: "not a name" is not a name; left out',
        'log.entries[0].startedDateTime: "yesterday" is not a time; the time of the import is used',
        "log.entries[0]._webSocketMessages: 1 cannot be read",
    ]
    assert loaded.ignored == [
        "browser",
        "entries[].pageref",
        "entries[].request._priority",
        "entries[].serverIPAddress",
    ]


def test_a_comment_is_a_note_and_a_failure_is_one(agent: House) -> None:
    noted = agent.one(entry(comment="looked at with Ada"))
    failure = {"status": 0, "_error": "net::ERR_FAILED", "comment": "net::ERR_FAILED"}
    failed = agent.one(entry(response=failure, comment="again on Monday"))
    former = {"status": 502, "headers": [], "content": {}, "comment": "refused"}
    former_failed = agent.one(entry(response=former, comment="refused"))

    assert (noted.error, noted.note) == (None, "looked at with Ada")
    assert (failed.error, failed.note) == ("net::ERR_FAILED", "again on Monday")
    assert (former_failed.error, former_failed.note) == ("refused", None)


def test_messages_of_websockets_come_along(agent: House) -> None:
    sent = [
        {"type": "send", "time": 1795428001.5, "opcode": 1, "data": '{"password": "abc", "n": 1}'},
        {"type": "receive", "time": 1795428002.25, "opcode": 2, "data": "AAH/"},
        {"type": "receive", "time": 1795428003.0, "opcode": 8, "data": "A+g="},
    ]
    socket = entry(
        startedDateTime="2026-11-23T10:00:00Z",
        response={"status": 101, "headers": named(Upgrade="websocket")},
        _webSocketMessages=sent,
    )

    captured = agent.one(socket)

    kinds = [(it.sender, it.kind) for it in agent.client.requests.messages(captured.id)]
    assert kinds == [("client", "text"), ("server", "binary"), ("server", "close")]
    assert agent.exported()["entries"][0]["_webSocketMessages"] == sent
    masked = agent.exported("")["entries"][0]["_webSocketMessages"]
    assert "abc" not in json.dumps(masked)
    assert masked[1:] == sent[1:]


def validator() -> Draft6Validator:
    schemas = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    resources = [
        (name, Resource.from_contents(schema, default_specification=DRAFT6))
        for name, schema in schemas.items()
    ]
    registry: Registry[Any] = Registry().with_resources(resources)
    return Draft6Validator({"$ref": "har.json"}, registry=registry)


def test_exports_follow_the_schema(agent: House) -> None:
    for request in (
        entry(comment="noted"),
        entry({"method": "GET", "url": "https://a.test/?a=b&c", "headers": named(Cookie="a=b; c")}),
        entry({"postData": {"mimeType": "multipart/form-data; boundary=X", "params": FIELDS}}),
        entry({"postData": {"text": "AP8=", "encoding": "base64"}}),
        entry(response={"status": 0, "_error": "broken"}),
        entry(
            response={"status": 302, "headers": named(Location="/x", Set_Cookie="a=b; Path=/")},
            _webSocketMessages=[{"type": "send", "time": 1.0, "opcode": 1, "data": "x"}],
        ),
    ):
        agent.one(request)

    for query in ("", "reveal=1"):
        log = agent.exported(query)
        problems = [
            f"{list(error.absolute_path)}: {error.message}"
            for error in validator().iter_errors({"log": log})
        ]
        assert problems == []
        assert len(log["entries"]) == 6
        assert log["pages"] == []
    broken = {"log": {**log, "entries": [{**log["entries"][0], "time": "long"}]}}
    assert list(validator().iter_errors(broken))


def test_a_browser_replays_an_export(house: BrowsedHouse, browser: Browser, tmp_path: Path) -> None:
    house.send("/page?x=1", "POST", b"kept")
    house.send("/page?x=1")
    archive = tmp_path / "requests.har"
    with urlopen(f"{house.base}/inspect/data/export.har?reveal=1", timeout=20) as answer:
        archive.write_bytes(answer.read())
    log = json.loads(archive.read_text())["log"]
    [url] = {it["request"]["url"] for it in log["entries"]}
    expected = log["entries"][-1]["response"]["content"]["text"]

    context = browser.new_context()
    context.route_from_har(archive, not_found="abort")
    page = context.new_page()
    page.goto(url)
    shown = page.evaluate("document.body.innerText")
    posted = page.evaluate(
        "fetch(location.href, { method: 'POST', body: 'kept' }).then((it) => it.status)"
    )
    context.close()

    assert shown.strip() == expected.strip()
    assert posted == 200
