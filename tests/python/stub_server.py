"""A server for many connections: a function decides what each request gets, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakSet

from server import answer


@dataclass
class Request:
    """A request, and where it stands on its connection; the first there is 1."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    turn: int

    @property
    def name(self) -> str:
        """The identifier that the request asks for."""
        return self.target.split("?")[0].rsplit("/", 1)[-1]


@dataclass(eq=False)
class Connection:
    """The server's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    turns: int = 0

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection so that the other side gets a reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.transport.abort()

    async def closed(self) -> None:
        """Waits until the other side has closed."""
        with contextlib.suppress(OSError):
            while await self.reader.read(65536):
                pass


Respond = Callable[[Request, Connection], Awaitable[None]]


@dataclass(eq=False)
class StubServer:
    """Runs in a thread with a loop of its own; `respond` answers, or misbehaves."""

    respond: Respond
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: set[Connection] = field(default_factory=set)
    peak: int = 0
    """The largest number of connections that were open at once."""

    def __enter__(self) -> Self:
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self.loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._listener.close()

    def _run(self, started: threading.Event) -> None:
        async def serve() -> asyncio.Server:
            return await asyncio.start_server(
                self._serve, sock=self._listener, ssl=self.tls, limit=1 << 24
            )

        with contextlib.closing(self.loop):
            server = self.loop.run_until_complete(serve())
            self.loop.call_soon(started.set)
            self.loop.run_forever()
            self.loop.run_until_complete(close(server))
            for connection in list(self.open):
                connection.close()
            self.loop.run_until_complete(self._end_tasks())
            self.loop.run_until_complete(self._abort_all())

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _abort_all(self) -> None:
        """Closes what has bytes to send that nobody reads, and waits until that is done."""
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        connection = Connection(reader, writer)
        self.connections += 1
        self._writers.add(writer)
        async with self._listed(connection):
            while request := await read_request(connection):
                self.requests.append(request)
                await self.respond(request, connection)
                if writer.transport.is_closing():
                    return

    @asynccontextmanager
    async def _listed(self, connection: Connection) -> AsyncIterator[None]:
        self.open.add(connection)
        self.peak = max(self.peak, len(self.open))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                yield
        finally:
            self.open.discard(connection)
            connection.writer.close()

    def close_idle(self) -> None:
        """Closes all connections, and returns when the other side can know."""
        self.run(self._close_all())

    async def _close_all(self) -> None:
        for connection in list(self.open):
            connection.close()
        while self.open:
            await asyncio.sleep(0.001)

    def run(self, work: Any) -> Any:
        """Runs a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)


async def close(server: asyncio.Server) -> None:
    """Takes no more connections, and lets those that were taken begin, so that they can be ended.

    A server that is closed, or a task that is cancelled, before a connection's first step leaves
    its transport to the collector.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(10):
        await asyncio.sleep(0)
    server.close()


async def read_request(connection: Connection) -> Request | None:
    """The next request of a connection, if there is one."""
    try:
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, OSError):
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await connection.reader.readexactly(int(headers.get("content-length", 0)))
    connection.turns += 1
    return Request(method, target, headers, body, connection.turns)


def key_of(request: Request) -> bytes:
    """The answer to a request for an API key: an object with its identifier."""
    if request.method == "POST":
        return answer(201, {"id": json.loads(request.body)["description"], "uri": "u"})
    return answer(200, {"id": request.name, "uri": "u"})


async def echo(request: Request, connection: Connection) -> None:
    """Answers with the identifier that was asked for."""
    await connection.send(key_of(request))


async def hold(_: Request, connection: Connection) -> None:
    """Never answers."""
    await connection.closed()


async def lose(_: Request, connection: Connection) -> None:
    """Closes without a response."""
    connection.close()


def until(met: Callable[[], object], seconds: float = 20) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.005)


async def until_async(met: Callable[[], object], seconds: float = 20) -> None:
    """Waits for a condition while the loop runs."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "the condition was not met in time"
        await asyncio.sleep(0.005)
