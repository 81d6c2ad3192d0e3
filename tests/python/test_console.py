"""What `ginnel` shows on a terminal."""

from __future__ import annotations

import codecs
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import ginnel

pty: Any = pytest.importorskip("pty", reason="needs terminals as Unix has them")
termios: Any = pytest.importorskip("termios")

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A terminal, and what is on its screen."""

    def __init__(self, process: Any, end: int) -> None:
        self.process = process
        self.end = end
        self.written = ""
        # A read may end within a letter.
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.heard = 0
        self.is_open = True

    def close(self) -> None:
        """Closes the window."""
        if self.is_open:
            self.is_open = False
            os.close(self.end)

    @property
    def screen(self) -> list[str]:
        """The lines of the last whole frame."""
        frames = self.written.split("\x1b[H")
        whole = [frame for frame in frames[1:] if "\x1b[J" in frame]
        last = whole[-1].partition("\x1b[J")[0] if whole else ""
        return [re.sub(r"\x1b\[\d*[Km]", "", line).rstrip("\r") for line in last.split("\n")]

    def until(self, pattern: str) -> re.Match[str]:
        """Waits until the screen shows something."""
        deadline = time.monotonic() + 20
        while not (found := re.search(pattern, "\n".join(self.screen))):
            assert time.monotonic() < deadline, self.written
            assert self.read(), self.written
        return found

    def said(self, text: str) -> None:
        """Waits until this was written, after what was waited for before."""
        deadline = time.monotonic() + 20
        while (at := self.written.find(text, self.heard)) < 0:
            assert time.monotonic() < deadline, self.written
            assert self.read(), self.written
        self.heard = at + len(text)

    def type(self, text: str) -> None:
        self.heard = len(self.written)
        os.write(self.end, text.encode())

    def quiet(self, seconds: float) -> bool:
        """Whether no frame is drawn for a while."""
        deadline = time.monotonic() + seconds
        drawn = self.written.count("\x1b[H")
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.end], [], [], left)[0]:
                self.read()
        return self.written.count("\x1b[H") == drawn

    def read(self) -> bool:
        if not select.select([self.end], [], [], 20)[0]:
            return False
        try:
            self.written += self.decoder.decode(os.read(self.end, 65536))
        except OSError:
            return False
        return True


@contextmanager
def terminal(*arguments: str, before: Callable[[], None] | None = None) -> Iterator[Terminal]:
    end, other = pty.openpty()
    termios.tcsetwinsize(other, (24, 70))
    command = [sys.executable, "-m", "ginnel", *arguments, "--web-addr", "127.0.0.1:0"]
    environment = {**os.environ, "GINNEL_AUTHTOKEN": "x"}
    process = subprocess.Popen(
        command,
        stdin=other,
        stdout=other,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=before,
    )
    os.close(other)
    shown = Terminal(process, end)
    try:
        yield shown
    finally:
        process.kill()
        process.communicate()
        shown.close()


def test_the_view_lives_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello")

    with terminal("dev", "http", f"file://{tmp_path}") as shown:
        shown.until(r"Session +online\n")
        shown.until(r"Management API +http://127\.0\.0\.1:\d+")
        url = shown.until(r"Forwarding +(http://\S+) -> file://")[1]
        with urlopen(f"{url}/hello.txt?token=abc", timeout=30) as response:
            response.read()
        shown.until(r"\d\d:\d\d:\d\d\.\d{3} GET +/hello\.txt\?token=•+ +200 OK")
        shown.until(r"command_line +1 ")
        assert all(len(line) <= 70 for line in shown.screen)
        assert len(shown.screen) <= 24
        shown.process.send_signal(signal.SIGINT)
        while shown.read():
            pass
        assert shown.process.wait(30) == 0
        assert shown.written.count(ENTER) == shown.written.count(LEAVE) == 1
        assert shown.written.endswith(LEAVE)


def test_a_hangup_alone_ends_nothing(tmp_path: Path) -> None:
    with terminal("dev", "http", f"file://{tmp_path}") as shown:
        url = shown.until(r"Forwarding +(http://\S+) -> file://")[1]
        for turn in range(3):
            shown.process.send_signal(signal.SIGHUP)
            visit(f"{url}/after-{turn}")
            shown.until(f"/after-{turn}")
        assert shown.process.poll() is None
        shown.process.send_signal(signal.SIGTERM)
        while shown.read():
            pass
        assert shown.process.wait(30) == 0


def test_a_view_ends_with_its_terminal(tmp_path: Path) -> None:
    with terminal("dev", "http", f"file://{tmp_path}") as shown:
        shown.until(r"Session +online\n")

        shown.close()

        assert shown.process.wait(30) == 0


def test_who_is_started_to_outlive_its_terminal_does_not_end_with_it(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with terminal("dev", "http", f"file://{tmp_path}", before=ignore) as shown:
        url = shown.until(r"Forwarding +(http://\S+) -> file://")[1]
        shown.process.send_signal(signal.SIGHUP)
        visit(f"{url}/after")
        shown.until("/after")
        shown.close()
        for _ in range(20):
            visit(f"{url}/later")
            time.sleep(0.1)
        assert shown.process.poll() is None


def visit(url: str) -> None:
    """Fetches a URL and its body: a request whose visitor leaves early is shown as failed."""
    try:
        with urlopen(url, timeout=30) as response:
            response.read()
    except HTTPError as error:
        error.read()


@contextmanager
def shell() -> Iterator[Terminal]:
    """A shell with job control, on a terminal of its own."""
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("needs bash")
    identifier, end = pty.fork()
    if not identifier:
        os.environ |= {"PS1": "ready> ", "GINNEL_AUTHTOKEN": "x", "HISTFILE": ""}
        os.execv(bash, ["bash", "--norc", "--noediting", "-i"])
    termios.tcsetwinsize(end, (24, 200))
    shown = Terminal(None, end)
    try:
        shown.said("ready> ")
        yield shown
    finally:
        # The jobs of a shell end with its terminal.
        os.kill(identifier, signal.SIGHUP)
        os.close(end)
        os.waitpid(identifier, 0)


def test_a_view_that_is_stopped_leaves_the_terminal_and_comes_back(tmp_path: Path) -> None:
    with shell() as shown:
        command = [sys.executable, "-m", "ginnel", "dev", "http", f"file://{tmp_path}"]
        shown.type(f"{shlex.join([*command, '--web-addr', '127.0.0.1:0'])}\n")
        url = shown.until(r"Forwarding +(http://\S+) -> file://")[1]
        shown.type("\x1a")
        shown.said("Stopped")
        shown.said("ready> ")
        assert shown.written.count(ENTER) == shown.written.count(LEAVE) == 1
        stopped = shown.written.index("Stopped")
        assert LEAVE in shown.written[:stopped]

        shown.type("bg\n")
        visit(f"{url}/behind")
        # What goes on behind the shell is not drawn over it.
        assert shown.quiet(1.5)
        assert ENTER not in shown.written[stopped:]

        shown.type("fg\n")
        shown.until("/behind")
        assert shown.written.count(ENTER) == 2
        shown.type("\x03")
        shown.said(LEAVE)
        shown.said("ready> ")
        assert shown.written.count(LEAVE) == 2


def test_what_keeps_an_agent_from_connecting_is_shown() -> None:
    with terminal("http", "8080", "--server-addr", "127.0.0.1:1") as shown:
        shown.until(r"Session +connecting \(127\.0\.0\.1:1: ")


@contextmanager
def view_of(folder: Path, *options: str) -> Iterator[tuple[Terminal, str]]:
    """The view of a tunnel to a folder, and the tunnel's URL."""
    with terminal("dev", "http", f"file://{folder}", *options) as shown:
        url = shown.until(r"Forwarding +(http://\S+) -> file://")[1]
        yield shown, url


