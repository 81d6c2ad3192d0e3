"""The console of a service, as programs may try to use it: sessions, keys, and pages of others."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import ginnel
from addresses import free_port
from consoling import ConsoleClient, Shop


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.fixture
def console(service: ginnel.Service) -> ConsoleClient:
    console = ConsoleClient(service)
    assert console.log_in(service.api_key).status == 200
    return console


def test_a_session_begins_with_a_key_and_its_cookie_is_for_the_console_alone(
    service: ginnel.Service,
) -> None:
    console = ConsoleClient(service)

    answer = console.log_in(service.api_key)

    name, _, attributes = answer.headers["Set-Cookie"].partition("=")
    assert name == f"ginnel_console_{console.port}"
    assert attributes.partition("; ")[2] == "Path=/console/; HttpOnly; SameSite=Strict"
    assert answer.json()["admin"] is True
    assert service.api_key
    assert service.api_key not in answer.body.decode()
    behind_tls = ConsoleClient(service)
    origin = f"https://{console.host}:{console.port}"
    assert (
        behind_tls.log_in(service.api_key, Origin=origin).headers["Set-Cookie"].endswith("; Secure")
    )


@pytest.mark.parametrize("key", ["", "wrong", "ak_1", "a" * 27 + "_" + "b" * 21])
def test_a_wrong_key_begins_no_session(service: ginnel.Service, key: str) -> None:
    console = ConsoleClient(service)

    answer = console.log_in(key)

    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers
    assert answer.json()["error_code"].startswith("ERR_NGROK_20")


def test_both_secrets_are_needed(console: ConsoleClient) -> None:
    cookie, token = console.cookie, console.token
    name, _, _ = str(cookie).partition("=")
    assert console.send("GET", "/console/api/api_keys").status == 200
    # A tunnel below the same domain can set a cookie of the name, which keeps nobody out.
    for console.cookie in [f"{name}=other; {cookie}", f"{cookie}; {name}=other"]:
        assert console.send("GET", "/console/api/api_keys").status == 200, console.cookie

    for console.cookie, console.token in [
        (cookie, None),
        (None, token),
        (cookie, "x" * 43),
        (f"{name}=other; {name}=another", token),
    ]:
        for path in ["/console/api/api_keys", "/console/session", "/console/data/overview"]:
            assert console.send("GET", path).status == 401, (console.cookie, console.token)


def test_a_session_counts_nowhere_but_below_the_console(console: ConsoleClient) -> None:
    for path in ["/api_keys", "/", "/bot_users", "/consoles/api/api_keys"]:
        answer = console.send("GET", path)
        assert answer.status in (403, 404), path
    # Paths are not made shorter on the way.
    for path in ["/console/api/console/session", "/console/api//console/session"]:
        assert console.send("GET", path).status == 404, path
    assert console.send("GET", "/console/api").status == 200


def test_the_key_of_a_session_is_that_of_the_cookie(
    service: ginnel.Service, console: ConsoleClient
) -> None:
    other = service.client().api_keys.create(description="other")

    answer = console.send(
        "GET", "/console/session", headers={"Authorization": f"Bearer {other.token}"}
    )

    assert answer.json()["key_id"] != other.id


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://tunnel.127.0.0.1"},
    ],
)
def test_pages_of_other_sites_may_do_nothing(
    console: ConsoleClient, headers: dict[str, str]
) -> None:
    for method, path, body in [
        ("GET", "/console/api/api_keys", None),
        ("POST", "/console/api/api_keys", {"description": "mine"}),
        ("GET", "/console/data/overview", None),
        ("POST", "/console/data/policy", {"document": "{}", "protocol": "https"}),
        ("GET", "/console/data/events", None),
        ("POST", "/console/session", None),
        ("DELETE", "/console/session", None),
        ("OPTIONS", "/console/api/api_keys", None),
    ]:
        answer = console.send(method, path, body, headers)

        assert answer.status == 403, (method, path)
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    listed = console.send("GET", "/console/api/api_keys").json()["keys"]
    assert [key["description"] for key in listed] == ["first key"]


def test_an_answer_of_the_console_may_be_read_by_its_own_page_alone(console: ConsoleClient) -> None:
    own = {"Origin": f"http://{console.host}:{console.port}", "Sec-Fetch-Site": "same-origin"}

    for path in ["/console/", "/console/assets/console.js", "/console/api/api_keys"]:
        answer = console.send("GET", path, headers=own)

        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_session_ends_when_its_user_logs_out(console: ConsoleClient) -> None:
    answer = console.send("DELETE", "/console/session")

    assert answer.status == 204
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert console.send("GET", "/console/api/api_keys").status == 401


def test_a_session_is_worth_nothing_without_its_key(service: ginnel.Service) -> None:
    remote = service.client()
    key = remote.api_keys.create(description="for a while")
    console = ConsoleClient(service)
    console.log_in(key.token)
    assert console.send("GET", "/console/api/api_keys").status == 200

    remote.api_keys.delete(key.id)

    assert console.send("GET", "/console/api/api_keys").status == 403
    assert console.send("GET", "/console/data/overview").status == 403


def test_what_is_changed_in_the_console_is_in_the_audit_trail(
    service: ginnel.Service, console: ConsoleClient
) -> None:
    created = console.send("POST", "/console/api/ip_policies", {"description": "by hand"})
    assert created.status == 201
    assert console.send("DELETE", "/console/session").status == 204

    deadline = time.monotonic() + 20
    expected = {"console.login", "ip_policies.create", "console.logout"}
    while True:
        events = [it for it in service.client().audit_events.list() if it.operation in expected]
        if len(events) == 3:
            break
        assert time.monotonic() < deadline, events
        time.sleep(0.1)
    assert len({event.key_id for event in events}) == 1
    changed = next(event for event in events if event.operation == "ip_policies.create")
    assert changed.resource_ids == [created.json()["id"]]


def test_a_bot_user_sees_what_its_key_may(service: ginnel.Service) -> None:
    console = ConsoleClient(service)

    session = console.log_in(Shop(service).bot_key).json()

    assert session["admin"] is False
    assert console.send("GET", "/console/api/edges/https").status == 200
    assert console.send("GET", "/console/data/overview").status == 200
    for path in ["/console/api/audit_events", "/console/data/events"]:
        assert console.send("GET", path).status == 403, path
    assert console.send("POST", "/console/api/bot_users", {"name": "x"}).status == 403


def test_events_are_sent_as_they_happen_to_those_who_ask_for_them(
    service: ginnel.Service, console: ConsoleClient
) -> None:
    shop = Shop(service)

    with console.follow("?status=403&rule=deletions") as updates:
        assert (shop.visit("/one"), shop.visit("/two", "DELETE")) == (200, 403)
        events = next(updates)["events"]

    assert [event["path"] for event in events] == ["/two"]
    event = events[0]
    assert (event["edge_id"], event["route_id"]) == (shop.edge.id, shop.route.id)
    assert (event["rule"], event["action"]) == ("no deletions", "deny")
    for query in ["?status=many", "?source=somewhere", "?nothing=1"]:
        assert console.send("GET", f"/console/data/events{query}").status == 400


def test_a_stream_ends_with_its_session(console: ConsoleClient) -> None:
    with console.follow() as updates:
        console.send("DELETE", "/console/session")

        assert list(updates) == []


def test_a_service_that_stops_waits_for_nobody_who_only_watches() -> None:
    service = ginnel.Service()
    console = ConsoleClient(service)
    console.log_in(service.api_key)
    ended = threading.Event()
    with console.follow() as updates:

        def watch() -> None:
            assert list(updates) == []
            ended.set()

        threading.Thread(target=watch, daemon=True).start()
        service.stop(grace=60)

        assert ended.wait(20)


def test_a_policy_is_checked_line_by_line_and_tried(
    service: ginnel.Service, console: ConsoleClient
) -> None:
    shop = Shop(service)
    document = f"""
