"""How the modules of the package import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ginnel

PACKAGE = Path(ginnel.__file__).parent
MODULES = {
    ".".join(("ginnel", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
CORE = "ginnel._native"
"""The compiled module, which imports none at import."""
MAX_CYCLE_FILES = 3

AT_IMPORT, IN_A_FUNCTION, FOR_TYPES = "at import", "in a function", "for types"


def imports(module: str) -> Iterator[tuple[str, str]]:
    """The modules of the package that one imports, and when it does.

    What `_core/lazy.py` calls by name is no import: it is there to keep results apart from the code
    that draws them.
    """
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    yield from _imports(ast.parse(path.read_text()), package.split("."), AT_IMPORT)


def _imports(node: ast.AST, package: list[str], when: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ImportFrom(module=name, names=names, level=level):
                base = package[: len(package) - level + 1] if level else []
                source = ".".join([*base, *([name] if name else [])])
                targets = (f"{source}.{alias.name}" for alias in names)
                for target in targets:
                    known = target in MODULES or target == CORE
                    yield (target if known else source), when
            case ast.Import(names=names):
                yield from ((alias.name, when) for alias in names)
            case ast.If(test=test, body=body, orelse=rest) if "TYPE_CHECKING" in ast.unparse(test):
                yield from _imports(ast.Module(body, []), package, FOR_TYPES)
                yield from _imports(ast.Module(rest, []), package, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if when == AT_IMPORT:
                yield from _imports(child, package, IN_A_FUNCTION)
            case _:
                yield from _imports(child, package, when)


def cycles(*kinds: str) -> list[list[str]]:
    """The strongly connected modules, as far as imports of these kinds connect them."""
    graph = {
        module: {
            target
            for target, when in imports(module)
            if when in kinds and target in MODULES and target != module
        }
        for module in MODULES
    }
    reached = {module: _reached(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
    }
    return [list(group) for group in groups if len(group) > 1]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    rest = [start]
    while rest:
        new = graph[rest.pop()] - seen
        seen |= new
        rest += new
    return seen


def test_the_graph_is_read_from_the_code() -> None:
    assert ("ginnel._core.client", AT_IMPORT) in imports("ginnel")
    assert ("ginnel._core.raw_response", FOR_TYPES) in imports("ginnel")
    assert ("ginnel._repr.figure", IN_A_FUNCTION) in imports("ginnel._agent_api.client")


def test_no_module_imports_itself_through_others() -> None:
    assert cycles(AT_IMPORT) == []


def test_no_cycle_has_more_than_three_files() -> None:
    for kinds in ((AT_IMPORT, IN_A_FUNCTION), (AT_IMPORT, IN_A_FUNCTION, FOR_TYPES)):
        large = [cycle for cycle in cycles(*kinds) if len(cycle) > MAX_CYCLE_FILES]
        assert large == [], kinds


def test_private_code_is_in_folders() -> None:
    at_the_root = {path.stem for path in PACKAGE.glob("_*.py")}

    assert at_the_root == {"__init__", "__main__"}
