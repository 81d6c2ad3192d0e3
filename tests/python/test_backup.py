"""Copies of a database that is in use, and the way back from them."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ginnel

STORES = Path(__file__).parents[1] / "data" / "stores"


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "ginnel", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@contextlib.contextmanager
def serving(
    path: Path, *options: str | Path, key: str | None = None
) -> Iterator[tuple[subprocess.Popen[str], ginnel.RemoteClient]]:
    line = [sys.executable, "-m", "ginnel", "serve", "--json", "--path", path, *options]
    process = subprocess.Popen(
        [str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        key = key or told["api_key"]
        with ginnel.RemoteClient(key, base_url=told["url"], max_retries=0) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def policies(path: Path) -> set[str]:
    """The IP policies in a file that is a database by itself."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {row[0] for row in database.execute("SELECT id FROM resources WHERE kind = 'ipp'")}


def filled(path: Path, number: int = 3) -> tuple[str, set[str]]:
    """A database that was closed: its key and its policies."""
    with ginnel.Service(path) as service, service.client() as client:
        made = {client.ip_policies.create(metadata="m" * 500).id for _ in range(number)}
        assert service.api_key
        return service.api_key, made


def test_a_copy_holds_what_was_acknowledged_before_it_began(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    over = threading.Event()

    def write(client: ginnel.RemoteClient) -> None:
        while not over.is_set():
            acknowledged.add(client.ip_policies.create().id)

    with serving(tmp_path / "ginnel.db") as (_, client):
        writers = [threading.Thread(target=write, args=(client,)) for _ in range(4)]
        for writer in writers:
            writer.start()
        for turn in range(5):
            time.sleep(0.2)
            before = set(acknowledged)

            done = command("backup", "--path", tmp_path / "ginnel.db", tmp_path / f"{turn}.db")

            assert (done.returncode, done.stderr) == (0, "")
            assert before
            assert before <= policies(tmp_path / f"{turn}.db")
        over.set()
        for writer in writers:
            writer.join()
        assert not list(tmp_path.glob("*.new*"))


def test_a_copy_is_for_its_owner_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    _, made = filled(tmp_path / "ginnel.db")
    copy = tmp_path / "copy.db"
    copy.write_text("something else")
    arguments = ("backup", "--path", tmp_path / "ginnel.db", copy)

    refused = command(*arguments)
    assert refused.returncode == 4
    assert "exists already; use --force" in refused.stderr
    assert copy.read_text() == "something else"

    done = command(*arguments, "--force", "--json")
    report = json.loads(done.stdout)
    assert policies(copy) == made
    assert copy.stat().st_mode & 0o777 == 0o600
    assert report["bytes"] == copy.stat().st_size
    assert report["rows"]["audit_events"] == len(made)
    assert {file.name for file in tmp_path.iterdir() if "copy" in file.name} == {"copy.db"}


@pytest.mark.parametrize("problem", ["missing", "text", "damaged"])
def test_what_is_no_database_is_not_copied(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "ginnel.db"
    if problem == "text":
        path.write_text("no database at all, but long enough to be one\n" * 20)
    if problem == "damaged":
        filled(path, 50)
        content = bytearray(path.read_bytes())
        content[4096 * 2 : 4096 * 3] = b"\xa5" * 4096
        path.write_bytes(content)

    done = command("backup", "--path", path, tmp_path / "copy.db")

    assert done.returncode == 4
    assert "ginnel.db" in done.stderr or "damaged" in done.stderr
    assert not [file for file in tmp_path.iterdir() if "copy" in file.name]


def test_a_killed_backup_leaves_no_half_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "ginnel.db", tmp_path / "copy.db"
    _, made = filled(path, 200)
    line = [sys.executable, "-m", "ginnel", "backup", "--force", "--path", str(path), str(copy)]
    began = time.monotonic()
    subprocess.run(line, check=True, capture_output=True)
    took = time.monotonic() - began
    for _ in range(15):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.3, 1.1) * took)
        process.kill()
        process.wait()
        assert policies(copy) == made
    assert command(*line[3:]).returncode == 0
    assert {file.name for file in tmp_path.iterdir() if "copy" in file.name} == {"copy.db"}


