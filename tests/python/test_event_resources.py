"""Event destinations, subscriptions and sources, as the clients and the command see them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ginnel
from event_receiver import Receiver, quick_service
from postgres import ON_BOTH_STORES

CREATED, UPDATED = "ip_policy_created.v0", "ip_policy_updated.v0"
SECRET = "whsec_" + "c2VjcmV0" * 4
HOOK = {"webhook": {"url": "https://hooks.example.test/in", "secret": SECRET}}


@ON_BOTH_STORES
async def test_a_destination_is_created_changed_and_deleted(client: Any) -> None:
    made = await client.event_destinations.create(
        target=HOOK, description="billing", metadata="m", format="JSON"
    )
    changed = await client.event_destinations.update(made.id, description="new")
    moved = await client.event_destinations.update(
        made.id, target={"otlp": {"url": "http://collector:4318/v1/logs"}}
    )
    listed = [row.id async for row in client.event_destinations.list()]
    fetched = await client.event_destinations.get(made.id)
    await client.event_destinations.delete(made.id)

    assert made.id.startswith("ed_")
    assert made.uri.endswith(f"/event_destinations/{made.id}")
    assert (made.format, made.description, made.metadata) == ("json", "billing", "m")
    assert (changed.description, changed.metadata) == ("new", "m")
    assert (moved.target.webhook, moved.target.otlp.url) == (None, "http://collector:4318/v1/logs")
    assert fetched == moved
    assert listed == [made.id]
    with pytest.raises(ginnel.NotFoundError):
        await client.event_destinations.get(made.id)


@ON_BOTH_STORES
async def test_a_secret_that_is_made_is_shown_once_and_one_that_is_sent_never(client: Any) -> None:
    made = await client.event_destinations.create(target={"webhook": {"url": "http://a.test/"}})
    moved = await client.event_destinations.update(
        made.id, target={"webhook": {"url": "http://b.test/"}}
    )
    sent = await client.event_destinations.create(target=HOOK)
    fetched = await client.event_destinations.get(made.id)

    assert made.target.webhook.secret.startswith("whsec_")
    assert moved.target.webhook.url == "http://b.test/"
    assert {row.target.webhook.secret for row in (moved, sent, fetched)} == {None}


@ON_BOTH_STORES
async def test_a_subscription_has_sources_and_destinations(client: Any) -> None:
    destination = await client.event_destinations.create(target=HOOK)
    made = await client.event_subscriptions.create(
        sources=[{"type": UPDATED}, {"type": CREATED}, {"type": CREATED}],
        destination_ids=[destination.id],
        description="d",
    )
    kept = await client.event_subscriptions.update(made.id, sources=[], metadata="m")
    changed = await client.event_subscriptions.update(made.id, sources=[{"type": CREATED}])
    same = await client.event_subscriptions.update(made.id, destination_ids=[], sources=[])
    other = await client.event_destinations.create(target=HOOK)
    moved = await client.event_subscriptions.update(made.id, destination_ids=[other.id])
    listed = [row.id async for row in client.event_subscriptions.list()]
    await client.event_subscriptions.delete(made.id)

    assert made.id.startswith("esb_")
    assert [source.type for source in made.sources] == [CREATED, UPDATED]
    assert made.sources[0].uri == f"{made.uri}/sources/{CREATED}"
    assert [(row.id, row.uri) for row in made.destinations] == [(destination.id, destination.uri)]
    assert (kept.sources, kept.metadata) == (made.sources, "m")
    assert [source.type for source in changed.sources] == [CREATED]
    assert (same.destinations, same.sources) == (made.destinations, changed.sources)
    assert ([row.id for row in moved.destinations], moved.sources) == ([other.id], same.sources)
    assert listed == [made.id]
    with pytest.raises(ginnel.NotFoundError):
        await client.event_subscriptions.get(made.id)


@ON_BOTH_STORES
async def test_sources_are_added_to_a_subscription_and_removed(client: Any) -> None:
    made = await client.event_subscriptions.create(sources=[{"type": CREATED}])

    added = await client.event_sources.create(made.id, type=UPDATED)
    again = await client.event_sources.create(made.id, type=UPDATED)
    fetched = await client.event_sources.get(made.id, UPDATED)
    updated = await client.event_sources.update(made.id, UPDATED)
    listed = await client.event_sources.list(made.id)
    await client.event_sources.delete(made.id, CREATED)
    left = await client.event_subscriptions.get(made.id)

    assert added == again == fetched == updated
    assert (added.type, added.uri) == (UPDATED, f"{made.uri}/sources/{UPDATED}")
    assert [source.type for source in listed.sources] == [CREATED, UPDATED]
    assert listed.uri == f"{made.uri}/sources"
    assert [source.type for source in left.sources] == [UPDATED]
    for operation in (client.event_sources.get, client.event_sources.delete):
        with pytest.raises(ginnel.NotFoundError):
            await operation(made.id, CREATED)


async def test_a_destination_that_a_subscription_names_stays(client: Any) -> None:
    destination = await client.event_destinations.create(target=HOOK)
    subscription = await client.event_subscriptions.create(destination_ids=[destination.id])

    with pytest.raises(ginnel.ConflictError, match=subscription.id):
        await client.event_destinations.delete(destination.id)

    await client.event_subscriptions.delete(subscription.id)
    await client.event_destinations.delete(destination.id)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, "exactly one of webhook, file and otlp"),
        ({**HOOK, "otlp": {"url": "http://a.test/"}}, "exactly one of webhook, file and otlp"),
        ({"kinesis": {"stream_arn": "arn"}}, "target.kinesis: this service does not send"),
        ({"firehose": {}}, "target.firehose"),
        ({"cloudwatch_logs": {}}, "target.cloudwatch_logs"),
        ({"datadog": {"api_key": "x"}}, "target.datadog"),
        ({"azure_logs_ingestion": {}}, "target.azure_logs_ingestion"),
        ({"webhook": {}}, "target.webhook.url: invalid URL"),
        ({"webhook": {"url": "ftp://a.test/"}}, "target.webhook.url: invalid scheme"),
        ({"webhook": {"url": "http://me:pw@a.test/"}}, "must not hold a user"),
        ({"webhook": {"url": "http://a.test/", "secret": "short"}}, "whsec_"),
        ({"otlp": {"url": "file:///etc/passwd"}}, "target.otlp.url"),
        ({"file": {"name": "events"}}, "event_delivery.folder"),
    ],
)
async def test_targets_that_cannot_be_used_are_refused(
    client: Any, target: dict[str, Any], words: str
) -> None:
    with pytest.raises(ginnel.BadRequestError, match=words):
        await client.event_destinations.create(target=target)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", ".profile", "", "a" * 129, "ginnel.db", "events"]
)
def test_files_outside_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with (
        quick_service(events={"folder": str(tmp_path)}) as service,
        service.client() as remote,
        pytest.raises(ginnel.BadRequestError, match=r"target\.file\.name"),
    ):
        remote.event_destinations.create(target={"file": {"name": name}})


def test_a_folder_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"event_delivery\.folder"):
        ginnel.Service(settings={"event_delivery": {"folder": missing}})


@pytest.mark.parametrize("own", ["ginnel.db", "vault.key"])
def test_a_folder_with_files_of_the_service_is_refused_at_the_start(
    tmp_path: Path, own: str
) -> None:
    (tmp_path / "linked").symlink_to(tmp_path)
    settings: Any = {"event_delivery": {"folder": str(tmp_path / "linked")}}
    path = tmp_path / "ginnel.db"
    if own == "vault.key":
        path = tmp_path / "data" / "ginnel.db"
        path.parent.mkdir()
        (tmp_path / own).write_text(base64.b64encode(bytes(32)).decode())
        settings["vault_key_file"] = str(tmp_path / own)
    with pytest.raises(ValueError, match=rf"event_delivery\.folder.*{own}"):
        ginnel.Service(str(path), settings=settings)


async def test_a_type_of_events_that_there_is_not_is_refused_with_the_nearest(client: Any) -> None:
    made = await client.event_subscriptions.create()
    for refused in (
        client.event_subscriptions.create(sources=[{"type": "ip_policy_create.v0"}]),
        client.event_sources.create(made.id, type="ip_policy_create.v0"),
    ):
        with pytest.raises(ginnel.BadRequestError, match='did you mean "ip_policy_created'):
            await refused
    with pytest.raises(ginnel.BadRequestError, match="#types-of-events"):
        await client.event_sources.create(made.id, type="something else")


async def test_destinations_that_there_are_not_are_refused(client: Any) -> None:
    missing, other = "ed_" + "0" * 27, "ipp_" + "0" * 27
    with pytest.raises(ginnel.BadRequestError, match="there is no event destination"):
        await client.event_subscriptions.create(destination_ids=[missing])
    with pytest.raises(ginnel.BadRequestError, match=r"destination_ids\[0\]"):
        await client.event_subscriptions.create(destination_ids=[other])


def test_the_key_of_a_bot_sees_and_changes_nothing_of_events(service: ginnel.Service) -> None:
    with service.client() as admin:
        destination = admin.event_destinations.create(target=HOOK)
        subscription = admin.event_subscriptions.create(sources=[{"type": CREATED}])
        bot = admin.bot_users.create(name="ci")
        token = admin.api_keys.create(owner_id=bot.id).token
    with ginnel.RemoteClient(token, base_url=service.url) as remote:
        calls = (
            lambda: remote.event_destinations.list().first(),
            lambda: remote.event_destinations.get(destination.id),
            lambda: remote.event_destinations.create(target=HOOK),
            lambda: remote.event_destinations.update(destination.id, target=HOOK),
            lambda: remote.event_destinations.delete(destination.id),
            lambda: remote.event_subscriptions.list().first(),
            lambda: remote.event_subscriptions.get(subscription.id),
            lambda: remote.event_subscriptions.create(destination_ids=[destination.id]),
            lambda: remote.event_subscriptions.update(subscription.id, description="mine"),
            lambda: remote.event_subscriptions.delete(subscription.id),
            lambda: remote.event_sources.list(subscription.id),
            lambda: remote.event_sources.get(subscription.id, CREATED),
            lambda: remote.event_sources.create(subscription.id, type=CREATED),
            lambda: remote.event_sources.update(subscription.id, CREATED),
            lambda: remote.event_sources.delete(subscription.id, CREATED),
        )
        for call in calls:
            with pytest.raises(ginnel.PermissionDeniedError, match="only an admin"):
                call()


def test_the_command_creates_them(service: ginnel.Service, tmp_path: Path) -> None:
    def api(*arguments: str) -> Any:
        command = [sys.executable, "-m", "ginnel", "api", *arguments, "--output", "json"]
        environment = {"GINNEL_API_KEY": str(service.api_key), "GINNEL_BASE_URL": service.url}
        done = subprocess.run(command, capture_output=True, env={"PATH": "", **environment})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with Receiver() as receiver:
        # It may hold a secret, which command lines must not show.
        target = tmp_path / "target.json"
        target.write_text(json.dumps({"webhook": {"url": receiver.url}}))
        destination = api("event-destinations", "create", "--target", f"@{target}")
        sources = json.dumps([{"type": CREATED}])
        subscription = api(
            "event-subscriptions",
            "create",
            "--sources",
            sources,
            "--destination-ids",
            destination["id"],
        )
        added = api("event-sources", "create", subscription["id"], "--type", UPDATED)
        policy = api("ip-policies", "create")

        event = receiver.wait_for(1)[0].event
    assert added["type"] == UPDATED
    assert event["object"] == policy
