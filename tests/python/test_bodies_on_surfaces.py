"""The same bodies on every surface: charsets, content codings and kinds, read in one way."""

from __future__ import annotations

import gzip
import html
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import brotli
import pytest
import zstandard

import ginnel
from browsing import House, Local, serving
from ginnel.local.requests import CapturedRequest
from ginnel.testing import assert_received

CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda body: body,
    "gzip": lambda body: gzip.compress(body, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
    "deflate, gzip": lambda body: gzip.compress(zlib.compress(body), mtime=0),
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body, mtime=0), mtime=0),
}

WORDS = {
    "utf-8": "Größe 東京 €",
    "utf-8-sig": "Größe 東京 €",
    "windows-1252": "Größe €",
    "iso-8859-15": "Größe €",
    "koi8-r": "привет",
    "shift_jis": "東京",
    "gbk": "茶叶",
    "euc-kr": "안녕",
    "utf-16": "Größe 東京 €",
    "utf-16-be": "Größe 東京 €",
}
"""A charset, as Python names it, and words that it has."""

KINDS = ("text", "json", "ndjson", "xml", "html", "graphql", "events")


@dataclass
class Body:
    """A request body and its readable form."""

    number: int
    charset: str
    coding: str
    kind: str

    @property
    def words(self) -> str:
        return f"{WORDS[self.charset]} no{self.number:03}"

    @property
    def text(self) -> str:
        match self.kind:
            case "json":
                return json.dumps({"words": self.words, "n": 1.50}, ensure_ascii=False)
            case "ndjson":
                return f'{{"words": "{self.words}"}}\n{{"n": 2}}\n'
            case "xml":
                return f"<words>{self.words}</words>"
            case "html":
                return f"<!doctype html><p>{self.words}</p>"
            case "graphql":
                return f'query {{ find(words: "{self.words}") {{ id }} }}'
            case "events":
                return f"data: {self.words}\n\n"
        return self.words

    @property
    def content_type(self) -> str:
        types = {
            "text": "text/plain",
            "json": "application/json",
            "ndjson": "application/x-ndjson",
            "xml": "text/xml",
            "html": "text/html",
            "graphql": "application/graphql",
            "events": "text/event-stream",
        }
        label = self.charset.removesuffix("-sig")
        return f"{types[self.kind]}; charset={label.upper() if self.number % 2 else label}"

    @property
    def sent(self) -> bytes:
        return CODINGS[self.coding](self.text.encode(self.charset))

    def __str__(self) -> str:
        return f"{self.kind}, {self.charset}, {self.coding or 'no coding'}"


BODIES = [
    Body(number, charset, coding, KINDS[number % len(KINDS)])
    for number, (charset, coding) in enumerate(product(WORDS, list(CODINGS)[:6]))
] + [Body(100 + at, "utf-8", "gzip, gzip", kind) for at, kind in enumerate(KINDS)]


