"""A proxy that leads every request to one server: absolute addresses, CONNECT and SOCKS5."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Self


@dataclass
class Proxy:
    """Relays bytes; requests with absolute addresses go on as they are."""

    port_of_server: int
    connections: int = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            first = client.recv(1, socket.MSG_PEEK)
            if first == b"\x05":
                greet_socks(client)
            elif first == b"C":
                read_head(client)
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with socket.create_connection(("127.0.0.1", self.port_of_server)) as server:
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                back = threading.Thread(target=relay, args=(server, client), daemon=True)
                back.start()
                relay(client, server)
                back.join()


def relay(source: socket.socket, target: socket.socket) -> None:
    """Copies bytes until one end closes, and closes the other then."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def read_head(client: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += exactly(client, 1)
    return head


def greet_socks(client: socket.socket) -> None:
    """The server's side of RFC 1928, without a password."""
    exactly(client, exactly(client, 2)[1])
    client.sendall(b"\x05\x00")
    kind = exactly(client, 4)[3]
    length = {1: 4, 4: 16}.get(kind) or exactly(client, 1)[0]
    exactly(client, length + 2)
    client.sendall(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")


def exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            raise ConnectionError("the client closed")
        data += more
    return data
