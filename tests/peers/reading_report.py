"""Report where readers of other programs differ from ginnel, for the scripts `*_readings.py`."""

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Line = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A difference with a known reason."""

    reader: str
    here: str
    there: str
    reason: str


Check = Callable[[], Difference | None]


def read_lines() -> list[Line]:
    """Return the lines of standard input, one JSON object each."""
    return [json.loads(line) for line in sys.stdin]


def reader_names() -> list[str]:
    """Return the readers of the first argument: `python,packages,curl,node`."""
    return sys.argv[1].split(",") if len(sys.argv) > 1 else ["python"]


def run_node(script: str, inputs: list[Any]) -> list[Any]:
    """Return what the body of a JavaScript function returns for each input, None for an error."""
    source = (
        "const inputs = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"const read = (input) => {{ try {{ {script} }} catch {{ return null; }} }};"
        "console.log(JSON.stringify(inputs.map(read)));"
    )
    run = subprocess.run(
        ["node", "--no-deprecation", "-e", source],
        input=json.dumps(inputs),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Any] = json.loads(run.stdout)
    return found


def report(
    lines: list[Line], checks: Callable[[Line], Iterator[Check]], kinds: str | None = None
) -> int:
    """Print the differences with their reasons, and return 1 if one has no reason.

    The table has a row for each type, or one for all of them with the name `kinds`.
    """
    counts, examples = Counter[tuple[str, Difference]](), dict[tuple[str, Difference], str]()
    comparisons, errors = Counter[str](), list[str]()
    for line in lines:
        kind = kinds or line["kind"]
        for check in checks(line):
            comparisons[kind] += 1
            try:
                found = check()
            except AssertionError as error:
                shown = line.get("reading", line.get("reason"))
                errors.append(f"{line['kind']} {line['text']!r}: {shown}: {error}")
                continue
            if found is not None:
                counts[kind, found] += 1
                text = json.dumps(line["text"])
                examples[kind, found] = min(text, examples.get((kind, found), text), key=len)
    texts = Counter(kind for kind, _ in {(kinds or it["kind"], str(it["text"])) for it in lines})
    print_table(texts, comparisons, counts, examples)
    for text in sorted(set(errors), key=len)[:40]:
        print(f"error: {text}", file=sys.stderr)
    print(f"{len(errors):,} differences without a reason", file=sys.stderr)
    return 1 if errors else 0


def print_table(
    texts: Counter[str],
    comparisons: Counter[str],
    counts: Counter[tuple[str, Difference]],
    examples: dict[tuple[str, Difference], str],
) -> None:
    for kind, number in comparisons.items():
        known = sum(count for (of, _), count in counts.items() if of == kind)
        print(f"{kind}: {texts[kind]:,} texts, {number:,} comparisons, {known:,} with a reason")
    print("| type | reader | here | there | reason | number | example |")
    print("|---|---|---|---|---|---:|---|")
    order = sorted(counts.items(), key=lambda it: (it[0][0], it[0][1].reader, -it[1]))
    for (kind, found), number in order:
        example = f"`{examples[kind, found]}`".replace("|", "\\|")
        cells = [kind, found.reader, found.here, found.there, found.reason, f"{number:,}", example]
        with contextlib.suppress(BrokenPipeError):
            print("| " + " | ".join(cells) + " |")
