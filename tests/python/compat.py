"""The launcher of `ginnel compat ngrok`, run against a service."""

from __future__ import annotations

import os
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import ginnel
from processes import PATIENCE


def write_launcher(folder: Path) -> Path:
    """Writes a launcher; its path."""
    path = folder / "ngrok"
    command = [sys.executable, "-m", "ginnel", "compat", "ngrok", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def environment(service: ginnel.Service | None, home: Path) -> dict[str, str]:
    """What a launcher finds in the environment: where the service is, and a home without files."""
    known = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
    }
    if service is None:
        return known
    assert service.agent_addr is not None
    assert service.authtoken is not None
    authorities = home / "ca.pem"
    authorities.write_text(service.ca_pem)
    return known | {
        "GINNEL_SERVER_ADDR": str(service.agent_addr),
        "GINNEL_ROOT_CAS": str(authorities),
        "NGROK_AUTHTOKEN": service.authtoken,
        "GINNEL_BASE_URL": service.url,
    }


def fields(line: str) -> dict[str, str]:
    """A line of a log, read as wrappers read it."""
    return dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)


class Program:
    """The program, and the lines that it writes on standard output."""

    def __init__(self, launcher: Path, *arguments: str, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [launcher, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=dict(env),
        )
        self.complaints: list[str] = []
        self.written: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._listen)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.complaints.extend(self.process.stderr)

    def line(self, part: str) -> str:
        """The next line that holds this text."""
        while True:
            line = self._lines.get(timeout=PATIENCE)
            assert line is not None, f"it ended: {self.written} {self.complaints}"
            self.written.append(line)
            if part in line:
                return line

    def fields(self, part: str) -> dict[str, str]:
        return fields(self.line(part))

    def ended(self) -> int:
        """Waits for its end; the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            self.written.append(line)
        self._lines.put(None)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for output in (self.process.stdout, self.process.stderr):
            assert output is not None
            output.close()
