"""Settings of `ginnel serve`: flags, environment and file, and what is said of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import Command

KEY = "a" * 27 + "_1" + "b" * 20


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ginnel", *arguments]
    environment = {"PATH": "", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "ginnel.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def shown(*arguments: str, **environment: str) -> dict[str, tuple[str, str]]:
    done = run("config", "show", "--service", *arguments, **environment)
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
    flags = set(re.findall(r"--[a-z0-9-]+", run("serve", "--help").stdout))

    without = {key for key in shown() if f"--{re.sub('[_.]', '-', key)}" not in flags}

    assert without == {"admin_key", "authtoken"}


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
        "F:5:13: rate_limit: must be a number of requests and of seconds, such as 120/60s",
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
        ("port: 1.5\n", "F:1:7: port: is a number that is not whole; put text into quotes"),
        ("port: -1\n", "F:1:7: port: '-1' is not a whole number from 0 to 65535"),
        ("tls_endpoints: yes\n", "F:1:16: tls_endpoints: 'yes' is neither true nor false"),
        (
            "trusted_proxies: [::1, 10/8]\n",
            "F:1:18: trusted_proxies: '10/8': not a CIDR or an address",
        ),
        (
            "ambiguous_paths: keep\n",
            "F:1:18: ambiguous_paths: 'keep' is neither reject nor normalize",
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
        ("certificate: a.pem\n", "certificate: certificate_key is missing"),
        ("public_url: ftp://a\n", '"ftp://a" is not an http'),
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
