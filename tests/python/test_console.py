"""What `ginnel` shows on a terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pty: Any = pytest.importorskip("pty", reason="needs terminals as Unix has them")
termios: Any = pytest.importorskip("termios")

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A terminal, and what is on its screen."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self.end = end
        self.written = ""

    @property
    def screen(self) -> list[str]:
        """The lines of the last whole frame."""
        frames = self.written.split("\x1b[H")
        whole = [frame for frame in frames[1:] if "\x1b[J" in frame]
        last = whole[-1].partition("\x1b[J")[0] if whole else ""
        return [line.replace("\x1b[K", "").rstrip("\r") for line in last.split("\n")]

    def until(self, pattern: str) -> re.Match[str]:
        """Waits until the screen shows something."""
        deadline = time.monotonic() + 20
        while not (found := re.search(pattern, "\n".join(self.screen))):
            assert time.monotonic() < deadline, self.written
            assert self.read(), self.written
        return found

    def read(self) -> bool:
        if not select.select([self.end], [], [], 20)[0]:
            return False
        try:
            self.written += os.read(self.end, 65536).decode(errors="replace")
        except OSError:
            return False
        return True


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    end, other = pty.openpty()
    termios.tcsetwinsize(other, (24, 70))
    command = [sys.executable, "-m", "ginnel", *arguments, "--web-addr", "127.0.0.1:0"]
    environment = {**os.environ, "GINNEL_AUTHTOKEN": "x"}
    process = subprocess.Popen(
        command, stdin=other, stdout=other, stderr=subprocess.PIPE, env=environment
    )
    os.close(other)
    try:
        yield Terminal(process, end)
    finally:
        process.kill()
        process.communicate()
        os.close(end)


def test_the_view_lives_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello")

    with terminal("dev", "http", f"file://{tmp_path}") as shown:
        shown.until(r"Session +online\n")
        shown.until(r"Management API +http://127\.0\.0\.1:\d+")
        url = shown.until(r"Forwarding +(http://\S+) -> file://")[1]
        urlopen(f"{url}/hello.txt?token=abc", timeout=10).close()
        shown.until(r"\d\d:\d\d:\d\d\.\d{3} GET +/hello\.txt\?token=•+ +200 OK")
        shown.until(r"command_line +1 ")
        assert all(len(line) <= 70 for line in shown.screen)
        assert len(shown.screen) <= 24
        shown.process.send_signal(signal.SIGINT)
        while shown.read():
            pass
        assert shown.process.wait(10) == 0
        assert shown.written.count(ENTER) == shown.written.count(LEAVE) == 1
        assert shown.written.endswith(LEAVE)


def test_what_keeps_an_agent_from_connecting_is_shown() -> None:
    with terminal("http", "8080", "--server-addr", "127.0.0.1:1") as shown:
        shown.until(r"Session +connecting \(127\.0\.0\.1:1: ")


def test_without_a_terminal_there_are_lines() -> None:
    command = [sys.executable, "-m", "ginnel", "http", "8080", "--server-addr", "127.0.0.1:1"]
    with subprocess.Popen(
        [*command, "--web-addr", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GINNEL_AUTHTOKEN": "x"},
    ) as process:
        assert process.stdout
        assert "agent API at http://127.0.0.1:" in process.stdout.readline()
        assert "127.0.0.1:1: " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
