"""Results are dataclasses in every way, although they are completed when somebody looks."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import ginnel.local
import ginnel.remote
from ginnel._core import dataclass as _dataclass
from ginnel._core.pager import Page
from ginnel._core.record import Record
from ginnel.remote.api_keys import ApiKey

PACKAGES = [ginnel.remote, ginnel.local]
MODULES = [
    module.name
    for package in PACKAGES
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
WIRE: dict[str, Any] = {"id": "ak_1", "uri": "u", "token": "secret"}


def results(name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """The results that a module defines."""
    return {
        kind: found
        for kind, found in namespace.items()
        if isinstance(found, type) and issubclass(found, Record) and found.__module__ == name
    }


def made_by_dataclasses(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The results of a module, as `dataclasses` itself makes them."""
    module = importlib.import_module(name)
    namespace: dict[str, Any] = {"__name__": name, "__package__": module.__package__}
    with monkeypatch.context() as patch:
        patch.setattr(_dataclass, "dataclass", dataclasses.dataclass)
        patch.setattr(_dataclass, "field", dataclasses.field)
        exec(compile(inspect.getsource(module), name, "exec"), namespace)
    return results(name, namespace)


def looks(cls: Any) -> dict[str, object]:
    """All that can be seen of a dataclass."""
    slots = set(dataclasses.Field.__slots__) - {"_field_type"}
    fields = [{name: getattr(field, name) for name in slots} for field in dataclasses.fields(cls)]
    return {
        "fields": fields,
        "params": repr(cls.__dataclass_params__),
        "signature": str(inspect.signature(cls)),
        "slots": cls.__slots__,
        "match": cls.__match_args__,
        "names": (cls.__name__, cls.__qualname__, cls.__module__, cls.__doc__),
        "methods": {name for name in ("__eq__", "__hash__", "__init__") if name in vars(cls)},
    }


def test_results_are_what_dataclasses_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for name in MODULES:
        ours = results(name, vars(importlib.import_module(name)))
        expected = made_by_dataclasses(name, monkeypatch)
        assert ours.keys() == expected.keys()
        for kind, cls in ours.items():
            assert looks(cls) == looks(expected[kind]), kind
            compared += 1
    assert compared > 50


def test_a_result_is_frozen() -> None:
    class Mine(ApiKey):
        """Has a `__dict__`."""

    for made in (ApiKey.from_dict(WIRE), ApiKey(**WIRE), Mine(**WIRE)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'id'"):
            made.id = "other"  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'uri'"):
            del made.uri
        assert made.to_dict() == WIRE
    with pytest.raises(dataclasses.FrozenInstanceError):
        ApiKey.from_dict(WIRE).other = 1  # type: ignore[attr-defined]
    mine: Any = Mine(**WIRE)
    mine.other = 1
    assert mine.other == 1


def test_a_result_can_be_inherited_from() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Named(ApiKey):
        name: str = ""

    class Loud(ApiKey):
        def __init__(self, id: str) -> None:
            super().__init__(id=id.upper(), uri="u")

    named = Named(id="a", uri="u", name="n")

    assert [field.name for field in dataclasses.fields(Named)][-2:] == ["extra", "name"]
    assert (named.id, named.name) == ("a", "n")
    assert named == dataclasses.replace(named)
    assert Loud("a").id == "A"
    assert Loud("a") == Loud("a") != ApiKey(id="A", uri="u")
    assert hash(Loud("a")) == hash(Loud("a"))


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "first",
    [
        "ApiKey(id='a', uri='u').id == 'a'",
        "ApiKey.from_dict(WIRE) == ApiKey.from_dict(WIRE)",
        "hash(ApiKey.from_dict(WIRE)) == hash(ApiKey.from_dict(WIRE))",
        "len(dataclasses.fields(ApiKey)) == 8",
        "len(dataclasses.fields(ApiKey.from_dict(WIRE))) == 8",
        "'owner_id' in inspect.signature(ApiKey).parameters",
        "ApiKey.__match_args__ == ()",
        "dataclasses.asdict(ApiKey.from_dict(WIRE))['id'] == 'ak_1'",
        "dataclasses.replace(ApiKey.from_dict(WIRE), id='b').id == 'b'",
        "ApiKey.from_dict(WIRE) in {ApiKey.from_dict(WIRE)}",
        "ApiKey.from_dict(WIRE) != 3",
    ],
)
def test_whatever_is_asked_first_finds_a_dataclass(first: str) -> None:
    code = f"""
import dataclasses, inspect
from ginnel.remote.api_keys import ApiKey
WIRE = {WIRE}
print({first})
"""
    assert run(code) == "True"


def test_a_first_result_needs_nothing_that_takes_long() -> None:
    code = """
import sys
from ginnel._native import decode
from ginnel.remote.api_keys import ApiKey
assert decode(ApiKey, b'{"id": "ak_1", "uri": "u", "new": 1}').id == "ak_1"
print(*sys.modules)
"""
    slow = {"asyncio", "collections", "dataclasses", "datetime", "functools", "inspect", "typing"}

    assert slow & set(run(code).split()) == set()


def test_threads_may_look_at_one_moment() -> None:
    code = """
import sys, threading
from ginnel.remote.api_keys import ApiKey
sys.setswitchinterval(1e-6)
start, made = threading.Barrier(8), []
def make():
    start.wait()
    made.append(ApiKey(id="a", uri="u") == ApiKey(id="a", uri="u"))
threads = [threading.Thread(target=make) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(made == [True] * 8)
"""
    for _ in range(5):
        assert run(code) == "True"


def test_a_page_is_a_dataclass_in_every_way() -> None:
    keys = [ApiKey(id="ak_1", uri="u")]
    page = Page(keys, "u", None)

    assert [field.name for field in dataclasses.fields(page)] == ["data", "uri", "next_page_uri"]
    assert page == Page(data=keys, uri="u", next_page_uri=None) == pickle.loads(pickle.dumps(page))
    assert dataclasses.replace(page, uri="v") != copy.copy(page) == page
    assert repr(page) == f"Page(data={keys!r}, uri='u', next_page_uri=None)"
    match page:
        case Page(data, uri, None):
            assert (data, uri) == (keys, "u")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'uri'"):
        page.uri = "v"  # type: ignore[misc]
    with pytest.raises(TypeError, match="next_page_uri"):
        Page([], None)  # type: ignore[call-arg]


def test_a_first_list_does_not_wait_for_dataclasses() -> None:
    code = """
        import sys, ginnel
        with ginnel.Service() as service, service.client() as remote:
            assert len(list(remote.api_keys.list())) == 1
            assert next(remote.api_keys.list().pages()).data[0].id
            assert "dataclasses" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
