"""How answers become results: the reader of JSON, held against the standard library's."""

from __future__ import annotations

import json
import random

import pytest

import ginnel
from ginnel import _native
from ginnel.remote.api_keys import ApiKey
from ginnel.remote.tunnels import Tunnel

TEXTS = [
    "",
    "a",
    "seven b",
    "exactly8",
    "a little more than sixteen",
    "é and 🦊 in it",
    'a "quote"',
    "back\\slash",
    "line\nend\ttab",
    "\x7f",
    "x" * 100 + '"' + "y" * 9,
]


def read(text: str | bytes) -> ApiKey:
    raw = text.encode() if isinstance(text, str) else text
    made = _native.decode(ApiKey, raw)
    assert isinstance(made, ApiKey)
    return made


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("ascii", [True, False])
def test_a_text_is_what_it_was(text: str, ascii: bool) -> None:
    wire = {"id": text, "uri": "u", "description": text, text + "?": [text, {text: text}]}

    key = read(json.dumps(wire, ensure_ascii=ascii))

    assert (key.id, key.description) == (text, text)
    assert key.to_dict() == wire


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"1","uri":"u"}',
        ' {\n"id" : "1" ,\t"uri" :\r"u" } ',
        '{"uri":"u","token":null,"id":"1"}',
        '{"id":"0","uri":"u","id":"1"}',
        '{"a":-0.5e+3,"id":"1","b":[],"c":{},"d":[[{}],0],"uri":"u","e":true,"f":null}',
    ],
)
def test_order_and_space_do_not_matter(text: str) -> None:
    assert read(text).to_dict() == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"id"',
        '{"id":',
        '{"id":"1"',
        '{"id":"1","uri":"u"',
        '{"id":"1","uri":"u",}',
        '{"id":"1" "uri":"u"}',
        '{"id":"1","uri":"u"}}',
        '{"id":"1","uri":"u"} 7',
        '{"id":1,"uri":"u"}',
        '{"id":"1","uri":"\n"}',
        '{"id":"1","uri":"\\x"}',
        '{"id":"1","uri":"\\ud800"}',
        '{"id":"1","uri":"u","a":01}',
        '{"id":"1","uri":"u","a":1.}',
        '{"id":"1","uri":"u","a":.5}',
        '{"id":"1","uri":"u","a":1e}',
        '{"id":"1","uri":"u","a":-}',
        '{"id":"1","uri":"u","a":nul}',
        '{"id":"1","uri":"u","a":nulls}',
        '{"id":"1","uri":"u","a":[1,]}',
        '{"id":"1","uri":"u","a":[1 2]}',
        '{"id":"1","uri":"u","a":"\\u12"}',
        '{"id":"1","uri":"u","a":{1:2}}',
        '{"id":"1","uri":"u","a":' + "[" * 200 + "]" * 200 + "}",
        '{"id":"1","uri":"u","created_at":"yesterday"}',
        '{"id":"1"}',
        b'{"id":"1","uri":"\xff"}',
    ],
)
def test_what_is_wrong_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"at byte|is missing|timestamp"):
        read(text)


def test_random_damage_is_never_taken_for_something_else() -> None:
    chance = random.Random(7)
    whole = json.dumps(
        {"id": "1", "uri": 'é"\\', "description": "d" * 20, "more": [1.5, {"a": None}, "t\n"]}
    ).encode()

    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.choice(b'"\\{}[],:0a \n\x01\xff')
        try:
            expected = json.loads(damaged.decode())
        except ValueError:
            expected = None
        try:
            found = read(bytes(damaged)).to_dict()
        except ValueError:
            continue
        assert found == expected, damaged


def test_fields_of_every_kind_are_read() -> None:
    tunnel = _native.decode(
        Tunnel,
        b'{"id":"t","labels":{"a":"b","c":null},"tunnel_session":{"id":"s","uri":"y"},'
        b'"backends":[{"id":"x","uri":"y"},{"id":"x","uri":"z"}]}',
    )

    assert tunnel.labels == {"a": "b", "c": None}
    assert (tunnel.tunnel_session.id, tunnel.tunnel_session.uri) == ("s", "y")
    assert [(one.id, one.uri) for one in tunnel.backends] == [("x", "y"), ("x", "z")]


def test_what_items_share_stays_with_each(service: ginnel.Service) -> None:
    with service.client() as remote:
        made = [
            remote.ip_policies.create(description=text, metadata="same")
            for text in ("one", "one", "", "two", "one", '"', '"')
        ]
        listed = remote.ip_policies.list().to_list()

    assert [item.to_dict() for item in listed] == [item.to_dict() for item in made[::-1]]
