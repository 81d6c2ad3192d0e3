"""How clients end: with their interpreter, with Ctrl-C, with a resolver that hangs, and in cycles.

`GINNEL_TEST_ROUNDS` says how often interpreters exit with calls in flight. `GINNEL_TEST_PYTHONS`
names more interpreters to try, in the form of `PATH`; the extension serves all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ginnel
from server import answer
from stub_server import Connection, Request, StubServer, echo, hold, until

ROUNDS = int(os.environ.get("GINNEL_TEST_ROUNDS", "3"))
PYTHONS = [sys.executable, *filter(None, os.environ.get("GINNEL_TEST_PYTHONS", "").split(":"))]
PACKAGE = str(Path(ginnel.__file__).parents[1])


def run(
    program: str, *arguments: str, python: str = sys.executable, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Runs a program that has this package."""
    return subprocess.run(
        [python, "-X", "faulthandler", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": PACKAGE, "RUST_BACKTRACE": "0"},
    )


# ------------------------------------------------------------ the end of the interpreter

BLOCKING = """
import random, sys, threading, time
import ginnel
url = sys.argv[1]
client = ginnel.RemoteClient("k", base_url=url, timeout=5, on_response=lambda event: None)

def work():
    while True:
        try:
            client.api_keys.get("ak_1")
        except ginnel.APIError:
            pass

for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.02 + random.random() * 0.1)
"""

ASYNCIO = """
import asyncio, random, sys, threading, time
import ginnel
url = sys.argv[1]
client = ginnel.AsyncRemoteClient("k", base_url=url, timeout=5, on_response=lambda event: None)

async def work():
    while True:
        try:
            await client.api_keys.get("ak_1")
        except ginnel.APIError:
            pass

async def main():
    await asyncio.gather(*(work() for _ in range(20)))

for _ in range(3):
    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
time.sleep(0.02 + random.random() * 0.1)
"""

MIXED = """
import asyncio, random, sys, threading, time
import ginnel
url = sys.argv[1]

def blocking():
    while True:
        with ginnel.RemoteClient("k", base_url=url, timeout=5) as client:
            try:
                client.api_keys.list().to_list()
            except ginnel.GinnelError:
                pass

async def awaited():
    while True:
        async with ginnel.AsyncRemoteClient("k", base_url=url, timeout=0.01) as client:
            await asyncio.gather(
                *(client.api_keys.get("ak_1") for _ in range(5)), return_exceptions=True
            )

for _ in range(4):
    threading.Thread(target=blocking, daemon=True).start()
    threading.Thread(target=lambda: asyncio.run(awaited()), daemon=True).start()
time.sleep(0.02 + random.random() * 0.1)
"""

MAIN_LOOP_LEFT = """
import asyncio, sys
import ginnel
client = ginnel.AsyncRemoteClient("k", base_url=sys.argv[1], timeout=5)
loop = asyncio.new_event_loop()
tasks = [loop.create_task(client.api_keys.get("ak_1")) for _ in range(20)]
loop.set_exception_handler(lambda *_: None)
loop.run_until_complete(asyncio.sleep(0.05))
"""

PROGRAMS = {"blocking": BLOCKING, "asyncio": ASYNCIO, "mixed": MIXED, "a loop left": MAIN_LOOP_LEFT}


async def slowly(request: Request, connection: Connection) -> None:
    await asyncio.sleep(0.005)
    await connection.send(answer(200, {"id": "ak_1", "uri": "u", "keys": []}))


SERVERS = {"fast": echo, "slow": slowly, "silent": hold}


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).name)
@pytest.mark.parametrize("serving", SERVERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interpreter_ends_with_calls_in_flight(program: str, serving: str, python: str) -> None:
    """No crash, no hang, and not a word, whatever daemon threads are doing."""
    with StubServer(SERVERS[serving]) as server:

        def once(_: int) -> tuple[int, str]:
            done = run(PROGRAMS[program], server.url, python=python, timeout=60)
            return done.returncode, words(done.stderr)

        with ThreadPoolExecutor(2) as pool:
            ends = set(pool.map(once, range(ROUNDS)))

    assert ends == {(0, "")}


def words(stderr: str) -> str:
    """What was printed, without what Python itself says of tasks that it destroys."""
    return "\n".join(
        line
        for line in stderr.splitlines()
        if "never awaited" not in line
        and "RuntimeWarning" not in line
        # Debug builds tell of these, too; the program leaves its loop on purpose.
        and "ResourceWarning: unclosed event loop" not in line
    )


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).name)
def test_an_interpreter_ends_while_threads_make_clients(python: str) -> None:
    program = """
import random, sys, threading, time
import ginnel

def work():
    while True:
        client = ginnel.RemoteClient("k", base_url="http://127.0.0.1:1", max_retries=0)
        try:
            client.api_keys.get("ak_1")
        except ginnel.APIError:
            pass

for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.02 + random.random() * 0.1)
"""
    for _ in range(ROUNDS):
        done = run(program, python=python)
        assert (done.returncode, done.stderr) == (0, "")


