"""No spelling of a host leads around a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ginnel
from nginx import nginx
from recorder import get
from test_forwarded import address_of

HOST = "admin.w.test"
SPELLINGS = [
    HOST,
    "ADMIN.w.test",
    "admin.W.Test",
    f"{HOST}.",
    f"{HOST}:80",
    f"{HOST}:080",
    f"{HOST}:",
    f"{HOST}.:80",
    "Admin.w.test.:80",
]
INVALID = [f"{HOST}..", f"{HOST}:evil", f"{HOST}:-1", f"{HOST}:99999", f"{HOST}:80:80", ".w.test"]
RULES = {
    "req.host": f"req.host == '{HOST}'",
    "req.url.host": f"req.url.host == '{HOST}'",
    "req.url.authority": f"req.url.authority == '{HOST}'",
    "req.url": f"req.url == 'http://{HOST}/'",
    "functions": "req.host.split('.')[0] == 'admin' && req.host.endsWith('test')",
}


@pytest.fixture(scope="module", params=RULES)
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where a tunnel denies one host of its domain."""
    rule: Any = {"expressions": [RULES[request.param]], "actions": [{"type": "deny"}]}
    with (
        nginx(tmp_path_factory.mktemp("nginx"), 'location / { return 200 "page"; }') as port,
        ginnel.Service() as service,
        ginnel.Agent(service) as agent,
        agent.client() as local,
    ):
        local.tunnels.start(
            addr=port,
            proto="http",
            schemes=["http"],
            name="wild",
            domain="*.w.test",
            traffic_policy={"on_http_request": [rule]},
        )
        yield address_of(service.http_url)


def test_a_host_is_denied_however_it_is_written(address: str) -> None:
    statuses = {host: get(address, host, "/")[0] for host in SPELLINGS}
    absolute = {host: get(address, host, f"http://{host}")[0] for host in SPELLINGS}

    assert set(statuses.values()) == set(absolute.values()) == {403}, (statuses, absolute)
    assert get(address, "other.w.test", "/")[0] == 200
    assert get(address, "OTHER.w.test.:80", "/")[0] == 200


def test_what_is_no_host_is_refused(address: str) -> None:
    assert {host: get(address, host, "/")[0] for host in INVALID} == dict.fromkeys(INVALID, 400)


@pytest.mark.parametrize("target", ["http://HOST", "http://HOST#", "http://HOST#/x"])
def test_a_url_without_a_path_is_the_root(address: str, target: str) -> None:
    assert get(address, HOST, target.replace("HOST", HOST))[0] == 403
