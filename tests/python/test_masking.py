"""One engine masks, wherever something is shown: lines, tables, events, errors."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import ginnel
from ginnel._capture import mask
from server import Server, answer

GINNEL = [sys.executable, "-m", "ginnel"]
SECRET = "swordfish-and-more"
"""A secret in each of the places below."""
TARGET = (
    f"/a;token={SECRET}/b;v=kept;jsessionid={SECRET}?x=kept;api_key={SECRET}"
    f"&%74oken={SECRET}&next=http://me:{SECRET}@a.test/&y=kept"
)
HEADERS = {
    "X-Foo": f"Bearer {SECRET}",
    "X-Bar": f"ApiKey {SECRET}",
    "X-Upstream": f"https://me:{SECRET}@a.test/kept",
    "Cookie": f"a={SECRET}; b={SECRET}",
    "X-Plain": "kept",
}


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GINNEL_")}
    return kept | more


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GINNEL, *arguments], capture_output=True, text=True, timeout=60, env=environment(**more)
    )


@contextlib.contextmanager
def lines_of(*arguments: str) -> Iterator[Callable[[str], str]]:
    """A command that prints lines; gives a function that waits for one that matches."""
    with subprocess.Popen(
        [*GINNEL, *arguments], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        printed = process.stdout

        def line(pattern: str) -> str:
            for text in printed:
                if re.search(pattern, text):
                    return text
            raise AssertionError(f"ended without {pattern}")

        try:
            yield line
        finally:
            process.terminate()


def visit(url: str) -> None:
    urlopen(Request(url + TARGET, headers=HEADERS), timeout=20).read()


@contextlib.contextmanager
def visited(url: str) -> Iterator[None]:
    """Visits an address again and again: who prints may not listen yet."""
    done = threading.Event()

    def visits() -> None:
        while not done.wait(0.2):
            # There is no such file.
            with contextlib.suppress(OSError):
                visit(url)

    thread = threading.Thread(target=visits, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def app(environ: dict[str, Any], start: Any) -> list[bytes]:
    start("200 OK", [("Location", f"https://me:{SECRET}@a.test/?token={SECRET}&y=kept")])
    return [b"thanks"]


def check(shown: str, *kept: str) -> None:
    assert SECRET not in shown, shown
    for text in kept:
        assert text in shown, shown


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_lines_of_the_terminal(tmp_path: Path, form: list[str]) -> None:
    (tmp_path / "index.html").write_text("hello")
    with lines_of("dev", "http", f"file://{tmp_path}", "--web-addr", "127.0.0.1:0", *form) as line:
        found = re.search(r"http://[\w.:]+", line(r"127\.0\.0\.1:\d+.*(->|file:)|\"tunnel\""))
        assert found
        with visited(found[0]):
            shown = line(r"GET")

        check(shown, "/a;token=", "v=kept", "x=kept", "y=kept")


def test_tables_of_captured_requests(
    ginnel_tunnel: Callable[..., str], ginnel_agent: ginnel.Agent, ginnel_agent_client: Any
) -> None:
    visit(ginnel_tunnel(app))
    seen = ginnel_agent_client.requests.wait_for(timeout=20)
    local = {"GINNEL_AGENT_URL": ginnel_agent.url or ""}

    check(run("local", "requests", "list", **local).stdout, "/a;token=")
    shown = run("local", "requests", "get", seen.id, **local).stdout
    check(shown, "v=kept", "x=kept", "Bearer ••••••", "ApiKey ••••••", "X-Plain")
    # Programs get what was sent.
    for form in ("json", "jsonl", "csv"):
        assert SECRET in run("local", "requests", "get", seen.id, "-o", form, **local).stdout
    assert (
        SECRET
        in b64decode(
            json.loads(run("local", "requests", "get", seen.id, "-o", "json", **local).stdout)[
                "request"
            ]["raw"]
        ).decode()
    )


def test_cards_and_lines_of_python(
    ginnel_tunnel: Callable[..., str], ginnel_agent_client: Any
) -> None:
    visit(ginnel_tunnel(app))
    seen = ginnel_agent_client.requests.wait_for(timeout=20)

    for shown in (repr(seen), str(seen.request), seen._repr_html_()):
        check(shown, "v=kept")
    assert SECRET in seen.request.uri


def test_the_page_and_its_exports(
    ginnel_tunnel: Callable[..., str], ginnel_agent: ginnel.Agent, ginnel_agent_client: Any
) -> None:
    visit(ginnel_tunnel(app))
    seen = ginnel_agent_client.requests.wait_for(timeout=20)
    base = f"{ginnel_agent.url}/inspect"
    for path in (
        f"/http/{seen.id}",
        "/data/requests",
        f"/data/requests/{seen.id}",
        "/data/export.har",
        *(
            f"/data/requests/{seen.id}/copy?as={form}"
            for form in ("curl", "requests", "raw", "url")
        ),
    ):
        with urlopen(base + path, timeout=20) as answered:
            check(answered.read().decode(), "v=kept")


def test_events_of_a_service(tmp_path: Path) -> None:
    with lines_of("serve", "--json", "--events", "--path", str(tmp_path / "a.db")) as line:
        told = json.loads(line("url"))
        remote = ginnel.RemoteClient(told["api_key"], base_url=told["url"])
        with remote:
            fixed = remote.backends.http_response.create(status_code=200, body="hello")
            edge = remote.edges.https.create(hostports=["a.test:443", "a.test:80"])
            remote.edges.https.routes.create(
                edge.id,
                match="/",
                match_type="path_prefix",
                backend={"enabled": True, "backend_id": fixed.id},
                policy={
                    "inbound": [
                        {
                            "name": "note",
                            "actions": [
                                {
                                    "type": "log",
                                    "config": {
                                        "metadata": {"password": SECRET, "user": "kept"},
                                    },
                                }
                            ],
                        }
                    ]
                },
            )
        request = Request(told["http_url"] + TARGET, headers=HEADERS | {"Host": "a.test"})
        urlopen(request, timeout=20).read()
        event = line('"path"')

    check(event, "/a;token=", "v=kept", "y=kept", '"user":"kept"', '"password":"••••••"')


BAD_FILES = (
    f"version: 2\nauthtoken: {SECRET}\ninspect_db_size: {SECRET}\n",
    f"version: 2\nauthtoken:{SECRET}\n",
    f"version: 2\nauthtoken: {SECRET}\n  x: [\n",
    f"version: 2\nauthtoken: [{SECRET}\n",
    f"version: 2\nauthtoken: {{a: {SECRET}}}\n",
    f"version: 2\nauthtoken: {SECRET}\nauthtoken: {SECRET}\n",
    f"version: 2\nauthtoken: *{SECRET}\n",
    f'version: 2\nauthtoken: "\\q{SECRET}"\n',
    f"version: 2\nauthtoken: x\n{SECRET}\n",
    f"version: 2\napi_key: {SECRET}\nremote_management: {SECRET}\n",
    f"version: 2\ntunnels: {{web: {SECRET}}}\n",
    f"version: 2\ntunnels: {{web: {{addr: 80, proto: http, basic_auth: ['{SECRET}']}}}}\n",
    f"version: 2\ntunnels: {{web: {{addr: 'http://me:{SECRET}@x:y', proto: http}}}}\n",
    f"version: 3\nauthtoken: {SECRET}\n",
    f"{SECRET}\n",
    f"[{SECRET}]\n",
)


@pytest.mark.parametrize("content", BAD_FILES)
def test_a_configuration_error_shows_no_secret(tmp_path: Path, content: str) -> None:
    config = tmp_path / "ginnel.yml"
    config.write_text(content)

    done = run("config", "check", "--config", str(config))

    assert done.returncode != 0
    check(done.stdout + done.stderr, str(config) if "tunnels" not in content else "")


INLINE = (
    f"|\n      -----BEGIN PRIVATE KEY-----\n      {SECRET}\n",
    f"|\n      {SECRET}\n      {SECRET}\n",
    f'"-----BEGIN PRIVATE KEY-----{SECRET}"\n',
)
TLS = "version: 2\ntunnels:\n  web:\n    proto: tls\n    addr: tls://localhost:1\n"
FIELDS = {
    "root_cas": "version: 2\n",
    "crt": TLS + "    key: x\n    ",
    "key": TLS + "    crt: x\n    ",
    "mutual_tls_cas": TLS + "    terminate_at: edge\n    ",
    "upstream_tls_verify_cas": TLS + "    upstream_tls_verify: true\n    ",
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", INLINE, ids=["PEM", "lines", "line"])
def test_a_key_where_a_file_belongs_is_not_shown(tmp_path: Path, field: str, value: str) -> None:
    config = tmp_path / "ginnel.yml"
    config.write_text(f"{FIELDS[field]}{field}: {value}")

    done = run("config", "check", "--config", str(config))

    assert done.returncode != 0
    check(done.stdout + done.stderr, field, "holds PEM text; name a file")
    assert "-----BEGIN" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "content",
    [
        "on_http_request:\n- actions:\n  - type: basic-auth\n    config:\n"
        f"      credentials: ['me:{SECRET}'\n",
        "on_http_request:\n- actions:\n  - type: basic-auth\n    config:\n"
        f"      credentials: [{SECRET}]\n",
        "on_http_request:\n- actions:\n  - type: verify-webhook\n    config:\n"
        f"      provider: github\n      secret: {SECRET}\n      secret: {SECRET}\n",
        f'{{"on_http_request": [{{"secret": "{SECRET}" "x"}}]}}',
        f"secret: {SECRET}\n  x: [",
    ],
)
def test_a_policy_error_shows_no_secret(tmp_path: Path, content: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(content)

    for form in ("text", "json"):
        done = run("policy", "check", str(policy), "--output", form)

        assert done.returncode != 0
        check(done.stdout + done.stderr)


KEY = "1abcdefghijklmnopqrstuvwxyz/_+1ABCDEFGHIJKLMNOPQRSTU"
"""A key with characters that addresses and JSON may escape."""
ECHOES = (
    KEY,
    quote(KEY, safe=""),
    quote(KEY, safe="").replace("%2F", "%2f"),
    KEY.replace("/", "\\/"),
    "".join(f"\\u{ord(letter):04x}" for letter in KEY),
)


def echo(status: int, text: str) -> bytes:
    body = f'{{"error_code": "ERR_NGROK_1", "status_code": {status}, "msg": "no {text} here", '
    body += f'"details": {{"key": "{text}", "operation_id": "op_{text}"}}}}'
    return answer(status, body.encode(), x_echo=text)


def everything(problem: ginnel.APIError) -> str:
    shown = [str(problem), repr(problem), repr(vars(problem)), repr(problem.args)]
    body = getattr(problem, "body", b"") or b""
    return "\n".join([*shown, body.decode(), repr(json.loads(body)) if body[:1] == b"{" else ""])


@pytest.mark.parametrize("text", ECHOES)
async def test_an_error_never_shows_the_key(
    make_client: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "ginnel")
    heard: list[object] = []
    answers: list[bytes | Callable[[], bytes | None] | None] = [
        echo(400, text),
        echo(400, text),
        answer(200, f'{{"keys": "{text}"}}'.encode()),
        answer(200, f"{text} is no JSON".encode()),
    ]
    with Server(answers) as server:
        hooks = {"on_request": heard.append, "on_response": heard.append}
        client = make_client(KEY, base_url=server.url, max_retries=0, **hooks)

        async def listed() -> object:
            return await client.api_keys.list().first()

        for call in (
            lambda: client.api_keys.get("ak_1"),
            lambda: client.request("GET", f"/api_keys/{quote(KEY, safe='')}"),
            listed,
            lambda: client.request("GET", "/api_keys"),
        ):
            with pytest.raises(ginnel.APIError) as caught:
                await call()
            for problem in (caught.value, pickle.loads(pickle.dumps(caught.value))):
                shown = everything(problem)
                assert KEY not in shown, shown
                assert text not in shown, shown
                assert quote(KEY, safe="") not in shown, shown
        assert f"Bearer {KEY}" == server.requests[0].headers["authorization"]
    shown = caplog.text + repr(heard) + repr(client)
    assert KEY not in shown
    assert text not in shown


async def test_a_header_of_ones_own_is_as_secret(make_client: Any) -> None:
    with Server([answer(400, {"msg": f"no {SECRET}"})]) as server:
        headers = {"X-Gateway-Token": SECRET}
        client = make_client("k", base_url=server.url, max_retries=0, headers=headers)

        with pytest.raises(ginnel.BadRequestError) as caught:
            await client.api_keys.get("ak_1")

        check(everything(caught.value))


async def test_what_is_asked_for_is_exact(make_client: Any) -> None:
    """Only errors are masked: an answer may hold the key for good reason."""
    with Server([answer(200, {"id": "ak_1", "uri": "u", "token": KEY})]) as server:
        client = make_client(KEY, base_url=server.url)

        assert (await client.request("GET", "/api_keys/ak_1"))["token"] == KEY


def test_python_and_the_page_mask_alike() -> None:
    cases = json.loads((Path(__file__).parents[1] / "data" / "secrets.json").read_text())
    for case in cases:
        if target := case.get("target"):
            shown = mask.uri(target)
            assert not any(text in shown for text in case["hides"]), (case["what"], shown)
            assert all(text in shown for text in case["keeps"]), (case["what"], shown)


def test_lists_that_json_cannot_represent_are_masked() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    for secret in ([{(1, 2): 3}], deep, loop):
        assert mask.json({"token": secret}) == {"token": mask.MASK}
    assert mask.json({"tokens": [1, 2]}) == {"tokens": [1, 2]}


def test_masking_takes_linear_time() -> None:
    """What is shown may be a stranger's: nothing in it makes masking slow."""
    for piece in ("a=", "://", "<a ", "token", "bearer ", ";", "%", '"', "\\", "eyJ", "&a;"):
        done = threading.Event()

        def mask_all(text: str = piece * 50_000, done: threading.Event = done) -> None:
            for function in (mask.text, mask.uri, mask.parameters):
                function(text)
            mask.header("X-Foo", text)
            done.set()

        threading.Thread(target=mask_all, daemon=True).start()
        assert done.wait(60), piece
