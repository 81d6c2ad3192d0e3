"""No spelling of a path leads around a rule; what no rule looks at arrives as it was sent."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import ginnel
from ginnel import policy
from nginx import nginx
from recorder import Recorder, get, say
from test_forwarded import LONG, address_of, edge, static

SPELLINGS = [
    "/admin",
    "/admin/",
    "/admin/x",
    "/admin?x=1",
    "/admin?",
    "/admin?a=//b/../c%2fd",
    "/admin;x",
    "/admin;x=1/y",
    "//admin",
    "///admin",
    "//admin//",
    "//x//..//admin",
    "/./admin",
    "/././admin",
    "/.//admin",
    "//./admin",
    "/x/../admin",
    "/x/./../admin",
    "/x//../admin",
    "/../admin",
    "/../../admin",
    "/x/y/../../admin",
    "/admin/.",
    "/admin/..",
    "/admin/../admin",
    "/admin/../x",
    "/admin/x/..",
    "/%2e/admin",
    "/%2E/admin",
    "/%2e%2e/admin",
    "/x/%2e%2e/admin",
    "/x/%2E%2e/admin",
    "/.%2e/admin",
    "/x/%2e./admin",
    "/x/..%2fadmin",
    "/x%2f..%2fadmin",
    "/x%2f../admin",
    "/x/%2e%2e%2fadmin",
    "/%2fadmin",
    "/%2Fadmin",
    "/%2f%2fadmin",
    "/%2f/admin",
    "/.%2fadmin",
    "/\\admin",
    "/x\\..\\admin",
    "/..\\admin",
    "/%5cadmin",
    "/%5Cadmin",
    "/x%5c..%5cadmin",
    "/%61dmin",
    "/%61%64%6d%69%6e",
    "/%61%64%6D%69%6E/",
    "/adm%69n",
    "/admi%6e?x",
    "//%61dmin",
    "/x/../%61dmin",
    "/admin%2f",
    "/admin%2fx",
    "/admin%20",
    "/admin%00",
    "/admin%3bx",
    "/admin%3fx",
    "/admin%23x",
    "/admin%2e",
    "/;/admin",
    "/;x/admin",
    "/x;y/../admin",
    "/..;/admin",
    "/x/..;/admin",
    "/x/..;a=b/admin",
    "/.;/admin",
    "/%2561dmin",
    "/%252fadmin",
    "/%252e%252e/admin",
    "/%zz/admin",
    "/%/admin",
    "/%6",
    "/%u002fadmin",
    "/ADMIN",
    "/%41dmin",
    "/%c0%afadmin",
    "/x/%c0%ae%c0%ae/admin",
    "/%e2%88%95admin",
    "/%ef%bc%8fadmin",
    "/x%c3%a9/../admin",
    "/administrator",
    "/admin:80",
    "/admin@x",
    "/~/../admin",
    "/...//admin",
    "/.admin",
    "/admin.",
    "/admin/%2e%2e/x",
    "/public",
    "/",
]
"""Spellings, most of which mean the same page to some server."""

UNUSUAL = [
    "/é",
    '/a"b',
    "/{x}",
    "/a|b",
    "/a^b",
    "/a`b",
    "/[x]",
    "/a%",
    "/?/../%zz",
    '/q?name="ada"',
    "/q?x=^1`2",
    "/é?q=東",
]
"""Targets with what needs an escape."""

MODES: list[Literal["auto", "reject", "normalize", "preserve"]] = [
    "auto",
    "reject",
    "normalize",
    "preserve",
]


def deny(*expressions: str) -> dict[str, Any]:
    return {"expressions": list(expressions), "actions": [{"type": "deny"}]}


def act(kind: str, **config: Any) -> dict[str, Any]:
    return {"actions": [{"type": kind, "config": config}]}


RULES: dict[str, dict[str, Any]] = {
    "path": deny("req.url.path.startsWith('/admin')"),
    "matches": deny("req.url.path.matches('^/admin')"),
    "lower": deny("req.url.path.lowerAscii().startsWith('/admin')"),
    "uri": deny("req.url.uri.startsWith('/admin')"),
    "url": deny("req.url.contains('/admin')"),
    "redirect": act("redirect", **{"from": "/admin", "to": "/login"}),
    "rewrite": act("url-rewrite", **{"from": "/admin.*", "to": "/public"}),
    "custom": {
        "expressions": ["req.url.path.startsWith('/admin')"],
        "actions": [{"type": "custom-response", "config": {"status_code": 200, "content": "no"}}],
    },
}
"""What may protect a page."""


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An nginx with a page to protect; its port."""
    locations = 'location / { return 200 "other"; } location /admin { return 200 "admin"; }'
    with nginx(tmp_path_factory.mktemp("nginx"), locations) as port:
        yield port


