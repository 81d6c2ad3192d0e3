"""Clients of the operator at providers of OAuth, for policies that name none."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

import ginnel
from ginnel import policy
from issuer import CLIENT_ID, CLIENT_SECRET, Call, Issuer
from postgres import ON_BOTH_STORES
from recorder import Recorder, value_of
from test_openid_connect import Endpoint
from visitor import Visitor

AGENT_HOST = "app.tunnels.example.test"
NEEDS = r"google needs a client_id of one's own, or oauth\.google\.client_id"
SHOW = {
    "type": "custom-response",
    "config": {"content": "${actions.ngrok.oauth.identity.email}"},
}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


@pytest.fixture
def secret_file(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "secret"
    file.write_text(f"{CLIENT_SECRET}\n")
    return file


@pytest.fixture
def service(
    storage: dict[str, Any], issuer: Issuer, secret_file: pathlib.Path
) -> Iterator[ginnel.Service]:
    """A service whose operator has clients at Google and GitHub, both of which are the issuer."""
    google: Any = {
        "client_id": CLIENT_ID,
        "client_secret_file": str(secret_file),
        "issuer_url": issuer.url,
        "scopes": ["openid", "email", "of-the-operator"],
    }
    github: Any = {
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "authorization_url": f"{issuer.url}/authorize",
        "token_url": f"{issuer.url}/token",
        "userinfo_url": f"{issuer.url}/user",
    }
    linkedin = {**github, "userinfo_url": f"{issuer.url}/userinfo"}
    settings: Any = {"oauth": {"google": google, "github": github, "linkedin": linkedin}}
    with ginnel.Service(
        **storage, base_domain="tunnels.example.test", settings=settings
    ) as service:
        yield service


@pytest.fixture
def endpoint(service: ginnel.Service, upstream: Recorder, issuer: Issuer) -> Iterator[Endpoint]:
    endpoint = Endpoint(service, upstream, issuer)
    yield endpoint
    endpoint.remote.close()


def oauth(*more: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"actions": [{"type": "oauth", "config": {"provider": "google", **config}}, *more]}


def asked(visitor: Visitor) -> tuple[str, dict[str, list[str]]]:
    """Where a visitor without a session is sent, and with which parameters."""
    location = urlsplit(visitor.go().location)
    return f"{location.scheme}://{location.netloc}", parse_qs(location.query)


@ON_BOTH_STORES
def test_a_policy_without_a_client_uses_the_operators(endpoint: Endpoint) -> None:
    visitor = endpoint.rules(oauth(allow_domains=["example.com"]))

    where, parameters = asked(visitor)
    assert (where, parameters["client_id"]) == (endpoint.issuer.url, [CLIENT_ID])
    assert parameters["scope"] == ["openid email of-the-operator"]
    assert visitor.log_in("/x").location.endswith("/x")
    assert visitor.go("/x").status == 200
    assert value_of(endpoint.upstream.last, b"ngrok-auth-user-email") == b"ada@example.com"
    assert visitor.go("/ngrok/logout").status == 200
    assert visitor.go("/x").status == 302


def test_who_is_allowed_is_said_by_the_policy(endpoint: Endpoint) -> None:
    visitor = endpoint.rules(oauth(allow_emails=["eve@example.com"]))

    assert visitor.log_in().status == 403


def test_the_secret_of_the_operator_is_shown_to_nobody(endpoint: Endpoint) -> None:
    fields = "actions.ngrok.oauth"
    show = {"type": "custom-response", "config": {"content": f"${{{fields}}}"}}
    log = {"type": "log", "config": {"metadata": {"all": f"${{{fields}}}"}}}
    events = endpoint.service.events()
    assert events is not None
    visitor = endpoint.rules(oauth(log, show))
    visitor.log_in()
    body = visitor.go().body
    events_seen = [dataclasses.asdict(next(events)) for _ in range(3)]
    assert "ada@example.com" in repr(events_seen), "what the policy logs is in there"
    routes = endpoint.remote.edges.https.routes.get(*next(iter(endpoint.ids.values())))
    audit = endpoint.remote.audit_events.list().to_list()

    assert "ada@example.com" in body
    for text in (body, events_seen, routes, audit, endpoint.service, visitor.cookies):
        assert CLIENT_SECRET not in repr(text)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        pytest.param({"issuer_url": "https://eve.example"}, "client_id", id="issuer"),
        pytest.param({"token_url": "https://eve.example"}, "authorization_url", id="token"),
        pytest.param(
            {
                "authorization_url": "https://eve.example",
                "token_url": "https://eve.example",
                "userinfo_url": "https://eve.example",
            },
            "client_id",
            id="all addresses",
        ),
        pytest.param({"client_secret": "s"}, "client_secret", id="a secret"),
        pytest.param({"scopes": ["everything"]}, "scopes", id="scopes"),
        pytest.param({"auth_cookie_domain": "example.test"}, "auth_cookie_domain", id="a domain"),
        *(
            pytest.param(
                {"authz_url_params": {"prompt": "consent", name: "true"}},
                rf"authz_url_params\.{name}",
                id=name,
            )
            for name in ("include_granted_scopes", "audience", "claims", "access_type", "PROMPT")
        ),
    ],
)
def test_a_policy_says_nothing_about_the_client_of_the_operator(
    endpoint: Endpoint, config: dict[str, Any], field: str
) -> None:
    with pytest.raises(ginnel.BadRequestError, match=rf"config\.{field}: "):
        endpoint.rules(oauth(**config))


def test_a_policy_says_to_the_client_of_the_operator_who_is_to_log_in(endpoint: Endpoint) -> None:
    parameters = {"login_hint": "ada@example.com", "hd": "example.com", "prompt": "consent"}
    visitor = endpoint.rules(oauth(authz_url_params=parameters))

    said = asked(visitor)[1]

    assert {name: said[name] for name in parameters} == {
        name: [text] for name, text in parameters.items()
    }
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    own = asked(endpoint.rules(oauth(**client, authz_url_params={"audience": "own"})))[1]
    assert own["audience"] == ["own"]


def test_a_name_leads_where_the_operator_says_for_other_clients_as_well(endpoint: Endpoint) -> None:
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    visitor = endpoint.rules(oauth(SHOW, **client, scopes=["email", "own"]))

    where, parameters = asked(visitor)
    assert (where, parameters["scope"]) == (endpoint.issuer.url, ["openid email own"])
    visitor.log_in()
    assert visitor.go().body == "ada@example.com"


def test_a_session_of_a_policys_client_is_none_of_the_operators(endpoint: Endpoint) -> None:
    visitor = endpoint.rules(oauth(client_id=CLIENT_ID, client_secret=CLIENT_SECRET))
    visitor.log_in()
    assert visitor.go().status == 200

    endpoint.rules(oauth())

    assert visitor.go().status == 302


@pytest.mark.parametrize("is_managed", [True, False])
def test_sessions_of_the_operators_client_end_where_a_host_changes_hands(
    endpoint: Endpoint, is_managed: bool
) -> None:
    client = {} if is_managed else {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    visitor = endpoint.rules(oauth(**client))
    visitor.log_in()
    assert visitor.go().status == 200
    edge_id, _ = endpoint.ids.popitem()[1]
    endpoint.remote.edges.https.delete(edge_id)

    endpoint.rules(oauth(**client))

    # Whoever knows the secret of another client may well be the same.
    assert visitor.go().status == (302 if is_managed else 200)


def test_a_session_of_the_operators_client_is_good_for_agents_of_its_account_alone(
    service: ginnel.Service, upstream: Recorder
) -> None:
    rules = {"on_http_request": [oauth(SHOW)]}
    visitor = None
    with service.client() as remote:
        users = [remote.bot_users.create(name=name) for name in ("a", "b")]
        credentials = [remote.credentials.create(owner_id=user.id) for user in users]
    for authtoken, status in zip([0, 0, 1], [302, 200, 302], strict=True):
        token = credentials[authtoken].token
        with ginnel.Agent(service, authtoken=token) as agent, agent.client() as local:
            local.tunnels.start(
                addr=upstream.address, proto="http", subdomain="app", traffic_policy=rules
            )
            visitor = visitor or Visitor(service, AGENT_HOST)
            assert visitor.go().status == status
            if visitor.go().status == 302:
                visitor.log_in()
            assert visitor.go().body == "ada@example.com"


def test_agents_may_use_the_client_of_the_operator(
    service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    rules = {"on_http_request": [oauth(SHOW)]}
    with ginnel.Agent(service) as agent, agent.client() as local:
        tunnel = local.tunnels.start(addr=upstream.address, proto="http", traffic_policy=rules)
        visitor = Visitor(service, urlsplit(tunnel.public_url).netloc)
        visitor.log_in()
        assert visitor.go().body == "ada@example.com"


def scoped(
    upstream: Recorder, issuer: Issuer, *, is_issuer: bool, **github: Any
) -> Iterator[Endpoint]:
    """Where the operator's GitHub is an issuer, or has scopes of its own."""
    urls = ("authorization_url", "token_url", "userinfo_url")
    places = {"issuer_url": issuer.url} if is_issuer else dict.fromkeys(urls, issuer.url)
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    settings: Any = {"oauth": {"github": {**client, **places, **github}}}
    with ginnel.Service(settings=settings) as service:
        endpoint = Endpoint(service, upstream, issuer)
        yield endpoint
        endpoint.remote.close()


