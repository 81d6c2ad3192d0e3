"""A link that can be interrupted: nothing gets through and nothing ends, or all is late."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading

from addresses import free_port

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """What leads the connections of all links."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


class Partition:
    """Leads connections to a target; while it is held, bytes and new connections wait."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._delay = 0.0
        self._flows = asyncio.Event()
        self._flows.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.port = free_port()
        self._server: asyncio.Server | None = None
        self.open()

    def open(self) -> None:
        """Takes connections."""

        async def serve() -> None:
            self._server = await asyncio.start_server(self._lead, "127.0.0.1", self.port)

        asyncio.run_coroutine_threadsafe(serve(), loop()).result(10)

    def refuse(self) -> None:
        """Takes none, as an address where nobody listens."""
        if self._server is not None:
            loop().call_soon_threadsafe(self._server.close)
            self._server = None

    def hold(self) -> None:
        loop().call_soon_threadsafe(self._flows.clear)

    def release(self) -> None:
        self.delay(0)
        loop().call_soon_threadsafe(self._flows.set)

    def delay(self, seconds: float) -> None:
        """Has whatever goes through be late by so much, in each direction."""
        self._delay = seconds

    def reset(self) -> None:
        """Resets all connections."""
        for end in list(self._ends):
            loop().call_soon_threadsafe(reset, end)

    def close(self) -> None:
        self.refuse()
        self.reset()
        self.release()

    async def _lead(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        try:
            far, to_far = await asyncio.open_connection(*self._target)
        except OSError:
            return reset(to_near)
        ends = {to_near, to_far}
        self._ends |= ends
        await asyncio.gather(self._copy(near, to_far, ends), self._copy(far, to_near, ends))
        self._ends -= ends
        return None

    async def _copy(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await asyncio.sleep(self._delay)
                await self._flows.wait()
                target.write(data)
                await target.drain()
        await self._flows.wait()
        for end in ends:
            end.close()


def reset(end: asyncio.StreamWriter) -> None:
    connection = end.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    end.transport.abort()