@pytest.fixture(scope="module", params=MODES)
def protected(
    upstream: int, request: pytest.FixtureRequest
) -> Iterator[dict[str, tuple[str, str]]]:
    """Where the page is protected, and how: address and host by name."""
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(ginnel.Service(ambiguous_paths=request.param))
        agent = stack.enter_context(ginnel.Agent(service))
        local = stack.enter_context(agent.client())
        remote = stack.enter_context(service.client())
        backend = static(service, upstream)
        shared, places = address_of(service.http_url), {}
        for name, rule in RULES.items():
            rules: Any = {"inbound": [rule]}
            host = edge(service, f"{name}.test", backend, policy=rules)
            places[f"edge {name}"] = (shared, host)
            tunnel = local.tunnels.start(
                addr=upstream, proto="http", name=name, traffic_policy={"on_http_request": [rule]}
            )
            address = address_of(tunnel.public_url)
            places[f"tunnel {name}"] = (address, address)
        # A route of its own, where nobody may come.
        nobody = remote.ip_policies.create()
        host = edge(service, "route.test", backend)
        [made] = [
            it for it in remote.edges.https.list() if it.hostports == [f"{host}:443", f"{host}:80"]
        ]
        for match_type, match in [("path_prefix", "/admin"), ("exact_path", "/%61dmin/x")]:
            remote.edges.https.routes.create(
                made.id,
                match_type=match_type,
                match=match,
                backend={"backend_id": backend},
                ip_restriction={"ip_policy_ids": [nobody.id]},
            )
        places["route"] = (shared, host)
        # An internal endpoint that protects itself.
        local.tunnels.start(
            addr=upstream,
            proto="http",
            name="in",
            domain="in.internal",
            schemes=["http"],
            traffic_policy={"on_http_request": [RULES["path"]]},
        )
        inside: Any = {"inbound": [act("forward-internal", url="http://in.internal")]}
        places["internal"] = (shared, edge(service, "inside.test", backend, policy=inside))
        yield places


PLACES = [f"{kind} {name}" for kind in ("edge", "tunnel") for name in RULES] + ["route", "internal"]


def test_the_table_has_many_spellings_of_the_page(upstream: int) -> None:
    served = [it for it in SPELLINGS if get(f"127.0.0.1:{upstream}", "a.test", it)[2] == b"admin"]

    assert len(set(SPELLINGS)) == len(SPELLINGS) >= 60
    assert len(served) > 40


@pytest.mark.parametrize("place", PLACES)
def test_no_spelling_of_the_page_leads_around_its_protection(
    protected: dict[str, tuple[str, str]], place: str
) -> None:
    address, host = protected[place]

    answers = {it: get(address, host, it) for it in SPELLINGS}
    absolute = {it: get(address, host, f"http://{host}{it}") for it in SPELLINGS}

    assert answers["/public"][2] == answers["/"][2] == b"other"
    for answered in (answers, absolute):
        assert [it for it, answer in answered.items() if answer[2] == b"admin"] == []
        assert {answer[0] for answer in answered.values()} <= {200, 302, 400, 403, 404}


@pytest.mark.parametrize("place", ["edge path", "tunnel path", "route", "internal"])
def test_ambiguous_paths_are_refused_or_resolved(
    protected: dict[str, tuple[str, str]], place: str, request: pytest.FixtureRequest
) -> None:
    address, host = protected[place]
    mode = request.node.callspec.params["protected"]
    if mode == "preserve" or (mode, place) == ("auto", "route"):
        pytest.skip("none of these paths leads to the page")
    rejects = mode != "normalize"
    expected = {
        "/x/../public": "a dot segment",
        "/x/%2e%2E/public": "a dot segment",
        "/x%2fy": "an encoded slash",
        "/x\\y": "a backslash",
        "/x%5Cy": "a backslash",
    }
    always = {
        "/..;/public": "a dot segment",
        "/%zz": "an incomplete percent escape",
        "/a%00": "an encoded NUL",
    }

    for target, reason in expected.items():
        status, _, body = get(address, host, target)
        refused = f"The path is ambiguous: it holds {reason}.\n".encode()
        assert (status, body) == ((400, refused) if rejects else (200, b"other")), target
    for target, reason in always.items():
        status, _, body = get(address, host, target)
        refused = f"The path is ambiguous: it holds {reason}.\n".encode()
        assert (status, body) == (400, refused), target


