"""What is counted of logins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ginnel
from issuer import Issuer
from processes import wait_until
from recorder import Recorder
from test_monitoring import Watched
from test_openid_connect import HOST, Endpoint
from visitor import Visitor


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with (
        Issuer() as issuer,
        Recorder() as upstream,
        ginnel.Service(admin_addr="127.0.0.1:0") as service,
    ):
        endpoint = Endpoint(service, upstream, issuer)
        yield endpoint
        endpoint.remote.close()


def test_logins_are_counted_by_what_came_of_them(endpoint: Endpoint) -> None:
    watched = Watched(str(endpoint.service.admin_url).removeprefix("http://"))

    def logins() -> dict[str, float]:
        counted = [it for it in watched.scrape().values() if it.name == "ginnel_logins_total"]
        return {it.labels["outcome"]: float(it.value) for it in counted}

    assert (logins(), watched.value("ginnel_login_sessions")) == ({}, 0)
    visitor, other = endpoint.serve(), Visitor(endpoint.service, HOST)
    for who in (visitor, other):
        back = who.begin()
        before = dict(who.cookies)
        assert who.go(back).status == 302
        assert who.go().status == 200
    assert Visitor(endpoint.service, HOST, cookies=before).go(back).status == 400, "it is over"
    endpoint.issuer.answers["/token"] = lambda call: call.say(500, {})
    assert Visitor(endpoint.service, HOST).log_in().status == 502
    endpoint.issuer.answers["/token"] = lambda call: call.say(400, {"error": "invalid_grant"})
    assert Visitor(endpoint.service, HOST).log_in().status == 403
    del endpoint.issuer.answers["/token"]
    assert watched.value("ginnel_login_sessions") == 2

    assert other.go("/ngrok/logout").status == 200
    assert watched.value("ginnel_login_sessions") == 1
    session = next(iter(endpoint.remote.application_sessions.list()))
    endpoint.remote.application_sessions.delete(session.id)
    wait_until(lambda: watched.value("ginnel_login_sessions") == 0, "the last session is gone")
    assert endpoint.serve(allow_groups=["nobody"]).log_in().status == 403

    assert logins() == {"admitted": 2, "unknown": 1, "issuer": 1, "refused": 1, "not_allowed": 1}
