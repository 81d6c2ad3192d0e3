"""`ginnel compat ngrok`: the grammar, the log and the exit codes that callers expect of ngrok."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel
from compat import Program, environment, fields, write_launcher
from ginnel._testing.server import served
from processes import Relay, Upstream, wait_until

WEB = ["--web-addr", "127.0.0.1:0"]
LOG = ["--log", "stdout"]


@pytest.fixture(scope="module")
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_launcher(tmp_path_factory.mktemp("launcher"))


@pytest.fixture
def env(service: ginnel.Service, tmp_path: Path) -> dict[str, str]:
    return environment(service, tmp_path)


def run(launcher: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [launcher, *arguments], capture_output=True, text=True, timeout=60, env=env, check=False
    )


def compat(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ginnel", "compat", "ngrok", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_launcher_replaces_only_launchers_unless_it_is_asked_to(tmp_path: Path) -> None:
    foreign = tmp_path / "ngrok"
    foreign.write_text("#!/bin/sh\n")

    refused = compat(str(tmp_path))
    forced = compat(str(foreign), "--force")
    again = compat(str(foreign))

    assert refused.returncode == 2
    assert "is another file; pass --force" in refused.stderr
    assert (forced.returncode, again.returncode) == (0, 0)
    assert os.access(foreign, os.X_OK)
    assert foreign.read_text().startswith("#!/bin/sh\n# A launcher of ginnel")


def test_a_module_in_the_folder_of_the_caller_is_not_imported(
    launcher: Path, tmp_path: Path
) -> None:
    (tmp_path / "signal.py").write_text("raise SystemExit('imported')\n")

    done = subprocess.run(
        [launcher, "version"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_both_ways_to_ask_for_the_version_print_the_same(
    launcher: Path, env: dict[str, str]
) -> None:
    word, option = (run(launcher, asked, env=env) for asked in ("version", "--version"))

    assert word.stdout == option.stdout
    assert word.stdout == f"ngrok version 3.16.0+ginnel.{ginnel.__version__}\n"


def test_update_and_credits_say_what_there_is_to_say(launcher: Path, env: dict[str, str]) -> None:
    update, credits_ = (run(launcher, name, env=env) for name in ("update", "credits"))

    assert (update.returncode, credits_.returncode) == (0, 0)
    assert "nothing to update" in update.stdout
    assert "THIRD-PARTY-LICENSES" in credits_.stdout


def test_help_is_printed_where_nothing_is_asked_for(launcher: Path, env: dict[str, str]) -> None:
    done = run(launcher, env=env)

    assert done.returncode == 0
    assert "http" in done.stdout
    assert "authtoken" not in done.stdout.split("Options")[0], "an older name is not shown"


def test_the_log_says_what_happens_with_the_keys_that_wrappers_read(
    launcher: Path, env: dict[str, str]
) -> None:
    with (
        Upstream() as local,
        Program(launcher, "http", str(local.port), *WEB, *LOG, env=env) as program,
    ):
        web = program.fields("starting web service")
        session = program.fields("client session established")
        tunnel = program.fields("started tunnel")
        with urlopen(f"{tunnel['url']}/hello", timeout=10) as response:
            assert response.read() == b"/hello"
        joined = program.fields("join connections")
        with urlopen(f"http://{web['addr']}/api/tunnels", timeout=10) as response:
            [shown] = json.load(response)["tunnels"]
        program.process.send_signal(signal.SIGTERM)
        code = program.ended()

    assert re.fullmatch(r"127\.0\.0\.1:\d+", web["addr"])
    assert (web["obj"], web["lvl"]) == ("web", "info")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", web["t"])
    assert session["obj"] == "tunnels.session"
    addr = f"http://localhost:{local.port}"
    assert (tunnel["obj"], tunnel["name"], tunnel["addr"]) == ("tunnels", "command_line", addr)
    assert (shown["public_url"], shown["config"]["addr"]) == (tunnel["url"], addr)
    assert (joined["obj"], joined["name"]) == ("join", "command_line")
    assert (code, program.complaints) == (0, [])
    assert all({"t", "lvl", "msg"} <= fields(line).keys() for line in program.written)


def test_a_log_in_json_has_the_address_of_the_agent_first(
    launcher: Path, env: dict[str, str]
) -> None:
    options = [*WEB, "--log=stdout", "--log-format=json"]

    with Program(launcher, "start", "--none", *options, env=env) as program:
        program.line("client session established")

    lines = [json.loads(line) for line in program.written]
    assert all({"t", "lvl", "msg"} <= line.keys() for line in lines)
    [addressed, *_] = [line for line in lines if "addr" in line]
    assert addressed["msg"] == "starting web service"


def test_the_log_goes_where_it_is_asked_to_and_nowhere_else(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "agent.log"

    with (
        Program(launcher, "start", "--none", *WEB, "--log", str(log), env=env) as to_file,
        Program(launcher, "start", "--none", *WEB, "--log", "stderr", env=env) as to_stderr,
        Program(launcher, "start", "--none", *WEB, "--log", "false", env=env) as to_nowhere,
    ):
        wait_until(lambda: log.exists() and "session established" in log.read_text(), "file")
        wait_until(lambda: "session established" in "".join(to_stderr.complaints), "stderr")
        for program in (to_file, to_stderr, to_nowhere):
            program.process.send_signal(signal.SIGTERM)
            program.ended()

    assert to_file.written == to_stderr.written == to_nowhere.written == []
    assert to_file.complaints == to_nowhere.complaints == []
    assert (log.stat().st_mode & 0o777) == 0o640


def read_until_started(process: subprocess.Popen[bytes]) -> str:
    """Reads the log of a program up to its tunnel, whose address this is, and no further."""
    assert process.stdout is not None
    while "started tunnel" not in (line := process.stdout.readline().decode()):
        assert line, "it ended"
    return fields(line)["url"]


def test_a_reader_who_reads_no_more_stops_nobody(launcher: Path, env: dict[str, str]) -> None:
    with (
        Upstream() as local,
        subprocess.Popen(
            [launcher, "http", str(local.port), *WEB, *LOG], stdout=subprocess.PIPE, env=env
        ) as process,
    ):
        url = read_until_started(process)
        # More lines than a pipe holds.
        for number in range(1200):
            with urlopen(f"{url}/{number}", timeout=30) as response:
                assert response.status == 200
        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 0


def test_the_program_ends_with_the_reader_of_its_log(launcher: Path, env: dict[str, str]) -> None:
    with (
        Upstream() as local,
        subprocess.Popen(
            [launcher, "http", str(local.port), *WEB, *LOG], stdout=subprocess.PIPE, env=env
        ) as process,
    ):
        url = read_until_started(process)
        assert process.stdout is not None
        process.stdout.close()

        with urlopen(url, timeout=30) as response:
            assert response.status == 200

        assert process.wait(30) == 0


def test_a_level_leaves_out_what_matters_less_and_debug_adds_details(
    launcher: Path, env: dict[str, str]
) -> None:
    with Upstream() as local:
        with Program(
            launcher, "http", str(local.port), *WEB, *LOG, "--log-level", "debug", env=env
        ) as program:
            url = program.fields("started tunnel")["url"]
            urlopen(f"{url}/x", timeout=10).read()
            details = program.fields("request ended")
        warned = ["--log-level", "warn", "--region", "eu"]
        with Program(launcher, "http", str(local.port), *WEB, *LOG, *warned, env=env) as quiet:
            line = quiet.fields("no effect here")
            quiet.process.send_signal(signal.SIGTERM)
            quiet.ended()

    assert (details["lvl"], details["method"], details["uri"]) == ("dbug", "GET", "/x")
    assert (line["lvl"], line["option"]) == ("warn", "--region")
    assert all(fields(one)["lvl"] != "info" for one in quiet.written)


def test_files_say_where_the_log_goes_and_what_has_no_effect_is_said_there(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.yml"
    config.write_text(
        "version: 3\nagent:\n  log: stdout\n  log_format: json\n  log_level: warn\n"
        "  update_check: false\n  web_addr: 127.0.0.1:0\n"
    )

    with Program(launcher, "start", "--none", "--config", str(config), env=env) as program:
        line = json.loads(program.line("no effect here"))

    assert (line["lvl"], line["option"]) == ("warn", "update_check")


def test_a_lost_session_is_told_and_told_when_it_is_back(
    launcher: Path, env: dict[str, str], service: ginnel.Service
) -> None:
    with (
        Relay(env["GINNEL_SERVER_ADDR"]) as relay,
        Program(
            launcher,
            "start",
            "--none",
            *WEB,
            *LOG,
            env=env | {"GINNEL_SERVER_ADDR": relay.address},
        ) as program,
    ):
        program.line("client session established")
        relay.cut()
        lost = program.fields("session closed, starting reconnect loop")
        failed = program.fields("failed to reconnect session")
        relay.open()
        program.line("client session established")

    assert (lost["lvl"], lost["obj"]) == ("eror", "tunnels.session")
    assert failed["err"]


def test_a_wrong_authtoken_ends_the_program_with_an_error(
    launcher: Path, env: dict[str, str]
) -> None:
    arguments = ["start", "--none", *WEB, *LOG, "--authtoken", "nobodys"]

    with Program(launcher, *arguments, env=env) as program:
        code = program.ended()

    [error] = [fields(line) for line in program.written if "terminating with error" in line]
    assert code == 1
    assert error["lvl"] == "eror"
    assert "authtoken" in error["err"]
    assert fields(program.written[-1])["lvl"] == "crit"
    assert program.complaints[0].startswith("ERROR: ")


def test_a_service_that_is_away_is_told_and_waited_for(launcher: Path, env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    with Program(
        launcher, "start", "--none", *WEB, *LOG, env=env | {"GINNEL_SERVER_ADDR": nobody}
    ) as program:
        failed = program.fields("failed to reconnect session")

        assert program.process.poll() is None

    assert nobody in failed["err"]


def test_a_port_that_is_taken_ends_the_program_in_the_words_that_wrappers_look_for(
    launcher: Path, env: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Program(launcher, "start", "--none", "--web-addr", address, *LOG, env=env) as program:
            code = program.ended()

    assert code == 1
    expected = f"listen tcp {address}: bind: address already in use"
    assert any(fields(line).get("err") == expected for line in program.written)


def test_a_tunnel_that_is_not_defined_ends_the_program_and_names_those_that_are(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.yml"
    config.write_text("version: 3\nendpoints:\n  - {name: web, upstream: {url: 80}}\n")

    done = run(launcher, "start", "wbe", "--config", str(config), *LOG, env=env)

    assert done.returncode == 1
    assert 'tunnel "wbe" is not defined; the configuration has web' in done.stderr


def test_a_missing_address_is_never_that_of_somebody_else(launcher: Path, tmp_path: Path) -> None:
    done = run(launcher, "start", "--none", env=environment(None, tmp_path))

    assert done.returncode == 1
    assert "server_addr is missing; set GINNEL_SERVER_ADDR" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--none", "web"], ["--none", "--all"]])
def test_start_is_told_what_to_start(
    launcher: Path, env: dict[str, str], tmp_path: Path, arguments: list[str]
) -> None:
    config = tmp_path / "agent.yml"
    config.write_text("version: 2\ntunnels: {web: {addr: 80, proto: http}}\n")

    done = run(launcher, "start", *arguments, "--config", str(config), env=env)

    assert done.returncode == 1
    assert "pass --all or --none" in done.stderr


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a service whose tunnels have names."""
    with ginnel.Service(base_domain="tunnels.test") as service:
        yield environment(service, tmp_path_factory.mktemp("named"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["http", "80", "--url", "https://a.tunnels.test"], "https://a.tunnels.test"),
        (["http", "80", "--url", "a.tunnels.test"], "https://a.tunnels.test"),
        (["http", "80", "--url", "http://a.tunnels.test"], "http://a.tunnels.test"),
        (["http", "80", "--domain=a.tunnels.test"], "https://a.tunnels.test"),
        (["http", "80", "--hostname=a.tunnels.test"], "https://a.tunnels.test"),
        (["http", "80", "--subdomain=a"], "https://a.tunnels.test"),
        (["tls", "443", "--url", "tls://a.tunnels.test"], "tls://a.tunnels.test"),
    ],
)
def test_options_say_where_a_tunnel_is_public(
    launcher: Path, named: dict[str, str], arguments: list[str], expected: str
) -> None:
    with Program(launcher, *arguments, *WEB, *LOG, env=named) as program:
        url = program.fields("started tunnel")["url"]
        program.process.send_signal(signal.SIGTERM)
        program.ended()

    assert url.rsplit(":", 1)[0] == expected


