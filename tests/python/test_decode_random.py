"""Random answers: what they are read as is what Python's `json` reads, or they are refused at once.

`GINNEL_TEST_EXAMPLES=40000 pytest tests/python/test_decode_random.py` tries that many of each kind.
"""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ginnel import _native
from ginnel.local.requests import CapturedRequest
from ginnel.remote.api_keys import ApiKey
from ginnel.remote.edges.routes import HttpsEdgeRoute
from ginnel.remote.tunnels import Tunnel

EXAMPLES = int(os.environ.get("GINNEL_TEST_EXAMPLES", "200"))

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

examples = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize="GINNEL_TEST_EXAMPLES" not in os.environ,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
integers = (
    st.integers() | st.integers(-(10**60), 10**60) | st.sampled_from([2**53 + 1, 2**63, 2**64])
)
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
times = st.datetimes(timezones=st.timezones()).map(
    lambda time: (
        time.isoformat() if time.utcoffset() else f"{time.replace(tzinfo=None).isoformat()}Z"
    )
)
references = st.fixed_dictionaries({"id": texts, "uri": texts})


KNOWN = {
    field["name"]
    for api in ("remote", "local")
    for shape in json.loads(_native.shapes(api))
    for field in shape["fields"]
}
"""The names of fields; what is found under one of them has a type."""
unknown = texts.filter(lambda name: name not in KNOWN)


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    """The fields of a class, and others, in any order."""
    known = st.fixed_dictionaries(
        required, optional={name: st.none() | field for name, field in optional.items()}
    )
    whole = st.tuples(known, st.dictionaries(unknown, values, max_size=3))
    merged = whole.map(lambda both: both[1] | both[0])
    return merged.flatmap(lambda wire: st.permutations(list(wire.items())).map(dict))


bodies = {
    ApiKey: objects(
        {"id": texts, "uri": texts},
        {"description": texts, "metadata": texts, "token": texts, "owner_id": texts},
    ),
    Tunnel: objects(
        {"id": texts},
        {
            "labels": st.dictionaries(texts, texts, max_size=3),
            "tunnel_session": references,
            "backends": st.lists(references, max_size=3),
        },
    ),
    HttpsEdgeRoute: objects(
        {"id": texts, "uri": texts},
        {"saml": st.dictionaries(texts, values, max_size=3)},
    ),
    CapturedRequest: objects(
        {
            "id": texts,
            "uri": texts,
            "tunnel_name": texts,
            "remote_addr": texts,
            "start": st.just("2024-01-01T00:00:00Z"),
            "duration": integers,
            "request": objects(
                {
                    "method": texts,
                    "proto": texts,
                    "headers": st.dictionaries(texts, st.lists(texts, max_size=2), max_size=3),
                    "uri": texts,
                    "raw": st.sampled_from(["", "AAEC", "R0VUIC8="]),
                },
                {"truncated": st.booleans()},
            ),
        },
        {"error": texts},
    ),
}
forms = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 1, "\t"])},
    optional={"separators": st.sampled_from([(",", ":"), (" , ", " : ")])},
)


def alike(one: object, other: object) -> bool:
    """Equal, with the same types all through: 1, 1.0 and True are different here."""
    match one, other:
        case dict(), dict():
            return list(one) == list(other) and all(alike(one[k], other[k]) for k in one)
        case list(), list():
            return len(one) == len(other) and all(map(alike, one, other))
        case float(), float():
            return one == other and math.copysign(1, one) == math.copysign(1, other)
        case _:
            return type(one) is type(other) and one == other


