"""Writes what the documentation takes from the code: commands, settings, and fields of a tunnel.

Run `make generate` after a change of either; a test compares.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

from ginnel.local.tunnels import Tunnels

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
MARK = "<!-- fields: written by python/reference.py -->\n\n"
SETTINGS = "<!-- settings: written by python/reference.py -->\n\n"
AGENT_SETTINGS = "<!-- agent settings: written by python/reference.py -->\n\n"
END = "\n<!-- end of settings -->\n"


def commands() -> str:
    """The page of all commands."""
    return _reference()


def settings() -> str:
    """The table of all settings of `ginnel serve`."""
    return _reference("--settings")


def agent_settings() -> str:
    """The table of all settings of an agent."""
    return _reference("--agent-settings")


def _reference(*options: str) -> str:
    ginnel = [sys.executable, "-m", "ginnel", "reference", *options]
    return subprocess.run(ginnel, check=True, capture_output=True, text=True).stdout


def fields() -> str:
    """A table of the fields of a tunnel's definition."""
    described = (inspect.getdoc(Tunnels.start) or "").partition("Args:\n")[2].partition("\n\n")[0]
    joined = re.sub(r"\n {5,}", " ", described)
    rows = [re.fullmatch(r" *(\w+): (.*?)\.?", line) for line in joined.splitlines()]
    table = [f"| `{row[1]}` | {row[2]} |" for row in rows if row]
    return "\n".join(["| Field | What it is |", "| --- | --- |", *table]) + "\n"


def pages() -> dict[Path, str]:
    """Each page with what it should hold."""
    configuration = REFERENCE / "configuration.md"
    kept = configuration.read_text().partition(MARK)[0]
    for mark, table in [(SETTINGS, settings()), (AGENT_SETTINGS, agent_settings())]:
        before, _, rest = kept.partition(mark)
        kept = before + mark + table + END + rest.partition(END)[2]
    return {REFERENCE / "cli.md": commands(), configuration: kept + MARK + fields()}


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
