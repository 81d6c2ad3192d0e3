"""The policy before it ships: each rule tried without traffic, then all of it at an edge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ginnel
from conftest import Shop
from ginnel import policy
from receiver import Receiver

POLICY = Path(__file__).parents[1] / "policy.yaml"
HOOKS = "https://hooks.example.test/hooks"


def hook(url: str = HOOKS, method: str = "POST", **headers: str) -> policy.GivenRequest:
    return {"method": method, "url": url, "headers": headers}


def test_nothing_is_wrong_with_it() -> None:
    assert policy.check(POLICY) == []


@pytest.mark.parametrize(
    ("request_", "status", "rule"),
    [
        (hook(method="GET"), 404, "only hooks"),
        (hook(url="https://hooks.example.test/admin"), 404, "only hooks"),
        (hook(), 401, "only signed"),
    ],
)
def test_who_is_turned_away(request_: policy.GivenRequest, status: int, rule: str) -> None:
    report = policy.test(POLICY, request=request_)

    assert report.response is not None
    assert report.decision is not None
    assert (report.response.status, report.decision.name) == (status, rule)


def test_a_signed_hook_reaches_the_receiver() -> None:
    answer: policy.GivenResponse = {"status": 201, "headers": {"server": "gunicorn"}}

    report = policy.test(POLICY, request=hook(**{"x-signature": "s"}), response=answer)

    assert report.outcome == "continue"
    assert report.response is not None
    assert report.response.status == 201
    assert "server" not in report.response.headers


def test_the_thirty_first_hook_within_a_minute_waits() -> None:
    trial = policy.Trial(POLICY)

    def status(client_ip: str, after: float = 0) -> int:
        signed = hook(**{"x-signature": "s"})
        report = trial.run(request=signed, response=200, client_ip=client_ip, after=after)
        assert report.response is not None
        return report.response.status

    assert [status("192.0.2.1") for _ in range(31)] == [200] * 30 + [429]
    assert status("192.0.2.2") == 200
    assert status("192.0.2.1", after=61) == 200


def test_a_tunnel_enforces_it(
    ginnel_service: ginnel.Service,
    ginnel_tunnel: Callable[..., str],
    receiver: Receiver,
    shop: Shop,
) -> None:
    url = ginnel_tunnel(receiver, traffic_policy=POLICY.read_text())
    events = ginnel_service.events()

    assert shop(f"{url}/hooks", {"order": "A-7", "cents": 1990})[0] == 201

    with pytest.raises(ValueError, match="Expecting value"):  # the service answers, not in JSON
        shop(f"{url}/admin", {})
    assert receiver.paid == {"A-7": 1990}
    passed, refused = events.get(timeout=10), events.get(timeout=10)
    assert passed is not None
    assert refused is not None
    assert (passed.status, passed.rule) == (201, None)
    assert (refused.status, refused.rule, refused.action) == (404, "only hooks", "deny")