def sort(wire: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The same in the order of another, as far as there is one."""
    return {name: ordered(wire[name], like[name]) for name in like if name in wire}


def ordered(one: Any, like: Any) -> Any:
    match one, like:
        case dict(), dict() if one.keys() == like.keys():
            return sort(one, like)
        case list(), list() if len(one) == len(like):
            return [ordered(*pair) for pair in zip(one, like, strict=True)]
        case _:
            return one


def same(wire: dict[str, Any], expected: dict[str, Any]) -> bool:
    """The same fields with the same values, in whatever order."""
    return wire.keys() == expected.keys() and alike(sort(wire, expected), expected)


@pytest.mark.parametrize("class_", bodies, ids=lambda class_: class_.__name__)
def test_a_result_is_what_json_reads(class_: Any) -> None:
    @examples
    @given(bodies[class_], forms)
    def check(wire: dict[str, Any], form: dict[str, Any]) -> None:
        text = json.dumps(wire, **form)
        expected = json.loads(text)

        record = _native.decode(class_, text.encode())

        assert same(record.to_dict(), expected)
        assert same(json.loads(record.to_json()), expected)
        for other in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
            assert other == record
            assert same(other.to_dict(), expected)
        known = {name for name, _ in _native.slots(class_)}
        assert alike(dict(record.extra), {k: v for k, v in expected.items() if k not in known})
        assert repr(record)
        assert record._repr_html_()
        hash(record)

    check()


few_values = st.sampled_from([1, "a", {"id": "x"}, None])
few_fields = st.dictionaries(st.sampled_from(["id", "uri", "new", "newer"]), few_values, max_size=4)
similar_keys = few_fields.flatmap(
    lambda fields: st.permutations(list((fields | {"id": "1", "uri": "u"}).items()))
)


@examples
@given(st.lists(similar_keys.map(dict), max_size=6), forms)
def test_items_with_the_same_unknown_fields_are_what_json_reads(
    wires: list[dict[str, Any]], form: dict[str, Any]
) -> None:
    body = json.dumps({"keys": wires}, **form).encode()

    keys, _, _ = advance(_native.BodyDecoder(body, ApiKey, "keys"), 600)

    assert [key.to_dict() for key in keys] == wires
    unknown = [{name: wire[name] for name in wire if name not in ("id", "uri")} for wire in wires]
    assert all(
        alike(dict(key.extra), expected) for key, expected in zip(keys, unknown, strict=True)
    )


@examples
@given(values, forms)
def test_free_json_is_what_json_reads(value: object, form: dict[str, Any]) -> None:
    text = json.dumps(value, **form)

    assert alike(_native.parse(text.encode()), json.loads(text))


numbers = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    floats.map(repr),
    integers.map(str),
)


@examples
@given(numbers)
def test_a_number_of_any_form_is_what_json_reads(number: str) -> None:
    expected = json.loads(number)
    text = f"[{number}]".encode()

    if isinstance(expected, float) and math.isinf(expected):
        with pytest.raises(ValueError, match="beyond the range of a float"):
            _native.parse(text)
    else:
        assert alike(_native.parse(text), [expected])


@examples
@given(times)
def test_a_time_is_kept_and_read(text: str) -> None:
    body = json.dumps({"id": "1", "uri": "u", "created_at": text}).encode()
    # Some zones had offsets with seconds once, which RFC 3339 has no form for.
    if text.count(":") > 3 or text[:4] in ("0001", "9999"):
        return

    key = _native.decode(ApiKey, body)

    assert key.created_at is not None
    assert key.created_at.utcoffset() is not None
    assert key.to_dict()["created_at"] == text
    assert repr(key)
    hash(key)


pieces = st.sampled_from(
    [
        *b'"\\{}[],:0a \n\x01\xff-.eE1',
        b'"id":',
        b'"uri":"u"',
        b"null",
        b"\\ud800",
        b"\\u0069",
        b"1e400",
    ]
).map(lambda piece: piece if isinstance(piece, bytes) else bytes([piece]))
whole = json.dumps(
    {"id": "1", "uri": 'é"\\', "description": "d" * 20, "more": [1.5, {"a": None}, "t\n"]}
).encode()


@examples
@given(
    st.lists(
        st.tuples(st.integers(0, len(whole)), st.integers(0, 3), pieces), min_size=1, max_size=4
    )
)
def test_damage_is_refused_at_once_or_read_as_json_reads_it(
    damages: list[tuple[int, int, bytes]],
) -> None:
    text = whole
    for at, length, piece in damages:
        text = text[:at] + piece + text[at + length :]
    try:
        record = _native.decode(ApiKey, text)
    except ValueError:
        return

    expected = json.loads(text.decode(), parse_constant=pytest.fail)
    assert same(record.to_dict(), expected)
    assert same(pickle.loads(pickle.dumps(record)).to_dict(), expected)
    assert repr(record)
    assert record._repr_html_()
    hash(record)


@pytest.mark.parametrize("budget", [0.0, 1e-5, 60.0])
def test_slices_make_the_same(budget: float) -> None:
    @examples
    @given(st.lists(bodies[ApiKey], max_size=40), values, st.integers(0, 40_000))
    def check(items: list[Any], value: object, padding: int) -> None:
        page = {"new": "é" * padding, "keys": items, "next_page_uri": "/next", "more": value}
        body = json.dumps(page, ensure_ascii=False).encode()

        assert same(advance(_native.BodyDecoder(body), budget), json.loads(body))
        keys, uri, following = advance(_native.BodyDecoder(body, ApiKey, "keys"), budget)
        assert [key.to_dict() for key in keys] == [
            _native.decode(ApiKey, json.dumps(item).encode()).to_dict() for item in items
        ]
        assert (uri, following) == (None, "/next")

    check()


def advance(decoder: _native.BodyDecoder, budget: float) -> Any:
    done = False
    while not done:
        done, result = decoder.advance(budget)
    return result


escapes = st.lists(
    st.from_regex(
        r'\\u[dD][89a-fA-F][0-9a-f]{2}|\\["\\/bfnrtux]|\\u[0-9a-fA-F]{0,4}|\\u\+[0-9]{3}'
        r"|[ a-zé😀]{0,9}",
        fullmatch=True,
    ),
    max_size=8,
).map("".join)


@examples
@given(escapes)
def test_escapes_are_read_as_json_reads_them(text: str) -> None:
    written = f'"{text}"'
    try:
        expected = json.loads(written)
        expected.encode()
    except (ValueError, UnicodeEncodeError):
        with pytest.raises(ValueError, match=r"escape|character|end|value"):
            _native.parse(written.encode())
    else:
        assert _native.parse(written.encode()) == expected
