"""How answers become results: the reader of JSON, held against the standard library's."""

from __future__ import annotations

import copy
import json
import pickle
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ginnel
from ginnel import _native
from ginnel._core.pager import Page
from ginnel.local.requests import CapturedRequest
from ginnel.local.tunnels import AgentTunnel
from ginnel.remote.api_keys import ApiKey
from ginnel.remote.edges.routes import HttpsEdgeRoute
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
        '{"id":"1","uri":"u","\\ud800":1}',
        '{"id":"1","uri":"u","a":{"\\ud800":1}}',
        '{"id":"1","uri":"u","a":["\\udc00\\ud800"]}',
        '{"id":"1","uri":"u","a":1e400}',
        '{"id":"1","uri":"u","a":[-1E999]}',
        '{"id":"1","uri":"u","a":' + "9" * 4301 + "}",
        '{"id":"1","uri":"u","a":' + "[" * 127 + "]" * 127 + "}",
        '{"id":"1","uri":"u","a":NaN}',
        '{"id":"1","uri":"u","a":Infinity}',
        '{"id":"1"}',
        '{"id":null,"uri":"u"}',
        '{"id":"1","id":null,"uri":"u"}',
        b'{"id":"1","uri":"\xff"}',
    ],
)
def test_what_is_wrong_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"at byte|is missing|is null"):
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


def shown(record: Any) -> None:
    """Makes sure that a result can be shown, compared, copied and written."""
    assert repr(record)
    assert str(record)
    assert record._repr_html_()
    assert Page([record], None, None)._repr_html_()
    assert record == record
    assert hash(record) == hash(copy.deepcopy(record))
    for name in record.__dataclass_fields__:
        getattr(record, name)
    wire = record.to_dict()
    assert json.loads(record.to_json()) == wire
    for other in (pickle.loads(pickle.dumps(record)), type(record).from_dict(wire)):
        assert other == record
        assert other.to_dict() == wire


MOMENT = datetime(2017, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2017-01-01T00:00:00Z", MOMENT),
        ("2017-01-01t00:00:00z", MOMENT),
        ("2017-01-01 02:00:00+02:00", MOMENT),
        ("2016-12-31T23:59:60Z", MOMENT),
        ("2016-12-31t23:59:60z", MOMENT),
        ("2017-01-01T01:59:60.25+02:00", MOMENT + timedelta(microseconds=250_000)),
        ("2017-01-01T00:00:00.5Z", MOMENT + timedelta(microseconds=500_000)),
        ("2017-01-01T00:00:00.123456789Z", MOMENT + timedelta(microseconds=123_456)),
        ("2017-01-01T00:00:00.000000999999z", MOMENT),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2016-02-29T00:00:00-23:59", None),
        ("2000-02-29T00:00:00+00:00", None),
        ("9999-12-31T22:58:60-01:00", None),
        ("2017-01-01T00:00:00." + "0" * 40 + "Z", MOMENT),
    ],
)
def test_a_time_is_that_moment(text: str, moment: datetime | None) -> None:
    key = read(json.dumps({"id": "1", "uri": "u", "created_at": text}))

    assert key.created_at is not None
    assert moment is None or key.created_at == moment
    assert key.created_at.tzinfo is not None
    assert key.to_dict()["created_at"] == text
    assert key.created_at.astimezone(UTC)
    shown(key)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2024-13-01T00:00:00Z", "no such day"),
        ("2023-02-29T00:00:00Z", "no such day"),
        ("0000-01-01T00:00:00Z", "no such day"),
        ("2024-01-01T24:00:00Z", "no such time of day"),
        ("2024-01-01T00:00:61Z", "no such time of day"),
        ("2024-01-01T00:00:00", "no offset"),
        ("2024-01-01T00:00:00.5", "no offset"),
        ("2024-01-01T00:00:00.Z", "no digits"),
        ("2024-01-01T00:00:00+24:00", "offset"),
        ("2024-01-01T00:00:00+0000", "offset"),
        ("1900-02-29T00:00:00Z", "no such day"),
        ("2024-04-31T00:00:00Z", "no such day"),
        ("2024-01-00T00:00:00Z", "no such day"),
        ("2024-01-01T00:60:00Z", "no such time of day"),
        ("2024-01-01T00:00:00,5Z", "offset"),
        ("2024-01-01T00:00:00+00:60", "offset"),
        ("2024-01-01T00:00:00ZZ", "offset"),
        ("2024-01-01T00:00:00é", "offset"),
        ("\uff12024-01-01T00:00:00Z", "form"),
        ("2024-01-01T00:00Z", "form"),
        ("9999-12-31T23:59:00-00:01", "year"),
        ("9999-12-31T23:58:60-00:01", "year"),
        ("2024-01-01", "form"),
        ("20240101T000000Z", "form"),
        ("", "form"),
        ("0001-01-01T00:00:00+00:01", "year"),
        ("9999-12-31T23:59:60Z", "year"),
    ],
)
def test_a_time_that_is_none_is_refused_at_once(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"created_at: .* timestamp: .*{problem}.* at byte 38"):
        read(json.dumps({"id": "1", "uri": "u", "created_at": text}, ensure_ascii=False))


INTEGERS = [0, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**64), 10**400, int("9" * 4300)]


@pytest.mark.parametrize("number", INTEGERS, ids=lambda number: str(number)[:20])
def test_an_integer_stays_one(number: int) -> None:
    wire = {"id": "1", "uri": "u", "new": [number, {"a": number}]}
    key = read(json.dumps(wire))
    assert key.extra == {"new": [number, {"a": number}]}
    assert key.to_dict() == wire
    shown(key)

    tunnel = _native.decode(AgentTunnel, json.dumps(tunnel_of(count=number, p50=number)).encode())
    assert tunnel.metrics.http.count == tunnel.metrics.http.p50 == number
    shown(tunnel)

    assert _native.parse(json.dumps({"n": number}).encode()) == {"n": number}


