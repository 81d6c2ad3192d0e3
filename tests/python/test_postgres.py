"""Services whose data are on PostgreSQL, as Python and the command line start them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from ginnel.exceptions import AuthenticationError, ConfigError, ServiceStoreError
from processes import Command, wait_until


async def test_resources_are_kept_for_the_next_service(store: str, make_client: Any) -> None:
    with ginnel.Service(store=store) as service:
        client = make_client(service.api_key, base_url=service.url)
        policy = await client.ip_policies.create(description="office")
        await client.ip_policies.update(policy.id, metadata="{}")
        other = await client.ip_policies.create(description="other")
        await client.ip_policies.delete(other.id)
        key = (await client.api_keys.create(description="kept")).token

    with ginnel.Service(store=store) as service:
        assert service.api_key is None, "only the first start makes a key"
        client = make_client(key, base_url=service.url)
        found = await client.ip_policies.get(policy.id)
        assert (found.description, found.metadata) == ("office", "{}")
        assert [listed.id for listed in await client.ip_policies.list().to_list()] == [policy.id]


def test_a_key_that_one_node_deletes_is_refused_by_the_others(store: str) -> None:
    with (
        ginnel.Service(store=store) as one,
        ginnel.Service(store=store, settings={"node_name": "other"}) as other,
        ginnel.RemoteClient(one.api_key, base_url=one.url) as admin,
    ):
        key = admin.api_keys.create(description="short-lived")
        with ginnel.RemoteClient(key.token, base_url=other.url) as client:
            assert client.api_keys.get(key.id).description == "short-lived"

            admin.api_keys.delete(key.id)

            wait_until(lambda: is_refused(client), "the key to be refused")


def is_refused(client: ginnel.RemoteClient) -> bool:
    try:
        client.ip_policies.list().to_list()
    except AuthenticationError:
        return True
    return False


def test_a_reset_leaves_a_shared_database_as_it_is(store: str) -> None:
    with (
        ginnel.Service(store=store) as service,
        ginnel.RemoteClient(service.api_key, base_url=service.url) as client,
    ):
        policy = client.ip_policies.create(description="stays")

        service.reset()

        assert client.ip_policies.get(policy.id).description == "stays"


@pytest.mark.parametrize(
    ("store", "error", "words"),
    [
        ("postgres://ginnel:secret@127.0.0.1/x", ConfigError, "password"),
        ("postgres://ginnel@192.0.2.1/x?sslmode=disable", ConfigError, "sslmode"),
        ("mysql://ginnel@127.0.0.1/x", ConfigError, "postgres"),
        ("postgres://ginnel@127.0.0.1:1/x", ServiceStoreError, "127.0.0.1|refused"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(
    store: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as refused:
        ginnel.Service(store=store)

    assert "secret" not in str(refused.value)


def test_the_command_serves_from_a_database_on_postgresql(store: str) -> None:
    with Command("serve", "--store", store, "--http-port", "none", "--https-port", "none") as serve:
        service = serve.line()
        with ginnel.RemoteClient(service["api_key"], base_url=service["url"]) as client:
            assert client.api_keys.list().to_list()


def parts(store: str) -> dict[str, str]:
    address = urlsplit(store)
    return {
        "host": str(address.hostname),
        "port": str(address.port),
        "user": str(address.username),
        "dbname": address.path.strip("/"),
    }


def services(path: Path, sections: dict[str, dict[str, str]]) -> Path:
    lines = [
        line
        for name, section in sections.items()
        for line in (f"[{name}]", *(f"{key}={value}" for key, value in section.items()))
    ]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("address", "variables"),
    [
        ("postgres://?service=here", {"PGSERVICEFILE": "{file}"}),
        ("postgres://", {"PGSERVICEFILE": "{file}", "PGSERVICE": "here"}),
        ("postgres://?service=here&servicefile={file}", {}),
        ("postgres://?service=here", {"HOME": "{folder}"}),
        ("postgres://?service=here", {"PGSYSCONFDIR": "{folder}", "PGSERVICEFILE": "{empty}"}),
    ],
)
def test_a_service_file_says_where_the_database_is(
    store: str, tmp_path: Path, address: str, variables: dict[str, str]
) -> None:
    sections = {"other": {"host": "192.0.2.1"}, "here": {**parts(store), "password": "secret"}}
    for name in ("services", ".pg_service.conf", "pg_service.conf"):
        services(tmp_path / name, sections).chmod(0o600)
    places = {
        "file": tmp_path / "services",
        "folder": tmp_path,
        "empty": services(tmp_path / "empty", {}),
    }
    variables = {name: value.format(**places) for name, value in variables.items()}
    ports = ("--http-port", "none", "--https-port", "none")
    with Command("serve", "--store", address.format(**places), *ports, **variables) as serve:
        service = serve.line()
        with ginnel.RemoteClient(service["api_key"], base_url=service["url"]) as client:
            assert client.api_keys.list().to_list()


@pytest.mark.parametrize(
    ("address", "lines", "words"),
    [
        ("postgres://?service=none", {}, "no such section"),
        ("postgres://?service=here", {"host": "x"}, "no host, user or dbname"),
        ("postgres://?service=here", {"sslkey": "secret"}, "line 2: sslkey is not supported"),
        ("postgres://?service=here", {"password": "secret"}, "no host, user or dbname"),
        ("postgres://?service=here&servicefile=/none", {}, "No such file"),
    ],
)
def test_a_service_that_cannot_be_used_is_named_with_its_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    lines: dict[str, str],
    words: str,
) -> None:
    file = services(tmp_path / "services", {"here": lines})
    file.chmod(0o644)
    monkeypatch.setenv("PGSERVICEFILE", str(file))

    with pytest.raises(ConfigError, match=words) as refused:
        ginnel.Service(store=address)

    name = address.partition("=")[2].partition("&")[0]
    assert f'service "{name}" of ' in str(refused.value)
    assert ("/none" if "servicefile" in address else str(file)) in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_command_refuses_a_password_in_an_argument() -> None:
    with Command("serve", "--store", "postgres://ginnel:secret@127.0.0.1/x") as serve:
        code, complaint = serve.ended()

    assert code == 2
    assert "PGPASSFILE" in complaint
    assert "secret" not in complaint
