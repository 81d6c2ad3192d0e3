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
    ("basic_auth", HTTP | {"basic_auth": ["swordfish"]}),
    ("basic_auth", HTTP | {"basic_auth": ["ada:"]}),
    ("bind_tls", HTTP | {"bind_tls": "maybe"}),
    ("circuit_breaker", HTTP | {"circuit_breaker": 2}),
    ("compression", HTTP | {"compression": "yes"}),
    ("crt", TLS | {"crt": "/nowhere/at/all.pem", "key": "/nowhere/at/all.pem"}),
    ("description", HTTP | {"description": "x" * 256}),
    ("domain", HTTP | {"domain": "a..test"}),
    ("domain", HTTP | {"domain": ".."}),
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
    ("subdomain", HTTP | {"subdomain": "a", "domain": "a.example.test"}),
    ("subdomain", TLS | {"subdomain": "a", "hostname": "a.example.test"}),
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
    HTTP | {"traffic_policy": {}},
    HTTP | {"traffic_policy": None},
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


# Configurations that no agent starts with, and the text that a user reads. `F` is the file.
WEB = "tunnels:\n  web:\n    proto: http\n    addr: "
REFUSED = {
    "long metadata": (f"metadata: {'x' * 4097}\n", "F:4:11: metadata: is 4097 bytes long, the li"),
    "no server": ("server_addr: []\n", "F:4:14: server_addr: is an empty list; name an address, "),
    "a server in a map": ("server_addr: {a: 1}\n", "F:4:14: server_addr: takes a value, not keys "),
    "a server that is a number": ("server_addr: 5\n", "F:4:14: server_addr: '5': \"5\" is not of "),
    "no authtoken": ('authtoken: ""\n', "F:4:12: authtoken: is empty; write the authtoken, or "),
    "a truth value for an authtoken": (
        "authtoken: true\n",
        "F:4:12: authtoken: is a truth value; ",
    ),
    "a list for metadata": ("metadata: [a]\n", "F:4:11: metadata: takes one value, not a list"),
    "no certificates": ('root_cas: ""\n', "F:4:11: root_cas: is empty; name a file, or leave "),
    "underscores": (
        WEB + "8_080\n",
        "F:7:11: tunnels.web.addr: 8_080 is not a whole number in plain",
    ),
    "hexadecimal": (WEB + "0x1f90\n", "F:7:11: tunnels.web.addr: 0x1f90 is not a whole number in "),
    "octal": (
        WEB + "0o17620\n",
        "F:7:11: tunnels.web.addr: 0o17620 is not a whole number in plain",
    ),
    "a leading zero": (
        WEB + "08080\n",
        "F:7:11: tunnels.web.addr: 08080 is not a whole number in ",
    ),
    "an exponent": (
        WEB + "1e4\n",
        "F:7:11: tunnels.web.addr: 1e4 is not a whole number in plain di",
    ),
    "a fraction": (
        WEB + "8080.0\n",
        "F:7:11: tunnels.web.addr: 8080.0 is not a whole number in pla",
    ),
    "a sign": (
        WEB + "+80\n",
        "F:7:11: tunnels.web.addr: +80 is not a whole number in plain digits",
    ),
    "a port of an agent": (
        "web_addr: 0x1f90\n",
        'F:4:11: web_addr: "0x1f90" is not a port, host:port',
    ),
    "a number for text": (
        WEB + "80\n    metadata: 010\n",
        "F:8:15: tunnels.web.metadata: 010 is a",
    ),
    "a truth value": (
        WEB + "80\n    auth: true\n",
        "F:8:11: tunnels.web.auth: is a boolean, not a ",
    ),
    "no name": (
        'tunnels:\n  "": {proto: http, addr: 80}\n',
        "F:5:3: tunnels: an entry has no name",
    ),
}

# Tunnels that cannot be online together. A file may have them, because each start may take one.
CONFLICTS = {
    "one domain": (
        WEB + "80\n    domain: a.test\n  web2: {proto: http, addr: 81, domain: A.test.}\n",
        "F:9:3: tunnels.web2: asks for https://a.test, as tunnels.web does; give each its own",
    ),
    "one subdomain": (
        WEB + "80\n    subdomain: a\n  web2: {proto: http, addr: 81, subdomain: A}\n",
        'F:9:3: tunnels.web2: asks for the https address of the subdomain "a", as tunnels.web does',
    ),
    "one port": (
        "tunnels:\n  a: {proto: tcp, addr: 1, remote_addr: 'a.test:22'}\n"
        "  b: {proto: tcp, addr: 2, remote_addr: ':22'}\n",
        "F:6:3: tunnels.b: asks for port 22, as tunnels.a does; give each its own address",
    ),
    "one of two schemes": (
        WEB + "80\n    domain: a.test\n    schemes: [http, https]\n"
        "  web2: {proto: http, addr: 81, domain: a.test, schemes: [http]}\n",
        "F:10:3: tunnels.web2: asks for http://a.test, as tunnels.web does",
    ),
    "one pools": (
        WEB + "80\n    domain: a.test\n    pooling_enabled: true\n"
        "  web2: {proto: http, addr: 81, domain: a.test}\n",
        "F:10:3: tunnels.web2: asks for https://a.test, as tunnels.web does",
    ),
    "one name": (
        WEB + "80\n    schemes: [http, https]\n  web (http): {proto: http, addr: 81}\n",
        'F:9:3: tunnels.web (http): the name "web (http)" is that of tunnels.web as well; rename',
    ),
}


