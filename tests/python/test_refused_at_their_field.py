"""What is wrong is named where it stands, all of it at once, before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ginnel


def check(folder: Path, text: str) -> str:
    """What `ginnel serve --check` says of a configuration that it refuses."""
    file = folder / "ginnel.yml"
    file.write_text(text)
    command = [sys.executable, "-m", "ginnel", "serve", "--check", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_all_problems_of_a_configuration_are_said_at_once(tmp_path: Path) -> None:
    said = check(tmp_path, "certificate: /nope.pem\ncertificate_key: /nope\npath: /nope/x.db\n")

    assert "/nope.pem" in said
    assert "path" in said


@pytest.mark.parametrize("key", ["host", "agent_host", "edge_host"])
@pytest.mark.parametrize("host", ["not a host!", "300.1.1.1", "a..b"])
def test_what_is_no_host_is_not_listened_on(tmp_path: Path, key: str, host: str) -> None:
    said = check(tmp_path, f'{key}: "{host}"\n')

    assert key in said
    assert f'"{host}" is no host name and no address' in said


def test_a_remote_address_without_a_port_is_refused_at_its_field() -> None:
    with ginnel.Service() as service, ginnel.Agent(service) as agent, agent.client() as local:
        with pytest.raises(ginnel.BadRequestError) as refused:
            local.tunnels.start(addr=80, proto="tcp", name="a", remote_addr="x")
        assert 'remote_addr: "x" is not host:port' in str(refused.value)
        assert list(local.tunnels.list()) == []
