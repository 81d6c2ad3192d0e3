"""The command `ginnel store copy`: from a file to PostgreSQL, and back."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ginnel
import postgres


def copy(source: Path | str, target: Path | str, *more: str) -> subprocess.CompletedProcess[str]:
    line = ["store", "copy", "--from", str(source), "--to", str(target), *more]
    return subprocess.run(
        [sys.executable, "-m", "ginnel", *line], capture_output=True, text=True, timeout=60
    )


def content(service: ginnel.Service, key: str) -> list[str]:
    """All that the lists of a service show, and the authority that its agents trust."""
    with ginnel.RemoteClient(key, base_url=service.url) as client:
        listed = [resource.to_json() for resource in client.ip_policies.list()]
        listed += [resource.to_json() for resource in client.bot_users.list()]
        listed += [resource.to_json() for resource in client.reserved_domains.list()]
        listed += [resource.to_json() for resource in client.api_keys.list()]
    # Addresses of resources say which service they are of.
    return [text.replace(service.url, "") for text in [*listed, service.ca_pem]]


def filled(path: Path) -> tuple[str, list[str]]:
    """A service with resources of each kind that was stopped: its key and its content."""
    with ginnel.Service(path) as service, service.client() as client:
        for number in range(3):
            client.ip_policies.create(description=f"\N{BRICK} {number}", metadata="{}")
        bot = client.bot_users.create(name="bot")
        client.api_keys.create(owner_id=bot.id, description="of the bot")
        client.reserved_domains.create(domain="kept.localhost")
        assert service.api_key
        return service.api_key, content(service, service.api_key)


def test_a_service_on_a_copy_answers_the_same_and_a_copy_back_too(
    tmp_path: Path, store: str
) -> None:
    path, back = tmp_path / "ginnel.db", tmp_path / "back.db"
    key, before = filled(path)

    there = copy(path, store, "--json")
    with ginnel.Service(store=store) as service:
        assert service.api_key is None, "the keys are those that were copied"
        assert content(service, key) == before
        with ginnel.RemoteClient(key, base_url=service.url) as client:
            added = client.ip_policies.create(description="on PostgreSQL")
    and_back = copy(store, back, "--json")

    assert (there.returncode, and_back.returncode) == (0, 0), there.stderr + and_back.stderr
    rows, rows_back = json.loads(there.stdout)["rows"], json.loads(and_back.stdout)["rows"]
    # One that was made there, and no node.
    assert rows_back["resources"] == rows["resources"] + 1
    assert Path(f"{back}-ca.pem").read_text() == Path(f"{path}-ca.pem").read_text()
    assert Path(f"{back}-ca.key").stat().st_mode & 0o777 == 0o600
    with ginnel.Service(back) as service:
        assert service.ca_pem == before[-1]
        with ginnel.RemoteClient(key, base_url=service.url) as client:
            first, *others = client.ip_policies.list()
            assert first.id == added.id
            assert len(others) == 3
            assert client.ip_policies.create().id > added.id


def test_a_copy_of_a_database_in_use_has_nothing_that_is_online(
    tmp_path: Path, store: str, postgres_server: postgres.PostgresServer
) -> None:
    own: Any = {"node_name": "only"}
    with postgres_server.database() as other, contextlib.ExitStack() as stack:
        service = stack.enter_context(ginnel.Service(store=store, settings=own))
        agent = stack.enter_context(ginnel.Agent(service))
        with agent.client() as local:
            url = local.tunnels.start(name="web", addr="1", proto="http").public_url
        client = stack.enter_context(service.client())
        assert [tunnel.public_url for tunnel in client.tunnels.list()] == [url]
        assert len(client.tunnel_sessions.list().to_list()) == 1

        there, back = copy(store, other), copy(store, tmp_path / "back.db")

        assert (there.returncode, back.returncode) == (0, 0), there.stderr + back.stderr
        # Its name is free there, although the node that has it in the original is alive.
        places: list[Any] = [{"store": other, "settings": own}, {"path": tmp_path / "back.db"}]
        for place in places:
            with (
                ginnel.Service(**place) as copied,
                ginnel.RemoteClient(service.api_key, base_url=copied.url) as client,
            ):
                assert client.tunnels.list().to_list() == []
                assert client.tunnel_sessions.list().to_list() == []
                assert len(client.nodes.list().to_list()) == (1 if "store" in place else 0)
                with ginnel.Agent(copied, authtoken=service.authtoken) as agent:
                    with agent.client() as local:
                        local.tunnels.start(name="web", addr="1", proto="http")
                    assert len(client.tunnels.list().to_list()) == 1


def test_what_is_copied_is_said_in_a_line(tmp_path: Path, store: str) -> None:
    filled(tmp_path / "ginnel.db")

    done = copy(tmp_path / "ginnel.db", store)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"copied to {store}: ")
    assert len(done.stdout.splitlines()) == 1


def test_a_copy_goes_to_an_empty_place_alone(tmp_path: Path, store: str) -> None:
    path = tmp_path / "ginnel.db"
    filled(path)
    assert copy(path, store).returncode == 0

    for source, target in [(str(path), store), (store, str(path))]:
        done = copy(source, target)

        assert (done.returncode, done.stdout) == (4, "")
        assert "already" in done.stderr


def test_another_authority_beside_the_target_is_not_replaced(tmp_path: Path, store: str) -> None:
    path, target = tmp_path / "ginnel.db", tmp_path / "target.db"
    filled(path)
    filled(target)
    target.unlink()
    authority = Path(f"{target}-ca.pem").read_text()
    assert copy(path, store).returncode == 0

    done = copy(store, target)

    assert (done.returncode, done.stdout) == (4, "")
    assert "another authority" in done.stderr
    assert not target.exists()
    assert Path(f"{target}-ca.pem").read_text() == authority


def test_a_file_in_use_is_not_copied(tmp_path: Path, store: str) -> None:
    with ginnel.Service(tmp_path / "ginnel.db"):
        done = copy(tmp_path / "ginnel.db", store)

    assert (done.returncode, done.stdout) == (4, "")
    assert "stop the service first" in done.stderr


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_addresses_have_no_password(tmp_path: Path, option: str) -> None:
    places = {"--from": str(tmp_path / "a.db"), "--to": str(tmp_path / "b.db")}
    places[option] = "postgres://ginnel:secret@127.0.0.1/x"

    done = copy(places["--from"], places["--to"])

    assert (done.returncode, done.stdout) == (2, "")
    assert "secret" not in done.stderr
    assert option in done.stderr
