"""Whom upstreams take for the visitor: what trusted proxies say, and nothing that visitors do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ginnel
from recorder import Recorder, get, say, value_of, values_of
from test_official_agent import Official

CLAIMS = [
    "X-Forwarded-For: 198.51.100.1",
    "x-forwarded-for: 198.51.100.2, 198.51.100.3",
    "X_Forwarded_For: 198.51.100.4",
    "X-Forwarded-Proto: gopher",
    "X-Forwarded-Host: evil.test",
    "X-Forwarded-Port: 1",
    "X-Forwarded-Prefix: /evil",
    "x-forwarded_ssl: on",
    "Forwarded: for=198.51.100.5;host=evil.test",
    "X-Real-IP: 198.51.100.6",
    "X_REAL_IP: 198.51.100.7",
    "X-Original-Host: evil.test",
]
"""What a visitor may try."""

LONG = "CDN-Loop: other.test"
"""A header with which a request does not take the shortest way."""


@dataclass
class Way:
    """A way to the recorder."""

    address: str
    host: str
    recorder: Recorder

    def get(self, *lines: str, target: str = "/") -> bytes:
        status, _, body = get(self.address, self.host, target, *lines)
        assert (status, self.recorder.last) == (200, body)
        return body


def edge(service: ginnel.Service, host: str, backend: str, **modules: Any) -> str:
    """An edge with one route; its host."""
    with service.client() as remote:
        made = remote.edges.https.create(hostports=[f"{host}:443", f"{host}:80"])
        options: dict[str, Any] = {"backend": {"backend_id": backend}, **modules}
        remote.edges.https.routes.create(made.id, match_type="path_prefix", match="/", **options)
    return host


def static(service: ginnel.Service, port: int) -> str:
    with service.client() as remote:
        made = remote.backends.static.create(address=f"127.0.0.1:{port}", tls={"enabled": False})
        return made.id


def address_of(url: str | None) -> str:
    assert url is not None
    return url.split("://")[1].rstrip("/")


WAYS = ["tunnel", "header", "static", "labeled", "internal", "official"]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


@pytest.fixture
def reach(recorder: Recorder) -> Iterator[Callable[[ginnel.Service, str], Way]]:
    """Makes a way to the recorder."""
    ending: list[Callable[[], object]] = []

    def way(service: ginnel.Service, kind: str) -> Way:
        shared = address_of(service.http_url)
        if kind == "static":
            host = edge(service, "a.test", static(service, recorder.port))
            return Way(shared, host, recorder)
        if kind == "official":
            official = Official(service, "python")
            ending.append(official.end)
            official.connect()
            url = official.do(http=recorder.port)
            return Way(address_of(url), address_of(url), recorder)
        agent = ginnel.Agent(service)
        ending.append(agent.stop)
        with agent.client() as local, service.client() as remote:
            if kind == "labeled":
                group = remote.backends.tunnel_group.create(labels={"app": "web"})
                local.tunnels.start(addr=recorder.port, labels=["app=web"], name="web")
                return Way(shared, edge(service, "a.test", group.id), recorder)
            if kind == "internal":
                fixed = remote.backends.http_response.create(body="no")
                inside = {"type": "forward-internal", "config": {"url": "http://in.internal"}}
                policy: Any = {"inbound": [{"actions": [inside]}]}
                local.tunnels.start(
                    addr=recorder.port,
                    proto="http",
                    name="in",
                    domain="in.internal",
                    schemes=["http"],
                )
                return Way(shared, edge(service, "a.test", fixed.id, policy=policy), recorder)
            options: dict[str, Any] = {"host_header": "rewrite"} if kind == "header" else {}
            tunnel = local.tunnels.start(addr=recorder.port, proto="http", name="t", **options)
            address = address_of(tunnel.public_url)
            return Way(address, address, recorder)

    yield way
    for end in ending:
        end()


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("long", [[], [LONG]], ids=["short", "long"])
def test_what_a_visitor_claims_does_not_arrive(
    service: ginnel.Service,
    reach: Callable[[ginnel.Service, str], Way],
    kind: str,
    long: list[str],
) -> None:
    if kind == "official":
        pytest.importorskip("ngrok")
    way = reach(service, kind)

    seen = [way.get(*CLAIMS, *long), way.get(*CLAIMS, *long, "Connection: x-forwarded-for")]

    for head in seen:
        assert values_of(head, b"x-forwarded-for") == [b"127.0.0.1"]
        assert values_of(head, b"x-forwarded-proto") == [b"http"]
        assert values_of(head, b"x-forwarded-host") == [way.host.encode()]
        for name in (b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-ssl"):
            assert values_of(head, name) == []
        assert values_of(head, b"forwarded") == values_of(head, b"x-real-ip") == []
        assert b"198.51.100" not in head
        assert b"evil" not in head
        original = [way.host.encode()] if kind == "header" else []
        assert values_of(head, b"x-original-host") == original


def test_a_websocket_and_http2_carry_no_claims(
    service: ginnel.Service,
    recorder: Recorder,
    reach: Callable[[ginnel.Service, str], Way],
    tmp_path: Path,
) -> None:
    way = reach(service, "static")

    asked = way.get("Connection: Upgrade, X-Forwarded-For", "Upgrade: websocket", *CLAIMS)
    (tmp_path / "ca.pem").write_text(service.ca_pem)
    address = address_of(service.https_url)
    url = f"https://{way.host}/"
    claims = [part for claim in CLAIMS for part in ("--header", claim)]
    curl = ["curl", "--silent", "--show-error", "--http2", "--cacert", str(tmp_path / "ca.pem")]
    curl += ["--connect-to", f"::{address}", "--write-out", "%{http_version}", "--output"]
    done = subprocess.run(
        [*curl, str(tmp_path / "body"), *claims, url], check=True, capture_output=True, text=True
    )

    assert done.stdout == "2"
    assert value_of(asked, b"upgrade") == b"websocket"
    for head, proto in [(asked, b"http"), (recorder.last, b"https")]:
        assert values_of(head, b"x-forwarded-for") == [b"127.0.0.1"]
        assert values_of(head, b"x-forwarded-proto") == [proto]
        assert values_of(head, b"x-forwarded-host") == [way.host.encode()]
        assert b"198.51.100" not in head
        assert b"evil" not in head


@pytest.mark.parametrize("kind", WAYS)
def test_a_trusted_proxy_is_added_to_the_list(
    reach: Callable[[ginnel.Service, str], Way], kind: str
) -> None:
    if kind == "official":
        pytest.importorskip("ngrok")
    with ginnel.Service(trusted_proxies=["127.0.0.0/8"]) as service:
        way = reach(service, kind)

        head = way.get(
            "X-Forwarded-For: 198.51.100.1",
            "X-Forwarded-For: 203.0.113.7",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: shop.test",
            "X-Real-IP: 203.0.113.7",
            "X_Forwarded_For: 198.51.100.99",
            "x-forwarded_proto: gopher",
            "X_REAL_IP: 198.51.100.99",
            "Connection: x-forwarded-for",
        )
        alone = way.get()

        listed = [b"198.51.100.1, 203.0.113.7, 127.0.0.1"]
        assert values_of(head, b"x-forwarded-for") == listed
        assert values_of(head, b"x-forwarded-proto") == [b"https"]
        assert values_of(head, b"x-forwarded-host") == [b"shop.test"]
        assert values_of(head, b"x-real-ip") == [b"203.0.113.7"]
        assert b"198.51.100.99" not in head
        assert b"gopher" not in head
        assert values_of(alone, b"x-forwarded-for") == [b"127.0.0.1"]


@pytest.mark.parametrize(
    ("lines", "listed", "forwarded"),
    [
        (
            ['Forwarded: For="[2001:db8:cafe::17]:4711"', "X-Forwarded-For: 2001:db8:cafe::17"],
            b"2001:db8:cafe::17, 127.0.0.1",
            [b'For="[2001:db8:cafe::17]:4711", for=127.0.0.1'],
        ),
        (
            [
                'Forwarded: for=203.0.113.7;host="a,b;c", for=127.0.0.9',
                "X-Forwarded-For: 203.0.113.7",
                "X-Forwarded-For: 127.0.0.9",
            ],
            b"203.0.113.7, 127.0.0.9, 127.0.0.1",
            [b'for=203.0.113.7;host="a,b;c", for=127.0.0.9, for=127.0.0.1'],
        ),
        (
            ["Forwarded: for=198.51.100.1", "X-Forwarded-For: 203.0.113.7"],
            b"203.0.113.7, 127.0.0.1",
            [],
        ),
        (["Forwarded: for=203.0.113.7;proto=https"], b"127.0.0.1", []),
        (
            ['Forwarded: for="203.0.113.7', "X-Forwarded-For: 203.0.113.7"],
            b"203.0.113.7, 127.0.0.1",
            [],
        ),
        (
            ["Forwarded: for=2001:db8::1", "X-Forwarded-For: 2001:db8::1"],
            b"2001:db8::1, 127.0.0.1",
            [],
        ),
        (["X-Forwarded-For: , ,"], b"127.0.0.1", []),
        (
            ["Forwarded: for=203.0.113.7, ,", "X-Forwarded-For: ,203.0.113.7, ,"],
            b"203.0.113.7, 127.0.0.1",
            [b"for=203.0.113.7, for=127.0.0.1"],
        ),
    ],
)
def test_forwarded_is_passed_on_only_with_the_addresses_of_the_list(
    reach: Callable[[ginnel.Service, str], Way],
    lines: list[str],
    listed: bytes,
    forwarded: list[bytes],
) -> None:
    with ginnel.Service(trusted_proxies=["127.0.0.0/8"]) as service:
        head = reach(service, "tunnel").get(*lines)

    assert values_of(head, b"x-forwarded-for") == [listed]
    assert values_of(head, b"x-forwarded-proto") == [b"http"]
    assert values_of(head, b"forwarded") == forwarded


@pytest.mark.parametrize("range_", ["::ffff:127.0.0.1", "::ffff:127.0.0.0/104"])
def test_a_range_may_map_ipv4_to_ipv6(
    reach: Callable[[ginnel.Service, str], Way], range_: str
) -> None:
    with ginnel.Service(trusted_proxies=[range_]) as service:
        head = reach(service, "tunnel").get("X-Forwarded-For: 203.0.113.7")

    assert values_of(head, b"x-forwarded-for") == [b"203.0.113.7, 127.0.0.1"]


def test_other_proxies_are_not_trusted(reach: Callable[[ginnel.Service, str], Way]) -> None:
    with ginnel.Service(trusted_proxies=["192.0.2.0/24"]) as service:
        head = reach(service, "tunnel").get("X-Forwarded-For: 203.0.113.7")

    assert values_of(head, b"x-forwarded-for") == [b"127.0.0.1"]


def test_rules_know_the_visitor_behind_a_trusted_proxy(recorder: Recorder) -> None:
    known: Any = {
        "inbound": [
            {
                "expressions": ["conn.client_ip == '203.0.113.66'"],
                "actions": [{"type": "deny", "config": {"status_code": 418}}],
            }
        ]
    }
    with ginnel.Service(trusted_proxies=["127.0.0.1", "10.0.0.0/8"]) as service:
        with service.client() as remote:
            ours = remote.ip_policies.create()
            for cidr in ["203.0.113.0/24", "127.0.0.1/32"]:
                remote.ip_policy_rules.create(ip_policy_id=ours.id, cidr=cidr, action="allow")
        restriction = {"ip_policy_ids": [ours.id]}
        upstream = static(service, recorder.port)
        edge(service, "a.test", upstream, ip_restriction=restriction, policy=known)
        address, events = address_of(service.http_url), service.events()

        def status(*lines: str) -> int:
            return get(address, "a.test", "/", *lines)[0]

        assert status() == 200
        assert status("X-Forwarded-For: 203.0.113.7") == 200
        assert status("X-Forwarded-For: 203.0.113.7, 10.1.2.3") == 200
        assert status("X-Forwarded-For: 198.51.100.1") == 403
        assert status("X-Forwarded-For: 198.51.100.1", "Forwarded: for=203.0.113.7") == 403
        assert status("Forwarded: for=203.0.113.66", "X-Real-IP: 198.51.100.1") == 200
        assert status("X-Forwarded-For: 203.0.113.7, 198.51.100.1") == 403
        assert status("X-Forwarded-For: 203.0.113.66") == 418
        assert status("X-Forwarded-For: 203.0.113.66, nonsense") == 200
        peers = []
        for _ in range(9):
            event = events.get(timeout=30)
            assert event is not None
            peers.append(event.peer.rpartition(":")[0])
        assert peers == [
            "127.0.0.1",
            "203.0.113.7",
            "203.0.113.7",
            "198.51.100.1",
            "198.51.100.1",
            "127.0.0.1",
            "198.51.100.1",
            "203.0.113.66",
            "127.0.0.1",
        ]


def test_one_connection_of_a_proxy_carries_many_visitors(service: ginnel.Service) -> None:
    denied = {
        "expressions": ["conn.client_ip == '203.0.113.66'"],
        "actions": [{"type": "deny"}],
    }
    with (
        Recorder() as recorder,
        ginnel.Service(trusted_proxies=["127.0.0.1"]) as service,
        ginnel.Agent(service) as agent,
        agent.client() as local,
    ):
        tunnel = local.tunnels.start(
            addr=recorder.port,
            proto="http",
            name="t",
            traffic_policy={"on_tcp_connect": [denied]},
        )
        address = address_of(tunnel.public_url)
        one = f"GET / HTTP/1.1\r\nHost: {address}\r\nX-Forwarded-For: "

        allowed = say(address, f"{one}203.0.113.7\r\n\r\n".encode())
        with pytest.raises(AssertionError, match="closed without a response"):
            say(address, f"{one}203.0.113.66\r\n\r\n".encode())
        both = f"{one}203.0.113.7\r\n\r\n{one}203.0.113.66\r\n\r\n{one}203.0.113.7\r\n\r\n"
        say(address, both.encode())

        assert allowed[0] == 200
        [captured, *_] = local.requests.list().to_list()
        assert captured.remote_addr == "203.0.113.7"
        seen = [values_of(head, b"x-forwarded-for") for head in recorder.heads]
        assert seen == [[b"203.0.113.7, 127.0.0.1"]] * len(seen)