inbound:
  - name: office
    expressions: ["req.url.path.startsWith('/admin')"]
    actions:
      - type: restrict-ips
        config:
          enforce: true
          ip_policies: [{shop.networks.id}]
"""
    draft = {"document": document, "protocol": "https"}

    def decide(source: str) -> str | None:
        traffic = {
            "connection": {"client_ip": source},
            "request": {"url": "https://shop.test/admin"},
        }
        answer = console.send("POST", "/console/data/policy", draft | {"traffic": traffic})
        decision: dict[str, str] | None = answer.json()["report"]["decision"]
        return decision["name"] if decision else None

    wrong = console.send(
        "POST",
        "/console/data/policy",
        draft | {"document": document.replace("req.url", "req.urls")},
    ).json()
    assert [(it["line"], it["place"]) for it in wrong["problems"]] == [
        (4, "inbound[0].expressions[0]")
    ]
    assert (decide("192.0.2.7"), decide("198.51.100.7")) == (None, "office")
    assert console.send("POST", "/console/data/policy", {"document": "{}"}).status == 400


def test_the_overview_has_what_is_online(service: ginnel.Service) -> None:
    console = ConsoleClient(service)
    console.log_in(service.api_key)

    with ginnel.Agent(service) as agent:
        agent.client().tunnels.start(name="web", proto="http", addr=9)
        overview = console.send("GET", "/console/data/overview").json()

    assert (overview["agents"], overview["tunnels"]) == (1, 1)
    assert overview["problems"] == []
    assert overview["counts_always"] is False


def test_the_overview_names_ports_that_others_have(tmp_path: Path) -> None:
    database = tmp_path / "ginnel.db"
    port = free_port()
    with ginnel.Service(database) as service:
        key = service.api_key
        edge = service.client().edges.tcp.create(hostports=[f"127.0.0.1:{port}"])
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with ginnel.Service(database) as service:
            console = ConsoleClient(service)
            console.log_in(key)
            problems = console.send("GET", "/console/data/overview").json()["problems"]

    assert [(it["edge_id"], it["is_severe"]) for it in problems] == [(edge.id, True)]
    assert f"port {port}" in problems[0]["text"]


def test_what_is_counted_for_a_scrape_is_shown() -> None:
    with ginnel.Service(admin_addr="127.0.0.1:0") as service:
        shop, console = Shop(service), ConsoleClient(service)
        console.log_in(service.api_key)
        assert [shop.visit("/"), shop.visit("/", "DELETE"), shop.visit("/")] == [200, 403, 200]

        deadline = time.monotonic() + 40
        while True:
            overview = console.send("GET", "/console/data/overview").json()
            samples = overview["samples"]
            if sum(sample["requests"] for sample in samples) == 3:
                break
            assert time.monotonic() < deadline, samples
            time.sleep(0.5)

    assert overview["counts_always"] is True
    assert sum(sample["client_errors"] for sample in samples) == 1
    assert sum(sample["sent"] for sample in samples) > 0
    busy = next(sample for sample in samples if sample["requests"])
    assert 0 < busy["p50_ms"] <= busy["p95_ms"] <= busy["p99_ms"]


def test_a_console_that_is_off_is_not_there() -> None:
    with ginnel.Service(settings={"console": False}) as service:
        console = ConsoleClient(service)

        assert console.log_in(service.api_key).status == 404
        assert console.send("GET", "/console").status == 404
        home = Request(service.url, headers={"Accept": "text/html"})
        assert b'href="console/"' not in urlopen(home).read()


def test_the_address_of_the_service_leads_to_the_console(service: ginnel.Service) -> None:
    home = Request(service.url, headers={"Accept": "text/html"})
    assert b'href="console/"' in urlopen(home).read()

    page = urlopen(f"{service.url}/console")

    assert page.url == f"{service.url}/console/"
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert json.loads(urlopen(f"{service.url}/openapi.json").read())["openapi"] == "3.1.0"
