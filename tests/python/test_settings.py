"""Settings of `ginnel serve`: flags, environment and file, and what is said of them."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ginnel
from ginnel import _native
from ginnel._core.service import NO_SETTINGS
from processes import Command, wait_until

KEY = "a" * 27 + "_1" + "b" * 20


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ginnel", *arguments]
    environment = {"PATH": "", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "ginnel.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def shown(
    *arguments: str, whose: str = "--service", **environment: str
) -> dict[str, tuple[str, str]]:
    done = run("config", "show", whose, *arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {key: (" ".join(value), origin) for key, *value, origin in rows}


def problems(text: str | bytes, folder: Path) -> list[str]:
    """What is wrong with a file, without its name."""
    path = written(folder, text)
    done = run("serve", "--check", "--config", path)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    return [line.removeprefix("ginnel: ").replace(path, "F") for line in done.stderr.splitlines()]


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    path = written(tmp_path, "host: 127.0.0.2\nedge_host: 127.0.0.2\ncode_prefix: FILE_\n")
    environment = {"GINNEL_HOST": "127.0.0.3", "GINNEL_EDGE_HOST": "127.0.0.3"}
    arguments = ["serve", "--config", path, "--edge-host", "127.0.0.4"]

    with Command(*arguments, **environment) as command:
        addresses = command.line()

    assert addresses["url"].startswith("http://127.0.0.3:")
    assert addresses["agent_addr"].startswith("127.0.0.3:")
    assert addresses["http_url"].startswith("http://127.0.0.4:")


def test_agents_may_have_an_address_of_their_own() -> None:
    with Command("serve", "--host", "127.0.0.2", "--agent-host", "127.0.0.3") as command:
        addresses = command.line()
    settings: Any = {"agent_host": "127.0.0.3"}
    with ginnel.Service(host="127.0.0.2", settings=settings) as service:
        agent_addr = service.agent_addr

    assert addresses["url"].startswith("http://127.0.0.2:")
    assert addresses["agent_addr"].startswith("127.0.0.3:")
    assert (agent_addr or "").startswith("127.0.0.3:")


def test_each_value_has_its_origin_and_secrets_are_masked(tmp_path: Path) -> None:
    text = f"# for the team\nport: 4000\nrate_limit: 120/60s\nauthtoken: {KEY}\n"
    path = written(tmp_path, text)

    actual = shown("--config", path, GINNEL_API_KEY=KEY, GINNEL_PORT="4001", GINNEL_HOST=" ")

    assert actual["port"] == ("4001", "GINNEL_PORT")
    assert actual["host"] == ("127.0.0.1", "default")
    assert actual["rate_limit"] == ("120/60s", f"{path}:3")
    assert actual["authtoken"] == ("***", f"{path}:4")
    assert actual["admin_key"] == ("***", "GINNEL_API_KEY")
    assert actual["max_connections"] == ("-", "default")
    assert not any(KEY in value for row in actual.values() for value in row)


def test_every_setting_has_a_flag_or_is_a_secret() -> None:
    flags = set(re.findall(r"--[a-z0-9-]+", run("serve", "--help-all").stdout))

    without = {key for key in shown() if f"--{re.sub('[_.]', '-', key)}" not in flags}
    # There are eight of each of these.
    without = {key for key in without if not key.startswith("oauth.")}

    assert without == {"admin_key", "authtoken", "vault_key"}


def test_lists_are_lists_or_texts_with_commas(tmp_path: Path) -> None:
    for text in (
        "trusted_proxies: [10.0.0.0/8, 192.0.2.1]",
        "trusted_proxies: 10.0.0.0/8, 192.0.2.1",
    ):
        value, _ = shown("--config", written(tmp_path, text))["trusted_proxies"]
        assert value == "10.0.0.0/8,192.0.2.1/32"
    value, origin = shown("--config", written(tmp_path, text), GINNEL_TRUSTED_PROXIES="::1")[
        "trusted_proxies"
    ]
    assert (value, origin) == ("::1/128", "GINNEL_TRUSTED_PROXIES")


def test_a_switch_of_the_file_can_be_switched_off(tmp_path: Path) -> None:
    path = written(tmp_path, "events: true\njson: true\n")

    done = run("serve", "--check", "--events=false", "--config", path)

    assert (done.returncode, done.stdout) == (0, "the configuration is valid\n")


def test_check_starts_nothing_and_tells_every_problem(tmp_path: Path) -> None:
    database = tmp_path / "ginnel.db"
    text = f"path: {database}\nhost: x\nhtp_port: 80\nport: 70000\nrate_limit: 0/60s\n"

    actual = problems(text, tmp_path)

    assert actual == [
        'F:3:1: unknown key "htp_port"; did you mean "http_port"?',
        "F:4:7: port: '70000' is not a whole number from 0 to 65535",
        "F:5:13: rate_limit: '0/60s' is not a number of requests and of seconds, such as 120/60s",
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "ginnel.yml"]


def test_what_is_wrong_in_the_file_is_wrong_though_a_flag_wins(tmp_path: Path) -> None:
    done = run("serve", "--check", "--port", "1", "--config", written(tmp_path, "port: x\n"))

    assert done.returncode == 2
    assert ":1:7: port: 'x' is not a whole number" in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: 1\nport: 2\n", "F:2:1: duplicate mapping key: port"),
        ("port: [1, 2]\n", "F:1:7: port: takes one value, not a list"),
        ("port: {a: 1}\n", "F:1:7: port: takes a value, not keys with values"),
        ("port:\n", "F:1:5: port: has no value; leave the key out for the default"),
        ("port: 1.5\n", "F:1:7: port: '1.5' is not a whole number from 0 to 65535"),
        ("port: 0x50\n", "F:1:7: port: '0x50' is not a whole number from 0 to 65535"),
        ("port: 8_080\n", "F:1:7: port: '8_080' is not a whole number from 0 to 65535"),
        ("http_port: 08080\n", "F:1:12: http_port: '08080' is neither a port from 0 to 65535"),
        ("authtoken: true\n", "F:1:12: authtoken: is a truth value; put the text into quotes"),
        ("port: -1\n", "F:1:7: port: '-1' is not a whole number from 0 to 65535"),
        ("tls_endpoints: yes\n", "F:1:16: tls_endpoints: 'yes' is neither true nor false"),
        (
            "trusted_proxies: [::1, 10/8]\n",
            "F:1:18: trusted_proxies: '10/8': not a CIDR or an address",
        ),
        (
            "ambiguous_paths: keep\n",
            "F:1:18: ambiguous_paths: 'keep' is neither auto, reject, normalize nor preserve",
        ),
        (
            "max_connections: 0\n",
            "F:1:18: max_connections: '0' is not a whole number from 1 to 4294967295",
        ),
        (
            "grace: 2h\n",
            "F:1:8: grace: '2h' is not a duration such as 500ms, 10s or 5m, from 0s to 1h",
        ),
        ("colour: red\n", 'F:1:1: unknown key "colour"'),
        ("Port: 1\n", 'F:1:1: unknown key "Port"; did you mean "port"?'),
        ("x: &a {port: 1}\n<<: *a\n", 'F:1:1: unknown key "x"'),
        ("- port\n", "F:1:1: the file must hold keys with their values"),
        ("port\n", "F:1:1: the file must hold keys with their values"),
        ("port: 1\n---\nhost: x\n", "F:3:1: there is more than one document"),
        ("host: a\n\tport: 1\n", "F:1:7: "),
        ("host: 'a\n", "F:2:1: "),
        (b"host: \xff\n", "cannot read F: it is not UTF-8 (byte 7)"),
        (b"#" * (2 << 20), "cannot read F: it is larger than 1 MiB"),
        ("certificate: a.pem\n", "F:1:14: certificate: certificate_key is missing"),
        ("public_url: ftp://a\n", 'F:1:13: public_url: "ftp://a" is not an http'),
        ("admin_key: swordfish\n", "F:1: admin_key: is not an API key of this service"),
    ],
)
def test_a_file_that_is_wrong(text: str | bytes, expected: str, tmp_path: Path) -> None:
    first = problems(text, tmp_path)[0]

    assert first.startswith(expected), first
    assert "swordfish" not in first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# nothing\n",
        "---\n",
        "\ufeffport: 0\n",
        "port: &p 0\nhttp_port: *p\n",
        "port: 0\r\n",
    ],
)
def test_a_file_that_is_right(text: str, tmp_path: Path) -> None:
    assert run("serve", "--check", "--config", written(tmp_path, text)).returncode == 0


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in [(tmp_path, "is a directory"), (tmp_path / "none", "No such file")]:
        done = run("serve", "--config", str(path))
        assert done.returncode == 2
        assert done.stderr.startswith(f"ginnel: cannot read {path}: ")
        assert reason in done.stderr
    if os.geteuid():
        (unreadable := tmp_path / "secret.yml").touch(0)
        assert "denied" in run("serve", "--config", str(unreadable)).stderr


def test_variables_are_checked_as_files_are() -> None:
    done = run("serve", "--check", GINNEL_PORT="x", GINNEL_API_KEY="swordfish")

    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "ginnel: GINNEL_PORT: 'x' is not a whole number from 0 to 65535",
    ]
    done = run("serve", "--check", GINNEL_API_KEY="swordfish")
    assert done.stderr == "ginnel: GINNEL_API_KEY does not hold an API key of this service\n"


def test_variables_of_kubernetes_are_not_ours() -> None:
    assert shown(GINNEL_PORT="tcp://10.0.0.1:4000")["port"] == ("0", "default")


def test_a_key_of_a_stronger_source_wins(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("c" * 27 + "_1" + "d" * 20)
    path = written(tmp_path, f"admin_key_file: {key_file}\n")

    with Command("serve", "--config", path, GINNEL_API_KEY=KEY) as command:
        first = command.line()
    (tmp_path / "key").write_text("not a key")

    # The variable has won over the file, which is not even read.
    assert first["api_key"] is None
    done = run("serve", "--check", "--config", path, GINNEL_API_KEY=KEY)
    assert done.returncode == 0
    assert run("serve", "--check", "--config", path).returncode == 2


AGENT_FILE = f"""\
version: 2
server_addr: tunnels.example.test:4443
authtoken: {KEY}
region: eu
heartbeat_interval: 30s
tunnels:
  web:
    proto: http
    addr: 8080
    basic_auth: [ada:swordfish]