def test_calls_at_exit_still_work() -> None:
    """What `atexit` runs may call."""
    program = """
import atexit, sys
import ginnel
client = ginnel.RemoteClient("k", base_url=sys.argv[1])
atexit.register(lambda: print(client.api_keys.get("ak_last").id))
client.api_keys.get("ak_1")
"""
    with StubServer(echo) as server:
        done = run(program, server.url)

    assert (done.returncode, done.stdout, done.stderr) == (0, "ak_last\n", "")


# ------------------------------------------------------------ Ctrl-C

INTERRUPTED = """
import os, signal, socket, sys, threading, time
import ginnel
url, state = sys.argv[1:]
options = {"base_url": url, "timeout": 60, "max_retries": 0}
if state == "pause":
    options |= {"max_retries": 5, "deadline": 0}
if state == "queue":
    options |= {"max_connections": 1}
client = ginnel.RemoteClient("k", **options)
if state == "queue":
    threading.Thread(target=client.api_keys.get, args=("held",), daemon=True).start()
    time.sleep(0.2)
waits = []
for _ in range(5):
    sent = []
    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.15, interrupt).start()
    try:
        client.api_keys.get("ak_1")
    except KeyboardInterrupt:
        waits.append(time.monotonic() - sent[0])
print(len(waits), min(waits), max(waits))
"""


async def drip(_: Request, connection: Connection) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await connection.send(b" ")
        await asyncio.sleep(0.002)


async def unavailable(_: Request, connection: Connection) -> None:
    await connection.send(answer(503, None, retry_after=30))


STATES: dict[str, Callable[[Request, Connection], Any]] = {
    "answer": hold,
    "body": drip,
    "pause": unavailable,
    "queue": hold,
}


@pytest.mark.parametrize("state", STATES)
def test_ctrl_c_ends_a_call_within_two_tenths_of_a_second(state: str) -> None:
    """The quickest of some tries: other work on the machine makes single ones slower."""
    with StubServer(STATES[state]) as server:
        check_interrupted(run(INTERRUPTED, server.url, state))


