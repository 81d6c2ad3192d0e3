"""Calls of asynchronous clients, with everything that asyncio does to tasks.

`GINNEL_TEST_ROUNDS` repeats the storms of cancellations; 100 of them are 100,000 calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import itertools
import logging
import os
import random
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import pytest

import ginnel
from ginnel.events import Event
from server import answer
from stub_server import (
    Connection,
    Request,
    Respond,
    StubServer,
    echo,
    hold,
    key_of,
    lose,
    until,
    until_async,
)

ROUNDS = int(os.environ.get("GINNEL_TEST_ROUNDS", "2"))
CALLS_A_ROUND = 1000


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer(echo) as server:
        yield server


def make(server: StubServer, **options: Any) -> ginnel.AsyncRemoteClient:
    return ginnel.AsyncRemoteClient("k", base_url=server.url, **options)


def fast_and_slow(seconds: float = 0.02) -> Callable[[Request, Connection], Awaitable[None]]:
    """Answers some requests at once, and others a little later."""

    async def respond(request: Request, connection: Connection) -> None:
        if hash(request.name) % 3:
            await asyncio.sleep(random.random() * seconds)
        await connection.send(key_of(request))

    return respond


Loops = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def run_default(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(main())


def run_debug(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(main(), debug=True)


def run_eager(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def eagerly() -> Any:
        factory = getattr(asyncio, "eager_task_factory")  # noqa: B009
        asyncio.get_running_loop().set_task_factory(factory)
        return await main()

    return asyncio.run(eagerly())


def run_uvloop(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def run_anyio(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return anyio.run(main, backend="asyncio")


def run_without_descriptors(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """As loops that cannot watch descriptors do, such as the Proactor."""

    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:
            raise NotImplementedError

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main())


RUNS = [run_default, run_debug, run_uvloop, run_anyio, run_without_descriptors]
if sys.version_info >= (3, 12):
    RUNS.append(run_eager)


@pytest.fixture(params=RUNS, ids=lambda run: run.__name__.removeprefix("run_"))
def run(request: pytest.FixtureRequest) -> Loops:
    """Runs a coroutine in a loop of some kind."""
    return request.param  # type: ignore[no-any-return]


# ------------------------------------------------------------ how calls are awaited


def test_every_way_to_wait(run: Loops, server: StubServer) -> None:
    async def main() -> None:
        async with make(server) as client:
            get = client.api_keys.get
            assert (await get("a")).id == "a"
            assert [key.id for key in await asyncio.gather(get("b"), get("c"))] == ["b", "c"]
            assert (await asyncio.wait_for(get("d"), 10)).id == "d"
            assert (await asyncio.shield(get("e"))).id == "e"
            async with asyncio.timeout(10):
                assert (await get("f")).id == "f"
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(get(f"g{turn}")) for turn in range(50)]
            assert [task.result().id for task in tasks] == [f"g{turn}" for turn in range(50)]
            done, pending = await asyncio.wait([asyncio.create_task(get("h"))])
            assert ([task.result().id for task in done], pending) == (["h"], set())
            found = [(await call).id for call in asyncio.as_completed([get("i"), get("j")])]
            assert sorted(found) == ["i", "j"]
            (failed,) = await asyncio.gather(
                client.request("GET", "bad path"), return_exceptions=True
            )
            assert isinstance(failed, ginnel.ValidationError)

    run(main)


def test_calls_are_coroutines(server: StubServer) -> None:
    client = make(server)

    assert inspect.iscoroutinefunction(client.api_keys.get)
    assert inspect.iscoroutinefunction(client.request)
    assert asyncio.run(client.api_keys.get("a")).id == "a"


def test_a_call_that_nobody_awaits_is_not_sent(server: StubServer) -> None:
    async def main() -> None:
        call = make(server).api_keys.get("a")
        await asyncio.sleep(0.05)
        call.close()

    asyncio.run(main())

    assert server.requests == []


async def test_a_call_cannot_be_awaited_twice(server: StubServer) -> None:
    call = make(server).api_keys.get("a")
    assert (await call).id == "a"

    with pytest.raises(RuntimeError, match="already awaited"):
        await call


def test_a_call_of_one_loop_may_be_awaited_in_another(server: StubServer) -> None:
    client = make(server)

    async def prepare() -> Coroutine[Any, Any, Any]:
        return client.api_keys.get("a")

    call = asyncio.run(prepare())

    assert asyncio.run(call).id == "a"


async def test_asyncio_finds_nothing_to_say_in_debug_mode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60
    with StubServer(fast_and_slow()) as server:
        async with make(server) as client:
            calls = [client.api_keys.get(f"ak_{turn}") for turn in range(300)]
            assert [key.id for key in await asyncio.gather(*calls)] == [
                f"ak_{turn}" for turn in range(300)
            ]
            task = asyncio.create_task(client.api_keys.get("ak_1"))
            await asyncio.sleep(0)
            assert "api_keys.py" in "".join(map(repr, task.get_stack()))
            assert "get" in repr(task)
            await task

    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_hooks_run_where_the_call_is_made(run: Loops, server: StubServer) -> None:
    """Hooks see the context variables and the task of who calls."""
    number: ContextVar[int] = ContextVar("number", default=-1)
    seen: list[tuple[str, int, asyncio.Task[Any] | None]] = []

    def note(event: Event) -> None:
        seen.append((event.kind, number.get(), asyncio.current_task()))

    async def main() -> None:
        async with make(server, on_request=note, on_response=note) as client:

            async def call(turn: int) -> None:
                number.set(turn)
                before = len(seen)
                await client.api_keys.get(f"ak_{turn}")
                assert number.get() == turn
                task = asyncio.current_task()
                mine = [kind for kind, value, owner in seen[before:] if value == turn]
                owners = {owner for _, value, owner in seen[before:] if value == turn}
                assert mine == ["request", "response"]
                assert owners == {task}

            await asyncio.gather(*(call(turn) for turn in range(50)))
            assert number.get() == -1

    run(main)


def test_the_running_task_is_the_caller_after_each_answer(run: Loops, server: StubServer) -> None:
    async def main() -> None:
        async with make(server) as client:

            async def call(turn: int) -> None:
                task = asyncio.current_task()
                for part in range(5):
                    await client.api_keys.get(f"ak_{turn}_{part}")
                    assert asyncio.current_task() is task
                    assert asyncio.get_running_loop() is asyncio.get_event_loop()
                    await asyncio.sleep(0)
                    async with asyncio.timeout(10):
                        await client.api_keys.get(f"ak_{turn}_{part}")

            await asyncio.gather(*(call(turn) for turn in range(30)))

    run(main)


def test_one_task_does_not_stop_the_others(run: Loops) -> None:
    """Who never pauses otherwise still lets the loop turn."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    with StubServer(echo) as server:

        async def main() -> None:
            async with make(server) as client:
                ticking = asyncio.create_task(tick())
                for turn in range(200):
                    await client.api_keys.get(f"ak_{turn}")
                ticking.cancel()

        run(main)

    assert ticks > 100


