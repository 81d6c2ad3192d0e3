"""Fields that the operation tables declare secret are shown nowhere.

The tests walk both tables, put a marker into each secret field, and search every output of every
surface.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

import ginnel
from browsing import House
from ginnel import _native
from ginnel.testing import cassette
from server import Server, answer

MARKER = "swordfish-4Jq1fZ0hTz8rXw2"
APIS = ("remote", "local")
SHAPES = {api: {shape["name"]: shape for shape in json.loads(_native.shapes(api))} for api in APIS}


DOCUMENT: dict[str, Any] = {
    "credentials": [f"ada:{MARKER}"],
    "a": {"secret": MARKER, "max_tokens": 5},
    "env": [{"name": "PASSWORD", "value": MARKER}],
    "headers": [["Cookie", MARKER]],
}
"""A value of a field that has any JSON, with secrets by their names."""


def sample(api: str, kind: Any) -> Any:
    """A value of a kind, with the marker in each secret field."""
    match kind:
        case "secret":
            return MARKER
        case "bool":
            return True
        case "integer" | "number":
            return 1
        case "time":
            return "2026-01-02T03:04:05Z"
        case "bytes":
            return ""
        case "json" | "object":
            return DOCUMENT
        case {"list": item}:
            return [sample(api, item)]
        case {"map": item}:
            return {"authorization": sample(api, item)}
        case {"record": name}:
            return record(api, name)
    return "kept"


def record(api: str, name: str) -> dict[str, Any]:
    return {field["name"]: sample(api, field["kind"]) for field in SHAPES[api][name]["fields"]}


def has_secret(api: str, kind: Any) -> bool:
    match kind:
        case "secret":
            return True
        case {"list": item} | {"map": item}:
            return has_secret(api, item)
        case {"record": name}:
            fields = SHAPES[api][name]["fields"]
            return any(has_secret(api, field["kind"]) for field in fields)
    return False


class Operation:
    """An operation, with a request and a response that have the marker in each secret field."""

    def __init__(self, api: str, resource: str, info: dict[str, Any]) -> None:
        self.api = api
        self.name = f"{resource}.{info['name']}"
        self.method = info["method"]
        self.path = info["path"]
        parameters = info["parameters"]
        for parameter in parameters:
            self.path = self.path.replace(f"{{{parameter['name']}}}", "id_1")
        inputs = [it for it in parameters if it["place"] == "body"]
        self.body = {it["name"]: sample(api, it["kind"]) for it in inputs} or None
        self.takes_secret = any(has_secret(api, it["kind"]) for it in inputs)
        match info["output"]:
            case {"one": shape}:
                self.result: Any = record(api, shape)
                self.shape = shape
            case {"page": shape, "field": field}:
                self.result = {field: [record(api, shape)], "uri": "x", "next_page_uri": None}
                self.shape = shape
            case _:
                self.result, self.shape = None, ""
        self.gives_secret = bool(self.shape) and has_secret(api, {"record": self.shape})


OPERATIONS = [
    Operation(api, resource["name"], info)
    for api in APIS
    for resource in json.loads(_native.operations(api))
    for info in resource["operations"]
]
SECRET = [it for it in OPERATIONS if it.takes_secret or it.gives_secret]
CALLS = [it for it in OPERATIONS if MARKER in json.dumps([it.body, it.result])]


def client_of(operation: Operation, url: str) -> Any:
    if operation.api == "local":
        return ginnel.AgentClient(url)
    return ginnel.RemoteClient("key-of-the-client", base_url=url, max_retries=0)


def hidden(shown: str, what: str, *visible: str) -> None:
    """Checks that an output has no secret, and has what shows that it is the output."""
    assert MARKER not in shown, f"{what}: {shown}"
    for text in visible:
        assert text in shown, f"{what}: {shown}"


def test_the_tables_have_secret_fields() -> None:
    names = {operation.name for operation in SECRET}
    assert {"vault_secrets.create", "vault_secrets.update", "tunnels.start"} <= names
    start = next(it for it in OPERATIONS if it.name == "tunnels.start")
    assert start.body is not None
    assert start.body["key"] == MARKER
    assert {"api_keys.create", "edges.https.routes.webhook_verification.replace"} <= names


@pytest.mark.parametrize("record_mode", ["once", "new", "all"])
def test_cassettes(tmp_path: Path, record_mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for number, operation in enumerate(CALLS):
        tape = tmp_path / f"{number}.json"
        result = answer(200, operation.result) if operation.result else answer(204)
        with Server([result]) as server, client_of(operation, server.url) as client:
            calls = (operation.method, operation.path)
            with cassette(tape, record=record_mode):
                client.request(*calls, json=operation.body)
            hidden(tape.read_text(), operation.name)
            with cassette(tape, record="none"):
                client.request(*calls, json=operation.body)
    hidden(caplog.text, "logs")


@pytest.mark.parametrize("body", ['{"value": "%s', '{"value": "%s", "value": 1}', "value=%s"])
def test_cassettes_of_bodies_that_are_not_json(tmp_path: Path, body: str) -> None:
    tape = tmp_path / "tape.json"
    with cassette(tape) as recording:
        place, _ = recording._play(
            "POST", "/vault_secrets", (body % MARKER).encode(), "http://a.test"
        )
        assert isinstance(place, tuple)
        recording._record(place, 400, {}, (body % MARKER).encode())

    assert MARKER not in json.dumps(json.loads(tape.read_text())["exchanges"][0]["request"])


def test_a_cassette_of_an_earlier_version_is_played(tmp_path: Path) -> None:
    tape = tmp_path / "tape.json"
    request = {"name": "a", "value": MARKER, "vault_name": "shop"}
    response = {"status": 200, "headers": {}, "body": {"id": "secret_1"}}
    exchange = {
        "request": {"method": "POST", "target": "/vault_secrets", "body": request},
        "response": response,
    }
    tape.write_text(json.dumps({"format": 1, "exchanges": [exchange]}))

    client = ginnel.RemoteClient("k", base_url="https://a.test")
    with cassette(tape, record="none"), client:
        made = client.request("POST", "/vault_secrets", json=request)

    assert made == {"id": "secret_1"}


def test_results_in_python() -> None:
    for operation in CALLS:
        if not operation.shape:
            continue
        module = "ginnel.local" if operation.api == "local" else "ginnel.remote"
        wire = record(operation.api, operation.shape)
        for cls in classes(module, operation.shape):
            result = cls.from_dict(wire)

            for shown in (repr(result), str(result), result._repr_html_()):
                hidden(shown, operation.name)
            assert (MARKER in json.dumps(result.to_dict())) == (MARKER in json.dumps(wire))


def classes(package: str, name: str) -> set[Any]:
    import sys

    for resource in json.loads(_native.operations(package.rpartition(".")[2])):
        with contextlib.suppress(ImportError):
            __import__(f"{package}.{resource['name']}")
    modules = [module for known, module in sys.modules.items() if known.startswith(package)]
    return {vars(module)[name] for module in modules if name in vars(module)}


def test_a_service(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ginnel.Service() as service, service.client() as client:
        client.vaults.create(name="shop")
        client.vault_secrets.create(vault_name="shop", name="a", value=MARKER)
        for operation in CALLS:
            if operation.api == "local" or operation.body is None:
                continue
            try:
                client.request(operation.method, operation.path, json=operation.body)
            except ginnel.APIError as problem:
                hidden(f"{problem} {problem!r} {problem.args}", operation.name)
        hidden(repr(service.calls), "calls")
        called = {call.operation for call in service.calls if call.arguments}
        hidden(repr(client.audit_events.list().to_list()), "audit")
        hidden(json.dumps([it.to_dict() for it in client.audit_events.list()]), "audit")
    assert "vault_secrets.create" in called
    hidden(caplog.text, "logs")


def test_captured_calls() -> None:
    """Calls that come through a tunnel are captured like other requests."""
    calls = [operation for operation in CALLS if operation.body]
    with (
        Server([answer(200, {}) for _ in calls]) as server,
        ginnel.Service() as service,
        ginnel.Agent(service) as agent,
        agent.client() as here,
        here.tunnels.open(addr=server.url, name="api") as tunnel,
    ):
        for operation in calls:
            url = f"{tunnel.public_url}{operation.path}"
            body = json.dumps(operation.body).encode()
            headers = {"Content-Type": "application/json"}
            urlopen(Request(url, body, headers, method=operation.method), timeout=20).read()
        captured = here.requests.list().to_list()
        assert len(captured) == len(calls)
        for one in captured:
            for shown in (repr(one), str(one), one._repr_html_(), str(one.request)):
                hidden(shown, one.request.uri)
        copies = ("curl", "requests", "raw", "url")
        pages = [
            "/data/requests",
            "/data/export.har",
            *(f"/data/requests/{one.id}" for one in captured),
            *(f"/http/{one.id}" for one in captured),
            *(f"/data/requests/{one.id}/copy?as={form}" for one in captured for form in copies),
        ]
        for page in pages:
            with urlopen(f"{agent.url}/inspect{page}", timeout=20) as answered:
                hidden(answered.read().decode(), page)


def test_an_html_file_of_captures(house: House, page: Page, tmp_path: Path) -> None:
    """The inspector makes the file of what it shows."""
    calls = [operation for operation in CALLS if operation.body]
    with (
        Server([answer(200, {}) for _ in calls]) as server,
        house.client.tunnels.open(addr=server.url, name="api") as tunnel,
    ):
        for operation in calls:
            url = f"{tunnel.public_url}{operation.path}"
            body = json.dumps(operation.body).encode()
            headers = {"Content-Type": "application/json"}
            urlopen(Request(url, body, headers, method=operation.method), timeout=20).read()
    page.goto(f"{house.base}/inspect/http")
    expect(page.locator("#count")).to_have_text(f"{len(calls)} requests")
    page.keyboard.press("j")
    page.keyboard.press("x")
    for _ in calls[1:]:
        page.keyboard.press("Shift+J")

    with page.expect_download() as saved:
        page.locator("#selection").get_by_role("button", name="HTML").press("Enter")

    path = tmp_path / "requests.html"
    saved.value.save_as(path)
    hidden(path.read_text(), "HTML", "/vault_secrets", "kept")


def test_data_frames_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secret fields are not columns. Documents are data, which frames have as they are."""
    monkeypatch.setattr(sys.modules[__name__], "DOCUMENT", {"a": "kept"})
    from ginnel._export.arrow import table
    from ginnel._export.data_frame import frame

    for operation in SECRET:
        if not operation.gives_secret:
            continue
        module = "ginnel.local" if operation.api == "local" else "ginnel.remote"
        wire = record(operation.api, operation.shape)
        for cls in classes(module, operation.shape):
            result = cls.from_dict(wire)

            hidden(frame([result]).to_csv(), operation.name, "kept")
            hidden(str(table(cls, [result]).to_pydict()), operation.name, "kept")


