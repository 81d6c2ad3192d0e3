"""The resources of the management API, through both clients."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import ginnel
from postgres import ON_BOTH_STORES

pytestmark = ON_BOTH_STORES


async def test_the_token_is_told_once(client: Any) -> None:
    created = await client.api_keys.create(description="ci")

    assert isinstance(created.created_at, datetime)
    assert created.token
    assert created.token not in f"{created!r} {created}"
    assert (await client.api_keys.get(created.id)).token is None


async def test_a_new_key_works_and_a_deleted_one_does_not(
    client: Any, service: ginnel.Service, make_client: Any
) -> None:
    created = await client.api_keys.create()
    other = make_client(created.token, base_url=service.url)
    assert (await other.api_keys.get(created.id)).id == created.id

    await client.api_keys.delete(created.id)

    with pytest.raises(ginnel.AuthenticationError) as refused:
        await other.api_keys.get(created.id)
    assert refused.value.status_code == 403
    assert created.token not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "arguments", "change"),
    [
        ("api_keys", {}, {"description": "d"}),
        ("ip_policies", {}, {"metadata": "m"}),
        ("backends.tunnel_group", {"labels": {"a": "b"}}, {"labels": {}}),
        ("backends.failover", {"backends": []}, {"description": ""}),
        ("backends.http_response", {"body": "hi", "status_code": 201}, {"body": ""}),
        ("backends.weighted", {"backends": {}}, {"metadata": "m"}),
        ("backends.static_", {"address": "localhost:80"}, {"address": "localhost:81"}),
        ("edges.https", {"hostports": ["a.test:443"]}, {"hostports": []}),
        ("edges.tcp", {}, {"description": "d"}),
        ("edges.tls", {"hostports": ["b.test:443"]}, {"hostports": ["*.c.test:443"]}),
        ("credentials", {"acl": ["bind:*.a.test"]}, {"acl": []}),
        ("bot_users", {"name": "bot"}, {"active": False}),
    ],
)
async def test_a_resource_lives_from_create_to_delete(
    client: Any, path: str, arguments: dict[str, object], change: dict[str, object]
) -> None:
    resource = client
    for name in path.removesuffix("_").split("."):
        resource = getattr(resource, name)

    created = await resource.create(**arguments)
    for name, value in arguments.items():
        assert getattr(created, name) == value
    updated = await resource.update(created.id, **change)
    for name, value in change.items():
        assert getattr(updated, name) == value
    assert await resource.get(created.id) == updated
    assert updated in await resource.list().to_list()
    await resource.delete(created.id)

    with pytest.raises(ginnel.NotFoundError):
        await resource.get(created.id)


async def test_modules_are_replaced_read_and_deleted(client: Any) -> None:
    edge = await client.edges.https.create()
    route = await client.edges.https.routes.create(edge.id, match_type="path_prefix", match="/")
    rule = {"name": "n", "expressions": ["true"], "actions": [{"type": "deny", "config": None}]}

    policy = await client.edges.https.routes.policy.replace(edge.id, route.id, inbound=[rule])

    assert policy.enabled is True
    assert policy.outbound is None
    assert policy.inbound[0].actions[0].type == "deny"
    again = await client.edges.https.routes.policy.replace(
        edge.id, route.id, inbound=policy.inbound
    )
    assert again == policy
    assert (await client.edges.https.get(edge.id)).routes[0].policy == policy
    await client.edges.https.routes.policy.delete(edge.id, route.id)
    with pytest.raises(ginnel.NotFoundError):
        await client.edges.https.routes.policy.get(edge.id, route.id)


async def test_a_policy_that_cannot_work_is_refused_with_its_code(client: Any) -> None:
    edge = await client.edges.tcp.create()
    rule = {"name": "n", "expressions": ["1 +"], "actions": [{"type": "deny"}]}

    with pytest.raises(ginnel.BadRequestError) as refused:
        await client.edges.tcp.policy.replace(edge.id, inbound=[rule])

    assert refused.value.error_code == "ERR_NGROK_2200"
    assert "inbound[0].expressions[0]" in str(refused.value)


async def test_patch_clears_what_is_empty_and_keeps_what_is_none(client: Any) -> None:
    group = await client.backends.tunnel_group.create(labels={"a": "b"}, description="d")

    kept = await client.backends.tunnel_group.update(group.id, description=None, metadata="m")
    cleared = await client.backends.tunnel_group.update(group.id, description="", labels={})

    assert (kept.description, kept.labels) == ("d", {"a": "b"})
    assert (cleared.description, cleared.labels, cleared.metadata) == ("", {}, "m")


async def test_pages_hold_everything_once_newest_first(client: Any) -> None:
    made = [(await client.ip_policies.create(description=str(n))).id for n in range(25)]

    pages = [[item.id for item in page] async for page in client.ip_policies.list(limit=10).pages()]

    assert [len(page) for page in pages] == [10, 10, 5]
    assert [id for page in pages for id in page] == made[::-1]
    assert len(await client.ip_policies.list(limit=10).to_list(limit=12)) == 12


async def test_an_identifier_cannot_leave_its_place(client: Any) -> None:
    with pytest.raises(ginnel.NotFoundError):
        await client.api_keys.get("a/../b?x=1")
    for wrong in ("", "..", "."):
        with pytest.raises(ginnel.ValidationError, match=r"^id: "):
            await client.api_keys.get(wrong)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"description": "é" * 128}, "description: is 256 bytes long, the limit is 255"),
        ({"description": 7}, "description: must be a str, not int"),
        ({"metadata": b"m"}, "metadata: must be a str, not bytes"),
    ],
)
async def test_bad_arguments_are_named_before_anything_is_sent(
    client: Any, arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(ginnel.ValidationError) as refused:
        await client.api_keys.create(**arguments)

    assert str(refused.value) == problem


async def test_text_is_no_list(client: Any) -> None:
    with pytest.raises(ginnel.ValidationError, match="backends: must be a list, not str"):
        await client.backends.failover.create(backends="bkdtg_x")


async def test_any_path_can_be_asked_for(client: Any) -> None:
    created = await client.request("POST", "/ip_policies", json={"description": "d"})

    listed = await client.request("GET", "/ip_policies", query={"limit": 1})

    assert listed["ip_policies"] == [created]
