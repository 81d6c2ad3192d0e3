"""Help texts: examples and tasks first, the usual options with `--help`, all with `--help-all`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
LONG_COMMANDS = [
    "serve",
    "http",
    "tcp",
    "tls",
    "agent",
    "start",
    "dev http",
    "local tunnels start",
]


def run(*arguments: str, module: str = "ginnel") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def options(help_text: str) -> list[str]:
    """The options that a help text lists, without those of the help itself."""
    listed = re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", help_text, re.MULTILINE)
    return [name for name in listed if not name.startswith("help")]


def headings(help_text: str) -> list[str]:
    return re.findall(r"^([A-Z][\w ]+):$", help_text, re.MULTILINE)


def test_help_begins_with_three_examples_and_lists_commands_by_task() -> None:
    told = run("--help")

    assert (told.returncode, told.stderr) == (0, "")
    first, *lines = told.stdout.splitlines()
    assert first == "Examples:"
    assert [line.split()[:2] for line in lines[:3]] == [
        ["ginnel", "dev"],
        ["ginnel", "http"],
        ["ginnel", "serve"],
    ]
    assert lines[3] == ""
    tasks = ["Share a port", "Host a service", "Automate", "Look after"]
    assert headings(told.stdout) == ["Examples", *tasks, "Options"]


def test_help_lists_every_command_once() -> None:
    commands = re.findall(r"^## `ginnel ([a-z-]+)`", REFERENCE.read_text(), re.MULTILINE)
    listed = re.findall(r"^  ([a-z][a-z-]+)  +[A-Z]", run("--help").stdout, re.MULTILINE)

    assert len(commands) > 15
    assert listed == commands


def test_no_command_prints_the_help_and_is_wrong_usage() -> None:
    done = run()

    assert done.stdout == run("--help").stdout
    assert (done.returncode, done.stderr) == (2, "ginnel: no command given\n")


@pytest.mark.parametrize("command", LONG_COMMANDS)
def test_long_help_has_groups_with_the_usual_options_first(command: str) -> None:
    usual = run(*command.split(), "--help").stdout
    everything = run(*command.split(), "--help-all").stdout

    shown, known = options(usual), options(everything)
    assert 0 < len(shown) < len(known)
    assert set(shown) < set(known)
    left_out = len(known) - len(shown)
    assert usual.splitlines()[-1] == f"{left_out} more options: ginnel {command} --help-all"
    assert len(headings(usual)) >= 3
    assert "more options" not in everything
    assert run(*command.split(), "-h").stdout == usual


def test_the_usual_options_of_the_service_fit_a_page() -> None:
    usual = run("serve", "--help").stdout

    shown = set(options(usual))
    assert {"path", "port", "base-domain", "acme-directory", "agent-port", "config"} <= shown
    assert "edge-stall-timeout" not in shown
    assert len(usual.splitlines()) < 90


def test_short_help_mentions_no_other_options() -> None:
    told = run("policy", "check", "--help").stdout

    assert "help-all" not in told
    assert run("policy", "check", "--help-all").returncode == 0


def test_options_that_help_leaves_out_work() -> None:
    done = run("serve", "--check", "--edge-stall-timeout", "31s")

    assert (done.returncode, done.stdout) == (0, "the configuration is valid\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_options_that_help_leaves_out(shell: str) -> None:
    script = run("completion", shell).stdout

    for option in ("edge-stall-timeout", "help-all", "pooling-enabled"):
        assert option in script


def test_the_reference_page_has_all_options() -> None:
    page = REFERENCE.read_text()

    for command in ("serve", "http", "start"):
        section = page.partition(f"\n## `ginnel {command}`\n")[2].partition("\n## ")[0]
        known = set(options(run(command, "--help-all").stdout))
        assert {name for name in known if f"`--{name}" not in section} == set(), command


def test_the_drop_in_lists_all_options() -> None:
    told = run("http", "--help", module="ginnel._ngrok").stdout

    assert {"web-addr", "pooling-enabled", "upstream-proxy-protocol"} <= set(options(told))
    assert "help-all" not in told
    assert headings(told) == ["Arguments", "Options"]


@pytest.mark.parametrize(
    ("arguments", "local"),
    [
        (("http", "8080"), "ginnel dev http 8080"),
        (("tcp", "localhost:5432"), "ginnel dev tcp localhost:5432"),
        (("tls", "8443"), "ginnel dev tls 8443"),
        (("agent",), "ginnel dev http 8080"),
    ],
)
def test_a_command_without_a_service_names_the_choices(
    arguments: tuple[str, ...], local: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "ginnel", *arguments]
    environment = {"HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)

    assert done.returncode == 2
    assert done.stderr.startswith("ginnel: server_addr is missing; ")
    assert len(done.stderr.splitlines()) == 1
    for choice in (f"`{local}`", "--server-addr", "docs/operate/public-url.md", "Get a public URL"):
        assert choice in done.stderr
    assert "swordfish" not in done.stderr


def test_starting_tunnels_of_a_file_without_a_service_names_the_choices(tmp_path: Path) -> None:
    config = tmp_path / "agent.yml"
    config.write_text("version: 2\ntunnels: {web: {proto: http, addr: 8080}}\n")

    done = run("start", "--all", "--config", str(config))

    assert done.returncode == 2
    assert "`ginnel dev http 8080`" in done.stderr
    assert "docs/operate/public-url.md" in done.stderr