def test_anyio(server: StubServer) -> None:
    async def main() -> None:
        got: list[str] = []

        async def call(name: str) -> None:
            got.append((await client.api_keys.get(name)).id)

        async with make(server) as client:
            async with anyio.create_task_group() as group:
                for turn in range(20):
                    group.start_soon(call, f"ak_{turn}")
            assert sorted(got) == sorted(f"ak_{turn}" for turn in range(20))
            with anyio.fail_after(10):
                await call("ak_x")
            with anyio.CancelScope(shield=True):
                await call("ak_y")
            await anyio.to_thread.run_sync(anyio.from_thread.run, call, "ak_z")
            assert got[-1] == "ak_z"
        with StubServer(hold) as silent:
            async with make(silent) as client:
                with anyio.move_on_after(0.1) as scope:
                    await client.api_keys.get("ak_1")
                assert scope.cancelled_caught
                with pytest.raises(TimeoutError):
                    with anyio.fail_after(0.1):
                        await client.api_keys.get("ak_1")

    for uvloop in [False, True]:
        if uvloop:
            pytest.importorskip("uvloop")
        anyio.run(main, backend="asyncio", backend_options={"use_uvloop": uvloop})


# ------------------------------------------------------------ cancelling


def test_a_task_that_is_cancelled_before_it_starts_sends_nothing(
    run: Loops, server: StubServer
) -> None:
    async def main() -> None:
        async with make(server) as client:
            eager = asyncio.get_running_loop().get_task_factory() is not None
            task = asyncio.create_task(client.api_keys.get("ak_1"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.api_keys.get("ak_2")).id == "ak_2"
            assert [request.name for request in server.requests][-1] == "ak_2"
            assert eager or len(server.requests) == 1

    run(main)


def test_cancelling_twice_is_cancelling(run: Loops) -> None:
    async def main() -> None:
        with StubServer(hold) as server:
            async with make(server) as client:
                task = asyncio.create_task(client.api_keys.get("ak_1"))
                await until_async(lambda: server.requests)
                task.cancel("first")
                task.cancel("second")
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert task.cancelled()
                await until_async(lambda: not server.open)

    run(main)


def test_who_swallows_a_cancellation_can_call_again(run: Loops) -> None:
    async def respond(request: Request, connection: Connection) -> None:
        await (hold if request.name == "ak_held" else echo)(request, connection)

    async def main() -> None:
        with StubServer(respond) as server:
            async with make(server) as client:

                async def stubborn() -> str:
                    with contextlib.suppress(asyncio.CancelledError):
                        await client.api_keys.get("ak_held")
                    return (await client.api_keys.get("ak_again")).id

                task = asyncio.create_task(stubborn())
                await until_async(lambda: server.requests)
                task.cancel()
                assert await task == "ak_again"

    run(main)


def test_shield_keeps_the_call(run: Loops) -> None:
    release = threading.Event()

    async def respond(request: Request, connection: Connection) -> None:
        while not release.is_set():
            await asyncio.sleep(0.005)
        await echo(request, connection)

    async def main() -> None:
        with StubServer(respond) as server:
            async with make(server) as client:
                inner = asyncio.ensure_future(client.api_keys.get("ak_1"))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(inner), 0.1)
                release.set()
                assert (await inner).id == "ak_1"

    run(main)


