"""The module `oidc` of routes, and `oauth` in policies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import ginnel
from issuer import CLIENT_ID, CLIENT_SECRET, Call, Issuer
from postgres import ON_BOTH_STORES
from recorder import Recorder, value_of
from test_openid_connect import Endpoint
from visitor import Visitor

HOST = "route.example.test"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


def module(at: Issuer, **fields: Any) -> dict[str, Any]:
    known = {"issuer": at.url, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    return {**known, **fields}


@ON_BOTH_STORES
async def test_a_route_lets_in_who_has_logged_in(
    client: Any, service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    backend = await client.backends.static.create(address=upstream.address)
    edge = await client.edges.https.create(hostports=[f"{HOST}:443"])
    routes = client.edges.https.routes
    open_route = await routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
    )
    inner = await routes.create(
        edge.id,
        match_type="path_prefix",
        match="/in",
        backend={"backend_id": backend.id},
        oidc=module(issuer, scopes=["email"], maximum_duration=60, cookie_prefix="mine."),
        policy={
            "inbound": [
                {
                    "actions": [
                        {
                            "type": "add-headers",
                            "config": {"headers": {"x-who": "${actions.ngrok.oidc.identity.name}"}},
                        }
                    ]
                }
            ]
        },
    )
    shown = await routes.oidc.get(edge.id, inner.id)
    assert (shown.issuer, shown.client_secret) == (issuer.url, CLIENT_SECRET)
    assert (shown.enabled, shown.scopes, shown.maximum_duration) == (True, ["email"], 60)
    assert (await routes.get(edge.id, inner.id)).oidc == shown
    visitor = Visitor(service, HOST)

    assert visitor.go("/").status == 200
    assert visitor.log_in("/in/x").location == f"https://{HOST}/in/x"
    assert all(name.startswith("__Host-mine.") for name in visitor.cookies)
    assert visitor.go("/in/x").status == 200
    assert value_of(upstream.last, b"x-who") == b"Ada Lovelace"
    assert visitor.go("/").status == 200
    assert value_of(upstream.last, b"cookie") is None, "the route beside it sees no session"
    assert visitor.go("/ngrok/logout").status == 200
    assert visitor.go("/in/x").status == 302

    await routes.oidc.delete(edge.id, inner.id)
    await routes.policy.delete(edge.id, inner.id)
    assert visitor.go("/in/x").status == 200
    assert open_route.oidc is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"issuer": "http://issuer.example"}, "issuer: issuer must be", id="no tls"),
        pytest.param({"client_id": ""}, "client_id", id="no client"),
        pytest.param({"inactivity_timeout": -1}, "inactivity_timeout", id="a negative time"),
        pytest.param({"maximum_duration": 10**9}, "maximum_duration", id="too long"),
        pytest.param({"cookie_prefix": "a;b"}, "cookie_prefix", id="no name"),
    ],
)
def test_what_is_wrong_with_a_module_is_said_by_its_fields(
    service: ginnel.Service, issuer: Issuer, fields: dict[str, Any], message: str
) -> None:
    with service.client() as remote:
        edge = remote.edges.https.create(hostports=[f"{HOST}:443"])
        with pytest.raises(ginnel.BadRequestError, match=message):
            remote.edges.https.routes.create(
                edge.id, match_type="path_prefix", match="/", oidc=module(issuer, **fields)
            )


def test_a_secret_with_dollars_is_no_expression(
    service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    secrets: list[str] = []

    def note(call: Call) -> None:
        secrets.extend(call.basic())
        call.say(400, {"error": "invalid_client"})

    issuer.answers["/token"] = note
    with service.client() as remote:
        edge = remote.edges.https.create(hostports=[f"{HOST}:443"])
        remote.edges.https.routes.create(
            edge.id,
            match_type="path_prefix",
            match="/",
            oidc=module(issuer, client_secret="${1 + 1}"),
        )

    assert Visitor(service, HOST).log_in().status == 403
    assert secrets[1] == "%24%7B1+%2B+1%7D"


@pytest.fixture
def endpoint(service: ginnel.Service, upstream: Recorder, issuer: Issuer) -> Iterator[Endpoint]:
    endpoint = Endpoint(service, upstream, issuer)
    yield endpoint
    endpoint.remote.close()


def oauth(**config: Any) -> dict[str, Any]:
    known = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    show = "${actions.ngrok.oauth.identity.name} ${actions.ngrok.oauth.userinfo_refreshed}"
    actions = [
        {"type": "oauth", "config": {**known, **config}},
        {"type": "custom-response", "config": {"content": show}},
    ]
    return {"actions": actions}


def test_oauth_at_an_issuer(endpoint: Endpoint) -> None:
    visitor = endpoint.rules(oauth(provider="mine", issuer_url=endpoint.issuer.url))

    visitor.log_in()

    assert visitor.go().body == "Ada Lovelace false"


def test_oauth_at_a_provider_that_has_no_tokens_of_identities(endpoint: Endpoint) -> None:
    issuer, url = endpoint.issuer, endpoint.issuer.url
    users = {"id": 7, "login": "ada", "email": "ada@example.com"}

    def exchange(call: Call) -> None:
        assert (call.form["client_id"], call.form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
        assert call.form["code"] in issuer.codes
        call.say(200, {"access_token": "t", "token_type": "bearer"})

    def user(call: Call) -> None:
        assert call.headers["Authorization"] == "Bearer t"
        call.say(200, users)

    issuer.answers |= {"/token": exchange, "/user": user}
    config = {
        "provider": "github",
        "authorization_url": f"{url}/authorize",
        "token_url": f"{url}/token",
        "userinfo_url": f"{url}/user",
        "userinfo_refresh_interval": "1s",
    }
    visitor = endpoint.rules(oauth(**config))

    assert visitor.log_in().status == 302
    assert visitor.go().body == "ada false"
    issuer.answers["/user"] = lambda call: call.say(200, {**users, "id": 8})
    time.sleep(1.1)
    assert visitor.go().status == 302, "the token is another one's now"
    issuer.answers["/token"] = lambda call: call.say(200, {"error": "bad_verification_code"})
    assert visitor.log_in().status == 403
