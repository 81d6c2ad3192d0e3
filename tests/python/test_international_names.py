"""Names with letters outside ASCII are stored in their `xn--` form, in every field with a host."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import ginnel
from ginnel import _native
from recorder import Recorder, get, value_of

NAME, WIRE = "b\u00fccher.example.test", "xn--bcher-kva.example.test"
LABEL, WIRE_LABEL = "b\u00fccher", "xn--bcher-kva"
POLICY = json.dumps({"on_http_request": [{"actions": [{"type": "deny"}]}]})


@dataclass
class House:
    service: ginnel.Service
    remote: ginnel.RemoteClient
    agent: ginnel.Agent
    local: ginnel.AgentClient
    upstream: Recorder

    def visit(self, host: str) -> int:
        assert self.service.http_url is not None
        return get(self.service.http_url.removeprefix("http://"), host, "/")[0]

    def route(self) -> tuple[str, str]:
        edge = self.remote.edges.https.create()
        route = self.remote.edges.https.routes.create(edge.id, match_type="path_prefix", match="/")
        assert route.id
        return edge.id, route.id

    def tunnel(self, **fields: Any) -> Any:
        """A tunnel to the upstream; it is stopped before the next one starts."""
        self.local.tunnels.stop("web") if list(self.local.tunnels.list()) else None
        usual: dict[str, Any] = {"addr": self.upstream.port, "proto": "http", "schemes": ["http"]}
        return self.local.tunnels.start(name="web", **(usual | fields))

    def refusal(self, call: Callable[[], object]) -> str:
        with pytest.raises(ginnel.GinnelError) as refused:
            call()
        return str(refused.value)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with (
        Recorder() as upstream,
        ginnel.Service(base_domain="example.test") as service,
        service.client() as remote,
        ginnel.Agent(service, web_allow_hosts=[NAME]) as agent,
        agent.client() as local,
    ):
        yield House(service, remote, agent, local, upstream)


def static_address(house: House) -> str:
    return str(house.remote.backends.static.create(address=f"{NAME}:80").address)


def server_name(house: House) -> str:
    tls = {"enabled": True, "server_name": NAME}
    backend = house.remote.backends.static.create(address="127.0.0.1:9", tls=tls)
    assert backend.tls
    return str(backend.tls.server_name)


def hostports(kind: str) -> Callable[[House], str]:
    def create(house: House) -> str:
        edge = getattr(house.remote.edges, kind).create(hostports=[f"{NAME}:443"])
        getattr(house.remote.edges, kind).delete(edge.id)
        return str(edge.hostports[0])

    return create


def issuer(house: House) -> str:
    edge, route = house.route()
    module: dict[str, Any] = {
        "issuer": f"https://{NAME}",
        "client_id": "a",
        "client_secret": "b",
    }
    found = house.remote.edges.https.routes.oidc.replace(edge, route, **module)
    return str(found.issuer)


def issuer_of_a_new_route(house: House) -> str:
    edge, _ = house.route()
    module = {"issuer": f"https://{NAME}", "client_id": "a", "client_secret": "b"}
    route = house.remote.edges.https.routes.create(
        edge, match_type="path_prefix", match="/b", oidc=module
    )
    assert route.oidc
    return str(route.oidc.issuer)


def endpoint(house: House) -> str:
    made = house.remote.endpoints.create(url=f"https://{NAME}", traffic_policy=POLICY)
    house.remote.endpoints.delete(made.id)
    return str(made.url)


def destination(kind: str) -> Callable[[House], str]:
    def create(house: House) -> str:
        url = f"https://{NAME}:8443/\u00fc?q=\u00fc"
        made = house.remote.event_destinations.create(target={kind: {"url": url}})
        stored = str(getattr(house.remote.event_destinations.get(made.id).target, kind).url)
        assert stored.endswith(":8443/\u00fc?q=\u00fc"), "only the host changes"
        return stored

    return create


def reserved_domain(house: House) -> str:
    made = house.remote.reserved_domains.create(domain=NAME)
    house.remote.reserved_domains.delete(made.id)
    return str(made.domain)


def local_endpoint(house: House) -> str:
    made = house.local.endpoints.start(
        name="endpoint", url=f"https://{NAME}", upstream={"url": house.upstream.port}
    )
    house.local.endpoints.stop("endpoint")
    return str(made.url)


def local_upstream(house: House) -> str:
    made = house.local.endpoints.start(name="endpoint", upstream={"url": f"http://{NAME}:80"})
    house.local.endpoints.stop("endpoint")
    assert made.upstream
    return str(made.upstream.url)


def domain(field: str) -> Callable[[House], str]:
    def start(house: House) -> str:
        started = house.tunnel(**{field: NAME})
        assert house.visit(WIRE) == 200
        return str(started.public_url)

    return start


def subdomain(house: House) -> str:
    started = house.tunnel(subdomain=LABEL)
    assert house.visit(WIRE) == 200
    return str(started.public_url)


def host_header(house: House) -> str:
    house.tunnel(domain="plain.example.test", host_header=f"{NAME}:8080")
    assert house.visit("plain.example.test") == 200
    return (value_of(house.upstream.last, b"host") or b"").decode()


def local_issuer(house: House) -> str:
    # The service resolves the issuer of a login only when a visitor comes.
    login = {"issuer_url": f"https://{NAME}", "client_id": "a", "client_secret": "b"}
    wrong = {**login, "issuer_url": f"http://{NAME}"}
    house.tunnel(oidc=login, schemes=["https"])
    return house.refusal(lambda: house.tunnel(oidc=wrong, schemes=["https"]))


def rule(kind: str) -> Callable[[House], str]:
    def add(house: House) -> str:
        rules = getattr(house.local, kind)
        made = rules.add(id="names", host=f"*.{LABEL}.test")
        rules.delete("names")
        return str(made.host).replace("*.", "").replace(".test", ".example.test")

    return add


def replay(house: House) -> str:
    house.tunnel(domain="plain.example.test")
    house.visit("plain.example.test")
    known = next(iter(house.local.requests.list())).id
    return house.refusal(lambda: house.local.requests.replay(known, addr=f"http://{NAME}:80"))


def schedule(house: House) -> str:
    house.tunnel(domain="plain.example.test")
    house.visit("plain.example.test")
    known = next(iter(house.local.requests.list())).id
    add = house.local.replay_schedules.add
    return house.refusal(lambda: add(captured_id=known, addr=f"http://{NAME}:80", interval=60_000))


# The fields with a host or a URL, and functions that return what becomes of a name in them.
FIELDS: dict[tuple[str, str, str], Callable[[House], str]] = {
    ("remote", "backends.static", "address"): static_address,
    ("remote", "backends.static", "tls.server_name"): server_name,
    ("remote", "edges.https", "hostports"): hostports("https"),
    ("remote", "edges.tcp", "hostports"): hostports("tcp"),
    ("remote", "edges.tls", "hostports"): hostports("tls"),
    ("remote", "edges.https.routes", "oidc.issuer"): issuer_of_a_new_route,
    ("remote", "edges.https.routes.oidc", "issuer"): issuer,
    ("remote", "endpoints", "url"): endpoint,
    ("remote", "event_destinations", "target.webhook.url"): destination("webhook"),
    ("remote", "event_destinations", "target.otlp.url"): destination("otlp"),
    ("remote", "reserved_domains", "domain"): reserved_domain,
    ("local", "endpoints", "url"): local_endpoint,
    ("local", "endpoints", "upstream.url"): local_upstream,
    ("local", "tunnels", "addr"): lambda house: house.tunnel(addr=f"{NAME}:80").config.addr,
    ("local", "tunnels", "domain"): domain("domain"),
    ("local", "tunnels", "hostname"): domain("hostname"),
    ("local", "tunnels", "subdomain"): subdomain,
    ("local", "tunnels", "host_header"): host_header,
    ("local", "tunnels", "oidc.issuer_url"): local_issuer,
    ("local", "holds", "host"): rule("holds"),
    ("local", "mocks", "host"): rule("mocks"),
    ("local", "requests", "addr"): replay,
    ("local", "replay_schedules", "addr"): schedule,
}
# Other fields with such words in their names: parts of mail addresses, protocols, certificates.
# Of `remote_addr`, a service takes only the port.
OTHERS = re.compile(r"email_|allow_domains|proxy_proto|remote_addr|server_(cert|private)|^uri$")


@pytest.mark.parametrize("field", FIELDS, ids=".".join)
def test_a_name_is_stored_in_its_ascii_form(house: House, field: tuple[str, str, str]) -> None:
    stored = FIELDS[field](house)

    assert WIRE in stored.replace(f"{WIRE_LABEL}.example.test", WIRE)
    assert LABEL not in stored


def names_of_fields(api: str) -> Iterator[tuple[str, str, str]]:
    """The fields of calls that change something, whose names are those of hosts or URLs."""
    shapes = {shape["name"]: shape for shape in json.loads(_native.shapes(api))}

    def walk(field: dict[str, Any], prefix: str) -> Iterator[str]:
        name = f"{prefix}{field['name']}"
        yield name
        kind = json.dumps(field["kind"])
        for shape in shapes:
            if f'"{shape}"' in kind and prefix.count(".") < 4:
                for inner in shapes[shape]["fields"]:
                    yield from walk(inner, f"{name}.")

    words = re.compile(r"url|uri|host|domain|addr|issuer|server|proxy|origin")
    for resource in json.loads(_native.operations(api)):
        for operation in resource["operations"]:
            if operation["method"] in ("GET", "DELETE"):
                continue
            for field in operation["parameters"]:
                for name in walk(field, ""):
                    last = name.rpartition(".")[2]
                    if words.search(last) and not OTHERS.search(last):
                        yield (api, resource["name"], name)


def test_every_field_with_a_host_is_tested_here() -> None:
    assert {*names_of_fields("remote"), *names_of_fields("local")} == set(FIELDS)


def test_the_addresses_of_a_service_are_in_their_ascii_form() -> None:
    url = f"https://{NAME}:8443/api"
    with ginnel.Service(public_url=url, base_domain=NAME) as service, service.client() as remote:
        assert remote.api_keys.create().uri.startswith(f"https://{WIRE}:8443/api/api_keys/")
        assert service.edge_url(NAME, "/\u00fc").startswith(f"https://{WIRE}:")
        with pytest.raises(ValueError, match="write it as"):
            service.edge_url("\uff41.test")
        for host in ("a b", "a.test:80", "a/b", "ada@a.test", ""):
            with pytest.raises(ValueError, match="http"):
                service.edge_url(host)
        with ginnel.Agent(service) as agent, agent.client() as local:
            tunnel = local.tunnels.start(addr=9, proto="http", name="web", subdomain="shop")
            assert f"//shop.{WIRE}:" in tunnel.public_url


def test_the_agent_api_answers_to_a_name_in_its_ascii_form(house: House) -> None:
    for host, expected in ((WIRE, 200), (WIRE.upper(), 200), ("evil.test", 403)):
        request = urllib.request.Request(f"{house.agent.url}/api/tunnels", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                status = response.status
        except urllib.error.HTTPError as error:
            status = error.code
        assert status == expected, host


def test_the_host_of_an_imported_request_is_in_its_ascii_form(house: House) -> None:
    house.tunnel(domain="plain.example.test")
    entry: dict[str, Any] = {
        "startedDateTime": "2026-11-23T10:00:00.123+01:00",
        "request": {"method": "GET", "url": f"http://{NAME}:8080/\u00fc", "headers": []},
        "response": {"status": 200, "headers": [], "content": {}},
        "timings": {},
    }
    look_alike = {**entry, "request": {**entry["request"], "url": "http://\uff41.test/"}}

    imported = house.local.requests.load(log={"entries": [entry, look_alike]})

    assert imported.problems is not None
    assert [("a.test" in it, "request.url" in it) for it in imported.problems] == [(True, True)]
    [known] = imported.ids
    house.local.requests.replay(known, tunnel_name="web")
    assert value_of(house.upstream.last, b"host") == f"{WIRE}:8080".encode()