def test_a_failed_task_of_a_group_cancels_the_others(run: Loops) -> None:
    async def main() -> None:
        with StubServer(hold) as server:
            async with make(server) as client:

                async def fail() -> None:
                    await until_async(lambda: len(server.requests) == 10)
                    raise ValueError("enough")

                async def together() -> None:
                    async with asyncio.TaskGroup() as group:
                        for turn in range(10):
                            group.create_task(client.api_keys.get(f"ak_{turn}"))
                        group.create_task(fail())

                with pytest.raises(ExceptionGroup) as raised:
                    await together()
                assert [str(error) for error in raised.value.exceptions] == ["enough"]
                await until_async(lambda: not server.open)

    run(main)


def late_by(seconds: float) -> Respond:
    """Answers at once, but for what is late by its name."""

    async def respond(request: Request, connection: Connection) -> None:
        if request.name.startswith("late"):
            await asyncio.sleep(seconds)
        await echo(request, connection)

    return respond


def test_a_timeout_at_the_time_of_the_answer(run: Loops) -> None:
    """Either the answer or the timeout; and the next call gets what is its own."""

    async def main() -> None:
        outcomes: Counter[str] = Counter()
        with StubServer(late_by(0.02)) as server:
            async with make(server) as client:
                for turn in range(40):
                    try:
                        async with asyncio.timeout(0.018 + 0.0003 * (turn % 20)):
                            key = await client.api_keys.get(f"late_{turn}")
                    except TimeoutError:
                        outcomes["timeout"] += 1
                    else:
                        outcomes["answer"] += 1
                        assert key.id == f"late_{turn}"
                    assert (await client.api_keys.get(f"next_{turn}")).id == f"next_{turn}"
        assert outcomes.total() == 40

    run(main)


def test_the_clients_own_timeout_at_the_time_of_the_answer(run: Loops) -> None:
    async def main() -> None:
        with StubServer(late_by(0.03)) as server:
            async with make(server, max_retries=0) as client:
                for turn in range(30):
                    hasty = client.with_options(timeout=0.027 + 0.0004 * (turn % 15))
                    with contextlib.suppress(ginnel.APITimeoutError):
                        key = await hasty.api_keys.get(f"late_{turn}")
                        assert key.id == f"late_{turn}"
                    assert (await client.api_keys.get(f"next_{turn}")).id == f"next_{turn}"

    run(main)


def test_a_storm_of_cancellations_swaps_no_answers(run: Loops) -> None:
    """Each answer holds the identifier that was asked for, whoever is cancelled meanwhile."""
    outcomes: Counter[str] = Counter()

    async def main() -> None:
        with StubServer(fast_and_slow()) as server:
            async with make(server, timeout=60) as client:
                for turn in range(ROUNDS):
                    await storm(client, turn, outcomes)

    run(main)

    assert outcomes["swapped"] == outcomes["error"] == 0, outcomes
    assert outcomes.total() == ROUNDS * CALLS_A_ROUND
    assert outcomes["answer"] > 0
    assert outcomes["cancelled"] > 0


