"""Generated answers, whole and broken: a client returns what it asked for, or an error.

`GINNEL_TEST_ROUNDS` multiplies the number of examples, and makes them new ones each time.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ginnel
from stub_server import Connection, Request, StubServer

ROUNDS = int(os.environ.get("GINNEL_TEST_ROUNDS", "1"))
STOLEN = {"id": "STOLEN", "uri": "u"}


class Framing(Enum):
    """How an answer says where it ends."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class End(Enum):
    """What a server does after an answer."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"


@dataclass(frozen=True)
class Change:
    """One damage to the framing of an answer, at a place from 0 to 1 of its bytes."""

    kind: str
    place: float
    data: bytes


@dataclass(frozen=True)
class Script:
    """How the server answers one request."""

    framing: Framing = Framing.LENGTH
    filler: int = 0
    chunk_sizes: tuple[int, ...] = (16,)
    interim: tuple[bytes, ...] = ()
    headers: tuple[bytes, ...] = ()
    trailers: tuple[bytes, ...] = ()
    extension: bytes = b""
    zeros: int = 0
    version: bytes = b"1.1"
    coded: bool = False
    cuts: tuple[float, ...] = ()
    pause: float = 0.0
    change: Change | None = None
    surplus: bytes = b""
    end: End = End.KEEP

    @property
    def clean(self) -> bool:
        """The answer is whole, and nothing but it is sent."""
        return self.change is None and not self.surplus

    @property
    def last(self) -> bool:
        """The connection ends with this answer."""
        return self.framing is Framing.CLOSE or not self.clean or self.end is not End.KEEP

    def expected(self, name: str) -> dict[str, Any]:
        return {"id": name, "uri": "u", "filler": name[-1:] * self.filler}

    def parts(self, name: str) -> Iterator[tuple[bytes, bool]]:
        """The bytes of the answer, and whether they are framing rather than body."""
        body = json.dumps(self.expected(name)).encode()
        body = gzip.compress(body, 1, mtime=0) if self.coded else body
        yield from ((part, True) for part in self.interim)
        yield b"\r\n".join([*self.head(len(body)), b"", b""]), True
        if self.framing is not Framing.CHUNKED:
            yield body, False
            return
        sizes = itertools.cycle(self.chunk_sizes)
        while body:
            piece, body = body[: (size := next(sizes))], body[size:]
            yield b"0" * self.zeros + b"%X" % len(piece) + self.extension + b"\r\n", True
            yield piece, False
            yield b"\r\n", True
        yield b"\r\n".join([b"0" + self.extension, *self.trailers, b"", b""]), True

    def head(self, length: int) -> Iterator[bytes]:
        yield b"HTTP/" + self.version + b" 200 OK"
        yield from self.headers
        if self.coded:
            yield b"Content-Encoding: gzip"
        if self.framing is Framing.LENGTH:
            yield b"content-Length:  %d " % length
        elif self.framing is Framing.CHUNKED:
            yield b"Transfer-encoding: Chunked"
        if self.framing is Framing.CLOSE or self.version == b"1.0":
            yield b"Connection: close"

    def sent(self, name: str) -> bytes:
        parts = list(self.parts(name))
        data = b"".join(part for part, _ in parts)
        if self.change is None:
            return data + self.surplus
        if self.change.kind == "cut":
            return data[: int(self.change.place * len(data))]
        return damaged(parts, self.change) + self.surplus


def offsets(parts: list[tuple[bytes, bool]]) -> list[int]:
    return list(itertools.accumulate((len(part) for part, _ in parts), initial=0))[:-1]


def damaged(parts: list[tuple[bytes, bool]], change: Change) -> bytes:
    """The answer with a change of its framing; what is body stays what it is."""
    places = [
        start + offset
        for start, (part, is_framing) in zip(offsets(parts), parts, strict=True)
        if is_framing
        for offset in range(len(part))
    ]
    at = places[min(int(change.place * len(places)), len(places) - 1)]
    data = b"".join(part for part, _ in parts)
    if change.kind == "insert":
        return data[:at] + change.data + data[at:]
    if change.kind == "delete":
        return data[:at] + data[at + 1 :]
    return data[:at] + change.data[:1] + data[at + 1 :]


HEADERS = [b"X-A: 1", b"x-b:", b"Server:   stub  ", b"Set-Cookie: a=b", b"Date: now", b"Vary: *"]
INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"]
CUTS = st.lists(st.floats(0, 1), max_size=5).map(tuple)
PAUSES = st.sampled_from([0.0, 0.0, 0.001, 0.004])


def listed(values: list[bytes], most: int) -> st.SearchStrategy[tuple[bytes, ...]]:
    return st.lists(st.sampled_from(values), max_size=most).map(tuple)


WHOLE = st.builds(
    Script,
    framing=st.sampled_from(Framing),
    filler=st.sampled_from([0, 1, 10, 500, 5_000, 70_000]),
    chunk_sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=4).map(
        # Small pieces of large bodies would take their time.
        lambda sizes: (*sizes, 10_000)
    ),
    interim=listed(INTERIM, 2),
    headers=listed(HEADERS, 6),
    trailers=listed([b"X-Sum: 1", b"X-More: 2"], 2),
    extension=st.sampled_from([b"", b"", b";a=b", b' ;a="b"', b";a"]),
    zeros=st.integers(0, 3),
    coded=st.booleans(),
    cuts=CUTS,
    pause=PAUSES,
    end=st.sampled_from(End),
)
CHANGES = st.builds(
    Change,
    kind=st.sampled_from(["cut", "cut", "insert", "delete", "replace"]),
    place=st.floats(0, 1, exclude_max=True),
    data=st.one_of(
        st.sampled_from([b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"-", b"0", b"9", b"F", b";"]),
        st.binary(min_size=1, max_size=4),
    ),
)


def whole_answer(value: dict[str, Any]) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


SURPLUS = [
    b"x",
    b"\r\n",
    b"0\r\n\r\n",
    whole_answer(STOLEN),
    b"\r\n" + whole_answer(STOLEN),
    whole_answer(STOLEN) * 3,
    whole_answer(STOLEN)[:20],
    b"HTTP/1.1 204 No Content\r\n\r\n" + whole_answer(STOLEN),
    b"HTTP/1.1 100 Continue\r\n\r\n",
]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """A whole answer, one with a surplus, or a broken one."""
    script = draw(WHOLE)
    kind = draw(st.sampled_from(["whole", "whole", "surplus", "change", "change and surplus"]))
    values = dict(vars(script))
    if script.framing is not Framing.CHUNKED and draw(st.integers(0, 5)) == 0:
        values["version"] = b"1.0"
        values["interim"] = ()
    if "change" in kind:
        values["change"] = draw(CHANGES)
    if "surplus" in kind and script.framing is not Framing.CLOSE:
        # What follows later may be taken for the answer to a request that was sent meanwhile.
        values["cuts"] = ()
        values["surplus"] = draw(st.sampled_from(SURPLUS))
    return Script(**values)


@dataclass
class Scripts:
    """What the server does with each request, by its name."""

    by_name: dict[str, Script] = field(default_factory=dict)

    async def respond(self, request: Request, connection: Connection) -> None:
        script = self.by_name.get(request.name, Script())
        data = script.sent(request.name)
        for piece in pieces(data, script.cuts):
            await connection.send(piece)
            if script.pause:
                await asyncio.sleep(script.pause)
        if not script.clean:
            # Whoever waits for more learns that there is none; others see the surplus first.
            await asyncio.sleep(0.01)
        if script.end is End.RESET and script.framing is not Framing.CLOSE:
            await self.reset(script, connection)
        elif script.last or script.version == b"1.0":
            connection.writer.close()

    @staticmethod
    async def reset(script: Script, connection: Connection) -> None:
        if script.clean:
            # A reset takes along what the other side has not read.
            await asyncio.sleep(0.02)
        connection.reset()


def pieces(data: bytes, cuts: tuple[float, ...]) -> Iterator[bytes]:
    places = sorted({int(cut * len(data)) for cut in cuts} | {0, len(data)})
    yield from (data[start:end] for start, end in itertools.pairwise(places))


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StubServer, Scripts]]:
    answers = Scripts()
    with StubServer(answers.respond) as server:
        yield server, answers


def check(name: str, result: object, script: Script, first: bool) -> None:
    """What may come of a request: its own body, or an error if the server gave reason for one."""
    if isinstance(result, BaseException):
        assert isinstance(result, ginnel.APIError), repr(result)
        # What servers did to earlier connections may end an attempt; retries are off here.
        assert not (script.clean and first), (script, result)
    elif result is None:
        # A change can make the status one without a body.
        assert script.change is not None, script
    else:
        assert result == script.expected(name), script


def attempt(client: ginnel.RemoteClient, name: str) -> object:
    try:
        return client.request("GET", f"/api_keys/{name}")
    except Exception as error:
        return error


def call_blocking(url: str, names: list[str]) -> list[object]:
    with ginnel.RemoteClient("k", base_url=url, timeout=10, max_retries=0) as client:
        results = [attempt(client, name) for name in names]
        later = client.with_options(max_retries=3)
        results.append(attempt(later, "final"))
        return results


async def call_awaited(url: str, names: list[str], together: bool) -> list[object]:
    async with ginnel.AsyncRemoteClient("k", base_url=url, timeout=10, max_retries=0) as client:

        async def attempted(name: str) -> object:
            try:
                return await client.request("GET", f"/api_keys/{name}")
            except Exception as error:
                return error

        if together:
            results = list(await asyncio.gather(*map(attempted, names)))
        else:
            results = [await attempted(name) for name in names]
        later = client.with_options(max_retries=3)
        results.append(await later.request("GET", "/api_keys/final"))
        return results


@settings(
    max_examples=60 * ROUNDS,
    deadline=None,
    derandomize=ROUNDS == 1,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.lists(scripts(), min_size=1, max_size=6))
@pytest.mark.parametrize("face", ["blocking", "asyncio", "asyncio together"])
def test_answers_are_right_or_errors(
    served: tuple[StubServer, Scripts], face: str, data: list[Script]
) -> None:
    server, answers = served
    plan = {f"ak_{next(NUMBERS)}": script for script in data}
    answers.by_name = plan
    names = list(plan)

    if face == "blocking":
        results = call_blocking(server.url, names)
    else:
        results = asyncio.run(call_awaited(server.url, names, face != "asyncio"))

    assert results.pop() == Script().expected("final")
    for turn, (name, result) in enumerate(zip(names, results, strict=True)):
        alone = face == "asyncio together"
        untouched = all(script.clean and not script.last for script in data[:turn])
        check(name, result, plan[name], first=alone or untouched)
