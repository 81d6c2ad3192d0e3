"""Cassettes: recorded calls that are played without a server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ginnel
from conftest import Face
from ginnel.testing import CassetteError, cassette
from server import Server, answer

NOWHERE = "https://api.example.invalid"
KEY = {"id": "ak_1", "uri": "u", "description": "ci"}
SECRET = "ak-secret-4Jq1fZ0hTz8rXw2"
pytestmark = pytest.mark.usefixtures("ginnel_loopback_only")


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tapes" / "keys.json"


@pytest.fixture
def player(make_client: Any) -> Any:
    """A client that can play, and nothing else."""
    return make_client("another-key-entirely", base_url=NOWHERE, max_retries=0)


def exchanges(tape: Path) -> list[Any]:
    found: list[Any] = json.loads(tape.read_text())["exchanges"]
    return found


async def calls(client: Any) -> list[Any]:
    """What a program does, and what it sees of it."""
    key = await client.api_keys.create(description="ci")
    pages = [[key.id for key in page] async for page in client.api_keys.list(limit=1).pages()]
    with pytest.raises(ginnel.NotFoundError) as missing:
        await client.api_keys.get("ak_" + "0" * 27)
    plain = await client.request("GET", "/api_keys", query={"limit": 1})
    changed = await client.api_keys.update(key.id, description="é")
    deleted = await client.api_keys.delete(key.id)
    error = missing.value
    return [
        (key.id, key.created_at, pages, changed.description, deleted),
        (error.status_code, error.error_code, error.message, error.operation_id),
        [one["id"] for one in plain["keys"]],
    ]


async def test_what_was_recorded_is_played_without_a_server(
    service: ginnel.Service, client: Any, player: Any, tape: Path
) -> None:
    with cassette(tape):
        seen = await calls(client)
    assert len(seen[0][2]) == 2
    service.stop()

    with cassette(tape, record="none") as played:
        assert await calls(player) == seen
        assert played.unplayed == []


async def test_the_file_has_no_secrets_and_no_address(
    service: ginnel.Service, client: Any, tape: Path
) -> None:
    with cassette(tape):
        key = await client.api_keys.create(description="ci", metadata=f"Bearer {service.api_key}")

    text = tape.read_text()
    assert key.token not in text
    assert str(service.api_key) not in text
    assert "authorization" not in text.lower()
    assert service.url not in text
    (made,) = exchanges(tape)
    assert made["request"]["body"]["description"] == "ci"
    assert made["response"]["body"]["token"] == "•••"
    assert made["response"]["body"]["uri"] == f"<base_url>/api_keys/{key.id}"


async def test_addresses_that_begin_as_that_of_the_server_are_others(
    make_client: Any, tape: Path
) -> None:
    """As with a port whose first digits are those of the server's."""
    with Server([]) as server:
        others = [f"{server.url}0/x", f"{server.url}.test/x"]
        server.answers.append(answer(200, {"own": f"{server.url}/x", "others": others}))
        with cassette(tape):
            await make_client("k", base_url=server.url).request("GET", "/x")

    (made,) = exchanges(tape)
    assert made["response"]["body"] == {"own": "<base_url>/x", "others": others}


async def test_secrets_keep_the_form_of_their_values(make_client: Any, tape: Path) -> None:
    body = {"password": [SECRET, 12345, None, True, {"a": 1.5}], "text": f"see {SECRET}"}
    headers = {"Set-Cookie": f"session={SECRET}", "X-Note": SECRET}
    with Server([answer(200, body, **headers)]) as server:
        client = make_client(SECRET, base_url=server.url)
        with cassette(tape):
            live = await client.request("POST", "/x", json={"client_secret": SECRET})
    assert live == body
    assert SECRET not in tape.read_text()

    with cassette(tape):
        played = await client.request("POST", "/x", json={"client_secret": "another"})
    assert played["password"] == ["•••", 0, None, True, {"a": 0}]


async def test_captured_messages_are_masked_inside(tape: Path) -> None:
    message = f"POST /hook?token={SECRET} HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\n\r\n"
    coded = base64.b64encode((message + json.dumps({"password": SECRET})).encode()).decode()
    server = Server([answer(200, {"request": {"raw": coded}})])
    with server, cassette(tape), ginnel.AgentClient(server.url) as client:
        client.request("GET", "/requests/http/1")

    (made,) = exchanges(tape)
    kept = base64.b64decode(made["response"]["body"]["request"]["raw"]).decode()
    assert SECRET not in kept
    assert kept.startswith("POST /hook?token=")


