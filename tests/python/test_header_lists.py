"""Headers whose values are lists have one reading, on each way and in each position of the list."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import ginnel
from listener import Listener
from recorder import Recorder, get, read_head, say, value_of, values_of
from test_forwarded import LONG, address_of, edge, static

SETTINGS = "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"
UPGRADES = {
    "alone": (["Upgrade: h2c"], []),
    "in capital letters": (["Upgrade: H2C"], []),
    "behind a tab": (["Upgrade: \th2c"], []),
    "behind another": (["Upgrade: x, h2c"], [b"x"]),
    "before another": (["Upgrade: h2c,x"], [b"x"]),
    "in a second line": (["Upgrade: x", "Upgrade: h2c"], [b"x"]),
    "behind websocket": (["Upgrade: websocket, h2c"], [b"websocket"]),
    "by its long name": (["Upgrade: HTTP/2.0"], []),
    "in no list": (["Upgrade: x h2c"], []),
}


@pytest.mark.parametrize("way", UPGRADES)
@pytest.mark.parametrize("place", ["tunnel", "policy", "edge", "labeled"])
def test_no_upstream_is_asked_for_http_2(service: ginnel.Service, way: str, place: str) -> None:
    lines, expected = UPGRADES[way]
    rule = {"expressions": ["req.url.path == '/no'"], "actions": [{"type": "deny"}]}
    options: dict[str, Any] = {"traffic_policy": {"on_http_request": [rule]}}
    with Recorder() as recorder, ginnel.Agent(service) as agent, agent.client() as local:
        if place == "edge":
            address, host = address_of(service.http_url), "a.test"
            edge(service, host, static(service, recorder.port))
        elif place == "labeled":
            address, host = address_of(service.http_url), "a.test"
            local.tunnels.start(addr=recorder.port, name="t", labels=["to=lists"])
            with service.client() as remote:
                group = remote.backends.tunnel_group.create(labels={"to": "lists"})
            edge(service, host, group.id)
        else:
            chosen = options if place == "policy" else {}
            tunnel = local.tunnels.start(addr=recorder.port, proto="http", name="t", **chosen)
            address = host = address_of(tunnel.public_url)
        head = [
            "POST / HTTP/1.1",
            f"Host: {host}",
            "Connection: Upgrade, HTTP2-Settings",
            *lines,
            SETTINGS,
            "Content-Length: 3",
        ]

        status, _, _ = say(address, "\r\n".join([*head, "", "abc"]).encode())

        assert status == 200
        assert values_of(recorder.last, b"upgrade") == expected
        assert b"h2c" not in recorder.last.lower()
        assert b"http2-settings" not in recorder.last.lower()
        assert value_of(recorder.last, b"content-length") == b"3"


class Switching(Listener):
    """Switches protocols, whatever it is asked for."""

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            read_head(lines)
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        )
        connection.recv(1)


@pytest.mark.parametrize("asked", ["", "h2c", "x, h2c", "websocket, h2c"])
@pytest.mark.parametrize("place", ["tunnel", "policy", "edge"])
def test_an_upstream_does_not_switch_to_http_2(
    service: ginnel.Service, place: str, asked: str
) -> None:
    """Also if the visitor has asked for another protocol: the connection would pass no rule."""
    rule = {"expressions": ["req.url.path == '/no'"], "actions": [{"type": "deny"}]}
    options: dict[str, Any] = {"traffic_policy": {"on_http_request": [rule]}}
    with Switching() as upstream, ginnel.Agent(service) as agent, agent.client() as local:
        if place == "edge":
            address, host = address_of(service.http_url), "a.test"
            edge(service, host, static(service, upstream.port))
        else:
            chosen = options if place == "policy" else {}
            tunnel = local.tunnels.start(addr=upstream.port, proto="http", name="t", **chosen)
            address = host = address_of(tunnel.public_url)
        lines = ["Connection: Upgrade", f"Upgrade: {asked}"] if asked else []

        assert get(address, host, "/", *lines)[0] == 502


@pytest.mark.parametrize(
    ("addresses", "schemes", "expected"),
    [
        ("203.0.113.7", "https", b"https"),
        ("203.0.113.7, 127.0.0.9", "https, http", b"https"),
        ("203.0.113.7, 127.0.0.9", "http, https", b"http"),
        ("203.0.113.7, 127.0.0.9", "http", b"http"),
        ("203.0.113.7", "http, https", b"https"),
        ("203.0.113.7", "wss", b"wss"),
        ("203.0.113.7", "gopher", b"http"),
        ("203.0.113.7", "", b"http"),
    ],
)
@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
def test_upstreams_and_rules_are_told_one_scheme(
    addresses: str, schemes: str, expected: bytes, more: list[str]
) -> None:
    is_secure = expected in (b"https", b"wss")
    seen = {"type": "add-headers", "config": {"headers": {"x-url": "${req.url}"}}}
    with (
        ginnel.Service(trusted_proxies=["127.0.0.0/8"]) as service,
        Recorder() as recorder,
        ginnel.Agent(service) as agent,
        agent.client() as local,
    ):
        tunnel = local.tunnels.start(
            addr=recorder.port,
            proto="http",
            name="t",
            traffic_policy={"on_http_request": [{"actions": [seen]}]},
        )
        address = address_of(tunnel.public_url)
        lines = [f"X-Forwarded-For: {addresses}", f"X-Forwarded-Proto: {schemes}", *more]

        assert get(address, address, "/x", *lines)[0] == 200

        assert values_of(recorder.last, b"x-forwarded-proto") == [expected]
        scheme = "https" if is_secure else "http"
        assert values_of(recorder.last, b"x-url") == [f"{scheme}://{address}/x".encode()]


def test_a_visitor_behind_a_proxy_is_sent_to_https_once() -> None:
    to_https = {"type": "redirect", "config": {"from": "^http://", "to": "https://"}}
    lines = ["X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https"]
    statuses = []
    for proxies in [["127.0.0.1"], []]:
        with ginnel.Service(trusted_proxies=proxies) as service, Recorder() as recorder:
            rules: Any = {"inbound": [{"actions": [to_https]}]}
            edge(service, "a.test", static(service, recorder.port), policy=rules)
            with service.client() as remote:
                made = remote.edges.https.create(hostports=["only.test:443"])
                remote.edges.https.routes.create(
                    made.id,
                    match_type="path_prefix",
                    match="/",
                    backend={"backend_id": static(service, recorder.port)},
                )
            address = address_of(service.http_url)
            for host in ["a.test", "only.test"]:
                statuses.append(get(address, host, "/", *lines)[0])

    assert statuses == [200, 200, 302, 307]


@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
def test_an_odd_cookie_hides_no_other_one(service: ginnel.Service, more: list[str]) -> None:
    rules = [
        {
            "expressions": ["hasReqCookie('banned') || getReqCookie('city').value == '東京'"],
            "actions": [{"type": "deny"}],
        },
        {
            "expressions": ["req.cookies['name'][0].value == 'Zoë'"],
            "actions": [{"type": "custom-response", "config": {"status_code": 299}}],
        },
    ]
    with Recorder() as recorder, ginnel.Agent(service) as agent, agent.client() as local:
        tunnel = local.tunnels.start(
            addr=recorder.port,
            proto="http",
            name="t",
            traffic_policy={"on_http_request": rules},
        )
        address = address_of(tunnel.public_url)

        def status(*cookies: bytes) -> int:
            lines = [b"Cookie: " + cookie for cookie in cookies]
            head = [b"GET / HTTP/1.1", b"Host: " + address.encode(), *lines]
            request = [*head, *(line.encode() for line in more), b"", b""]
            return say(address, b"\r\n".join(request))[0]

        assert status(b"a=1; name=x") == 200
        assert status(b"banned=1; city=\xe6\x9d\xb1") == 403
        assert status(b"city=Zo\xeb; banned=1") == 403
        assert status(b"city=\xff\xfe", b"banned=1") == 403
        assert status(b"a=1; city=\xe6\x9d\xb1\xe4\xba\xac; name=x") == 403
        assert status(b"name=Zo\xc3\xab") == 299
        assert status(b"name=Zo\xeb; a=\xc3\xab") == 299


@pytest.mark.parametrize("name", ["X-User", "X_User", "x_user", "X.User"])
@pytest.mark.parametrize("way", ["short", "long", "edge"])
def test_what_takes_a_header_from_visitors_takes_it_in_each_spelling(
    service: ginnel.Service, name: str, way: str
) -> None:
    rule = {
        "actions": [
            {"type": "remove-headers", "config": {"headers": ["x-user", "x-team"]}},
            {"type": "add-headers", "config": {"headers": {"x-role": "visitor"}}},
        ]
    }
    with Recorder() as recorder, ginnel.Agent(service) as agent, agent.client() as local:
        if way == "edge":
            address, host = address_of(service.http_url), "a.test"
            changes = {"remove": ["x-user", "x-team"], "add": {"x-role": "visitor"}}
            edge(service, host, static(service, recorder.port), request_headers=changes)
        else:
            policy: Any = {"on_http_request": [rule]}
            tunnel = local.tunnels.start(
                addr=recorder.port, proto="http", name="t", traffic_policy=policy
            )
            address = host = address_of(tunnel.public_url)
        lines = [f"{name}: admin", "X_Role: admin", "x-other_thing: 1"]

        get(address, host, "/", *lines, *([LONG] if way == "long" else []))

        assert values_of(recorder.last, b"x-user") == []
        assert b"admin" not in recorder.last
        assert values_of(recorder.last, b"x-role") == [b"visitor"]
        assert values_of(recorder.last, b"x-other-thing") == [b"1"]
