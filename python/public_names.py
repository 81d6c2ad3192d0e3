"""Writes tests/data/public-names.txt: every name that a program or a script of a user may hold.

`make generate` adds new names. None is ever removed by it: a test says which name has vanished, and
such a name has to work for one release more, with a DeprecationWarning or a notice, before its line
is deleted by hand.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import ginnel
import reference
from ginnel import _native

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "tests" / "data" / "public-names.txt"


def names() -> set[str]:
    """All names, each behind a word for its kind."""
    sources = {
        "python": python(),
        "cli": commands(),
        "environment": variables(),
        "configuration": configuration(),
        "json": fields(),
    }
    return {f"{kind} {name}" for kind, found in sources.items() for name in found}


def kept() -> set[str]:
    """The names in the list."""
    return set(NAMES.read_text().splitlines()) if NAMES.exists() else set()


def python() -> Iterator[str]:
    """Modules, classes, functions and their parameters."""
    modules = [module.name for module in pkgutil.walk_packages(ginnel.__path__, "ginnel.")]
    for name in ["ginnel", *modules]:
        if _is_public(name):
            yield name
            yield from _of_module(name)


def _is_public(module: str) -> bool:
    return not any(part.startswith("_") for part in module.split("."))


def _of_module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
    for key in getattr(module, "__all__", own):
        if key.startswith("_") or key == "TYPE_CHECKING":
            continue
        home = getattr(getattr(module, key), "__module__", name)
        if home != name and home.startswith("ginnel.") and _is_public(home):
            # Listed with its members where it is defined.
            yield f"{name}.{key}"
        else:
            yield from _of_member(f"{name}.{key}", getattr(module, key))


def _of_member(path: str, member: object) -> Iterator[str]:
    yield path
    if inspect.isclass(member):
        own = {key for base in member.__mro__ if _is_ours(base) for key in _members(base)}
        for key in sorted(own):
            yield from _of_member(f"{path}.{key}", inspect.getattr_static(member, key, None))
        if any(_is_ours(base) and "__init__" in vars(base) for base in member.__mro__):
            yield from _parameters(path, member.__init__)
    elif inspect.isroutine(member):
        yield from _parameters(path, getattr(member, "__func__", member))


def _is_ours(base: type) -> bool:
    return base.__module__.partition(".")[0] == "ginnel"


def _members(base: type) -> Iterator[str]:
    for key in {**vars(base), **inspect.get_annotations(base)}:
        if not key.startswith("_"):
            yield key
    # What a constructor sets is an attribute, too.
    yield from re.findall(r"\bself\.([a-z]\w*)(?:: .+)? = ", inspect.getsource(base))


def _parameters(path: str, function: object) -> Iterator[str]:
    if not callable(function):
        return
    for name in inspect.signature(function).parameters:
        if name not in ("self", "cls") and not name.startswith("_"):
            yield f"{path}({name})"


def commands() -> Iterator[str]:
    """The commands with their arguments and options, from the page that the command writes."""
    command = ""
    for line in reference.commands().splitlines():
        if heading := re.fullmatch(r"#+ `(ginnel.*)`", line):
            command = heading[1]
            yield command
        elif argument := re.match(r"\| `((?:\\\||[^`])+)` \|", line):
            option = re.search(r"--[\w-]+", argument[1])
            yield f"{command} {option[0] if option else argument[1]}"


def variables() -> Iterator[str]:
    """The environment variables that are read."""
    for source in [
        *ROOT.glob("src/**/*.rs"),
        *ROOT.glob("crates/*/src/**/*.rs"),
        *ROOT.glob("python/ginnel/**/*.py"),
    ]:
        yield from re.findall(r"\"(GINNEL_[A-Z_]+)\"", source.read_text())


def configuration() -> Iterator[str]:
    """The keys of both configuration files, and of the tunnels in that of the agent."""
    yield "tunnels"
    yield from re.findall(r"^\| `(\w+)` \|", reference.agent_settings(), re.MULTILINE)
    for key in re.findall(r"^\| `(\w+)` \|", reference.fields(), re.MULTILINE):
        yield f"tunnels.{key}"
    for key in re.findall(r"^\| `([\w.]+)` \|", reference.settings(), re.MULTILINE):
        yield f"serve {key}"


def fields() -> Iterator[str]:
    """The fields of requests and responses of both APIs, and of what the inspector loads."""
    for api in ("remote", "local"):
        for resource in json.loads(_native.operations(api)):
            for operation in resource["operations"]:
                path = f"{operation['method']} {operation['path']}"
                yield path
                yield from (f"{path} {parameter['name']}" for parameter in operation["parameters"])
        for shape in json.loads(_native.shapes(api)):
            yield from (f"{shape['name']}.{field['name']}" for field in shape["fields"])
    for source in ROOT.glob("crates/agent/src/**/*.rs"):
        for body in re.findall(
            r"derive\([^)]*Serialize[^{]*struct[^{]*{(.*?)\n}", source.read_text(), re.S
        ):
            yield from (f"inspector {name}" for name in re.findall(r"^    pub (\w+):", body, re.M))


if __name__ == "__main__":
    NAMES.write_text("".join(f"{name}\n" for name in sorted(names() | kept())))
