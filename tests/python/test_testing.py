"""The fixtures of `ginnel.testing`, and what a service offers to tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ginnel
from ginnel.testing import ServiceCall


def test_fixtures_come_without_being_asked_for(
    ginnel_service: ginnel.Service, ginnel_remote: ginnel.RemoteClient
) -> None:
    made = ginnel_remote.api_keys.create(description="ci")

    assert ginnel_remote.base_url == ginnel_service.url
    assert ginnel_service.client().api_keys.get(made.id).description == "ci"


async def test_the_asyncio_client_works_in_the_loop_of_a_plugin(
    ginnel_async_remote: ginnel.AsyncRemoteClient,
) -> None:
    made = await ginnel_async_remote.ip_policies.create(description="office")

    assert [policy.id async for policy in ginnel_async_remote.ip_policies.list()] == [made.id]


async def test_calls_are_told_as_the_service_took_them(
    client: Any, service: ginnel.Service
) -> None:
    key = await client.api_keys.create(description="ci")
    await client.api_keys.list(limit=5).first()
    with pytest.raises(ginnel.NotFoundError):
        await client.api_keys.get("ak_" + "0" * 27)
    with pytest.raises(ginnel.BadRequestError):
        await client.request("PATCH", f"/api_keys/{key.id}", json={"description": 7})

    made, listed, missed, refused = service.calls
    assert made == ServiceCall(
        operation="api_keys.create",
        method="POST",
        path="/api_keys",
        query=None,
        arguments={"description": "ci"},
        status=201,
    )
    assert (listed.operation, listed.query, listed.status) == ("api_keys.list", "limit=5", 200)
    assert listed.arguments == {"limit": 5}
    assert (missed.operation, missed.arguments, missed.status) == (
        "api_keys.get",
        {"id": "ak_" + "0" * 27},
        404,
    )
    assert (refused.path, refused.arguments, refused.status) == (f"/api_keys/{key.id}", None, 400)


async def test_a_call_fails_as_often_as_it_was_asked_to(
    client: Any, service: ginnel.Service
) -> None:
    service.fail("api_keys.list", status=503, times=2, retry_after=0)

    assert await client.ip_policies.list().to_list() == []
    assert len(await client.api_keys.list().to_list()) == 1

    assert [(call.operation, call.status) for call in service.calls] == [
        ("ip_policies.list", 200),
        ("api_keys.list", 503),
        ("api_keys.list", 503),
        ("api_keys.list", 200),
    ]


async def test_an_answer_can_be_late_or_break_off(
    service: ginnel.Service, make_client: Any
) -> None:
    hasty = make_client(service.api_key, base_url=service.url, timeout=0.3, max_retries=0)

    service.fail("api_keys.list", delay=5, times=1)
    with pytest.raises(ginnel.APITimeoutError):
        await hasty.api_keys.list().first()
    service.fail(cut=True)
    with pytest.raises(ginnel.APIConnectionError) as broken:
        await hasty.ip_policies.list().first()
    assert not isinstance(broken.value, ginnel.APITimeoutError)
    service.fail("bot_users.list", delay=0.05)
    assert await hasty.bot_users.list().to_list() == []

    assert [(call.operation, call.status) for call in service.calls] == [
        ("ip_policies.list", None),
        ("bot_users.list", 200),
    ]


async def test_a_retried_call_gets_past_a_broken_one(client: Any, service: ginnel.Service) -> None:
    service.fail(cut=True)

    assert await client.ip_policies.list().to_list() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"operation": "api_keys.dance"}, LookupError),
        ({"status": 200}, ValueError),
        ({"status": 503, "times": 0}, ValueError),
        ({"delay": -1.0}, ValueError),
    ],
)
def test_a_fault_that_cannot_be(
    service: ginnel.Service, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        service.fail(**options)


async def test_reset_forgets_faults_calls_and_data(client: Any, service: ginnel.Service) -> None:
    key = (await client.api_keys.create()).id
    service.fail(status=500, times=None)

    service.reset()

    with pytest.raises(ginnel.NotFoundError):
        await client.api_keys.get(key)
    assert len(await client.api_keys.list().to_list()) == 1
    assert [call.operation for call in service.calls] == ["api_keys.get", "api_keys.list"]


async def test_a_snapshot_can_be_returned_to_again_and_again(
    client: Any, service: ginnel.Service, make_client: Any
) -> None:
    edge = await client.edges.https.create(hostports=["app.test:443"])
    backend = await client.backends.tunnel_group.create(labels={"a": "b"})
    failover = await client.backends.failover.create(backends=[backend.id])
    key = await client.api_keys.create()
    state = service.snapshot()
    listed = await client.backends.failover.list().to_list()

    for _ in range(2):
        await client.edges.https.delete(edge.id)
        await client.backends.failover.delete(failover.id)
        await client.api_keys.delete(key.id)
        later = await client.edges.https.create(hostports=["app.test:443"])
        assert later.id > edge.id

        service.restore(state)

        assert await client.edges.https.get(edge.id) == edge
        assert await client.backends.failover.list().to_list() == listed
        with pytest.raises(ginnel.NotFoundError):
            await client.edges.https.get(later.id)
        with pytest.raises(ginnel.ConflictError):
            await client.backends.tunnel_group.delete(backend.id)
        other = make_client(key.token, base_url=service.url)
        assert (await other.api_keys.get(key.id)).id == key.id


def test_a_database_in_a_file_is_not_emptied(tmp_path: Path) -> None:
    with ginnel.Service(tmp_path / "ginnel.db") as service, service.client() as remote:
        key = remote.api_keys.create().id

        service.reset()

        assert remote.api_keys.get(key).id == key


def test_a_service_that_has_stopped_says_so(service: ginnel.Service) -> None:
    service.stop()

    with pytest.raises(ginnel.ServiceError, match="has stopped"):
        service.fail(status=500)


async def test_no_connection_leaves_this_machine(
    ginnel_loopback_only: None, service: ginnel.Service, make_client: Any
) -> None:
    import socket

    here = make_client(service.api_key, base_url=service.url)
    away = make_client("k", base_url="https://192.0.2.1", timeout=5, max_retries=0)

    assert await here.api_keys.list().first()
    began = time.monotonic()
    with pytest.raises(ginnel.APIConnectionError, match="only this machine is allowed"):
        await away.api_keys.list().first()
    with pytest.raises(OSError, match="is not this machine"):
        socket.create_connection(("192.0.2.1", 80), timeout=5)
    with pytest.raises(OSError, match="is not this machine"):
        await asyncio.open_connection("192.0.2.1", 80)
    assert time.monotonic() - began < 4


def test_the_plugin_works_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(ginnel_service, ginnel_remote):\n"
        "    ginnel_service.fail('api_keys.list', status=429, retry_after=0)\n"
        "    assert ginnel_remote.api_keys.list().first()\n"
        "    assert [call.status for call in ginnel_service.calls] == [429, 200]\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout
