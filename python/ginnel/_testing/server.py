"""Serves what a test hands to `ginnel_tunnel`: a WSGI or ASGI application, or a request handler."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

_Message = MutableMapping[str, Any]
_Asgi = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]],
    Awaitable[None],
]


@contextmanager
def served(target: object) -> Iterator[str | int]:
    """What an agent shall forward to for the target: an address as it is, or that of a server."""
    if isinstance(target, int | str):
        yield target
        return
    with ExitStack() as opened:
        server = opened.enter_context(_server(target, opened))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        opened.callback(thread.join)
        opened.callback(server.shutdown)
        yield server.server_address[1]


def _server(target: Any, opened: ExitStack) -> ThreadingHTTPServer | WSGIServer:
    address = ("127.0.0.1", 0)
    if isinstance(target, type) and issubclass(target, BaseHTTPRequestHandler):
        return ThreadingHTTPServer(address, target)
    if not callable(target):
        kinds = "a port, an address, a WSGI or ASGI application, or a class of request handlers"
        raise TypeError(f"a tunnel leads to {kinds}, not to {type(target).__name__}")
    if inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__):
        return ThreadingHTTPServer(address, _asgi_handler(target, opened.enter_context(_loop())))
    server = _ThreadingWsgi(address, _SilentWsgi)
    server.set_app(target)
    return server


class _ThreadingWsgi(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentWsgi(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tests have their own output."""


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop on a thread of its own, on which an application lives for all its requests."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _asgi_handler(app: _Asgi, loop: asyncio.AbstractEventLoop) -> type[BaseHTTPRequestHandler]:
    class _Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            # One request for each connection: a response without a length ends with it.
            self.close_connection = True
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asyncio.run_coroutine_threadsafe(self.answer(body), loop).result()

        async def answer(self, body: bytes) -> None:
            sent = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> _Message:
                return sent.pop() if sent else {"type": "http.disconnect"}

            async def send(message: _Message) -> None:
                if message["type"] == "http.response.start":
                    self.send_response_only(message["status"])
                    for name, value in message.get("headers", ()):
                        self.send_header(name.decode("latin-1"), value.decode("latin-1"))
                    self.send_header("connection", "close")
                    self.end_headers()
                else:
                    self.wfile.write(message.get("body", b""))

            await app(self.scope(), receive, send)

        def scope(self) -> _Message:
            path, _, query = self.path.partition("?")
            return {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "1.1",
                "method": self.command,
                "scheme": "http",
                "path": unquote(path),
                "raw_path": path.encode("latin-1"),
                "query_string": query.encode("latin-1"),
                "root_path": "",
                "headers": [
                    (name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in self.headers.items()
                ],
                "client": self.client_address[:2],
                "server": self.connection.getsockname()[:2],
            }

    return _Handler
