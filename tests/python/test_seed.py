"""A service with a seed: the same identifiers, tokens and times in each run."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import ginnel

BEGIN = datetime(2030, 2, 3, 4, 5, 6, tzinfo=UTC)


def story(service: ginnel.Service) -> list[dict[str, Any]]:
    """One of each kind, as it is told."""
    with service.client() as remote:
        key = remote.api_keys.create(description="ci")
        service.advance(60)
        policy = remote.ip_policies.create(description="office")
        rule = remote.ip_policy_rules.create(
            ip_policy_id=policy.id, cidr="192.0.2.0/24", action="allow"
        )
        bot = remote.bot_users.create(name="ci")
        credential = remote.credentials.create()
        backend = remote.backends.http_response.create(body="hello")
        edge = remote.edges.https.create(hostports=["app.example.test:443"])
        route = remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
        )
        made = (key, policy, rule, bot, credential, backend, edge, route)
        with ginnel.Agent(service):
            [session] = remote.tunnel_sessions.list().to_list()
        told = [one.to_dict() for one in made]
        return [*told, {"id": session.id, "started_at": session.started_at}]


def served(**options: Any) -> ginnel.Service:
    return ginnel.Service(public_url="https://api.example.test", **options)


def test_the_same_seed_tells_the_same_story() -> None:
    with served(seed=7) as one, served(seed=7) as same, served(seed=8) as other:
        stories = [story(one), story(same), story(other)]
        first = (one.api_key, one.authtoken)

        assert stories[0] == stories[1]
        assert (same.api_key, same.authtoken) == first
        assert other.api_key != one.api_key
    ids = [[made["id"] for made in told] for told in stories]
    assert not set(ids[0]) & set(ids[2])
    assert len(set(ids[0])) == len(ids[0])


NAMES = """
import sys, ginnel
with ginnel.Service(seed=int(sys.argv[1]), base_domain="example.test") as service:
    print(service.api_key, service.authtoken)
    with ginnel.Agent(service) as agent, agent.client() as here, service.client() as remote:
        for name in ("one", "two"):
            made = here.tunnels.start(name=name, proto="http", addr=8080)
            print(made.public_url.split(":")[1])
        print(sorted(tunnel.id for tunnel in remote.tunnels.list()))
        print(remote.ip_policies.create(description="office").id)
"""


def test_processes_with_the_same_seed_tell_the_same_names() -> None:
    def told(seed: int) -> list[str]:
        command = [sys.executable, "-c", NAMES, str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.splitlines()

    first, other = told(7), told(8)

    assert told(7) == first
    assert first[1].endswith(".example.test")
    assert first[1] != first[2]
    assert not set(first) & set(other)


def test_the_clock_stands_until_it_is_set_forward() -> None:
    with served(seed=7, begin=BEGIN) as service, service.client() as remote:
        first = remote.ip_policies.create()
        second = remote.ip_policies.create()
        service.advance(86_400.5)
        third = remote.ip_policies.create()

        assert first.created_at == second.created_at == BEGIN
        assert third.created_at == BEGIN + timedelta(days=1)
        assert first.id < second.id < third.id
        assert [policy.id for policy in remote.ip_policies.list()] == [
            third.id,
            second.id,
            first.id,
        ]


def test_without_a_seed_nothing_is_foreseen(service: ginnel.Service) -> None:
    with ginnel.Service() as other, service.client() as remote:
        assert other.api_key != service.api_key
        made = remote.ip_policies.create().created_at
        assert made is not None
        assert abs(datetime.now(UTC) - made) < timedelta(minutes=5)
    with pytest.raises(ginnel.ConfigError, match="seed is missing"):
        service.advance(1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"begin": BEGIN}, "begin: needs a seed"),
        ({"seed": -1}, "seed: must be between"),
        ({"seed": 2**64}, "seed: must be between"),
        ({"seed": 1, "begin": datetime(2030, 1, 1)}, "begin: has no time zone"),
        ({"seed": 1, "begin": datetime(1999, 1, 1, tzinfo=UTC)}, "begin: must be between"),
    ],
)
def test_what_makes_no_clock(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ginnel.ConfigError, match=problem):
        ginnel.Service(**options)


def test_the_zone_of_the_beginning_does_not_matter() -> None:
    with (
        served(seed=1, begin=BEGIN) as one,
        served(seed=1, begin=BEGIN.astimezone(timezone(timedelta(hours=5)))) as same,
    ):
        assert one.api_key == same.api_key


def test_time_does_not_go_back(service: ginnel.Service) -> None:
    with served(seed=1) as seeded, pytest.raises(ValueError, match="seconds"):
        seeded.advance(-1)


def test_a_file_goes_on_where_it_ended(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with served(path=tmp_path / "ginnel.db", seed=7, api_key=None) as service:
            if service.api_key is not None:
                key = service.api_key
            with ginnel.RemoteClient(key, base_url=service.url) as remote:
                ids.append(remote.ip_policies.create().id)

    assert ids[0] < ids[1]


@pytest.mark.ginnel_service(seed=7, rate_limit=(100, 60.0))
class TestOptionsOfTheFixture:
    """The marker gives the service of the fixture its options."""

    def test_of_the_class(self, ginnel_service: ginnel.Service) -> None:
        with ginnel.Service(seed=7) as same:
            assert same.api_key == ginnel_service.api_key

    @pytest.mark.ginnel_service(seed=8)
    def test_of_the_test_before_those_of_the_class(self, ginnel_service: ginnel.Service) -> None:
        with ginnel.Service(seed=8) as same:
            assert same.api_key == ginnel_service.api_key