async def test_an_unknown_request_is_told_with_the_nearest(
    client: Any, player: Any, tape: Path
) -> None:
    with cassette(tape):
        await client.ip_policies.list(limit=5).to_list()
        await client.api_keys.create(description="ci", metadata="m")

    with cassette(tape):
        with pytest.raises(CassetteError) as caught:
            await player.api_keys.create(description="ci", metadata="n")
        assert str(caught.value).splitlines() == [
            f"POST /api_keys is not in {tape}, and record='once' forbids to record it; "
            'record="all" or --ginnel-record=all records it anew',
            "nearest: POST /api_keys, with another body",
            '  json.metadata: expected "m", got "n"',
        ]
        with pytest.raises(CassetteError, match=r"nearest: GET /ip_policies\?limit=5$"):
            await player.ip_policies.list(limit=6).to_list()


async def test_each_answer_is_played_once_in_its_order(
    make_client: Any, player: Any, tape: Path
) -> None:
    answers = [answer(200, {"id": "ak_1", "uri": "u", "description": text}) for text in "ab"]
    with Server([*answers]) as server, cassette(tape):
        client = make_client("k", base_url=server.url)
        for _ in answers:
            await client.api_keys.get("ak_1")

    with cassette(tape) as played:
        assert (await player.api_keys.get("ak_1")).description == "a"
        assert played.unplayed == ["GET /api_keys/ak_1"]
        assert (await player.api_keys.get("ak_1")).description == "b"
        with pytest.raises(
            CassetteError, match=r"was recorded 2 times in .*, and is made once more"
        ):
            await player.api_keys.get("ak_1")


async def test_of_retries_the_last_answer_is_recorded_and_no_failure(
    make_client: Any, player: Any, tape: Path
) -> None:
    busy = answer(503, {"status_code": 503, "msg": "busy"}, retry_after=0)
    with Server([busy, answer(200, KEY), busy, busy, None, None]) as server, cassette(tape):
        client = make_client("k", base_url=server.url, max_retries=1)
        await client.api_keys.get("ak_1")
        with pytest.raises(ginnel.ServerError):
            await client.api_keys.get("ak_2")
        with pytest.raises(ginnel.APIConnectionError):
            await client.api_keys.get("ak_3")

    assert [
        (made["request"]["target"], made["response"]["status"]) for made in exchanges(tape)
    ] == [
        ("/api_keys/ak_1", 200),
        ("/api_keys/ak_2", 503),
    ]
    with cassette(tape):
        raw = await player.with_raw_response.api_keys.get("ak_1")
        assert (raw.status_code, raw.attempts, raw.parse().id) == (200, 1, "ak_1")
        with pytest.raises(ginnel.ServerError, match="busy") as caught:
            await player.api_keys.get("ak_2")
        assert caught.value.retry_after == 0


@pytest.mark.parametrize(
    ("mode", "targets"),
    [("new", ["/api_keys/ak_1", "/api_keys/ak_2"]), ("all", ["/api_keys/ak_2"])],
)
async def test_what_is_new_is_recorded_where_that_is_asked_for(
    make_client: Any, tape: Path, mode: Any, targets: list[str]
) -> None:
    with Server([answer(200, KEY), answer(200, KEY)]) as server:
        client = make_client("k", base_url=server.url)
        with cassette(tape):
            await client.api_keys.get("ak_1")
        with cassette(tape, record=mode):
            if mode == "new":
                await client.api_keys.get("ak_1")
            await client.api_keys.get("ak_2")

    assert [made["request"]["target"] for made in exchanges(tape)] == targets
    assert len(server.requests) == 2


async def test_nothing_is_written_where_a_block_ends_with_an_exception(
    client: Any, tape: Path
) -> None:
    with pytest.raises(ginnel.NotFoundError), cassette(tape):
        await client.api_keys.get("ak_" + "0" * 27)

    assert not tape.exists()
    assert await client.api_keys.list().to_list()


async def test_a_client_in_a_cassette_is_closed_all_the_same(
    client: Any, player: Any, tape: Path
) -> None:
    with cassette(tape):
        await client.api_keys.list().to_list()
    getattr(player, "_target", player).close()
    with cassette(tape), pytest.raises(ginnel.ClientClosedError):
        await player.api_keys.list().to_list()


async def test_hooks_hear_of_what_is_played(client: Any, make_client: Any, tape: Path) -> None:
    with cassette(tape):
        await client.api_keys.list().to_list()
    seen: list[Any] = []
    hooks = {"on_request": seen.append, "on_response": seen.append}
    player = make_client("k", base_url=NOWHERE, **hooks)
    with cassette(tape):
        await player.api_keys.list().to_list()

    assert [(event.kind, event.path, event.status) for event in seen] == [
        ("request", "/api_keys", None),
        ("response", "/api_keys", 200),
    ]


