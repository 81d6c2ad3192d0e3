"""What servers and proxies of the tests have in common: a listener, and a thread a connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Self


async def until_closed(server: Listener, connections: int) -> None:
    """Waits until so many of its connections are over."""
    deadline = time.monotonic() + 30
    while server.closed < connections:
        assert time.monotonic() < deadline, f"{server.closed} of {connections} are over"
        await asyncio.sleep(0.001)


@dataclass
class Listener:
    """Serves each connection in a thread of its own, until the block ends."""

    connections: int = field(default=0, kw_only=True)
    closed: int = field(default=0, kw_only=True)
    """How many connections are over."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                # Otherwise a second answer waits until the first one is acknowledged.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            self.serve(connection)
        self.closed += 1

    def serve(self, connection: socket.socket) -> None:
        """Speaks with one client; the connection is closed afterwards."""
        raise NotImplementedError
