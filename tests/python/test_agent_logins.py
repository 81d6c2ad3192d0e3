"""Logins that agents ask for at their own endpoints: `oauth` and `oidc` of tunnels."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
import trustme

import ginnel
from compat import Program, environment, write_launcher
from conftest import Face
from issuer import CLIENT_ID, CLIENT_SECRET, Call, Issuer
from postgres import ON_BOTH_STORES
from recorder import Recorder, value_of
from test_agent_command import running
from test_official_agent import Official
from visitor import Visitor

CLIENT = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
WEB = ["--web-addr", "127.0.0.1:0", "--log", "stdout"]
NEEDS = r"oauth: the provider google needs a client_id of one's own, or oauth\.google\.client_id"


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    """An issuer with TLS, which the service and visitors trust."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "issuer.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "issuer.pem"))
    with Issuer(tls) as issuer:
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


@pytest.fixture
def service(storage: dict[str, Any], issuer: Issuer) -> Iterator[ginnel.Service]:
    """A service whose operator has a client at Google, and says where LinkedIn is."""
    place = {"issuer_url": issuer.url}
    oauth = {"google": {**CLIENT, **place}, "linkedin": place}
    settings: Any = {"oauth": oauth, "private_issuers": True}
    with ginnel.Service(**storage, base_domain="t.example.test", settings=settings) as service:
        yield service


@pytest.fixture
def agent(service: ginnel.Service) -> Iterator[ginnel.Agent]:
    with ginnel.Agent(service) as agent:
        yield agent


@pytest.fixture(params=["blocking", "asyncio"])
def here(request: pytest.FixtureRequest, agent: ginnel.Agent) -> Iterator[Any]:
    client: Any = agent.client() if request.param == "blocking" else agent.async_client()
    yield Face(client) if request.param == "blocking" else client
    client.close()


def at(service: ginnel.Service, url: str) -> Visitor:
    return Visitor(service, urlsplit(url).netloc)


def asked(visitor: Visitor) -> tuple[str, dict[str, list[str]]]:
    """Where a visitor without a session is sent, and with which parameters."""
    location = urlsplit(visitor.go().location)
    return f"{location.scheme}://{location.netloc}", parse_qs(location.query)