def test_spans() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from ginnel.tracing import traced

    kept, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    for operation in SECRET:
        with (
            Server(
                [answer(200, operation.result or {}), answer(400, {"msg": "refused"})]
            ) as server,
            client_of(operation, server.url) as plain,
            traced(plain, provider) as client,
        ):
            client.request(operation.method, operation.path, json=operation.body)
            with pytest.raises(ginnel.APIStatusError):
                client.request(operation.method, operation.path, json=operation.body)

    spans = "".join(span.to_json() for span in kept.get_finished_spans())
    hidden(spans, "spans", "400")


def test_logs_of_a_service_at_the_lowest_level(tmp_path: Path) -> None:
    log = tmp_path / "log"
    variables = {name: value for name, value in os.environ.items() if "GINNEL" not in name}
    command = [sys.executable, "-m", "ginnel", "serve", "--json", "--port", "0"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--log-level", "trace", "--events"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=variables,
        ) as process,
    ):
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        with ginnel.RemoteClient(said["api_key"], base_url=said["url"], max_retries=0) as client:
            client.vaults.create(name="shop")
            client.vault_secrets.create(vault_name="shop", name="a", value=MARKER)
            for operation in CALLS:
                if operation.api == "remote" and operation.body is not None:
                    with contextlib.suppress(ginnel.APIError):
                        client.request(operation.method, operation.path, json=operation.body)
        process.terminate()
        events = process.stdout.read()
    hidden(log.read_text() + events, "logs", "vault_secrets")


