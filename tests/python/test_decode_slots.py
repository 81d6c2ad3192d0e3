"""Where the decoder puts fields, with every CPython here: the module is one for all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import ginnel

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = Path(ginnel.__file__).parents[1]

EVERY_CLASS = """
import gc, json
from datetime import datetime
from ginnel import _native
from ginnel._core.record import Record
import ginnel.local.requests, ginnel.local.status, ginnel.local.tunnels
import pkgutil, importlib, ginnel.remote

for module in pkgutil.walk_packages(ginnel.remote.__path__, "ginnel.remote."):
    importlib.import_module(module.name)

def below(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from below(sub)

apis = {
    api: {shape["name"]: shape for shape in json.loads(_native.shapes(api))}
    for api in ("remote", "local")
}
# `dataclass(slots=True)` made each class twice; the first has no slots, and may still be there.
classes = {c for c in below(Record) if "_slots" in c.__dict__ and c.__dict__["__slots__"]}
assert len(classes) > 40, classes

def sample(kind):
    match kind:
        case "time": return "2024-01-01T00:00:00Z"
        case "bytes": return "AAEC"
        case "bool": return True
        case "integer" | "number": return 2**70
        case "object": return {"a": [1]}
        case str(): return "text"
        case {"list": item}: return [sample(item)] * 2
        case {"map": item}: return {"k": sample(item)}
        case {"record": name}:
            return {f["name"]: sample(f["kind"]) for f in shapes[name]["fields"]}

for cls in classes:
    shapes = apis[cls.__module__.split(".")[1]]
    places = dict(_native.slots(cls))
    names = [f["name"] for f in shapes[cls.__name__]["fields"]]
    assert list(places) == names, (cls, places)
    assert all(places.values()), (cls, places)
    assert len(set(places.values())) == len(places)
    assert all(at % 8 == 0 and 16 <= at < cls.__basicsize__ for at in places.values())
    wire = sample({"record": cls.__name__}) | {"new": 1}
    for _ in range(3):
        record = _native.decode(cls, json.dumps(wire).encode())
        assert record.to_dict() == wire, (record.to_dict(), wire)
        assert repr(record) and record == cls.from_dict(wire) and hash(record) is not None
        for name in names:
            # By the descriptor, whatever the class makes of its value.
            assert cls._slots[name].__get__(record) is not None
    for garbage in [_native.decode(cls, json.dumps(wire).encode()) for _ in range(100)]:
        pass
    del record, garbage
gc.collect()
print("all classes")
"""

UNUSUAL_CLASSES = """
import gc, json, weakref
from dataclasses import dataclass, field
from ginnel import _native
from ginnel._core.record import Record
from ginnel.remote.api_keys import ApiKey as Known

shapes = {s["name"]: s for s in json.loads(_native.shapes("remote"))}
names = [f["name"] for f in shapes["ApiKey"]["fields"]]
wire = {name: f"text {at}" for at, name in enumerate(names)}
wire["created_at"] = "2024-01-01T00:00:00Z"
text = json.dumps(wire | {"new": [1]}).encode()

def check(cls, is_usual):
    record = _native.decode(cls, text)
    assert type(record) is cls
    assert record.to_dict() == wire | {"new": [1]}, record.to_dict()
    assert {place is not None for _, place in _native.slots(cls)} == {is_usual}, cls
    return record

def made(order, **options):
    annotations = {name: "str | None" for name in order} | {"extra": "Mapping[str, object]"}
    body = {name: None for name in order} | {"extra": field(default_factory=dict)}
    body |= {"__annotations__": annotations, "__module__": __name__}
    return dataclass(frozen=True, slots=True, kw_only=True, repr=False, **options)(
        type("ApiKey", (Record,), body)
    )

# Instances with room for attributes of their own, or for weak references.
class Open(Known):
    pass
Open.__name__ = "ApiKey"
record = check(Open, False)
object.__setattr__(record, "more", 1)
assert record.more == 1
weak = made(names, weakref_slot=True)
record = check(weak, False)
assert weakref.ref(record)() is record

# A slot that is read and written by code of its own.
class Odd:
    def __init__(self, slot): self.slot = slot
    def __get__(self, instance, owner=None): return self.slot.__get__(instance, owner)
    def __set__(self, instance, value): self.slot.__set__(instance, value)
odd = made(names)
odd._slots = odd._slots | {"id": Odd(odd._slots["id"])}
check(odd, False)

# Two names for one slot.
double = made(names)
double._slots = double._slots | {"uri": double._slots["id"]}
_native.decode(double, text)
assert {place for _, place in _native.slots(double)} == {None}

# Classes that come and go: whichever is at an address is read by its own plan.
for turn in range(60):
    order = names[turn % len(names):] + names[:turn % len(names)]
    record = check(made(order[::-1] if turn % 2 else order), True)
    del record
    gc.collect()
check(Known, True)

# What is no class of ours, or has other fields.
for cls in (int, made(names[1:]), type("ApiKey", (), {}), type("ApiKey", (), {"_slots": {}})):
    try:
        _native.decode(cls, text)
    except (LookupError, AttributeError, TypeError) as error:
        assert error
    else:
        raise AssertionError(cls)
print("unusual classes")
"""


def interpreter(version: str) -> str | None:
    """A CPython of that version, on PATH or among those of pyenv."""
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    candidates = [*filter(None, [shutil.which(f"python{version}")]), *map(str, places)]
    expected = (
        f"import sys; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
    )
    for candidate in candidates:
        if subprocess.run([candidate, "-c", expected], capture_output=True).returncode == 0:
            return candidate
    return None


@pytest.mark.parametrize("program", [EVERY_CLASS, UNUSUAL_CLASSES], ids=["every", "unusual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_fields_are_where_descriptors_read_them(version: str, program: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no CPython {version} here")
    environment = {"PYTHONPATH": str(PACKAGES), "PATH": os.environ["PATH"], "PYTHONMALLOC": "debug"}

    done = subprocess.run(
        [python, "-X", "dev", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert "classes" in done.stdout
