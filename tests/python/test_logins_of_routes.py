"""The module `oidc` of routes, and `oauth` in policies."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ginnel
from issuer import CLIENT_ID, CLIENT_SECRET, Call, Issuer
from postgres import ON_BOTH_STORES
from processes import wait_until
from recorder import Recorder, value_of, values_of
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


def login(endpoint: Endpoint, **config: Any) -> dict[str, Any]:
    return {"actions": [{"type": "openid-connect", "config": endpoint.config(**config)}]}


def rewrite(pattern: str, to: str) -> dict[str, Any]:
    return {"actions": [{"type": "url-rewrite", "config": {"from": pattern, "to": to}}]}


@pytest.mark.parametrize(
    "step",
    [
        "/ngrok/login?auth_id=x",
        "/ngrok/logout?auth_id=x",
        "/ngrok/callback",
        "/ngrok/callback?state=x",
    ],
)
def test_a_step_of_a_login_that_is_nobodys_passes_no_login(endpoint: Endpoint, step: str) -> None:
    answer = {"actions": [{"type": "custom-response", "config": {"content": "inside"}}]}
    for rule in (answer, rewrite("^(.*)/ngrok/(.*)$", "$1/v1/$2")):
        visitor = endpoint.rules(login(endpoint, allow_cors_preflight=True), rule)

        for method in ("GET", "POST", "OPTIONS"):
            preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
            refused = visitor.send(step, method, preflight)
            assert (refused.status, refused.headers["Ngrok-Error-Code"]) == (400, "ERR_NGROK_3442")
    assert endpoint.upstream.heads == []


def test_a_preflight_to_a_step_of_a_login_is_no_preflight(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(allow_cors_preflight=True)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}

    assert visitor.send("/ngrok/login", "OPTIONS", asked).status == 302
    assert visitor.send("/", "OPTIONS", {**asked, "Content-Length": "1"}).status == 401
    assert visitor.send("/", "OPTIONS", asked).status == 200


def test_a_step_of_a_later_login_runs_nothing_in_between(endpoint: Endpoint) -> None:
    answer: dict[str, Any] = {
        "actions": [{"type": "custom-response", "config": {"content": "inside"}}]
    }
    answer["expressions"] = ["req.method == 'GET'"]
    visitor = endpoint.rules(
        login(endpoint, auth_id="a"), answer, login(endpoint, auth_id="b"), answer
    )

    assert visitor.send("/ngrok/login?auth_id=b").status == 302
    assert visitor.send("/ngrok/logout?auth_id=b").body == "You are logged out.\n"


def test_a_rewrite_before_a_login_changes_nothing_about_it(endpoint: Endpoint) -> None:
    host = {"type": "add-headers", "config": {"headers": {"host": "other.example.test"}}}
    visitor = endpoint.rules(
        rewrite("^(https?://[^/]*)/(.*)$", "$1/app/$2"), {"actions": [host]}, login(endpoint)
    )

    assert visitor.log_in("/x?y").location.endswith("/x?y")
    assert visitor.go("/x?y").status == 200
    assert b"/app/x?y" in endpoint.upstream.last


def test_of_two_logins_the_last_one_says_who_it_is(endpoint: Endpoint, upstream: Recorder) -> None:
    with Issuer() as public:
        public.claims = {"sub": "eve", "email": "eve@example.com", "email_verified": True}
        public.claims["name"] = "Eve"
        endpoint.issuer.claims.pop("name")
        visitor = endpoint.rules(
            login(endpoint, issuer_url=public.url, auth_id="public"), login(endpoint)
        )
        visitor.log_in()
        visitor.log_in()
        assert visitor.go().status == 200

        assert values_of(upstream.last, b"ngrok-auth-user-email") == [b"ada@example.com"]
        assert values_of(upstream.last, b"ngrok-auth-user-name") == []
        time.sleep(1.1)


def test_an_address_that_nobody_has_verified_is_not_passed_on(endpoint: Endpoint) -> None:
    endpoint.issuer.claims.pop("email_verified")
    visitor = endpoint.serve()
    visitor.log_in()

    assert visitor.go().status == 200
    assert value_of(endpoint.upstream.last, b"ngrok-auth-user-id") is not None
    assert value_of(endpoint.upstream.last, b"ngrok-auth-user-email") is None


def test_nobody_says_who_has_logged_in_where_nobody_asks(endpoint: Endpoint) -> None:
    """Routes share upstreams."""
    visitor = endpoint.rules({"actions": [{"type": "log", "config": {"metadata": {"a": "b"}}}]})
    visitor.secure = False
    for forged in ("Ngrok-Auth-User-Email", "ngrok_auth_user_email"):
        assert visitor.send("/", headers={forged: "eve@example.com"}).status == 200
        assert b"eve@example.com" not in endpoint.upstream.last


def test_a_refresh_token_outlives_a_failure_after_it(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(userinfo_refresh_interval="1s")
    visitor.log_in()
    endpoint.issuer.answers["/userinfo"] = lambda call: call.say(500, {})
    time.sleep(1.1)
    assert visitor.go().status == 502
    assert visitor.session, "the new tokens are in the cookies"
    del endpoint.issuer.answers["/userinfo"]

    def is_in() -> bool:
        answer = visitor.go()
        assert answer.status in (200, 502), "the session goes on"
        return answer.status == 200

    wait_until(is_in, "the session goes on", seconds=15)
    assert endpoint.issuer.reused == 0


def test_groups_are_taken_away_by_those_who_have_given_them(endpoint: Endpoint) -> None:
    issuer = endpoint.issuer
    issuer.claims["groups"] = ["admins"]
    visitor = endpoint.serve(allow_groups=["admins"], userinfo_refresh_interval="1s")
    visitor.log_in()
    assert visitor.go().status == 200

    def exchange(call: Call) -> None:
        tokens = issuer.tokens(None)
        del tokens["id_token"]
        call.say(200, tokens)

    issuer.answers["/token"] = exchange
    time.sleep(1.1)
    assert visitor.go().status == 200, "nothing is said of groups"
    issuer.userinfo = {"groups": []}
    time.sleep(1.1)
    refused = visitor.go()
    assert refused.status == 403
    assert "go to /ngrok/login." in refused.body


def test_a_session_is_for_those_who_know_the_same_secret(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    visitor.log_in()

    endpoint.serve(client_secret="guessed")

    assert visitor.go().status == 302


def test_a_provider_may_say_that_it_has_enough(endpoint: Endpoint) -> None:
    programs: list[str] = []

    def limited(call: Call) -> None:
        programs.append(call.headers["User-Agent"])
        call.say(403, {"message": "rate limit"})

    visitor = endpoint.serve(userinfo_refresh_interval="1s")
    visitor.log_in()
    endpoint.issuer.answers["/userinfo"] = limited
    time.sleep(1.1)

    assert visitor.go().status == 502, "it is no end of the session"
    assert programs[0].startswith("ginnel/")


def test_a_host_with_a_dot_at_its_end_is_the_same_host(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(auth_cookie_domain="example.test")
    visitor.host = f"{visitor.host}."

    assert f"redirect_uri=https%3A%2F%2F{visitor.host[:-1]}%2F" in visitor.go().location


def test_a_login_with_an_identifier_is_offered_by_it(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(auth_id="x", allow_groups=["admins"])

    challenge = visitor.send("/").headers["WWW-Authenticate"]
    assert challenge.endswith('form-action="/ngrok/login?auth_id=x"')
    assert "/ngrok/login?auth_id=x." in visitor.log_in().body


def test_nobody_takes_off_what_rules_add(endpoint: Endpoint) -> None:
    """A visitor names it in `Connection`, and would be somebody else to an upstream."""
    headers = {"x-user": "${actions.ngrok.oidc.identity.email}"}
    add = {"actions": [{"type": "add-headers", "config": {"headers": headers}}]}
    visitor = endpoint.rules(login(endpoint), add)
    visitor.log_in()

    assert visitor.go(Connection="X-User, x-mine", X_User="eve", X_Mine="1").status == 200
    assert values_of(endpoint.upstream.last, b"x-user") == [b"ada@example.com"]
    assert value_of(endpoint.upstream.last, b"x-mine") is None


def test_nobody_takes_off_what_rules_add_for_everybody(endpoint: Endpoint) -> None:
    add = {"type": "add-headers", "config": {"headers": {"x-user": "nobody"}}}
    visitor = endpoint.rules({"actions": [add]})
    visitor.secure = False

    assert visitor.send("/", headers={"Connection": "X-User"}).status == 200
    assert values_of(endpoint.upstream.last, b"x-user") == [b"nobody"]


def test_an_access_token_that_grows_ends_no_session(endpoint: Endpoint) -> None:
    issuer = endpoint.issuer

    def exchange(call: Call) -> None:
        tokens = issuer.tokens(None)
        tokens["access_token"] += secrets.token_urlsafe(20_000)
        issuer.access_tokens.add(tokens["access_token"])
        call.say(200, tokens)

    visitor = endpoint.serve(userinfo_refresh_interval="1s")
    visitor.log_in()
    issuer.answers["/token"] = exchange
    for _ in range(2):
        time.sleep(1.1)
        assert visitor.go().status == 200
    assert issuer.reused == 0


def test_agents_have_no_issuer_on_the_machine_of_the_service(
    service: ginnel.Service, issuer: Issuer
) -> None:
    config = {"issuer_url": issuer.url, "client_id": CLIENT_ID}
    rule = {"actions": [{"type": "openid-connect", "config": config}]}
    with ginnel.Agent(service) as agent, agent.client() as local:
        with pytest.raises(ginnel.APIStatusError, match="must be at an https url"):
            local.tunnels.start(
                addr=1, proto="http", name="x", traffic_policy={"on_http_request": [rule]}
            )
        config["issuer_url"] = "https://issuer.example"
        local.tunnels.start(
            addr=1, proto="http", name="x", traffic_policy={"on_http_request": [rule]}
        )