def check_interrupted(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    count, quickest, slowest = done.stdout.split()
    assert count == "5"
    assert float(quickest) < 0.2
    assert float(slowest) < 20


def test_ctrl_c_ends_a_handshake() -> None:
    with silent_listener() as port:
        check_interrupted(run(INTERRUPTED, f"https://127.0.0.1:{port}", "handshake"))


@contextlib.contextmanager
def silent_listener() -> Iterator[int]:
    """Accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.mark.skipif(sys.platform != "linux", reason="a full queue refuses elsewhere")
def test_ctrl_c_ends_an_attempt_to_connect() -> None:
    with full_listener() as port:
        check_interrupted(run(INTERRUPTED, f"http://127.0.0.1:{port}", "connect"))


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """Has a queue of connections that is full, so that attempts to connect wait."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# ------------------------------------------------------------ a resolver that hangs

NETWORK = """
import fcntl, os, signal, socket, struct, sys, threading, time
import ginnel

def loopback():
    # struct ifreq with IFF_UP and IFF_RUNNING for SIOCSIFFLAGS.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))

loopback()
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("127.0.0.1", 53))
queries = []
def swallow():
    while True:
        queries.append(resolver.recv(4096))
threading.Thread(target=swallow, daemon=True).start()

def hanging(call):
    # A call that waits for the resolver, in a thread of its own.
    before = len(queries)
    ended = []
    def work():
        try:
            call()
        except BaseException as error:
            ended.append(type(error).__name__)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while len(queries) == before:
        time.sleep(0.005)
    return thread, ended

def timed(work):
    started = time.monotonic()
    work()
    return time.monotonic() - started

url = "http://api.example.test"
options = {"base_url": url, "allow_http": True, "timeout": 60, "deadline": 0, "max_retries": 0}
"""
"""A network without names: a resolver that gets each question, and answers none."""

RESOLVING = {
    "close": """
client = ginnel.RemoteClient("k", **options)
thread, ended = hanging(lambda: client.api_keys.get("ak_1"))
print(timed(client.close))
""",
    "close after a timeout": """
client = ginnel.RemoteClient("k", **(options | {"timeout": 0.2}))
try:
    client.api_keys.get("ak_1")
except ginnel.APITimeoutError:
    pass
print(timed(client.close))
""",
    "close of an asynchronous client": """
import asyncio
client = ginnel.AsyncRemoteClient("k", **options)
thread, ended = hanging(lambda: asyncio.run(client.api_keys.get("ak_1")))
print(timed(client.close))
""",
    "with": """
client = ginnel.RemoteClient("k", **options)
def block():
    with client:
        pass
thread, ended = hanging(lambda: client.api_keys.get("ak_1"))
print(timed(block))
""",
    "async with": """
import asyncio
async def main():
    async with ginnel.AsyncRemoteClient("k", **options) as client:
        task = asyncio.create_task(client.api_keys.get("ak_1"))
        while not queries:
            await asyncio.sleep(0.005)
        leaving.append(time.monotonic())
    left.append(time.monotonic())
    task.cancel()
    await asyncio.wait([task])
leaving, left = [], []
asyncio.run(main())
print(max(left[0] - leaving[0], 0))
""",
    "del after a timeout": """
client = ginnel.RemoteClient("k", **(options | {"timeout": 0.2}))
try:
    client.api_keys.get("ak_1")
except ginnel.APITimeoutError:
    pass
def drop():
    global client
    del client
print(timed(drop))
""",
    "del after a cancellation": """
import asyncio
client = ginnel.AsyncRemoteClient("k", **options)
async def main():
    task = asyncio.create_task(client.api_keys.get("ak_1"))
    while not queries:
        await asyncio.sleep(0.005)
    started = time.monotonic()
    task.cancel()
    await asyncio.wait([task])
    return started
def drop():
    global client
    del client
started = asyncio.run(main())
drop()
print(time.monotonic() - started)
""",
    "timeout": """
client = ginnel.RemoteClient("k", **(options | {"timeout": 0.3}))
def call():
    try:
        client.api_keys.get("ak_1")
    except ginnel.APITimeoutError:
        pass
print(timed(call) - 0.3)
""",
    "timeout of an asynchronous call": """
import asyncio
client = ginnel.AsyncRemoteClient("k", **(options | {"timeout": 0.3}))
async def main():
    try:
        await client.api_keys.get("ak_1")
    except ginnel.APITimeoutError:
        pass
async def outer():
    started = time.monotonic()
    await main()
    return time.monotonic() - started - 0.3
print(asyncio.run(outer()))
""",
    "the loop turns": """
import asyncio
client = ginnel.AsyncRemoteClient("k", **options)
async def main():
    task = asyncio.create_task(client.api_keys.get("ak_1"))
    gap = 0
    while not queries:
        before = time.monotonic()
        await asyncio.sleep(0)
        gap = max(gap, time.monotonic() - before)
    task.cancel()
    await asyncio.wait([task])
    return gap
print(asyncio.run(main()))
""",
    "Ctrl-C": """
def interrupt():
    while not queries:
        time.sleep(0.005)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
sent = []
client = ginnel.RemoteClient("k", **options)
threading.Thread(target=interrupt).start()
try:
    client.api_keys.get("ak_1")
except KeyboardInterrupt:
    # 0.1 s for the others, 0.2 s for this one.
    print(time.monotonic() - sent[0] - 0.1)
""",
    "timeout behind socks5": """
proxy = socket.create_server(("127.0.0.1", 0))
proxied = options | {"timeout": 0.3, "proxy": f"socks5://127.0.0.1:{proxy.getsockname()[1]}"}
client = ginnel.RemoteClient("k", **proxied)
def call():
    try:
        client.api_keys.get("ak_1")
    except ginnel.APITimeoutError:
        pass
print(timed(call) - 0.3)
""",
    "close behind socks5": """
import asyncio
proxy = socket.create_server(("127.0.0.1", 0))
proxied = options | {"proxy": f"socks5://127.0.0.1:{proxy.getsockname()[1]}"}
client = ginnel.AsyncRemoteClient("k", **proxied)
thread, ended = hanging(lambda: asyncio.run(client.api_keys.get("ak_1")))
print(timed(client.close))
""",
    "Ctrl-C behind socks5": """
def interrupt():
    while not queries:
        time.sleep(0.005)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
sent = []
proxy = socket.create_server(("127.0.0.1", 0))
proxied = options | {"proxy": f"socks5://127.0.0.1:{proxy.getsockname()[1]}"}
client = ginnel.RemoteClient("k", **proxied)
threading.Thread(target=interrupt).start()
try:
    client.api_keys.get("ak_1")
except KeyboardInterrupt:
    print(time.monotonic() - sent[0] - 0.1)
""",
    "another call": """
# The address of the second one needs no resolver.
first = ginnel.RemoteClient("k", **options)
thread, ended = hanging(lambda: first.api_keys.get("ak_1"))
second = ginnel.RemoteClient("k", base_url="http://127.0.0.1:1", max_retries=0)
def call():
    try:
        second.api_keys.get("ak_1")
    except ginnel.APIConnectionError:
        pass
print(timed(call))
""",
}


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that runs another one in a network of its own, whose resolver is 127.0.0.1."""
    folder = tmp_path_factory.mktemp("resolver")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:20 attempts:1\n")
    (folder / "nsswitch.conf").write_text("hosts: dns\n")
    mounts = [f"mount --bind {folder}/{name} /etc/{name}" for name in os.listdir(folder)]
    script = " && ".join([*mounts, 'exec "$@"'])
    command = ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c", script, "sh"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"]).returncode:
        pytest.skip("needs namespaces of its own")
    return command


@pytest.mark.parametrize("name", RESOLVING)
def test_nothing_waits_for_a_resolver_that_hangs(name: str, isolated: list[str]) -> None:
    """Each takes 0.1 s at most, in the quickest of six tries; and the process ends at once."""
    program = NETWORK + RESOLVING[name]
    waits: list[float] = []
    for _ in range(6):
        done = subprocess.run(
            [*isolated, sys.executable, "-c", program + "\nprint(time.monotonic())"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        ended = time.monotonic()
        assert (done.returncode, done.stderr) == (0, "")
        wait, leaving = map(float, done.stdout.split())
        assert ended - leaving < 15
        waits.append(wait)
        if wait < 0.1:
            break

    assert min(waits) < 0.1


# ------------------------------------------------------------ cycles


class App:
    """An application that owns a client, whose hooks are methods of the application."""

    def __init__(self, url: str, kind: Any) -> None:
        self.seen = 0
        self.client = kind(
            "k", base_url=url, on_request=self.note, on_response=self.note, on_retry=self.note
        )

    def note(self, _: object) -> None:
        self.seen += 1


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("kind", [ginnel.RemoteClient, ginnel.AsyncRemoteClient])
def test_clients_whose_hooks_are_methods_are_collected(kind: Any) -> None:
    with StubServer(echo) as server:
        once(App(server.url, kind))
        gc.collect()
        until(lambda: not server.open)
        before = descriptors()
        gone = []
        for _ in range(50):
            app = App(server.url, kind)
            once(app)
            gone.append(weakref.ref(app))
            gone.append(weakref.ref(app.client))
        del app

        gc.collect()

        assert sum(reference() is not None for reference in gone) == 0
        until(lambda: not server.open)
        until(lambda: descriptors() <= before + 2)


def once(app: App) -> None:
    call = app.client.api_keys.get("ak_1")
    if asyncio.iscoroutine(call):
        asyncio.run(call)
    assert app.seen == 2


@pytest.mark.parametrize("kind", [ginnel.RemoteClient, ginnel.AsyncRemoteClient])
@pytest.mark.parametrize("way", ["hook", "resource", "options"])
def test_cycles_of_any_part_are_collected(kind: Any, way: str) -> None:
    """What refers to itself by a hook, a resource or a copy with other options."""

    def leave() -> weakref.ref[Any]:
        holder: list[object] = []

        def hook(_: object) -> None:
            holder.append(None)

        client = kind("k", base_url="http://127.0.0.1:1", on_request=hook)
        parts = {
            "hook": lambda: client,
            "resource": lambda: client.api_keys,
            "options": lambda: client.with_options(timeout=1),
        }
        holder.append(parts[way]())
        return weakref.ref(hook)

    gone = leave()
    gc.collect()

    assert gone() is None


def test_a_closed_loop_with_calls_in_flight_is_collected() -> None:
    """The loop, its tasks, the client and its hooks refer to each other."""
    with StubServer(hold) as server:
        gone: list[weakref.ref[Any]] = []

        def leave() -> None:
            app = App(server.url, ginnel.AsyncRemoteClient)
            loop = asyncio.new_event_loop()
            task = loop.create_task(app.client.api_keys.get("ak_1"))
            loop.set_exception_handler(lambda *_: None)
            before = len(server.requests)

            async def sent() -> None:
                while len(server.requests) == before:
                    await asyncio.sleep(0.005)

            loop.run_until_complete(sent())
            loop.close()
            gone.extend(map(weakref.ref, (app, app.client, loop, task)))

        leave()
        gc.collect()
        before = descriptors()
        for _ in range(10):
            leave()
        gc.collect()

        assert [reference() for reference in gone if reference() is not None] == []
        until(lambda: not server.open)
        until(lambda: descriptors() <= before + 2)


def test_a_client_that_is_dropped_with_a_call_in_flight() -> None:
    """A coroutine that is dropped drops its request."""
    with StubServer(hold) as server:

        async def main() -> None:
            client = ginnel.AsyncRemoteClient("k", base_url=server.url)
            task = asyncio.create_task(client.api_keys.get("ak_1"))
            while not server.requests:
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.wait([task])
            while server.open:
                await asyncio.sleep(0.005)

        asyncio.run(asyncio.wait_for(main(), 20))


# ------------------------------------------------------------ interpreters in the interpreter


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import ginnel

path, url = sys.argv[1:]
second = interpreters.create()
interpreters.run_string(second, f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import ginnel
except ImportError as error:
    said = str(error)
else:
    said = "imported"
with open({path!r}, "w") as file:
    file.write(said)
''')
assert ginnel.RemoteClient("k", base_url=url).api_keys.get("ak_1").id == "ak_1"
interpreters.destroy(second)
assert ginnel.RemoteClient("k", base_url=url).api_keys.get("ak_2").id == "ak_2"
"""


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).name)
def test_a_second_interpreter_is_refused(python: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with StubServer(echo) as server:
        done = run(SUBINTERPRETER, str(said), server.url, python=python)

    assert (done.returncode, done.stderr) == (0, "")
    assert "subinterpreter" in said.read_text().replace("sub-interpreter", "subinterpreter")
