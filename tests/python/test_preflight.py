"""What `ginnel serve --check` finds is what `ginnel serve` would end with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from test_backup import command


def check(folder: Path, text: str, *flags: str) -> tuple[int, list[str]]:
    """The exit code of the check and its lines, without the file's name."""
    path = folder / "ginnel.yml"
    path.write_text(text)
    done = command("serve", "--check", "--config", path, *flags)
    lines = done.stderr.replace(str(path), "F").splitlines()
    return done.returncode, [line.removeprefix("ginnel: ") for line in lines]


@pytest.mark.parametrize(
    ("text", "expected", "code"),
    [
        (
            "http_port: none\nacme: {directory: letsencrypt, agree_to_terms: true, "
            "challenges: [http-01]}\n",
            "F:2:66: acme.challenges: http-01 is the only one, and http_port is none",
            2,
        ),
        ("path: {folder}\n", "F:1:7: path: {folder}: is not a file", 4),
        ("path: {folder}/no/g.db\n", "F:1:7: path: {folder}/no/g.db: the folder does not exist", 4),
        (
            "log_file: {folder}\n",
            "F:1:11: log_file: cannot write the log {folder}: is a directory",
            2,
        ),
        (
            "access_log: {folder}/no/log\n",
            "F:1:13: access_log: cannot write the log {folder}/no/log: No such file or directory "
            "(os error 2)",
            2,
        ),
        (
            "admin_addr: 127.0.0.1\n",
            'F:1:13: admin_addr: "127.0.0.1" is not of the form HOST:PORT',
            2,
        ),
        (
            "peer_addr: localhost\n",
            'F:1:12: peer_addr: "localhost" is not of the form HOST:PORT',
            2,
        ),
        (
            "peer_addr: 10.0.0.1:0\npeer_listen_addr: 0.0.0.0:4400\n",
            'F:1:12: peer_addr: "10.0.0.1:0" has port 0, and nobody can connect to that: name the '
            "one that leads to peer_listen_addr",
            2,
        ),
        (
            "peer_addr: 0.0.0.0:4400\n",
            'F:1:12: peer_addr: "0.0.0.0:4400" stands for all addresses of a machine, and nobody '
            "can connect to that: name one at which other nodes reach this one, and listen on all "
            "with peer_listen_addr",
            2,
        ),
        ('admin_addr: ":4090"\n', 'F:1:13: admin_addr: ":4090" is not of the form HOST:PORT', 2),
        (
            "port: 4000\nhttp_port: 4000\n",
            "F:2:12: http_port: 127.0.0.1:4000 is the address of port as well",
            2,
        ),
        (
            "edge_host: 0.0.0.0\nhttps_port: 4090\nadmin_addr: 127.0.0.1:4090\n",
            "F:3:13: admin_addr: 127.0.0.1:4090 is the address of https_port as well",
            2,
        ),
        (
            "base_domain: '*.foo'\n",
            'F:1:14: base_domain: "*.foo" is not a domain such as tunnels.example.com: it is not a '
            "host name: labels have 1 to 63 letters, digits, hyphens or underscores, and a name at "
            "most 253",
            2,
        ),
        (
            'code_prefix: "A\\nB"\n',
            'F:1:14: code_prefix: "A\\nB" has spaces or control characters',
            2,
        ),
        ("public_url: foo\n", 'F:1:13: public_url: "foo" is not an http:// or https:// address', 2),
        (
            "backup: {to: {folder}/no}\n",
            "F:1:14: backup.to: {folder}/no: backups go to a folder that exists",
            2,
        ),
        (
            "admin_key_file: /nope\n",
            "F:1:17: admin_key_file: cannot read /nope: No such file or directory (os error 2)",
            2,
        ),
    ],
)
def test_the_check_finds_what_the_start_would_find(
    text: str, expected: str, code: int, tmp_path: Path
) -> None:
    text, expected = (it.replace("{folder}", str(tmp_path)) for it in (text, expected))

    assert check(tmp_path, text) == (2, [expected])

    started = command("serve", "--config", tmp_path / "ginnel.yml")
    assert started.returncode == code
    assert started.stderr.strip() == "ginnel: " + expected.replace("F:", f"{tmp_path}/ginnel.yml:")
    assert {file.name for file in tmp_path.iterdir()} == {"ginnel.yml"}, "nothing was made"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node_name: a\n", "node_name has no effect: there is one node without store"),
        ("peer_addr: a:1\n", "peer_addr has no effect: there is one node without store"),
        (
            "public_http_port: 80\nhttp_port: none\n",
            "public_http_port has no effect: http_port is none",
        ),
        ("acme: {email: a@b.c}\n", "acme.email has no effect: acme.directory is not set"),
        (
            "max_connections: 5\nmax_connections_per_address: 6\n",
            "max_connections_per_address has no effect: max_connections is smaller",
        ),
        ("proxy_protocol: true\n", "proxy_protocol has no effect: trusted_proxies is empty"),
    ],
)
def test_a_setting_without_effect_is_named(text: str, expected: str, tmp_path: Path) -> None:
    assert check(tmp_path, text) == (0, [expected])


def test_a_key_is_set_once_however_it_is_written(tmp_path: Path) -> None:
    text = "edge: {idle_timeout: 1m}\nedge.idle_timeout: 2m\n"

    assert check(tmp_path, text) == (2, ["F:2:20: edge.idle_timeout: is set a second time"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (": [\n", "a key has no name"),
        ("a: &a [*a]\n", "an alias stands within what it stands for"),
        ("? [a]\n: 1\n", "a key must be text"),
    ],
)
def test_problems_of_yaml_have_no_words_of_a_library(
    text: str, expected: str, tmp_path: Path
) -> None:
    code, [line] = check(tmp_path, text)

    assert code == 2
    assert line.endswith(expected), line


def test_an_address_in_use_is_that_of_a_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for setting in ("port", "http_port", "agent_port"):
            done = command("serve", f"--{setting.replace('_', '-')}", port)

            assert done.returncode == 3
            expected = f"ginnel: {setting} 127.0.0.1:{port} is already in use\n"
            assert done.stderr == expected


def test_limits_are_those_of_people(tmp_path: Path) -> None:
    _, [line] = check(tmp_path, "backup: {every: 1ms}\n")

    assert line.endswith("'1ms' is not a duration such as 500ms, 10s or 5m, at least 1s")
