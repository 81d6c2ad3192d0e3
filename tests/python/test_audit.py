"""The audit trail as the clients and the command see it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import ginnel
from postgres import ON_BOTH_STORES

pytestmark = ON_BOTH_STORES


def test_events_are_listed_by_what_they_are_about(service: ginnel.Service) -> None:
    with service.client() as remote:
        first = remote.ip_policies.create(description="first")
        second = remote.ip_policies.create(description="second")
        remote.ip_policies.delete(first.id)
        now = datetime.now(UTC)

        of_first = remote.audit_events.list(resource_id=first.id).to_list()
        created = remote.audit_events.list(operation="ip_policies.create", limit=1).to_list()
        earlier = remote.audit_events.list(created_before=now - timedelta(hours=1)).to_list()
        later = remote.audit_events.list(created_after=now - timedelta(hours=1)).to_list()

        assert [event.operation for event in of_first] == [
            "ip_policies.delete",
            "ip_policies.create",
        ]
        assert [event.resource_ids for event in created] == [[second.id], [first.id]]
        assert (earlier, len(later)) == ([], 3)
        assert remote.audit_events.get(of_first[0].id) == of_first[0]
        assert isinstance(of_first[0].created_at, datetime)


async def test_events_are_listed_by_the_asyncio_client(service: ginnel.Service) -> None:
    async with service.async_client() as remote:
        policy = await remote.ip_policies.create()
        events = [event async for event in remote.audit_events.list(principal=None)]
        found = await remote.audit_events.get(events[0].id)
    assert (found.operation, found.resource_ids) == ("ip_policies.create", [policy.id])


def test_a_time_without_a_time_zone_is_no_moment(service: ginnel.Service) -> None:
    with (
        service.client() as remote,
        pytest.raises(ginnel.ValidationError, match="a datetime with a time zone"),
    ):
        remote.audit_events.list(created_after=datetime(2026, 1, 2)).first()


def test_the_command_lists_events(service: ginnel.Service) -> None:
    with service.client() as remote:
        policy = remote.ip_policies.create()
        command = [sys.executable, "-m", "ginnel", "api", "audit-events", "list", "-o", "json"]
        listed = subprocess.run(
            [*command, "--resource-id", policy.id],
            env={"GINNEL_API_KEY": service.api_key or "", "GINNEL_BASE_URL": service.url},
            capture_output=True,
            text=True,
            check=True,
        )
    (event,) = json.loads(listed.stdout)
    assert (event["operation"], event["outcome"]) == ("ip_policies.create", "success")