async def storm(client: ginnel.AsyncRemoteClient, turn: int, outcomes: Counter[str]) -> None:
    chance = random.Random(turn)

    async def call(name: str) -> None:
        try:
            key = await client.api_keys.get(name)
        except asyncio.CancelledError:
            outcomes["cancelled"] += 1
        except ginnel.GinnelError:
            outcomes["error"] += 1
        else:
            outcomes["answer" if key.id == name else "swapped"] += 1

    tasks = []
    for number in range(CALLS_A_ROUND):
        name = f"ak_{turn}_{number}"
        task = asyncio.ensure_future(call(name))
        tasks.append(task)
        if chance.random() < 0.2:
            await asyncio.sleep(0)
        if chance.random() < 0.4:
            delay = chance.choice([0, 0, 0.001, 0.01, 0.02, 0.05])
            asyncio.get_running_loop().call_later(delay, task.cancel)
        if number % 60 == 0:
            await asyncio.sleep(0.005)
    # A task that is cancelled before it starts has not counted itself.
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        outcomes["cancelled"] += isinstance(result, asyncio.CancelledError)


# ------------------------------------------------------------ many of them


def test_five_thousand_tasks_share_a_hundred_connections(run: Loops, server: StubServer) -> None:
    """The queue is fair: who comes first is served first, give or take what is in flight."""
    names = [f"ak_{turn}" for turn in range(5000)]

    async def main() -> list[str]:
        async with make(server, timeout=60) as client:
            calls = [client.api_keys.get(name) for name in names]
            return [key.id for key in await asyncio.gather(*calls)]

    assert run(main) == names
    assert server.peak <= 100
    places = {request.name: place for place, request in enumerate(server.requests)}
    assert len(places) == len(server.requests) == 5000
    assert max(abs(places[name] - turn) for turn, name in enumerate(names)) <= 300


def test_a_queue_survives_those_who_leave_it(run: Loops) -> None:
    """Calls that are cancelled while they wait, or in flight, take no connection with them."""
    release = threading.Event()

    async def respond(request: Request, connection: Connection) -> None:
        while not release.is_set() and request.name.startswith("held"):
            await asyncio.sleep(0.005)
        await echo(request, connection)

    async def main() -> None:
        with StubServer(respond) as server:
            async with make(server, max_connections=2, timeout=30) as client:
                held = [asyncio.ensure_future(client.api_keys.get(f"held_{n}")) for n in range(2)]
                await until_async(lambda: len(server.requests) == 2)
                queued = [asyncio.ensure_future(client.api_keys.get(f"ak_{n}")) for n in range(20)]
                await asyncio.sleep(0.02)
                for task in queued[::2]:
                    task.cancel()
                await asyncio.sleep(0)
                held[0].cancel()
                got = await asyncio.gather(*queued[1::2])
                assert [key.id for key in got] == [f"ak_{n}" for n in range(1, 20, 2)]
                release.set()
                assert (await held[1]).id == "held_1"
                names = [request.name for request in server.requests]
                assert names[2:] == [f"ak_{n}" for n in range(1, 20, 2)]
                # The server sees the end of the cancelled one when it is released.
                assert server.peak <= 3

    run(main)


def test_a_deadline_passes_in_the_queue(run: Loops) -> None:
    async def main() -> None:
        with StubServer(hold) as server:
            async with make(server, max_connections=1, deadline=0.5) as client:
                calls = (client.api_keys.get(f"ak_{turn}") for turn in range(10))
                results = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(result) for result in results} == {ginnel.APITimeoutError}
                # Another one may have had its turn in its last moment.
                assert "ak_0" in {request.name for request in server.requests}
                assert len(server.requests) <= 2

    run(main)


