"""Arguments that JSON has not are refused before anything is sent, with their place."""

from __future__ import annotations

import collections
import enum
import json
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import ginnel
from ginnel.remote.tunnels import Tunnel
from server import Server, answer

HALF = "\ud800"


def nested(depth: int, innermost: object = 1) -> Any:
    for at in range(depth):
        innermost = [innermost] if at % 2 else {"a": innermost}
    return innermost


def cycle() -> dict[str, Any]:
    around: dict[str, Any] = {"x": [1]}
    around["x"].append({"again": around})
    return around


BAD: list[tuple[object, str]] = [
    (float("nan"), "{}: must be a finite number, not nan"),
    (float("inf"), "{}: must be a finite number, not inf"),
    ([0.5, -float("inf")], r"{}\[1\]: must be a finite number, not -inf"),
    ({"x": [1, 2, 3, float("nan")]}, r"{}.x\[3\]: must be a finite number"),
    (HALF, "{}: must not hold half of a surrogate pair"),
    ([f"a{HALF}"], r"{}\[0\]: must not hold half of a surrogate pair"),
    ({HALF: 1}, "{}: must not have keys that hold half of a surrogate pair"),
    ({"a": {1: 2}}, "{}.a: must have str keys, not int"),
    ({None: 2}, "{}: must have str keys, not NoneType"),
    ({("a",): 2}, "{}: must have str keys, not tuple"),
    (b"bytes", "{}: must be a value that JSON has, not bytes"),
    (bytearray(b"x"), "{}: must be a value that JSON has, not bytearray"),
    (memoryview(b"x"), "{}: must be a value that JSON has, not memoryview"),
    ([{1, 2}], r"{}\[0\]: must be a value that JSON has, not set"),
    ({"a": object()}, "{}.a: must be a value that JSON has, not object"),
    ({"a": Tunnel}, "{}.a: must be a value that JSON has, not type"),
    (datetime.now(UTC), "{}: must be a value that JSON has, not datetime"),
    (Decimal(1), "{}: must be a value that JSON has, not Decimal"),
    (1 + 2j, "{}: must be a value that JSON has, not complex"),
    (iter([1]), "{}: must be a value that JSON has, not list_iterator"),
    (cycle(), r"{}.x\[1\].again: must not contain itself"),
    (nested(128), "{}.+…: must not be nested deeper than 127"),
    (nested(5000), "{}.+…: must not be nested deeper than 127"),
    (10**5000, "{}: has more digits than Python writes"),
]
names = [str(at) for at in range(len(BAD))]


@pytest.mark.parametrize(("value", "problem"), BAD, ids=names)
async def test_the_json_of_a_request(make_client: Any, value: object, problem: str) -> None:
    with Server([]) as server:
        client = make_client("k", base_url=server.url)

        with pytest.raises(ginnel.ValidationError, match="^" + problem.format("json")):
            await client.request("POST", "/x", json=value)
        with pytest.raises(ginnel.ValidationError, match="^" + problem.format("query.q")):
            await client.request("GET", "/x", query={"q": value})

        assert server.requests == []


@pytest.mark.parametrize(("value", "problem"), BAD, ids=names)
async def test_a_field_of_any_object(make_client: Any, value: object, problem: str) -> None:
    with Server([]) as server:
        client = make_client("k", base_url=server.url)
        replace = client.edges.https.routes.policy.replace
        told = problem.format(r"inbound\[0\].actions\[0\].config.v")
        told = told.replace("has more digits than Python writes", "must be an int of 64 bits")

        rule = {"actions": [{"type": "deny", "config": {"v": value}}]}
        with pytest.raises(ginnel.ValidationError, match="^" + told):
            await replace("e", "r", inbound=[rule])

        assert server.requests == []


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ([("a", "b")], "query: must be a mapping, not list"),
        ("a=b", "query: must be a mapping, not str"),
        ({1: "b"}, "query: must have str keys, not int"),
        ({HALF: "b"}, "query: must not have keys that hold half"),
    ],
)
async def test_a_query_that_is_none(make_client: Any, query: Any, problem: str) -> None:
    client = make_client("k", base_url="http://127.0.0.1:1")

    with pytest.raises(ginnel.ValidationError, match=problem):
        await client.request("GET", "/x", query=query)


