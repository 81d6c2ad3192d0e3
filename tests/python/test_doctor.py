"""`ginnel doctor`: what it finds, what it says to do, and what it keeps to itself."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

import ginnel

Findings = dict[str, list[dict[str, str]]]


def doctor(*arguments: str | Path, **variables: str) -> tuple[int, Findings]:
    """The exit code, and the findings by what was looked at."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GINNEL_")}
    done = subprocess.run(
        [sys.executable, "-m", "ginnel", "doctor", "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean | variables,
    )
    found: Findings = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return done.returncode, found


def test_a_sound_service_has_no_problems(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service:
        code, found = doctor(
            "--path", path, "--url", service.url, GINNEL_API_KEY=service.api_key or ""
        )
        running = found["database"][0]["message"]
    before = sorted(file.name for file in tmp_path.iterdir())
    _, closed = doctor("--path", path)

    assert code == 0
    assert "is whole" in running
    assert "in use by a service" in running
    assert "in use" not in closed["database"][0]["message"]
    assert found["management API"][0]["severity"] == "ok"
    assert {"log", "space", "clock", "descriptors"} <= found.keys()
    assert [name for name in before if not name.endswith(("-wal", "-shm"))] == [
        file.name for file in sorted(tmp_path.iterdir()) if not file.name.endswith(("-wal", "-shm"))
    ]


def test_a_database_that_is_damaged_or_missing_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    assert "does not exist" in doctor("--path", path)[1]["database"][0]["message"]
    with ginnel.Service(path) as service, service.client() as client:
        for _ in range(50):
            client.ip_policies.create(metadata="m" * 500)
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 3] = b"\xa5" * 4096
    path.write_bytes(content)

    code, found = doctor("--path", path)

    assert code == 1
    assert found["database"][0]["severity"] == "problem"
    assert "ginnel restore" in found["database"][0]["remedy"]


def test_a_database_without_its_log_is_a_problem(tmp_path: Path) -> None:
    with ginnel.Service(tmp_path / "ginnel.db"):
        shutil.copyfile(tmp_path / "ginnel.db", tmp_path / "alone.db")

    code, found = doctor("--path", tmp_path / "alone.db")

    assert code == 1
    assert "alone.db-wal, which is missing" in found["database"][0]["message"]


def configured(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "ginnel.yml"
    file.write_text("\n".join([f"path: {tmp_path / 'ginnel.db'}", *lines]))
    return file


def test_a_port_that_somebody_else_has_is_a_problem(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, found = doctor("--config", configured(tmp_path, f"http_port: {port}"))
    _, free = doctor("--config", configured(tmp_path, f"http_port: {port}"))

    (finding,) = found["port"]
    assert (code, finding["severity"]) == (1, "problem")
    assert f"http_port: 127.0.0.1:{port}" in finding["message"]
    assert "stop the program" in finding["remedy"]
    assert free["port"][0]["severity"] == "ok"


def test_a_domain_without_records_is_a_problem(tmp_path: Path) -> None:
    _, found = doctor("--config", configured(tmp_path, "base_domain: ginnel.invalid"))
    problems = [finding["remedy"] for finding in found["dns"]]
    assert [remedy.split(" that ")[0] for remedy in problems] == [
        "add an A or AAAA record for ginnel.invalid",
        "add an A or AAAA record for *.ginnel.invalid",
    ]


@pytest.mark.parametrize(("days", "severity"), [(90, "ok"), (10, "warning"), (-3, "problem")])
def test_a_certificate_has_an_end(tmp_path: Path, days: int, severity: str) -> None:
    now = datetime.now(UTC)
    issued = trustme.CA().issue_cert(
        "shop.example.test",
        not_before=now - timedelta(days=30),
        not_after=now + timedelta(days=days),
    )
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "chain.pem"))
    lines = (f"certificate: {tmp_path / 'chain.pem'}", f"certificate_key: {tmp_path / 'key.pem'}")

    _, found = doctor("--config", configured(tmp_path, *lines))

    assert [finding["severity"] for finding in found["certificate"]] == [severity]


@pytest.mark.parametrize(
    ("names", "more", "severity", "expected"),
    [
        (["*.ginnel.invalid"], "", "ok", "is for *.ginnel.invalid"),
        (
            ["shop.example.test"],
            "",
            "warning",
            "is for shop.example.test, and not for *.ginnel.invalid and api.ginnel.invalid",
        ),
        (
            ["ginnel.invalid", "api.ginnel.invalid"],
            "acme: {directory: letsencrypt, agree_to_terms: true}",
            "ok",
            "ACME is for *.ginnel.invalid",
        ),
    ],
)
def test_a_certificate_has_names(
    tmp_path: Path, names: list[str], more: str, severity: str, expected: str
) -> None:
    issued = trustme.CA().issue_cert(*names)
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "chain.pem"))
    lines = [f"certificate: {tmp_path / 'chain.pem'}", f"certificate_key: {tmp_path / 'key.pem'}"]
    lines += ["base_domain: ginnel.invalid", "public_url: https://api.ginnel.invalid", more]

    _, found = doctor("--config", configured(tmp_path, *lines))

    [finding] = found["names"]
    assert finding["severity"] == severity
    assert expected in finding["message"]


