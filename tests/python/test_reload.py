"""A running service reads its configuration again."""

from __future__ import annotations

import http.client
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import ginnel
from processes import Command, wait_until

HOST = "tls.example.test"


class Running:
    """`ginnel serve` with a file that can be written anew."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "ginnel.yml"
        self.path.write_text(text)
        self.command = Command("serve", "--config", str(self.path))
        self.said: dict[str, Any] = self.command.line()
        self.client = ginnel.RemoteClient(self.said["api_key"], base_url=self.said["url"])

    def complaints(self, part: str) -> int:
        return sum(part in line for line in self.command.complaints)

    def replace(self, text: str) -> None:
        """Moves a new file into its place, so that no half of it is read."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.path)

    def reload(self, text: str, expected: str) -> None:
        """Writes the file, sends SIGHUP and waits for a line."""
        self.replace(text)
        before = self.complaints(expected)
        self.command.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.complaints(expected) > before, expected)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    served = Running(tmp_path, "rate_limit: 1000/60s\n")
    with served.command:
        yield served


def test_sighup_applies_what_can_change_and_names_what_cannot(running: Running) -> None:
    text = "rate_limit: 1/60s\nbase_domain: example.test\n"
    running.reload(text, "reloaded: rate_limit: 1000/60s is now 1/60s")
    wait_until(lambda: running.complaints("not before a restart: base_domain: unset is now"), "it")

    running.client.api_keys.list().first()
    with pytest.raises(ginnel.RateLimitError):
        running.client.with_options(max_retries=0).api_keys.list().first()
    assert running.said["url"] == running.client.base_url


def test_a_bad_file_changes_nothing_and_says_why(running: Running) -> None:
    text = "rate_limit: 1/60s\nhtp_port: 1\nport: x\n"

    running.reload(text, "not reloaded: ")

    wait_until(lambda: running.complaints("not reloaded: ") == 2, "both problems")
    assert running.complaints(':2:1: unknown key "htp_port"; did you mean "http_port"?') == 1
    assert running.complaints("reloaded: rate_limit") == 0
    for _ in range(3):
        assert running.client.api_keys.list().first()


@pytest.mark.parametrize("text", ["", "# to be written\n"])
def test_a_file_that_has_become_empty_changes_nothing(running: Running, text: str) -> None:
    running.reload(text, f"not reloaded: {running.path} is empty")

    with pytest.raises(ginnel.BadRequestError, match=r"ginnel\.yml is empty"):
        running.client.configuration.reload()
    assert running.complaints("reloaded: rate_limit") == 0
    running.reload("rate_limit: 900/60s\n", "reloaded: rate_limit: 1000/60s is now 900/60s")


def test_a_file_that_was_empty_at_the_start_may_be_empty_again(tmp_path: Path) -> None:
    served = Running(tmp_path, "")
    with served.command:
        served.reload("rate_limit: 900/60s\n", "reloaded: rate_limit: unset is now 900/60s")

        served.reload("", "reloaded: rate_limit: 900/60s is now unset")


def test_sighup_opens_log_files_again_and_reloads(tmp_path: Path) -> None:
    log, moved = tmp_path / "ginnel.log", tmp_path / "ginnel.log.1"
    settings = f"log_file: {log}\nlog_level: debug\n"
    served = Running(tmp_path, settings)
    with served.command:
        served.client.api_keys.list().first()
        wait_until(log.read_text, "a line")
        log.rename(moved)

        served.reload(settings + "rate_limit: 900/60s\n", "reloaded: rate_limit: ")
        wait_until(log.exists, "a new log file")
        log.unlink()
        served.reload(settings + "grace: x\n", "not reloaded: ")

        wait_until(log.exists, "a new log file although nothing was reloaded")


def test_the_audit_trail_follows_the_trusted_proxies(running: Running) -> None:
    client = running.client.with_options(headers={"X-Forwarded-For": "192.0.2.7"})
    client.api_keys.create(description="before")

    running.reload("trusted_proxies: [127.0.0.1]\nrate_limit: 1000/60s\n", "reloaded: trusted_pr")
    client.api_keys.create(description="after")

    addresses = [event.address for event in running.client.audit_events.list()]
    assert addresses == ["192.0.2.7", "127.0.0.1"]


def test_the_operation_reloads_and_says_what_it_did(running: Running) -> None:
    running.path.write_text("rate_limit: 900/60s\nport: 1\ngrace: 5s\n")

    done = running.client.configuration.reload()
    again = running.client.configuration.reload()

    assert done.changed == ["rate_limit: 1000/60s is now 900/60s", "grace: 30s is now 5s"]
    assert done.restart_needed == ["port: 0 is now 1"]
    assert (again.changed, again.restart_needed) == ([], ["port: 0 is now 1"])
    running.path.write_text("rate_limit: none\n")
    with pytest.raises(ginnel.BadRequestError, match=r"yml:1:13: rate_limit: 'none' is not"):
        running.client.configuration.reload()


