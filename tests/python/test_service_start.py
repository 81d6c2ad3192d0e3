"""A service that cannot start says why, and leaves what it found as it was."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ginnel
from addresses import free_port


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "ginnel", "serve", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GINNEL_")}
    return subprocess.run(line, capture_output=True, text=True, timeout=30, env=clean)


def filled(path: Path) -> bytes:
    """Makes a database, and gives its content."""
    with ginnel.Service(path) as service, service.client() as remote:
        for number in range(50):
            remote.ip_policies.create(description=f"office {number}", metadata="m" * 500)
    return path.read_bytes()


def damage(path: Path) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 3] = b"\xa5" * 4096
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(filled(path)[:90])


def from_the_future(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    database.close()


def read_only(path: Path) -> None:
    filled(path)
    path.chmod(stat.S_IRUSR)


def text(path: Path) -> None:
    path.write_text("no database at all, but long enough to be one\n" * 20)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damage, "is damaged"),
        (cut, "is damaged"),
        (from_the_future, "has format 99"),
        (of_another_program, "another program"),
        (read_only, "is read-only"),
        (text, "is not a database"),
        (Path.mkdir, "is not a file"),
    ],
)
def test_a_database_of_no_use(tmp_path: Path, spoil: Callable[[Path], Any], words: str) -> None:
    path = tmp_path / "ginnel.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None

    with pytest.raises(ginnel.ServiceStoreError, match=words) as refused:
        ginnel.Service(path)
    done = command("--path", str(path))

    assert isinstance(refused.value, ginnel.ServiceError)
    assert str(path) in str(refused.value)
    assert (done.returncode, done.stdout) == (4, "")
    # What is found before anything is opened names the setting.
    assert done.stderr.replace("ginnel: --path: ", "ginnel: ") == f"ginnel: {refused.value}\n"
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    sealed.chmod(stat.S_IRUSR | stat.S_IXUSR)

    for path, words in [
        (tmp_path / "no/folder/ginnel.db", "the folder does not exist"),
        (sealed / "ginnel.db", "is in a read-only folder"),
    ]:
        with pytest.raises(ginnel.ServiceStoreError, match=words):
            ginnel.Service(path)
        assert command("--path", str(path)).returncode == 4
    assert list(sealed.iterdir()) == []
    sealed.chmod(stat.S_IRWXU)


def test_a_database_in_use(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service:
        with pytest.raises(ginnel.ServiceStoreError, match="in use by another process"):
            ginnel.Service(path)
        done = command("--path", str(path))
        with service.client() as remote:
            assert remote.api_keys.list().first()

    assert done.returncode == 4
    assert "in use by another process" in done.stderr
    with ginnel.Service(path) as again:
        assert again.is_running


def test_an_address_of_no_use(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(ginnel.ServiceAddressError, match="already in use"):
            ginnel.Service(port=port)
        assert command("--port", str(port)).returncode == 3
    with pytest.raises(ginnel.ServiceAddressError, match="cannot listen on"):
        ginnel.Service(host="192.0.2.1")
    with ginnel.Service(port=port) as service:
        assert service.url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"api_key": "mine"}, "the admin key is not of the form"),
        ({"public_url": "here"}, "is not an http"),
        ({"rate_limit": (0, 60.0)}, "rate_limit: '0/60' is not a number of requests"),
        ({"rate_limit": (1, -1.0)}, "rate_limit"),
        ({"trusted_proxies": ["10.0.0.0/8", "10/8"]}, "trusted_proxies: '10/8': not a CIDR"),
        ({"max_connections": 0}, "max_connections: 0 connections are too few; at least 1"),
        ({"max_connections_per_address": -3}, "max_connections_per_address: '-3' is not a whole"),
        ({"max_connections": "many"}, "max_connections: 'many' is not a whole number"),
        ({"edge_host": None}, "edge_host: needs a value, not None"),
        ({"heartbeat": (1,)}, "heartbeat: takes 2 values, not 1"),
        ({"base_domain": object()}, "base_domain: object is no type of a setting"),
        ({"max_api_connections": 0}, "max_api_connections: 0 connections"),
        ({"max_agent_connections": 0}, "max_agent_connections: 0 connections"),
        ({"admin_key_file": "/gone/key"}, "cannot read /gone/key"),
        ({"admin_key_file": "/gone/key", "api_key": "mine"}, "exclude each other"),
    ],
)
def test_an_option_of_no_use(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ginnel.ConfigError, match=words):
        ginnel.Service(**options)


def test_the_admin_key_comes_from_a_file(tmp_path: Path) -> None:
    key, other = "0" * 27 + "_1" + "a" * 20, "0" * 27 + "_2" + "b" * 20
    path, file = tmp_path / "ginnel.db", tmp_path / "key"
    file.write_text(f"  {key}\n")

    for _ in range(2):
        with ginnel.Service(path, admin_key_file=file) as service, service.client() as remote:
            assert service.api_key == key
            assert remote.api_keys.list().first()
    file.write_text(other)
    with pytest.raises(ginnel.ConfigError, match="not one of this database") as refused:
        ginnel.Service(path, admin_key_file=file)

    assert other not in str(refused.value)


def test_new_identifiers_follow_those_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as remote:
        key, now = service.api_key, remote.ip_policies.create(description="now").id
    # As a service would have made it whose clock was twenty years ahead.
    ahead = "ipp_" + chr(ord(now[4]) + 1) + now[5:]
    with sqlite3.connect(path) as database:
        body = (
            f'{{"id":"{ahead}","created_at":"2046-01-01T00:00:00Z","description":"","metadata":""}}'
        )
        database.execute("INSERT INTO resources VALUES ('ipp', ?, ?)", (ahead, body))
    database.close()

    with ginnel.Service(path, api_key=key) as service, service.client() as remote:
        later = [remote.ip_policies.create(description=str(n)).id for n in range(3)]
        listed = [policy.id for policy in remote.ip_policies.list()]

    assert listed == [*later[::-1], ahead, now]


def by_symlink(path: Path) -> Path:
    other = path.with_name("link.db")
    other.symlink_to(path.name)
    return other


def by_hard_link(path: Path) -> Path:
    other = path.with_name("same.db")
    other.hardlink_to(path)
    return other


def by_a_longer_way(path: Path) -> Path:
    folder = path.parent / "folder"
    folder.symlink_to(path.parent)
    return folder / "folder" / path.name


@pytest.mark.parametrize("name_of", [by_symlink, by_hard_link, by_a_longer_way])
def test_a_database_in_use_by_another_name(tmp_path: Path, name_of: Callable[[Path], Path]) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service:
        key = service.api_key
    other = name_of(path)
    log = path.with_name(path.name + "-wal")
    with ginnel.Service(path, api_key=key) as service, service.client() as client:
        client.ip_policies.create(description="before the visit")
        before = log.stat()
        for second in (other, path):
            with pytest.raises(ginnel.ServiceStoreError, match="in use by another process"):
                ginnel.Service(second)
            done = command("--path", str(second))
            assert (done.returncode, done.stdout) == (4, "")
            named = second.resolve() if second.is_symlink() else second
            assert f"{named}: is in use" in done.stderr

        # The locks of SQLite are where they were: whoever leaves the database now takes itself for
        # the last one otherwise, and removes the log that the service goes on writing to.
        code = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); "
        code += "print(d.execute('SELECT count(*) FROM resources').fetchone()); d.close()"
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
        assert log.stat().st_ino == before.st_ino
        made = client.ip_policies.create(description="after the visit").id

    with ginnel.Service(other, api_key=key) as service, service.client() as client:
        assert client.ip_policies.get(made)


def test_a_link_to_nowhere_is_the_name_of_a_new_database(tmp_path: Path) -> None:
    link, path = tmp_path / "link.db", tmp_path / "real.db"
    link.symlink_to(path.name)

    with ginnel.Service(link) as service, service.client() as client:
        made = client.ip_policies.create().id
        key = service.api_key
        assert service.ca_path == tmp_path / "real.db-ca.pem"
    with ginnel.Service(path, api_key=key) as service, service.client() as client:
        assert client.ip_policies.get(made)

    assert link.is_symlink()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("ca.pem", b"", "ginnel.db-ca.pem"),
        ("ca.key", b"", "ginnel.db-ca.key"),
        ("ca.pem", None, "ginnel.db-ca.pem: is missing"),
        ("ca.key", None, "ginnel.db-ca.key: is missing"),
        ("ca.key", b"another", "is not the key of"),
    ],
)
def test_an_authority_of_no_use(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / "ginnel.db"
    filled(path)
    filled(tmp_path / "other.db")
    file = tmp_path / f"ginnel.db-{name}"
    match content:
        case None:
            file.unlink()
        case b"another":
            file.write_bytes((tmp_path / "other.db-ca.key").read_bytes())
        case _:
            file.write_bytes(content)
    files = sorted(tmp_path.iterdir())

    with pytest.raises(ginnel.ServiceStoreError, match=words):
        ginnel.Service(path)
    done = command("--path", str(path))

    assert (done.returncode, done.stdout) == (4, "")
    assert words in done.stderr
    assert sorted(tmp_path.iterdir()) == files, "nothing was made in its place"


def test_an_authority_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    filled(path)
    for name in ("ca.pem", "ca.key"):
        (tmp_path / f"ginnel.db-{name}").unlink()

    with ginnel.Service(path) as service:
        made = service.ca_pem
    with ginnel.Service(path) as service:
        assert service.ca_pem == made

    assert (tmp_path / "ginnel.db-ca.key").stat().st_mode & 0o777 == 0o600


def test_an_authority_whose_making_was_cut_short_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    filled(path)
    certificate = tmp_path / "ginnel.db-ca.pem"
    made = certificate.read_text()
    certificate.rename(tmp_path / "ginnel.db-ca.pem.new")

    with ginnel.Service(path) as service:
        assert service.ca_pem == made


def test_a_change_that_a_killed_process_left_half_done_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    filled(path)
    # As older versions began a database: with a journal beside it instead of a log.
    code = "import os, sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None); "
    code += "d.execute('PRAGMA journal_mode = DELETE'); d.execute('PRAGMA cache_size = 1'); "
    code += "d.execute('BEGIN'); d.execute(\"UPDATE resources SET body = body || 'x'\"); "
    code += "os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.with_name("ginnel.db-journal").stat().st_size > 0

    with ginnel.Service(path):
        pass

    with sqlite3.connect(path) as database:
        bodies = [body for (body,) in database.execute("SELECT body FROM resources")]
    database.close()
    assert len(bodies) > 50
    assert all(body.endswith("}") for body in bodies)


def test_what_a_deleted_database_left_is_no_part_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    code = "import os, sys, ginnel; s = ginnel.Service(sys.argv[1]); "
    code += "s.client().ip_policies.create(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.with_name("ginnel.db-wal").stat().st_size > 0
    path.unlink()

    with ginnel.Service(path) as service, service.client() as client:
        assert service.api_key
        assert list(client.ip_policies.list()) == []


def test_the_log_beside_another_name_is_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    code = "import os, sys, ginnel; s = ginnel.Service(sys.argv[1]); "
    code += "print(s.api_key, s.client().ip_policies.create().id, flush=True); os._exit(9)"
    line = [sys.executable, "-c", code, str(path)]
    key, made = subprocess.run(line, capture_output=True, text=True).stdout.split()
    other = by_hard_link(path)

    with pytest.raises(ginnel.ServiceStoreError, match=r"same.db: .*start it as .*ginnel.db"):
        ginnel.Service(other)

    with ginnel.Service(path, api_key=key) as service, service.client() as client:
        assert client.ip_policies.get(made)
    with ginnel.Service(other, api_key=key) as service, service.client() as client:
        assert client.ip_policies.get(made)
