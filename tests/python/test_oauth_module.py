"""The module `oauth` of routes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import ginnel
from issuer import CLIENT_ID, CLIENT_SECRET, Call, Issuer
from postgres import ON_BOTH_STORES
from recorder import Recorder, value_of
from test_oauth_applications import Github
from visitor import Visitor, seconds_of_a_session

HOST = "module.example.test"
CLIENT = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


@pytest.fixture
def service(storage: dict[str, Any], issuer: Issuer) -> Iterator[ginnel.Service]:
    """A service whose operator has a client at Google, and says where GitHub and LinkedIn are."""
    places: Any = {
        "google": {**CLIENT, "issuer_url": issuer.url},
        "linkedin": {"issuer_url": issuer.url},
        "github": {
            "authorization_url": f"{issuer.url}/authorize",
            "token_url": f"{issuer.url}/token",
            "userinfo_url": f"{issuer.url}/user",
        },
    }
    with ginnel.Service(**storage, settings={"oauth": places}) as service:
        yield service


@ON_BOTH_STORES
async def test_a_route_lets_in_who_has_logged_in_at_a_provider(
    client: Any, service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    backend = await client.backends.static.create(address=upstream.address)
    edge = await client.edges.https.create(hostports=[f"{HOST}:443"])
    routes = client.edges.https.routes
    config = {"headers": {"x-who": "${actions.ngrok.oauth.identity.name}"}}
    route = await routes.create(
        edge.id,
        match_type="path_prefix",
        match="/",
        backend={"backend_id": backend.id},
        oauth={
            "provider": {"google": {"email_domains": ["example.com"]}},
            "cookie_prefix": "mine.",
        },
        policy={"inbound": [{"actions": [{"type": "add-headers", "config": config}]}]},
    )
    shown = await routes.oauth.get(edge.id, route.id)
    assert shown.provider.google.email_domains == ["example.com"]
    assert (shown.enabled, shown.cookie_prefix, shown.provider.github) == (True, "mine.", None)
    assert (await routes.get(edge.id, route.id)).oauth == shown
    visitor = Visitor(service, HOST)

    assert visitor.log_in("/x").location == f"https://{HOST}/x"
    assert all(name.startswith("__Host-mine.") for name in visitor.cookies)
    assert visitor.go("/x").status == 200
    assert value_of(upstream.last, b"x-who") == b"Ada Lovelace"

    replaced = await routes.oauth.replace(
        edge.id, route.id, provider={"google": {"email_addresses": ["eve@example.com"]}}
    )
    assert replaced.provider.google.email_domains is None
    visitor = Visitor(service, HOST)
    assert visitor.enter("/x").status == 403

    await routes.policy.delete(edge.id, route.id)
    await routes.oauth.replace(edge.id, route.id, provider={"google": {}}, enabled=False)
    assert Visitor(service, HOST).go("/x").status == 200
    await routes.oauth.replace(edge.id, route.id, provider={"google": {}})
    assert Visitor(service, HOST).go("/x").status == 302
    await routes.oauth.delete(edge.id, route.id)
    assert Visitor(service, HOST).go("/x").status == 200
    with pytest.raises(ginnel.NotFoundError):
        await routes.oauth.get(edge.id, route.id)


class Route:
    """A route with the module."""

    def __init__(self, service: ginnel.Service, upstream: Recorder) -> None:
        self.service = service
        self.remote = service.client()
        self.backend = self.remote.backends.static.create(address=upstream.address)
        self.edge = self.remote.edges.https.create(hostports=[f"{HOST}:443"])
        self.route = self.remote.edges.https.routes.create(
            self.edge.id,
            match_type="path_prefix",
            match="/",
            backend={"backend_id": self.backend.id},
        )

    def serve(self, provider: dict[str, Any], **fields: Any) -> Visitor:
        module = self.remote.edges.https.routes.oauth
        module.replace(self.edge.id, self.route.id, provider=provider, **fields)
        return Visitor(self.service, HOST)

    def add(self, path: str, provider: dict[str, Any]) -> None:
        """A second route of the edge, with a login of its own."""
        self.remote.edges.https.routes.create(
            self.edge.id,
            match_type="path_prefix",
            match=path,
            backend={"backend_id": self.backend.id},
            oauth={"provider": provider},
        )


@pytest.fixture
def route(service: ginnel.Service, upstream: Recorder) -> Iterator[Route]:
    route = Route(service, upstream)
    yield route
    route.remote.close()


def test_a_client_of_ones_own_asks_for_its_scopes(route: Route) -> None:
    visitor = route.serve({"linkedin": {**CLIENT, "scopes": ["email", "own"]}})

    asked = parse_qs(urlsplit(visitor.go().location).query)

    assert (asked["client_id"], asked["scope"]) == ([CLIENT_ID], ["openid email own"])
    visitor.log_in()
    assert visitor.go().status == 200


def test_the_secret_of_a_client_of_ones_own_is_no_expression(route: Route, issuer: Issuer) -> None:
    secrets: list[str] = []

    def note(call: Call) -> None:
        secrets.extend(call.basic())
        call.say(400, {})

    issuer.answers["/token"] = note
    route.serve({"linkedin": {"client_id": "a", "client_secret": "${1 + 1}"}})
    visitor = Visitor(route.service, HOST)
    issuer.answers["/authorize"] = lambda call: call.say(
        302,
        {},
        Location=f"https://{HOST}/ngrok/callback?code=x&state="
        + parse_qs(urlsplit(call.path).query)["state"][0],
    )

    assert visitor.log_in().status == 502
    assert secrets[1] == "%24%7B1+%2B+1%7D"


def test_a_session_ends_when_nobody_uses_it_and_in_any_case(route: Route) -> None:
    idle = route.serve({"google": {}}, inactivity_timeout=1)
    assert seconds_of_a_session(idle, pause=1.2) >= 1

    lasting = route.serve({"google": {}}, maximum_duration=2)
    assert 2 <= seconds_of_a_session(lasting, pause=0.2) < 10


def test_the_provider_is_asked_again_as_often_as_the_module_says(
    route: Route, issuer: Issuer
) -> None:
    visitor = route.serve({"google": {"email_domains": ["example.com"]}}, auth_check_interval=1)
    visitor.log_in()
    assert visitor.go().status == 200
    issuer.userinfo = {"email": "ada@elsewhere.example", "email_verified": True}

    time.sleep(1.2)

    assert visitor.go().status == 403


@pytest.mark.parametrize(("passes", "status"), [(True, 200), (False, 401)])
def test_preflights_pass_if_the_module_says_so(route: Route, passes: bool, status: int) -> None:
    visitor = route.serve({"google": {}}, options_passthrough=passes)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}

    assert visitor.send("/", "OPTIONS", asked).status == status


@pytest.mark.parametrize(
    ("lists", "status"),
    [
        ({"organizations": ["acme"]}, 200),
        ({"teams": ["Other/OPS"]}, 200),
        ({"organizations": ["other"], "teams": ["acme/ops"]}, 403),
        ({"organizations": ["other"], "email_addresses": ["Ada@example.com"]}, 200),
    ],
)
def test_members_of_organizations_and_teams_of_github_come_in(
    route: Route, issuer: Issuer, lists: dict[str, list[str]], status: int
) -> None:
    Github(issuer)
    visitor = route.serve({"github": {**CLIENT, **lists}})

    assert visitor.enter().status == status


@pytest.mark.parametrize("first", ["/admin", "/"])
def test_two_routes_of_a_host_have_logins_of_their_own_at_one_provider(
    route: Route, issuer: Issuer, upstream: Recorder, first: str
) -> None:
    Github(issuer)
    route.serve({"github": CLIENT})
    route.add("/admin", {"github": {**CLIENT, "organizations": ["acme"]}})
    visitor = Visitor(route.service, HOST)

    for path in (first, "/admin" if first == "/" else "/"):
        assert visitor.go(path).status == 302
        assert visitor.log_in(path).location == f"https://{HOST}{path}"
        assert visitor.go(path).status == 200
    assert visitor.go(first).status == 200, "the second login has left the first one alone"


def test_two_clients_at_one_provider_have_logins_of_their_own(route: Route, issuer: Issuer) -> None:
    route.serve({"google": {}})
    route.add("/own", {"google": {**CLIENT, "scopes": ["email"]}})
    visitor = Visitor(route.service, HOST)

    for path in ("/", "/own"):
        assert visitor.log_in(path).location == f"https://{HOST}{path}"
        assert visitor.go(path).status == 200
    assert visitor.go("/").status == 200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"provider": {}}, "provider: is required, with one of amazon, facebook, github"),
        ({"provider": {"google": {}, "twitch": {}}}, "there are google and twitch"),
        ({"provider": {"google": {"client_id": "a"}}}, r"google\.client_secret: is required"),
        ({"provider": {"google": {"client_secret": "a"}}}, r"google\.client_secret: .*client_id"),
        ({"provider": {"google": {"scopes": ["a"]}}}, r"google\.scopes: .* needs a client_id"),
        ({"provider": {"gitlab": {}}}, r"provider\.gitlab: .*oauth\.gitlab\.client_id"),
        (
            {"provider": {"microsoft": {**CLIENT, "email_domains": ["a.example"]}}},
            r"provider\.microsoft: email_addresses and email_domains have no effect",
        ),
        (
            {"provider": {"google": {"email_addresses": ["a.example"]}}},
            r"provider\.google\.email_addresses: .* is not an email address",
        ),
        ({"provider": {"github": {**CLIENT, "teams": ["ops"]}}}, "organization/team"),
        ({"provider": {"github": {**CLIENT, "organizations": ["a/b"]}}}, "no organization"),
        ({"provider": {"google": {}}, "auth_check_interval": -1}, "auth_check_interval: "),
        ({"provider": {"google": {}}, "maximum_duration": 10**9}, "maximum_duration: "),
        ({"provider": {"google": {}}, "inactivity_timeout": -1}, "inactivity_timeout: "),
        ({"provider": {"google": {}}, "cookie_prefix": "a;b"}, "cookie_prefix: "),
    ],
)
def test_what_is_wrong_with_the_module_is_said_by_its_fields(
    route: Route, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ginnel.BadRequestError, match=message):
        route.serve(**fields)
