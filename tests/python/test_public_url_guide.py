"""The guide "Get a public URL" works as it is written.

This file runs the commands of the page, in their order, in namespaces of its own. The machine has
ports 80, 443 and 4443, a copy of /etc, pebble as the certificate authority, and a resolver that
finds all names at 127.0.0.1. A command that needs a package index, systemd or Docker is in
`ELSEWHERE`, with its substitute.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import pebble
from processes import wait_until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operate/public-url.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNSHARE = ["unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

ELSEWHERE = {
    "apt-get install": "the packages of this environment",
    "python3 -m venv /opt/ginnel": "this environment",
    "/opt/ginnel/bin/pip": "this environment",
    "pip install ginnel": "this environment",
    "ln -s /opt/ginnel/bin/ginnel": "PATH",
    "git clone": "this repository",
    "cd ginnel": "this repository",
    "systemd-sysusers": "the user of the test",
    "systemctl daemon-reload": "nothing",
    "systemctl enable --now ginnel": "`ExecStart` of the unit that the page installs",
    "journalctl --unit ginnel": "the output of that process",
    "docker compose": "test_deploy.py, which reads the file",
}
"""Beginnings of commands that are not run, and the substitutes for their effects."""


@dataclass(frozen=True)
class Step:
    """A command of the page, `#` on the machine and `$` on the laptop, or a file to write."""

    prompt: str
    text: str


def steps() -> list[Step]:
    """The commands and files of the page, from top to bottom."""
    found: list[Step] = []
    for language, code in BLOCK.findall(PAGE.read_text()):
        if language == "yaml":
            found.append(Step("yaml", code))
        elif language == "console":
            lines = code.replace("\\\n", "").splitlines()
            found += [Step(line[0], line[2:].strip()) for line in lines if line[:2] in ("# ", "$ ")]
    return found


def is_elsewhere(step: Step) -> bool:
    return any(step.text.startswith(beginning) for beginning in ELSEWHERE)


def test_the_commands_of_the_page_lead_to_a_public_url(tmp_path: Path) -> None:
    if pebble.PROGRAM is None or not shutil.which("curl"):
        pytest.skip("pebble or curl is not installed")
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"]).returncode:
        pytest.skip("needs namespaces of its own")
    if not CERTIFICATES.is_file():
        pytest.skip(f"programs here do not trust the certificates in {CERTIFICATES}")

    done = subprocess.run(
        [*UNSHARE, sys.executable, __file__, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    ran = done.stdout.splitlines()
    assert [step.text for step in steps() if not is_elsewhere(step)] == [
        step.text for step in steps() if repr(step.text) in ran
    ]


def test_every_substitute_is_for_a_command_of_the_page() -> None:
    texts = [step.text for step in steps()]

    unused = [it for it in ELSEWHERE if not any(text.startswith(it) for text in texts)]

    assert unused == []


def test_the_compose_file_has_the_variables_that_the_page_names() -> None:
    compose = (ROOT / "deploy/compose.yml").read_text()
    section = PAGE.read_text().split("### With Docker Compose")[1].split("\n## ")[0]

    named = re.findall(r"`(GINNEL_[A-Z_]+)`", section)

    assert len(named) == 3
    assert [name for name in named if f"{name}:" not in compose] == []


@pytest.mark.parametrize(
    "message",
    [
        "no certificate for ",
        "is already in use",
        "authentication failed",
        "Nothing is online at this address",
    ],
)
def test_messages_of_ginnel_on_the_page_are_those_of_the_code(message: str) -> None:
    assert message in PAGE.read_text()
    assert any(message in file.read_text() for file in (ROOT / "crates").rglob("*.rs"))


@dataclass
class Reader:
    """A reader who types the commands; what changes on their machines is in `folder`."""

    folder: Path
    authority: pebble.Pebble
    running: contextlib.ExitStack
    environments: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "journal").touch()
        programs = Path(sys.executable).parent
        path = f"{programs}:{os.environ['PATH']}:/usr/sbin"
        for prompt in "#$":
            home = self.folder / {"#": "root", "$": "ada"}[prompt]
            home.mkdir()
            self.environments[prompt] = {"PATH": path, "HOME": str(home)}

    def follow(self, step: Step) -> None:
        if step.prompt == "yaml":
            Path("/etc/ginnel/ginnel.yml").write_text(step.text)
        elif step.text == "systemctl enable --now ginnel":
            self.start_unit()
            return
        elif is_elsewhere(step):
            return
        elif step.text.startswith("export "):
            self.export(step)
        elif step.text.startswith(("ginnel http", "python3 -m http.server")):
            self.start(step.text, self.environments[step.prompt], f"{step.text.split()[0]}.log")
            if step.text.startswith("ginnel"):
                self.wait_for("ginnel.log", r"Public URL: (\S+)")
        else:
            self.run(step)
        print(repr(step.text), flush=True)

    def run(self, step: Step) -> None:
        """Runs a command until it succeeds: certificates are obtained in the background."""
        deadline = time.monotonic() + 60
        while True:
            done = subprocess.run(
                ["bash", "-c", step.text],
                cwd=ROOT,
                env=self.environments[step.prompt],
                capture_output=True,
                text=True,
                timeout=60,
            )
            if done.returncode == 0 and self.is_right(step.text, done.stdout):
                return
            if time.monotonic() > deadline or not step.text.startswith(("curl", "ginnel api")):
                journal = (self.folder / "journal").read_text()
                raise AssertionError(f"{step.text}\n{done.stdout}{done.stderr}\n{journal}")
            time.sleep(0.2)

    def is_right(self, command: str, output: str) -> bool:
        """Compares the output with the sentence of the page about it."""
        checks: dict[str, Callable[[], object]] = {
            "getent": lambda: output.startswith("127.0.0.1 "),
            "ginnel doctor": lambda: "problem" not in output,
            "ginnel api tls-certificates list": lambda: "Pebble" in output,
            "curl": lambda: output.startswith("HTTP/2 200"),
        }
        return all(check() for beginning, check in checks.items() if command.startswith(beginning))

    def export(self, step: Step) -> None:
        secrets = {
            "GINNEL_API_KEY": r"admin key, shown this once: (\S+)",
            "GINNEL_AUTHTOKEN": r"authtoken for agents, shown this once: (\S+)",
        }
        for word in shlex.split(step.text)[1:]:
            name, _, value = word.partition("=")
            if value == "…":
                value = self.wait_for("journal", secrets[name])
            self.environments[step.prompt][name] = value

    def start_unit(self) -> None:
        """Does for the unit that the page installs what systemd would do."""
        unit = Path("/etc/systemd/system/ginnel.service").read_text()
        [command] = re.findall(r"^ExecStart=/opt/ginnel/bin/(.*)$", unit, re.MULTILINE)
        assert "StateDirectory=ginnel\n" in unit
        Path("/var/lib/ginnel").mkdir()
        directory = f"https://127.0.0.1:{self.authority.port}/dir"
        environment = self.environments["#"] | {
            # The authority that stands for Let's Encrypt; variables win over the file.
            "GINNEL_ACME_DIRECTORY": directory,
            "GINNEL_ACME_CA": str(self.authority.folder / "directory-ca.pem"),
        }
        self.start(command, environment, "journal")
        self.wait_for("journal", "authtoken for agents")

    def start(self, command: str, environment: dict[str, str], log: str) -> None:
        output = self.running.enter_context((self.folder / log).open("w"))
        process = subprocess.Popen(
            shlex.split(command), cwd=self.folder, env=environment, stdout=output, stderr=output
        )
        self.running.enter_context(pebble.ending(process))

    def wait_for(self, log: str, pattern: str) -> str:
        """Waits until a log has a line, and returns the first group of the match."""
        found: list[str] = []

        def is_there() -> bool:
            match = re.search(pattern, (self.folder / log).read_text())
            found.extend([match[match.lastindex or 0]] if match else [])
            return match is not None

        wait_until(is_there, f"{pattern} in {log}")
        return found[0]


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[pebble.Pebble]:
    """A machine with a copy of /etc, and an authority whose DNS is its resolver."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Files that only root may read stay where they are.
    subprocess.run(["cp", "--recursive", "--no-dereference", "/etc", folder], capture_output=True)
    subprocess.run(["mount", "--bind", folder / "etc", "/etc"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/lib"], check=True)
    resolver = Path("/etc/resolv.conf")
    resolver.unlink(missing_ok=True)
    resolver.write_text("nameserver 127.0.0.1\n")
    Path("/etc/nsswitch.conf").write_text("hosts: files dns\n")
    (place := folder / "pebble").mkdir()
    with pebble.pebble(place, http_port=80, https_port=443, names=53) as authority:
        root = authority.ask(f"https://127.0.0.1:{authority.management}/roots/0").decode()
        with CERTIFICATES.open("a") as file:
            file.write(root)
        yield authority


def follow_the_page(folder: Path) -> None:
    with machine(folder) as authority, contextlib.ExitStack() as running:
        reader = Reader(folder, authority, running)
        for step in steps():
            reader.follow(step)


if __name__ == "__main__":
    follow_the_page(Path(sys.argv[1]))
