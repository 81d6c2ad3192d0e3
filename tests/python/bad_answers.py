"""Upstreams that send what they should not, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from stub_server import close

MARK = b"STOLEN"
FAKE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nSet-Cookie: s=STOLEN\r\n\r\nSTOLEN"
FAKE_204 = b"HTTP/1.1 204 No Content\r\nSet-Cookie: s=STOLEN\r\n\r\n"
FAKE_101 = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nSTOLEN"
FAKE_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nSTOLEN\r\n0\r\n\r\n"
FAKE_UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nX: STOLEN\r\n\r\nSTOLEN"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
FIVE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
RIGHT = FIVE + b"right"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
RIGHT_CHUNKED = CHUNKED + b"5\r\nright\r\n0\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
NOT_MODIFIED = b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n'


class End(Enum):
    """How a bad answer ends its connection, if it does."""

    CLOSE = "close"
    RESET = "reset"


@dataclass(frozen=True)
class Case:
    """What an upstream sends: bytes, pauses in seconds, and ends."""

    name: str
    steps: tuple[bytes | float | End, ...]
    method: str | None = None
    """The method of the request that it answers; GET and POST in turn otherwise."""
    body: bytes | None = None
    """The body of a whole answer at the beginning, which the visitor must get."""


# Answers that are whole, and the methods of requests that they are for.
WHOLE: dict[str, tuple[bytes, str | None]] = {
    "length": (RIGHT, None),
    "chunks": (RIGHT_CHUNKED, None),
    "trailers": (CHUNKED + b"5\r\nright\r\n0\r\nX-Sum: 1\r\n\r\n", None),
    "no body": (OK + b"Content-Length: 0\r\n\r\n", None),
    "204": (NO_CONTENT, None),
    "304": (NOT_MODIFIED, "GET"),
    "HEAD": (FIVE, "HEAD"),
    "HEAD of chunks": (CHUNKED, "HEAD"),
    "after 100": (CONTINUE + RIGHT, None),
    "after 103": (HINTS + RIGHT, None),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + RIGHT[17:], None),
    "last": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nright", None),
}

# What follows it.
SURPLUS: dict[str, bytes] = {
    "one byte": b"x",
    "a line end": b"\r\n",
    "text": b"STOLEN",
    "much text": b"STOLEN" * 20_000,
    "zeros": bytes(100),
    "an answer": FAKE,
    "two answers": FAKE + FAKE,
    "an empty answer": FAKE_204,
    "an answer in chunks": FAKE_CHUNKED,
    "an answer until the close": FAKE_UNTIL_CLOSE,
    "a switch": FAKE_101,
    "a provisional answer": CONTINUE + FAKE,
    "a line end and an answer": b"\r\n" + FAKE,
    "half an answer": FAKE[:30],
    "a last chunk": b"0\r\n\r\n" + FAKE,
    "a frame of HTTP/2": b"\0\0\0\4\0\0\0\0\0" + FAKE,
}

# Answers that are wrong in themselves; each is followed by another one, and by the end.
WRONG: dict[str, bytes] = {
    "a length that is too short": OK + b"Content-Length: 3\r\n\r\nright",
    "a length that is too long": OK + b"Content-Length: 500\r\n\r\nright",
    "a length and chunks": OK
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "chunks and a length": OK
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "the same length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nright",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 2\r\n\r\nright",
    "a list of lengths": OK + b"Content-Length: 5, 5\r\n\r\nright",
    "a negative length": OK + b"Content-Length: -5\r\n\r\nright",
    "a length with a sign": OK + b"Content-Length: +5\r\n\r\nright",
    "a hexadecimal length": OK + b"Content-Length: 0x5\r\n\r\nright",
    "a huge length": OK + b"Content-Length: 99999999999999999999\r\n\r\nright",
    "an empty length": OK + b"Content-Length: \r\n\r\nright",
    "chunks twice": OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "two encodings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "another encoding": OK + b"Transfer-Encoding: identity\r\n\r\nright",
    "chunks of HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + RIGHT_CHUNKED[17:],
    "a folded header": OK + b"X: a\r\n b\r\nContent-Length: 5\r\n\r\nright",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nright",
    "a bare carriage return": OK + b"X: a\rContent-Length: 2\r\nContent-Length: 5\r\n\r\nright",
    "a negative chunk": CHUNKED + b"-5\r\nright\r\n0\r\n\r\n",
    "a huge chunk": CHUNKED + b"ffffffffffffffff\r\nright\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"0x5\r\nright\r\n0\r\n\r\n",
    "a chunk that is too long": CHUNKED + b"5\r\nright!\r\n0\r\n\r\n",
    "a chunk without an end": CHUNKED + b"5\r\nright0\r\n\r\n",
    "a chunk with junk": CHUNKED + b"5 junk\r\nright\r\n0\r\n\r\n",
    "chunks without the last": CHUNKED + b"5\r\nright\r\n",
    "a trailer with a length": CHUNKED + b"5\r\nright\r\n0\r\nContent-Length: 9\r\n\r\n",
    "a trailer without an end": CHUNKED + b"5\r\nright\r\n0\r\nX: 1\r\n",
    "a switch that nobody asked for": FAKE_101[:-6],
    "provisional answers without end": HINTS * 70,
    "a provisional answer with a body": b"HTTP/1.1 103 Hints\r\nContent-Length: 5\r\n\r\nright",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTTP/0.9": b"<html>right</html>",
    "HTTP/2 in the status line": b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nright",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nright",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nright",
    "a status of letters": b"HTTP/1.1 abc OK\r\nContent-Length: 5\r\n\r\nright",
    "status 0": b"HTTP/1.1 000 Zero\r\nContent-Length: 5\r\n\r\nright",
    "status 999": b"HTTP/1.1 999 Odd\r\nContent-Length: 5\r\n\r\nright",
    "a zero in a header": OK + b"X: a\0b\r\nContent-Length: 5\r\n\r\nright",
    "a zero in a name": OK + b"X\0Y: a\r\nContent-Length: 5\r\n\r\nright",
    "a line without a colon": OK + b"nothing\r\nContent-Length: 5\r\n\r\nright",
    "a space before the colon": OK + b"Content-Length : 5\r\n\r\nright",
    "an endless header": OK + b"X: " + b"a" * 300_000 + b"\r\n\r\n",
    "too many headers": OK + b"X: a\r\n" * 200 + b"Content-Length: 5\r\n\r\nright",
    "line ends first": b"\r\n\r\n" + RIGHT,
    "text first": b"right\r\n" + RIGHT,
}

# How answers break off.
CUT: dict[str, tuple[bytes | float | End, ...]] = {
    "a reset at once": (End.RESET,),
    "a reset in the head": (OK, End.RESET),
    "a reset in the body": (FIVE + b"ri", 0.02, End.RESET),
    "a reset in a chunk": (CHUNKED + b"5\r\nri", 0.02, End.RESET),
    "a reset after the answer": (RIGHT, End.RESET),
    "a close at once": (End.CLOSE,),
    "a close in the head": (OK, End.CLOSE),
    "a close in the body": (FIVE + b"ri", End.CLOSE),
    "a close in a chunk": (CHUNKED + b"5\r\nri", End.CLOSE),
    "a close after the answer": (RIGHT, End.CLOSE),
    "a surplus and a close": (RIGHT + FAKE, End.CLOSE),
    "a surplus and a reset": (RIGHT + FAKE, End.RESET),
}


def surplus_cases() -> Iterator[Case]:
    for before in WHOLE:
        yield surplus(f"{before}, then an answer", before, FAKE)
    for after, more in SURPLUS.items():
        yield surplus(f"length, then {after}", "length", more)
    for before in ("204", "304", "HEAD"):
        yield surplus(f"{before} with a body", before, b"right")
    for pause in (0.0, 0.02, 0.1):
        for before in ("length", "chunks", "204", "HEAD"):
            name = f"{before}, {pause * 1000:.0f} ms later an answer"
            yield surplus(name, before, pause, FAKE)
    for after in ("one byte", "a line end", "text"):
        yield surplus(f"length, 20 ms later {after}", "length", 0.02, SURPLUS[after])


def surplus(name: str, before: str, *after: bytes | float) -> Case:
    """A whole answer, and what follows it, in one piece where there is no pause."""
    answer, method = WHOLE[before]
    body = b"right" if b"right" in answer else b""
    if isinstance(after[0], bytes):
        return Case(name, (answer + after[0],), method, body)
    return Case(name, (answer, *after), method, body)


CASES = [
    *surplus_cases(),
    *(Case(name, (answer + FAKE, 0.05, End.CLOSE)) for name, answer in WRONG.items()),
    *(Case(name, steps) for name, steps in CUT.items()),
]


@dataclass
class Upstream:
    """Sends its bad answer to each request for a path that ends in `bad`, and to others their name.

    The name of a request is what its header `X-Name` says; it comes back in the body.
    """

    case: Case
    connections: int = 0
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a bad answer was sent with all that follows it."""

    async def __aenter__(self) -> Self:
        self._serving: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await close(self._server)
        for writer in self._serving.values():
            writer.transport.abort()
        tasks = [task for task in self._serving if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving[asyncio.current_task()] = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                await reader.readexactly(int(header(head, "content-length") or 0))
                if target.endswith("bad"):
                    if not await self._misbehave(writer):
                        break
                else:
                    writer.write(echo(method, header(head, "x-name") or ""))
                await writer.drain()
        writer.close()

    async def _misbehave(self, writer: asyncio.StreamWriter) -> bool:
        """Sends the bad answer; says whether the connection stays."""
        try:
            for step in self.case.steps:
                if isinstance(step, bytes):
                    writer.write(step)
                    await writer.drain()
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    if step is End.RESET:
                        linger = struct.pack("ii", 1, 0)
                        raw = writer.get_extra_info("socket")
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return False
            await arrival(writer)
            return True
        finally:
            self.sent.set()


async def arrival(writer: asyncio.StreamWriter) -> None:
    """Waits until the other side has acknowledged all that was sent.

    A busy kernel may deliver what is sent later before it.
    """
    raw = writer.get_extra_info("socket")
    for _ in range(100):
        # What was sent to a connection that is closed is never acknowledged.
        if writer.is_closing() or not any(fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4))):
            return
        await asyncio.sleep(0.001)


def header(head: str, name: str) -> str | None:
    """The value of a header in a head."""
    for line in head.split("\r\n")[1:]:
        at, _, value = line.partition(":")
        if at.lower() == name:
            return value.strip()
    return None


def echo(method: str, name: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n"
    return (head + ("" if method == "HEAD" else name)).encode()