def test_a_tcp_tunnel_has_the_address_that_is_asked_for(
    launcher: Path, env: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with Program(launcher, "tcp", "22", "--remote-addr", address, *WEB, *LOG, env=env) as program:
        first = program.fields("started tunnel")["url"]
        program.process.send_signal(signal.SIGTERM)
        program.ended()
    with Program(launcher, "tcp", "22", f"--url=tcp://{address}", *WEB, *LOG, env=env) as program:
        second = program.fields("started tunnel")["url"]

    assert first == second == f"tcp://{address}"


def test_files_of_both_versions_start_what_they_define(
    launcher: Path, env: dict[str, str], service: ginnel.Service, tmp_path: Path
) -> None:
    with Upstream() as local:
        two, three = tmp_path / "two.yml", tmp_path / "three.yml"
        two.write_text(f"version: 2\ntunnels:\n  old: {{addr: {local.port}, proto: http}}\n")
        three.write_text(
            "version: 3\nagent:\n"
            f"  connect_url: {service.agent_addr}\n  connect_cas: {env['GINNEL_ROOT_CAS']}\n"
            "  web_addr: 127.0.0.1:0\n"
            f"endpoints:\n  - name: new\n    url: http://\n    upstream: {{url: {local.port}}}\n"
            f"  - {{name: raw, url: 'tcp://', upstream: {{url: 'localhost:{local.port}'}}}}\n"
        )
        alone = {
            name: value
            for name, value in env.items()
            if name not in ("GINNEL_SERVER_ADDR", "GINNEL_ROOT_CAS")
        }
        files = ["--config", str(two), "--config", str(three)]
        with Program(launcher, "start", "--all", *files, *LOG, env=alone) as program:
            started = [program.fields("started tunnel") for _ in range(3)]
            urls = {tunnel["name"]: tunnel["url"] for tunnel in started}
            with urlopen(f"{urls['new']}/x", timeout=10) as response:
                assert response.read() == b"/x"
        with Program(launcher, "start", "raw", *files, *LOG, env=alone) as program:
            assert program.fields("started tunnel")["name"] == "raw"

    assert urls.keys() == {"old", "new", "raw"}
    assert urls["raw"].startswith("tcp://")


def test_the_usual_files_are_read_ours_first(
    launcher: Path, env: dict[str, str], service: ginnel.Service, tmp_path: Path
) -> None:
    ours = tmp_path / ".config" / "ginnel" / "ginnel.yml"
    theirs = tmp_path / ".config" / "ngrok" / "ngrok.yml"
    for path in (ours, theirs):
        path.parent.mkdir(parents=True)
    ours.write_text(
        f"version: 2\nserver_addr: {service.agent_addr}\nroot_cas: {env['GINNEL_ROOT_CAS']}\n"
        "authtoken: replaced\nweb_addr: 127.0.0.1:0\n"
    )
    theirs.write_text(f"version: 3\nagent:\n  authtoken: {service.authtoken}\n")

    with Program(launcher, "start", "--none", *LOG, env=environment(None, tmp_path)) as program:
        opened = [program.fields("open config file")["path"] for _ in range(2)]
        program.line("client session established")

    assert opened == [str(ours), str(theirs)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows and allows it")
def test_secrets_are_taken_out_of_the_command_line(
    launcher: Path, env: dict[str, str], service: ginnel.Service
) -> None:
    token = env.pop("NGROK_AUTHTOKEN")
    secrets = ["--authtoken", token, "--basic-auth=somebody:swordfish"]

    with Program(launcher, "http", "80", *WEB, *LOG, *secrets, env=env) as program:
        program.line("started tunnel")
        shown = Path(f"/proc/{program.process.pid}/cmdline").read_bytes()

    assert token.encode() not in shown
    assert b"swordfish" not in shown
    assert b"--authtoken\0***" in shown
    assert b"--basic-auth=***" in shown


def test_all_of_nothing_is_called_so(launcher: Path, env: dict[str, str], tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "ginnel", "start", "--all"]
    empty = tmp_path / "empty.yml"
    empty.write_text("version: 2\nserver_addr: localhost:1\nauthtoken: x\n")

    done = run(launcher, "start", "--all", env=env)
    own = subprocess.run(
        [*ours, "--config", str(empty)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, own.returncode) == (1, 6)
    for said in (done.stderr, own.stderr):
        assert "--all: the configuration has no tunnels or endpoints to start" in said


def test_a_policy_may_be_at_a_url(launcher: Path, env: dict[str, str]) -> None:
    actions = [{"type": "custom-response", "config": {"status_code": 203, "body": "tea"}}]
    policy = json.dumps({"on_http_request": [{"actions": actions}]})

    def files(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        is_policy = environ["PATH_INFO"] == "/policy"
        start("200 OK" if is_policy else "404 Not Found", [("Content-Type", "text/plain")])
        return [policy.encode()]

    with served(files) as port:
        here = f"http://127.0.0.1:{port}"
        tunnel = ["http", "80", *WEB, *LOG, "--url", "http://"]
        policy_at = ["--traffic-policy-url", f"{here}/policy", "--binding", "public"]
        with Program(launcher, *tunnel, *policy_at, env=env) as program:
            url = fields(program.line("started tunnel"))["url"]
            with urlopen(url) as response:
                assert (response.status, response.read()) == (203, b"tea")
        missing = run(launcher, *tunnel, "--traffic-policy-url", f"{here}/other", env=env)

    assert missing.returncode == 1
    assert f"--traffic-policy-url: {here}/other: the response has status 404" in missing.stderr


def test_what_an_http_tunnel_cannot_do_is_refused_by_the_name_of_its_flag(
    launcher: Path, env: dict[str, str]
) -> None:
    for arguments, problem in [
        (["--proxy-proto", "1"], "--proxy-proto: 1 is only for tcp and tls"),
        (["--upstream-proxy-protocol=2"], "--upstream-proxy-protocol: 2 is only for tcp and tls"),
        (["--binding", "internal"], '--binding: "internal" needs a --url'),
        (["--binding", "kubernetes"], '--binding: "kubernetes" is neither public nor internal'),
    ]:
        done = run(launcher, "http", "80", *WEB, *arguments, env=env)

        assert done.returncode == 1
        assert problem in done.stderr


def test_where_the_service_is_can_be_saved(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.yml"
    file = ["--config", str(config)]

    first = run(launcher, "config", "add-connect-url", "a.test:443", *file, env=env)
    saved = config.read_text()
    second = run(launcher, "config", "add-server-addr", "b.test:443", *file, env=env)

    assert first.stdout == f"Connect URL saved to configuration file: {config}\n"
    assert saved == 'version: "3"\nagent:\n  connect_url: "a.test:443"\n'
    assert second.returncode == 0
    assert config.read_text() == 'version: "3"\nagent:\n  connect_url: "b.test:443"\n'


def test_an_upgrade_can_be_tried_and_can_move_the_file(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.yml"
    before = "version: 2\nweb_addr: false\n"
    after = 'version: "3"\nagent:\n  web_addr: false\n'
    usual = tmp_path / ".config/ngrok/ngrok.yml"
    config.write_text(before)
    upgrade = ["config", "upgrade", "3", "--config", str(config)]

    tried = run(launcher, *upgrade, "--relocate", "--dry-run", env=env)
    untouched = config.read_text(), usual.exists()
    moved = run(launcher, *upgrade, "--relocate", env=env)
    config.write_text(before)
    refused = run(launcher, *upgrade, "--relocate", env=env)

    assert (tried.stdout, untouched) == (after, (before, False))
    assert f"{config} is at {usual} now" in moved.stdout
    assert usual.read_text() == after
    assert refused.returncode == 1
    assert f"--relocate: {usual} exists, and is not replaced" in refused.stderr
    assert config.read_text() == before


def test_shells_and_supervisors_are_told_what_to_do(launcher: Path, env: dict[str, str]) -> None:
    bash = run(launcher, "completion", env=env)
    zsh = run(launcher, "completion", env=env | {"SHELL": "/bin/zsh"})
    service = run(launcher, "service", "install", "--config", "x.yml", env=env)

    assert "complete -F _ngrok" in bash.stdout
    assert zsh.stdout.startswith("#compdef ngrok")
    assert service.returncode == 1
    assert "run `start --all --config FILE`" in service.stderr


def test_a_diagnosis_tells_its_steps_and_ends_in_time(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = tmp_path / "quick.yml"
        config.write_text("version: 2\nconnect_timeout: 1s\n")
        options = ["-w", str(report), "--ipv6", "false", "--config", str(config)]

        done = run(launcher, "diagnose", *options, env=env | {"GINNEL_SERVER_ADDR": address})

    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == f"Connecting to {address}, for at most 3s ..."
    assert lines[1].startswith(f"resolve {address}: ok")
    assert lines[2].startswith(f"TCP {address}: ok")
    assert lines[3].startswith("session: ")
    steps = json.loads(report.read_text())
    assert (steps["ok"], steps["error"] is None) == (False, False)
    assert [step["step"] for step in steps["steps"]] == ["resolve", "TCP", "session"]
    assert [step["ok"] for step in steps["steps"]] == [True, True, False]


def test_a_session_is_diagnosed(launcher: Path, env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"

    well = run(launcher, "diagnose", env=env)
    refused = run(launcher, "diagnose", "--authtoken", "nobodys", env=env)
    away = run(launcher, "diagnose", env=env | {"GINNEL_SERVER_ADDR": nobody})

    assert well.returncode == 0
    assert "session was established" in well.stdout
    assert (refused.returncode, away.returncode) == (1, 1)
    assert "authtoken" in refused.stderr
    assert nobody in away.stderr
    assert f"TCP {nobody}: " in away.stdout


def test_the_management_api_responds_in_json_as_it_is_sent(
    launcher: Path, env: dict[str, str], service: ginnel.Service, tmp_path: Path
) -> None:
    key = service.api_key
    assert key is not None

    made = run(
        launcher, "api", "--api-key", key, "api-keys", "create", "--description", "x", env=env
    )
    identifier = json.loads(made.stdout)["id"]
    listed = run(launcher, "api", "api-keys", "list", env=env | {"NGROK_API_KEY": key})
    config = tmp_path / "keys.yml"
    run(launcher, "config", "add-api-key", key, "--config", str(config), env=env)
    gone = run(launcher, "--config", str(config), "api", "api-keys", "delete", identifier, env=env)
    refused = run(launcher, "api", "--api-key", "x", "api-keys", "list", env=env)

    page = json.loads(listed.stdout)
    assert page.keys() == {"keys", "uri", "next_page_uri"}
    assert identifier in [item["id"] for item in page["keys"]]
    assert (gone.returncode, gone.stdout) == (0, "")
    assert refused.returncode == 1


def test_an_authtoken_is_saved_where_the_agent_looks_for_it(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    token = env.pop("NGROK_AUTHTOKEN")
    usual = tmp_path / ".config" / "ngrok" / "ngrok.yml"
    other = tmp_path / "other.yml"
    other.write_text("# mine\nversion: 2\nweb_addr: 127.0.0.1:0 # any\n")

    saved = run(launcher, "config", "add-authtoken", token, *LOG, env=env)
    older = run(launcher, "authtoken", token, "--config", str(other), env=env)

    assert saved.stdout == f"Authtoken saved to configuration file: {usual}\n"
    assert (usual.stat().st_mode & 0o777) == 0o600
    assert older.returncode == 0
    assert other.read_text() == (
        f'# mine\nauthtoken: "{token}"\nversion: 2\nweb_addr: 127.0.0.1:0 # any\n'
    )
    with Program(launcher, "start", "--none", "--config", str(other), *LOG, env=env) as program:
        program.line("client session established")


def test_a_file_is_checked_upgraded_and_edited(
    launcher: Path, env: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "agent.yml"
    before = "version: 2\nweb_addr: false # none\ntunnels:\n  web: {addr: 80, proto: http}\n"
    config.write_text(before)
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport sys\nopen(sys.argv[1], 'a').write('agnt: 1\\n')\n"
    )
    editor.chmod(0o755)
    file = ["--config", str(config)]

    checked = run(launcher, "config", "check", *file, env=env)
    upgraded = run(launcher, "config", "upgrade", *file, env=env)
    after = config.read_text()
    again = run(launcher, "config", "upgrade", *file, env=env)
    edited = run(launcher, "config", "edit", *file, env=env | {"EDITOR": str(editor)})
    wrong = run(launcher, "config", "check", *file, env=env)

    assert checked.stdout == f"Valid configuration file at {config}\n"
    assert upgraded.returncode == 0
    assert after == (
        'version: "3"\nagent:\n  web_addr: false # none\ntunnels:\n  web: {addr: 80, proto: http}\n'
    )
    assert (tmp_path / "agent.yml.v2").read_text() == before
    assert "has version 3 already" in again.stdout
    assert (edited.returncode, wrong.returncode) == (0, 1)
    assert f'{config}:6:1: unknown key "agnt"; did you mean "agent' in wrong.stderr
