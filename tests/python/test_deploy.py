"""What is in `deploy`, as the programs that read it see it; systemd is told how the service is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml  # type: ignore[import-untyped]

from nginx import PROGRAM as NGINX
from processes import Command

DEPLOY = Path(__file__).parents[2] / "deploy"
PATHS = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"


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


def test_the_linter_of_docker_finds_nothing_wrong() -> None:
    assert checked(program("hadolint"), str(DEPLOY / "Dockerfile")) == ""


def test_the_balancer_of_a_cluster_has_a_configuration_that_it_takes() -> None:
    checked(program("haproxy"), "-c", "-f", str(DEPLOY / "cluster" / "haproxy.cfg"))


def test_the_compose_file_of_a_cluster_has_three_nodes_with_settings_that_exist() -> None:
    path = DEPLOY / "cluster" / "compose.yml"
    checked(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(path))
    services = yaml.safe_load(path.read_text())["services"]
    nodes = [service for name, service in services.items() if name.startswith("node")]
    assert len(nodes) == 3
    known = checked(sys.executable, "-m", "ginnel", "serve", "--help-all")
    for node in nodes:
        for variable in node["environment"]:
            flag = variable.removeprefix("GINNEL_").lower().replace("_", "-")
            assert f"--{flag}" in known, variable
        for argument in node["command"][1:]:
            assert argument.split("=")[0] in known, argument


def test_the_compose_file_is_one_and_its_variables_are_settings() -> None:
    path = DEPLOY / "compose.yml"
    checked(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(path))
    service = yaml.safe_load(path.read_text())["services"]["ginnel"]
    settings = checked(sys.executable, "-m", "ginnel", "config", "show", "--service")
    keys = [line.split()[0] for line in settings.splitlines()]

    known = {f"GINNEL_{key.replace('.', '_').upper()}" for key in keys}
    assert set(service["environment"]) <= known


def container(name: str, tmp_path: Path, **environment: str) -> dict[str, str]:
    """Settings in the image, as the service takes them."""
    text = (DEPLOY / "container.yml").read_text()
    (path := tmp_path / name).write_text(text.replace("/var/lib/ginnel", str(tmp_path)))
    line = [sys.executable, "-m", "ginnel"]
    variables = {"PATH": "", **environment}
    for command in (["serve", "--check"], ["config", "show", "--service"]):
        done = subprocess.run(
            [*line, *command, "--config", str(path)],
            capture_output=True,
            text=True,
            env=variables,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
    return {row.split()[0]: row.split()[1] for row in done.stdout.splitlines()}


def test_the_image_tells_visitors_the_ports_that_are_published(tmp_path: Path) -> None:
    settings = container("ginnel.yml", tmp_path)
    published = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["ginnel"]["ports"]

    for scheme in ("http", "https"):
        ports = f"{settings[f'public_{scheme}_port']}:{settings[f'{scheme}_port']}"
        assert ports in published


def test_every_setting_of_the_image_is_a_variable(tmp_path: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert 'CMD ["serve", "--config", "/etc/ginnel/ginnel.yml"]' in text
    assert "COPY deploy/container.yml /etc/ginnel/ginnel.yml" in text
    for key in yaml.safe_load((DEPLOY / "container.yml").read_text()):
        value = "9.9.9.9" if "host" in key else "999"
        value = str(tmp_path / "other.db") if key == "path" else value

        settings = container("ginnel.yml", tmp_path, **{f"GINNEL_{key.upper()}": value})

        assert settings[key] == value


def test_the_unit_may_write_where_the_guides_say() -> None:
    text = (DEPLOY / "ginnel.service").read_text()
    unit = dict(
        line.split("=", 1) for line in text.splitlines() if "=" in line[1:] and line[0] != "#"
    )
    (user,) = [
        line for line in (DEPLOY / "ginnel.sysusers").read_text().splitlines() if line[0] == "u"
    ]

    assert unit["User"] == unit["Group"] == user.split()[1]
    folders = {
        f"/var/lib/{unit['StateDirectory']}",
        f"/var/log/{unit['LogsDirectory']}",
        unit["ReadWritePaths"].removeprefix("-"),
    }
    guides = "".join(path.read_text() for path in (DEPLOY.parent / "docs" / "operate").glob("*.md"))
    assert set(re.findall(r"/var/\w+/ginnel", guides)) == folders


def kubernetes() -> dict[tuple[str, str], Any]:
    text = (DEPLOY / "kubernetes" / "ginnel.yml").read_text()
    return {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(text)}


def test_the_schemas_of_kubernetes_find_nothing_wrong() -> None:
    validate = program("kubernetes-validate")

    checked(validate, "--strict", "--quiet", str(DEPLOY / "kubernetes" / "ginnel.yml"))


def test_the_pod_of_kubernetes_fits_its_configuration_and_its_services(tmp_path: Path) -> None:
    documents = kubernetes()
    deployment = documents["Deployment", "ginnel"]["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    text = documents["ConfigMap", "ginnel"]["data"]["ginnel.yml"]
    # The folder of the database is in the pod alone.
    here = text.replace("/var/lib/ginnel", str(tmp_path))
    (path := tmp_path / "ginnel.yml").write_text(here)
    checked(sys.executable, "-m", "ginnel", "serve", "--check", "--config", str(path))
    config = yaml.safe_load(text)

    # One process uses the database.
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "api": config["port"],
        "agents": config["agent_port"],
        "http": config["http_port"],
        "https": config["https_port"],
        "admin": int(config["admin_addr"].rpartition(":")[2]),
    }
    public = {
        it["name"]: it["port"] for it in documents["Service", "ginnel-public"]["spec"]["ports"]
    }
    assert config["public_http_port"] == public["http"]
    assert config["public_https_port"] == public["https"]
    for name in ("ginnel", "ginnel-public"):
        service = documents["Service", name]["spec"]
        assert service["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
        assert {port["targetPort"] for port in service["ports"]} <= ports.keys()
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["path"] for probe in probes] == ["/readyz", "/readyz", "/healthz"]
    assert {probe["port"] for probe in probes} == {"admin"}
    seconds = [int(config[key].removesuffix("s")) for key in ("drain_delay", "grace")]
    assert pod["terminationGracePeriodSeconds"] > sum(seconds)
    assert Path(config["path"]).parent == Path(container["volumeMounts"][0]["mountPath"])


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is for Linux")
def test_systemd_learns_when_a_reload_begins_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(30)
        with Command("serve", NOTIFY_SOCKET=str(path)) as command:
            command.line()
            assert listening.recv(100) == b"READY=1"
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            command.process.send_signal(signal.SIGHUP)

            state, _, moment = listening.recv(100).decode().partition("\nMONOTONIC_USEC=")
            assert (state, listening.recv(100)) == ("RELOADING=1", b"READY=1")
            assert before <= int(moment) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


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
