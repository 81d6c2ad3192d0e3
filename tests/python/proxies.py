"""Proxies that lead to one server, and say what they were asked for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

from listener import Listener

OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass
class Proxy(Listener):
    """Takes connections, and leads each to `target` once its handshake is over."""

    target: str
    tls: ssl.SSLContext | None = None
    certificates: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address as that of an HTTP proxy."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def serve(self, connection: socket.socket) -> None:
        stream = self.tls.wrap_socket(connection, server_side=True) if self.tls else connection
        with stream:
            if isinstance(stream, ssl.SSLSocket):
                # Nothing or {}: none, or one that was not looked at.
                self.certificates.append(stream.getpeercert() or {})
            if not self.open(stream):
                # So that what was sent and not read does not take the answer away.
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(65536):
                    pass
                return
            host, port = self.target.removeprefix("https://").removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                back = threading.Thread(target=_copy, args=(server, stream), daemon=True)
                back.start()
                _copy(stream, server)
                back.join()

    def open(self, stream: socket.socket) -> bool:
        """Speaks with a client until the tunnel is open; False when it stays closed."""
        raise NotImplementedError


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copies bytes until one end closes, and closes both then."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _exactly(stream: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


class AddressProxy(Proxy):
    """Leads on requests with absolute addresses as they are."""

    def open(self, stream: socket.socket) -> bool:
        return True


@dataclass
class ConnectProxy(Proxy):
    """Each CONNECT gets the next answer, and after them the last one again."""

    answers: list[bytes] = field(default_factory=lambda: [OPENED])
    heads: list[str] = field(default_factory=list)

    def open(self, stream: socket.socket) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(stream, 1)
        self.heads.append(head.decode())
        answer = self.answers[min(len(self.heads), len(self.answers)) - 1]
        stream.sendall(answer)
        return answer[9:10] == b"2"


@dataclass
class SocksProxy(Proxy):
    """SOCKS5; with a login, no one comes in without it."""

    login: tuple[bytes, bytes] | None = None
    reply: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)

    def open(self, stream: socket.socket) -> bool:
        version, count = _exactly(stream, 2)
        methods = _exactly(stream, count)
        method = 2 if self.login else 0
        if version != 5 or method not in methods:
            stream.sendall(b"\x05\xff")
            return False
        stream.sendall(bytes([5, method]))
        if self.login and not self._log_in(stream):
            return False
        _, _, _, kind = _exactly(stream, 4)
        if kind == 3:
            host = _exactly(stream, _exactly(stream, 1)[0]).decode()
        else:
            family = socket.AF_INET if kind == 1 else socket.AF_INET6
            host = socket.inet_ntop(family, _exactly(stream, 4 if kind == 1 else 16))
        (port,) = struct.unpack("!H", _exactly(stream, 2))
        self.asked.append((host, port))
        stream.sendall(bytes([5, self.reply, 0, 3, 4]) + b"host\x01\xbb")
        return self.reply == 0

    def _log_in(self, stream: socket.socket) -> bool:
        _, length = _exactly(stream, 2)
        user = _exactly(stream, length)
        password = _exactly(stream, _exactly(stream, 1)[0])
        known = (user, password) == self.login
        stream.sendall(b"\x01\x00" if known else b"\x01\x01")
        return known