def test_host_names_of_edges_are_resolved_and_have_certificates(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("*.shop.invalid")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "chain.pem"))
    lines = [f"certificate: {tmp_path / 'chain.pem'}", f"certificate_key: {tmp_path / 'key.pem'}"]
    config = configured(tmp_path, *lines)
    with ginnel.Service() as service, service.client() as client:
        key = service.api_key or ""

        def look(*arguments: str | Path) -> Findings:
            return doctor("--url", service.url, *arguments, GINNEL_API_KEY=key)[1]

        none = look("--config", config)
        client.edges.https.create(hostports=["localhost:80"])
        sound = look("--config", config)
        client.edges.https.create(hostports=["a.shop.invalid:443", "bank.invalid:443"])
        without_config = look()
        found = look("--config", config)

    assert not {"edges", "names"} & none.keys()
    assert sound["edges"][0] == {
        "check": "edges",
        "severity": "ok",
        "message": "all 1 host names of edges are resolved",
    }
    assert "names" not in sound
    assert "names" not in without_config
    [unknown], [uncovered] = found["edges"], found["names"]
    assert (unknown["severity"], uncovered["severity"]) == ("warning", "warning")
    assert unknown["message"].endswith(": a.shop.invalid, bank.invalid")
    assert "A or AAAA records" in unknown["remedy"]
    assert uncovered["message"] == "no certificate is for the edges' names bank.invalid"
    assert "acme.directory" in uncovered["remedy"]


def test_the_clock_is_compared_with_that_of_a_service() -> None:
    with ginnel.Service() as service:
        _, found = doctor("--url", service.url, GINNEL_API_KEY=service.api_key or "")

    assert [finding["severity"] for finding in found["clock"]] == ["ok", "ok"]
    assert service.url in found["clock"][1]["message"]


def test_a_configuration_that_is_wrong_is_a_problem(tmp_path: Path) -> None:
    code, found = doctor("--config", configured(tmp_path, "prot: 80"))
    assert code == 1
    assert "prot" in found["configuration"][0]["message"]


def test_what_does_not_respond_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, found = doctor(
        "--url",
        f"http://127.0.0.1:{port}",
        "--agent-url",
        f"http://127.0.0.1:{port}",
        GINNEL_API_KEY="2abcdefghijklmnopqrstuvwxyz_1abcdefghijklmnopqrst",
    )
    assert code == 1
    assert found["management API"][0]["severity"] == found["agent"][0]["severity"] == "problem"


def test_an_agent_responds() -> None:
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        assert agent.url
        _, found = doctor("--agent-url", agent.url)
    assert found["agent"][0]["severity"] == "ok"


def test_a_bundle_holds_no_secret_of_a_service(tmp_path: Path) -> None:
    path, key_file = tmp_path / "ginnel.db", tmp_path / "admin.key"
    with ginnel.Service(path) as service, service.client() as client:
        tokens = [service.api_key or "", service.authtoken or ""]
        tokens += [client.api_keys.create(description="very-private").token or ""]
        tokens += [client.credentials.create(metadata="very-private").token or ""]
        key_file.write_text(tokens[0])
        config = configured(tmp_path, f"admin_key_file: {key_file}", f"authtoken: {tokens[1]}")
        bundle = tmp_path / "bundle.tar.gz"
        arguments = ("--config", config, "--url", service.url, "--bundle", bundle)

        doctor(*arguments, GINNEL_API_KEY=tokens[0])
        ca_key = (tmp_path / "ginnel.db-ca.key").read_text()

    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        texts = [file.read().decode() for name in names if (file := archive.extractfile(name))]
    assert names == [f"ginnel-doctor/{n}" for n in ("findings.json", "settings.txt", "system.json")]
    assert "authtoken: ••••••" in texts[1]
    assert bundle.stat().st_mode & 0o777 == 0o600
    content = bundle.read_bytes() + "\n".join(texts).encode()
    for secret in [
        *tokens,
        *(token.split("_")[1] for token in tokens),
        "very-private",
        *ca_key.split("\n")[1:-2],
    ]:
        assert secret
        assert secret.encode() not in content
    assert (
        subprocess.run(
            [sys.executable, "-m", "ginnel", "doctor", "--bundle", str(bundle)], capture_output=True
        ).returncode
        == 1
    ), "an archive that is there stays"


def test_a_database_that_may_not_be_opened_is_not_to_be_restored(tmp_path: Path) -> None:
    code, found = doctor("--path", tmp_path)

    (finding,) = found["database"]
    assert (code, finding["severity"]) == (1, "problem")
    assert "permissions" in finding["remedy"]
    assert "restore" not in finding["remedy"]


def test_a_service_that_was_never_started_has_no_problem(tmp_path: Path) -> None:
    code, found = doctor("--config", configured(tmp_path))

    assert (code, found["database"][0]["severity"]) == (0, "warning")


def test_a_server_that_cannot_be_reached_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "ginnel.yml"
    file.write_text("store: postgres://ginnel@127.0.0.1:1/tunnels\n")

    code, found = doctor("--config", file)

    (finding,) = found["database"]
    assert (code, finding["severity"]) == (1, "problem")
    assert "127.0.0.1:1/tunnels: " in finding["message"]


def test_ports_of_a_service_that_runs_in_memory_are_its_own(tmp_path: Path) -> None:
    with ginnel.Service() as service:
        port = service.url.rpartition(":")[2]
        assert service.agent_addr
        file = tmp_path / "ginnel.yml"
        file.write_text(f"port: {port}\nadmin_addr: 127.0.0.1:{service.agent_addr.split(':')[1]}\n")

        code, found = doctor("--config", file)

    assert code == 0
    assert [finding["severity"] for finding in found["port"]] == ["ok", "ok"]
    assert "admin_addr" in found["port"][1]["message"]


def test_a_log_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    code, found = doctor("--config", configured(tmp_path, f"log_file: {tmp_path}/no/log"))

    assert code == 1
    assert "log_file: cannot write the log" in found["configuration"][0]["message"]
