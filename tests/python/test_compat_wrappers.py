"""Everything that published wrappers match in what the launcher of `ginnel compat ngrok` writes.

`tests/data/wrappers.json` is the table: texts, codes, spellings of values and options, each with
its source.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ginnel
from addresses import free_port
from compat import Program, environment, fields, write_launcher
from processes import Upstream

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = json.loads((Path(__file__).parents[1] / "data/wrappers.json").read_text())
WEB = ("--web-addr=127.0.0.1:0", "--log=stdout")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service(base_domain="example.test") as service:
        yield service


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_launcher(tmp_path_factory.mktemp("launcher"))


def call(base: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and document of a call of the agent API, as wrappers send it."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{base}/{path}", data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_the_log_has_the_lines_that_wrappers_wait_for(
    launcher: Path, tmp_path: Path, upstream: Upstream
) -> None:
    with ginnel.Service() as service:
        env = environment(service, tmp_path)
        with Program(launcher, "http", str(upstream.port), *WEB, env=env) as program:
            program.line("started tunnel")
            service.stop()
            program.line("session closed")
            program.process.send_signal(signal.SIGTERM)
            program.ended()

    lines = [fields(line) for line in program.written]
    for row in TABLE["session_lines"]:
        [line, *_] = [line for line in lines if line["msg"] == row["msg"]] or [{}]
        assert row["has"].items() <= line.items(), row
        assert set(row["needs"]) <= line.keys(), row
    for row in TABLE["line_patterns"]:
        assert any(re.search(row["pattern"], line) for line in program.written), row
    # pyngrok takes each early line with an error for the end of the program.
    until_online = [line["msg"] for line in lines].index("client session established")
    assert all(line.get("err", "nil") == "nil" for line in lines[:until_online])
    # The wrapper for Node.js takes everything on standard error for a failure.
    assert program.complaints == []


def test_a_session_that_is_not_up_yet_is_told_in_the_words_that_wrappers_wait_for(
    launcher: Path, service: ginnel.Service, tmp_path: Path
) -> None:
    env = environment(service, tmp_path) | {"GINNEL_SERVER_ADDR": f"127.0.0.1:{free_port()}"}
    with Program(launcher, "start", "--none", *WEB, env=env) as program:
        base = program.fields("starting web service")["addr"]
        status, problem = call(
            base, "POST", "api/tunnels", {"name": "a", "addr": 80, "proto": "http"}
        )

    assert (status, problem["details"]["err"]) == (
        TABLE["offline"]["status"],
        TABLE["offline"]["err"],
    )


def test_definitions_are_taken_as_wrappers_send_them(
    launcher: Path, service: ginnel.Service, tmp_path: Path, upstream: Upstream
) -> None:
    env = environment(service, tmp_path)
    with Program(launcher, "start", "--none", *WEB, env=env) as program:
        base = program.fields("starting web service")["addr"]
        program.line("client session established")
        for row in TABLE["tunnel_bodies"]:
            body = {"name": "w", "addr": str(upstream.port), **row["body"]}
            status, tunnel = call(base, "POST", "api/tunnels", body)
            assert status == 201, (row, tunnel)
            assert tunnel["public_url"].split(":")[0] == row["scheme"], row
            for running in call(base, "GET", "api/tunnels")[1]["tunnels"]:
                name = urllib.parse.quote(running["name"], safe="")
                assert call(base, "DELETE", f"api/tunnels/{name}", {})[0] == 204


def test_a_name_that_is_taken_has_the_code_after_which_another_is_tried(
    launcher: Path, service: ginnel.Service, tmp_path: Path
) -> None:
    taken = {"addr": "80", "proto": "http", "hostname": "taken.example.test"}
    env = environment(service, tmp_path)
    with Program(launcher, "start", "--none", *WEB, env=env) as program:
        base = program.fields("starting web service")["addr"]
        program.line("client session established")
        assert call(base, "POST", "api/tunnels", {"name": "a", **taken})[0] == 201
        status, problem = call(base, "POST", "api/tunnels", {"name": "b", **taken})

    assert status == 502
    assert problem["error_code"] == TABLE["taken"]["error_code"]


@pytest.mark.parametrize("row", TABLE["commands"], ids=lambda row: " ".join(row["arguments"]))
def test_commands_are_taken_as_wrappers_write_them(
    row: dict[str, Any],
    launcher: Path,
    service: ginnel.Service,
    tmp_path: Path,
    upstream: Upstream,
) -> None:
    addr = f"localhost:{upstream.port}"
    arguments = [it.replace("ADDR", addr) for it in row["arguments"]]
    env = environment(service, tmp_path)
    with Program(launcher, *arguments, *WEB, env=env) as program:
        if row["works"]:
            program.line("started tunnel")
            return
        code = program.ended()

    # An option that is not known is neither the help nor a success.
    assert code == 1
    assert program.written == []
    assert "".join(program.complaints).startswith('ERROR: unexpected argument "-hello"')


def test_the_version_is_printed_as_wrappers_read_it(launcher: Path) -> None:
    done = subprocess.run(
        [launcher, "--version"], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.startswith(TABLE["version"]["prefix"])


def test_an_authtoken_is_saved_with_a_word_on_standard_output_alone(
    launcher: Path, tmp_path: Path
) -> None:
    command = [str(launcher), "authtoken", "swordfish", f"--config={tmp_path}/ngrok.yml"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=environment(None, tmp_path)
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
