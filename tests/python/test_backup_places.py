"""Databases that take the place of others: their logs, who uses them, and whose they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_backup import command, filled, serving

NOBODY = 65534


def killed(path: Path) -> tuple[str, set[str]]:
    """A service that was killed: its key, and what it stored last, in its log alone."""
    key, _ = filled(path, 1)
    with serving(path, key=key) as (_, client):
        later = {client.ip_policies.create().id for _ in range(3)}
    assert Path(f"{path}-wal").stat().st_size
    return key, later


def stored(path: Path, key: str) -> set[str]:
    with serving(path, key=key) as (_, client):
        return {policy.id for policy in client.ip_policies.list()}


def test_a_log_that_was_left_is_no_part_of_what_is_restored(tmp_path: Path) -> None:
    path, copy = tmp_path / "ginnel.db", tmp_path / "copy.db"
    key, made = filled(path)
    assert command("backup", "--path", path, copy).returncode == 0
    with serving(path, key=key) as (_, client):
        client.ip_policies.create()
    path.unlink()

    done = command("restore", copy, "--path", path)

    assert (done.returncode, done.stderr) == (0, "")
    assert stored(path, key) == made
    (log,) = tmp_path.glob("ginnel.db-replaced-*")
    assert log.name.endswith("-wal")
    assert f"a log that was there without its database is now {log}" in done.stdout


def test_a_log_that_was_left_is_no_part_of_a_copy(tmp_path: Path) -> None:
    path, other = tmp_path / "ginnel.db", tmp_path / "other.db"
    key, made = filled(path)
    killed(other)

    done = command("backup", "--path", path, other, "--force")

    assert (done.returncode, done.stderr) == (0, "")
    assert stored(other, key) == made
    assert not list(tmp_path.glob("*replaced*"))


def test_a_database_in_use_is_never_replaced_by_a_copy(tmp_path: Path) -> None:
    path, other = tmp_path / "ginnel.db", tmp_path / "other.db"
    filled(other)
    with serving(path) as (_, client):
        options = ("--url", client.base_url, "--api-key-file", tmp_path / "key")
        (tmp_path / "key").write_text(client.api_keys.create().token or "")
        for source in (("--path", other), options):
            refused = command("backup", *source, path, "--force")
            assert refused.returncode == 4, refused.stderr
            assert "is in use by another process" in refused.stderr

        assert client.ip_policies.create(), "changes are stored"
    assert not list(tmp_path.glob("*.new*"))


@pytest.mark.parametrize("name", ["ginnel.db", "symbolic", "hard"])
def test_what_is_copied_is_not_replaced_by_its_copy(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ginnel.db"
    key, made = filled(path)
    if name == "symbolic":
        (tmp_path / name).symlink_to(path)
    if name == "hard":
        (tmp_path / name).hardlink_to(path)
    before = path.read_bytes()

    lines: list[list[str | Path]] = [
        ["backup", "--path", path, tmp_path / name, "--force"],
        ["restore", path, "--path", tmp_path / name, "--force"],
        ["store", "copy", "--from", path, "--to", tmp_path / name],
    ]
    for line in lines:
        refused = command(*line)
        assert refused.returncode == 4
        assert "is the source of the copy; choose another file" in refused.stderr
    assert path.read_bytes() == before
    if name != "hard":
        assert stored(path, key) == made


def test_a_file_without_its_log_is_not_backed_up(tmp_path: Path) -> None:
    path, alone = tmp_path / "ginnel.db", tmp_path / "alone.db"
    with serving(path) as (_, client):
        client.ip_policies.create()
        shutil.copyfile(path, alone)

    refused = command("backup", "--path", alone, tmp_path / "copy.db")

    assert refused.returncode == 4
    assert "alone.db-wal, which is missing" in refused.stderr
    assert {file.name for file in tmp_path.iterdir()} & {"copy.db", "alone.db-wal"} == set()
    assert "which is missing" in command("serve", "--path", alone).stderr


def test_a_copy_goes_to_a_folder_that_is_there(tmp_path: Path) -> None:
    filled(tmp_path / "ginnel.db")

    refused = command("backup", "--path", tmp_path / "ginnel.db", tmp_path / "no" / "copy.db")

    assert refused.stderr == f"ginnel: {tmp_path}/no/copy.db: the folder does not exist\n"


# Files of other users.


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder of another user, which that one can reach."""
    if os.geteuid() != 0:
        pytest.skip("root alone makes files of other users")
    folder = Path(tempfile.mkdtemp(prefix="ginnel-test-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def owner(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, found.st_mode & 0o777


def test_what_root_restores_is_for_the_user_of_the_service(shared: Path, tmp_path: Path) -> None:
    filled(tmp_path / "ginnel.db")
    command("backup", "--path", tmp_path / "ginnel.db", tmp_path / "copy.db")
    path = shared / "ginnel.db"

    done = command("restore", tmp_path / "copy.db", "--path", path)

    assert done.returncode == 0
    assert owner(path) == (NOBODY, NOBODY, 0o600)
    assert owner(shared / "ginnel.db-lock")[:2] == (NOBODY, NOBODY)
    os.chown(shared, 0, 0)
    path.chmod(0o640)
    done = command("restore", tmp_path / "copy.db", "--path", path, "--force")
    assert done.returncode == 0
    assert owner(path) == (NOBODY, NOBODY, 0o640)


def test_a_lock_that_cannot_be_opened_is_named(shared: Path) -> None:
    lock = shared / "ginnel.db-lock"
    lock.touch(mode=0o600)
    # Another user may not be able to read the interpreter's files, so all are read before.
    code = f"""if True:
        import os, ginnel
        ginnel.Service().stop()
        os.setuid({NOBODY})
        ginnel.Service({str(shared / "ginnel.db")!r})
    """

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert "ServiceStoreError" in done.stderr
    assert f"{lock}: Permission denied" in done.stderr
