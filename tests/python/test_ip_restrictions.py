"""IP restrictions: the API, the console, agents and visitors are held to them."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from ginnel.remote.audit_events import AuditEvent
from postgres import ON_BOTH_STORES
from processes import wait_until
from recorder import Recorder, get

ELSEWHERE = {"X-Forwarded-For": "192.0.2.1"}
"""A caller at another address, for whom a trusted proxy comes."""


def policy(remote: ginnel.RemoteClient, *allow: str) -> str:
    """An IP policy that allows some ranges."""
    made = remote.ip_policies.create()
    for cidr in allow:
        remote.ip_policy_rules.create(ip_policy_id=made.id, cidr=cidr, action="allow")
    return made.id


def call(service: ginnel.Service, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """The response to a call with the admin key."""
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
    key = {"Authorization": f"Bearer {service.api_key}"}
    connection.request("GET", path, headers=key | headers)
    response = connection.getresponse()
    try:
        return response.status, response.read()
    finally:
        connection.close()


@pytest.fixture
def proxied(storage: dict[str, Any]) -> Iterator[ginnel.Service]:
    """A service that believes this machine for whom it comes."""
    with ginnel.Service(trusted_proxies=["127.0.0.1"], **storage) as service:
        yield service


@ON_BOTH_STORES
async def test_a_restriction_lives_from_create_to_delete(
    client: Any, service: ginnel.Service
) -> None:
    with service.client() as remote:
        first, second = policy(remote, "10.0.0.0/8"), policy(remote)

    made = await client.ip_restrictions.create(
        type="agent", ip_policy_ids=[first], description="d", metadata="m"
    )

    assert made.id.startswith("ipx_")
    assert (made.type, made.enforced, made.description) == ("agent", False, "d")
    assert [it.id for it in made.ip_policies] == [first]
    assert made.ip_policies[0].uri.endswith(f"/ip_policies/{first}")
    assert await client.ip_restrictions.get(made.id) == made
    # As generated clients send an update of one field.
    changed = await client.ip_restrictions.update(made.id, enforced=True, ip_policy_ids=[])
    assert (changed.enforced, changed.metadata, changed.ip_policies) == (
        True,
        "m",
        made.ip_policies,
    )
    replaced = await client.ip_restrictions.update(made.id, ip_policy_ids=[second])
    assert [it.id for it in replaced.ip_policies] == [second]
    assert [it async for it in client.ip_restrictions.list()] == [replaced]
    await client.ip_policies.delete(first)
    with pytest.raises(ginnel.ConflictError, match=made.id):
        await client.ip_policies.delete(second)
    await client.ip_restrictions.delete(made.id)
    await client.ip_policies.delete(second)
    with service.client() as admin:
        events = admin.audit_events.list(resource_id=made.id).to_list()
    assert [event.operation for event in events] == [
        "ip_restrictions.delete",
        "ip_restrictions.update",
        "ip_restrictions.update",
        "ip_restrictions.create",
    ]


@ON_BOTH_STORES
def test_the_api_is_for_allowed_addresses(proxied: ginnel.Service) -> None:
    with proxied.client() as remote:
        allowed = policy(remote, "127.0.0.0/8")
        assert call(proxied, "/ip_policies", ELSEWHERE)[0] == 200

        made = remote.ip_restrictions.create(type="api", ip_policy_ids=[allowed], enforced=True)

        status, body = call(proxied, "/ip_policies", ELSEWHERE)
        assert (status, b"ERR_NGROK_9743" in body) == (403, True)
        assert call(proxied, "/", ELSEWHERE)[0] == 403
        assert call(proxied, "/ip_policies", {})[0] == 200
        rule = remote.ip_policy_rules.create(
            ip_policy_id=allowed, cidr="192.0.2.0/24", action="allow"
        )
        assert call(proxied, "/ip_policies", ELSEWHERE)[0] == 200
        remote.ip_policy_rules.delete(rule.id)
        assert call(proxied, "/ip_policies", ELSEWHERE)[0] == 403
        remote.ip_restrictions.update(made.id, enforced=False)
        assert call(proxied, "/ip_policies", ELSEWHERE)[0] == 200


def test_a_refused_call_is_in_the_audit_trail() -> None:
    with ginnel.Service(trusted_proxies=["127.0.0.1"]) as service, service.client() as remote:
        allowed = policy(remote, "127.0.0.0/8")
        remote.ip_restrictions.create(type="api", ip_policy_ids=[allowed], enforced=True)
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
        key = {"Authorization": f"Bearer {service.api_key}", "Content-Type": "application/json"}

        connection.request("POST", "/ip_policies", b"{}", headers=key | ELSEWHERE)
        assert connection.getresponse().status == 403
        connection.close()

        def refused() -> list[AuditEvent]:
            events = remote.audit_events.list(operation="ip_policies.create").to_list()
            return [event for event in events if event.outcome == "refused"]

        wait_until(refused, "the event of a refused call")
        [event] = refused()
        assert (event.address, event.error_code) == ("192.0.2.1", "ERR_NGROK_9743")


def test_a_restriction_holds_after_a_restart(tmp_path: Any) -> None:
    options: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"]}
    with ginnel.Service(tmp_path / "a.db", **options) as service, service.client() as remote:
        key = service.api_key
        allowed = policy(remote, "127.0.0.0/8")
        remote.ip_restrictions.create(type="api", ip_policy_ids=[allowed], enforced=True)

    with ginnel.Service(tmp_path / "a.db", api_key=key, **options) as service:
        assert call(service, "/ip_policies", ELSEWHERE)[0] == 403
        assert call(service, "/ip_policies", {})[0] == 200


def test_a_restriction_holds_on_all_nodes(store: str) -> None:
    options: dict[str, Any] = {"store": store, "trusted_proxies": ["127.0.0.1"]}
    one = ginnel.Service(settings={"node_name": "one"}, **options)
    with one, ginnel.Service(settings={"node_name": "two"}, **options) as two:
        with one.client() as remote:
            allowed = policy(remote, "127.0.0.0/8")
            remote.ip_restrictions.create(type="api", ip_policy_ids=[allowed], enforced=True)

        def refuses() -> bool:
            connection = http.client.HTTPConnection(urlsplit(two.url).netloc, timeout=20)
            key = {"Authorization": f"Bearer {one.api_key}"}
            connection.request("GET", "/ip_policies", headers=key | ELSEWHERE)
            status = connection.getresponse().status
            connection.close()
            return status == 403

        wait_until(refuses, "the other node to refuse")


def test_the_console_is_for_allowed_addresses(proxied: ginnel.Service) -> None:
    with proxied.client() as remote:
        allowed = policy(remote, "127.0.0.0/8")
        remote.ip_restrictions.create(type="dashboard", ip_policy_ids=[allowed], enforced=True)
    statuses = []
    for headers in (ELSEWHERE, {}):
        connection = http.client.HTTPConnection(urlsplit(proxied.url).netloc, timeout=20)
        key = {"Authorization": f"Bearer {proxied.api_key}", "Content-Type": "application/json"}
        connection.request("POST", "/console/session", b"{}", headers=key | headers)
        statuses.append(connection.getresponse().status)
        connection.close()

    assert statuses == [403, 200]
    assert call(proxied, "/ip_policies", ELSEWHERE)[0] == 200
    for path in (
        "/console/",
        "/console/console.js",
        "/console/session",
        "/console/api/ip_policies",
    ):
        assert call(proxied, path, ELSEWHERE)[0] == 403, path
    assert call(proxied, "/console/", {})[0] == 200


def test_only_admins_change_what_a_restriction_means(service: ginnel.Service) -> None:
    with service.client() as remote:
        allowed = policy(remote, "127.0.0.0/8")
        free = policy(remote)
        remote.ip_restrictions.create(type="endpoints", ip_policy_ids=[allowed], enforced=True)
        [rule] = remote.ip_policy_rules.list()
        bot = remote.bot_users.create(name="bot")
        token = remote.api_keys.create(owner_id=bot.id).token

    with ginnel.RemoteClient(token, base_url=service.url) as other:
        other.ip_policy_rules.create(ip_policy_id=free, cidr="0.0.0.0/0", action="allow")
        with pytest.raises(ginnel.PermissionDeniedError):
            other.ip_policy_rules.create(ip_policy_id=allowed, cidr="0.0.0.0/0", action="allow")
        with pytest.raises(ginnel.PermissionDeniedError):
            other.ip_policy_rules.update(rule.id, cidr="10.0.0.0/8")
        with pytest.raises(ginnel.PermissionDeniedError):
            other.ip_policy_rules.delete(rule.id)


def test_agents_log_in_from_allowed_addresses(service: ginnel.Service) -> None:
    with service.client() as remote, ginnel.Agent(service) as before:
        allowed = policy(remote, "192.0.2.0/24")
        made = remote.ip_restrictions.create(type="agent", ip_policy_ids=[allowed], enforced=True)

        with pytest.raises(ginnel.AgentError, match="ERR_NGROK_9743"):
            ginnel.Agent(service, timeout=20)

        # Who is logged in stays.
        assert before.state == "online"
        remote.ip_restrictions.update(made.id, enforced=False)
        with ginnel.Agent(service, timeout=20) as agent:
            assert agent.state == "online"


@pytest.mark.parametrize("listens", [False, True])
def test_visitors_come_from_allowed_addresses(proxied: ginnel.Service, listens: bool) -> None:
    with (
        Recorder() as upstream,
        proxied.client() as remote,
        ginnel.Agent(proxied) as agent,
        agent.client() as here,
    ):
        # With a listener, requests take the full path.
        events = proxied.events() if listens else None
        web = here.tunnels.start(addr=upstream.port, proto="http", name="web")
        place = web.public_url.removeprefix("http://")
        line = "X-Forwarded-For: 192.0.2.1"
        assert get(place, place, "/")[0] == get(place, place, "/", line)[0] == 200
        allowed = policy(remote, "127.0.0.0/8")

        made = remote.ip_restrictions.create(
            type="endpoints", ip_policy_ids=[allowed], enforced=True
        )

        status, _, body = get(place, place, "/", line)
        assert (status, b"3205" in body) == (403, True)
        assert get(place, place, "/")[0] == 200
        if events:
            seen = [events.get(timeout=10) for _ in range(4)]
            modules = [event.module for event in seen if event]
            assert modules == [None, None, "ip_restriction", None]
        remote.ip_restrictions.delete(made.id)
        assert get(place, place, "/", line)[0] == 200


def test_connections_of_others_are_closed(service: ginnel.Service) -> None:
    with (
        Recorder() as upstream,
        service.client() as remote,
        ginnel.Agent(service) as agent,
        agent.client() as here,
    ):
        web = here.tunnels.start(addr=upstream.port, proto="http", name="web")
        bytes_only = here.tunnels.start(addr=upstream.port, proto="tcp", name="db")
        edge = remote.edges.https.create(hostports=["a.example.test:80"])
        page = remote.backends.static.create(address=upstream.address)
        remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": page.id}
        )
        assert service.http_url
        places = [
            (web.public_url.removeprefix("http://"), "a.test"),
            (service.http_url.removeprefix("http://"), "a.example.test"),
        ]
        address = bytes_only.public_url.removeprefix("tcp://")
        for place, host in [*places, (address, "a.test")]:
            assert get(place, host, "/")[0] == 200

        restriction = remote.ip_restrictions.create(
            type="endpoints", ip_policy_ids=[policy(remote, "192.0.2.0/24")], enforced=True
        )

        for place, host in places:
            assert get(place, host, "/")[0] == 403
        with pytest.raises((AssertionError, ConnectionError)):
            get(address, "a.test", "/")
        seen = len(upstream.heads)
        remote.ip_restrictions.update(restriction.id, enforced=False)
        for place, host in [*places, (address, "a.test")]:
            assert get(place, host, "/")[0] == 200
        assert len(upstream.heads) == seen + 3


def test_what_is_not_enforced_is_logged(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture
) -> None:
    with service.client() as remote, caplog.at_level(logging.WARNING, logger="ginnel"):
        made = remote.ip_restrictions.create(type="api", ip_policy_ids=[policy(remote)])

        remote.ip_policies.list().to_list()

        def said() -> bool:
            return any(made.id in record.getMessage() for record in caplog.records)

        wait_until(said, "a warning")


def test_whoever_is_locked_out_comes_back_by_a_setting(tmp_path: Path) -> None:
    store = str(tmp_path / "ginnel.db")
    with ginnel.Service(path=store) as service, service.client() as remote:
        here = policy(remote, "127.0.0.1/32")
        two = [
            remote.ip_restrictions.create(type="api", ip_policy_ids=[here], enforced=True).id
            for _ in range(2)
        ]
        key = service.api_key
    elsewhere: dict[str, Any] = {"path": store, "settings": {"host": "::1"}}
    with (
        ginnel.Service(**elsewhere) as service,
        ginnel.RemoteClient(key, base_url=service.url) as remote,
        pytest.raises(ginnel.PermissionDeniedError, match="IP restriction"),
    ):
        remote.ip_restrictions.get(two[0])

    elsewhere["settings"]["enforce_ip_restrictions"] = False
    with (
        ginnel.Service(**elsewhere) as service,
        ginnel.RemoteClient(key, base_url=service.url) as remote,
    ):
        remote.ip_restrictions.delete(two[0])
        remote.ip_restrictions.update(two[1], enforced=False)
