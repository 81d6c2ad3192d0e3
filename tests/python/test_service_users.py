"""Service users: the accounts of bot users by another name."""

from __future__ import annotations

from typing import Any

import pytest

import ginnel
from postgres import ON_BOTH_STORES
from processes import wait_until


@ON_BOTH_STORES
async def test_a_service_user_is_a_bot_user(client: Any, service: ginnel.Service) -> None:
    made = await client.service_users.create(name="ci")
    bot = await client.bot_users.create(name="other", active=False)

    assert made.id.startswith("bot_")
    assert made.active is True
    assert made.uri == f"{service.url}/service_users/{made.id}"
    same = await client.bot_users.get(made.id)
    assert (same.name, same.created_at) == ("ci", made.created_at)
    assert same.uri == f"{service.url}/bot_users/{made.id}"
    listed = [user async for user in client.service_users.list()]
    assert [(user.id, user.active) for user in listed] == [(bot.id, False), (made.id, True)]
    with pytest.raises(ginnel.ConflictError):
        await client.service_users.update(made.id, name="other")
    renamed = await client.service_users.update(made.id, name="deploy")
    assert (renamed.name, renamed.uri) == ("deploy", made.uri)
    await client.service_users.delete(made.id)
    with pytest.raises(ginnel.NotFoundError):
        await client.bot_users.get(made.id)


@ON_BOTH_STORES
async def test_the_key_of_a_service_user_works_while_that_is_active(
    client: Any, service: ginnel.Service, make_client: Any
) -> None:
    user = await client.service_users.create(name="ci")
    key = await client.api_keys.create(owner_id=user.id)
    own = make_client(key.token, base_url=service.url)
    assert (await own.service_users.get(user.id)).name == "ci"
    with pytest.raises(ginnel.PermissionDeniedError):
        await own.service_users.create(name="more")

    await client.service_users.update(user.id, active=False)

    with pytest.raises(ginnel.AuthenticationError):
        await own.service_users.get(user.id)
    await client.service_users.update(user.id, active=True)
    assert (await own.service_users.get(user.id)).active
    await client.service_users.delete(user.id)
    with pytest.raises(ginnel.AuthenticationError):
        await own.api_keys.get(key.id)


def test_the_agent_of_a_service_user_is_let_go_when_that_is_inactive(
    service: ginnel.Service,
) -> None:
    with service.client() as remote:
        user = remote.service_users.create(name="ci")
        credential = remote.credentials.create(owner_id=user.id)
        assert credential.token is not None
        with ginnel.Agent(service, authtoken=credential.token) as agent:
            with agent.client() as local:
                local.tunnels.start(name="web", addr="1", proto="http")
            assert len(remote.tunnels.list().to_list()) == 1

            remote.service_users.update(user.id, active=False)

            wait_until(lambda: agent.state == "offline", "the agent is refused")
            assert remote.tunnels.list().to_list() == []
