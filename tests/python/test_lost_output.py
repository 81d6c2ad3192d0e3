"""Output that fails: a full disk, a reader who has left, standard streams that are closed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ginnel
from compat import environment, write_launcher
from processes import Upstream, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no full device")
GINNEL = (sys.executable, "-m", "ginnel")
WEB = "--web-addr=127.0.0.1:0"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


def wait_for_tunnel(service: ginnel.Service) -> str:
    """The public URL of the tunnel, which a visitor has reached."""
    with service.client() as remote:
        wait_until(lambda: remote.tunnels.list().first() is not None, "a tunnel")
        tunnel = remote.tunnels.list().first()
        assert tunnel is not None
        url = str(tunnel.public_url)
    visit(url, 1)
    return url


def visit(url: str, times: int) -> None:
    for _ in range(times):
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("log", "full"),
    [("/dev/full", None), ("stdout", "stdout"), ("stderr", "stderr")],
)
def test_a_tunnel_of_the_launcher_goes_on_while_its_log_is_lost(
    log: str, full: str | None, service: ginnel.Service, upstream: Upstream, tmp_path: Path
) -> None:
    launcher = write_launcher(tmp_path)
    report = tmp_path / "report"
    command = [str(launcher), "http", str(upstream.port), WEB, f"--log={log}"]
    with FULL.open("w") as device, report.open("w") as reported:
        process = subprocess.Popen(
            command,
            env=environment(service, tmp_path),
            stdout=device if full == "stdout" else subprocess.DEVNULL,
            stderr=device if full == "stderr" else reported,
        )
    try:
        url = wait_for_tunnel(service)
        visit(url, 3)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()

    said = report.read_text()
    if full != "stderr":
        # Once, not for each line.
        assert said.count("No space left on device") == 1


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_agent_goes_on_while_its_lines_are_lost_and_reports_it(
    form: tuple[str, ...], service: ginnel.Service, upstream: Upstream, tmp_path: Path
) -> None:
    command = [*GINNEL, "http", str(upstream.port), WEB, *form]
    with FULL.open("w") as device:
        process = subprocess.Popen(
            command,
            env=environment(service, tmp_path) | {"GINNEL_AUTHTOKEN": str(service.authtoken)},
            stdout=device,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        visit(wait_for_tunnel(service), 3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 0
    assert said == "ginnel: cannot write standard output: No space left on device (os error 28)\n"


def test_an_agent_ends_with_the_reader_of_its_lines_and_says_why(
    service: ginnel.Service, upstream: Upstream, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*GINNEL, "http", str(upstream.port), WEB],
        env=environment(service, tmp_path) | {"GINNEL_AUTHTOKEN": str(service.authtoken)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        url = wait_for_tunnel(service)
        process.stdout.close()
        visit(url, 1)

        assert process.wait(30) == 0
        assert process.stderr.read().startswith("ginnel: cannot write standard output: Broken pipe")
        process.stderr.close()
    finally:
        process.kill()
        process.wait()


def test_a_service_whose_output_is_lost_says_so_and_goes_on(tmp_path: Path) -> None:
    ready = tmp_path / "admin.json"
    options = ["--path", str(tmp_path / "g.db"), "--port", "0", "--events"]
    with FULL.open("w") as device, ready.open("w") as reported:
        process = subprocess.Popen(
            [*GINNEL, "serve", *options], stdout=device, stderr=reported, text=True
        )
    try:
        wait_until(lambda: "No space left on device" in ready.read_text(), "a report")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


CLOSED = "import os,sys\nfor stream in {streams}:\n    os.close(stream)\nos.execv({0!r}, {1!r})"


def streams_of(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{stream}") for stream in range(3)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
@pytest.mark.parametrize("streams", [(0,), (1, 2), (0, 1, 2)])
def test_closed_streams_become_the_null_device_in_the_command(
    streams: tuple[int, ...], tmp_path: Path
) -> None:
    admin = tmp_path / "access.log"
    arguments = [*GINNEL, "serve", "--path", str(tmp_path / "g.db"), "--port", "0"]
    arguments += ["--access-log", str(admin)]
    script = CLOSED.format(sys.executable, arguments, streams=streams)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    try:
        wait_until(admin.exists, "the access log")
        found = streams_of(process.pid)
        assert [found[stream] for stream in streams] == ["/dev/null"] * len(streams)
    finally:
        process.kill()
        process.wait()


LIBRARY = """
import json, os, sys
for stream in (0, 1, 2):
    os.close(stream)
import ginnel
with ginnel.Service(path=sys.argv[1]) as service, ginnel.Agent(service):
    found = [os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)]
    with open(sys.argv[2], "w") as out:
        json.dump(found, out)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_closed_streams_become_the_null_device_in_programs_that_import_ginnel(
    tmp_path: Path,
) -> None:
    result = tmp_path / "found.json"
    command = [sys.executable, "-c", LIBRARY, str(tmp_path / "g.db"), str(result)]
    subprocess.run(command, check=True, timeout=60)

    assert json.loads(result.read_text()) == ["/dev/null"] * 3