def test_a_path_that_nobody_looks_at_arrives_as_it_was_sent(service: ginnel.Service) -> None:
    other: Any = {"inbound": [deny("req.method == 'PUT'", "req.url.query == '/admin'")]}
    with Recorder() as recorder, ginnel.Agent(service) as agent, agent.client() as local:
        tunnel = local.tunnels.start(addr=recorder.port, proto="http", name="t")
        backend, shared = static(service, recorder.port), address_of(service.http_url)
        address = address_of(tunnel.public_url)
        places = [(address, address), (shared, edge(service, "a.test", backend))]
        places.append((shared, edge(service, "b.test", backend, policy=other)))
        for place, host in places:
            for more in ([], [LONG]):
                recorder.heads.clear()
                statuses = {get(place, host, it, *more)[0] for it in [*SPELLINGS, *UNUSUAL]}
                assert statuses == {200}
                assert recorder.targets == [*SPELLINGS, *UNUSUAL]

        everything = 2 * len([*SPELLINGS, *UNUSUAL])
        uris = {one.request.uri for one in local.requests.list(limit=everything)}
        assert uris == {*SPELLINGS, *UNUSUAL}


def test_what_is_not_ambiguous_arrives_as_it_was_sent_through_rules_too(
    service: ginnel.Service,
) -> None:
    rules: Any = {"inbound": [deny("req.url.path == '/no'")]}
    sent = ["/x//y//", "/%7Ex/%41?q=%2f/../", "/a;b=c//", "/x%20%c3%a9", "/%2561", "/.well-known/x"]
    with Recorder() as recorder:
        host = edge(service, "a.test", static(service, recorder.port), policy=rules)

        for target in sent:
            assert get(address_of(service.http_url), host, target)[0] == 200

        assert recorder.targets == sent


def test_a_path_begins_with_one_slash_where_rules_look_at_it(service: ginnel.Service) -> None:
    """Who resolves a target as a reference takes what follows `//` for a host (RFC 3986, 4.2)."""
    rules: Any = {"inbound": [deny("req.url.path.startsWith('/admin')")]}
    with Recorder() as recorder:
        host = edge(service, "a.test", static(service, recorder.port), policy=rules)
        address = address_of(service.http_url)

        for target in ["//x/admin", "///x/admin?a=//b", "//%78//y"]:
            assert get(address, host, target)[0] == 200
        assert get(address, host, "//admin")[0] == 403

        assert recorder.targets == ["/x/admin", "/x/admin?a=//b", "/%78//y"]


def test_normalized_paths_are_forwarded(upstream: int) -> None:
    rules: Any = {"inbound": [deny("req.url.path == '/no'")]}
    with ginnel.Service(ambiguous_paths="normalize") as service, Recorder() as recorder:
        host = edge(service, "a.test", static(service, recorder.port), policy=rules)
        address = address_of(service.http_url)

        assert get(address, host, "/x/../y%2f%7e/./z%20?a/../b")[0] == 200
        assert get(address, host, "//y")[0] == 200
        assert get(address, host, "/x/../no")[0] == 403

        assert recorder.targets == ["/y/~/z%20?a/../b", "/y"]


def test_rules_see_the_bytes_of_a_path_that_was_normalized() -> None:
    shown = act("log", metadata={"path": "${req.url.path}", "raw": "${req.url.raw_path}"})
    rules: Any = {"inbound": [shown]}
    with ginnel.Service(ambiguous_paths="normalize") as service, Recorder() as recorder:
        host = edge(service, "a.test", static(service, recorder.port), policy=rules)
        events = service.events()

        get(address_of(service.http_url), host, "/x/..%2fy?z")

        event = events.get(timeout=30)
        assert event is not None
        assert list(event.logs) == [{"path": "/y", "raw": "/x/..%2fy"}]
        assert event.path == "/x/..%2fy?z"


