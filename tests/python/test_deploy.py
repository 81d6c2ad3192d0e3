"""What is in `deploy`, as the programs that read it see it; systemd is told how the service is."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from nginx import PROGRAM as NGINX
from processes import Command

DEPLOY = Path(__file__).parents[2] / "deploy"
PATHS = f"{os.environ['PATH']}:/usr/sbin"


def checked(*command: str) -> str:
    """What a program says that has nothing to complain of."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def program(name: str) -> str:
    found = shutil.which(name, path=PATHS)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def certificate(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate, its key, and both in one file."""
    issued = trustme.CA().issue_cert("tunnels.example.com")
    chain, key, both = (folder / name for name in ("chain.pem", "key.pem", "both.pem"))
    issued.cert_chain_pems[0].write_to_path(chain)
    issued.private_key_pem.write_to_path(key)
    issued.private_key_and_cert_chain_pem.write_to_path(both)
    return chain, key, both


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "ginnel.service"
    command = str(Path(sys.executable).parent / "ginnel")
    text = (DEPLOY / "ginnel.service").read_text()
    assert text.count("/opt/ginnel/bin/ginnel serve") == 1
    unit.write_text(text.replace("/opt/ginnel/bin/ginnel serve", f"{command} serve"))

    assert checked(program("systemd-analyze"), "verify", str(unit)) == ""


def test_nginx_reads_its_configuration(tmp_path: Path) -> None:
    if NGINX is None:
        pytest.skip("nginx is not installed")
    chain, key, _ = certificate(tmp_path)
    text = (DEPLOY / "nginx.conf").read_text()
    text = text.replace("/etc/ginnel/fullchain.pem", str(chain))
    text = text.replace("/etc/ginnel/privkey.pem", str(key))
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{text}}}\n")

    checked(NGINX, "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(file))


def test_haproxy_reads_its_configuration(tmp_path: Path) -> None:
    *_, both = certificate(tmp_path)
    file = tmp_path / "haproxy.cfg"
    text = (DEPLOY / "haproxy.cfg").read_text()
    file.write_text(text.replace("/etc/ginnel/site.pem", str(both)))

    checked(program("haproxy"), "-c", "-f", str(file))


def test_caddy_reads_its_configuration() -> None:
    checked(
        program("caddy"),
        *("validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")),
    )


def test_systemd_learns_when_the_service_is_ready_alive_and_ending(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(30)
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"}
        with Command("serve", **environment) as command:
            command.line()
            assert listening.recv(100) == b"READY=1"
            assert [listening.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            command.process.send_signal(signal.SIGTERM)
            assert command.ended()[0] == 0
            said = listening.recv(100)
            while said == b"WATCHDOG=1":
                said = listening.recv(100)
            assert said == b"STOPPING=1"


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are for Linux")
def test_the_socket_of_systemd_may_have_an_abstract_name() -> None:
    name = f"ginnel-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(30)
        # The watchdog is for another process.
        environment = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
        with Command("serve", NOTIFY_SOCKET=f"@{name}", **environment) as command:
            command.line()
            assert listening.recv(100) == b"READY=1"
            command.process.send_signal(signal.SIGTERM)
            assert listening.recv(100) == b"STOPPING=1"
            assert command.ended()[0] == 0
