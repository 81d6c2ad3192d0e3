"""`ginnel config check` refuses what a service refuses when the tunnels start."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ginnel
from ginnel import _native

HTTP: dict[str, Any] = {"proto": "http", "addr": "127.0.0.1:9"}
TCP: dict[str, Any] = {"proto": "tcp", "addr": "127.0.0.1:9"}
TLS: dict[str, Any] = {"proto": "tls", "addr": "127.0.0.1:9"}
DENY = {"on_http_request": [{"actions": [{"type": "deny"}]}]}
LOGIN = {"client_id": "a", "client_secret": "b"}

# Definitions that no service takes, by the field that is wrong.
BAD: list[tuple[str, dict[str, Any]]] = [
    ("addr", HTTP | {"addr": "127.1:80"}),
    ("app_protocol", HTTP | {"app_protocol": "http3"}),
    ("auth", HTTP | {"auth": "short"}),
    ("basic_auth", HTTP | {"basic_auth": ["ada:short"]}),
    ("bind_tls", HTTP | {"bind_tls": "maybe"}),
    ("circuit_breaker", HTTP | {"circuit_breaker": 2}),
    ("compression", HTTP | {"compression": "yes"}),
    ("crt", TLS | {"crt": "/nowhere/at/all.pem", "key": "/nowhere/at/all.pem"}),
    ("description", HTTP | {"description": "x" * 256}),
    ("domain", HTTP | {"domain": "a..test"}),
    ("host_header", HTTP | {"host_header": "a b"}),
    ("hostname", HTTP | {"hostname": "127.1"}),
    ("inspect", HTTP | {"inspect": "yes"}),
    ("ip_restriction", HTTP | {"ip_restriction": {"allow_cidrs": ["10.0.0.0/33"]}}),
    ("ip_restriction", TCP | {"ip_restriction": {"deny_cidrs": ["a.test"]}}),
    ("key", HTTP | {"key": "/nowhere/at/all.pem"}),
    ("labels", {"addr": "127.0.0.1:9", "labels": [f"k{index}=v" for index in range(33)]}),
    ("labels", {"addr": "127.0.0.1:9", "labels": ["k=" + "v" * 256]}),
    ("metadata", HTTP | {"metadata": "x" * 4097}),
    ("mutual_tls_cas", HTTP | {"mutual_tls_cas": "/nowhere/at/all.pem"}),
    ("name", HTTP | {"name": ".."}),
    ("oauth", HTTP | {"oauth": {"provider": "nobody"}}),
    ("oauth", HTTP | {"oauth": {"provider": "google", "client_id": "a"}}),
    ("oidc", HTTP | {"oidc": LOGIN | {"issuer_url": "http://issuer.example.test"}}),
    ("oidc", HTTP | {"oidc": LOGIN | {"issuer_url": "https://a.test", "scopes": ["a b"]}}),
    ("policy", HTTP | {"policy": {"on_http_request": [{"actions": [{"type": "nothing"}]}]}}),
    ("pooling_enabled", HTTP | {"pooling_enabled": "yes"}),
    ("proto", HTTP | {"proto": "udp"}),
    ("proxy_proto", TCP | {"proxy_proto": "3"}),
    ("proxy_protocol", HTTP | {"proxy_protocol": "1"}),
    ("remote_addr", TCP | {"remote_addr": ":0"}),
    ("request_header", HTTP | {"request_header": {"add": ["no colon"]}}),
    ("response_header", HTTP | {"response_header": {"add": ["a\r\nb: c"]}}),
    ("schemes", HTTP | {"schemes": ["gopher"]}),
    ("subdomain", HTTP | {"subdomain": "a.b"}),
    ("terminate_at", TLS | {"terminate_at": "nowhere"}),
    ("traffic_policy", HTTP | {"traffic_policy": {"on_http_request": [{"actions": []}]}}),
    ("traffic_policy", HTTP | {"traffic_policy": "on_http_request: [{actions: [{type: x}]}]"}),
    ("traffic_policy", HTTP | {"traffic_policy": DENY | {"on_tcp_connect": 1}}),
    ("traffic_policy", TCP | {"traffic_policy": DENY}),
    ("upstream_tls_verify", HTTP | {"upstream_tls_verify": "yes"}),
    (
        "upstream_tls_verify_cas",
        HTTP | {"upstream_tls_verify": True, "upstream_tls_verify_cas": "/nowhere/at/all.pem"},
    ),
    ("user_agent_filter", HTTP | {"user_agent_filter": {"deny": ["("]}}),
    ("verify_webhook", HTTP | {"verify_webhook": {"provider": "nobody", "secret": "b"}}),
    ("websocket_tcp_converter", HTTP | {"websocket_tcp_converter": "yes"}),
]
GOOD: list[dict[str, Any]] = [
    HTTP | {"traffic_policy": DENY, "ip_restriction": {"allow_cidrs": ["10.0.0.0/8"]}},
    HTTP | {"user_agent_filter": {"deny": ["curl"]}, "basic_auth": ["ada:swordfish"]},
    HTTP | {"verify_webhook": {"provider": "github", "secret": "b"}, "schemes": ["http"]},
    TCP | {"ip_restriction": {"deny_cidrs": ["192.0.2.1"]}},
    TLS,
    {"addr": "127.0.0.1:9", "labels": ["app=web"]},
]


@pytest.fixture(scope="module")
def agent() -> Iterator[ginnel.Agent]:
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        yield agent


def refusal(agent: ginnel.Agent, definition: dict[str, Any]) -> str | None:
    """What a start is refused with; the definition is sent as it is."""
    body = json.dumps(definition).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{agent.url}/api/tunnels", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30):
            return None
    except urllib.error.HTTPError as error:
        return error.read().decode()


def check(folder: Path, tunnels: dict[str, dict[str, Any]]) -> tuple[int, list[str]]:
    path = folder / "ginnel.yml"
    path.write_text(json.dumps({"version": 2, "tunnels": tunnels}))
    command = [sys.executable, "-m", "ginnel", "config", "check", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.splitlines()


def test_a_check_refuses_the_tunnels_that_a_service_refuses(
    agent: ginnel.Agent, tmp_path: Path
) -> None:
    named = {f"t{index}": definition for index, (_, definition) in enumerate(BAD)}
    # A name is a key in a file.
    tunnels = {
        definition.get("name", name): {key: it for key, it in definition.items() if key != "name"}
        for name, definition in named.items()
    }

    code, problems = check(tmp_path, tunnels)

    assert code == 2
    for (field, definition), name in zip(BAD, tunnels, strict=True):
        found = [line for line in problems if f"tunnels.{name}: " in line]
        assert found, f"{field}: the check accepts {definition}"
        refused = refusal(agent, {"name": name} | definition)
        assert refused, f"{field}: the start accepts {definition}"
        # Policies and logins are refused in words that libraries look for.
        word = {"policy": "olicy", "traffic_policy": "olicy", "verify_webhook": "webhook"}
        word |= {"auth": "basic_auth", "labels": "labels"}
        assert word.get(field, field) in found[0], found[0]


def test_a_check_accepts_the_tunnels_that_a_service_accepts(
    agent: ginnel.Agent, tmp_path: Path
) -> None:
    tunnels = {f"good{index}": definition for index, definition in enumerate(GOOD)}

    code, problems = check(tmp_path, tunnels)

    assert (code, problems) == (0, [])
    for name, definition in tunnels.items():
        assert refusal(agent, {"name": name} | definition) is None


def test_every_field_of_tunnels_has_a_bad_value_here() -> None:
    resources = json.loads(_native.operations("local"))
    operations = [it for resource in resources for it in resource["operations"]]
    [start] = [it for it in operations if (it["method"], it["path"]) == ("POST", "/tunnels")]

    fields = {field["name"] for field in start["parameters"]}

    assert fields == {field for field, _ in BAD}


def test_a_check_refuses_the_policy_of_an_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.yml"
    endpoint = {
        "name": "web",
        "url": "https://a.example.test",
        "upstream": {"url": "9"},
        "traffic_policy": {"on_http_request": [{"actions": [{"type": "nothing"}]}]},
    }
    path.write_text(json.dumps({"version": 3, "agent": {}, "endpoints": [endpoint]}))

    command = [sys.executable, "-m", "ginnel", "config", "check", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "endpoints.web: " in done.stderr
    assert "nothing" in done.stderr
