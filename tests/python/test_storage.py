"""A running service whose storage fails: its answers are true, and it works again afterwards."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import ginnel

LOCKED, FULL, IO, DETACHED, DAMAGED, CLOSED = (
    f"ERR_NGROK_{number}" for number in (9720, 9721, 9722, 9724, 9725, 9727)
)
SERVE = [sys.executable, "-m", "ginnel", "serve", "--json", "--path"]


@contextlib.contextmanager
def serving(
    path: Path, key: str | None = None, options: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], ginnel.RemoteClient]]:
    """A service in a process of its own; the key is that of a database that is there already."""
    process = subprocess.Popen(
        [*SERVE, str(path), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


def wait_until(reached: Callable[[], bool]) -> None:
    """What is not reached in time fails the assertion that comes next."""
    deadline = time.monotonic() + 20
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.001)


def refusal(write: Callable[[], object]) -> ginnel.ServerError:
    with pytest.raises(ginnel.ServerError) as refused:
        write()
    return refused.value


def is_read_only(client: ginnel.RemoteClient, key: str) -> bool:
    """Whether the answers to reads say that writes are refused."""
    request = Request(f"{client.base_url}/api_keys", headers={"authorization": f"Bearer {key}"})
    with urlopen(request) as response:
        assert response.status == 200
        return bool(response.headers["ginnel-store"] == "read-only")


# What may happen to the files of a database: done to them, and undone where that is possible.


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("backup")
    shutil.copyfile(path, other)
    other.replace(path)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def delete_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def empty_log(path: Path) -> None:
    os.truncate(log_of(path), 0)


def cut_log(path: Path) -> None:
    os.truncate(log_of(path), 32 + 5 * (24 + 4096))


def overwrite_log(path: Path) -> None:
    size = log_of(path).stat().st_size
    with log_of(path).open("r+b") as log:
        log.write(bytes(size))


def cut_short(path: Path) -> None:
    os.truncate(path, 0)


CALAMITIES = [delete, replace, move_folder, delete_log, cut_short]


@pytest.mark.parametrize("calamity", CALAMITIES)
def test_nothing_is_acknowledged_that_cannot_be_found(
    tmp_path: Path, calamity: Callable[[Path], None]
) -> None:
    path = tmp_path / "data" / "ginnel.db"
    path.parent.mkdir()
    acknowledged: list[float] = []
    refused: list[str | None] = []
    over = threading.Event()

    def write(client: ginnel.RemoteClient) -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                client.ip_policies.create(description="x")
                acknowledged.append(began)
            except ginnel.ServerError as error:
                refused.append(error.error_code if error.status_code == 503 else str(error))

    with serving(path) as (process, client):
        writers = [threading.Thread(target=write, args=(client,)) for _ in range(8)]
        for writer in writers:
            writer.start()
        wait_until(lambda: len(acknowledged) >= 50)

        calamity(path)

        happened = time.monotonic()
        wait_until(lambda: len(refused) >= 50)
        over.set()
        for writer in writers:
            writer.join()
        assert not [began for began in acknowledged if began > happened]
        if calamity is not cut_short:
            assert set(refused) == {DETACHED}
            assert client.ip_policies.list().first(), "reads go on"
        assert process.poll() is None
        process.terminate()
        complaints = process.communicate(timeout=20)[1]
    # What SQLite says of a file that was cut short is no fault of the storage at times.
    assert "ginnel.db" in complaints or calamity is cut_short
    assert complaints.count("\n") <= 3, "said once, not for each write"


@pytest.mark.parametrize("calamity", [empty_log, cut_log, overwrite_log])
@pytest.mark.parametrize("writes_after", [0, 5])
def test_a_log_that_is_not_whole_never_reaches_the_file(
    tmp_path: Path, calamity: Callable[[Path], None], writes_after: int
) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service:
        key = service.api_key
        kept = service.client().ip_policies.create(description="in the file").id

    with serving(path, key) as (process, client):
        for _ in range(20):
            client.ip_policies.create(description="in the log")

        calamity(path)

        for _ in range(writes_after):
            refused = refusal(lambda: client.ip_policies.create(description="x" * 250))
            # The key of the request is read first, which may fail by itself in such a log.
            assert refused.error_code in (DETACHED, IO, DAMAGED)
        process.terminate()
        assert process.wait(timeout=20) == 0
    with serving(path, key) as (_, client):
        assert kept in [policy.id for policy in client.ip_policies.list()]


def test_a_log_that_another_program_moves_into_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with serving(path) as (_, client):
        stored = [client.ip_policies.create(description="x").id for _ in range(20)]
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            with pytest.raises(ginnel.NotFoundError):
                client.ip_policies.delete("ipp_nothing")
            stored += [client.ip_policies.create(description="x").id for _ in range(20)]
        assert sorted(stored) == sorted(policy.id for policy in client.ip_policies.list())


def test_the_log_is_moved_into_the_file_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with serving(path) as (_, client):
        before = path.stat().st_size
        for _ in range(2000):
            client.ip_policies.create(description="x" * 250)
            if path.stat().st_size > before:
                break
        assert path.stat().st_size > before


def test_a_stop_ends_the_wait_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    codes: list[str | None] = []
    with serving(path, options=("--grace", "2")) as (process, client):

        def write() -> None:
            try:
                client.ip_policies.create(description="x")
            except ginnel.ServerError as error:
                codes.append(error.error_code)

        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writers = [threading.Thread(target=write) for _ in range(6)]
            for writer in writers:
                writer.start()
                time.sleep(0.1)
            # Until the last one waits for the lock, which nothing shows.
            time.sleep(1)
            process.terminate()
            for writer in writers:
                writer.join()
            assert process.wait(timeout=20) == 0
    assert codes == [CLOSED] * 6


@pytest.mark.parametrize("name", [":memory:", "file:ginnel.db?mode=memory"])
def test_a_special_name_of_sqlite_is_refused(tmp_path: Path, name: str) -> None:
    ended = subprocess.run([*SERVE, name], cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2
    assert "leave out the path" in ended.stderr
    assert not list(tmp_path.iterdir())
    with pytest.raises(ginnel.ConfigError, match="leave out the path"):
        ginnel.Service(name)


def test_a_file_that_is_back_takes_writes_again(tmp_path: Path) -> None:
    folder, moved = tmp_path / "data", tmp_path / "moved"
    folder.mkdir()
    with serving(folder / "ginnel.db") as (process, client):
        key = client.api_keys.create().token or ""
        kept = client.ip_policies.create().id
        folder.rename(moved)

        lost = refusal(client.ip_policies.create)
        assert is_read_only(client, key)
        moved.rename(folder)
        again = client.ip_policies.create().id

        assert lost.error_code == DETACHED
        assert "the file of the database is gone" in str(lost)
        assert not is_read_only(client, key)
        assert {kept, again} <= {policy.id for policy in client.ip_policies.list()}
        process.terminate()
        complaints = process.communicate(timeout=20)[1].splitlines()
    assert str(folder / "ginnel.db") in complaints[0]
    assert complaints[1] == "ginnel: changes are stored again"


def test_an_embedded_service_tells_the_logger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ginnel.db"
    with (
        caplog.at_level(logging.ERROR, "ginnel"),
        ginnel.Service(path) as service,
        service.client().with_options(max_retries=0) as client,
    ):
        client.ip_policies.create()
        path.unlink()
        assert refusal(client.ip_policies.create).error_code == DETACHED
        wait_until(lambda: bool(caplog.messages))

    assert str(path) in caplog.text
    assert capfd.readouterr() == ("", "")


def test_many_readers_go_on_without_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with serving(path) as (_, client):
        client.ip_policies.create()
        path.unlink()
        refusal(client.ip_policies.create)
        failed: list[BaseException] = []

        def read() -> None:
            try:
                for _ in range(50):
                    client.ip_policies.list().first()
            except BaseException as problem:
                failed.append(problem)

        readers = [threading.Thread(target=read) for _ in range(16)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    assert failed == []


def test_a_lock_of_another_program_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with serving(path) as (_, client):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        # A change may wait behind another one that waits for the lock as well.
        patient = client.with_options(timeout=30)
        refused = refusal(lambda: patient.ip_policies.create(description="too long"))
        waited = time.monotonic() - began
        assert client.api_keys.list().first(), "reads do not wait"

        created: list[str] = []
        writer = threading.Thread(target=lambda: created.append(client.ip_policies.create().id))
        writer.start()
        time.sleep(1)
        assert not created
        other.execute("ROLLBACK")
        writer.join()
        other.close()
        found = [policy.id for policy in client.ip_policies.list()]

    assert (refused.status_code, refused.error_code, refused.retry_after) == (503, LOCKED, 5)
    assert "another program has locked the database" in str(refused)
    assert 4 < waited < 60
    assert found == created


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with serving(path) as (process, client):
        made = [client.ip_policies.create(metadata="m" * 4000).id for _ in range(20)]
        size = (tmp_path / "ginnel.db-wal").stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        refused = refusal(lambda: client.ip_policies.create(metadata="m" * 4000))
        assert {policy.id for policy in client.ip_policies.list()} == set(made)
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        made.append(client.ip_policies.create(metadata="m" * 4000).id)

        assert (refused.status_code, refused.error_code) == (503, IO)
        assert refused.retry_after
        assert {policy.id for policy in client.ip_policies.list()} == set(made)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("file systems can be mounted by root alone")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    with serving(small_disk / "ginnel.db") as (process, client):
        made = [client.ip_policies.create().id]
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

        refused = refusal(lambda: client.ip_policies.create(metadata="m" * 4000))
        ballast.unlink()
        made.append(client.ip_policies.create(metadata="m" * 4000).id)

        assert (refused.status_code, refused.error_code) == (503, FULL)
        assert refused.retry_after
        assert {policy.id for policy in client.ip_policies.list()} == set(made)
        assert process.poll() is None


# A table whose pages go round in a circle.


def looped(path: Path) -> None:
    """Has the first child of the interior pages of `resources` be their last one."""
    with sqlite3.connect(path) as database:
        root = database.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'resources'"
        ).fetchone()[0]
        size = database.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    with path.open("r+b") as file:
        page = (root - 1) * size
        file.seek(page)
        kind, _, cells = struct.unpack(">BHH", file.read(5))
        assert kind == 2, "an interior page of an index"
        assert cells > 1
        file.seek(page + 8)
        last = file.read(4)
        (first,) = struct.unpack(">H", file.read(2))
        # Cells of interior pages stand in order; the first of them has the smallest key.
        file.seek(page + first)
        file.write(last)


def filled(path: Path) -> str:
    with ginnel.Service(path) as service, service.client() as client:
        for number in range(150):
            client.ip_policies.create(metadata=f"{number} " + "m" * 100)
        assert service.api_key
        return service.api_key


def test_a_table_in_a_circle_is_damage_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    filled(path)
    looped(path)

    done = subprocess.run([*SERVE, str(path)], capture_output=True, text=True, timeout=60)

    assert done.returncode == 4
    assert "is damaged" in done.stderr


def test_a_table_in_a_circle_has_an_end_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    key = filled(path)
    # In another process: closing a file here would cost a service in this process its locks.
    code = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import test_storage;"
    code += "test_storage.looped(pathlib.Path(sys.argv[2]))"
    folder = str(Path(__file__).parent)
    with serving(path, key) as (process, client):
        subprocess.run([sys.executable, "-c", code, folder, str(path)], check=True)
        # What readers remember of the table ends with the next change.
        client.bot_users.create(name="robot")

        refused = refusal(lambda: list(islice(client.ip_policies.list(), 5_000)))

        assert process.poll() is None
    assert (refused.status_code, refused.error_code) == (503, DAMAGED)
