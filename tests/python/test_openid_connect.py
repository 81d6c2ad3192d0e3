"""`openid-connect`: visitors log in at an issuer, and nobody else comes in."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPMessage
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from issuer import CLIENT_ID, CLIENT_SECRET, Call, Issuer, Key
from processes import wait_until
from recorder import Recorder, value_of, values_of
from visitor import Visitor, seconds_of_a_session

HOST = "login.example.test"
PASS = {"actions": [{"type": "log", "config": {"metadata": {"a": "b"}}}]}
PATHS = ["/.well-known/openid-configuration", "/token", "/jwks", "/userinfo"]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


class Endpoint:
    """An edge whose policy asks visitors to log in."""

    def __init__(self, service: ginnel.Service, upstream: Recorder, issuer: Issuer) -> None:
        self.service, self.issuer, self.upstream = service, issuer, upstream
        self.remote = service.client()
        self.backend = self.remote.backends.static.create(address=upstream.address)
        self.ids: dict[str, tuple[str, str]] = {}

    def config(self, **config: Any) -> dict[str, Any]:
        known = {
            "issuer_url": self.issuer.url,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
        }
        return {**known, **config}

    def serve(self, *more: dict[str, Any], host: str = HOST, **config: Any) -> Visitor:
        """Puts a policy on the host; rules may follow the one with the login."""
        login = {"type": "openid-connect", "config": self.config(**config)}
        return self.rules({"actions": [login]}, *more, host=host)

    def rules(self, *rules: dict[str, Any], host: str = HOST) -> Visitor:
        value = json.dumps({"on_http_request": rules})
        if host in self.ids:
            self.remote.edges.https.routes.traffic_policy.replace(*self.ids[host], value=value)
        else:
            edge = self.remote.edges.https.create(hostports=[f"{host}:443", f"{host}:80"])
            made = self.remote.edges.https.routes.create(
                edge.id,
                match_type="path_prefix",
                match="/",
                backend={"backend_id": self.backend.id},
                traffic_policy={"value": value},
            )
            self.ids[host] = (edge.id, made.id)
        return Visitor(self.service, host)


@pytest.fixture
def endpoint(service: ginnel.Service, upstream: Recorder, issuer: Issuer) -> Iterator[Endpoint]:
    endpoint = Endpoint(service, upstream, issuer)
    yield endpoint
    endpoint.remote.close()


def code(headers: HTTPMessage) -> str:
    return (headers["Ngrok-Error-Code"] or "").rpartition("_")[2]


def test_a_visitor_logs_in_and_the_upstream_is_told_who_it_is(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()

    back = visitor.log_in("/a?b=c")

    assert (back.status, back.location) == (302, f"https://{HOST}/a?b=c")
    assert [name.startswith("__Host-") for name in visitor.cookies] == [True]
    page = visitor.go("/a?b=c")
    assert page.status == 200
    head = endpoint.upstream.last
    assert value_of(head, b"ngrok-auth-user-email") == b"ada@example.com"
    assert value_of(head, b"ngrok-auth-user-id") == b"248289761001"
    assert value_of(head, b"ngrok-auth-user-name") == b"Ada Lovelace"
    assert value_of(head, b"cookie") is None, "sessions are no business of upstreams"


def test_nothing_of_a_login_is_kept_by_caches(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()

    assert visitor.go().headers["Cache-Control"] == "no-store"
    assert visitor.send("/").headers["Cache-Control"] == "no-store"
    assert visitor.log_in().headers["Cache-Control"] == "no-store"
    page = visitor.go()
    assert page.headers["Cache-Control"] == "private"
    assert page.headers["Vary"] == "Cookie"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        pytest.param("GET", {"Accept": "*/*"}, id="a program"),
        pytest.param("POST", {"Accept": "text/html"}, id="a form"),
        pytest.param("GET", {"Accept": "text/html", "Sec-Fetch-Mode": "cors"}, id="a script"),
        pytest.param(
            "GET",
            {"Accept": "text/html", "Connection": "Upgrade", "Upgrade": "websocket"},
            id="a websocket",
        ),
        pytest.param(
            "OPTIONS",
            {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"},
            id="a preflight",
        ),
    ],
)
def test_what_is_no_navigation_is_not_sent_to_the_issuer(
    endpoint: Endpoint, method: str, headers: dict[str, str]
) -> None:
    visitor = endpoint.serve()

    answer = visitor.send("/", method, headers)

    assert (answer.status, code(answer.headers)) == (401, "3445")
    assert answer.headers["WWW-Authenticate"].startswith("Cookie ")
    assert "Set-Cookie" not in answer.headers
    assert endpoint.upstream.heads == []


def test_preflights_pass_where_the_policy_says_so(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(allow_cors_preflight=True)
    asked = {"Origin": "https://a.example", "Ngrok-Auth-User-Email": "eve@example.com"}

    assert visitor.send("/", "OPTIONS", asked).status == 401, "it asks for nothing"
    asked["Access-Control-Request-Method"] = "GET"
    assert visitor.send("/", "OPTIONS", asked).status == 200
    assert value_of(endpoint.upstream.last, b"ngrok-auth-user-email") is None


def test_what_visitors_say_of_themselves_is_removed(endpoint: Endpoint) -> None:
    login = {"type": "openid-connect", "config": endpoint.config()}
    rule = {"expressions": ["req.url.path.startsWith('/private')"], "actions": [login]}
    visitor = endpoint.rules(rule)
    forged = {
        "Ngrok-Auth-User-Email": "eve@example.com",
        "ngrok_auth_user_id": "eve",
        "Cookie": "a=1; __Host-ginnel-login-0000-s0=1.forged; b=2",
    }

    assert visitor.send("/public", headers=forged).status == 200
    head = endpoint.upstream.last
    assert value_of(head, b"ngrok-auth-user-email") is None
    assert value_of(head, b"ngrok-auth-user-id") is None
    assert value_of(head, b"cookie") == b"a=1; b=2"

    assert visitor.log_in("/private").status == 302
    answer = visitor.go(
        "/private",
        Ngrok_Auth_User_Email="eve@example.com",
        Connection="host, ngrok-auth-user-email, x-forwarded-for, ngrok-auth-user-id",
    )
    assert answer.status == 200
    head = endpoint.upstream.last
    assert values_of(head, b"ngrok-auth-user-email") == [b"ada@example.com"]
    assert values_of(head, b"ngrok-auth-user-id") == [b"248289761001"]
    assert values_of(head, b"host") == [HOST.encode()]
    assert value_of(head, b"x-forwarded-for") is not None


def test_cookies_of_logins_reach_no_other_upstream(endpoint: Endpoint) -> None:
    """Not even where nobody has to log in."""
    visitor = endpoint.serve()
    visitor.log_in()
    other = endpoint.rules(
        PASS,
        host="other.example.test",
    )
    other.cookies = {**visitor.cookies, "mine": "1"}

    assert other.go().status == 200
    assert value_of(endpoint.upstream.last, b"cookie") == b"mine=1"
    other.secure = False
    assert other.go().status == 200
    assert value_of(endpoint.upstream.last, b"cookie") == b"mine=1"


@pytest.mark.parametrize(
    ("change", "host"),
    [
        pytest.param({}, "second.example.test", id="another host"),
        pytest.param({"auth_id": "x"}, HOST, id="another identifier"),
        pytest.param({"client_id": "${'another'}"}, HOST, id="another client"),
        pytest.param({"scopes": ["groups"]}, HOST, id="more scopes"),
        pytest.param({"authz_url_params": {"acr_values": "mfa"}}, HOST, id="a stricter login"),
    ],
)
def test_a_session_is_good_for_its_own_policy_alone(
    endpoint: Endpoint, change: dict[str, Any], host: str
) -> None:
    visitor = endpoint.serve()
    visitor.log_in()
    assert visitor.go().status == 200

    other = endpoint.serve(host=host, **change)
    # With whatever name its cookies would have.
    other.cookies = {**visitor.cookies}
    begun = Visitor(endpoint.service, host)
    begun.go()
    (login,) = begun.cookies
    start = login.rpartition("-")[0]
    other.cookies |= {f"{start}-s0": value for value in visitor.cookies.values()}

    assert other.go().status == 302
    assert other.send("/").status == 401


def test_another_issuer_has_other_sessions(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    visitor.log_in()

    with Issuer() as other:
        endpoint.serve(issuer_url=other.url)
        answer = visitor.go()
        assert answer.status == 302
        assert answer.location.startswith(other.url)


def test_who_is_allowed_is_asked_at_each_request(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(allow_emails=["Ada@example.com"])
    visitor.log_in()
    assert visitor.go().status == 200

    others: list[dict[str, Any]] = [
        {"allow_domains": ["other.example"]},
        {"allow_groups": ["admins"]},
    ]
    for rules in others:
        endpoint.serve(**rules)
        answer = visitor.go()
        assert (answer.status, code(answer.headers)) == (403, "3440")
    endpoint.serve(allow_domains=["EXAMPLE.com"], allow_groups=["admins"])
    assert visitor.go().status == 200


@pytest.mark.parametrize("verified", [False, "false", None])
def test_an_address_that_is_not_verified_lets_nobody_in(
    endpoint: Endpoint, verified: object
) -> None:
    endpoint.issuer.claims["email_verified"] = verified
    visitor = endpoint.serve(allow_emails=["ada@example.com"], allow_domains=["example.com"])

    assert visitor.log_in().status == 403
    assert visitor.cookies == {}
    assert endpoint.upstream.heads == []


@pytest.mark.parametrize("place", ["claims", "userinfo"])
def test_groups_may_be_said_in_either_place(endpoint: Endpoint, place: str) -> None:
    said: dict[str, Any] = getattr(endpoint.issuer, place)
    said["groups"] = ["users", "admins"]
    visitor = endpoint.serve(allow_groups=["admins"])

    visitor.log_in()

    assert visitor.go().status == 200


def test_expressions_see_who_it_is(endpoint: Endpoint) -> None:
    fields = [
        "identity.email",
        "identity.name",
        "identity.provider_user_id",
        "identity.current_session_id",
        "identity.id",
        "access_token",
        "refresh_token",
        "identity_token",
        "expires_at",
        "session_timed_out",
        "user_info_refreshed",
    ]
    content = "\n".join(f"${{actions.ngrok.oidc.{name}}}" for name in fields)
    more = {"actions": [{"type": "custom-response", "config": {"content": content}}]}
    visitor = endpoint.serve(more)
    visitor.log_in()

    said = dict(zip(fields, visitor.go().body.splitlines(), strict=True))

    assert said["identity.email"] == "ada@example.com"
    assert said["identity.name"] == "Ada Lovelace"
    assert said["identity.provider_user_id"] == "248289761001"
    assert said["identity.current_session_id"].startswith("as_")
    assert len(said["identity.id"]) == 32
    assert said["access_token"] in endpoint.issuer.access_tokens
    assert said["refresh_token"] in endpoint.issuer.refresh_tokens
    assert said["identity_token"].count(".") == 2
    assert said["expires_at"].endswith("Z")
    assert (said["session_timed_out"], said["user_info_refreshed"]) == ("false", "false")


def test_a_login_ends_once_and_in_the_browser_that_has_begun_it(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    back = visitor.begin()
    thief = Visitor(endpoint.service, HOST)
    assert (stolen := thief.go(back)).status == 400
    assert code(stolen.headers) == "3442"
    before = dict(visitor.cookies)
    assert visitor.go(back).status == 302
    again = Visitor(endpoint.service, HOST, cookies=before)

    assert again.go(back).status == 400, "the browser forgets nothing"
    endpoint.serve(PASS)
    assert again.go(back).status == 400, "not with another policy either"
    assert endpoint.issuer.calls["/token"] == 1
    assert endpoint.upstream.heads == []


@pytest.mark.parametrize("target", ["//evil.example/x", "/\\evil.example", "/a%0d%0ab"])
def test_visitors_come_back_to_the_same_host(endpoint: Endpoint, target: str) -> None:
    visitor = endpoint.serve()

    assert visitor.log_in(target).location.startswith(f"https://{HOST}/")


def test_who_has_answered_is_checked_where_it_is_said(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    endpoint.issuer.parameters = {"iss": "https://evil.example"}
    assert visitor.log_in().status == 502
    endpoint.issuer.parameters = {"iss": endpoint.issuer.url}
    assert visitor.log_in().status == 302
    endpoint.issuer.parameters = {"error": "access_denied"}
    refused = Visitor(endpoint.service, HOST).log_in()
    assert (refused.status, code(refused.headers)) == (403, "3449")


def test_logging_out_ends_a_session_wherever_its_cookies_are(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    visitor.log_in()
    copy = Visitor(endpoint.service, HOST, cookies=dict(visitor.cookies))
    assert copy.go().status == 200

    answer = visitor.go("/ngrok/logout")

    assert (answer.status, answer.body) == (200, "You are logged out.\n")
    assert visitor.session == []
    assert copy.go().status == 302
    endpoint.serve(PASS)
    assert copy.go().status == 302, "a new policy knows it too"


def test_a_login_on_purpose_asks_the_issuer_to_ask(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(auth_id="mine")

    assert visitor.go("/ngrok/login").status == 400, "there is no such login"
    answer = visitor.go("/ngrok/login?auth_id=mine")

    assert answer.status == 302
    assert "prompt=login" in answer.location
    assert visitor.go(visitor.ask(answer.location)).location == f"https://{HOST}/"
    assert endpoint.upstream.heads == []


def test_rules_for_some_paths_take_part_in_their_logins(endpoint: Endpoint) -> None:
    """The issuer sends visitors back to a path for which their expressions are false."""

    def rule(path: str, auth_id: str) -> dict[str, Any]:
        login = {"type": "openid-connect", "config": endpoint.config(auth_id=auth_id)}
        return {"expressions": [f"req.url.path.startsWith('{path}')"], "actions": [login]}

    visitor = endpoint.rules(rule("/a", "a"), rule("/b", "b"))

    assert visitor.log_in("/b").status == 302
    assert visitor.go("/b").status == 200
    assert visitor.go("/a").status == 302
    assert visitor.go("/c").status == 200
    assert visitor.go("/ngrok/callback?state=x&code=y").status == 400


def test_a_session_ends_when_it_is_idle_or_too_old(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(idle_session_timeout="1s", max_session_duration="1m")
    first: dict[str, str] = {}
    at = time.monotonic()
    visitor.log_in()
    for _ in range(6):
        first = first or dict(visitor.cookies)
        sent, status = time.monotonic(), visitor.go().status
        # On a slow machine the time may be over before the request comes.
        if time.monotonic() - at >= 1:
            break
        assert status == 200, "each request begins it anew"
        at = sent
        time.sleep(0.25)
    time.sleep(1.2)
    assert Visitor(endpoint.service, HOST, cookies=first).go().status == 302, "idle"

    visitor = endpoint.serve(idle_session_timeout="1m", max_session_duration="2s")
    assert 2 <= seconds_of_a_session(visitor, pause=0.2) < 10


def test_the_issuer_is_asked_again_once_for_all_who_wait(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(userinfo_refresh_interval="2s", allow_groups=["users"])
    endpoint.issuer.userinfo = {"groups": ["users"]}
    visitor.log_in()
    assert visitor.go().status == 200
    calls = endpoint.issuer.calls["/token"]
    old = dict(visitor.cookies)
    time.sleep(2.1)

    tabs = [Visitor(endpoint.service, HOST, cookies=dict(old)) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        statuses = {answer.status for answer in pool.map(lambda tab: tab.go(), tabs)}

    assert statuses == {200}
    assert endpoint.issuer.calls["/token"] == calls + 1
    assert endpoint.issuer.reused == 0, "a refresh token was used twice"
    late = Visitor(endpoint.service, HOST, cookies=dict(old))
    assert late.go().status == 200, "an old tab learns of the new tokens"
    assert endpoint.issuer.reused == 0
    endpoint.issuer.userinfo = {"groups": []}
    time.sleep(2.1)
    assert late.go().status == 403, "no longer a user"


def test_a_session_that_the_issuer_ends_has_ended(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(userinfo_refresh_interval="1s")
    visitor.log_in()
    endpoint.issuer.refresh_tokens.clear()
    time.sleep(1.1)

    assert visitor.go().status == 302
    assert visitor.send("/").status == 401


def test_without_the_issuer_nobody_comes_in_when_it_is_to_be_asked(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(userinfo_refresh_interval="2s")
    began = time.monotonic()
    visitor.log_in()
    endpoint.issuer.stop()
    status = visitor.go().status
    assert status == 200 or time.monotonic() - began > 2, "it is not to be asked yet"
    time.sleep(2.1)

    answer = visitor.go()

    assert (answer.status, code(answer.headers)) == (502, "3446")
    heads = len(endpoint.upstream.heads)
    assert visitor.send("/", "POST").status == 502
    assert len(endpoint.upstream.heads) == heads


def test_a_visitor_who_leaves_does_not_stop_a_renewal(endpoint: Endpoint) -> None:
    visitor = endpoint.serve(userinfo_refresh_interval="1s")
    visitor.log_in()
    old = dict(visitor.cookies)

    def slowly(call: Call) -> None:
        time.sleep(0.8)
        call.exchange()

    endpoint.issuer.answers["/token"] = slowly
    time.sleep(1.1)
    with pytest.raises(TimeoutError):
        leave(visitor)
    time.sleep(1.0)

    assert Visitor(endpoint.service, HOST, cookies=old).go().status in (200,)
    assert endpoint.issuer.reused == 0


def leave(visitor: Visitor) -> None:
    """Asks, and goes away before there is an answer."""
    address = urlsplit(visitor.service.https_url or "")
    connection = http.client.HTTPSConnection(
        address.hostname or "",
        address.port,
        context=ssl._create_unverified_context(),
        timeout=0.3,
    )
    pairs = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    try:
        connection.request("GET", "/", headers={"Host": HOST, "Cookie": pairs})
        connection.getresponse()
    finally:
        connection.close()


def test_logins_need_tls_except_on_this_machine(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    visitor.secure = False
    answer = visitor.go()
    assert (answer.status, code(answer.headers)) == (403, "3443")
    assert visitor.cookies == {}

    local = endpoint.serve(host="login.localhost")
    local.secure = False
    assert local.log_in().status == 302
    assert local.go().status == 200
    assert not any(name.startswith("__") for name in local.cookies)


def test_tokens_that_need_more_than_one_cookie(endpoint: Endpoint) -> None:
    endpoint.issuer.claims["padding"] = "x" * 6000
    visitor = endpoint.serve()

    visitor.log_in()

    assert len(visitor.session) > 1
    assert visitor.go().status == 200
    assert value_of(endpoint.upstream.last, b"cookie") is None
    visitor.go("/ngrok/logout")
    assert visitor.session == []


def forged(issuer: Issuer, **changes: Any) -> None:
    issuer.token = lambda claims: issuer.key.sign({**claims, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"iss": "https://evil.example"}, id="another issuer"),
        pytest.param({"aud": "another"}, id="another audience"),
        pytest.param({"aud": []}, id="no audience"),
        pytest.param({"aud": [CLIENT_ID, "another"]}, id="several and no party"),
        pytest.param({"azp": "another"}, id="another party"),
        pytest.param({"exp": 1}, id="expired"),
        pytest.param({"exp": None}, id="no end"),
        pytest.param({"iat": 4_000_000_000}, id="from the future"),
        pytest.param({"nbf": 4_000_000_000}, id="not yet"),
        pytest.param({"nonce": "another"}, id="another login"),
        pytest.param({"nonce": None}, id="no login"),
        pytest.param({"sub": None}, id="nobody"),
        pytest.param({"sub": "another"}, id="not who userinfo says"),
    ],
)
def test_wrong_claims_let_nobody_in(endpoint: Endpoint, changes: dict[str, Any]) -> None:
    forged(endpoint.issuer, **changes)
    visitor = endpoint.serve()

    answer = visitor.log_in()

    assert (answer.status, code(answer.headers)) == (502, "3448")
    assert visitor.session == []


def test_clocks_may_differ_a_little(endpoint: Endpoint) -> None:
    now = int(time.time())
    forged(endpoint.issuer, exp=now - 30, iat=now + 30, aud=[CLIENT_ID, "x"], azp=CLIENT_ID)

    assert endpoint.serve().log_in().status == 302


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS384"])
def test_wrong_signatures_let_nobody_in(endpoint: Endpoint, algorithm: str) -> None:
    endpoint.issuer.token = lambda claims: endpoint.issuer.key.sign(claims, algorithm)

    assert endpoint.serve().log_in().status == 502


def test_another_key_of_the_same_name_lets_nobody_in(endpoint: Endpoint) -> None:
    other = Key("one")
    endpoint.issuer.token = other.sign

    assert endpoint.serve().log_in().status == 502


def test_a_new_key_is_asked_for_but_not_all_the_time(endpoint: Endpoint) -> None:
    visitor = endpoint.serve()
    visitor.log_in()
    endpoint.issuer.keys.append(Key("two"))
    for _ in range(3):
        Visitor(endpoint.service, HOST).log_in()
    assert endpoint.issuer.calls["/jwks"] == 1, "it was asked a moment ago"
    time.sleep(10)

    assert Visitor(endpoint.service, HOST).log_in().status == 302
    assert endpoint.issuer.calls["/jwks"] == 2


def test_an_issuer_that_is_another_one_is_not_believed(endpoint: Endpoint) -> None:
    endpoint.issuer.metadata = {"issuer": "https://evil.example"}
    answer = endpoint.serve().go()
    assert (answer.status, code(answer.headers)) == (502, "3448")


def test_endpoints_without_tls_are_not_used(endpoint: Endpoint) -> None:
    endpoint.issuer.metadata = {"token_endpoint": "http://evil.example/token"}
    assert endpoint.serve().go().status == 502


def drip(call: Call) -> None:
    call.send_response(200)
    call.send_header("Content-Length", "1000")
    call.end_headers()
    for _ in range(100):
        call.wfile.write(b" ")
        time.sleep(0.2)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda call: call.say(200, b" " * (1 << 20)), id="a huge answer"),
        pytest.param(lambda call: call.say(302, {}, Location="/jwks"), id="a redirect"),
        pytest.param(lambda call: call.say(200, b"<html>"), id="a page"),
        pytest.param(lambda call: call.say(200, []), id="a list"),
        pytest.param(lambda call: call.say(500, {}), id="a failure"),
        pytest.param(drip, id="a drip"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_a_hostile_issuer_is_an_error(endpoint: Endpoint, answer: Any, path: str) -> None:
    endpoint.issuer.answers[path] = answer
    visitor = endpoint.serve()
    began = time.monotonic()

    first = visitor.go()
    last = first if path.startswith("/.") else visitor.go(visitor.ask(first.location))

    assert last.status == 502, last.body
    assert visitor.session == []
    assert time.monotonic() - began < 10


def test_what_the_issuer_said_is_used_while_it_fails(endpoint: Endpoint) -> None:
    """Logins go on with what is known of an issuer."""
    visitor = endpoint.serve()
    visitor.log_in()
    endpoint.issuer.answers["/.well-known/openid-configuration"] = lambda call: call.say(500, {})
    endpoint.issuer.answers["/jwks"] = lambda call: call.say(500, {})

    assert Visitor(endpoint.service, HOST).log_in().status == 302


def test_a_restart_changes_nothing_about_a_session(
    tmp_path: Any, upstream: Recorder, issuer: Issuer
) -> None:
    store = str(tmp_path / "ginnel.sqlite")
    with ginnel.Service(store) as service:
        endpoint = Endpoint(service, upstream, issuer)
        visitor = endpoint.serve()
        visitor.log_in()
        assert visitor.go().status == 200
        endpoint.remote.close()
    with ginnel.Service(store) as service:
        visitor.service = service

        assert visitor.go().status == 200


def test_another_node_knows_the_same_sessions(
    store: str, upstream: Recorder, issuer: Issuer
) -> None:
    with (
        ginnel.Service(store=store, settings={"node_name": "one"}) as first,
        ginnel.Service(store=store, settings={"node_name": "two"}) as second,
    ):
        endpoint = Endpoint(first, upstream, issuer)
        visitor = endpoint.serve()
        back = visitor.begin()
        visitor.service = second

        wait_until(lambda: visitor.send("/").status == 401, "the other node knows the policy")
        assert visitor.go(back).status == 302
        assert visitor.go().status == 200
        visitor.service = first
        assert visitor.go().status == 200
        endpoint.remote.close()


def test_an_issuer_gets_not_too_many_calls_at_once(endpoint: Endpoint) -> None:
    endpoint.serve(userinfo_refresh_interval="1s")
    visitors = [Visitor(endpoint.service, HOST) for _ in range(20)]
    for visitor in visitors:
        visitor.log_in()
    calls, most, lock = 0, 0, threading.Lock()

    def slowly(call: Call) -> None:
        nonlocal calls, most
        with lock:
            calls += 1
            most = max(most, calls)
        time.sleep(0.3)
        with lock:
            calls -= 1
        call.exchange()

    endpoint.issuer.answers["/token"] = slowly
    time.sleep(1.1)
    with ThreadPoolExecutor(20) as pool:
        statuses = {answer.status for answer in pool.map(lambda it: it.go(), visitors)}

    assert statuses == {200}
    assert 1 < most <= 8


def test_what_nobody_may_know_is_not_logged(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    visitor = endpoint.serve(userinfo_refresh_interval="1s", allow_groups=["nobody"])
    assert visitor.log_in().status == 403
    visitor = endpoint.serve(userinfo_refresh_interval="1s")
    visitor.log_in()
    time.sleep(1.1)
    visitor.go()
    endpoint.issuer.answers["/token"] = lambda call: call.say(400, {"error": "invalid_grant"})
    back = visitor.ask(visitor.go("/ngrok/login").location)
    assert visitor.go(back).status == 403

    secrets = {CLIENT_SECRET, *endpoint.issuer.access_tokens, *visitor.cookies.values()}
    secrets |= {value for value in back.replace("&", "=").split("=") if len(value) > 30}
    wait_until(lambda: "a login failed" in caplog.text, "a line of the log")
    assert not [secret for secret in secrets if secret in caplog.text]