def test_a_copy_is_restored(tmp_path: Path) -> None:
    path, copy = tmp_path / "ginnel.db", tmp_path / "copy.db"
    with serving(path) as (_, client):
        key = client.api_keys.create().token or ""
        kept = client.ip_policies.create().id
        assert command("backup", "--path", path, copy).returncode == 0
        later = client.ip_policies.create().id

        in_use = command("restore", copy, "--path", path, "--force")
        assert (in_use.returncode, policies(copy)) == (4, {kept})
        assert "is in use by another process; stop the service first" in in_use.stderr
    # The service was killed, so that its last changes are in the log alone.
    refused = command("restore", copy, "--path", path)
    assert refused.returncode == 4
    assert "exists already; use --force" in refused.stderr

    done = command("restore", copy, "--path", path, "--force", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    with serving(path, key=key) as (_, client):
        assert [policy.id for policy in client.ip_policies.list()] == [kept]
    replaced = Path(json.loads(done.stdout)["replaced"])
    with serving(replaced, key=key) as (_, client):
        assert {policy.id for policy in client.ip_policies.list()} == {kept, later}


def test_a_copy_is_restored_where_there_is_nothing(tmp_path: Path) -> None:
    key, made = filled(tmp_path / "ginnel.db")
    command("backup", "--path", tmp_path / "ginnel.db", tmp_path / "copy.db")
    elsewhere = tmp_path / "new" / "ginnel.db"
    elsewhere.parent.mkdir()

    done = command("restore", tmp_path / "copy.db", "--path", elsewhere)

    assert done.returncode == 0
    assert elsewhere.stat().st_mode & 0o777 == 0o600
    with serving(elsewhere, key=key) as (_, client):
        assert {policy.id for policy in client.ip_policies.list()} == made


def test_a_damaged_copy_is_not_restored(tmp_path: Path) -> None:
    path, copy = tmp_path / "ginnel.db", tmp_path / "copy.db"
    key, made = filled(path, 50)
    command("backup", "--path", path, copy)
    content = bytearray(copy.read_bytes())
    content[4096 * 2 : 4096 * 3] = b"\xa5" * 4096
    copy.write_bytes(content)

    done = command("restore", copy, "--path", path, "--force")

    assert done.returncode == 4
    assert "is damaged" in done.stderr
    with serving(path, key=key) as (_, client):
        assert {policy.id for policy in client.ip_policies.list()} == made
    assert not list(tmp_path.glob("*replaced*"))


# A file that was copied without its log.


def test_a_file_that_was_not_closed_needs_its_log(tmp_path: Path) -> None:
    path, alone = tmp_path / "ginnel.db", tmp_path / "alone" / "ginnel.db"
    alone.parent.mkdir()
    with serving(path) as (_, client):
        key = client.api_keys.create().token or ""
        client.ip_policies.create()
        shutil.copyfile(path, alone)

    for _ in range(2):
        refused = command("serve", "--path", alone)
        assert refused.returncode == 4
        assert "ginnel.db-wal, which is missing" in refused.stderr
        assert "--force-open" in refused.stderr
        assert refused.stdout == ""
        left = sorted(file.name for file in alone.parent.iterdir())
        assert left == ["ginnel.db", "ginnel.db-lock"]
    lines: list[list[str | Path]] = [
        ["admin-key", "new", "--path", alone],
        ["restore", alone, "--path", path],
    ]
    for line in lines:
        assert "which is missing" in command(*line).stderr

    shutil.copyfile(f"{path}-wal", f"{alone}-wal")
    with serving(alone, key=key) as (_, client):
        assert len(client.ip_policies.list().to_list()) == 1


def test_a_file_without_its_log_is_opened_if_that_is_asked_for(tmp_path: Path) -> None:
    path, alone = tmp_path / "ginnel.db", tmp_path / "alone.db"
    key, made = filled(path)
    with serving(path, key=key) as (_, client):
        client.ip_policies.create()
        shutil.copyfile(path, alone)

    with serving(alone, "--force-open", key=key) as (process, client):
        assert {policy.id for policy in client.ip_policies.list()} == made
        process.terminate()
        assert process.wait(timeout=20) == 0

    with serving(alone, key=key) as (_, client):
        assert {policy.id for policy in client.ip_policies.list()} == made


def test_a_killed_service_starts_again_whenever_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    key, _ = filled(path)
    for turn in range(6):
        with serving(path, key=key) as (process, client):
            for _ in range(turn // 2):
                client.ip_policies.create()
            process.kill()
            process.wait()
    with ginnel.Service(path):
        pass
    # Closed: the file alone is whole.
    shutil.copyfile(path, tmp_path / "copied.db")
    with serving(tmp_path / "copied.db", key=key) as (_, client):
        assert len(client.ip_policies.list().to_list()) == 6 + 3


# Backups from time to time.


def test_backups_are_made_and_old_ones_removed(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "ginnel-notes.db").write_text("not a backup")
    options = ("--backup-to", folder, "--backup-every", "1s", "--backup-keep", "2")
    with serving(tmp_path / "ginnel.db", *options) as (_, client):
        kept = client.ip_policies.create().id
        seen: set[str] = set()
        deadline = time.monotonic() + 60
        while len(seen) < 5 and time.monotonic() < deadline:
            names = sorted(file.name for file in folder.glob("ginnel-2*.db"))
            assert len(names) <= 3, "one more while the new one is verified"
            seen.update(names)
            time.sleep(0.05)
        names = sorted(file.name for file in folder.glob("ginnel-2*.db"))

    assert len(seen) >= 5
    # There may be a later one than was seen.
    assert names[-1] >= max(seen)
    assert policies(folder / names[-1]) == {kept}
    assert (folder / "ginnel-notes.db").exists()


def test_a_backup_that_fails_is_reported_and_removes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    options = ("--backup-to", folder, "--backup-every", "1s", "--backup-keep", "1")
    with serving(tmp_path / "ginnel.db", *options) as (process, client):
        deadline = time.monotonic() + 30
        while not list(folder.glob("*.db")) and time.monotonic() < deadline:
            time.sleep(0.05)
        folder.rename(tmp_path / "moved")
        assert process.stderr
        line = process.stderr.readline()
        assert client.ip_policies.create(), "the service goes on"

    assert "no backup was made" in line
    assert str(folder) in line
    assert len(list((tmp_path / "moved").glob("*.db"))) == 1


def test_backups_need_a_folder(tmp_path: Path) -> None:
    done = command("serve", "--backup-to", tmp_path / "none")
    assert done.returncode == 2
    assert "backups go to a folder that exists" in done.stderr


# A newer version changes the tables.


def test_a_migration_may_be_killed_at_any_point(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "ginnel", "serve", "--json", "--path"]
    outcomes = set()
    for turn in range(25):
        folder = tmp_path / str(turn)
        folder.mkdir()
        path = folder / "ginnel.db"
        shutil.copyfile(STORES / "schema-1.sqlite", path)
        process = subprocess.Popen(
            [*line, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        while not (folder / "ginnel.db-lock").exists():
            assert process.poll() is None
        time.sleep(random.uniform(0, 0.03))
        process.kill()
        process.communicate()

        # A copy: closing the last connection would take the log away.
        looked_at = tmp_path / f"{turn}.db"
        shutil.copyfile(path, looked_at)
        if Path(f"{path}-wal").exists():
            shutil.copyfile(f"{path}-wal", f"{looked_at}-wal")
        with contextlib.closing(sqlite3.connect(looked_at)) as database:
            (schema,) = database.execute("PRAGMA user_version").fetchone()
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema")}
        assert ("audit_events" in tables) == ("audit_terms" in tables) == (schema > 1)
        outcomes.add(schema)
        with ginnel.Service(path):
            pass
        (backup, *_) = sorted(folder.glob("ginnel.db-schema-1-*.backup"))
        assert len(policies(backup)) == 1
    # Nothing in between: all steps are one change.
    assert outcomes <= {1, 4}