UP, DOWN, PAGE_DOWN, END, ESCAPE = "\x1b[A", "\x1b[B", "\x1b[6~", "\x1b[F", "\x1b"


def test_requests_are_selected_opened_and_replayed_by_keys(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"order": {"id": 7}, "password": "swordfish"}')

    with view_of(tmp_path) as (shown, url):
        shown.until("select")
        visit(f"{url}/order.json?token=swordfish")
        visit(f"{url}/missing")
        shown.until("/missing")
        shown.type(DOWN)
        shown.until(r"\n> \d\d:\d\d:\d\d\.\d{3} GET +/missing")
        assert "\x1b[7m> " in shown.written
        shown.type("j")
        shown.until(r"\n> \S+ GET +/order\.json\?token=•+ +200 OK")
        shown.type("\r")
        shown.until(r"^GET /order\.json\?token=•+\n200 OK in \d+\.\d ms\n")
        shown.until(r"Time +waited \d")
        shown.type(PAGE_DOWN)
        shown.type(END)
        shown.until(r'"order": \{\n +"id": 7')
        assert "swordfish" not in shown.written

        shown.type("r")
        shown.until("replayed")
        shown.type(ESCAPE)
        shown.until(r"Requests\n")
        rows = [line for line in shown.screen if "/order.json" in line]
        assert len(rows) == 2
        assert rows[1].startswith("> ")
        shown.type(UP)
        shown.until(r"\n> \S+ GET +/missing")