async def test_bodies_that_json_would_not_keep_are_kept(
    make_client: Any, player: Any, tape: Path
) -> None:
    bodies = [b'{"a": 1, "a": 2}', b'{"a": 1e400}', b'{"a": "\\ud800"}', b"\xff\x00", b"", b"text"]
    with Server([answer(200, body) for body in bodies]) as server, cassette(tape):
        client = make_client("k", base_url=server.url)
        live = [
            (await client.with_raw_response.request("GET", f"/{at}")).body
            for at in range(len(bodies))
        ]
    assert live == bodies
    with cassette(tape):
        for at, body in enumerate(bodies):
            assert (await player.with_raw_response.request("GET", f"/{at}")).body == body


async def test_calls_at_the_same_time_are_recorded_in_their_order(tape: Path) -> None:
    files = []
    for name in ("a", "b"):
        with ginnel.Service(seed=7) as service:
            async with service.async_client() as client:
                with cassette(path := tape.with_name(name), record="all"):
                    await asyncio.gather(
                        *(client.request("GET", "/api_keys", query={"limit": n}) for n in (3, 1, 2))
                    )
        files.append([made["request"]["target"] for made in exchanges(path)])
    assert files[0] == files[1] == [f"/api_keys?limit={n}" for n in (3, 1, 2)]

    async with ginnel.AsyncRemoteClient("k", base_url=NOWHERE) as player:
        with cassette(tape.with_name("a")):
            loop = asyncio.get_running_loop()
            turns: list[int] = []
            loop.call_soon(turns.append, 1)
            await player.request("GET", "/api_keys", query={"limit": 1})
            # As a call to a server, it lets the loop come round.
            assert turns
            task = asyncio.create_task(player.request("GET", "/api_keys", query={"limit": 2}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_a_file_is_the_same_when_it_is_recorded_again(tape: Path) -> None:
    texts = []
    for _ in range(2):
        service = ginnel.Service(seed=7)
        with service, service.client() as client, cassette(tape, record="all"):
            await calls(Face(client))
        texts.append(tape.read_text())

    assert texts[0] == texts[1]
    assert texts[0].endswith("}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("{", "is not a cassette"),
        ("{}", "is not a cassette: no 'format'"),
        ('{"format": 2, "exchanges": []}', "its format is 2, and this version reads 1"),
        ('{"format": 1, "exchanges": [{}]}', "is not a cassette: no 'request'"),
        (
            '{"format": 1, "exchanges": [{"request": {"method": "GET", "target": "/"}, '
            '"response": {"status": 99, "headers": {}}}]}',
            "a response has the status 99",
        ),
    ],
)
def test_a_file_that_is_no_cassette_is_told(tape: Path, text: str | None, said: str) -> None:
    tape.parent.mkdir()
    if text is not None:
        tape.write_text(text)

    with pytest.raises(CassetteError) as caught, cassette(tape, record="none"):
        pass

    assert said in str(caught.value)
    assert str(tape) in str(caught.value)


def test_an_unknown_way_to_record_is_told(tape: Path) -> None:
    with pytest.raises(ginnel.ConfigError, match="record='some': must be one of none, once, new"):
        cassette(tape, record="some")  # type: ignore[arg-type]


TESTS = """
import os

import pytest

import ginnel


def client(kind):
    return kind("k" * 20, base_url=os.environ["SHOP"], max_retries=0)


@pytest.mark.ginnel_cassette("tapes/blocking.json")
def test_blocking():
    made = client(ginnel.RemoteClient).api_keys.get("ak_1")
    assert made.description == os.environ["EXPECTED"]


@pytest.mark.ginnel_cassette("tapes/asyncio.json")
async def test_asyncio():
    made = await client(ginnel.AsyncRemoteClient).api_keys.get("ak_1")
    assert made.description == os.environ["EXPECTED"]
"""


def test_the_marker_records_and_plays_as_the_option_says(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_shop.py").write_text(TESTS)

    def run(url: str, expected: str, *options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            [*command, "-o", "asyncio_mode=auto", "tests"],
            cwd=tmp_path,
            env={**os.environ, "SHOP": url, "EXPECTED": expected},
            capture_output=True,
            text=True,
        )
        return done.stdout

    def key(description: str) -> bytes:
        return answer(200, {"id": "ak_1", "uri": "u", "description": description})

    assert "does not exist" in run(NOWHERE, "a", "--ginnel-record=none")
    with Server([key("a")] * 2) as server:
        # What fails is not recorded.
        assert "2 failed" in run(server.url, "b")
        assert not (tmp_path / "tests" / "tapes").exists()
    with Server([key("a")] * 2) as server:
        assert "2 passed" in run(server.url, "a")
    assert "2 passed" in run(NOWHERE, "a", "--ginnel-record=none")
    assert "2 passed" in run(NOWHERE, "a")
    with Server([key("b")] * 2) as server:
        assert "2 passed" in run(server.url, "b", "--ginnel-record=all")
    assert "2 passed" in run(NOWHERE, "b")