def test_the_command_reloads_with_the_admin_key(running: Running) -> None:
    running.path.write_text("rate_limit: 900/60s\n")
    environment = {
        "GINNEL_API_KEY": running.said["api_key"],
        "GINNEL_BASE_URL": running.said["url"],
    }

    done = subprocess.run(
        [sys.executable, "-m", "ginnel", "reload", "--output", "json"],
        capture_output=True,
        text=True,
        timeout=20,
        env=environment,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "rate_limit: 1000/60s is now 900/60s" in done.stdout


def test_only_admins_reload(running: Running) -> None:
    bot = running.client.bot_users.create(name="deploy")
    key = running.client.api_keys.create(owner_id=bot.id)
    assert key.token is not None

    with pytest.raises(ginnel.PermissionDeniedError):
        ginnel.RemoteClient(key.token, base_url=running.said["url"]).configuration.reload()


def test_a_service_of_python_has_nothing_to_reload() -> None:
    with ginnel.Service() as service, pytest.raises(ginnel.BadRequestError, match="reads no conf"):
        service.client().configuration.reload()


def test_signals_and_calls_at_once_during_traffic(running: Running) -> None:
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(20):
                running.client.configuration.reload()
                running.client.api_keys.list().first()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        running.replace(f"rate_limit: {5000 + number}/60s\n")
        running.command.process.send_signal(signal.SIGHUP)
    for thread in threads:
        thread.join(60)

    assert failures == []
    last = "is now 5199/60s"
    wait_until(lambda: "5199/60s" in "".join(running.command.complaints[-3:]), last)
    assert running.command.process.poll() is None


def write_certificate(authority: trustme.CA, folder: Path) -> None:
    certificate = authority.issue_cert(HOST)
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    (folder / "cert.pem").write_bytes(chain)
    (folder / "key.pem").write_bytes(certificate.private_key_pem.bytes())


def connected(context: ssl.SSLContext, port: int) -> tuple[http.client.HTTPConnection, bytes]:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    stream = context.wrap_socket(plain, server_hostname=HOST)
    connection = http.client.HTTPConnection(HOST)
    connection.sock = stream
    shown = stream.getpeercert(binary_form=True)
    assert shown is not None
    return connection, shown


def asked(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/", headers={"Host": HOST})
    response = connection.getresponse()
    response.read()
    return response.status


def test_a_certificate_is_swapped_and_no_connection_dropped(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    write_certificate(authority, tmp_path)
    names = [f"{name}: {tmp_path / file}" for name, file in FILES.items()]
    served = Running(tmp_path, "\n".join([*names, ""]))
    with served.command:
        port = int(served.said["https_url"].rpartition(":")[2])
        before = [connected(context, port) for _ in range(200)]
        statuses = {asked(connection) for connection, _ in before}

        write_certificate(authority, tmp_path)
        done = served.client.configuration.reload()

        lines = [f"certificate: what {tmp_path / 'cert.pem'} holds is new"]
        assert (done.changed, done.restart_needed) == (lines, [])
        assert {asked(connection) for connection, _ in before} == statuses
        fresh, shown = connected(context, port)
        assert {certificate for _, certificate in before} != {shown}
        assert asked(fresh) in statuses

        (tmp_path / "key.pem").write_text("no key")
        with pytest.raises(ginnel.BadRequestError, match=r"key\.pem"):
            served.client.configuration.reload()
        last, unchanged = connected(context, port)
        assert unchanged == shown
        for connection in [*(connection for connection, _ in before), fresh, last]:
            connection.close()


FILES = {"certificate": "cert.pem", "certificate_key": "key.pem"}


def test_the_log_level_follows_the_file(tmp_path: Path) -> None:
    log = tmp_path / "ginnel.log"
    served = Running(tmp_path, f"log_file: {log}\nlog_level: error\n")
    with served.command:
        served.client.api_keys.list().first()

        served.reload(f"log_file: {log}\nlog_level: debug\n", "log_level: error is now debug")
        served.client.api_keys.list().first()
        wait_until(lambda: "lvl=debug" in log.read_text() or "DEBUG" in log.read_text(), "a line")
        served.reload(f"log_file: {log}\nlog_level: off\n", "log_level: debug is now off")
        before = log.read_text()
        served.client.api_keys.list().first()

        assert log.read_text() == before


def test_a_log_that_nobody_asked_for_begins_at_a_reload(running: Running) -> None:
    running.reload("rate_limit: 1000/60s\nlog_level: debug\n", "log_level: unset is now debug")

    running.client.api_keys.list().first()
    wait_until(lambda: running.complaints("DEBUG"), "a line")


def test_the_drain_delay_follows_the_file(tmp_path: Path) -> None:
    served = Running(tmp_path, "drain_delay: 1h\nadmin_addr: 127.0.0.1:0\n")
    with served.command:
        served.reload("drain_delay: 0s\nadmin_addr: 127.0.0.1:0\n", "drain_delay: 1h is now 0s")

        served.command.process.terminate()

        assert served.command.ended()[0] == 0


def test_a_shorter_time_for_audit_events_is_applied_at_once(running: Running) -> None:
    remote = running.client
    remote.ip_policies.create(description="office")
    assert remote.audit_events.list().first()

    running.reload("rate_limit: 1000/60s\naudit_retention: 1s\n", "audit_retention: 90d is now 1s")

    wait_until(lambda: not remote.audit_events.list(operation="ip_policies.create").first(), "it")


def test_a_reload_says_that_nothing_has_changed(running: Running) -> None:
    running.reload("rate_limit: 1000/60s\n", "reloaded: no setting has changed")


def test_a_reload_says_that_the_certificate_is_another_one(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"

    def issue() -> None:
        issued = trustme.CA().issue_cert("app.example.test")
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)

    issue()
    text = f"certificate: {chain}\ncertificate_key: {key}\n"
    served = Running(tmp_path, text)
    with served.command:
        issue()
        served.reload(text, f"reloaded: certificate: what {chain} holds is new")
        served.reload(text, "reloaded: no setting has changed")


def test_a_folder_is_no_configuration(running: Running) -> None:
    running.path.unlink()
    running.path.mkdir()
    running.command.process.send_signal(signal.SIGHUP)

    wait_until(lambda: running.complaints("is a directory") == 1, "the reason")