def test_a_large_answer_lets_the_loop_turn(run: Loops) -> None:
    """30 MB of answer: the loop goes on while they arrive and while they are decoded."""
    keys = [{"id": f"ak_{turn}", "uri": "u", "metadata": "m" * 1100} for turn in range(30_000)]
    body = answer(200, {"keys": keys, "uri": "u"})
    assert len(body) > 30 << 20
    # Processor time of the thread at each turn.
    turns: list[float] = []

    async def tick() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0.001)

    async def respond(_: Request, connection: Connection) -> None:
        await connection.send(body)

    async def main() -> None:
        with StubServer(respond) as server:
            async with make(server, timeout=60) as client:
                ticking = asyncio.create_task(tick())
                await asyncio.sleep(0)
                got = await client.api_keys.list().to_list()
                turns.append(time.thread_time())
                ticking.cancel()
                assert [key.id for key in got] == [key["id"] for key in keys]

    gc.collect()
    gc.disable()  # A collection of all that pytest holds may come at any turn.
    try:
        run(main)
    finally:
        gc.enable()
    # A slice is a turn with much work. However long a busy machine makes one of them, there are
    # many; a decoder that does not let the loop turn makes one.
    slices = [b - a for a, b in itertools.pairwise(turns) if b - a > 0.0002]
    assert len(slices) >= 4


# ------------------------------------------------------------ loops, threads, processes


def test_several_loops_in_several_threads(run: Loops) -> None:
    with StubServer(fast_and_slow(0.005)) as server:
        client = make(server)

        def thread(number: int) -> None:
            async def main() -> None:
                for turn in range(3):
                    names = [f"ak_{number}_{turn}_{part}" for part in range(40)]
                    got = await asyncio.gather(*(client.api_keys.get(name) for name in names))
                    assert [key.id for key in got] == names

            for _ in range(3):
                run(main)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(thread, range(6)))

        assert len(server.requests) == 6 * 3 * 3 * 40


def test_loops_one_after_the_other_use_the_same_connection(run: Loops, server: StubServer) -> None:
    client = make(server)
    for turn in range(20):

        async def main(name: str = f"ak_{turn}") -> str:
            return (await client.api_keys.get(name)).id

        assert run(main) == f"ak_{turn}"

    assert server.connections == 1


def test_loops_leave_no_descriptors(run: Loops, server: StubServer) -> None:
    client = make(server)

    async def main() -> None:
        await asyncio.gather(*(client.api_keys.get(f"ak_{turn}") for turn in range(5)))

    run(main)
    before = descriptors()
    for _ in range(20):
        run(main)
    gc.collect()

    assert descriptors() < before + 10


def has_requests(server: StubServer, count: int) -> bool:
    return len(server.requests) >= count


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_loop_may_be_closed_with_calls_in_flight() -> None:
    with StubServer(hold) as server:
        client = make(server, timeout=60)
        before = descriptors()
        for turn in range(5):
            loop = asyncio.new_event_loop()
            task = loop.create_task(client.api_keys.get(f"ak_{turn}"))
            loop.run_until_complete(until_async(partial(has_requests, server, turn + 1)))
            gone = weakref.ref(loop)
            # What asyncio says of a task that is destroyed is not what this test is about.
            loop.set_exception_handler(lambda *_: None)
            loop.close()
            del loop, task
            gc.collect()
            assert gone() is None
        server.respond = echo

        assert asyncio.run(client.api_keys.get("ak_1")).id == "ak_1"

        client.close()
        gc.collect()
        until(lambda: not server.open)
        until(lambda: descriptors() <= before + 1)


