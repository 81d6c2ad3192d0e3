"""A client that finds every host at one service, without any name being resolved."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.request import (
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)


def opener(http: str | None, https: str | None, authority: str) -> OpenerDirector:
    """A client that finds every host at these two addresses."""
    trust = ssl.create_default_context(cadata=authority)
    return build_opener(ProxyHandler({}), _Plain(http), _Secure(https, trust))


def _connect(address: str | None, timeout: Any) -> socket.socket:
    if address is None:
        raise OSError("the service does not listen for this scheme")
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout)


class _Plain(HTTPHandler):
    def __init__(self, address: str | None) -> None:
        super().__init__()
        self._address = address

    def http_open(self, req: Request) -> HTTPResponse:
        address = self._address

        class _Connection(HTTPConnection):
            def connect(self) -> None:
                self.sock = _connect(address, self.timeout)

        return self.do_open(_Connection, req)


class _Secure(HTTPSHandler):
    def __init__(self, address: str | None, trust: ssl.SSLContext) -> None:
        super().__init__()
        self._address = address
        self._trust = trust

    def https_open(self, req: Request) -> HTTPResponse:
        address, trust = self._address, self._trust

        class _Connection(HTTPSConnection):
            def connect(self) -> None:
                plain = _connect(address, self.timeout)
                self.sock = trust.wrap_socket(plain, server_hostname=self.host)

        return self.do_open(_Connection, req)