FAILING_TESTS = """
import os, ginnel

def test_refused(ginnel_remote):
    ginnel_remote.vaults.create(name="shop")
    made = ginnel_remote.vault_secrets.create(
        vault_name="shop", name="a", value=os.environ["MARKER"])
    ginnel_remote.vault_secrets.create(
        vault_name="shop", name="a", value=os.environ["MARKER"])

def test_mistyped(ginnel_remote):
    ginnel_remote.vault_secrets.create(
        vault_name="shop", name=1, value=os.environ["MARKER"])

def test_untyped(ginnel_remote):
    ginnel_remote.request(
        "POST", "/vault_secrets", json={"value": os.environ["MARKER"], "name": 1})

def test_compared(ginnel_remote):
    ginnel_remote.vaults.create(name="other")
    sent = {"vault_name": "other", "name": "b", "value": os.environ["MARKER"]}
    ginnel_remote.vault_secrets.create(**sent)
    del sent
    listed = ginnel_remote.vault_secrets.list().to_list()
    key = ginnel_remote.api_keys.create(description="kept")
    assert [key, *listed] == []
"""


def test_a_report_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING_TESTS)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-l", "-vv", "--tb=long", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "MARKER": MARKER},
    )

    hidden(done.stdout, "report", "4 failed", "ValidationError", "VaultSecret", "listed", "kept")


def test_arguments_of_other_types() -> None:
    with ginnel.RemoteClient("k", base_url="http://127.0.0.1:9") as client:
        for value in ([MARKER], {"a": MARKER}, MARKER.encode()):
            with pytest.raises(ginnel.ValidationError) as caught:
                client.vault_secrets.create(vault_name="shop", name="a", value=value)  # type: ignore[arg-type]
            hidden(f"{caught.value} {caught.value!r}", "an error")


def test_errors_escape_keys_of_others() -> None:
    key = "a\x1b[2J\r\n\x00\u202e\u2028b"
    with (
        Server([answer(200, {"add": {key: 1}})]) as server,
        ginnel.RemoteClient("k", base_url=server.url, max_retries=0) as client,
    ):
        headers = client.edges.https.routes.request_headers
        with pytest.raises(ginnel.ValidationError) as refused:
            headers.replace("edghts_1", "edghtsrt_1", add={key: object()})  # type: ignore[dict-item]
        with pytest.raises(ginnel.ResponseDecodeError) as unread:
            headers.get("edghts_1", "edghtsrt_1")

    for problem in (refused.value, unread.value):
        assert str(problem).isprintable(), repr(str(problem))
        assert "[2J" in str(problem)
