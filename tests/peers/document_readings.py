"""Compare how ginnel and other programs read policy documents and files with secrets.

`cargo test --lib readings` runs this with some hundred texts of each type; `tests/fuzz/README.md`
has the figures of a long run. JSON is compared with `json`, YAML with PyYAML, and secrets with the
codecs of Python. A scalar of YAML is right in a text field if it is what PyYAML reads without a
type.
"""

import json
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any

from reading_report import Check, Difference, Line, read_lines, reader_names, report

# Phases, rules and actions lead to configurations, in which these fields have types.
TYPED = ("status_code", "enforce", "enabled")
FREE = ("metadata", "vars")
PHASES = ("inbound", "outbound", "on_http_request", "on_http_response", "on_tcp_connect")


class Twice(ValueError):
    """A key is there twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object.

    Raises:
        Twice: A key is there twice.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Twice
    return members


class Number(str):
    """A number as it is written."""


def refuse_constant(name: str) -> Any:
    raise ValueError(name)


def read_json(text: str) -> Any:
    """Read JSON with `json`; numbers stay as they are written."""
    return json.loads(
        text.removeprefix("\ufeff"),
        object_pairs_hook=unique,
        parse_int=Number,
        parse_float=Number,
        parse_constant=refuse_constant,
    )


def is_json(text: str) -> bool:
    """Return true if a text is JSON, also with a key twice."""
    try:
        read_json(text)
    except Twice:
        return True
    except ValueError:
        return False
    return True


def is_same(here: Any, there: Any) -> bool:
    """Return true if a value is the one that a reader finds."""
    if isinstance(there, Number):
        if isinstance(here, str):
            return here == there
        is_number = isinstance(here, int | float) and not isinstance(here, bool)
        return is_number and float(here) == float(there)
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(is_same(here[it], there[it]) for it in here)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(is_same, here, there))
    return type(here) is type(there) and bool(here == there)


def compare_json(line: Line) -> Difference | None:
    text = line["text"]
    try:
        there = read_json(text)
    except Twice:
        assert "reading" not in line, "the reader finds a key twice"
        return None
    except ValueError:
        if "reading" not in line:
            return None
        # PyYAML is asked about it as well.
        reason = "not JSON, but YAML: other scalars and keys, comments, commas at an end"
        return Difference("json", "read", "refused", reason)
    if "reading" in line:
        assert is_same(line["reading"], there), f"the reader finds {there}"
        return None
    refusal = reason_of_json(line["reason"], text)
    assert refusal, "the reader reads it"
    return Difference("json", "refused", "read", refusal)


def reason_of_json(problem: str, text: str) -> str | None:
    """Return why JSON is refused that a reader reads."""
    if re.search(r"\\ud[89a-f]..", text, re.IGNORECASE):
        return "half a surrogate pair is not text"
    if "out of range" in problem or "1e400" in text:
        return "a number that no program has: readers make it infinite"
    return None


# YAML


class Plain(str):
    """A scalar without quotes."""


@cache
def text_loader() -> Any:
    """Return a loader of PyYAML that reads scalars as they are written."""
    yaml: Any = import_module("yaml")
    loader: Any = type("TextLoader", (yaml.CSafeLoader,), {})

    def scalar(loader: Any, node: Any) -> str:
        text: str = loader.construct_scalar(node)
        return text if node.style else Plain(text)

    def mapping(loader: Any, node: Any) -> Any:
        written = [str(it.value) for it, _ in node.value if not it.tag.endswith(":merge")]
        if len(set(written)) != len(written):
            raise Twice
        loader.flatten_mapping(node)
        members: dict[str, Any] = {}
        for key, value in node.value:
            name = loader.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise ValueError("a key that is not text")
            members[str(name)] = loader.construct_object(value, deep=True)
        return members

    def sequence(loader: Any, node: Any) -> Any:
        return [loader.construct_object(it, deep=True) for it in node.value]

    for kind in ("null", "bool", "int", "float", "timestamp", "str", "value", "merge"):
        loader.add_constructor(f"tag:yaml.org,2002:{kind}", scalar)
    loader.add_constructor("tag:yaml.org,2002:map", mapping)
    loader.add_constructor("tag:yaml.org,2002:seq", sequence)
    return loader


def load_yaml(text: str) -> Any:
    """Read YAML with PyYAML; scalars are text, and those without quotes are `Plain`.

    Raises:
        Twice: A key is there twice.
        ValueError: The text is not YAML, or a key is not text.
    """
    yaml: Any = import_module("yaml")
    try:
        return yaml.load(text, text_loader())
    except (yaml.YAMLError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def difference_of(here: Any, there: Any, field: str = "") -> str | None:
    """Return how a value differs from the one that PyYAML finds, or None."""
    if isinstance(here, dict) and isinstance(there, dict):
        if here.keys() != there.keys():
            return f"keys {list(there)}"
        found = (difference_of(here[it], there[it], it) for it in here)
        return next((it for it in found if it), None)
    if isinstance(here, list) and isinstance(there, list):
        if len(here) != len(there):
            return f"items {there}"
        found = (difference_of(*both, field) for both in zip(here, there, strict=True))
        return next((it for it in found if it), None)
    if here is None:
        is_null = there is None or there in ("", "~", "null", "Null", "NULL")
        return None if is_null else f"{there!r}"
    if isinstance(here, bool):
        words = ("true", "yes", "on", "y") if here else ("false", "no", "off", "n")
        is_word = isinstance(there, Plain) and there.lower() in words
        return None if is_word else f"{there!r}"
    if isinstance(here, int | float):
        number = value_of(there) if isinstance(there, Plain) else None
        return None if number is not None and float(number) == float(here) else f"{there!r}"
    return None if here == there else f"{there!r}"


def value_of(text: str) -> float | int | None:
    """Return the number of a plain scalar; as in YAML 1.1, digits may have `_` between them."""
    for base, prefix in ((8, "0o"), (16, "0x"), (2, "0b"), (10, "")):
        if text.lower().startswith(prefix):
            try:
                return int(text[len(prefix) :], base)
            except ValueError:
                continue
    try:
        return float(text)
    except ValueError:
        return None


def compare_yaml(line: Line) -> Difference | None:
    text, there, problem = line["text"], None, ""
    try:
        there = load_yaml(text)
    except ValueError as error:
        problem = str(error) or type(error).__name__
    if problem:
        if "reading" not in line:
            return None
        reason = reason_of_refusal_there(problem, text)
        assert reason, f"the reader refuses it: {problem}"
        return Difference("PyYAML", "read", "refused", reason)
    if "reading" not in line:
        reason = reason_of_yaml(line["reason"], text)
        assert reason, f"the reader finds {there}"
        return Difference("PyYAML", "refused", "read", reason)
    found = difference_of(line["reading"], there)
    if found is None:
        return None
    reason = reason_of_value(text, found)
    assert reason, f"the reader finds {found} in {there}"
    return Difference("PyYAML", "read", "another value", reason)


# Words of a problem, a pattern that the text has, and the reason.
REFUSED_HERE = [
    ("", "[\x85\u2028]", "line ends: YAML 1.1 takes U+0085, U+2028 and U+2029 for some"),
    ("", "^.+\ufeff", "a byte order mark inside of the text"),
    ("YAML tag", "!", "a tag"),
    ("duplicate", "", "a key twice"),
    ("twice", "", "a key twice"),
    ("key has no name", "", "a key that is not text"),
    ("key must be text", "", "a key that is not text"),
    ("indentation", "", "a line of a quoted scalar that is not indented"),
    ("cannot start with '-'", "", "a dash before a comma or a bracket, which is not a scalar"),
    ("JSON", r"-[,\]}]", "a dash before a comma or a bracket, which is not a scalar"),
    ("JSON", r":\s*[,\]}]", "a colon without a value"),
    ("comments must be separated", "#", "a comment without a blank before it"),
]
REFUSED_THERE = [
    ("", "[\x85\u2028]", "line ends: YAML 1.1 takes U+0085, U+2028 and U+2029 for some"),
    ("", "^.+\ufeff", "a byte order mark inside of the text"),
    ("Unicode character escape", r"\\u[dD]", "pairs of surrogates in escapes, as in JSON"),
    ("for merging, but found", "<<", "merging null or a list without maps adds nothing"),
    ("duplicate anchor", "&", "an anchor may be defined again in YAML 1.2"),
    ("mapping values", "&n:", "an anchor may contain a colon in YAML 1.2"),
    ("next token", "&n%", "an anchor may contain a percent sign in YAML 1.2"),
    ("next token", r"(^|\n|-)[ \t]*\t", "tabs before a key or an item"),
    ("tab character", r"\n[ ]*\t", "tabs before the text of a block scalar"),
    ("block node", r"^\.\.\.", "the end of a document before the first one"),
    ("flow mapping", r"[{,][^}]*\n", "a key in braces may take several lines in YAML 1.2"),
    ("", r"[,{\[: ]:[^ ,]|:[\]},]", "a colon at the start of a scalar or before a bracket"),
    ("block mapping", r"(?m)^ *: ", "a key that is not text, in a value that another one replaces"),
]


def reason_in(table: list[tuple[str, str, str]], problem: str, text: str) -> str | None:
    """Return the reason of the first row that a problem and a text match."""
    found = (
        reason
        for word, pattern, reason in table
        if word in problem and re.search(pattern, text, re.DOTALL)
    )
    return next(found, None)


def reason_of_yaml(problem: str, text: str) -> str | None:
    """Return why YAML is refused that PyYAML reads."""
    return reason_in(REFUSED_HERE, problem, text)


def reason_of_refusal_there(problem: str, text: str) -> str | None:
    """Return why PyYAML refuses a text."""
    return reason_in(REFUSED_THERE, problem, text)


def reason_of_value(text: str, found: str) -> str | None:
    """Return why PyYAML finds another value."""
    if found.startswith("keys") and "<<" in text and re.search(r"(?m)^ *1:", text):
        return "1 and 0x1 are one key where maps are merged"
    return reason_in(REFUSED_THERE[:2], "", text)


# Secrets


def compare_secret(line: Line) -> Difference | None:
    content: bytes = line["text"].encode("latin-1")
    there: str | None
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        there = None
    else:
        try:
            there = content.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            there = None
    here = line.get("reading")
    if here == (there or None):
        return None
    # Python takes four separators of ASCII for white space, Unicode does not.
    assert there is not None, "the reader refuses it"
    assert (here or "").strip("\x1c\x1d\x1e\x1f \t\r\n\v\f\x85\xa0") == there, f"it finds {there!r}"
    reason = "the separators U+001C to U+001F are not white space in Unicode"
    return Difference("utf-8-sig", "read", "another value", reason)


def checks(line: Line, names: list[str]) -> Iterator[Check]:
    """Yield the comparisons of a line."""
    kind = line["kind"]
    if kind == "JSON" and "python" in names:
        yield partial(compare_json, line)
    if kind == "Secret" and "python" in names:
        yield partial(compare_secret, line)
    is_yaml = kind == "YAML" or (kind == "JSON" and not is_json(line["text"]))
    if is_yaml and "packages" in names:
        yield partial(compare_yaml, line)


def main() -> int:
    names = reader_names()
    return report(read_lines(), lambda line: checks(line, names))


if __name__ == "__main__":
    sys.exit(main())
