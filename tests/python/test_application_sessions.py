"""Sessions of visitors, and those who have them: listed, and ended on every node."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import ginnel
import mmdb
import postgres
from issuer import CLIENT_SECRET, Issuer
from postgres import ON_BOTH_STORES
from processes import wait_until
from recorder import Recorder
from test_missed_changes import Node
from test_openid_connect import HOST, PASS, Endpoint, code
from visitor import Visitor

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
SOON = 3.0
"""How long it takes at most until another node knows that a session has ended, in seconds: one, and
what a slow machine needs beside."""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        issuer.userinfo = {"name": "Ada Lovelace", "preferred_username": "ada"}
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


@pytest.fixture
def endpoint(service: ginnel.Service, upstream: Recorder, issuer: Issuer) -> Iterator[Endpoint]:
    endpoint = Endpoint(service, upstream, issuer)
    yield endpoint
    endpoint.remote.close()


@pytest.fixture
def nodes(store: str) -> Iterator[tuple[ginnel.Service, ginnel.Service]]:
    with (
        ginnel.Service(store=store, settings={"node_name": "one"}) as first,
        ginnel.Service(store=store, settings={"node_name": "two"}) as second,
    ):
        yield first, second


def logged_in(endpoint: Endpoint, service: ginnel.Service | None = None) -> Visitor:
    visitor = Visitor(service or endpoint.service, HOST)
    assert visitor.go(visitor.begin(), User_Agent=FIREFOX).status == 302
    assert visitor.go().status == 200
    return visitor


@ON_BOTH_STORES
async def test_who_has_logged_in_is_listed(client: Any, endpoint: Endpoint) -> None:
    endpoint.serve(idle_session_timeout="1h")
    visitor = logged_in(endpoint)

    [user] = await client.application_users.list().to_list()
    [session] = await client.application_sessions.list().to_list()

    assert user.id.startswith("au_")
    assert user.uri == f"{endpoint.service.url}/app/users/{user.id}"
    assert user.identity_provider.url == endpoint.issuer.url
    assert user.identity_provider.name == "127.0.0.1"
    assert (user.provider_user_id, user.username) == ("248289761001", "ada")
    assert (user.email, user.name) == ("ada@example.com", "Ada Lovelace")
    assert user.created_at == user.last_login == user.last_active == session.created_at
    assert session.id.startswith("as_")
    assert session.uri == f"{endpoint.service.url}/app/sessions/{session.id}"
    assert (session.application_user.id, session.application_user.uri) == (user.id, user.uri)
    assert session.public_url == f"https://{HOST}"
    browser = session.browser_session
    assert browser.ip_address == "127.0.0.1"
    assert browser.location is None
    agent = browser.user_agent
    assert (agent.raw, agent.device_type, agent.os_name) == (FIREFOX, "Desktop", "Linux")
    assert (agent.browser_name, agent.browser_version) == ("Firefox", "128.0")
    assert 3590 <= (session.expires_at - session.created_at).total_seconds() <= 3610
    edge, route = endpoint.ids[HOST]
    assert (session.edge.id, session.route.id, session.endpoint) == (edge, route, None)
    assert session.edge.uri == f"{endpoint.service.url}/edges/https/{edge}"
    assert session.route.uri == f"{session.edge.uri}/routes/{route}"
    assert await client.application_users.get(user.id) == user
    assert await client.application_sessions.get(session.id) == session
    assert visitor.go().status == 200


@ON_BOTH_STORES
async def test_a_session_that_is_deleted_has_ended(client: Any, endpoint: Endpoint) -> None:
    endpoint.serve()
    ended, other = logged_in(endpoint), logged_in(endpoint)
    _, session = await client.application_sessions.list().to_list()

    await client.application_sessions.delete(session.id)

    assert ended.go().status == 302
    assert code(ended.send("/").headers) == "3445"
    assert other.go().status == 200
    with pytest.raises(ginnel.NotFoundError):
        await client.application_sessions.get(session.id)
    with pytest.raises(ginnel.NotFoundError):
        await client.application_sessions.delete(session.id)
    assert ended.log_in().status == 302, "they may come again"
    assert ended.go().status == 200
    assert len(await client.application_sessions.list().to_list()) == 2
    assert len(await client.application_users.list().to_list()) == 1


@ON_BOTH_STORES
async def test_a_user_is_deleted_with_all_sessions(client: Any, endpoint: Endpoint) -> None:
    endpoint.serve()
    sessions = [logged_in(endpoint) for _ in range(3)]
    endpoint.issuer.claims["sub"] = "another"
    other = logged_in(endpoint)
    newer, user = await client.application_users.list().to_list()

    await client.application_users.delete(user.id)

    assert [visitor.go().status for visitor in sessions] == [302, 302, 302]
    assert other.go().status == 200
    [session] = await client.application_sessions.list().to_list()
    assert session.application_user.id == newer.id
    with pytest.raises(ginnel.NotFoundError):
        await client.application_users.get(user.id)


async def test_lists_have_pages(client: Any, endpoint: Endpoint) -> None:
    endpoint.serve()
    for number in range(5):
        endpoint.issuer.claims["sub"] = str(number)
        logged_in(endpoint)

    for resource in (client.application_users, client.application_sessions):
        pages = [[row.id for row in page] async for page in resource.list(limit=2).pages()]
        ids = [id for page in pages for id in page]
        assert [len(page) for page in pages] == [2, 2, 1]
        assert ids == sorted(ids, reverse=True)
        assert len(set(ids)) == 5
    users = await client.application_users.list().to_list()
    assert [user.provider_user_id for user in users] == ["4", "3", "2", "1", "0"]


def test_logging_out_and_another_login_end_a_session(endpoint: Endpoint) -> None:
    sessions = endpoint.remote.application_sessions
    endpoint.serve()
    visitor = logged_in(endpoint)
    copy = Visitor(endpoint.service, HOST, cookies=dict(visitor.cookies))
    [first] = sessions.list()

    assert visitor.go(visitor.ask(visitor.go("/ngrok/login").location)).status == 302
    [second] = sessions.list()
    assert second.id != first.id
    assert copy.go().status == 302
    assert visitor.go("/ngrok/logout").status == 200
    assert sessions.list().to_list() == []


@ON_BOTH_STORES
def test_of_those_who_are_not_allowed_in_nothing_is_stored(endpoint: Endpoint) -> None:
    remote = endpoint.remote
    visitor = endpoint.serve(allow_emails=["other@example.com"])

    refused = visitor.log_in()

    assert (refused.status, code(refused.headers)) == (403, "3440")
    assert "To log in as somebody else, go to /ngrok/login." in refused.body
    assert visitor.cookies == {}
    assert remote.application_users.list().to_list() == []
    assert remote.application_sessions.list().to_list() == []
    endpoint.issuer.claims["email"] = "other@example.com"
    assert visitor.log_in().status == 302
    assert visitor.go().status == 200
    assert len(remote.application_users.list().to_list()) == 1


def test_an_issuer_that_ends_a_session_ends_it_everywhere(endpoint: Endpoint) -> None:
    endpoint.serve(userinfo_refresh_interval="1s")
    visitor = logged_in(endpoint)
    endpoint.issuer.refresh_tokens.clear()
    time.sleep(1.1)

    assert visitor.go().status == 302
    sessions = endpoint.remote.application_sessions
    wait_until(lambda: sessions.list().to_list() == [], "the session is gone")


def test_a_cloud_endpoint_is_named(
    service: ginnel.Service, upstream: Recorder, issuer: Issuer
) -> None:
    endpoint = Endpoint(service, upstream, issuer)
    login = {"actions": [{"type": "openid-connect", "config": endpoint.config()}]}
    page = {"type": "custom-response", "config": {"status_code": 200, "content": "in"}}
    with service.client() as remote:
        made = remote.endpoints.create(
            url=f"https://{HOST}",
            type="cloud",
            traffic_policy=json.dumps({"on_http_request": [login, {"actions": [page]}]}),
        )
        logged_in(endpoint)
        [session] = remote.application_sessions.list()

        assert session.endpoint is not None
        assert (session.endpoint.id, session.endpoint.uri) == (made.id, made.uri)
        assert (session.edge, session.route) == (None, None)
    endpoint.remote.close()


def test_where_a_visitor_is_comes_from_the_address_database(
    tmp_path: Path, upstream: Recorder, issuer: Issuer
) -> None:
    here = {
        "country": {"iso_code": "NL"},
        "location": {"latitude": 52.5, "longitude": 4.25, "accuracy_radius": 20},
    }
    database = mmdb.write(tmp_path / "geo.mmdb", {"127.0.0.0/8": here})
    with ginnel.Service(settings={"geo_database": str(database)}) as service:
        endpoint = Endpoint(service, upstream, issuer)
        endpoint.serve()
        logged_in(endpoint)
        [session] = endpoint.remote.application_sessions.list()
        endpoint.remote.close()

    assert session.browser_session
    location = session.browser_session.location
    assert location
    assert (location.country_code, location.lat_long_radius_km) == ("NL", 20)
    assert (location.latitude, location.longitude) == (52.5, 4.25)


def test_a_session_ends_at_every_node(
    nodes: tuple[ginnel.Service, ginnel.Service], upstream: Recorder, issuer: Issuer
) -> None:
    first, second = nodes
    endpoint = Endpoint(first, upstream, issuer)
    remote = endpoint.remote
    probe = endpoint.serve()
    probe.service = second
    wait_until(lambda: probe.send("/").status == 401, "the other node knows the policy")

    def ends_soon(cookies: dict[str, str], what: str) -> None:
        began = time.monotonic()
        assert Visitor(first, HOST, cookies=dict(cookies)).send("/").status == 401
        there = Visitor(second, HOST, cookies=dict(cookies))
        wait_until(lambda: there.send("/").status == 401, f"the other node knows of a {what}")
        assert time.monotonic() - began < SOON, what

    for end in ("session", "user", "logout"):
        visitor = logged_in(endpoint)
        copy = Visitor(second, HOST, cookies=dict(visitor.cookies))
        assert copy.go().status == 200
        [session] = remote.application_sessions.list()
        assert session.application_user
        if end == "session":
            remote.application_sessions.delete(session.id)
        elif end == "user":
            remote.application_users.delete(session.application_user.id)
        else:
            assert visitor.go("/ngrok/logout").status == 200
        ends_soon(copy.cookies, end)
        assert remote.application_sessions.list().to_list() == []
    remote.close()


def test_a_login_ends_once_at_all_nodes(
    nodes: tuple[ginnel.Service, ginnel.Service], upstream: Recorder, issuer: Issuer
) -> None:
    first, second = nodes
    endpoint = Endpoint(first, upstream, issuer)
    visitor = endpoint.serve()
    back = visitor.begin()
    before = dict(visitor.cookies)
    visitor.service = second
    wait_until(lambda: visitor.send("/").status == 401, "the other node knows the policy")

    assert visitor.go(back).status == 302
    again = Visitor(first, HOST, cookies=before)
    answer = again.go(back)

    assert (answer.status, code(answer.headers)) == (400, "3442")
    assert issuer.calls["/token"] == 1, "the issuer does not hear of it"
    assert visitor.go().status == 200
    visitor.service = first
    assert visitor.go().status == 200
    endpoint.remote.close()


def test_what_has_ended_stays_so_after_a_restart(
    tmp_path: Path, upstream: Recorder, issuer: Issuer
) -> None:
    path = tmp_path / "ginnel.sqlite"
    with ginnel.Service(str(path)) as service:
        endpoint = Endpoint(service, upstream, issuer)
        endpoint.serve()
        stays, leaves, deleted = (logged_in(endpoint) for _ in range(3))
        copy = Visitor(service, HOST, cookies=dict(leaves.cookies))
        assert leaves.go("/ngrok/logout").status == 200
        session = next(iter(endpoint.remote.application_sessions.list()))
        endpoint.remote.application_sessions.delete(session.id)
        [session] = endpoint.remote.application_sessions.list()
        time.sleep(1.1)
        assert stays.go().status == 200
        key = service.api_key
        endpoint.remote.close()
    with (
        ginnel.Service(str(path)) as service,
        ginnel.RemoteClient(key, base_url=service.url) as remote,
    ):
        for visitor in (stays, copy, deleted):
            visitor.service = service

        assert [it.go().status for it in (stays, copy, deleted)] == [200, 302, 302]
        [after] = remote.application_sessions.list()
        assert session.last_active
        assert session.expires_at
        assert after.last_active
        assert after.expires_at
        assert after.last_active > session.last_active, "it is stored when a service stops"
        assert after.expires_at > session.expires_at
        [user] = remote.application_users.list()
        assert user.last_active == after.last_active


def test_nothing_that_lets_anybody_in_is_stored(
    tmp_path: Path, upstream: Recorder, issuer: Issuer
) -> None:
    path = tmp_path / "ginnel.sqlite"
    with ginnel.Service(str(path)) as service:
        endpoint = Endpoint(service, upstream, issuer)
        endpoint.serve()
        visitor, other = logged_in(endpoint), logged_in(endpoint)
        secrets = {*visitor.cookies.values(), *issuer.access_tokens, *issuer.refresh_tokens}
        assert secrets
        session = next(iter(endpoint.remote.application_sessions.list()))
        endpoint.remote.application_sessions.delete(session.id)
        assert other.go("/ngrok/login").status == 302
        events = list(endpoint.remote.audit_events.list(resource_id=session.id))
        endpoint.remote.close()

    assert [event.operation for event in events] == ["application_sessions.delete"]
    shown = f"{[event.to_json() for event in events]}"
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir()).decode("latin-1")
    assert session.id in stored
    assert not [secret for secret in secrets if secret in stored or secret in shown]
    assert CLIENT_SECRET not in shown


def test_while_the_database_is_away_known_sessions_go_on(
    upstream: Recorder, issuer: Issuer
) -> None:
    with postgres.running() as server:
        address = server.new_database()
        with ginnel.Service(store=address) as service:
            endpoint = Endpoint(service, upstream, issuer)
            endpoint.serve()
            known, unknown = logged_in(endpoint), Visitor(service, HOST)
            assert unknown.log_in().status == 302
            pending = Visitor(service, HOST)
            back = pending.begin()
            again = Visitor(service, HOST)
            used = again.begin()
            before = dict(again.cookies)
            assert again.go(used).status == 302
            server.stop()

            began = time.monotonic()
            assert known.go().status == 200
            assert time.monotonic() - began < SOON
            for visitor, target in ((unknown, "/"), (pending, back), (known, "/ngrok/logout")):
                began = time.monotonic()
                answer = visitor.go(target)
                assert (answer.status, code(answer.headers)) == (503, "3460"), target
                assert answer.headers["Retry-After"] == "5"
                assert time.monotonic() - began < 6, target
            answer = Visitor(service, HOST, cookies=before).go(used)
            assert (answer.status, code(answer.headers)) == (400, "3442"), "nobody is asked"
            assert known.session, "who is not logged out everywhere has the cookies"
            answer = known.go("/ngrok/logout")
            assert (answer.status, code(answer.headers)) == (503, "3460"), "nor the second time"
            assert known.session
            assert known.go().status == 302, "here it has ended"

            server.start()
            wait_until(lambda: unknown.go().status == 200, "the database is back")
            assert pending.go(back).status == 302, "the login was not used up"
            assert pending.go().status == 200
            assert known.go("/ngrok/logout").status == 200
            assert not known.session
            assert len(endpoint.remote.application_sessions.list().to_list()) == 3
            endpoint.remote.close()


def test_where_nothing_can_be_stored_sessions_are_looked_up(
    postgres_server: postgres.PostgresServer, store: str, upstream: Recorder, issuer: Issuer
) -> None:
    database = store.rpartition("/")[2]
    at = ("-h", "127.0.0.1", "-p", postgres_server.port, "-U", "ginnel", "-d", database)
    hold = "BEGIN; LOCK TABLE ginnel.cluster IN EXCLUSIVE MODE; SELECT pg_sleep(30)"
    of_holder = "FROM pg_locks WHERE granted AND mode = 'ExclusiveLock' AND locktype = 'relation'"
    with ginnel.Service(store=store) as service:
        endpoint = Endpoint(service, upstream, issuer)
        endpoint.serve()
        known, unknown = logged_in(endpoint), Visitor(service, HOST)
        assert unknown.log_in().status == 302
        with postgres_server.run("psql", "-X", "-q", *at, "-c", hold):
            held = f"SELECT count(*) {of_holder}"
            wait_until(lambda: postgres_server.sql(database, held) == "1", "the lock is held")
            answer = known.go("/ngrok/logout")
            assert (answer.status, code(answer.headers)) == (503, "3460")

            assert unknown.go().status == 200

            postgres_server.sql(database, f"SELECT pg_terminate_backend(pid) {of_holder}")
        endpoint.remote.close()


def test_logins_keep_no_other_node_from_writing(upstream: Recorder, issuer: Issuer) -> None:
    with (
        postgres.running(options=("-c", "log_statement=all")) as server,
        ginnel.Service(store=server.new_database()) as service,
    ):
        endpoint = Endpoint(service, upstream, issuer)
        endpoint.serve()
        log = server.folder / "log"
        begins = len(log.read_bytes())
        logged_in(endpoint)
        visitor = logged_in(endpoint)
        assert visitor.go(visitor.ask(visitor.go("/ngrok/login").location)).status == 302
        statements = log.read_bytes()[begins:].decode()
        endpoint.remote.close()

    assert statements.count("INSERT INTO changes") >= 3
    assert "SAVEPOINT" not in statements, "a login runs one statement after the other"


def test_a_session_of_an_identity_that_is_long_is_stored_short(endpoint: Endpoint) -> None:
    endpoint.serve(PASS)
    endpoint.issuer.claims["sub"] = "s" * 600
    endpoint.issuer.userinfo = {"name": "é" * 400}
    logged_in(endpoint)

    [user] = endpoint.remote.application_users.list()

    assert user.provider_user_id == "s" * 512
    assert user.name == "é" * 256


def test_a_node_that_was_away_learns_what_has_ended(
    postgres_server: postgres.PostgresServer, store: str, upstream: Recorder, issuer: Issuer
) -> None:
    host = "away.localhost"
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(ginnel.Service(store=store, settings={"node_name": "one"}))
        endpoint = Endpoint(one, upstream, issuer)
        stack.callback(endpoint.remote.close)
        endpoint.serve(host=host)
        two = Node(store, stack)
        known, ended = (Visitor(one, host, secure=False) for _ in range(2))
        for visitor in (known, ended):
            assert visitor.log_in().status == 302
        node = cast(ginnel.Service, two)
        there = [Visitor(node, host, False, visitor.cookies) for visitor in (known, ended)]
        wait_until(lambda: [it.go().status for it in there] == [200, 200], "the policy is known")
        newest = next(iter(endpoint.remote.application_sessions.list()))

        with two.stopped():
            endpoint.remote.application_sessions.delete(newest.id)
            postgres_server.sql(store.rpartition("/")[2], "DELETE FROM ginnel.changes")

        wait_until(lambda: there[1].send("/").status == 401, "the session has ended", 2)
        assert there[0].go().status == 200