@ON_BOTH_STORES
async def test_a_tunnel_lets_in_who_has_logged_in_at_its_issuer(
    here: Any, service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    oidc = {"issuer_url": issuer.url, **CLIENT, "allow_domains": ["Example.com"]}
    tunnel = await here.tunnels.start(addr=upstream.address, proto="http", oidc=oidc)
    visitor = at(service, tunnel.public_url)

    where, parameters = asked(visitor)
    assert (where, parameters["scope"]) == (issuer.url, ["openid profile email"])
    assert visitor.send("/").status == 401
    assert upstream.heads == []
    assert visitor.log_in("/x").status == 302
    assert visitor.go("/x").status == 200
    assert value_of(upstream.last, b"ngrok-auth-user-email") == b"ada@example.com"
    assert visitor.go("/ngrok/logout").status == 200
    assert visitor.go("/x").status == 302

    issuer.claims["email"] = "ada@elsewhere.example"
    other = at(service, tunnel.public_url)
    assert other.log_in().status == 403
    assert len(upstream.heads) == 1


def test_a_client_of_ones_own_asks_for_its_scopes(
    agent: ginnel.Agent, service: ginnel.Service, upstream: Recorder
) -> None:
    oauth = {"provider": "linkedin", **CLIENT, "scopes": ["email", "own"]}
    with agent.client() as local:
        url = local.tunnels.start(addr=upstream.address, proto="http", oauth=oauth).public_url
        visitor = at(service, url)

        assert asked(visitor)[1]["scope"] == ["openid email own"]
        visitor.log_in()
        assert visitor.go().status == 200


def test_a_secret_is_no_expression(
    agent: ginnel.Agent, service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    sent: list[str] = []

    def token(call: Call) -> None:
        sent.extend(call.basic())
        call.say(400, {})

    issuer.answers["/token"] = token
    login = {"issuer_url": issuer.url, "client_id": CLIENT_ID, "client_secret": "${1 + 1}"}
    with agent.client() as local:
        url = local.tunnels.start(addr=upstream.address, proto="http", oidc=login).public_url

        assert at(service, url).log_in().status == 502
    assert sent[1] == "%24%7B1+%2B+1%7D"


class Place:
    """Where a tunnel is started: a service, what it leads to, and a folder for files."""

    def __init__(self, service: ginnel.Service, upstream: Recorder, folder: Path) -> None:
        self.service, self.upstream, self.folder = service, upstream, folder

    def file(self, version: str, **tunnels: Any) -> str:
        """A configuration file."""
        address, authorities = self.service.agent_addr, self.folder / "ca.pem"
        authorities.write_text(self.service.ca_pem)
        agent: dict[str, Any] = {"server_addr": address, "root_cas": str(authorities)}
        if version == "3":
            agent = {"agent": {"connect_url": address, "connect_cas": str(authorities)}}
        file = self.folder / "agent.yml"
        file.write_text(json.dumps({"version": version, **agent, "tunnels": tunnels}))
        return str(file)


@contextmanager
def by_a_file(place: Place, version: str, oauth: dict[str, Any]) -> Iterator[str]:
    tunnel = {"addr": place.upstream.address, "proto": "http", "oauth": oauth}
    config = place.file(version, web=tunnel)
    assert place.service.authtoken is not None
    token = place.service.authtoken
    with running("start", "web", "--config", config, GINNEL_AUTHTOKEN=token) as event:
        yield event("tunnel")["public_url"]


@contextmanager
def by_a_definition(place: Place, oauth: dict[str, Any]) -> Iterator[str]:
    config, definition = place.file("2"), place.folder / "definition.json"
    definition.write_text(json.dumps({"oauth": oauth}))
    files = ["--config", config, "--definition-file", str(definition)]
    assert place.service.authtoken is not None
    token = place.service.authtoken
    with running("http", place.upstream.address, *files, GINNEL_AUTHTOKEN=token) as event:
        yield event("tunnel")["public_url"]


def flags(kind: str, login: dict[str, Any]) -> list[str]:
    """Fields of a login as options."""
    named = {"provider": "", "issuer_url": "", "allow_emails": "-allow-email", "scopes": "-scope"}
    words = []
    for name, value in login.items():
        option = named.get(name, f"-{name}".rstrip("s").replace("_", "-"))
        for text in value if isinstance(value, list) else [value]:
            words.append(f"--{kind}{option}={text}")
    return words


@contextmanager
def by_flags(place: Place, oauth: dict[str, Any]) -> Iterator[str]:
    env, options = environment(place.service, place.folder), flags("oauth", oauth)
    launcher = write_launcher(place.folder)
    with Program(launcher, "http", place.upstream.address, *WEB, *options, env=env) as program:
        yield program.fields("started tunnel")["url"]


@contextmanager
def official(service: ginnel.Service) -> Iterator[Official]:
    program = Official(service, "python")
    try:
        program.connect()
        yield program
    finally:
        program.end()


@contextmanager
def by_the_official_library(place: Place, oauth: dict[str, Any]) -> Iterator[str]:
    with official(place.service) as program:
        yield program.do(http=int(place.upstream.address.rpartition(":")[2]), oauth=oauth)


WAYS: dict[str, Callable[[Place, dict[str, Any]], AbstractContextManager[str]]] = {
    "file of version 2": lambda place, oauth: by_a_file(place, "2", oauth),
    "file of version 3": lambda place, oauth: by_a_file(place, "3", oauth),
    "definition": by_a_definition,
    "flags": by_flags,
    "official library": by_the_official_library,
}


@pytest.mark.parametrize("way", WAYS)
def test_visitors_log_in_however_the_agent_asks_for_it(
    way: str, service: ginnel.Service, issuer: Issuer, upstream: Recorder, tmp_path: Path
) -> None:
    oauth = {
        "provider": "google",
        "allow_emails": ["eve@elsewhere.example", "bob@elsewhere.example"],
        "allow_domains": ["example.com"],
    }
    with WAYS[way](Place(service, upstream, tmp_path), oauth) as url:
        visitor = at(service, url)
        assert asked(visitor)[0] == issuer.url
        visitor.log_in()
        assert visitor.go().status == 200

        for email, status in [("bob@elsewhere.example", 200), ("ada@elsewhere.example", 403)]:
            issuer.claims["email"] = email
            visitor = at(service, url)
            assert visitor.enter().status == status
    assert len(upstream.heads) == 2


@pytest.mark.parametrize("kind", ["oauth", "oidc"])
def test_the_official_library_has_clients_of_its_own(
    kind: str, service: ginnel.Service, issuer: Issuer, upstream: Recorder
) -> None:
    place = {"oauth": {"provider": "linkedin"}, "oidc": {"issuer_url": issuer.url}}[kind]
    login = {**place, **CLIENT, "scopes": ["email", "own"]}
    port = int(upstream.address.rpartition(":")[2])
    with official(service) as program:
        visitor = at(service, program.do(http=port, **{kind: login}))
        assert asked(visitor)[1]["scope"] == ["openid email own"]
        visitor.log_in()
        assert visitor.go().status == 200

        refused = program.do(http=port, oauth={"provider": "gitlab"})

    assert "oauth.gitlab.client_id" in json.dumps(refused)


def test_flags_name_an_issuer(
    service: ginnel.Service, issuer: Issuer, upstream: Recorder, tmp_path: Path
) -> None:
    login = {"issuer_url": issuer.url, **CLIENT, "scopes": ["email", "own"]}
    env, options = environment(service, tmp_path), flags("oidc", login)
    launcher = write_launcher(tmp_path)
    with Program(launcher, "http", upstream.address, *WEB, *options, env=env) as program:
        visitor = at(service, program.fields("started tunnel")["url"])

        assert asked(visitor)[1]["scope"] == ["openid email own"]
        visitor.log_in()
        assert visitor.go().status == 200


def test_without_an_application_of_the_operator_a_tunnel_needs_a_client(upstream: Recorder) -> None:
    with ginnel.Service() as service, ginnel.Agent(service) as agent, agent.client() as local:
        with pytest.raises(ginnel.APIStatusError, match=NEEDS):
            local.tunnels.start(addr=upstream.address, proto="http", oauth={"provider": "google"})
        assert not list(local.tunnels.list())


LOGIN = {"issuer_url": "https://issuer.example", "client_id": "a"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"oauth": {}}, r"oauth\.provider: is required"),
        ({"oauth": {"provider": "me"}}, r'oauth\.provider: "me" is not one of amazon, .*oidc'),
        ({"oauth": {"provider": "google", "client_id": "a"}}, r"oauth\.client_secret: is required"),
        ({"oauth": {"provider": "google", "client_secret": "a"}}, r"oauth\.client_secret: .*needs"),
        ({"oauth": {"provider": "google", "scopes": ["a"]}}, r"oauth\.scopes: .*needs a client_id"),
        ({"oauth": {"provider": "google", "grant": 1}}, "grant"),
        (
            {"oauth": {"provider": "google", "allow_emails": ["a.example"]}},
            r'oauth\.allow_emails: "a\.example" is not an email address',
        ),
        (
            {"oauth": {"provider": "google", "allow_domains": ["a.example", ""]}},
            r"oauth\.allow_domains\[1\]: must be from 1 to 2048 bytes",
        ),
        (
            {"oauth": {"provider": "facebook", **CLIENT, "allow_domains": ["a.example"]}},
            "oauth: allow_emails and allow_domains have no effect",
        ),
        ({"oidc": {"client_id": "a"}}, r"oidc\.issuer_url: is required"),
        ({"oidc": {"issuer_url": "https://a.example"}}, r"oidc\.client_id: is required"),
        (
            {"oidc": {**LOGIN, "issuer_url": "http://127.0.0.1:1"}},
            r'oidc\.issuer_url: "http://127\.0\.0\.1:1" is not an https url',
        ),
        (
            {"oidc": {**LOGIN, "issuer_url": "https://a:swordfish@b.example"}},
            r'oidc\.issuer_url: "https://[^"s]*@b\.example" is not an https url without user',
        ),
        ({"oidc": {**LOGIN, "scopes": ["a b"]}}, r"oidc\.scopes: a scope has no spaces"),
        ({"oidc": {**LOGIN, "allow_domains": ["a@b.example"]}}, r"oidc\.allow_domains: "),
        ({"oidc": LOGIN, "oauth": {"provider": "google"}}, "oidc: visitors log in once"),
        ({"proto": "tcp", "oauth": {"provider": "google"}}, "oauth: does not belong"),
        ({"proto": "tls", "oidc": LOGIN}, "oidc: does not belong"),
    ],
)
def test_what_is_wrong_with_a_login_is_said_by_its_fields(
    agent: ginnel.Agent, upstream: Recorder, fields: dict[str, Any], message: str
) -> None:
    with agent.client() as local:
        with pytest.raises(ginnel.APIStatusError, match=message):
            local.tunnels.start(**{"addr": upstream.address, "proto": "http", **fields})
        assert not list(local.tunnels.list())


