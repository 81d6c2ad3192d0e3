"""Vaults and their secrets: stored encrypted, read by policies, shown to nobody."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
import ginnel.policy
import postgres
from postgres import ON_BOTH_STORES
from processes import wait_until
from recorder import get
from test_store_copy import copy

HOST = "secret.example.test"
VALUE = "correct horse battery"
READ = "${secrets.get('app', 'password')}"


def rules(kind: str, expressions: list[str] | None = None, **config: Any) -> dict[str, Any]:
    rule: dict[str, Any] = {"actions": [{"type": kind, "config": config}]}
    return {"on_http_request": [rule | ({"expressions": expressions} if expressions else {})]}


def respond(body: str, expressions: list[str] | None = None) -> str:
    return json.dumps(rules("custom-response", expressions, status_code=200, content=body))


def visit(
    service: ginnel.Service, headers: dict[str, str] | None = None, host: str = HOST
) -> tuple[int, bytes]:
    assert service.http_url is not None
    lines = [f"{name}: {value}" for name, value in (headers or {}).items()]
    status, _, body = get(urlsplit(service.http_url).netloc, host, "/", *lines)
    return status, body


async def add_secret(client: Any, value: str = VALUE) -> Any:
    await client.vaults.create(name="app")
    return await client.vault_secrets.create(name="password", value=value, vault_name="app")


def key() -> str:
    return base64.b64encode(bytes(range(32))).decode()


@ON_BOTH_STORES
async def test_vaults_and_secrets_live_from_create_to_delete(
    make_client: Any, storage: dict[str, str]
) -> None:
    with ginnel.Service(**storage, settings={"vault_key": key()}) as service:  # type: ignore[arg-type]
        client = make_client(service.api_key, base_url=service.url)
        vault = await client.vaults.create(name="app", description="d", metadata="m")
        other = await client.vaults.create(name="other")
        secret = await client.vault_secrets.create(
            name="password", value=VALUE, vault_id=vault.id, description="d", metadata="m"
        )
        token = await client.vault_secrets.create(name="token", value="t", vault_name="app")
        await client.vault_secrets.create(name="token", value="t", vault_name="other")

        assert vault.id.startswith("vault_")
        assert vault.uri == f"{service.url}/vaults/{vault.id}"
        assert (vault.description, vault.metadata, vault.created_by) == (
            "d",
            "m",
            vault.last_updated_by,
        )
        assert await client.vaults.get(vault.id) == vault
        assert [it async for it in client.vaults.list()] == [other, vault]
        assert secret.id.startswith("secret_")
        assert secret.uri == f"{service.url}/vault_secrets/{secret.id}"
        assert (secret.vault.id, secret.vault.uri) == (vault.id, vault.uri)
        assert (secret.vault_name, secret.description) == ("app", "d")
        assert secret.created_by.id == vault.created_by
        assert await client.vault_secrets.get(secret.id) == secret
        assert len([it async for it in client.vault_secrets.list()]) == 3
        pages = client.vaults.get_secrets_by_vault(vault.id, limit=1).pages()
        assert [[it.id for it in page] async for page in pages] == [[token.id], [secret.id]]
        rest = client.vaults.get_secrets_by_vault(vault.id, before_id=token.id)
        assert [it async for it in rest] == [secret]

        renamed = await client.vaults.update(vault.id, name="apps", description="e")
        changed = await client.vault_secrets.update(secret.id, name="pass", metadata="n")

        assert (renamed.name, renamed.description, renamed.metadata) == ("apps", "e", "m")
        assert (changed.name, changed.vault_name, changed.metadata) == ("pass", "apps", "n")
        await client.vault_secrets.delete(token.id)
        with pytest.raises(ginnel.NotFoundError):
            await client.vault_secrets.get(token.id)
        await client.vaults.delete(vault.id)
        with pytest.raises(ginnel.NotFoundError):
            await client.vault_secrets.get(secret.id)
        assert [it.name async for it in client.vaults.list()] == ["other"]
        # The names are free again.
        await add_secret(client)


@pytest.mark.parametrize(
    ("call", "arguments", "status", "words"),
    [
        ("vaults.create", {"name": "app"}, 409, "another vault is called"),
        ("vaults.create", {"name": "a/b"}, 400, 'name: "a/b" is not a name'),
        ("vaults.create", {"name": ""}, 400, "name"),
        ("vault_secrets.create", {"name": "n", "value": VALUE}, 400, "vault_id or vault_name"),
        (
            "vault_secrets.create",
            {"name": "n", "value": VALUE, "vault_name": "nobody"},
            400,
            'there is no vault "nobody"',
        ),
        (
            "vault_secrets.create",
            {"name": "password", "value": VALUE, "vault_name": "app"},
            409,
            "another secret of the vault",
        ),
        (
            "vault_secrets.create",
            {"name": "n", "value": "", "vault_name": "app"},
            400,
            "value: must not be empty",
        ),
        (
            "vault_secrets.create",
            {"name": "n", "value": VALUE * 1000, "vault_name": "app"},
            400,
            "the limit is 16384",
        ),
    ],
)
async def test_what_cannot_be_stored_is_refused(
    client: Any, call: str, arguments: dict[str, str], status: int, words: str
) -> None:
    await add_secret(client)
    resource, method = call.split(".")

    with pytest.raises(ginnel.APIStatusError) as refused:
        await getattr(getattr(client, resource), method)(**arguments)

    assert refused.value.status_code == status
    assert words in str(refused.value)
    assert VALUE not in str(refused.value)


def readable(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_a_value_is_encrypted_with_a_key_beside_the_database(tmp_path: Path) -> None:
    path, key_file = tmp_path / "ginnel.db", tmp_path / "ginnel.db-vault.key"
    with ginnel.Service(path) as service, service.client() as remote:
        assert not key_file.exists()
        remote.vaults.create(name="app")
        secret = remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond(READ))
        admin_key = service.api_key
        raw = remote.request("GET", f"/vault_secrets/{secret.id}")
        events = [event.to_json() for event in remote.audit_events.list()]

    assert key_file.stat().st_mode & 0o777 == 0o600
    assert VALUE.encode() not in readable(path)
    assert VALUE not in json.dumps(raw)
    assert "sealed" not in json.dumps(raw)
    assert VALUE not in json.dumps(events)
    with ginnel.Service(path, api_key=admin_key) as service:
        assert visit(service) == (200, VALUE.encode()), "it is read with the key again"


def test_another_key_or_none_keeps_a_service_from_starting(tmp_path: Path) -> None:
    path, key_file = tmp_path / "ginnel.db", tmp_path / "ginnel.db-vault.key"
    with ginnel.Service(path) as service, service.client() as remote:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
    kept = key_file.read_text()

    def problem(**settings: Any) -> str:
        given: Any = settings
        with pytest.raises(ginnel.GinnelError) as refused, ginnel.Service(path, settings=given):
            pass
        return str(refused.value)

    key_file.unlink()
    assert "ginnel.db-vault.key is not there: put it back" in problem()
    assert not key_file.exists(), "no other key is made in its place"
    key_file.write_text("nonsense")
    assert "does not hold a key: 32 bytes in base64" in problem()
    assert "not the key they are encrypted with" in problem(vault_key=key())
    assert "is not a key" in problem(vault_key="c2hvcnQ=")
    assert "exclude each other" in problem(vault_key=kept, vault_key_file=str(key_file))
    with ginnel.Service(path, settings={"vault_key": kept}) as service:
        assert service.url


def test_a_key_that_is_lost_is_replaced_on_request(tmp_path: Path) -> None:
    path, key_file = tmp_path / "ginnel.db", tmp_path / "ginnel.db-vault.key"
    with ginnel.Service(path) as service, service.client() as remote:
        vault = remote.vaults.create(name="app")
        secret = remote.vault_secrets.create(name="password", value=VALUE, vault_id=vault.id)
        other = remote.vault_secrets.create(name="other", value=VALUE, vault_id=vault.id)
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond(READ))
        admin_key = service.api_key
    key_file.unlink()
    with pytest.raises(ginnel.GinnelError, match="replace_vault_key"):
        ginnel.Service(path)

    options: Any = {"api_key": admin_key, "settings": {"replace_vault_key": True}}
    with ginnel.Service(path, **options) as service, service.client() as remote:
        assert visit(service)[0] == 500, "what cannot be read is not passed over"
        remote.vault_secrets.update(secret.id, value="a new one")
        wait_until(lambda: visit(service) == (200, b"a new one"), "the new value is read")
    # From now on there is one key again, and what it cannot read says so by its policies alone.
    with ginnel.Service(path, api_key=admin_key) as service, service.client() as remote:
        assert visit(service) == (200, b"a new one")
        remote.vault_secrets.delete(other.id)


def test_a_key_is_missed_only_where_there_are_secrets(tmp_path: Path) -> None:
    path, key_file = tmp_path / "ginnel.db", tmp_path / "ginnel.db-vault.key"
    with ginnel.Service(path) as service, service.client() as remote:
        vaults = [remote.vaults.create(name=name) for name in ("one", "two")]
        one, _ = (
            remote.vault_secrets.create(name="password", value=VALUE, vault_id=vault.id)
            for vault in vaults
        )
        remote.vaults.delete(vaults[1].id)
        remote.vault_secrets.delete(one.id)
        admin_key = service.api_key
    key_file.unlink()
    with ginnel.Service(path, api_key=admin_key) as service, service.client() as remote:
        remote.vault_secrets.create(name="password", value=VALUE, vault_id=vaults[0].id)
        assert key_file.exists()


def test_what_is_no_key_is_found_out_before_the_first_secret(tmp_path: Path) -> None:
    path, key_file = tmp_path / "ginnel.db", tmp_path / "ginnel.db-vault.key"
    for content in ("", "A" * 100_000):
        key_file.write_text(content)
        with pytest.raises(
            ginnel.GinnelError, match=r"does not hold a key: 32 bytes in base64|the file is empty"
        ):
            ginnel.Service(path)


def test_a_value_cannot_be_moved_to_another_row(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as remote:
        remote.vaults.create(name="app")
        for name in ("password", "other"):
            remote.vault_secrets.create(name=name, value=f"{VALUE} {name}", vault_name="app")
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond(READ))
        assert visit(service) == (200, f"{VALUE} password".encode())
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT id, body FROM resources WHERE kind = 'secret'")
        (one, first), (other, second) = ((id, json.loads(body)) for id, body in found)
        first["sealed"], second["sealed"] = second["sealed"], first["sealed"]
        update = "UPDATE resources SET body = ? WHERE id = ?"
        database.executemany(update, [(json.dumps(first), one), (json.dumps(second), other)])
        database.commit()

    with ginnel.Service(path) as service:
        assert visit(service)[0] == 500


def test_nodes_on_postgresql_need_one_key(store: str) -> None:
    with ginnel.Service(store=store, settings={"node_name": "one"}) as one, one.client() as remote:
        remote.vaults.create(name="app")
        with pytest.raises(ginnel.ServerError, match="one key for all") as refused:
            remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
        admin_key = one.api_key
    assert refused.value.status_code == 503

    first: Any = {"vault_key": key(), "node_name": "one"}
    second: Any = {"vault_key": key(), "node_name": "two"}
    with (
        ginnel.Service(store=store, api_key=admin_key, settings=first) as one,
        ginnel.Service(store=store, api_key=admin_key, settings=second) as two,
        one.client() as remote,
    ):
        secret = remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond(READ))
        wait_until(lambda: visit(two) == (200, VALUE.encode()), "the secret at the other node")
        remote.vault_secrets.update(secret.id, value="changed")
        assert visit(one) == (200, b"changed")
        wait_until(lambda: visit(two) == (200, b"changed"), "the change at the other node")
    with (
        pytest.raises(ginnel.GinnelError, match="not the key they are encrypted with"),
        ginnel.Service(store=store, settings={"vault_key": base64.b64encode(b"x" * 32).decode()}),
    ):
        pass
    with pytest.raises(ginnel.GinnelError, match="one key for all"), ginnel.Service(store=store):
        pass


def test_nodes_with_another_key_do_not_start_before_there_is_a_secret(store: str) -> None:
    other = base64.b64encode(b"y" * 32).decode()

    def node(name: str, **settings: Any) -> ginnel.Service:
        both: Any = {"node_name": name, **settings}
        return ginnel.Service(store=store, settings=both)

    with node("one", vault_key=key()) as one, one.client() as remote:
        with pytest.raises(ginnel.GinnelError, match="have another key for secrets"):
            node("two", vault_key=other)
        with node("two", vault_key=key()), node("three"):
            pass
        # The key is in use, whether or not a secret is.
        remote.vaults.create(name="app")
        secret = remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
        remote.vault_secrets.delete(secret.id)
        with pytest.raises(ginnel.GinnelError, match="have another key for secrets"):
            node("two", vault_key=other)
    with node("two", vault_key=other, replace_vault_key=True):
        with pytest.raises(ginnel.GinnelError, match="have another key for secrets"):
            node("one", vault_key=key())
        with node("three", vault_key=other):
            pass


def test_a_key_that_takes_the_place_of_another_is_that_of_nodes_that_come_later(store: str) -> None:
    other = base64.b64encode(b"y" * 32).decode()

    def node(name: str, **settings: Any) -> ginnel.Service:
        both: Any = {"node_name": name, **settings}
        return ginnel.Service(store=store, settings=both)

    with node("one", vault_key=key()) as one, one.client() as remote:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
    with node("two", vault_key=other, replace_vault_key=True):
        with node("three", vault_key=other):
            pass
        with pytest.raises(ginnel.GinnelError, match="vault_key"):
            node("one", vault_key=key())


def test_a_copy_of_a_store_has_the_secrets_still_encrypted(
    tmp_path: Path, store: str, postgres_server: postgres.PostgresServer
) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as remote:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond(READ))

    copied = copy(path, store)

    assert copied.returncode == 0, copied.stderr
    name = store.rpartition("/")[2]
    stored = postgres_server.sql(name, "SELECT body FROM ginnel.resources WHERE kind = 'secret'")
    assert "sealed" in stored
    assert VALUE not in stored
    settings: Any = {"vault_key_file": f"{path}-vault.key"}
    with ginnel.Service(store=store, settings=settings) as service:
        assert visit(service) == (200, VALUE.encode())


def test_a_copy_without_secrets_needs_no_key_that_nodes_had(tmp_path: Path, store: str) -> None:
    with ginnel.Service(store=store, settings={"vault_key": key()}) as service:
        admin_key = service.api_key
    for name in ("without", "with"):
        copied = copy(store, tmp_path / f"{name}.db")
        assert copied.returncode == 0, copied.stderr

    own: Any = {"vault_key": base64.b64encode(b"y" * 32).decode()}
    none: Any = {}
    for name, settings in (("without", none), ("with", own)):
        path = tmp_path / f"{name}.db"
        with (
            ginnel.Service(path, api_key=admin_key, settings=settings) as service,
            service.client() as remote,
        ):
            remote.vaults.create(name="app")
            remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
            remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond(READ))
            assert visit(service) == (200, VALUE.encode())
    # Once there is a secret, its key is missed.
    with (
        pytest.raises(ginnel.GinnelError, match="not the key they are encrypted with"),
        ginnel.Service(tmp_path / "with.db", settings={"vault_key": key()}),
    ):
        pass


POLICIES = [
    respond(READ),
    respond("matched", ["secrets.get('app', 'password') == req.headers['x-key'][0]"]),
    json.dumps(
        {
            "on_http_request": [
                *rules("basic-auth", credentials=["user:" + READ])["on_http_request"],
                *rules("custom-response", status_code=200, content="matched")["on_http_request"],
            ]
        }
    ),
]


@pytest.mark.parametrize("policy", POLICIES, ids=["template", "expression", "basic-auth"])
@ON_BOTH_STORES
async def test_policies_read_secrets_and_see_changes_at_once(
    make_client: Any, storage: dict[str, str], policy: str
) -> None:
    def admitted(service: ginnel.Service, value: str) -> bool:
        login = base64.b64encode(f"user:{value}".encode()).decode()
        status, body = visit(service, {"X-Key": value, "Authorization": f"Basic {login}"})
        return (status, body) in {(200, value.encode()), (200, b"matched")}

    with ginnel.Service(**storage, settings={"vault_key": key()}) as service:  # type: ignore[arg-type]
        client = make_client(service.api_key, base_url=service.url)
        secret = await add_secret(client)
        await client.endpoints.create(url=f"http://{HOST}", traffic_policy=policy)

        assert admitted(service, VALUE)
        assert not admitted(service, "another value")
        await client.vault_secrets.update(secret.id, value="another value")

        assert admitted(service, "another value")
        assert not admitted(service, VALUE)


@ON_BOTH_STORES
async def test_what_a_policy_reads_stays(make_client: Any, storage: dict[str, str]) -> None:
    with ginnel.Service(**storage, settings={"vault_key": key()}) as service:  # type: ignore[arg-type]
        client = make_client(service.api_key, base_url=service.url)
        secret = await add_secret(client)
        vault = secret.vault.id
        edge = await client.edges.https.create(hostports=[f"{HOST}:443"])
        policy: Any = {"inbound": rules("add-headers", headers={"x": READ})["on_http_request"]}
        route = await client.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", policy=policy
        )
        cloud = await client.endpoints.create(
            url="http://two.example.test", traffic_policy=respond(READ)
        )

        async def refused(call: Any) -> str:
            with pytest.raises(ginnel.ConflictError) as conflict:
                await call
            return str(conflict.value)

        for call in (
            client.vault_secrets.delete(secret.id),
            client.vault_secrets.update(secret.id, name="renamed"),
            client.vaults.delete(vault),
            client.vaults.update(vault, name="renamed"),
        ):
            said = await refused(call)
            assert "app/password" in said
            assert route.id in said
            assert cloud.id in said
        # Its own name is no other one.
        await client.vault_secrets.update(secret.id, name="password", description="x")
        await client.edges.https.routes.policy.delete(edge.id, route.id)
        said = await refused(client.vault_secrets.delete(secret.id))
        assert route.id not in said
        await client.endpoints.update(cloud.id, traffic_policy=respond("none"))
        await client.vault_secrets.delete(secret.id)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("secrets.get('app', 'nobody')", "has no secret"),
        ("secrets.get('none', 'password')", "there is no vault"),
        ("secrets.get('app')", "takes two texts"),
        ("secrets.get('app', req.host)", "in quotes"),
        ("secrets.get('a/b', 'c')", "is no name"),
    ],
)
async def test_a_policy_that_reads_what_is_not_there_is_refused(
    client: Any, expression: str, words: str
) -> None:
    await add_secret(client)

    with pytest.raises(ginnel.APIError, match=words):
        await client.endpoints.create(
            url=f"http://{HOST}", traffic_policy=respond(f"${{{expression}}}")
        )


def test_visitors_get_an_error_where_a_secret_has_vanished(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    with ginnel.Service(path) as service, service.client() as remote:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")
        # Were the rule passed over, everybody would pass.
        denies = rules("deny", ["secrets.get('app', 'password') != 'x'"])["on_http_request"]
        answer = rules("custom-response", status_code=200, content="open")["on_http_request"]
        policy = json.dumps({"on_http_request": denies + answer})
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=policy)
        assert visit(service)[0] == 403
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM resources WHERE kind = 'secret'")
        database.commit()

    with ginnel.Service(path) as service:
        assert visit(service)[0] == 500


def test_an_agent_may_not_read_secrets_by_its_own_policy(service: ginnel.Service) -> None:
    with service.client() as remote, ginnel.Agent(service) as agent, agent.client() as local:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value=VALUE, vault_name="app")

        with pytest.raises(ginnel.GinnelError, match="may read no secrets") as refused:
            local.tunnels.start(
                name="web", addr="1", proto="http", traffic_policy=json.loads(respond(READ))
            )

    assert VALUE not in str(refused.value)


def test_what_people_see_of_a_policy_does_not_show_what_it_reads(service: ginnel.Service) -> None:
    log = {"type": "log", "config": {"metadata": {"all": "${vars.copy} ${actions.ngrok}"}}}
    keep = {"type": "set-vars", "config": {"vars": [{"copy": READ}]}}
    check = {"type": "url-rewrite", "config": {"from": "/", "to": "/x?k=" + READ}}
    answer = {"type": "custom-response", "config": {"status_code": 200, "content": "done"}}
    rule = {"actions": [keep, check, log, answer]}
    events = service.events()
    with service.client() as remote:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value="p4ssw0rd", vault_name="app")
        remote.endpoints.create(
            url=f"http://{HOST}", traffic_policy=json.dumps({"on_http_request": [rule]})
        )
        assert visit(service) == (200, b"done")

        event = events.get(timeout=30)

        assert event is not None
        assert "***" in str(event.logs)
        assert "p4ssw0rd" not in repr(event)
        with pytest.raises(ginnel.APIError, match="may not hold secrets"):
            remote.endpoints.create(
                url="http://two.example.test",
                traffic_policy=json.dumps(rules("log", metadata={"a": READ})),
            )


def test_what_is_masked_for_people_is_not_masked_for_rules(service: ginnel.Service) -> None:
    """A secret that is called as a field of a result may not change what later rules decide."""
    login = {
        "type": "basic-auth",
        "config": {"enforce": False, "credentials": [f"{READ}:long enough"]},
    }
    authorized = "actions.ngrok.basic_auth.credentials.authorized"
    deny: dict[str, Any] = {"expressions": [f"!{authorized}"], "actions": [{"type": "deny"}]}
    answer = {"type": "custom-response", "config": {"status_code": 200, "content": "in"}}
    policy = {"on_http_request": [{"actions": [login]}, deny, {"actions": [answer]}]}
    with service.client() as remote:
        remote.vaults.create(name="app")
        remote.vault_secrets.create(name="password", value="auth", vault_name="app")
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=json.dumps(policy))

    credentials = base64.b64encode(b"auth:long enough").decode()
    assert visit(service)[0] == 403
    assert visit(service, {"Authorization": f"Basic {credentials}"}) == (200, b"in")


def test_trying_a_policy_names_secrets_and_knows_none() -> None:
    report = ginnel.policy.test(respond(READ), request="http://localhost/")

    assert report.response is not None
    assert report.response.body == "[app/password]"