def test_closing_leaves_no_call_behind(run: Loops) -> None:
    """What is in flight gets its answer, or learns that the client was closed."""
    release = threading.Event()

    async def respond(request: Request, connection: Connection) -> None:
        while not release.is_set():
            await asyncio.sleep(0.005)
        await echo(request, connection)

    async def main() -> None:
        with StubServer(respond) as server:
            client = make(server, timeout=60)
            names = [f"ak_{turn}" for turn in range(5)]
            calls = [asyncio.ensure_future(client.api_keys.get(name)) for name in names]
            await until_async(lambda: len(server.requests) == 5)
            client.close()
            release.set()
            with pytest.raises(ginnel.ClientClosedError):
                await client.api_keys.get("ak_1")
            async with asyncio.timeout(10):
                results = await asyncio.gather(*calls, return_exceptions=True)
            for name, result in zip(names, results, strict=True):
                closed = isinstance(result, ginnel.ClientClosedError)
                assert closed or getattr(result, "id", None) == name
            await until_async(lambda: not server.open)

    run(main)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_fork_in_the_middle_of_calls(face: str) -> None:
    """Both processes go on, each on connections of its own."""
    program = """
import asyncio, os, sys, threading, time, warnings
import ginnel
warnings.simplefilter("ignore", DeprecationWarning)
url, face = sys.argv[1:]

def check(names, got):
    assert [key.id for key in got] == names, (names, got)

def work(client, count):
    for turn in range(count):
        names = [f"ak_{os.getpid()}_{threading.get_ident()}_{turn}_{n}" for n in range(8)]
        if face == "blocking":
            check(names, [client.api_keys.get(name) for name in names])
        else:
            async def main():
                check(names, await asyncio.gather(*(client.api_keys.get(n) for n in names)))
            asyncio.run(main())

kind = ginnel.RemoteClient if face == "blocking" else ginnel.AsyncRemoteClient
client = kind("k", base_url=url, timeout=20)
work(client, 2)
threads = [threading.Thread(target=work, args=(client, 20)) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for _ in range(4):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        try:
            work(client, 5)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
for thread in threads:
    thread.join()
work(client, 2)
"""
    with StubServer(fast_and_slow(0.005)) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.url, face],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_inside_a_running_loop(server: StubServer) -> None:
    program = """
import asyncio, os, sys, warnings
import ginnel
warnings.simplefilter("ignore", DeprecationWarning)
client = ginnel.AsyncRemoteClient("k", base_url=sys.argv[1], timeout=20)

async def calls(mark):
    names = [f"ak_{mark}_{n}" for n in range(10)]
    got = await asyncio.gather(*(client.api_keys.get(name) for name in names))
    assert [key.id for key in got] == names

async def main():
    await calls("first")
    flying = asyncio.ensure_future(calls("flying"))
    await asyncio.sleep(0)
    child = os.fork()
    if child == 0:
        # Another loop: this one's selector is shared with the parent.
        asyncio.events._set_running_loop(None)
        asyncio.run(calls("child"))
        os._exit(0)
    await flying
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        await calls("parent")
    assert status == 0
    await calls("last")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, server.url], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import asyncio, os, signal, sys, threading, time
import ginnel
url, kind = sys.argv[1:]
if kind == "uvloop":
    import uvloop
client = ginnel.AsyncRemoteClient("k", base_url=url, timeout=60)
ended = []

async def call(n):
    try:
        await client.api_keys.get(f"held_{n}")
    except BaseException as error:
        ended.append(type(error).__name__)
        raise

async def main():
    await client.api_keys.get("ak_1")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    await asyncio.gather(*(call(n) for n in range(20)))

async def later():
    return (await client.api_keys.get("ak_2")).id

def run(work):
    if kind == "uvloop":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    return asyncio.run(work)

try:
    run(main())
except KeyboardInterrupt:
    assert ended == ["CancelledError"] * 20, ended
else:
    raise SystemExit("no KeyboardInterrupt")
assert run(later()) == "ak_2"
"""


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_ctrl_c_in_a_running_loop(kind: str) -> None:
    if kind == "uvloop":
        pytest.importorskip("uvloop")

    async def respond(request: Request, connection: Connection) -> None:
        await (hold if request.name.startswith("held") else echo)(request, connection)

    with StubServer(respond) as server:
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, server.url, kind],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_among_many_answers_loses_none(server: StubServer) -> None:
    """A task that lets KeyboardInterrupt out stops the loop; the others go on in the next run."""
    client = make(server)
    loop = asyncio.new_event_loop()
    names = [f"ak_{turn}" for turn in range(50)]

    async def call(name: str) -> str:
        found = (await client.api_keys.get(name)).id
        if name == "ak_25":
            raise KeyboardInterrupt
        return found

    tasks = [loop.create_task(call(name)) for name in names]
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(asyncio.wait(tasks, timeout=20))
    loop.run_until_complete(asyncio.sleep(0))

    for name, task in zip(names, tasks, strict=True):
        assert task.done()
        if name == "ak_25":
            assert isinstance(task.exception(), KeyboardInterrupt)
        else:
            assert task.result() == name
    loop.close()


# ------------------------------------------------------------ what is left behind


