"""The documentation says what the code does: names, files, variables, commands."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import ginnel

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def attribute(target: object, path: str) -> object:
    for name in path.split("."):
        target = getattr(target, name)
    return target


def test_what_is_taken_from_the_code_is_fresh() -> None:
    generator = runpy.run_path(str(ROOT / "python" / "reference.py"))

    for page, text in generator["pages"]().items():
        assert page.read_text() == text, f"run `make generate`: {page.name}"


def test_every_operation_is_a_command_of_the_reference() -> None:
    import json

    from ginnel import _native

    page = (DOCS / "reference" / "cli.md").read_text()

    for api, command in (("remote", "api"), ("local", "local")):
        for resource in json.loads(_native.operations(api)):
            words = resource["name"].replace("_", "-").replace(".", " ")
            assert f"`ginnel {command} {words}" in page, resource["name"]


def test_the_names_to_move_to_are_there() -> None:
    page = (DOCS / "guides" / "move.md").read_text()
    targets = {
        "remote": ginnel.RemoteClient("k", base_url="http://127.0.0.1:1"),
        "here": ginnel.AgentClient(),
        "agent": ginnel.Agent,
        "ginnel": ginnel,
    }

    right = [row.split("|")[2] for row in page.splitlines() if row.startswith("| `")]
    names = re.findall(r"`(remote|here|agent|ginnel)\.([\w.]*\w)", " ".join(right))

    assert len(names) > 30
    for target, name in names:
        assert attribute(targets[target], name), f"{target}.{name}"


def test_the_files_that_the_architecture_names_are_there() -> None:
    page = (DOCS / "architecture.md").read_text()

    files = re.findall(r"`((?:crates|src)/[\w/]+\.rs)`", page)

    assert len(files) > 15
    assert [file for file in files if not (ROOT / file).is_file()] == []


UNIT_TESTS = re.compile(r"\n#\[cfg\(test\)\]\n(?:#\[.*\]\n)*mod tests \{")


def test_every_variable_that_is_read_is_documented() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    sources = [
        *(ROOT / "src").rglob("*.rs"),
        *(ROOT / "crates").rglob("*.rs"),
        *(ROOT / "python" / "ginnel").rglob("*.py"),
    ]

    read = {
        name
        for file in sources
        for name in re.findall(r'"(GINNEL_[A-Z_]+)"', UNIT_TESTS.split(file.read_text())[0])
    }

    assert len(read) > 5
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_every_key_of_the_configuration_file_is_documented() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    source = (ROOT / "crates/agent/src/config/sections.rs").read_text()

    keys = re.findall(r"(?:row|unused)!\([^$\"]*\"(\w+)\"", source)
    keys.append("tunnels")

    assert len(keys) > 20
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_no_docstring_has_two_spaces_between_words() -> None:
    doubled = {
        f"{file.relative_to(ROOT)}:{line}"
        for file in (ROOT / "python/ginnel").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        for line in doubled_spaces(node)
    }

    assert sorted(doubled) == []


def doubled_spaces(text: ast.Constant) -> list[int]:
    lines = str(text.value).splitlines()
    return [text.lineno + at for at, line in enumerate(lines) if re.search(r"\w[,;.:]?  +\w", line)]
