"""The logger and the hooks: what they tell, and what they never do."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

import ginnel
from ginnel.events import Event
from server import Server, answer

KEY = {"id": "ak_1", "uri": "u", "token": "told-once", "description": "private words"}
TOKEN = "ak_2abcdefghijklmnopqrstuvwxyz0_secret"


async def test_debug_has_a_line_for_each_attempt(
    make_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    with Server([answer(200, KEY), answer(201, KEY), None, answer(200, {})]) as server:
        client = make_client(TOKEN, base_url=server.url)
        impatient = make_client(TOKEN, base_url=server.url, max_retries=0)

        await client.api_keys.get("ak_1")
        await client.api_keys.create(description="private words")
        with pytest.raises(ginnel.APIConnectionError):
            await impatient.api_keys.create(metadata="m")
        await client.request("GET", "/api_keys", query={"limit": 1})

    lines = [record.getMessage() for record in caplog.records]
    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 4
    assert lines[0].startswith("GET /api_keys/{id}: 200 in ")
    assert lines[0].endswith(" ms, attempt 1")
    assert lines[1].startswith("POST /api_keys: 201 in ")
    assert lines[2].startswith(
        "POST /api_keys: the server closed the connection without a response, "
    )
    assert lines[3].startswith("GET /api_keys: 200 in ")
    text = "\n".join(lines)
    for hidden in (TOKEN, "secret", "private words", "told-once", "ak_1", "limit"):
        assert hidden not in text


async def test_a_retry_is_a_warning(make_client: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ginnel")
    with Server([answer(503, {}), answer(429, {}, retry_after=0), answer(200, KEY)]) as server:
        await make_client("k", base_url=server.url).api_keys.get("ak_1")

    first, second = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert first[0] == second[0] == "WARNING"
    assert first[1].startswith("GET /api_keys/{id}: status 503, again in ")
    assert second[1] == "GET /api_keys/{id}: status 429, again in 0.00 s as attempt 3"


async def test_hooks_hear_of_every_attempt(make_client: Any) -> None:
    told: list[tuple[str, Event]] = []

    def hook(name: str) -> Any:
        return lambda event: told.append((name, event))

    hooks = {f"on_{name}": hook(name) for name in ("request", "response", "retry")}
    with Server([None, answer(429, {}, retry_after=0), answer(204)]) as server:
        client = make_client("k", base_url=server.url, **hooks)
        await client.api_keys.delete("ak_1")

    # The connection that broke had carried nothing before, so its attempt counts.
    kinds = [(name, event.kind, event.attempt, event.status) for name, event in told]
    assert kinds == [
        ("request", "request", 1, None),
        ("response", "failure", 1, None),
        ("retry", "retry", 1, None),
        ("request", "request", 2, None),
        ("response", "response", 2, 429),
        ("retry", "retry", 2, 429),
        ("request", "request", 3, None),
        ("response", "response", 3, 204),
    ]
    assert {(event.method, event.path) for _, event in told} == {("DELETE", "/api_keys/{id}")}
    assert told[1][1].problem
    assert told[4][1].seconds > 0


async def test_a_hook_may_make_calls_and_may_fail(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: unraised.append(what.exc_value))
    with Server([answer(200, KEY)] * 2) as server:
        other = ginnel.RemoteClient("k", base_url=server.url)

        def hook(event: Event) -> None:
            assert other.api_keys.get("ak_2").id == "ak_1"
            raise KeyError("mine")

        client = make_client("k", base_url=server.url, on_response=hook)
        key = await client.api_keys.get("ak_1")
        other.close()

    assert key.id == "ak_1"
    assert [repr(error) for error in unraised] == ["KeyError('mine')"]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_the_environment_asks_for_lines_on_stderr() -> None:
    code = (
        "import ginnel\n"
        "with ginnel.Service() as service, service.client() as remote:\n"
        "    remote.api_keys.list().first()\n"
    )

    assert " ginnel DEBUG GET /api_keys: 200 in " in run(code, GINNEL_LOG="debug").stderr
    for level in ("warning", "warn", "error", "off", "gateway=debug"):
        assert run(code, GINNEL_LOG=level).stderr == ""
    assert run(code, GINNEL_LOG="").stderr == ""
    assert "GINNEL_LOG is 'loud'" in run(code, GINNEL_LOG="loud").stderr


def test_logging_is_not_imported_for_those_who_do_not_use_it() -> None:
    code = (
        "import sys, ginnel\n"
        "with ginnel.Service() as service, service.client() as remote:\n"
        "    remote.api_keys.list().first()\n"
        "    print('logging' in sys.modules)\n"
        "    import logging\n"
        "    logging.basicConfig(level='DEBUG')\n"
        "    remote.api_keys.list().first()\n"
    )

    done = run(code)

    assert done.stdout == "False\n"
    assert "DEBUG:ginnel:GET /api_keys: 200 in " in done.stderr


def test_the_first_call_of_a_program_with_logging_imports_no_events() -> None:
    code = (
        "import logging, sys, ginnel\n"
        "with ginnel.Service() as service, service.client() as remote:\n"
        "    remote.api_keys.list().first()\n"
        "    print('ginnel.events' in sys.modules)\n"
    )

    assert run(code).stdout == "False\n"
