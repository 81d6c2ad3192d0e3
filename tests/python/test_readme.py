"""The README is short, and its examples work as they are written.

`test_docs.py` runs the blocks of Python. This file runs the tests among them with pytest, and the
commands for a terminal in a network namespace of its own, where ports 8080 and 4040 are free.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAX_WORDS = 1000
ISOLATED = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]


def blocks(language: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return found


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= MAX_WORDS


def test_the_tests_in_the_readme_pass(tmp_path: Path) -> None:
    [code] = [block for block in blocks("python") if "def test_" in block]
    (tmp_path / "test_hook.py").write_text(code)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:xdist"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout
    assert f"{code.count('def test_')} passed" in done.stdout


SESSION = r"""
set -euo pipefail
ip link set lo up
cd "$HOME"
python3() { "$PYTHON" "$@"; }
ginnel() { "$PYTHON" -m ginnel "$@"; }
until_it_works() { for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done; "$@"; }

SHARE
until_it_works ginnel local tunnels list
ginnel local tunnels list --output json > tunnels.json
url=$("$PYTHON" -c 'import json; print(json.load(open("tunnels.json"))[0]["public_url"])')
until_it_works curl --silent --fail "$url/notes.txt"
curl --silent --fail --location http://127.0.0.1:4040 > inspector.html
ginnel local requests list --output json > before.json
ID=$("$PYTHON" -c 'import json; print(json.load(open("before.json"))[0]["id"])')
LOOK
"""


def test_the_commands_of_the_readme_share_a_port_and_replay_a_request(tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    if not shutil.which("unshare") or subprocess.run([*ISOLATED, "true"]).returncode:
        pytest.skip("needs a network namespace of its own")
    share, look = (re.sub(r"^\$ ", "", block, flags=re.MULTILINE) for block in blocks("console"))
    share = share.replace("ginnel dev http 8080\n", "ginnel dev http 8080 > dev.log 2>&1 &\n")
    look = (
        re.sub(r"\bID\b", '"$ID"', look) + "ginnel local requests list --output json > after.json\n"
    )
    (tmp_path / "notes.txt").write_text("hello")
    script = SESSION.replace("SHARE", share).replace("LOOK", look)

    done = subprocess.run(
        [*ISOLATED, "bash", "-c", script],
        env={
            "HOME": str(tmp_path),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    before, after = (
        json.loads((tmp_path / name).read_text()) for name in ("before.json", "after.json")
    )
    assert before[0]["request"]["uri"] == "/notes.txt"
    assert len(after) == len(before) + 1
    assert after[0]["replay_of"] == before[0]["id"]
    assert "ginnel" in (tmp_path / "inspector.html").read_text()
