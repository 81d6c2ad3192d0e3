"""Prints every text that users may see, with its place, to be read in one sitting.

    python python/strings.py > strings.txt

These are the texts of the help, of errors, of responses to visitors and of the inspector (literals
in Rust and JavaScript), the descriptions of operations and fields (doc comments in
`crates/api/src`), and the docstrings and messages of Python. Of literals it lists those that
contain a space: a single word is a name far more often than it is a text. Each text is there once,
after the first place that has it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
ROOT = Path(__file__).parents[1]
RUST = re.compile(
    r"""
    //(?P<doc>[/!][^\n]*) | //[^\n]* | /\*.*?\*/
    | b?r(?P<hash>\#*)"(?P<raw>.*?)"(?P=hash)
    | (?P<byte>b?)"(?P<text>(?:\\.|[^"\\])*)"
    | '(?:\\.|[^'\\])'
    """,
    re.VERBOSE | re.DOTALL,
)
JAVASCRIPT = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?P<text>(?:\\.|[^"\\\n])*)" | `(?P<raw>(?:\\.|[^`\\])*)`""",
    re.VERBOSE | re.DOTALL,
)
TESTS = re.compile(r"\n#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*mod \w+ \{.*?\n\}", re.DOTALL)


def source_files(suffix: str) -> list[Path]:
    """The files of all crates with a suffix."""
    folders = [ROOT / "src", *sorted(ROOT.glob("crates/*/src"))]
    return [path for folder in folders for path in sorted(folder.rglob(f"*.{suffix}"))]


def texts() -> Iterator[tuple[str, str]]:
    """Each place with its text."""
    for path in source_files("rs"):
        if path.stem != "tests" and "tests" not in path.parts:
            yield from of_rust(path)
    for path in source_files("js"):
        yield from of_literals(path, path.read_text(), JAVASCRIPT)
    generated = ("remote", "local")
    for path in sorted(ROOT.glob("python/ginnel/**/*.py")):
        # The texts of generated files come from `crates/api/src`.
        if path.relative_to(ROOT / "python" / "ginnel").parts[0] not in generated:
            yield from of_python(path)


def of_rust(path: Path) -> Iterator[tuple[str, str]]:
    """The literals of a Rust file, and its doc comments where the API is declared."""
    source = path.read_text()
    for tests in TESTS.findall(source):
        source = source.replace(tests, "\n" * tests.count("\n"))
    yield from of_literals(path, source, RUST)
    if path.parent.is_relative_to(ROOT / "crates/api/src/remote") or "local" in path.parent.parts:
        yield from of_doc_comments(path, source)


def of_literals(path: Path, source: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for found in pattern.finditer(source):
        text = found.groupdict().get("text") or found.groupdict().get("raw") or ""
        # A backslash at the end of a line joins it with the next one.
        text = re.sub(r"\\\n\s*", "", text)
        if is_prose(text):
            yield place(path, source.count("\n", 0, found.start()) + 1), text


def of_doc_comments(path: Path, source: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"(?:^ *///[^\n]*\n)+", source, re.MULTILINE):
        lines = [line.strip().removeprefix("///").strip() for line in found[0].splitlines()]
        yield place(path, source.count("\n", 0, found.start()) + 1), " ".join(lines)


def of_python(path: Path) -> Iterator[tuple[str, str]]:
    """The docstrings of public things, and every literal with a space."""
    tree = ast.parse(path.read_text())
    hidden = {id(node) for node in _hidden(tree, path.parent.name.startswith("_"))}
    joined = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in hidden | joined and is_prose(text):
            yield place(path, node.lineno), " ".join(text.split())


def _hidden(node: Documented, is_private: bool) -> Iterator[ast.AST]:
    """The docstrings that only readers of the code see.

    They are those of private modules, of functions there, and of whatever has a private name.
    """
    name = getattr(node, "name", "")
    has_private_name = name.startswith("_") and name != "__init__"
    for statement in node.body:
        if isinstance(statement, ast.Expr) and (has_private_name or is_private):
            yield statement.value
        elif isinstance(statement, Documented):
            of_class = isinstance(statement, ast.ClassDef)
            yield from _hidden(statement, has_private_name or (is_private and not of_class))


def is_prose(text: str) -> bool:
    """Whether a literal has words, not only names, punctuation, SQL or styles."""
    if re.match(r"\s*(SELECT|INSERT|DELETE FROM|CREATE|PRAGMA|<\w+ style)", text):
        return False
    plain = re.sub(r"\{[^}]*\}|\\n|\\x\w\w", " ", text)
    return bool(re.search(r"[A-Za-z]{2,}[,;:.?!)'`]* +[(`'A-Za-z]", plain))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def main() -> None:
    seen: set[str] = set()
    for where, text in texts():
        if text not in seen:
            seen.add(text)
            print(f"{where}: {text}")


if __name__ == "__main__":
    main()