@pytest.mark.parametrize(
    "number", [0.1, 1e23, 5e-324, 1.7976931348623157e308, 9007199254740993.0, 123456.789e3, -0.0]
)
def test_a_float_keeps_its_digits(number: float) -> None:
    assert repr(_native.parse(json.dumps([number]).encode())) == repr([number])
    tunnel = _native.decode(AgentTunnel, json.dumps(tunnel_of(rate1=number)).encode())
    assert repr(tunnel.metrics.http.rate1) == repr(number)
    shown(tunnel)


def tunnel_of(**figures: float) -> dict[str, Any]:
    """A tunnel of an agent with these figures."""
    names = ("rate1", "rate5", "rate15", "p50", "p90", "p95", "p99")
    metrics: dict[str, Any] = dict.fromkeys(names, 0.0) | {"count": 1}
    http = metrics | figures
    return {
        "name": "t",
        "uri": "u",
        "public_url": "https://a.test",
        "proto": "https",
        "config": {"addr": "80", "inspect": True},
        "metrics": {"conns": metrics | {"gauge": 0}, "http": http},
    }


def captured(**fields: Any) -> dict[str, Any]:
    """A captured request with these fields in it."""
    request = {
        "method": "GET",
        "proto": "HTTP/1.1",
        "headers": {"a": ["b"]},
        "uri": "/",
        "raw": "",
    }
    return {
        "uri": "u",
        "id": "1",
        "tunnel_name": "t",
        "remote_addr": "::1",
        "start": "2024-01-01T00:00:00Z",
        "duration": 1,
        "request": request | fields.pop("request", {}),
    } | fields


@pytest.mark.parametrize("duration", [0, -1, 10**400, -(10**400)], ids=lambda n: str(n)[:9])
def test_a_duration_of_any_size_is_shown(duration: int) -> None:
    response = {"status": "200 OK", "status_code": duration, "proto": "p", "headers": {}, "raw": ""}
    wire = captured(duration=duration, response=response)

    request = _native.decode(CapturedRequest, json.dumps(wire).encode())

    assert request.duration == duration
    shown(request)


@pytest.mark.parametrize("raw", ["", "AAAA", "AAA=", "AA==", "+/09"])
def test_bytes_are_read(raw: str) -> None:
    wire = captured(request={"raw": raw})

    request = _native.decode(CapturedRequest, json.dumps(wire).encode())

    assert request.to_dict() == wire
    shown(request)


@pytest.mark.parametrize("raw", ["A", "AAA", "!!!!", "A===", "AAAA\n", "AA-_", "é"])
def test_bytes_that_are_none_are_refused_at_once(raw: str) -> None:
    with pytest.raises(ValueError, match=r"request\.raw: no base64 at byte \d+"):
        _native.decode(CapturedRequest, json.dumps(captured(request={"raw": raw})).encode())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"duration": 1.5}, "duration: a value that is not an integer at byte"),
        ({"duration": "1"}, "duration: a value that is not a number at byte"),
        (
            {"request": {"headers": {"a": ["b", 3]}}},
            r"request.headers.a\[1\]: a value that is not a string at byte",
        ),
        ({"request": {"method": None}}, "request.method is null"),
        ({"response": {}}, "response.status is missing"),
        ({"new": [1, {"a": ["\ud800"]}]}, "new: an invalid escape at byte"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _native.decode(CapturedRequest, json.dumps(captured(**fields)).encode())


def test_an_integer_that_python_does_not_read_is_named() -> None:
    text = json.dumps(captured(duration=77)).replace("77", "7" * 5000)

    with pytest.raises(ValueError, match="duration: an integer of more than 4300 digits at byte"):
        _native.decode(CapturedRequest, text.encode())


def test_headers_that_are_null_are_empty() -> None:
    wire = captured(request={"headers": None})

    request = _native.decode(CapturedRequest, json.dumps(wire).encode())

    assert request.request.headers == {}
    assert request.to_dict() == wire
    shown(request)


@pytest.mark.parametrize("depth", [1, 100, 126])
def test_what_is_deep_is_shown(depth: int) -> None:
    nested: Any = "x"
    for at in range(depth):
        nested = [nested] if at % 2 else {"a": nested}
    wire = {"id": "1", "uri": "u", "new": nested}

    key = read(json.dumps(wire))

    assert key.to_dict() == wire
    shown(key)
    assert _native.parse(json.dumps(wire).encode()) == wire


def test_a_field_of_any_object_is_one() -> None:
    wire = {"id": "1", "uri": "u", "saml": {"a": [1, 2**70, {"b": 0.1}]}}
    route = _native.decode(HttpsEdgeRoute, json.dumps(wire).encode())
    assert route.saml == wire["saml"]
    shown(route)

    with pytest.raises(ValueError, match="saml: a value that is not an object at byte"):
        _native.decode(HttpsEdgeRoute, json.dumps(wire | {"saml": [1]}).encode())
    with pytest.raises(ValueError, match=r"saml\.a\[1\]: a number beyond the range"):
        _native.decode(HttpsEdgeRoute, b'{"id":"1","uri":"u","saml":{"a":[0,1e999]}}')


def test_labels_count_for_equality_and_not_for_the_hash() -> None:
    one, same, other = (
        _native.decode(Tunnel, json.dumps({"id": "t", "labels": labels}).encode())
        for labels in ({"a": "b"}, {"a": "b"}, {"a": "c"})
    )

    assert one == same != other
    assert len({one, same, other}) == 2