"""


def test_each_value_of_an_agent_has_its_origin_and_secrets_are_masked(tmp_path: Path) -> None:
    path = written(tmp_path, AGENT_FILE)
    (later := tmp_path / "later.yml").write_text("version: 2\nconnect_timeout: 3s\n")
    command = ["config", "show", "--agent", "--config", path, "--config", str(later)]

    done = run(*command, GINNEL_SERVER_ADDR="127.0.0.1:1", GINNEL_METADATA="office")

    assert (done.returncode, done.stderr) == (0, "ginnel: no effect here: region\n")
    rows = {key: (value, origin) for key, value, origin in map(str.split, done.stdout.splitlines())}
    assert rows["server_addr"] == ("127.0.0.1:1", "GINNEL_SERVER_ADDR")
    assert rows["authtoken"] == ("***", f"{path}:3")
    assert rows["metadata"] == ("office", "GINNEL_METADATA")
    assert rows["heartbeat_interval"] == ("30s", f"{path}:5")
    assert rows["connect_timeout"] == ("3s", f"{later}:2")
    assert rows["web_addr"] == ("-", "default")
    assert rows["tunnels.web.addr"] == ("8080", f"{path}:9")
    assert "region" not in rows
    assert KEY not in done.stdout
    assert "swordfish" not in done.stdout


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("heartbeat_intervall: 1s\n", 'F:2:1: unknown key "heartbeat_intervall"; did you mean'),
        ("tunnels: {web: {proto: http, adr: 80}}\n", 'F:2:30: unknown key "tunnels.web.adr"; did'),
        ("connect_timeout: soon\n", "F:2:18: connect_timeout: 'soon' is not a duration"),
        ("authtoken: [swordfish]\n", "F:2:12: authtoken: takes one value, not a list"),
        ("tunnels: {web: {proto: http}}\n", "F:2:11: tunnels.web: addr: is required"),
        ("remote_management: yes\n", "F:2:20: remote_management: 'yes' is neither true nor false"),
    ],
)
def test_a_file_of_an_agent_that_is_wrong(more: str, expected: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"version: 2\n{more}")

    done = run("config", "check", "--config", path)

    assert done.returncode == 2
    first = done.stderr.splitlines()[0].removeprefix("ginnel: ").replace(path, "F")
    assert first.startswith(expected), first
    assert "swordfish" not in done.stderr


def test_a_token_file_of_an_agent_counts_as_much_as_its_source(tmp_path: Path) -> None:
    path = written(tmp_path, f"version: 2\nauthtoken_file: {tmp_path}/none\n")

    assert run("config", "check", "--config", path).returncode == 2
    assert run("config", "check", "--config", path, GINNEL_AUTHTOKEN=KEY).returncode == 0


def in_process(path: str, **more: Any) -> ginnel.Service:
    settings = {"host": "127.0.0.3", "edge_host": "127.0.0.3"}
    return ginnel.Service(config=path, settings=settings, **more)  # type: ignore[arg-type]


def test_what_python_passes_wins_over_its_settings_and_these_over_the_file(tmp_path: Path) -> None:
    text = "host: 127.0.0.2\nedge_host: 127.0.0.2\nagent_port: none\nlog_level: info\ngrace: 1s\n"
    path = written(tmp_path, text)

    with in_process(path, edge_host="127.0.0.1") as service:
        assert service.url.startswith("http://127.0.0.3:")
        assert (service.http_url or "").startswith("http://127.0.0.1:")
        assert service.agent_addr is None
        # In no order but this: what is passed counts although it is the default.
    with in_process(path, agent_port=0) as service:
        assert (service.agent_addr or "").startswith("127.0.0.3:")


def test_every_argument_of_a_service_goes_with_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "api: {max_body_size: 1KiB}\nhttp_port: none\n")
    parameters = inspect.signature(ginnel.Service).parameters
    usual = {name: parameter.default for name, parameter in parameters.items()}

    with ginnel.Service(**{**usual, "config": path}) as service:
        assert service.http_url is not None
        with pytest.raises(ginnel.APIStatusError, match="over its limit of 1024 bytes"):
            service.client().ip_policies.create(metadata="x" * 2000)


def test_every_argument_of_a_service_is_the_keyword_of_a_setting() -> None:
    rows = [row for row in json.loads(_native.service_settings()) if row["keyword"]]
    parameters = inspect.signature(ginnel.Service).parameters

    assert {row["keyword"] for row in rows} == parameters.keys() - NO_SETTINGS
    defaults = {row["keyword"]: row["default"] for row in rows}
    for name, default in defaults.items():
        usual = parameters[name].default
        if isinstance(usual, bool | int | str):
            assert str(usual).lower() == default, name


def test_the_environment_is_not_read_for_a_service_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GINNEL_HOST", "nowhere.invalid")

    with ginnel.Service(settings={}) as service:
        assert service.url.startswith("http://127.0.0.1:")


async def test_limits_of_a_service_in_python_hold_for_both_clients() -> None:
    too_long = pytest.raises(ginnel.APIStatusError, match="over its limit of 1024 bytes")
    with ginnel.Service(settings={"api": {"max_body_size": "1KiB"}}) as service:
        with too_long:
            service.client().ip_policies.create(metadata="x" * 2000)
        async with service.async_client() as remote:
            with too_long:
                await remote.ip_policies.create(metadata="x" * 2000)


def test_a_service_in_python_makes_backups(tmp_path: Path) -> None:
    (folder := tmp_path / "backups").mkdir()
    backup: Any = {"to": folder, "every": timedelta(hours=1), "keep": 2}

    with ginnel.Service(tmp_path / "ginnel.db", settings={"backup": backup}):
        wait_until(lambda: list(folder.glob("ginnel-*.db")), "a backup")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"edge": {"idle_timeout": "1ms"}},
            "settings: edge.idle_timeout: '1ms' is not a duration such as 500ms, 10s or 5m, "
            "from 50ms to 1d",
        ),
        ({"edge": {"idle_timeout": 0.001}}, "settings: edge.idle_timeout: '0.001' is not a dur"),
        (
            {"edge": {"idle_timout": 1}},
            'settings: unknown key "edge.idle_timout"; did you mean "edge.idle_timeout"?',
        ),
        (
            {"backup": {"keep": 0}},
            "settings: backup.keep: '0' is not a whole number from 1 to 4294967295",
        ),
        ({"acme": {"agree_to_terms": "yes"}}, "settings: acme.agree_to_terms: 'yes' is neither"),
        ({"acme.email": None}, "settings: acme.email: has no value; leave the key out"),
        ({"log_level": "info"}, "settings: log_level: is a setting of `ginnel serve` alone"),
        ({"admin_key": "swordfish"}, "settings: admin_key: is not an API key of this service"),
        ({"port": object()}, "settings.port: object is no type of a setting"),
        ([("port", 1)], "settings: must be a mapping"),
    ],
)
def test_settings_of_a_service_in_python_that_are_wrong(settings: Any, expected: str) -> None:
    with pytest.raises(ginnel.ConfigError) as caught:
        ginnel.Service(settings=settings)

    assert str(caught.value).startswith(expected)


def test_a_file_of_a_service_in_python_that_is_wrong(tmp_path: Path) -> None:
    path = written(tmp_path, "port: x\nhtp_port: 80\n")

    with pytest.raises(ginnel.ConfigError) as caught:
        ginnel.Service(config=path)

    assert str(caught.value).splitlines() == [
        f'{path}:2:1: unknown key "htp_port"; did you mean "http_port"?',
        f"{path}:1:7: port: 'x' is not a whole number from 0 to 65535",
    ]
    with pytest.raises(ginnel.ConfigError, match="cannot read"):
        ginnel.Service(config=tmp_path / "none.yml")


def test_files_that_a_configuration_names_must_be_there_for_a_service_in_python(
    tmp_path: Path,
) -> None:
    gone = tmp_path / "gone"
    secrets = f"admin_key_file: {gone}/key\nauthtoken_file: {gone}/token\n"
    certificate = f"certificate: {gone}/cert.pem\ncertificate_key: {gone}/key.pem\n"
    path = written(tmp_path, secrets + certificate)

    for key in (None, KEY):
        with pytest.raises(ginnel.ConfigError) as caught:
            ginnel.Service(config=path, api_key=key)

        for name in ("key", "token", "cert.pem"):
            assert f"{gone}/{name}: " in str(caught.value)


def test_a_service_in_python_needs_neither_logs_of_its_file_nor_a_folder_that_is_replaced(
    tmp_path: Path,
) -> None:
    gone = tmp_path / "gone"
    path = written(tmp_path, f"path: {gone}/g.db\nlog_file: {gone}/g.log\naccess_log: {gone}/a\n")

    with pytest.raises(ginnel.ServiceStoreError, match="the folder does not exist"):
        in_process(path)
    with ginnel.Service(path=tmp_path / "here.db", config=path) as service:
        assert service.api_key
    assert not gone.exists()
