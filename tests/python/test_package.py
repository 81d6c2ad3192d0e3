"""What holds the package together."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ginnel
from ginnel import _native
from ginnel.remote.api_keys import ApiKey

PACKAGE = Path(ginnel.__file__).parent


def attribute(target: Any, name: str) -> Any:
    for part in name.split("."):
        target = getattr(target, part)
    return target


REMOTE = (
    ginnel.RemoteClient("k", base_url="http://127.0.0.1:1"),
    ginnel.AsyncRemoteClient("k", base_url="http://127.0.0.1:1"),
)
LOCAL = (ginnel.AgentClient(), ginnel.AsyncAgentClient())


@pytest.mark.parametrize(("api", "clients"), [("remote", REMOTE), ("local", LOCAL)])
def test_every_operation_is_on_both_clients_with_one_signature(
    api: str, clients: tuple[object, object]
) -> None:
    blocking, waiting = clients

    for resource in json.loads(_native.operations(api)):
        if resource["name"] in ("root", "status"):
            # Methods of the client itself.
            assert attribute(blocking, resource["name"])
            continue
        for operation in resource["operations"]:
            name = f"{resource['name']}.{operation['name']}"
            one, other = attribute(blocking, name), attribute(waiting, name)
            ours, theirs = inspect.signature(one), inspect.signature(other)
            assert ours.parameters == theirs.parameters, name
            assert list(ours.parameters) == [p["name"] for p in operation["parameters"]], name
            assert one.__doc__ == other.__doc__
            assert one.__doc__.startswith(operation["doc"].splitlines()[0])


def test_the_generated_files_are_fresh(tmp_path: Path) -> None:
    # A copy beside the package: the generator writes where it lives.
    source = PACKAGE.parent / "generate.py"
    (tmp_path / "ginnel").mkdir()
    for api in ("remote", "local"):
        shutil.copytree(PACKAGE / api, tmp_path / "ginnel" / api)
    for source_of_both in PACKAGE.glob("*/*_async.py"):
        copy = tmp_path / "ginnel" / source_of_both.relative_to(PACKAGE)
        copy.parent.mkdir()
        shutil.copy(source_of_both, copy)
    shutil.copy(source, tmp_path)
    shutil.copy(PACKAGE.parent.parent / "pyproject.toml", tmp_path)

    subprocess.run([sys.executable, tmp_path / "generate.py"], check=True, cwd=tmp_path)

    for fresh in (tmp_path / "ginnel").rglob("*.py"):
        kept = PACKAGE / fresh.relative_to(tmp_path / "ginnel")
        assert fresh.read_text() == kept.read_text(), f"run `make generate`: {kept.name}"


def test_results_are_dataclasses_in_every_sense() -> None:
    key = ApiKey(id="ak_1", uri="u", token="secret", description="d")

    assert dataclasses.is_dataclass(key)
    assert dataclasses.asdict(key)["token"] == "secret"
    assert dataclasses.replace(key, description="e").description == "e"
    assert hash(key) == hash(ApiKey.from_dict(key.to_dict()))
    assert key.to_dict() == {"id": "ak_1", "uri": "u", "token": "secret", "description": "d"}
    assert "secret" not in repr(key)
    match key:
        case ApiKey(id=found):
            assert found == "ak_1"


def test_an_interpreter_without_the_lock_is_refused() -> None:
    """Also where the module of the core is none for it: this is said first."""
    code = "import sys; sys.abiflags = 't'; import ginnel"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ginnel does not support free-threaded Python")


def test_importing_us_imports_nothing_that_takes_long() -> None:
    code = "import sys, ginnel; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    slow = {"asyncio", "collections", "dataclasses", "datetime", "functools", "http.client"}
    slow |= {"inspect", "json", "logging", "re", "typing"}
    assert slow & set(done.stdout.split()) == set()