@pytest.mark.parametrize(
    ("resource", "operation", "arguments", "problem"),
    [
        ("api_keys", "get", {"id": HALF}, "id: must not hold half of a surrogate pair"),
        ("api_keys", "create", {"description": HALF}, "description: must not hold half"),
        ("api_keys", "create", {"description": 1}, "description: must be a str, not int"),
        ("credentials", "create", {"acl": ["a", HALF]}, r"acl\[1\]: must not hold half"),
        ("credentials", "create", {"acl": {"a": 1}}, "acl: must be a list, not dict"),
        ("backends.weighted", "create", {"backends": {"b": 10**30}}, "backends.b: .* 64 bits"),
        ("backends.weighted", "create", {"backends": {"b": 0.5}}, "backends.b: must be an int"),
        ("backends.weighted", "create", {"backends": {"b": True}}, "backends.b: must be an int"),
        ("backends.weighted", "create", {"backends": {1: 1}}, "backends: must have str keys"),
        ("backends.weighted", "create", {"backends": {HALF: 1}}, "backends: must not have keys"),
        ("backends.weighted", "create", {"backends": [1]}, "backends: must be a mapping, not list"),
        ("backends.tunnel_group", "create", {"labels": {"a": HALF}}, "labels.a: must not hold"),
    ],
)
async def test_a_typed_argument(
    make_client: Any, resource: str, operation: str, arguments: dict[str, Any], problem: str
) -> None:
    with Server([]) as server:
        target = make_client("k", base_url=server.url)
        for name in resource.split("."):
            target = getattr(target, name)

        with pytest.raises(ginnel.ValidationError, match="^" + problem):
            await getattr(target, operation)(**arguments)

        assert server.requests == []


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400, True, "1"])
async def test_a_number_that_is_none(make_client: Any, number: Any) -> None:
    client = make_client("k", base_url="http://127.0.0.1:1")
    breaker = {"error_threshold_percentage": number}

    with pytest.raises(
        ginnel.ValidationError, match=r"^circuit_breaker\.error_threshold_percentage: must be a "
    ):
        await client.edges.https.routes.create(
            "e", match_type="x", match="/", circuit_breaker=breaker
        )


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 2**70


class Written(int):
    def __str__(self) -> str:
        return "written"

    __repr__ = __str__


GOOD: list[tuple[object, object]] = [
    ({"a": [None, True, 1, 0.1, "é", []]}, {"a": [None, True, 1, 0.1, "é", []]}),
    ([2**53 + 1, 2**63, -(2**64), 10**400], [2**53 + 1, 2**63, -(2**64), 10**400]),
    ([1e23, 5e-324, 1.7976931348623157e308], [1e23, 5e-324, 1.7976931348623157e308]),
    ([Colour.RED, {Colour.RED: Size.BIG}], ["red", {"red": 2**70}]),
    (Written(2**80), 2**80),
    ((1, collections.deque([2]), collections.UserList([3])), [1, [2], [3]]),
    (types.MappingProxyType({"a": collections.ChainMap({"b": 1})}), {"a": {"b": 1}}),
    ([Tunnel(id="t", labels={"a": "b"})], [{"id": "t", "labels": {"a": "b"}}]),
    (nested(127), nested(127)),
    ([["same"]] * 2, [["same"], ["same"]]),
    ('"\\\n\x00\x7f🦊', '"\\\n\x00\x7f🦊'),
]


@pytest.mark.parametrize(("value", "expected"), GOOD, ids=[str(at) for at in range(len(GOOD))])
async def test_what_json_has_is_sent(make_client: Any, value: object, expected: object) -> None:
    with Server([answer(200, {})]) as server:
        client = make_client("k", base_url=server.url)

        await client.request("POST", "/x", json=value)

        sent = json.loads(server.requests[0].body)
        assert repr(sent) == repr(expected)


async def test_the_values_of_a_query(make_client: Any) -> None:
    with Server([answer(200, {})]) as server:
        client = make_client("k", base_url=server.url)
        query: Mapping[str, object] = {
            "text": "a b",
            "none": None,
            "flag": True,
            "float": 0.1,
            "large": 2**70,
            "list": [1],
        }

        await client.request("GET", "/x", query=query)

        target = server.requests[0].target
        assert target == (
            "/x?text=a%20b&flag=true&float=0.1&large=1180591620717411303424&list=%5B1%5D"
        )


async def test_what_a_value_raises_itself_is_raised(make_client: Any) -> None:
    class Broken:
        def to_dict(self) -> dict[str, object]:
            raise RuntimeError("broken")

    client = make_client("k", base_url="http://127.0.0.1:1")

    with pytest.raises(RuntimeError, match="broken"):
        await client.request("POST", "/x", json=[Broken()])