def test_a_target_that_is_no_path_is_no_ambiguous_one(service: ginnel.Service) -> None:
    with Recorder() as recorder, ginnel.Agent(service) as agent, agent.client() as local:
        rules = {"on_http_request": [deny("req.url.path == '/no'")]}
        tunnel = local.tunnels.start(
            addr=recorder.port, proto="http", name="t", traffic_policy=rules
        )
        address = address_of(tunnel.public_url)

        asked = say(address, f"OPTIONS * HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())

        assert asked[0] == 200
        assert recorder.targets == ["*"]


def test_paths_over_http2_meet_the_same_rules(upstream: int, tmp_path: Path) -> None:
    rules: Any = {"inbound": [RULES["path"]]}
    with ginnel.Service() as service:
        host = edge(service, "a.test", static(service, upstream), policy=rules)
        (tmp_path / "ca.pem").write_text(service.ca_pem)
        connect = f"::{address_of(service.https_url)}"
        curl = ["curl", "--silent", "--http2", "--path-as-is", "--connect-to", connect]
        curl += [
            "--cacert",
            str(tmp_path / "ca.pem"),
            "--write-out",
            " %{http_version} %{http_code}",
        ]

        def visit(target: str) -> str:
            command = [*curl, f"https://{host}{target}"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        assert visit("/public") == "other 2 200"
        for target in ["/admin", "//admin", "/%61dmin"]:
            assert visit(target).endswith(" 2 403")
        for target in ["/./admin", "/x/../admin", "/%2fadmin", "/x/%2e%2e/admin"]:
            assert visit(target).endswith(" 2 400")


def test_a_quote_in_a_query_of_http2_ends_one_request_only(upstream: int, tmp_path: Path) -> None:
    """The library that reads HTTP/2 resets the stream; the connection and other streams go on."""
    with ginnel.Service() as service:
        host = edge(service, "a.test", static(service, upstream))
        (tmp_path / "ca.pem").write_text(service.ca_pem)
        connect = f"::{address_of(service.https_url)}"
        curl = ["curl", "--silent", "--http2", "--connect-to", connect]
        curl += ["--cacert", str(tmp_path / "ca.pem")]
        written = "%{http_version} %{http_code} %{num_connects} %{errormsg}\n"
        command = [*curl, "--write-out", written]
        urls = [f"https://{host}/{target}" for target in ['a"b', "a?%22", 'a?"', "a"]]

        done = subprocess.run(
            [*command, *(part for url in urls for part in ("--output", "/dev/null", url))],
            check=False,
            capture_output=True,
            text=True,
        )

        seen = [line.split(" ", 3) for line in done.stdout.splitlines()]
        assert [line[:2] for line in seen] == [
            ["2", "200"],
            ["2", "200"],
            ["0", "000"],
            ["2", "200"],
        ]
        assert "PROTOCOL_ERROR" in seen[2][3]
        assert [line[2] for line in seen] == ["1", "0", "0", "0"]


def test_rules_see_one_form_of_a_path_and_the_bytes() -> None:
    names = ["path", "raw_path", "uri", "raw"]
    shown = act("log", metadata={name: f"${{req.url.{name}}}" for name in names})

    report = policy.test(
        {"on_http_request": [shown]}, request="http://a.test//%61/%c3%a9%7e/%20;x?y=//%61"
    )

    assert list(report.logs) == [
        {
            "path": "/a/%C3%A9~/%20;x",
            "raw_path": "//%61/%c3%a9%7e/%20;x",
            "uri": "/a/%C3%A9~/%20;x?y=//%61",
            "raw": "http://a.test//%61/%c3%a9%7e/%20;x?y=//%61",
        }
    ]


def test_a_trial_refuses_what_the_service_refuses() -> None:
    refused = policy.test({"on_http_request": [RULES["path"]]}, request="http://a.test/x/../admin")
    others = policy.test(
        {"on_http_request": [deny("req.method == 'PUT'")]}, request="http://a/x/../y"
    )

    assert refused.outcome == "respond"
    assert refused.response is not None
    assert refused.response.status == 400
    assert "a dot segment" in refused.response.body
    assert refused.request is None
    assert others.outcome == "continue"


def test_the_option_is_one_of_four_words() -> None:
    wrong: Any = "ignore"
    with pytest.raises(ginnel.ConfigError, match="ambiguous_paths: 'ignore' is neither"):
        ginnel.Service(ambiguous_paths=wrong)


def protected_route(service: ginnel.Service, port: int, *, match_type: str, match: str) -> str:
    """An edge at which nobody may come to one of its paths; its host."""
    backend = static(service, port)
    host = edge(service, "route.test", backend)
    with service.client() as remote:
        nobody = remote.ip_policies.create()
        [made] = [it for it in remote.edges.https.list() if f"{host}:80" in (it.hostports or [])]
        remote.edges.https.routes.create(
            made.id,
            match_type=match_type,
            match=match,
            backend={"backend_id": backend},
            ip_restriction={"ip_policy_ids": [nobody.id]},
        )
    return host


ENCODED = [
    "/api/v4/projects/group%2Fproject/issues?per_page=1",
    "/api/queues/%2F/work",
    "/@scope%2fpackage",
    "/a/./b/../c",
    "/a\\b",
    "/a%5Cb;v=1",
    "/%zz/100%",
    "/a;v=1/b",
    "//a//b",
    "/;x/a",
]
"""Paths that servers read in different ways, none of which begins with `/admin`."""


@pytest.mark.parametrize("mode", ["auto", "preserve"])
@pytest.mark.parametrize("more", [[], [LONG]], ids=["short", "long"])
def test_where_only_routes_look_at_paths_they_are_forwarded_as_they_came(
    mode: Literal["auto", "preserve"], more: list[str]
) -> None:
    with ginnel.Service(ambiguous_paths=mode) as service, Recorder() as recorder:
        host = protected_route(service, recorder.port, match_type="path_prefix", match="/admin")
        address = address_of(service.http_url)

        answers = {it: get(address, host, it, *more)[0] for it in ENCODED}

        assert answers == dict.fromkeys(ENCODED, 200)
        assert recorder.targets == ENCODED


@pytest.mark.parametrize("mode", ["auto", "preserve"])
@pytest.mark.parametrize(
    "target",
    [
        "/;x/admin",
        "/x/;y/../admin",
        "/x%2f..%2fadmin",
        "/%2fadmin",
        "/x\\..\\admin",
        "/x/%2e%2e/admin",
        "/x/..;/admin",
        "/admin/../x",
        "/../admin",
        "/..%2fadmin",
        "//x/admin/",
        "/a%00",
    ],
)
def test_a_path_that_some_server_reads_as_that_of_another_route_is_refused(
    mode: Literal["auto", "preserve"], target: str
) -> None:
    with ginnel.Service(ambiguous_paths=mode) as service, Recorder() as recorder:
        host = protected_route(service, recorder.port, match_type="path_prefix", match="/admin")

        status, _, body = get(address_of(service.http_url), host, target)

        # Without its second slash, one of them has one reading.
        if target == "//x/admin/":
            assert (status, recorder.targets) == (200, ["/x/admin/"])
        else:
            assert (status, recorder.targets) == (400, [])
            assert body.startswith(b"The path is ambiguous")


def test_a_second_slash_at_the_beginning_leads_to_the_same_route() -> None:
    with ginnel.Service() as service, Recorder() as recorder:
        host = protected_route(service, recorder.port, match_type="path_prefix", match="/admin")

        assert get(address_of(service.http_url), host, "//admin")[0] == 403
        assert get(address_of(service.http_url), host, "//other/x")[0] == 200


def test_parameters_do_not_lead_around_a_route() -> None:
    with ginnel.Service() as service, Recorder() as recorder:
        host = protected_route(service, recorder.port, match_type="exact_path", match="/list")
        address = address_of(service.http_url)

        statuses = {it: get(address, host, it)[0] for it in ["/list", "/list;page=2", "/a;page=2"]}

        assert statuses == {"/list": 403, "/list;page=2": 400, "/a;page=2": 200}


def test_preserve_refuses_what_has_another_result_of_a_rule() -> None:
    rules: Any = {
        "inbound": [
            deny("req.url.path.startsWith('/admin')"),
            act("url-rewrite", **{"from": "/old/(.*)", "to": "/new/$1"}),
            act("log", metadata={"path": "${req.url.path}", "raw": "${req.url.raw_path}"}),
            deny("req.url.path.startsWith('/new/secret')"),
        ]
    }
    with ginnel.Service(ambiguous_paths="preserve") as service, Recorder() as recorder:
        host = edge(service, "a.test", static(service, recorder.port), policy=rules)
        address = address_of(service.http_url)

        def status(target: str) -> int:
            return get(address, host, target)[0]

        assert {it: status(it) for it in ENCODED} == dict.fromkeys(ENCODED, 200)
        assert recorder.targets == ENCODED
        for target in ["/;x/admin", "/%2fadmin", "/x/..%2fadmin", "/x\\..\\admin", "//x/admin"]:
            assert status(target) == 400, target
        assert status("/x%2f..%2fold/y") == 400
        assert status("/old/a%2Fb") == 200
        assert recorder.targets[-1] == "/new/a%2Fb"
        assert status("/old/x%2f..%2fsecret") == 400
        assert status("/admin") == 403
