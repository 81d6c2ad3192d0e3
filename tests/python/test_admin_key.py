"""The command `ginnel admin-key`: a way back to a database whose key is lost."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import ginnel
import postgres
from event_receiver import Receiver, quick_service
from test_event_delivery import subscribe


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ginnel", "admin-key", "new", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GINNEL_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean)


def test_a_new_key_is_printed_once_and_works(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as client:
        (first,) = client.api_keys.list()
        client.api_keys.delete(first.id)

    done = run("--path", str(path))

    assert (done.returncode, done.stderr) == (0, "")
    key = done.stdout.strip()
    with ginnel.Service(path, api_key=key) as service, service.client() as client:
        (made,) = client.api_keys.list()
        assert made.owner_id == first.owner_id
        bot = client.bot_users.create(name="only admins make bots")
        assert client.api_keys.create(owner_id=bot.id).owner_id == bot.id


def test_a_new_key_goes_to_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path, out = tmp_path / "ginnel.db", tmp_path / "key"
    ginnel.Service(path).stop()

    done = run("--path", str(path), "--out", str(out))
    again = run("--path", str(path), "--out", str(out))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert out.stat().st_mode & 0o777 == 0o600
    assert again.returncode == 4
    assert str(out) in again.stderr
    with ginnel.Service(path, admin_key_file=out) as service, service.client() as client:
        assert len(list(client.api_keys.list())) == 2, "what failed has left no key"


def test_a_database_in_use_gets_no_key_behind_the_back_of_its_service(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as client:
        done = run("--path", str(path))
        assert len(list(client.api_keys.list())) == 1

    assert (done.returncode, done.stdout) == (4, "")
    assert "stop the service first" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_database_is_made_for_a_key(tmp_path: Path) -> None:
    done = run("--path", str(tmp_path / "ginnel.db"))

    assert done.returncode == 4
    assert "does not exist" in done.stderr
    assert not (tmp_path / "ginnel.db").exists()


def test_services_that_share_a_database_run_on_and_take_the_new_key(
    postgres_server: postgres.PostgresServer, store: str
) -> None:
    with ginnel.Service(store=store) as service:
        done = run("--store", store)

        assert (done.returncode, done.stderr) == (0, "")
        with ginnel.RemoteClient(done.stdout.strip(), base_url=service.url) as client:
            assert client.bot_users.create(name="only admins make bots").id
    empty = run("--store", postgres_server.new_database())

    assert (empty.returncode, empty.stdout) == (4, "")
    assert "does not exist" in empty.stderr


def test_a_database_is_named_once_and_without_a_password() -> None:
    for wrong in [
        ("--path", "x.db", "--store", "postgres://ginnel@127.0.0.1/x"),
        ("--store", "postgres://ginnel:secret@127.0.0.1/x"),
        (),
    ]:
        done = run(*wrong)

        assert (done.returncode, done.stdout) == (2, "")
        assert "secret" not in done.stderr


KEY_CREATED = "api_key_created.v0"


def test_the_new_key_is_an_event_for_who_subscribes(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with Receiver() as receiver:
        with quick_service({"path": str(path)}) as service, service.client() as remote:
            subscribe(remote, KEY_CREATED, to=receiver.url)
        assert run("--path", str(path)).returncode == 0

        with quick_service({"path": str(path)}):
            (delivery,) = receiver.wait_for(1)

    assert delivery.type == KEY_CREATED
    assert delivery.event["object"]["description"] == "made by ginnel admin-key new"
    assert delivery.event["object"]["id"].startswith("ak_")
    assert "principal" not in delivery.event


def test_the_new_key_of_a_shared_database_is_an_event_at_once(store: str) -> None:
    with (
        Receiver() as receiver,
        quick_service({"store": store}) as service,
        service.client() as remote,
    ):
        subscribe(remote, KEY_CREATED, to=receiver.url)
        done = run("--store", store)

        (delivery,) = receiver.wait_for(1)

        with ginnel.RemoteClient(done.stdout.strip(), base_url=service.url) as other:
            key = other.api_keys.get(delivery.event["object"]["id"])
            assert key.description == delivery.event["object"]["description"]


def test_what_a_start_makes_is_an_event_too(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    token = "3" * 27 + "_" + "4" * 21
    with Receiver() as receiver:
        with quick_service({"path": str(path)}) as service, service.client() as remote:
            subscribe(remote, "credential_created.v0", to=receiver.url)
            admin_key = service.api_key
        with contextlib.closing(sqlite3.connect(path)) as database:
            # As in a database that is older than agents.
            database.execute("DELETE FROM meta WHERE name = 'first_credential'")
            database.commit()

        with quick_service({"path": str(path), "api_key": admin_key, "authtoken": token}):
            (delivery,) = receiver.wait_for(1)

    assert delivery.event["object"]["id"] == "cr_" + "3" * 27
    assert "4" * 21 not in delivery.body.decode()