def test_requests_are_filtered_as_in_the_page(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("here")

    with view_of(tmp_path) as (shown, url):
        visit(f"{url}/missing")
        visit(f"{url}/here.txt")
        shown.until(r"/here\.txt")
        shown.type("/status:40")
        shown.until(r"filter: status:40▏")
        shown.type("x\r")
        shown.until("filter: status:40x: must be a number, a class such as 5xx, or pending")
        shown.type("\x7f4\r")
        shown.until(r"Requests  filter: status:404\n(?!(.|\n)*here\.txt)(.|\n)*/missing")
        shown.type("/ zz")
        shown.until("status:404 zz▏")
        shown.type(ESCAPE)
        shown.until(r"filter: status:404\n(.|\n)*/missing")
        shown.type(ESCAPE)
        shown.until(r"Requests\n(.|\n)*here\.txt(.|\n)*missing")


def test_an_open_request_that_is_removed_says_so(tmp_path: Path) -> None:
    with view_of(tmp_path) as (shown, url):
        visit(f"{url}/missing")
        shown.until("/missing")
        shown.type("\r")
        shown.until(r"^GET /missing\n404 Not Found")
        shown.type(ESCAPE)
        inspect = shown.until(r"Inspect +(http://\S+)")[1]
        shown.type("\r")
        shown.until(r"^GET /missing\n")
        with ginnel.AgentClient(base_url=f"{inspect}/api") as agent:
            agent.requests.clear()
        shown.until("The request is no longer kept.")
        shown.type("r")
        shown.until("not replayed: no captured request has the id")


def test_what_is_typed_by_cats_breaks_nothing(tmp_path: Path) -> None:
    with view_of(tmp_path) as (shown, url):
        letters = bytes(code for code in range(256) if code not in (3, 4, 17, 19, 26, 28))
        os.write(shown.end, letters * 3 + b"\x1b[999;999;999~\x1b[<0;1;1M\x1bO\xff\xfe\r\r")
        visit(f"{url}/after")
        for _ in range(6):
            shown.type(ESCAPE)
            time.sleep(0.15)
        shown.until("/after")


def test_a_terminal_that_takes_nothing_holds_up_nobody_but_itself(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("here")

    with view_of(tmp_path) as (shown, url):
        # Nobody reads what is drawn, as with Ctrl-S: a few hundred frames do not fit.
        began = time.monotonic()
        for _ in range(40):
            os.write(shown.end, b"\x1b[B" * 20)
            urlopen(f"{url}/here.txt", timeout=10).read()
            time.sleep(0.02)
        assert time.monotonic() - began < 10
        shown.process.send_signal(signal.SIGINT)
        assert shown.process.wait(10) == 0


def test_keys_are_the_terminals_again_at_the_end(tmp_path: Path) -> None:
    end, other = pty.openpty()
    before = termios.tcgetattr(other)
    command = [sys.executable, "-m", "ginnel", "dev", "http", f"file://{tmp_path}"]
    with subprocess.Popen(
        [*command, "--web-addr", "127.0.0.1:0"], stdin=other, stdout=other, stderr=other
    ) as process:
        shown = Terminal(process, end)
        shown.until("select")
        assert not termios.tcgetattr(other)[3] & (termios.ICANON | termios.ECHO)
        process.send_signal(signal.SIGINT)
        shown.said(LEAVE)
        assert process.wait(30) == 0
    assert termios.tcgetattr(other) == before
    os.close(other)
    os.close(end)


def test_a_view_without_a_keyboard_offers_no_keys(tmp_path: Path) -> None:
    end, other = pty.openpty()
    command = [sys.executable, "-m", "ginnel", "dev", "http", f"file://{tmp_path}"]
    with subprocess.Popen(
        [*command, "--web-addr", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
    ) as process:
        os.close(other)
        shown = Terminal(process, end)
        shown.until("Forwarding")
        assert not any("select" in line for line in shown.screen)
        process.send_signal(signal.SIGTERM)
        while shown.read():
            pass
        assert process.wait(30) == 0
    os.close(end)


def test_without_a_terminal_there_are_lines() -> None:
    command = [sys.executable, "-m", "ginnel", "http", "8080", "--server-addr", "127.0.0.1:1"]
    with subprocess.Popen(
        [*command, "--web-addr", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GINNEL_AUTHTOKEN": "x"},
    ) as process:
        assert process.stdout
        assert "Inspect: http://127.0.0.1:" in process.stdout.readline()
        assert "127.0.0.1:1: " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_who_does_not_read_the_lines_holds_up_no_visitor(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("here")
    command = [sys.executable, "-m", "ginnel", "dev", "http", f"file://{tmp_path}"]
    with subprocess.Popen(
        [*command, "--web-addr", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        tunnel = next(line for line in process.stdout if '"event":"tunnel"' in line)
        url = urlsplit(json.loads(tunnel)["public_url"])
        connection = HTTPConnection(url.netloc, timeout=10)
        visits = 2000
        for _ in range(visits):
            connection.request("GET", f"/here.txt?{'x' * 1000}")
            assert connection.getresponse().read() == b"here"
        connection.close()
        events = iter(process.stdout.readline, "")
        read = [json.loads(next(events)) for _ in range(20)]
        assert all(event["event"] == "request" for event in read)
        # Who reads again is told what is missing, and of what comes then.
        numbers = {"request": 20, "dropped": 0}
        while numbers["request"] + numbers["dropped"] < visits or not numbers["dropped"]:
            visit(f"{url.scheme}://{url.netloc}/later")
            for event in map(json.loads, events):
                numbers["request"] += event["event"] == "request"
                numbers["dropped"] += event.get("dropped", 0)
                if event.get("uri") == "/later":
                    break
        assert numbers["dropped"] > 100
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def dev_lines(*options: str) -> list[str]:
    """What `ginnel dev` says off a terminal until its tunnel is there."""
    command = [sys.executable, "-m", "ginnel", "dev", "http", "8080", "--web-addr", "127.0.0.1:0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if "try: " in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    return lines


def test_the_first_lines_say_where_to_look_and_what_to_try() -> None:
    lines = dev_lines()

    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    url = said["Local URL"]
    assert url.startswith("http://127.0.0.1:")
    assert said["Forwarding"] == f"{url} -> localhost:8080"
    assert said["try"] == f"curl {url}"
    assert said["Inspect"].startswith("http://127.0.0.1:")
    assert "/api" not in said["Inspect"]
    assert not any("key" in line.lower() for line in lines)


def test_the_admin_key_is_shown_to_who_asks_for_it() -> None:
    said = dict(line.split(": ", 1) for line in dev_lines("--show-key") if ": " in line)

    with ginnel.RemoteClient(said["Admin key"], base_url=said["Management API"]) as remote:
        assert remote.is_closed is False


@pytest.mark.parametrize("option", ["--server-addr", "--ca", "--authtoken-file", "--config"])
def test_dev_refuses_options_that_it_does_not_use(option: str) -> None:
    command = [sys.executable, "-m", "ginnel", "dev", "http", "8080", option, "x"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (ended.returncode, option in ended.stderr) == (2, True)