def ginnel_command(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ginnel", *arguments, "--config", str(folder / "ginnel.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    shown = done.stderr.replace(str(folder / "ginnel.yml"), "F")
    return done.returncode, shown.replace("ginnel: ", "", 1)


@pytest.mark.parametrize("case", REFUSED)
def test_a_check_and_a_start_say_the_same(case: str, tmp_path: Path) -> None:
    text, expected = REFUSED[case]
    others = {"server_addr": "127.0.0.1:1", "authtoken": "t"}
    lines = [f"{key}: {it}\n" for key, it in others.items() if not text.startswith(key)]
    lines += ["# nothing\n"] * (2 - len(lines))
    (tmp_path / "ginnel.yml").write_text("".join(["version: 2\n", *lines, text]))

    code, checked = ginnel_command(tmp_path, "config", "check")
    command = ["start", "--all"] if text.startswith("tunnels") else ["agent", "--web-addr=false"]
    if "web_addr" in text:
        command.pop()
    started = ginnel_command(tmp_path, *command)

    assert checked.startswith(expected), checked
    assert started == (code, checked) == (2, checked)


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_check_warns_of_tunnels_that_no_start_can_have_together(
    case: str, tmp_path: Path
) -> None:
    text, expected = CONFLICTS[case]
    head = "version: 2\nserver_addr: 127.0.0.1:1\nauthtoken: t\n"
    (tmp_path / "ginnel.yml").write_text(head + text)

    code, checked = ginnel_command(tmp_path, "config", "check")
    started = ginnel_command(tmp_path, "start", "--all")

    assert code == 0
    assert checked.startswith(expected), checked
    assert started == (2, checked)


def test_tunnels_that_differ_or_pool_may_be_in_one_file(tmp_path: Path) -> None:
    shared = {"domain": "a.test", "pooling_enabled": True}
    tunnels = {
        "one": HTTP | shared,
        "two": HTTP | shared,
        "plain": HTTP | {"domain": "a.test", "schemes": ["http"]},
        "free": TCP,
        "other": TCP,
        "port": TCP | {"remote_addr": ":22"},
    }

    assert check(tmp_path, tunnels) == (0, [])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("pay\u202eexe", "pay\\u{202e}exe"),
        ("a\nb", "a\\nb"),
        ("a\u200bb", "a\\u{200b}b"),
        ("\x1b[31m", "\\u{1b}[31m"),
    ],
)
def test_a_name_that_a_terminal_would_not_show_is_refused(
    tmp_path: Path, name: str, shown: str
) -> None:
    file = {"version": 2, "server_addr": "a:1", "authtoken": "t", "tunnels": {name: HTTP}}
    (tmp_path / "ginnel.yml").write_text(json.dumps(file))

    code, problem = ginnel_command(tmp_path, "config", "check")

    assert code == 2
    assert f': tunnels.{shown}: name: "{shown}" has the invisible character U+' in problem
    assert ginnel_command(tmp_path, "start", "--all") == (code, problem)


@pytest.mark.parametrize(
    ("entries", "code", "problem"),
    [
        (
            "tunnels: {web: {proto: http, addr: 80}}\n"
            "endpoints: [{name: web, upstream: {url: 1}}]\n",
            2,
            'F:3:13: endpoints.web: tunnels has a "web" as well; rename one',
        ),
        (
            "endpoints: [{name: web, upstream: {url: 0x50}}]\n",
            2,
            "F:2:41: endpoints.web.upstream.url: 0x50 is not a whole number in plain digits",
        ),
        (
            "endpoints:\n"
            "  - {name: one, url: 'https://a.test', upstream: {url: 80}}\n"
            "  - {name: two, url: a.test, upstream: {url: 81}}\n",
            0,
            "F:4:5: endpoints.two: asks for https://a.test, as endpoints.one does; give each its",
        ),
    ],
)
def test_a_check_reads_endpoints_as_it_reads_tunnels(
    entries: str, code: int, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "ginnel.yml").write_text(f"version: 3\n{entries}")

    checked, said = ginnel_command(tmp_path, "config", "check")

    assert checked == code
    assert said.startswith(problem), said


def test_an_authtoken_file_with_two_lines_is_refused_with_its_setting(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\ntwo\n")
    token.chmod(0o600)
    (tmp_path / "ginnel.yml").write_text(f"version: 2\nauthtoken_file: {token}\n")

    for command in (["config", "check"], ["agent", "--server-addr", "127.0.0.1:1"]):
        code, said = ginnel_command(tmp_path, *command)

        assert code == 2
        assert said.startswith(f"F:2:17: authtoken_file: cannot read {token}: the file has more ")


def test_a_definition_file_is_read_as_a_configuration_is(tmp_path: Path) -> None:
    definition = tmp_path / "fields.yml"
    definition.write_text("description: x\nproxy_proto: 0x1\n")
    (tmp_path / "ginnel.yml").write_text("version: 2\nserver_addr: a:1\nauthtoken: t\n")

    code, said = ginnel_command(tmp_path, "tcp", "1", "--definition-file", str(definition))

    assert code == 2
    assert said.startswith(f"{definition}:2:14: proxy_proto: 0x1 is not a whole number in plain")