class Marker:
    """Something whose end can be seen."""


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_an_error_keeps_nobodys_frame(run: Loops) -> None:
    """No cycle of an exception, its traceback and the frames: reference counts free all of it."""

    async def failed(client: ginnel.AsyncRemoteClient) -> weakref.ref[Marker]:
        marker = Marker()
        with contextlib.suppress(ginnel.APIError):
            await client.api_keys.get("ak_1")
        return weakref.ref(marker)

    async def main() -> None:
        with StubServer(lose) as server, without_collector():
            async with make(server, max_retries=0) as client:
                for _ in range(3):
                    gone = await failed(client)
                    await asyncio.sleep(0.01)
                    assert gone() is None

    run(main)


def test_a_cancelled_call_keeps_nobodys_frame(run: Loops) -> None:
    async def main() -> None:
        with StubServer(hold) as server, without_collector():
            async with make(server) as client:
                for turn in range(3):
                    gone = await cancelled(client, server, turn)
                    await asyncio.sleep(0.01)
                    assert gone() is None

    async def cancelled(
        client: ginnel.AsyncRemoteClient, server: StubServer, turn: int
    ) -> weakref.ref[Marker]:
        marker = Marker()

        async def call(_: Marker) -> None:
            await client.api_keys.get("ak_1")

        task = asyncio.create_task(call(marker))
        await until_async(lambda: len(server.requests) > turn)
        task.cancel()
        await asyncio.wait([task])
        return weakref.ref(marker)

    run(main)


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_traceback_leads_from_the_caller_to_the_call(face: str) -> None:
    async def respond(_: Request, connection: Connection) -> None:
        await connection.send(answer(404, {"msg": "no"}))

    async def awaited(url: str) -> None:
        async with ginnel.AsyncRemoteClient("k", base_url=url) as client:
            await client.api_keys.get("ak_1")

    def blocking(url: str) -> None:
        with ginnel.RemoteClient("k", base_url=url) as client:
            client.api_keys.get("ak_1")

    with StubServer(respond) as server, pytest.raises(ginnel.NotFoundError) as raised:
        blocking(server.url) if face == "blocking" else asyncio.run(awaited(server.url))

    frames = traceback.extract_tb(raised.value.__traceback__)
    names = [frame.name for frame in frames]
    at = names.index("blocking" if face == "blocking" else "awaited")
    assert names[at + 1] == "get"
    assert len(names) - at <= 4
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None


def test_nothing_is_left_to_the_collector(run: Loops, server: StubServer) -> None:
    """Calls that succeed leave no cycle behind."""

    async def main() -> None:
        async with make(server) as client:
            await asyncio.gather(*(client.api_keys.get(f"ak_{turn}") for turn in range(10)))
            with without_collector():
                before = count_of_ginnel()
                for turn in range(200):
                    await client.api_keys.get(f"ak_{turn}")
                assert count_of_ginnel() <= before + 5

    run(main)


def count_of_ginnel() -> int:
    """Objects of this package, and coroutines, that are alive."""
    return sum(
        str(type(thing).__module__).startswith("ginnel") or inspect.iscoroutine(thing)
        for thing in gc.get_objects()
    )


def test_a_thousand_calls_take_no_more_and_more_memory(server: StubServer) -> None:
    """Tasks and answers go when they are done."""
    alive: list[weakref.ref[Any]] = []

    async def main() -> None:
        async with make(server) as client:
            for turn in range(100):
                tasks = [asyncio.create_task(client.api_keys.get(f"ak_{n}")) for n in range(10)]
                alive.extend(map(weakref.ref, tasks))
                await asyncio.gather(*tasks)
                del tasks
                if turn == 50:
                    await asyncio.sleep(0)

    with without_collector():
        asyncio.run(main())

    assert sum(task() is not None for task in alive) <= 1


def test_no_log_of_asyncio_about_what_nobody_retrieved(
    run: Loops, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that came after the cancellation is nobody's, and is not told."""
    caplog.set_level(logging.WARNING, "asyncio")

    async def respond(_: Request, connection: Connection) -> None:
        await asyncio.sleep(random.random() * 0.02)
        connection.reset()

    async def main() -> None:
        with StubServer(respond) as server:
            async with make(server, max_retries=0) as client:
                for _ in range(50):
                    task = asyncio.create_task(client.api_keys.get("ak_1"))
                    await asyncio.sleep(0.01)
                    task.cancel()
                    await asyncio.wait([task])
                    if not task.cancelled():
                        assert isinstance(task.exception(), ginnel.APIConnectionError)

    run(main)
    gc.collect()

    # A loop in debug mode also tells what took long, as anything may on a busy machine.
    told = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert [message for message in told if not message.startswith("Executing ")] == []