class Captured:
    """All bodies, captured by one agent."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.ids: dict[int, str] = {}
        for body in BODIES:
            self.send(body, f"/body/{body.number}")
        for captured in house.client.requests.list(limit=200):
            number = int(captured.request.uri.rpartition("/")[2])
            self.ids[number] = captured.id

    def send(self, body: Body, path: str) -> None:
        headers = {"Content-Type": body.content_type}
        if body.coding:
            headers["Content-Encoding"] = body.coding
        url = f"{str(self.house.tunnel.public_url).rstrip('/')}{path}"
        urlopen(Request(url, body.sent, headers), timeout=30).read()

    def ask(self, path: str) -> Any:
        with urlopen(self.house.base + path, timeout=30) as response:
            return json.load(response)

    def get(self, body: Body) -> CapturedRequest:
        return self.house.client.requests.get(self.ids[body.number])


@pytest.fixture(scope="module")
def captured() -> Iterator[Captured]:
    with serving(Local) as local, ginnel.Service() as service, ginnel.Agent(service) as agent:
        yield Captured(House(service, agent, local))


def check_all(read: Any) -> None:
    """Compares what a surface reads of each body with its text."""
    wrong = {str(body): got for body in BODIES if (got := read(body)) != body.text}
    assert not wrong


def test_there_are_enough_bodies() -> None:
    assert len(BODIES) >= 60
    assert len({(body.charset, body.coding, body.kind) for body in BODIES}) == len(BODIES)


def test_python_reads_them(captured: Captured) -> None:
    check_all(lambda body: captured.get(body).request.text)


def test_responses_are_read_like_requests(captured: Captured) -> None:
    class Same(Local):
        """Responds with a body of the table."""

        def handle_one(self) -> None:
            body = next(it for it in BODIES if self.path == f"/body/{it.number}")
            self.send_response(200)
            self.send_header("Content-Type", body.content_type)
            if body.coding:
                self.send_header("Content-Encoding", body.coding)
            self.send_header("Content-Length", str(len(body.sent)))
            self.end_headers()
            self.wfile.write(body.sent)

    here = captured.house.client
    with serving(Same) as local, here.tunnels.open(addr=local, proto="http", name="same") as same:
        for body in BODIES:
            urlopen(f"{str(same.public_url).rstrip('/')}/body/{body.number}", timeout=30).read()
        listed = here.requests.list(limit=200, tunnel_name="same").to_list()
    answers = {int(it.request.uri.rpartition("/")[2]): it.response for it in listed}

    check_all(lambda body: answers[body.number].text)  # type: ignore[union-attr]
    for body in BODIES:
        if body.kind == "json":
            assert answers[body.number].json() == json.loads(body.text)  # type: ignore[union-attr]


def test_the_inspector_reads_them(captured: Captured) -> None:
    detail = "/inspect/data/requests/"

    check_all(lambda body: captured.ask(detail + captured.ids[body.number])["request"]["text"])


def test_the_editor_has_their_text_and_sends_it_changed(captured: Captured) -> None:
    def edit(body: Body) -> str:
        path = f"/inspect/data/requests/{captured.ids[body.number]}"
        exact = captured.ask(f"{path}?reveal=1&whole=1")["request"]
        assert exact["editable"], body
        changes = {"tunnel": "web", "body_text": exact["text"].replace(" no", " NO")}
        request = Request(
            f"{captured.house.base}{path}/replay",
            json.dumps(changes).encode(),
            {"Content-Type": "application/json", "Origin": captured.house.base},
        )
        with urlopen(request, timeout=30) as response:
            sent = json.load(response)["id"]
        replayed = captured.house.client.requests.get(sent).request
        assert replayed.header("content-encoding") is None
        return replayed.text.replace(" NO", " no")

    check_all(edit)


def test_the_filter_finds_each_by_its_words(captured: Captured) -> None:
    def find(body: Body) -> list[str]:
        words = quote(f'body:"{body.words}" path:/body/{body.number}')
        listed = captured.ask(f"/inspect/data/requests?filter={words}")["requests"]
        return [one["id"] for one in listed]

    wrong = {str(it): found for it in BODIES if captured.ids[it.number] not in (found := find(it))}
    assert not wrong


def test_archives_have_their_text(captured: Captured) -> None:
    ids = "&".join(f"id={key}" for key in captured.ids.values())
    archive = captured.ask(f"/inspect/data/export.har?{ids}")
    entries = {
        int(entry["request"]["url"].rpartition("/")[2]): entry
        for entry in archive["log"]["entries"]
    }

    check_all(lambda body: entries[body.number]["request"]["postData"]["text"])


def test_cards_show_their_words(captured: Captured) -> None:
    def is_shown(body: Body) -> bool:
        return body.words in html.unescape(captured.get(body)._repr_html_())

    assert not [str(body) for body in BODIES if not is_shown(body)]


def test_held_requests_are_read_like_captured_ones(captured: Captured) -> None:
    house = captured.house
    with house.client.holds.open(path="/held/*"):
        for body in BODIES[:: len(CODINGS) + 1]:
            visit = threading.Thread(target=captured.send, args=(body, f"/held/{body.number}"))
            visit.start()
            held = house.client.held_requests.wait_for()
            [shown] = captured.ask("/inspect/data/held")
            assert (held.request.text, shown["request"]["text"]) == (body.text, body.text)
            house.client.held_requests.release(held.id)
            visit.join(30)


def test_assertions_compare_their_text_and_their_json(captured: Captured) -> None:
    for body in BODIES:
        [request] = assert_received([captured.get(body)], body=body.text)
        assert request.id == captured.ids[body.number]
        if body.kind == "json":
            assert_received([request], json=json.loads(body.text))
