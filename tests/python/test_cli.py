"""`ginnel api` and `ginnel local`: what they send, what they print, how they end."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel
from server import Server, answer

COMMAND = [sys.executable, "-m", "ginnel"]
Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**variables: str | None) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("GINNEL_")}
    return known | {name: value for name, value in variables.items() if value is not None}


def run(*arguments: str, typed: str = "", **variables: str | None) -> Any:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=typed,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def api(service: ginnel.Service) -> Run:
    """Runs `ginnel api` with the service and its key in the environment."""

    def call(*arguments: str, typed: str = "", **variables: str | None) -> Any:
        known = {"GINNEL_BASE_URL": service.url, "GINNEL_API_KEY": service.api_key}
        return run("api", *arguments, typed=typed, **(known | variables))

    return call


def made(api: Run, *arguments: str) -> Any:
    done = api(*arguments, "--output", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_resource_from_create_to_delete(api: Run) -> None:
    key = made(api, "api-keys", "create", "--description", "ci", "--metadata", '{"a": 1}')
    assert key["token"]

    got = made(api, "api-keys", "get", key["id"])
    changed = made(api, "api-keys", "update", key["id"], "--description", "")
    deleted = api("api-keys", "delete", key["id"])

    assert (got["description"], got["metadata"]) == ("ci", '{"a": 1}')
    assert (changed["description"], changed["metadata"]) == ("", '{"a": 1}')
    assert (deleted.returncode, deleted.stdout) == (0, "")
    assert api("api-keys", "get", key["id"]).returncode == 6


def test_lists_and_maps_are_given_piece_by_piece(api: Run) -> None:
    group = made(api, "backends", "tunnel-group", "create", "--labels", "a=b", "--labels", "c=d")
    weighted = made(api, "backends", "weighted", "create", "--backends", f"{group['id']}=3")
    page = made(api, "backends", "http-response", "create", "--body", "hi", "--headers", "x-a=b=c")
    edge = made(
        api, "edges", "https", "create", "--hostports", "a.test:443", "--hostports", "b.test:443"
    )

    assert group["labels"] == {"a": "b", "c": "d"}
    assert page["headers"] == {"x-a": "b=c"}
    assert weighted["backends"] == {group["id"]: 3}
    assert edge["hostports"] == ["a.test:443", "b.test:443"]
    assert (
        made(api, "backends", "tunnel-group", "update", group["id"], "--labels", "{}")["labels"]
        == {}
    )
    assert made(api, "edges", "https", "update", edge["id"], "--hostports", "[]")["hostports"] in (
        [],
        None,
    )


def test_a_module_comes_from_a_file_and_goes_back_edited(api: Run, tmp_path: Path) -> None:
    edge = made(api, "edges", "https", "create")
    route = made(
        api,
        "edges",
        "https",
        "routes",
        "create",
        edge["id"],
        "--match-type",
        "path_prefix",
        "--match",
        "/",
    )
    place = (edge["id"], route["id"])
    policy = {
        "enabled": True,
        "inbound": [{"name": "n", "expressions": ["true"], "actions": [{"type": "deny"}]}],
    }
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy))
    words = ("edges", "https", "routes", "policy")

    set_from_file = made(api, *words, "replace", *place, "--file", str(file))
    printed = api(*words, "get", *place, "--output", "json").stdout
    again = api(
        *words,
        "replace",
        *place,
        "--file",
        "-",
        "--enabled",
        "false",
        "--output",
        "json",
        typed=printed,
    )

    assert set_from_file["inbound"][0]["actions"][0]["type"] == "deny"
    assert json.loads(again.stdout) == {**set_from_file, "enabled": False}
    # A route's answer has more than its update takes; what is only read is left out.
    route_file = tmp_path / "route.json"
    route_file.write_text(json.dumps({**route, "description": "edited"}))
    edited = made(api, "edges", "https", "routes", "update", *place, "--file", str(route_file))
    assert edited["description"] == "edited"


def test_lists_are_printed_for_people_and_for_programs(api: Run) -> None:
    for number in range(5):
        made(api, "ip-policies", "create", "--description", f'office "{number}", north')

    table = api("ip-policies", "list").stdout
    whole = json.loads(api("ip-policies", "list", "--limit", "2", "--output", "json").stdout)
    lines = api("ip-policies", "list", "--limit", "2", "--max", "3", "--output", "jsonl").stdout
    rows = list(csv.DictReader(io.StringIO(api("ip-policies", "list", "--output", "csv").stdout)))

    assert table.splitlines()[0].split() == ["ID", "CREATED_AT", "DESCRIPTION", "METADATA"]
    assert "\x1b" not in table
    assert len(table.splitlines()) == 6
    assert [item["description"] for item in whole] == [
        f'office "{number}", north' for number in (4, 3, 2, 1, 0)
    ]
    assert [json.loads(line) for line in lines.splitlines()] == whole[:3]
    assert [row["description"] for row in rows] == [item["description"] for item in whole]
    assert api("bot-users", "list").stdout == "no items\n"


def test_tables_show_what_is_inside(api: Run, ginnel_agent: ginnel.Agent) -> None:
    assert ginnel_agent.url
    edge = made(api, "edges", "https", "create", "--hostports", "a.example.test:443")
    backend = made(api, "backends", "http-response", "create", "--body", "hello")
    to = json.dumps({"backend_id": backend["id"]})
    match = ("--match-type", "path_prefix", "--match", "/", "--backend", to)
    route = made(api, "edges", "https", "routes", "create", edge["id"], *match)

    shown = api("edges", "https", "routes", "get", edge["id"], route["id"]).stdout

    lines = dict(line.split(None, 1) for line in shown.splitlines() if " " in line.strip())
    assert lines["backend.enabled"].strip() == "true"
    assert lines["backend.backend.id"].strip() == backend["id"]


def test_captured_requests_are_a_table_for_people(
    ginnel_tunnel: Callable[..., str], ginnel_agent: ginnel.Agent, ginnel_agent_client: Any
) -> None:
    assert ginnel_agent.url

    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("202 Accepted", [])
        return [b"thanks"]

    url = ginnel_tunnel(app)
    urlopen(f"{url}/hook?a=1").read()
    seen = ginnel_agent_client.requests.wait_for(timeout=30)

    listed = run("local", "requests", "list", GINNEL_AGENT_URL=ginnel_agent.url).stdout
    shown = run("local", "requests", "get", seen.id, GINNEL_AGENT_URL=ginnel_agent.url).stdout

    head, row = listed.splitlines()
    assert {"REQUEST.METHOD", "REQUEST.URI", "RESPONSE.STATUS_CODE"} <= set(head.split())
    assert {"GET", "/hook?a=1", "202"} <= set(row.split())
    assert f"request.raw           {len(seen.request.raw)} bytes" in shown
    assert "response.status       202 Accepted" in shown


def test_what_would_command_a_terminal_is_written_out(api: Run) -> None:
    key = made(api, "api-keys", "create", "--description", "red \x1b[31m\n\talert")

    shown = api("api-keys", "get", key["id"]).stdout

    assert "red \\u{1b}[31m\\n\\talert" in shown
    assert "\x1b" not in shown


def test_curl_shows_the_request_and_sends_nothing(api: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    words = ("edges", "https", "routes", "webhook-verification", "replace", "edghts_1", "rte_1")
    given = ("--provider", "it's github", "--secret-file", str(secret), "--curl")

    with_key = api(*words, *given)
    without = api(*words, *given, GINNEL_API_KEY=None)

    assert with_key.returncode == 0
    assert with_key.stdout == without.stdout
    assert with_key.stdout.startswith("curl -X PUT -H ")
    assert "/edges/https/edghts_1/routes/rte_1/webhook_verification'" in with_key.stdout
    assert '"provider":"it\'\\\'\'s github","secret":"***"' in with_key.stdout
    assert "s3cret" not in with_key.stdout


def test_a_printed_request_does_what_the_command_does(api: Run, service: ginnel.Service) -> None:
    printed = api("ip-policies", "create", "--description", "it's", "--curl").stdout
    fake = "curl() { printf '%s\\n' \"$@\"; }\n"

    done = subprocess.run(
        ["sh", "-c", fake + printed],
        env=environment(GINNEL_API_KEY=service.api_key),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-3:] == [
        "-d",
        '{"description":"it\'s"}',
        f"{service.url}/ip_policies",
    ]
    assert f"Authorization: Bearer {service.api_key}" in done.stdout


def test_each_way_to_fail_has_its_code(api: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"descriptoin": "typo"}')
    key = tmp_path / "key"
    key.write_text("no key at all\n")
    key.chmod(0o600)
    cases: list[tuple[int, list[str], dict[str, str | None]]] = [
        (2, ["api-keys"], {}),
        (2, ["api-keys", "dance"], {}),
        (2, ["api-keys", "get"], {}),
        (2, ["api-keys", "get", ".."], {}),
        (2, ["api-keys", "create", "--description", "é" * 128], {}),
        (2, ["api-keys", "create", "--file", str(wrong)], {}),
        (2, ["api-keys", "create", "--file", str(tmp_path / "gone")], {}),
        (2, ["api-keys", "list"], {"GINNEL_API_KEY": None}),
        (2, ["api-keys", "list"], {"GINNEL_BASE_URL": None}),
        (2, ["backends", "weighted", "create", "--backends", "bkd_1"], {}),
        (5, ["api-keys", "list"], {"GINNEL_API_KEY": "ak_1_wrong"}),
        (5, ["api-keys", "list", "--api-key-file", str(key)], {}),
        (6, ["api-keys", "get", "ak_" + "0" * 27], {}),
        (7, ["backends", "failover", "create", "--backends", "bkdhr_gone"], {}),
        (9, ["api-keys", "list", "--max-retries", "0"], {"GINNEL_BASE_URL": "http://127.0.0.1:9"}),
    ]
    for code, arguments, variables in cases:
        done = api(*arguments, **variables)

        assert done.returncode == code, (arguments, done.stderr)
        assert done.stdout == ""
        assert done.stderr.startswith("ginnel: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_server_that_fails_has_its_code() -> None:
    with Server([answer(500, {}), answer(200, b"<html>"), answer(200, {"keys": 7})]) as server:
        known = {"GINNEL_BASE_URL": server.url, "GINNEL_API_KEY": "k"}
        words = ("api", "api-keys", "list", "--max-retries", "0")

        assert [run(*words, **known).returncode for _ in range(3)] == [8, 8, 8]


def test_the_agent_is_called_without_a_key() -> None:
    tunnel = {
        "name": "web",
        "uri": "/api/tunnels/web",
        "public_url": "http://x.test",
        "proto": "http",
    }
    with Server([answer(200, {"tunnels": [tunnel]}), answer(201, tunnel), answer(204)]) as server:
        known = {"GINNEL_AGENT_URL": server.url + "/api"}

        listed = run("local", "tunnels", "list", **known)
        started = run(
            "local",
            "tunnels",
            "start",
            "--addr",
            "8080",
            "--name",
            "web",
            "--proto",
            "http",
            **known,
        )
        stopped = run("local", "tunnels", "stop", "web", **known)

        assert [done.returncode for done in (listed, started, stopped)] == [0, 0, 0]
        assert "web" in listed.stdout
        assert "http://x.test" in started.stdout
        sent = [(request.method, request.target, request.body) for request in server.requests]
        assert sent[0][:2] == ("GET", "/api/tunnels")
        assert json.loads(sent[1][2]) == {"addr": "8080", "name": "web", "proto": "http"}
        assert sent[2][:2] == ("DELETE", "/api/tunnels/web")
        assert all("authorization" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("mocks", "add", "--status", "20"), "invalid mock: status: 20 is not from 200 to 599"),
        (("holds", "add", "--max-wait", "0"), "invalid hold: max_wait: 0 is not from 1 to 600000"),
        (
            ("tunnels", "start", "--name", "w", "--proto", "http", "--addr", "99999"),
            'invalid tunnel configuration: addr: "99999" is not a port from 1 to 65535 without '
            "leading zeros",
        ),
    ],
)
def test_the_reason_of_an_agent_is_told(
    ginnel_agent: ginnel.Agent, arguments: tuple[str, ...], reason: str
) -> None:
    done = run("local", *arguments, GINNEL_AGENT_URL=ginnel_agent.url)

    assert done.returncode == 7
    assert done.stderr.startswith(f"ginnel: {reason} (400 10")


def test_secrets_inside_are_taken_from_files_alone(api: Run, tmp_path: Path) -> None:
    start = ("local", "tunnels", "start", "--addr", "8080", "--proto", "http", "--name", "web")
    known = {"GINNEL_AGENT_URL": "http://127.0.0.1:1"}
    file = tmp_path / "auth.json"
    file.write_text('["me:swordfish"]')

    typed = run(*start, "--basic-auth", '["me:swordfish"]', **known)
    read = run(*start, "--basic-auth", f"@{file}", "--curl", **known)
    piped = run(*start, "--basic-auth", "@-", "--curl", typed='["me:swordfish"]', **known)

    assert typed.returncode == 2
    assert "--basic-auth holds secrets" in typed.stderr
    assert "swordfish" not in typed.stderr + read.stdout + piped.stdout
    assert (read.returncode, piped.returncode) == (0, 0)
    assert "basic_auth" in read.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_what_cannot_be_written_is_a_failure(api: Run) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 1
    assert done.stderr.startswith("ginnel: standard output: No space left on device")


def test_a_reader_who_leaves_is_no_failure(service: ginnel.Service) -> None:
    known = environment(GINNEL_BASE_URL=service.url, GINNEL_API_KEY=service.api_key)
    with service.client() as remote:
        for number in range(300):
            remote.ip_policies.create(description=f"{number:0200}")

    process = subprocess.Popen(
        [*COMMAND, "api", "ip-policies", "list", "-o", "jsonl"],
        env=known,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline().startswith(b'{"id":')
    process.stdout.close()

    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=20) == 0


def test_ctrl_c_ends_a_call_without_a_word() -> None:
    asked, release = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        release.wait(20)

    with Server([hang]) as server:
        process = subprocess.Popen(
            [*COMMAND, "api", "api-keys", "list"],
            env=environment(GINNEL_BASE_URL=server.url, GINNEL_API_KEY="k"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert asked.wait(20)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=30)
        release.set()

    assert (process.returncode, told) == (-signal.SIGINT, (b"", b""))


def test_at_a_terminal_the_key_is_asked_for_and_not_shown(service: ginnel.Service) -> None:
    assert service.api_key
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "api", "api-keys", "list"],
        env=environment(GINNEL_BASE_URL=service.url),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while b"API key: " not in seen:
        seen += os.read(ours, 1024)
    os.write(ours, service.api_key.encode() + b"\n")
    while b"ak_" not in seen:
        seen += os.read(ours, 1024)
    assert process.wait(timeout=20) == 0
    os.close(ours)

    assert service.api_key.encode() not in seen
    # A terminal gets a bold head line.
    assert b"\x1b[1mID" in seen


def test_retries_are_told_when_asked_for() -> None:
    with Server([answer(429, {}, retry_after=0), answer(200, {"keys": []})]) as server:
        known = {"GINNEL_BASE_URL": server.url, "GINNEL_API_KEY": "k", "GINNEL_LOG": "debug"}

        done = run("api", "api-keys", "list", **known)

    assert done.returncode == 0
    first, second, third = done.stderr.splitlines()
    assert first.startswith("ginnel: GET /api_keys: 429 in ")
    assert second == "ginnel: GET /api_keys: attempt 1 failed, retrying in 0.0ns"
    assert third.startswith("ginnel: GET /api_keys: 200 in ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_every_command(shell: str) -> None:
    script = run("completion", shell).stdout

    # Those for fish end at the second level.
    deep = () if shell == "fish" else ("tunnel-group", "webhook-verification", "--description")
    for word in ("api-keys", "backends", "local", "serve", "rate-limit", *deep):
        assert word in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_help_shows_how_an_operation_is_called() -> None:
    told = run("api", "backends", "failover", "create", "--help").stdout

    assert "POST /backends/failover" in told
    assert "ginnel api backends failover create --description TEXT" in told
    assert "--backends <BACKENDS>" in told


def test_help_puts_what_every_call_has_at_its_end() -> None:
    told = run("local", "tunnels", "start", "--help").stdout

    own, common = told.split("Options of every call:")
    assert "--basic-auth <@FILE>" in own
    assert "-o, --output <FORMAT>" in common
    assert "ginnel local tunnels start --addr 8080 --proto http --name TEXT" in common
    assert ".;" not in told


def test_calls_take_the_options_of_the_clients(tmp_path: Path) -> None:
    with Server([answer(200, {"id": "ak_1", "uri": "u"})]) as proxy:
        known = {"GINNEL_BASE_URL": "http://api.example.test", "GINNEL_API_KEY": "k"}
        call = ("api", "api-keys", "get", "ak_1", "--allow-http", "--deadline", "30")

        done = run(*call, "--proxy", proxy.url, **known)

        assert (done.returncode, done.stderr) == (0, "")
        assert proxy.requests[0].target == "http://api.example.test/api_keys/ak_1"
    missing = str(tmp_path / "none.pem")
    refused = run(*call, "--client-cert", missing, **known)
    assert "client_cert=" in refused.stderr
    assert "cannot be read" in refused.stderr
    assert run(*call, "--client-key", missing, **known).returncode == 2
    refused = run(*call, **known, GINNEL_CLIENT_CERT=missing)
    assert "GINNEL_CLIENT_CERT=" in refused.stderr


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_files_of_json_may_begin_with_a_byte_order_mark(
    ginnel_agent: ginnel.Agent, tmp_path: Path, mark: bytes
) -> None:
    entry = {"request": {"method": "GET", "url": "https://a.test/marked"}, "response": {}}
    archive = tmp_path / "requests.har"
    archive.write_bytes(mark + json.dumps({"log": {"entries": [entry]}}).encode())

    loaded = run(
        "local", "requests", "load", "--file", str(archive), GINNEL_AGENT_URL=ginnel_agent.url
    )

    assert loaded.returncode == 0, loaded.stderr
    with ginnel_agent.client() as client:
        assert [captured.request.uri for captured in client.requests.list()] == ["/marked"]
