"""Captured requests that the agent sends again and again by itself."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from addresses import free_port
from conftest import Face
from ginnel._testing.server import served
from ginnel.local.replay_schedules import ReplaySchedule
from processes import wait_until

SECONDS = 20


class Receiver:
    """A local service that counts what comes, and responds with a status."""

    def __init__(self) -> None:
        self.status = "201 Created"
        self.bodies: list[bytes] = []
        self.times: list[float] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        self.times.append(time.monotonic())
        self.bodies.append(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        start(self.status, [("Content-Length", "0")])
        return []


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def url(ginnel_tunnel: Callable[..., str], receiver: Receiver) -> str:
    return ginnel_tunnel(receiver)


@pytest.fixture(params=["blocking", "asyncio"])
def here(request: pytest.FixtureRequest, ginnel_agent: ginnel.Agent) -> Iterator[Any]:
    """A client of the agent, of each kind."""
    if request.param == "blocking":
        with ginnel_agent.client() as client:
            yield Face(client)
    else:
        yield ginnel_agent.async_client()


@pytest.fixture
async def captured(here: Any, url: str) -> str:
    """The identifier of a request that was captured."""
    await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/hook", b"order 7").read())
    return str((await here.requests.wait_for()).id)


def visited(agent: ginnel.Agent, url: str) -> str:
    """The identifier of a new request."""
    urllib.request.urlopen(f"{url}/a").read()
    with agent.client() as client:
        return client.requests.wait_for().id


async def until(here: Any, id: str, is_so: Callable[[ReplaySchedule], bool]) -> ReplaySchedule:
    """The schedule once it is so."""
    schedule: ReplaySchedule = await here.replay_schedules.get(id)
    end = asyncio.get_running_loop().time() + SECONDS
    while not is_so(schedule):
        assert asyncio.get_running_loop().time() < end, schedule
        await asyncio.sleep(0.02)
        schedule = await here.replay_schedules.get(id)
    return schedule


async def test_a_request_is_sent_so_many_times(
    here: Any, captured: str, receiver: Receiver
) -> None:
    began = time.monotonic()
    added = await here.replay_schedules.add(captured_id=captured, interval=100, times=3)

    assert isinstance(added, ReplaySchedule)
    assert (added.captured_id, added.interval, added.times) == (captured, 100, 3)
    assert (added.state, added.until, added.addr, added.error) == ("running", None, None, None)
    over = await until(here, added.id, lambda it: it.state != "running")
    assert (over.state, over.error, over.next) == ("completed", None, None)
    assert (over.sent, over.remaining, over.failed, over.last_status) == (3, 0, 0, 201)
    assert receiver.bodies == [b"order 7"] * 4
    assert await here.replay_schedules.list().to_list() == [over]
    *replays, original = await here.requests.list().to_list()
    assert [it.schedule_id for it in replays] == [over.id] * 3
    assert (original.id, original.schedule_id) == (captured, None)
    assert over.last_captured_id == replays[0].id
    # One that is late does not keep the next one waiting, but none is early.
    for number, received in enumerate(receiver.times[1:]):
        assert received - began > 0.1 * number - 0.02


async def test_replays_are_marked_as_such(
    here: Any, captured: str, ginnel_agent: ginnel.Agent
) -> None:
    added = await here.replay_schedules.add(captured_id=captured, interval=100, times=1)
    over = await until(here, added.id, lambda it: it.state == "completed")

    detail = f"{ginnel_agent.url}/inspect/data/requests/{over.last_captured_id}"
    with urllib.request.urlopen(detail) as response:
        shown = json.load(response)
    assert (shown["replay_of"], shown["schedule"]) == (captured, added.id)


async def test_it_goes_on_until_it_is_stopped(here: Any, captured: str, receiver: Receiver) -> None:
    added = await here.replay_schedules.add(captured_id=captured, interval=100)
    assert (added.times, added.remaining) == (None, None)
    running = await until(here, added.id, lambda it: it.sent >= 3 and it.next is not None)
    assert running.next is not None
    assert running.next > running.start

    await here.replay_schedules.delete(added.id)

    with pytest.raises(ginnel.NotFoundError):
        await here.replay_schedules.get(added.id)
    with pytest.raises(ginnel.NotFoundError):
        await here.replay_schedules.delete(added.id)
    assert await here.replay_schedules.list().to_list() == []
    # One may be under way.
    await asyncio.sleep(0.1)
    stopped = len(receiver.bodies)
    await asyncio.sleep(0.4)
    assert len(receiver.bodies) == stopped


async def test_it_goes_on_until_a_moment(here: Any, captured: str, receiver: Receiver) -> None:
    end = datetime.now(UTC) + timedelta(seconds=0.7)

    added = await here.replay_schedules.add(captured_id=captured, interval=200, until=end)

    assert added.until is not None
    assert abs(added.until - end) < timedelta(seconds=0.01)
    over = await until(here, added.id, lambda it: it.state != "running")
    assert (over.state, over.error) == ("completed", None)
    assert 2 <= over.sent <= 4
    sent = len(receiver.bodies)
    await asyncio.sleep(0.4)
    assert len(receiver.bodies) == sent == over.sent + 1


async def test_failures_are_counted_and_end_nothing(
    here: Any, captured: str, receiver: Receiver
) -> None:
    receiver.status = "503 Service Unavailable"
    schedule = await here.replay_schedules.add(captured_id=captured, interval=100, times=2)
    over = await until(here, schedule.id, lambda it: it.state != "running")
    assert (over.state, over.failed, over.last_status) == ("completed", 2, 503)

    away = f"127.0.0.1:{free_port()}"
    schedule = await here.replay_schedules.add(
        captured_id=captured, interval=100, times=2, addr=away
    )

    assert schedule.addr == away
    over = await until(here, schedule.id, lambda it: it.state != "running")
    assert (over.sent, over.failed, over.last_status) == (2, 2, 502)
    assert len(receiver.bodies) == 3


@pytest.mark.parametrize("removal", ["clear", "delete"])
async def test_it_ends_when_its_request_is_deleted(here: Any, captured: str, removal: str) -> None:
    schedule = await here.replay_schedules.add(captured_id=captured, interval=86_400_000)
    await until(here, schedule.id, lambda it: it.next is not None)

    await (here.requests.clear() if removal == "clear" else here.requests.delete(captured))

    over = await until(here, schedule.id, lambda it: it.state != "running")
    assert (over.state, over.next) == ("aborted", None)
    assert over.error == f"the request {captured} was deleted"


def test_it_outlives_its_request_in_the_store(
    ginnel_service: ginnel.Service, receiver: Receiver
) -> None:
    with (
        served(receiver) as local,
        ginnel.Agent(ginnel_service, inspect_db_size=20_000) as agent,
        agent.client() as client,
    ):
        tunnel = client.tunnels.start(addr=local, proto="http", name="small")
        body = b"order 7" * 500
        urllib.request.urlopen(f"{tunnel.public_url}/hook", body).read()
        captured = client.requests.wait_for().id

        schedule = client.replay_schedules.add(captured_id=captured, interval=100)

        wait_until(lambda: len(receiver.bodies) > 10, "replays")
        with pytest.raises(ginnel.NotFoundError):
            client.requests.get(captured)
        assert client.replay_schedules.get(schedule.id).state == "running"
        assert set(receiver.bodies) == {body}

        client.requests.clear()

        wait_until(lambda: client.replay_schedules.get(schedule.id).state == "aborted", "its end")
        over = client.replay_schedules.get(schedule.id)
        assert over.error == f"the request {captured} was deleted"


async def test_it_ends_with_its_tunnel(here: Any, captured: str) -> None:
    tunnel = await here.tunnels.list().first()
    schedule = await here.replay_schedules.add(captured_id=captured, interval=100)

    await here.tunnels.stop(tunnel.name)

    over = await until(here, schedule.id, lambda it: it.state != "running")
    assert (over.state, over.error) == ("aborted", f'the tunnel "{tunnel.name}" was stopped')


def test_another_tunnel_of_the_name_gets_nothing(
    ginnel_agent: ginnel.Agent, url: str, receiver: Receiver
) -> None:
    captured = visited(ginnel_agent, url)
    other = Receiver()
    with served(other) as local, ginnel_agent.client() as client:
        tunnel = client.tunnels.list().first()
        assert tunnel is not None
        name = tunnel.name
        schedule = client.replay_schedules.add(captured_id=captured, interval=86_400_000)
        wait_until(lambda: len(receiver.bodies) == 2, "the first time")

        client.tunnels.stop(name)
        client.tunnels.start(addr=local, proto="http", name=name)

        wait_until(
            lambda: client.replay_schedules.get(schedule.id).state == "aborted", "the end", 0.5
        )
        often = client.replay_schedules.add(captured_id=captured, interval=100)
        wait_until(lambda: len(other.bodies) > 1, "replays")
        client.tunnels.stop(name)
        client.tunnels.start(addr=local, proto="http", name=name)
        wait_until(lambda: client.replay_schedules.get(often.id).state == "aborted", "the end", 0.5)
        # One may have been under way.
        time.sleep(0.1)
        sent = len(other.bodies)
        time.sleep(0.4)
        assert len(other.bodies) == sent


class Endless:
    """A local service whose responses do not end."""

    def __init__(self, head: str) -> None:
        self.head = head
        self.count = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                connection.recv(1 << 16)
                self.count += 1
                connection.sendall(self.head.replace("\n", "\r\n").encode())

    def close(self) -> None:
        for connection in [self.listener, *self.connections]:
            connection.close()


@pytest.mark.parametrize(
    ("status", "head", "fields"),
    [
        (200, "HTTP/1.1 200 OK\nContent-Type: text/event-stream\n\ndata: 1\n\n", {}),
        (
            101,
            "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: upgrade\n\n",
            {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"},
        ),
    ],
)
def test_a_response_without_an_end_is_none_that_failed(
    ginnel_agent: ginnel.Agent, status: int, head: str, fields: dict[str, str]
) -> None:
    endless = Endless(head)
    with ginnel_agent.client() as client:
        address = f"127.0.0.1:{endless.listener.getsockname()[1]}"
        tunnel = client.tunnels.start(addr=address, proto="http", name="endless")
        parts = urlsplit(tunnel.public_url)
        visitor = http.client.HTTPConnection(parts.netloc)
        visitor.request("GET", "/stream", headers=fields)
        captured = client.requests.wait_for().id
        wait_until(lambda: endless.count == 1, "the visitor")

        id = client.replay_schedules.add(captured_id=captured, interval=100).id

        wait_until(lambda: client.replay_schedules.get(id).last_status == status, "a status")
        # It is left to itself after ten seconds.
        wait_until(lambda: client.replay_schedules.get(id).sent == 2, "the second time")
        assert client.replay_schedules.get(id).failed == 0
        client.replay_schedules.delete(id)
        client.tunnels.stop("endless")
    visitor.close()
    endless.close()


async def test_what_is_wrong_is_named_with_its_limit(here: Any, captured: str) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"interval": 99}, "interval: 99 is not from 100 to 86400000"),
        ({"interval": 86_400_001}, "interval: 86400001 is not from 100 to 86400000"),
        ({"times": 0}, "times: 0 is not from 1 to 1000000"),
        ({"times": 1_000_001}, "times: 1000001 is not from 1 to 1000000"),
        ({"until": past}, 'until: "2020-01-01T00:00:00+00:00" has passed'),
        ({"addr": "http://example.com"}, "addr: example.com:80 is not this machine"),
        ({"addr": "nothing at all"}, 'addr: "nothing at all"'),
        ({"tunnel_name": "none"}, 'tunnel_name: no HTTP tunnel "none" is running'),
        ({"captured_id": "00"}, 'captured_id: no captured request has the id "00"'),
    ]
    for changes, problem in wrong:
        options = {"captured_id": captured, "interval": 1000, **changes}
        with pytest.raises(ginnel.BadRequestError) as refused:
            await here.replay_schedules.add(**options)
        assert problem in str(refused.value)
        assert refused.value.error_code == "111"
    assert await here.replay_schedules.list().to_list() == []


def test_what_is_wrong_in_json_is_named(ginnel_agent: ginnel.Agent, url: str) -> None:
    captured = visited(ginnel_agent, url)
    for body, problem in [
        ({"captured_id": "00"}, "interval"),
        ({"interval": 100}, "captured_id"),
        ({"captured_id": "00", "interval": "1s"}, "interval"),
        ({"captured_id": "00", "interval": 1.5}, "interval"),
        ({"captured_id": captured, "interval": 100, "until": "tomorrow"}, 'until: "tomorrow"'),
        ({"captured_id": "00", "interval": 100, "every": 1}, "every"),
    ]:
        request = urllib.request.Request(
            f"{ginnel_agent.url}/api/replay_schedules",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        with refused.value as answer:
            assert answer.code == 400
            assert problem in json.load(answer)["details"]["err"]


async def test_so_many_run_at_a_time(here: Any, captured: str) -> None:
    add = here.replay_schedules.add
    for _ in range(20):
        await add(captured_id=captured, interval=60_000)

    with pytest.raises(ginnel.BadRequestError, match="20 replay schedules run, and no more may"):
        await add(captured_id=captured, interval=60_000)

    await here.replay_schedules.delete("schedule-1")
    for _ in range(23):
        once = await add(captured_id=captured, interval=100, times=1)
        await until(here, once.id, lambda it: it.state == "completed")
    # Of those that are over, the last 20 were still listed when the next one began.
    states = [it.state for it in await here.replay_schedules.list().to_list()]
    assert states == ["running"] * 19 + ["completed"] * 21
    await here.replay_schedules.clear()
    assert await here.replay_schedules.list().to_list() == []


async def test_it_ends_at_the_end_of_a_block(ginnel_agent: ginnel.Agent, url: str) -> None:
    captured = visited(ginnel_agent, url)
    with ginnel_agent.client() as client:
        with client.replay_schedules.open(captured_id=captured, interval=60_000) as schedule:
            assert client.replay_schedules.get(schedule.id).state == "running"
        assert client.replay_schedules.list().to_list() == []
    async with ginnel_agent.async_client() as there:
        async with there.replay_schedules.open(captured_id=captured, interval=60_000) as schedule:
            assert (await there.replay_schedules.get(schedule.id)).state == "running"
        assert await there.replay_schedules.list().to_list() == []


def test_it_ends_with_its_agent(ginnel_service: ginnel.Service, receiver: Receiver) -> None:
    with served(receiver) as local, ginnel.Agent(ginnel_service) as agent:
        with agent.client() as client:
            tunnel = client.tunnels.start(addr=local, proto="http", name="own")
            urllib.request.urlopen(f"{tunnel.public_url}/hook", b"order 7").read()
            captured = client.requests.wait_for().id
            client.replay_schedules.add(captured_id=captured, interval=100)
            wait_until(lambda: len(receiver.bodies) > 2, "replays")

        agent.stop()

        stopped = len(receiver.bodies)
        time.sleep(0.4)
        assert len(receiver.bodies) == stopped


def test_the_command_adds_lists_and_deletes(ginnel_agent: ginnel.Agent, url: str) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "ginnel", "local", "replay-schedules", *arguments]
        base = ["--base-url", f"{ginnel_agent.url}/api"]
        return subprocess.run([*command, *base], capture_output=True, text=True, check=True).stdout

    captured = visited(ginnel_agent, url)

    run("add", "--captured-id", captured, "--interval", "60000", "--times", "5")

    [listed] = json.loads(run("list", "--output", "json"))
    assert (listed["id"], listed["captured_id"]) == ("schedule-1", captured)
    assert (listed["state"], listed["remaining"]) == ("running", 4)
    run("delete", "schedule-1")
    assert json.loads(run("list", "--output", "json")) == []