def test_no_list_of_a_policy_adds_to_the_scopes_of_the_operator(
    upstream: Recorder, issuer: Issuer
) -> None:
    for endpoint in scoped(upstream, issuer, is_issuer=False, scopes=["read:user"]):
        assert asked(endpoint.rules(oauth(provider="github")))[1]["scope"] == ["read:user"]
        for config in (
            {"allow_groups": ["acme"]},
            {"allow_emails": ["a@example.com"]},
            {"allow_domains": ["example.com"]},
        ):
            (name,) = config
            with pytest.raises(ginnel.BadRequestError, match=rf"{name} .*oauth\.github\.scopes"):
                endpoint.rules(oauth(provider="github", **config))
        client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "scopes": ["user"]}
        with pytest.raises(ginnel.BadRequestError, match=r"allow_groups .* which scopes lacks"):
            endpoint.rules(oauth(provider="github", **client, allow_groups=["acme"]))


def test_wider_scopes_of_github_say_groups_as_well(upstream: Recorder, issuer: Issuer) -> None:
    for endpoint in scoped(upstream, issuer, is_issuer=False, scopes=["user", "admin:org"]):
        visitor = endpoint.rules(oauth(provider="github", allow_groups=["acme"]))
        assert asked(visitor)[1]["scope"] == ["user admin:org"]


