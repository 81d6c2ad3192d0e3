"""Decisions about access: header names, request targets and fixed URLs have one reading."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import ginnel
from ginnel import policy
from recorder import Recorder, get, say, value_of, values_of
from test_forwarded import LONG, address_of, edge, static

READS = {
    "has": "hasReqHeader('x-evil')",
    "get": "'1' in getReqHeader('X-Evil')",
    "index": "req.headers['x-evil'][0] == '1'",
    "in": "'x-evil' in req.headers",
    "select": "has(req.headers.x_evil)",
    "engine": "size(getReqHeader('x-evil')) > 0",
    "agent": "req.user_agent.contains('crawler')",
    "type": "req.content_type == 'text/evil'",
}
"""Rules that look at a header, by the path that each is for."""


def act(kind: str, **config: Any) -> dict[str, Any]:
    return {"type": kind, "config": config}


class Place:
    """A tunnel with the rules above, an edge with other modules, and what is behind both."""

    def __init__(self, service: ginnel.Service, recorder: Recorder, tunnel: str) -> None:
        self.service, self.recorder, self.tunnel = service, recorder, tunnel
        self.shared = address_of(service.http_url)

    def visit(self, path: str, *lines: str) -> int:
        return get(self.tunnel, self.tunnel, path, *lines)[0]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    denied = [
        {
            "expressions": [f"req.url.path == '/{name}' && {read}"],
            "actions": [act("deny")],
        }
        for name, read in READS.items()
    ]
    added = [
        {
            "expressions": ["req.url.path == '/add'"],
            "actions": [act("add-headers", headers={"x-role": "visitor"})],
        },
        {
            "expressions": ["req.url.path == '/replace'"],
            "actions": [
                act("remove-headers", headers=["x-role"]),
                act("add-headers", headers={"x-role": "visitor"}),
            ],
        },
    ]
    with ExitStack() as stack:
        service = stack.enter_context(ginnel.Service())
        recorder = stack.enter_context(Recorder())
        local = stack.enter_context(ginnel.Agent(service)).client()
        tunnel = local.tunnels.start(
            addr=recorder.port,
            proto="http",
            name="t",
            traffic_policy={"on_http_request": [*denied, *added]},
        )
        filtered: Any = {"enabled": True, "allow": [], "deny": ["crawler"]}
        backend = static(service, recorder.port)
        edge(service, "filtered.test", backend, user_agent_filter=filtered)
        edge(service, "plain.test", backend)
        yield Place(service, recorder, address_of(tunnel.public_url))


@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
@pytest.mark.parametrize("read", READS)
def test_a_rule_sees_each_spelling_that_applications_merge(
    place: Place, read: str, more: list[str]
) -> None:
    spellings = {
        "agent": ["User-Agent: crawler", "User_Agent: crawler"],
        "type": ["Content-Type: text/evil", "Content_Type: Text/Evil"],
    }
    for line in spellings.get(read, ["X-Evil: 1", "X_Evil: 1", "x_evil: 1", "X.Evil: 1"]):
        assert place.visit(f"/{read}", line, *more) == 403, line
    assert place.visit(f"/{read}", "XEvil: 1", "X-Evils: 1", *more) == 200


@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
def test_the_user_agent_filter_sees_each_spelling(place: Place, more: list[str]) -> None:
    visit = ["browser", "crawler"]

    statuses = [
        get(place.shared, "filtered.test", "/", f"{name}: {value}", *more)[0]
        for name in ("User-Agent", "User_Agent", "user.agent")
        for value in visit
    ]

    assert statuses == [200, 403] * 3


@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
def test_add_headers_appends_and_remove_headers_makes_room(place: Place, more: list[str]) -> None:
    seen = []
    for path in ("/add", "/replace"):
        assert place.visit(path, "X-Role: admin", "X_Role: root", *more) == 200
        seen.append(values_of(place.recorder.last, b"x-role"))

    assert seen == [[b"admin", b"visitor"], [b"visitor"]]


TARGETS = {
    "ftp://{host}/x": 400,
    "ws://{host}/x": 400,
    "gopher://{host}": 400,
    "{host}": 400,
    "{host}:443": 400,
    "x": 400,
    "http://{host}/x": 200,
    "HTTP://{host}": 200,
    "https://{host}/x": 200,
    "/x://y": 200,
    "/ftp://{host}/x": 200,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
def test_a_target_names_a_resource_of_the_service(
    place: Place, target: str, more: list[str]
) -> None:
    """In origin form, or in absolute form with a scheme of HTTP (RFC 9112, section 3.2)."""
    count = len(place.recorder.heads)

    status, _, _ = get(place.shared, "plain.test", target.format(host="plain.test"), *more)

    assert (status, len(place.recorder.heads) - count) == (
        TARGETS[target],
        int(TARGETS[target] == 200),
    )


def type_of_response(body: str) -> tuple[str, ...]:
    rules = {"on_http_request": [{"actions": [act("custom-response", body=body)]}]}
    report = policy.test(rules, request="http://a.test/")
    assert report.response is not None
    return report.response.headers["content-type"]


@pytest.mark.parametrize("tag", ["a", "b", "h2", "table", "form", "ul", "pre", "span", "P"])
def test_a_response_with_markup_is_html(tag: str) -> None:
    for body in (f"<{tag}>${{req.url.path}}</{tag}>", f"<{tag} id=x>${{req.url.path}}"):
        assert type_of_response(body) == ("text/html; charset=utf-8",), body


@pytest.mark.parametrize("name", ["object", "code", "time", "label", "link", "title", "id"])
def test_a_placeholder_with_the_name_of_an_element_is_no_markup(name: str) -> None:
    # A visitor could otherwise put a script behind it.
    for body in (
        f"no ${{req.url.path}}; usage: GET /<{name}>",
        f"<{name}> is not ${{req.url.path}}",
    ):
        assert type_of_response(body) == ("text/plain; charset=utf-8",), body


@pytest.mark.parametrize("status", [204, 205, 304])
def test_a_response_that_has_no_body_is_sent_without_one(status: int) -> None:
    with ginnel.Service() as service, service.client() as remote:
        rules = [{"actions": [act("custom-response", status_code=status, body="<b>x</b>")]}]
        remote.endpoints.create(
            url="http://empty.example.test", traffic_policy=json.dumps({"on_http_request": rules})
        )
        request = b"GET / HTTP/1.1\r\nHost: empty.example.test\r\nConnection: close\r\n\r\n"
        host, port = address_of(service.http_url).split(":")
        with socket.create_connection((host, int(port)), 20) as visitor:
            visitor.sendall(request)
            with visitor.makefile("rb") as lines:
                head, _, body = lines.read().partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert body == b""
    assert value_of(head, b"content-type") is None
    assert value_of(head, b"content-length") in (None, b"0")


OUTSIDE = [
    "https://example.com/",
    "http://127.0.0.1:4040/",
    "http://app.internal.example.com/",
    "https://app.internal:8443/",
]


@pytest.mark.parametrize("url", OUTSIDE)
def test_a_policy_that_leads_outside_is_not_stored(place: Place, url: str) -> None:
    for kind in ("http-request", "forward-internal"):
        rules = [{"actions": [act(kind, url=url)]}]
        with place.service.client() as remote, pytest.raises(ginnel.BadRequestError) as refused:
            remote.endpoints.create(
                url="http://outside.example.test",
                traffic_policy=json.dumps({"on_http_request": rules}),
            )

        assert "actions[0].config.url" in str(refused.value)
        assert url in str(refused.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://app.internal\\@example.com/", "backslash"),
        ("https://app.internal\\", "backslash"),
        ("https://svc:pass@app.internal", "user or a password"),
        ("http://app.internal:8080", "port 8080"),
    ],
)
def test_forwarding_needs_a_url_with_one_reading(url: str, problem: str) -> None:
    document = {"on_http_request": [{"actions": [act("forward-internal", url=url)]}]}

    [found] = policy.check(document)

    assert found.place == "on_http_request[0].actions[0].config.url"
    assert problem in found.message
    assert "pass@" not in found.message


def test_a_visitor_cannot_ask_for_another_scheme_over_http_2(place: Place) -> None:
    """The request has `:scheme` and `:authority` (RFC 9113, section 8.3.1)."""
    host, port = address_of(place.service.https_url).split(":")
    context = ssl.create_default_context(cadata=place.service.ca_pem)
    context.set_alpn_protocols(["h2"])

    def status(scheme: str) -> int:
        fields = [":method", "GET", ":scheme", scheme, ":authority", "plain.test", ":path", "/"]
        # Literal fields without indexing (RFC 7541, section 6.2.2): a name and a value each.
        pairs = zip(fields[::2], fields[1::2], strict=True)
        block = b"".join(b"\0" + text_of(name) + text_of(value) for name, value in pairs)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
        with (
            socket.create_connection((host, int(port)), 20) as plain,
            context.wrap_socket(plain, server_hostname="plain.test") as visitor,
        ):
            visitor.sendall(preface + frame(1, 5, 1, block))
            with visitor.makefile("rb") as frames:
                while True:
                    head = frames.read(9)
                    payload = frames.read(int.from_bytes(head[:3], "big"))
                    if head[3] == 1:
                        # The indexes of the static table: 8 is 200, 12 is 400.
                        return {0x88: 200, 0x8C: 400}[payload[0]]

    assert [status(scheme) for scheme in ("http", "ftp", "https")] == [200, 400, 200]


def text_of(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def test_a_request_with_two_spellings_of_a_token_is_refused(place: Place) -> None:
    token = act(
        "jwt-validation",
        issuer={"allow_list": [{"value": "https://issuer.example"}]},
        jws={
            "allowed_algorithms": ["RS256"],
            "keys": {"sources": {"additional_jkus": ["https://issuer.example/keys"]}},
        },
        http={"tokens": [{"type": "jwt", "method": "header", "name": "x-token"}]},
    )
    with place.service.client() as remote:
        remote.endpoints.create(
            url="http://token.example.test",
            traffic_policy=json.dumps({"on_http_request": [{"actions": [token]}]}),
        )
        head = b"GET / HTTP/1.1\r\nHost: token.example.test\r\n"

        status, _, body = say(place.shared, head + b"X-Token: a.b.c\r\nX_Token: d.e.f\r\n\r\n")

    assert (status, b"3416" in body) == (400, True)
