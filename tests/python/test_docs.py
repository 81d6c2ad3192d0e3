"""Every block of code in the README and in `docs` runs.

The blocks of a page share one namespace and one folder, from top to bottom, as a reader would type
them. `python` blocks may await; `sh` blocks run with the commands of this environment.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """One block of code."""

    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = (
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in BLOCK.finditer(text)
    )
    return [block for block in found if block.language in ("python", "sh")]


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    padded = "\n" * (block.line - 1) + block.code
    code = compile(padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, namespace)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def run_shell(block: Block, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["bash", "-euo", "pipefail", "-c", block.code]
    done = subprocess.run(
        shell, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, timeout=60
    )
    assert done.returncode == 0, f"line {block.line}: {done.stderr.decode()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}

    # What a page sets in the environment ends with the page.
    with patch.dict(os.environ):
        for block in blocks(page):
            if block.language == "python":
                run_python(block, page, namespace)
            else:
                run_shell(block, tmp_path)


def test_the_readme_has_code_that_runs() -> None:
    assert blocks(ROOT / "README.md")


NAMED = re.compile(r"`((?:crates|src|tests|python|bench|examples)/[\w./-]+)`")
MAX_FILES_OF_A_WALK = 25


def named_files(text: str) -> list[str]:
    return list(dict.fromkeys(NAMED.findall(text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    gone = [name for name in named_files(page.read_text()) if not (ROOT / name).exists()]
    assert not gone


def test_every_file_that_comments_name_is_there() -> None:
    comment = re.compile(r"^\s*//[/!]? .*", re.MULTILINE)
    gone = {
        (str(file.relative_to(ROOT)), name)
        for file in (ROOT / "crates").rglob("*.rs")
        for line in comment.findall(file.read_text())
        for name in named_files(line)
        if not any(place.exists() for place in places_of(file, name))
    }
    assert not gone


def places_of(file: Path, name: str) -> list[Path]:
    """The places of a file that a comment names: the root, this crate, the crate in the name."""
    crate = ROOT / Path(*file.relative_to(ROOT).parts[:2])
    first, _, rest = name.partition("/")
    return [ROOT / name, crate / "src" / name, ROOT / "crates" / first / "src" / rest]


@pytest.mark.parametrize("heading", ["Follow one request", "Follow one policy"])
def test_a_walk_is_short(heading: str) -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    walk = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    files = named_files(walk)
    assert 10 < len(files) <= MAX_FILES_OF_A_WALK, files
