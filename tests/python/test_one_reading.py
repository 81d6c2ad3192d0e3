"""Text from outside that has one reading: policies, secret files, variables and clocks."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from compat import write_launcher
from event_receiver import Receiver
from event_receiver import status as answering
from ginnel import policy
from ginnel.service_settings import ServiceSettings
from processes import Command, wait_until
from recorder import get
from test_doctor import doctor

HOST = "cloud.example.test"
HEADER = "on_http_request: [{{actions: [{{type: add-headers, config: {{headers: {{x-v: {}}}}}}}]}}]"


def sent(document: str) -> str:
    report = policy.test(document, request="http://example.com/", response=200)
    assert report.request is not None
    [value] = report.request.headers["x-v"]
    return value


@pytest.mark.parametrize(
    "written",
    ["0123", "1e3", "1.10", "0x1F", "1_000", "yes", "True", "2024-01-01", ".inf", "-0", "9" * 30],
)
def test_a_text_field_has_what_is_written(written: str) -> None:
    assert sent(HEADER.format(written)) == written


def test_json_has_the_same_reading_as_yaml() -> None:
    rule = '{"actions": [{"type": "add-headers", "config": {"headers": {"x-v": 1.10}}}]}'

    assert sent('{"on_http_request": [' + rule + "]}") == "1.10"
    assert sent('\ufeff{"on_http_request": [' + rule + "]}") == "1.10"


def test_fields_for_numbers_and_truth_values_stay_typed() -> None:
    text = "on_http_request: [{{actions: [{{type: {}, config: {{{}}}}}]}}]"

    for written in ("'404'", "04.5", "yes"):
        [problem] = policy.check(text.format("deny", f"status_code: {written}"))
        assert problem.message == "status_code must be a whole number"
    breaker = "error_threshold: 0.50, enforce: {}"
    assert policy.check(text.format("circuit-breaker", breaker.format("no"))) == []
    [problem] = policy.check(text.format("circuit-breaker", breaker.format("'no'")))
    assert problem.message == "enforce must be true or false"


@pytest.mark.parametrize("value", ["! true", "!!str true", "!mine true", "!!binary dHJ1ZQ=="])
def test_a_tag_is_refused_wherever_a_policy_comes_from(value: str, tmp_path: Path) -> None:
    text = f"on_http_request:\n- expressions:\n  - {value}\n  actions: [{{type: deny}}]\n"
    file = tmp_path / "policy.yml"
    file.write_text(text)

    [problem] = policy.check(text)

    assert problem.place == "on_http_request[0].expressions[0]"
    assert "quotes" in problem.message
    assert policy.check(file) == [problem]
    done = ginnel_command("policy", "check", str(file))
    assert (done.returncode, "quotes" in done.stdout) == (1, True)
    with ginnel.Service() as service, service.client() as remote:
        with pytest.raises(ginnel.BadRequestError, match="quotes"):
            remote.endpoints.create(url=f"http://{HOST}", traffic_policy=text)
        with (
            ginnel.Agent(service) as agent,
            agent.client() as local,
            pytest.raises(ginnel.APIStatusError, match="quotes"),
        ):
            local.tunnels.start(addr=9, proto="http", name="web", traffic_policy=text)
    nested = "".join(f"        {line}\n" for line in text.splitlines())
    config = tmp_path / "ginnel.yml"
    config.write_text(
        "version: 2\ntunnels:\n  web:\n    proto: http\n    addr: 9\n    traffic_policy:\n" + nested
    )
    done = ginnel_command("config", "show", "--agent", "--config", str(config))
    assert done.returncode == 2
    assert "quotes" in done.stderr


@pytest.mark.parametrize(
    "rule",
    [
        "{!!str expressions: ['true'], actions: [{type: deny}]}",
        "{<<: !x {expressions: ['true']}, actions: [{type: deny}]}",
        "{<<: [!x {expressions: ['true']}], actions: [{type: deny}]}",
        "!x {actions: [{type: deny}]}",
        "{expressions: ! ['true'], actions: [{type: deny}]}",
        "{actions: [{type: !x deny}]}",
    ],
)
def test_a_tag_is_refused_at_any_place_of_a_document(rule: str, tmp_path: Path) -> None:
    text = f"on_http_request: [{rule}]\n"
    file = tmp_path / "policy.yml"
    file.write_text(text)

    [problem] = policy.check(text)

    assert problem.place.startswith("on_http_request[0]")
    assert "YAML tag" in problem.message
    assert policy.check(file) == [problem]
    with pytest.raises(ginnel.GinnelError, match="YAML tag"):
        policy.test(text, request="http://example.com/")
    with (
        ginnel.Service() as service,
        service.client() as remote,
        pytest.raises(ginnel.BadRequestError, match="YAML tag"),
    ):
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=text)


@pytest.mark.parametrize(
    "text",
    [
        "inbound: []\n---\noutbound: []\n",
        "inbound: []\n---\n",
        "---\ninbound: []\n...\n---\noutbound: []\n",
        '{"inbound": []}\n---\n{"outbound": []}\n',
        '{"inbound": []}{"outbound": []}',
    ],
)
def test_a_second_document_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yml"
    file.write_text(text)

    [problem] = policy.check(text)

    assert policy.check(file) == [problem]
    with (
        ginnel.Service() as service,
        service.client() as remote,
        pytest.raises(ginnel.BadRequestError),
    ):
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=text)


def test_text_of_python_is_no_tag() -> None:
    rule = {"expressions": ["!hasReqHeader('x')"], "actions": [{"type": "deny"}]}

    assert policy.check({"on_http_request": [rule]}) == []


def test_a_policy_in_a_configuration_file_keeps_its_texts(tmp_path: Path) -> None:
    config = tmp_path / "ginnel.yml"
    config.write_text(
        "version: 2\ntunnels:\n  web:\n    proto: http\n    addr: 9\n    traffic_policy:\n      "
        + HEADER.format("0123")
        + "\n"
    )

    done = ginnel_command("config", "show", "--agent", "--config", str(config))

    assert done.returncode == 0, done.stderr
    assert '"x-v":"0123"' in done.stdout.replace('": "', '":"')


def test_a_number_that_has_lost_its_spelling_is_refused_in_json_of_an_edge() -> None:
    def module(value: object) -> dict[str, Any]:
        config = {"headers": {"x-v": value}}
        return {"inbound": [{"actions": [{"type": "add-headers", "config": config}]}]}

    with ginnel.Service() as service, service.client() as remote:
        edge = remote.edges.https.create(hostports=["edge.example.test:443"])
        path = f"/edges/https/{edge.id}/routes"
        body: dict[str, Any] = {"match": "/", "match_type": "path_prefix"}

        with pytest.raises(ginnel.BadRequestError, match="put it into quotes"):
            remote.request("POST", path, json=body | {"policy": module(1.1)})
        made = remote.request("POST", path, json=body | {"policy": module(12)})

    assert made is not None


def edit(path: Path, before: str, after: str) -> None:
    """Changes what a service has stored, as an earlier version would have accepted it."""
    with sqlite3.connect(path) as database:
        changed = database.execute(
            "UPDATE resources SET body = replace(body, ?1, ?2) WHERE instr(body, ?1)",
            (before, after),
        )
        assert changed.rowcount == 1
    database.close()


def visit(service: ginnel.Service) -> int:
    assert service.http_url is not None
    status, _, _ = get(urlsplit(service.http_url).netloc, HOST, "/")
    return status


def test_a_stored_policy_that_is_refused_is_a_503_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    text = "on_http_request: [{expressions: [true], actions: [{type: deny}]}]"
    with ginnel.Service(path, admin_addr="127.0.0.1:0") as service, service.client() as remote:
        key = service.api_key
        made = remote.endpoints.create(url=f"http://{HOST}", traffic_policy=text)
        edge = remote.edges.tcp.create(hostports=["edge.example.test:4000"])
        remote.edges.tcp.update(edge.id, description="kept")
        assert visit(service) == 403
    valid = doctor("--path", path)[1]["policies"]
    edit(path, "[true]", "[! true]")

    code, found = doctor("--path", path)
    [finding] = valid
    assert finding["message"] == "all 1 stored policies are valid"
    [finding] = found["policies"]
    assert (code, finding["severity"]) == (1, "problem")
    assert made.id in finding["message"]
    assert "quotes" in finding["message"]
    with Command("serve", "--path", str(path)) as command:
        command.line()
        wait_until(lambda: [it for it in command.complaints if made.id in it], "a warning")
        [line] = [it for it in command.complaints if made.id in it]
        assert "quotes" in line
        command.process.terminate()
        command.ended()
    with ginnel.Service(path, admin_addr="127.0.0.1:0") as service:
        assert visit(service) == 503
        code, found = doctor("--url", service.url, GINNEL_API_KEY=key or "")
        with urllib.request.urlopen(f"{service.admin_url}/readyz", timeout=10) as answer:
            reasons = json.load(answer)["reasons"]
        with ginnel.RemoteClient(key, base_url=service.url) as remote:
            remote.endpoints.update(made.id, traffic_policy=text)
        assert visit(service) == 403
        with urllib.request.urlopen(f"{service.admin_url}/readyz", timeout=10) as answer:
            assert json.load(answer)["reasons"] == []

    assert code == 1
    [finding] = found["policies"]
    assert made.id in finding["message"]
    assert finding["severity"] == "problem"
    [reason] = reasons
    assert made.id in reason
    assert "503" in reason


@pytest.mark.parametrize("kind", ["custom-response", "deny"])
@pytest.mark.parametrize("status", [100, 101, 103, 199])
def test_an_interim_status_is_not_a_final_one(kind: str, status: int) -> None:
    action = {"type": kind, "config": {"status_code": status}}

    [problem] = policy.check({"on_http_request": [{"actions": [action]}]})

    assert problem.message == "status_code must be from 200 to 599"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>sorry", "text/html; charset=utf-8"),
        ("<html>${req.url.query}", "text/html; charset=utf-8"),
        ("${'<html>'}", "text/plain; charset=utf-8"),
        ("${req.url.query} is missing", "text/plain; charset=utf-8"),
        ('{"query": "${req.url.query}"}', "application/json"),
        ("${'{}'}", "text/plain; charset=utf-8"),
        ("sorry", "text/plain; charset=utf-8"),
    ],
)
def test_only_the_text_of_a_policy_makes_a_page(body: str, kind: str) -> None:
    rule = {"actions": [{"type": "custom-response", "config": {"body": body}}]}

    report = policy.test({"on_http_request": [rule]}, request="http://example.com/?q=x")

    assert report.response is not None
    assert report.response.headers["content-type"] == (kind,)


def ginnel_command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ginnel", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], **variables},
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfea\x00", "UTF-16; save it as UTF-8"),
        (b"\r\n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"a\xff", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("setting", ["admin_key_file", "authtoken_file", "vault_key_file"])
def test_a_secret_file_without_a_secret_is_refused(
    content: bytes, problem: str, setting: str, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)

    done = ginnel_command(
        "serve",
        "--check",
        "--path",
        str(tmp_path / "g.db"),
        f"--{setting}".replace("_", "-"),
        str(file),
    )

    assert done.returncode == 2
    assert problem in done.stderr
    assert setting.replace("_", "-") in done.stderr


@pytest.mark.parametrize("setting", ["admin-key-file", "authtoken-file", "vault-key-file"])
def test_a_secret_file_that_others_may_read_is_a_warning(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0" * 27 + "_" + "0" * 21)
    warned = {}
    for mode in (0o644, 0o640):
        file.chmod(mode)
        path = str(tmp_path / "g.db")
        done = ginnel_command("serve", "--check", "--path", path, f"--{setting}", str(file))
        warned[mode] = f"may read the secret file {file}; chmod o-r" in done.stderr

    assert warned == {0o644: True, 0o640: False}


def test_an_authtoken_file_of_an_agent_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t" * 40)
    file.chmod(0o644)

    # An agent whose tunnel is wrong ends before it connects.
    done = ginnel_command(
        *("http", "nonsense:port", "--server-addr", "127.0.0.1:1", "--authtoken-file", str(file))
    )

    assert done.returncode == 2
    assert f"may read the secret file {file}; chmod o-r" in done.stderr


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf\r\n", b"\xff\xfea\x00"])
def test_a_file_without_the_key_of_secrets_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "vault.key"
    file.write_bytes(content)

    with pytest.raises(ginnel.GinnelError, match="vault_key_file"):
        ginnel.Service(tmp_path / "g.db", settings={"vault_key_file": str(file)})


def test_an_unknown_variable_is_a_warning_of_the_check(tmp_path: Path) -> None:
    done = ginnel_command(
        "serve",
        "--check",
        "--path",
        str(tmp_path / "g.db"),
        GINNEL_BASEDOMAIN="swordfish",
        GINNEL_PORT="tcp://10.0.0.1:4000",
        GINNEL_SERVICE_HOST="10.0.0.1",
    )

    assert done.returncode == 0
    assert done.stderr == (
        "ginnel: unknown variable GINNEL_BASEDOMAIN; did you mean GINNEL_BASE_DOMAIN?\n"
    )


def test_the_drop_in_reports_an_unknown_variable(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path)

    done = subprocess.run(
        [launcher, "start", "--none", "--log", "stdout"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GINNEL_AUTHTOKN": "swordfish"},
        check=False,
    )

    [line] = [line for line in done.stdout.splitlines() if "GINNEL_AUTHTOKN" in line]
    assert "lvl=warn" in line
    assert "did you mean GINNEL_AUTHTOKEN?" in line
    assert "swordfish" not in done.stdout + done.stderr


def leap(path: Path) -> None:
    """Makes the last stored time of a closed database three days older."""
    with sqlite3.connect(path) as database:
        [[text]] = database.execute("SELECT value FROM meta WHERE name = 'age_clock'")
        reading = json.loads(text)
        assert (reading["pause"], abs(reading["at"] - time.time()) < 60) == (0, True)
        reading["at"] -= 3 * 24 * 3600
        database.execute(
            "UPDATE meta SET value = ? WHERE name = 'age_clock'", (json.dumps(reading),)
        )
    database.close()


def pause_metric(service: ginnel.Service) -> float:
    with urllib.request.urlopen(f"{service.admin_url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    [line] = [line for line in lines if line.startswith("ginnel_deletion_pause_seconds ")]
    return float(line.split()[1])


def test_an_operator_ends_the_pause_while_the_service_runs(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    settings: ServiceSettings = {"audit_retention": "1s"}
    admin = "127.0.0.1:0"
    with ginnel.Service(path) as service, service.client() as remote:
        key = service.api_key
        remote.ip_policies.create()
    leap(path)

    with (
        ginnel.Service(path, settings=settings, admin_addr=admin) as service,
        ginnel.RemoteClient(key, base_url=service.url) as remote,
    ):
        paused = remote.clock.get().pause_seconds
        doctor_says = doctor("--url", service.url, GINNEL_API_KEY=key or "")[1]["clock"]
        assert pause_metric(service) > 23 * 3600
        bot = remote.bot_users.create(name="ci")
        token = remote.api_keys.create(owner_id=bot.id).token
        with (
            ginnel.RemoteClient(token, base_url=service.url) as other,
            pytest.raises(ginnel.PermissionDeniedError, match="only an admin"),
        ):
            other.clock.confirm()

        kept = {it.id for it in remote.audit_events.list()}
        assert len(kept) == 3
        confirmed = remote.clock.confirm()

        deadline = time.monotonic() + 30
        while kept & {it.id for it in remote.audit_events.list()}:
            assert time.monotonic() < deadline, "the trail is never pruned"
            time.sleep(0.2)
        assert pause_metric(service) == 0
        with urllib.request.urlopen(f"{service.admin_url}/readyz", timeout=10) as answer:
            reasons = json.load(answer)["reasons"]
    assert paused is not None
    assert paused > 23 * 3600
    assert confirmed.pause_seconds == 0
    assert any("ginnel api clock confirm" in it.get("remedy", "") for it in doctor_says)
    assert reasons == []
    with ginnel.Service(path) as service, ginnel.RemoteClient(key, base_url=service.url) as remote:
        assert remote.clock.get().pause_seconds == 0


def test_events_are_not_given_up_for_their_age_during_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    settings: ServiceSettings = {"event_delivery": {"max_age": "1s", "retry_after": "20ms"}}
    with Receiver(answering(503)) as receiver:
        with ginnel.Service(path) as service, service.client() as remote:
            key = service.api_key
            to = remote.event_destinations.create(target={"webhook": {"url": receiver.url}})
            remote.event_subscriptions.create(
                sources=[{"type": "ip_policy_created.v0"}], destination_ids=[to.id]
            )
        leap(path)
        with (
            ginnel.Service(path, settings=settings) as service,
            ginnel.RemoteClient(key, base_url=service.url) as remote,
        ):
            remote.ip_policies.create(description="kept")
            began = time.monotonic()
            # Without a pause, the event is given up after one second.
            wait_until(
                lambda: receiver.attempts and time.monotonic() > began + 2,
                "attempts for two seconds",
            )
            receiver.answer = answering(204)
            wait_until(lambda: receiver.accepted, "the event")

    assert receiver.accepted[0].event["object"]["description"] == "kept"


def test_after_a_leap_of_the_clock_nothing_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    short: ServiceSettings = {"audit_retention": "1s"}
    admin = "127.0.0.1:0"
    with ginnel.Service(path) as service, service.client() as remote:
        key = service.api_key
        for _ in range(3):
            remote.ip_policies.create()
    leap(path)

    with ginnel.Service(path, settings=short, admin_addr=admin) as service:
        # Several times as long as the retention: the trail is looked at every second.
        time.sleep(4)
        with ginnel.RemoteClient(key, base_url=service.url) as remote:
            assert len(remote.audit_events.list().to_list()) == 3
        assert pause_metric(service) > 23 * 3600
    [warning] = [it for it in doctor("--path", path)[1]["clock"] if it["severity"] == "warning"]
    assert "has leapt" in warning["message"]

    trusted: ServiceSettings = {**short, "trust_clock": True}
    with (
        ginnel.Service(path, settings=trusted) as service,
        ginnel.RemoteClient(key, base_url=service.url) as remote,
    ):
        deadline = time.monotonic() + 30
        while remote.audit_events.list().to_list():
            assert time.monotonic() < deadline, "the trail is never pruned"
            time.sleep(0.2)
