"""Writes the table of peers in `docs/guides/move.md` from the records of their runs.

    python tests/peers/api_client.py; python tests/peers/pyngrok_suite.py
    python tests/peers/table.py [--check]

A peer that has no record keeps its row. With `--check`, nothing is written, and a table that the
records would change is a failure.
"""

from __future__ import annotations

import sys
from pathlib import Path

from records import ABSENT, FOLDER, Record

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "move.md"
MARK = "<!-- peers: written by tests/peers/table.py -->\n\n"
END = "\n<!-- end of peers -->\n"
HEAD = "| Peer | Version | Runs | What does not, and why |\n| --- | --- | --- | --- |\n"


def others(record: Record) -> str:
    """All reasons with their counts, the most frequent first; what is not there yet is one."""
    missing = {name: it for name, it in record.others.items() if name.endswith(ABSENT)}
    reasons = {name: it for name, it in record.others.items() if name not in missing}
    if missing:
        names = ", ".join(name.removesuffix(ABSENT) for name in missing)
        reasons[f"not there yet: {names}"] = sum(missing.values())
    counted = sorted(reasons.items(), key=lambda it: -it[1])
    return "; ".join(f"{count}: {reason}" for reason, count in counted)


def row(record: Record) -> str:
    runs = f"{record.passes} of {record.total} {record.what}"
    why = others(record).replace("|", "\\|")
    return f"| {record.peer} | {record.version} | {runs} | {why} |"


def table(present: str) -> str:
    """The table as it is with the records that there are."""
    rows = {line.split("|")[1].strip(): line for line in present.splitlines()[2:]}
    records = (Record.read(path) for path in sorted(FOLDER.glob("*.json")))
    rows |= {record.peer: row(record) for record in records}
    return HEAD + "".join(f"{rows[peer]}\n" for peer in sorted(rows))


def main() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(MARK)
    present, _, after = rest.partition(END)
    written = f"{before}{MARK}{table(present)}{END}{after}"
    if "--check" in sys.argv[1:]:
        sys.exit(written != text)
    PAGE.write_text(written)


if __name__ == "__main__":
    main()