def test_an_issuer_is_asked_for_no_scopes_of_the_provider_it_stands_for(
    upstream: Recorder, issuer: Issuer
) -> None:
    for endpoint in scoped(upstream, issuer, is_issuer=True):
        visitor = endpoint.rules(oauth(provider="github", allow_groups=["acme"]))
        assert asked(visitor)[1]["scope"] == ["openid profile email"]


class Github:
    """An issuer that answers as GitHub does."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.addresses = [
            {"email": "old@example.com", "primary": False, "verified": True},
            {"email": "ada@example.com", "primary": True, "verified": True},
        ]
        issuer.answers |= {
            "/token": self.token,
            "/user": lambda call: call.say(200, {"id": 7, "login": "ada", "email": "x@y.example"}),
            "/user/emails": lambda call: call.say(200, self.addresses),
            "/user/orgs": lambda call: call.say(200, [{"login": "Acme"}]),
            "/user/teams": lambda call: call.say(
                200, [{"slug": "ops", "organization": {"login": "Other"}}]
            ),
        }

    def token(self, call: Call) -> None:
        assert (call.form["client_id"], call.form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
        assert call.form["code"] in self.issuer.codes
        call.say(200, {"access_token": "t", "token_type": "bearer"})


@pytest.fixture
def github(issuer: Issuer) -> Github:
    return Github(issuer)


@pytest.mark.parametrize("verified", [True, False])
def test_github_says_which_address_is_verified(
    endpoint: Endpoint, github: Github, verified: bool
) -> None:
    github.addresses[1]["verified"] = verified
    visitor = endpoint.rules(oauth(SHOW, provider="github", allow_domains=["example.com"]))

    assert asked(visitor)[1]["scope"] == ["read:user user:email"]
    assert visitor.log_in().status == (302 if verified else 403)

    assert (visitor.go().body == "ada@example.com") is verified
    assert endpoint.issuer.calls["/user/orgs"] == 0, "nobody has asked for them"


@pytest.mark.parametrize(
    ("group", "status"), [("ACME", 302), ("other/ops", 302), ("other", 403), ("acme/ops", 403)]
)
def test_organizations_and_teams_of_github_are_groups(
    endpoint: Endpoint, github: Github, group: str, status: int
) -> None:
    visitor = endpoint.rules(oauth(SHOW, provider="github", allow_groups=[group]))

    assert asked(visitor)[1]["scope"] == ["read:user user:email read:org"]
    assert visitor.log_in().status == status
    assert (visitor.go().status == 200) is (status == 302)


def test_linkedin_is_asked_without_pkce_and_with_the_secret_in_the_form(endpoint: Endpoint) -> None:
    issuer = endpoint.issuer
    issuer.userinfo = {"email": "ada@example.com", "email_verified": True}

    def authorize(call: Call) -> None:
        said = dict(parse_qsl(urlsplit(call.path).query))
        assert not any(name.startswith("code_challenge") for name in said)
        back = urlencode({"code": "c", "state": said["state"]})
        call.say(302, {}, Location=f"{said['redirect_uri']}?{back}")

    def token(call: Call) -> None:
        is_client = (call.form.get("client_id"), call.form.get("client_secret")) == (
            CLIENT_ID,
            CLIENT_SECRET,
        )
        if "code_verifier" in call.form or call.headers["Authorization"] or not is_client:
            call.say(401, {"error": "invalid_client"})
            return
        call.say(200, issuer.tokens(None))

    issuer.answers |= {"/authorize": authorize, "/token": token}
    visitor = endpoint.rules(oauth(SHOW, provider="linkedin", allow_domains=["example.com"]))

    assert visitor.log_in().status == 302
    assert visitor.go().body == "ada@example.com"


def test_without_pkce_a_client_needs_its_secret(endpoint: Endpoint) -> None:
    with pytest.raises(ginnel.BadRequestError, match=r"config\.client_secret: .*linkedin"):
        endpoint.rules(oauth(provider="linkedin", client_id=CLIENT_ID))
    linkedin: Any = {"client_id": CLIENT_ID}
    with pytest.raises(ginnel.GinnelError, match=r"oauth\.linkedin\.client_secret: is required"):
        ginnel.Service(settings={"oauth": {"linkedin": linkedin}})


def test_without_a_client_of_the_operator_a_policy_needs_its_own(upstream: Recorder) -> None:
    document = {"on_http_request": [oauth()]}
    with ginnel.Service() as service, service.client() as remote:
        edge = remote.edges.https.create(hostports=["a.example.test:443"])
        route = remote.edges.https.routes.create(edge.id, match_type="path_prefix", match="/")
        with pytest.raises(ginnel.BadRequestError, match=NEEDS):
            remote.edges.https.routes.policy.replace(
                edge.id, route.id, inbound=document["on_http_request"]
            )
        with pytest.raises(ginnel.BadRequestError, match=NEEDS):
            remote.endpoints.create(
                url="https://b.example.test", traffic_policy=str(document).replace("'", '"')
            )
        with (
            ginnel.Agent(service) as agent,
            agent.client() as local,
            pytest.raises(ginnel.APIStatusError, match=NEEDS),
        ):
            local.tunnels.start(
                addr=upstream.address, proto="http", name="x", traffic_policy=document
            )

    assert policy.check(document) == [], "a service may have one"
    page: Any = {"url": "https://a.example", "headers": {"accept": "text/html"}}
    sent = policy.test(document, request=page).response
    assert sent is not None
    assert sent.status == 302
    ada: Any = {"id": "1", "email": "ada@example.com"}
    shown = policy.test(document, request=page, login=ada, response=200).response
    assert shown is not None
    assert shown.status == 200


def test_what_lets_nobody_in_is_refused(endpoint: Endpoint) -> None:
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    endpoint.rules(oauth())
    for provider in ("amazon", "facebook", "microsoft"):
        with pytest.raises(ginnel.BadRequestError, match=f"{provider} does not say"):
            endpoint.rules(oauth(provider=provider, **client, allow_emails=["a@example.com"]))
    for provider in ("facebook", "twitch", "microsoft"):
        with pytest.raises(ginnel.BadRequestError, match=f"{provider} says no groups"):
            endpoint.rules(oauth(provider=provider, **client, allow_groups=["staff"]))
    endpoint.rules(oauth(provider="gitlab", **client, allow_groups=["staff"]))


@pytest.mark.parametrize(
    ("google", "problem"),
    [
        ({"client_secret": "s"}, "client_secret: is of no use without oauth.google.client_id"),
        ({"client_id": "a", "issuer_url": "http://a.example"}, "issuer_url: .* is not an https"),
        ({"client_id": "a", "token_url": "https://a.example"}, "authorization_url: "),
        (
            {"client_id": "a", "client_secret_file": "/nowhere/x"},
            "client_secret_file: .*/nowhere/x",
        ),
        ({"clientid": "a"}, "unknown key .*did you mean"),
    ],
)
def test_a_wrong_setting_is_named(google: Any, problem: str) -> None:
    with pytest.raises(ginnel.GinnelError, match=problem):
        ginnel.Service(settings={"oauth": {"google": google}})