@pytest.mark.parametrize("is_open", [False, True], ids=["public alone", "private too"])
def test_issuers_of_agents_are_asked_at_public_addresses_alone(
    is_open: bool, upstream: Recorder
) -> None:
    with (
        ginnel.Service(
            base_domain="t.example.test", settings={"private_issuers": is_open}
        ) as service,
        ginnel.Agent(service) as agent,
        agent.client() as local,
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor() as pool,
    ):
        login = {**LOGIN, "issuer_url": f"https://localhost:{listener.getsockname()[1]}"}
        tunnel = local.tunnels.start(addr=upstream.address, proto="http", oidc=login)
        visiting = pool.submit(at(service, tunnel.public_url).go)
        listener.settimeout(10 if is_open else 0.5)
        if is_open:
            listener.accept()[0].close()
        else:
            with pytest.raises(TimeoutError):
                listener.accept()

        assert visiting.result().status == 502
    assert upstream.heads == []


def test_the_secret_of_a_login_is_shown_nowhere(
    service: ginnel.Service, issuer: Issuer, upstream: Recorder, tmp_path: Path
) -> None:
    secret = "swordfish" + CLIENT_SECRET
    login = {"issuer_url": issuer.url, "client_id": CLIENT_ID, "client_secret": secret}
    env, options = environment(service, tmp_path), [*flags("oidc", login), "--log-level", "debug"]
    events = service.events()
    assert events is not None
    launcher = write_launcher(tmp_path)
    with Program(launcher, "http", upstream.address, *WEB, *options, env=env) as program:
        web = program.fields("starting web service")["addr"]
        assert at(service, program.fields("started tunnel")["url"]).go().status == 302
        shown = []
        for path in ("tunnels", "tunnels/command_line", "endpoints", "status", "requests/http"):
            with urlopen(f"http://{web}/api/{path}", timeout=10) as response:
                shown.append(response.read().decode())
        with urlopen(f"http://{web}/status", timeout=10) as response:
            page = response.read().decode()
        with service.client() as remote:
            lists = (remote.tunnels.list(), remote.endpoints.list(), remote.audit_events.list())
            shown += [repr(list(found)) for found in lists]
        if sys.platform == "linux":
            shown.append(Path(f"/proc/{program.process.pid}/cmdline").read_bytes().decode())
            assert "--oidc-client-secret=***" in shown[-1]
    shown += [page, repr(next(events)), repr(service)]
    shown += [*program.written, *program.complaints]

    assert all("swordfish" not in text for text in shown)
    assert any(issuer.url in text for text in shown), "the rest of the definition is there"


def test_a_file_shows_its_secrets_masked(tmp_path: Path) -> None:
    login = {**LOGIN, "client_secret": "swordfish"}
    file = tmp_path / "agent.yml"
    tunnels = {"web": {"addr": 80, "proto": "http", "oidc": login}}
    file.write_text(json.dumps({"version": "2", "tunnels": tunnels}))
    command = [sys.executable, "-m", "ginnel", "config", "show", "--agent", "--config", str(file)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)

    assert "issuer.example" in shown.stdout
    assert "swordfish" not in shown.stdout + shown.stderr
