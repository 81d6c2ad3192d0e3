"""Copies of a database that a running service makes and sends to another process."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest

import ginnel
from processes import Command, wait_until
from test_backup import policies

WRITERS = 64


def backup(
    url: str, out: Path, *options: str | Path, key: str = "", limit: int | None = None
) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "ginnel", "backup", "--url", url, out, *options]
    bound = None
    if limit is not None:
        bound = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
    return subprocess.run(
        [str(word) for word in line],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"GINNEL_API_KEY": key},
        preexec_fn=bound,
    )


@dataclass
class Running:
    command: Command
    client: ginnel.RemoteClient
    key: str

    @property
    def url(self) -> str:
        return self.client.base_url


@contextlib.contextmanager
def serving(path: Path, key: str | None = None) -> Iterator[Running]:
    with Command("serve", "--path", str(path)) as command:
        told = command.line()
        key = key or str(told["api_key"])
        with ginnel.RemoteClient(key, base_url=told["url"], max_retries=0) as client:
            yield Running(command, client, key)


def large(path: Path) -> str:
    """A closed database of 32 MiB, which no buffer on the way can hold; its admin key."""
    with ginnel.Service(path) as service:
        key = service.api_key
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        row = "INSERT INTO resources VALUES ('aaa', ?, hex(randomblob(262144)))"
        database.executemany(row, [(f"aaa_{number}",) for number in range(64)])
    assert key
    return key


class Relay:
    """Passes so many bytes of a response on, then waits for `go_on`, and passes on the rest."""

    def __init__(self, url: str, hold_after: int) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.target = (host, int(port))
        self.hold_after, self.is_cut = hold_after, False
        self.is_held, self.go_on = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.thread.join(60)
        self.listener.close()

    def run(self) -> None:
        client, _ = self.listener.accept()
        with client, socket.create_connection(self.target) as server:
            server.sendall(client.recv(65536))
            passed = 0
            with contextlib.suppress(OSError):
                while data := server.recv(16384):
                    client.sendall(data)
                    passed += len(data)
                    if passed > self.hold_after and not self.is_held.is_set():
                        self.is_held.set()
                        assert self.go_on.wait(60)
                    if self.is_cut:
                        return


def started(
    work: Callable[[], subprocess.CompletedProcess[str]],
) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Begins it; gives what waits for its result."""
    results: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()

    def result() -> subprocess.CompletedProcess[str]:
        thread.join(120)
        return results[0]

    return result


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_copy_holds_what_64_writers_were_acknowledged_before(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    over = threading.Event()

    def write(client: ginnel.RemoteClient) -> None:
        while not over.is_set():
            acknowledged.add(client.ip_policies.create().id)

    with serving(tmp_path / "ginnel.db") as service:
        writers = [threading.Thread(target=write, args=(service.client,)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            for turn in range(3):
                wait_until(lambda: len(acknowledged) > (turn + 1) * WRITERS, "writes")  # noqa: B023
                before = set(acknowledged)
                out = tmp_path / f"{turn}.db"

                done = backup(service.url, out, "--json", key=service.key)

                assert (done.returncode, done.stderr) == (0, "")
                assert before <= policies(out)
        finally:
            over.set()
            for writer in writers:
                writer.join()
    assert not list(tmp_path.glob("*.new*"))
    assert not list(tmp_path.glob("*download*"))


def test_a_copy_is_for_its_owner_and_restores_the_service(tmp_path: Path) -> None:
    out = tmp_path / "copy.db"
    with serving(tmp_path / "ginnel.db") as service:
        kept = service.client.ip_policies.create().id
        first = backup(service.url, out, "--json", key=service.key)
        assert (first.returncode, first.stderr) == (0, "")
        report = json.loads(first.stdout)
        assert report["bytes"] == out.stat().st_size
        assert report["path"] == str(out)
        assert out.stat().st_mode & 0o777 == 0o600

        later = service.client.ip_policies.create().id
        refused = backup(service.url, out, key=service.key)
        assert refused.returncode == 4
        assert "copy.db: exists already; use --force to replace it" in refused.stderr
        assert policies(out) == {kept}
        assert backup(service.url, out, "--force", key=service.key).returncode == 0
        assert policies(out) == {kept, later}

        def events() -> list[tuple[str | None, bool | None]]:
            found = service.client.audit_events.list(operation="database.backup")
            return [(event.outcome, event.admin) for event in found]

        wait_until(lambda: events() == [("success", True)] * 2, "the audit trail")

    with serving(out, service.key) as again:
        assert {policy.id for policy in again.client.ip_policies.list()} == {kept, later}


def test_only_an_admin_gets_a_copy(tmp_path: Path) -> None:
    out = tmp_path / "copy.db"
    with serving(tmp_path / "ginnel.db") as service:
        bot = service.client.bot_users.create(name="ci")
        other = service.client.api_keys.create(owner_id=bot.id).token or ""

        unknown = backup(service.url, out, key="x" * 48)
        not_admin = backup(service.url, out, key=other)

        assert (unknown.returncode, not_admin.returncode) == (5, 5)
        assert "only an admin may back up the database" in not_admin.stderr
        assert "9731" in not_admin.stderr
        refused = service.client.audit_events.list(operation="database.backup")
        wait_until(lambda: "refused" in [event.outcome for event in refused], "the audit trail")
        with pytest.raises(ginnel.APIStatusError) as error:
            service.client.request("GET", "/database/backup")
        assert error.value.status_code == 405
    assert not [name for name in names(tmp_path) if "copy" in name or "download" in name]


@pytest.mark.parametrize("end", ["kill", "cut"])
def test_a_service_that_ends_in_the_middle_leaves_no_file(tmp_path: Path, end: str) -> None:
    path, out = tmp_path / "ginnel.db", tmp_path / "copy.db"
    with serving(path, large(path)) as service, Relay(service.url, hold_after=1 << 20) as relay:
        result = started(lambda: backup(relay.url, out, key=service.key))
        assert relay.is_held.wait(60)
        wait_until(out.with_name("copy.db.new").exists, "the file that it fills")
        assert out.with_name("copy.db.new").stat().st_mode & 0o777 == 0o600
        another = backup(service.url, tmp_path / "other.db", key=service.key)
        assert another.returncode == 7
        assert "another copy of the database is under way" in another.stderr
        assert "ginnel.db-download" not in names(tmp_path), "it has no name while it is sent"

        if end == "kill":
            service.command.process.kill()
            service.command.process.wait()
        else:
            relay.is_cut = True
        relay.go_on.set()

        done = result()
        assert done.returncode == 9
        assert "copy.db" not in done.stdout
        assert not [name for name in names(tmp_path) if "copy" in name or "other" in name]


def test_a_killed_command_leaves_no_half_copy(tmp_path: Path) -> None:
    path, out = tmp_path / "ginnel.db", tmp_path / "copy.db"
    with serving(path, large(path)) as service, Relay(service.url, hold_after=1 << 20) as relay:
        line = [sys.executable, "-m", "ginnel", "backup", "--url", relay.url, str(out)]
        environment = os.environ | {"GINNEL_API_KEY": service.key}
        process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL)
        assert relay.is_held.wait(60)
        process.kill()
        process.wait()
        relay.go_on.set()
        assert not out.exists()

        def again() -> bool:
            return backup(service.url, out, key=service.key).returncode == 0

        wait_until(again, "the copy before it to be ended")
        assert not out.with_name("copy.db.new").exists()


def test_what_is_wrong_here_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with serving(path, large(path)) as service:
        missing = backup(service.url, tmp_path / "none" / "copy.db", key=service.key)
        full = backup(service.url, tmp_path / "copy.db", key=service.key, limit=1 << 20)

        assert missing.returncode == 4
        assert "none/copy.db: the folder does not exist" in missing.stderr
        assert full.returncode == 4
        assert "copy.db: File too large" in full.stderr
        assert not [name for name in names(tmp_path) if "copy" in name]
        assert backup(service.url, tmp_path / "copy.db", key=service.key).returncode == 0
    assert backup(service.url, tmp_path / "late.db", key=service.key).returncode == 9
    assert not [name for name in names(tmp_path) if "late" in name]


def test_what_is_sent_must_be_a_database(tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "4096")
            self.end_headers()
            self.wfile.write(b"no database at all\n".ljust(4096))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        done = backup(f"http://127.0.0.1:{server.server_port}", tmp_path / "copy.db", key="k")
        server.shutdown()

    assert done.returncode == 4
    assert "is not a database" in done.stderr
    assert names(tmp_path) == set()


def test_a_copy_of_a_database_in_memory(tmp_path: Path) -> None:
    with ginnel.Service() as service, service.client() as client:
        kept = client.ip_policies.create().id

        done = backup(service.url, tmp_path / "copy.db", key=service.api_key or "")

        assert (done.returncode, done.stderr) == (0, "")
        assert policies(tmp_path / "copy.db") == {kept}


def test_a_service_on_postgresql_names_pg_dump(tmp_path: Path, store: str) -> None:
    with ginnel.Service(store=store) as service:
        done = backup(service.url, tmp_path / "copy.db", key=service.api_key or "")

    assert done.returncode == 7
    assert "this service keeps its data on PostgreSQL: back it up with pg_dump" in done.stderr
    assert names(tmp_path) == set()
