"""The command `ginnel serve`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import ginnel


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ginnel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    keys = []
    for sent in (signal.SIGTERM, signal.SIGINT):
        command = [sys.executable, "-m", "ginnel", "serve", "--path", str(path), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout
        told = json.loads(process.stdout.readline())
        keys.append(told["api_key"])
        client = ginnel.RemoteClient(keys[0], base_url=told["url"])
        assert client.api_keys.list().first()

        process.send_signal(sent)
        rest, complaints = process.communicate(timeout=30)

        assert (process.returncode, rest, complaints) == (0, b"", b"")
    # The key is shown at the first start only.
    assert keys[0]
    assert keys[1] is None


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--port", str(taken.getsockname()[1]))

    assert done.returncode == 3
    assert done.stderr.startswith("ginnel: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code"), [(["serve", "--nonsense"], 2), (["serve", "--port", "x"], 2), ([], 2)]
)
def test_a_bad_option(arguments: list[str], code: int) -> None:
    done = run(*arguments)

    assert done.returncode == code
    assert done.stderr.startswith("ginnel: ")
    assert len(done.stderr.splitlines()) == 1


RANGES = {
    "--port": "0 to 65535",
    "--max-connections": "1 to 4294967295",
    "--max-connections-per-address": "1 to 4294967295",
    "--max-api-connections": "1 to 4294967295",
    "--max-agent-connections": "1 to 4294967295",
}


@pytest.mark.parametrize("option", RANGES)
@pytest.mark.parametrize("value", ["-1", "0.5", "abc", "99999999999999999999"])
def test_a_number_out_of_its_range_is_told_the_range(option: str, value: str) -> None:
    done = run("serve", f"{option}={value}")

    assert done.returncode == 2
    assert f"'{value}' is not a whole number from {RANGES[option]}\n" in done.stderr


@pytest.mark.parametrize("value", ["-1", "abc", "3601", "99999999999999999999"])
def test_a_grace_that_is_no_duration_is_told_the_range(value: str) -> None:
    done = run("serve", f"--grace={value}")

    assert done.returncode == 2
    problem = "is not a duration such as 500ms, 10s or 5m, from 0s to 1h"
    assert f"'{value}' {problem}\n" in done.stderr


def test_a_trusted_proxy_that_is_no_address() -> None:
    done = run("serve", "--trusted-proxies", "10.0.0.0/8,10/8")

    assert done.returncode == 2
    assert "'10/8' for '--trusted-proxies <CIDR>': not a CIDR or an address" in done.stderr


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 20])
def test_a_file_that_is_no_database_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ginnel.db"
    path.write_bytes(content)

    done = run("serve", "--path", str(path))

    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert path.read_bytes() == content
    with pytest.raises(ginnel.ServiceError):
        ginnel.Service(path)


def test_many_services_in_one_process() -> None:
    services = [ginnel.Service() for _ in range(5)]
    keys = {service.client().api_keys.list().first() for service in services}

    for service in services:
        service.stop()
        service.stop()

    assert len(keys) == 5
    with pytest.raises(ConnectionError):
        services[0].client().with_options(max_retries=0).api_keys.create()
