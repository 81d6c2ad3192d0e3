"""A reset on one side of a connection is one on the other, on each way; an orderly end stays so."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

import ginnel
from addresses import free_port
from listener import Listener
from processes import wait_until

End = Literal["end", "reset"]
Talk = Callable[[socket.socket], None]

TCP_CLOSE = 7
HANDSHAKE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def head_of(connection: socket.socket) -> bytes:
    """The head of a message, and no byte behind it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, "closed in the head"
        head += byte
    return head


def rest_of(connection: socket.socket) -> tuple[bytes, End]:
    """What a connection brings, and how it ends."""
    got = b""
    try:
        while data := connection.recv(65536):
            got += data
    except ConnectionResetError:
        return got, "reset"
    except ssl.SSLEOFError:
        # OpenSSL calls a reset the end of a file. The kernel closes a connection that was reset.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return got, "reset" if state == TCP_CLOSE else "end"
    return got, "end"


class TlsVisitor:
    """A visitor over TLS who can end its own direction, as `ssl.SSLSocket` cannot."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self.connection = connection
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.stream = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        self.complete(self.stream.do_handshake)

    def complete(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self.connection.sendall(self.outgoing.read())
                if received := self.connection.recv(65536):
                    self.incoming.write(received)
                else:
                    self.incoming.write_eof()
            else:
                self.connection.sendall(self.outgoing.read())
                return result

    def sendall(self, data: bytes) -> None:
        self.complete(lambda: self.stream.write(data))

    def end(self) -> None:
        """Sends close_notify, and goes on reading."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.stream.unwrap()
        self.connection.sendall(self.outgoing.read())

    def read(self, size: int) -> bytes:
        """At most so many bytes; none behind close_notify."""
        try:
            return bytes(self.complete(lambda: self.stream.read(size)))
        except ssl.SSLZeroReturnError:
            return b""

    def read_exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size and (more := self.read(size - len(got))):
            got += more
        return got


@dataclass
class Scripted(Listener):
    """Speaks with each client as the test wants, behind a handshake for those that speak HTTP."""

    talk: Talk = field(default=lambda _: None)

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        if connection.recv(4, socket.MSG_PEEK) == b"GET ":
            assert head_of(connection)
            connection.sendall(HANDSHAKE)
        self.talk(connection)


@dataclass
class Ways:
    """A service and an agent that lead to one local service on many ways."""

    service: ginnel.Service
    local: ginnel.AgentClient
    upstream: Scripted
    ports: dict[str, int]

    def connect(self, way: str) -> socket.socket:
        """A visitor, who has said something already so that the local service knows of it."""
        connection = socket.create_connection(("127.0.0.1", self.ports[way]), 20)
        if way == "tls":
            context = ssl.create_default_context(cadata=self.service.ca_pem)
            connection = context.wrap_socket(
                connection, server_hostname="localhost", suppress_ragged_eofs=False
            )
        if way.startswith("websocket"):
            host = f"127.0.0.1:{self.ports[way]}"
            connection.sendall(
                f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            assert head_of(connection).startswith(b"HTTP/1.1 101 ")
        else:
            connection.sendall(b"hello")
        return connection


TLS_EDGE = "halves.example.test"
MUCH = b"x" * 300_000
WAYS = ["tcp", "tls", "edge", "static", "websocket", "websocket inspected"]


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    with ExitStack() as stack:
        upstream = stack.enter_context(Scripted())
        service = stack.enter_context(ginnel.Service())
        local = stack.enter_context(ginnel.Agent(service)).client()
        remote = stack.enter_context(service.client())
        ports: dict[str, int] = {}

        def start(name: str, **options: Any) -> None:
            started = local.tunnels.start(
                addr=upstream.port, name=name.replace(" ", "-"), **options
            )
            ports[name] = urlsplit(started.public_url).port or 0

        start("tcp", proto="tcp")
        terminate: Any = {"on_tcp_connect": [{"actions": [{"type": "terminate-tls"}]}]}
        start("tls", proto="tls", traffic_policy=terminate)
        start("websocket", proto="http", inspect=False)
        start("websocket inspected", proto="http")
        local.tunnels.start(addr=upstream.port, name="labeled", labels=["to=resets"])
        group = remote.backends.tunnel_group.create(labels={"to": "resets"})
        static = remote.backends.static.create(address=f"127.0.0.1:{upstream.port}")
        for way, backend in [("edge", group.id), ("static", static.id)]:
            ports[way] = free_port()
            remote.edges.tcp.create(
                hostports=[f"localhost:{ports[way]}"], backend={"backend_id": backend}
            )
        remote.edges.tls.create(
            hostports=[f"{TLS_EDGE}:443"],
            backend={"backend_id": static.id},
            tls_termination={"terminate_at": "edge"},
        )
        ports["tls edge"] = urlsplit(service.https_url or "").port or 0
        yield Ways(service, local, upstream, ports)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "sent", [b"", b"half a file", b"x" * 300_000], ids=["nothing", "some", "much"]
)
def test_a_reset_of_the_local_service_is_one_for_the_visitor(
    ways: Ways, way: str, sent: bytes
) -> None:
    arrived: Queue[None] = Queue()

    def talk(connection: socket.socket) -> None:
        connection.sendall(sent)
        # The kernel forgets what is not sent yet.
        arrived.get(timeout=20)
        reset(connection)

    ways.upstream.talk = talk
    with ways.connect(way) as visitor:
        got = b""
        while len(got) < len(sent):
            got += visitor.recv(65536)
        arrived.put(None)

        assert (got, *rest_of(visitor)) == (sent, b"", "reset")


@pytest.mark.parametrize("way", WAYS)
def test_a_reset_of_the_visitor_is_one_for_the_local_service(ways: Ways, way: str) -> None:
    heard: Queue[tuple[bytes, End]] = Queue()
    begun: Queue[None] = Queue()

    def talk(connection: socket.socket) -> None:
        got = connection.recv(5, socket.MSG_WAITALL)
        begun.put(None)
        rest, end = rest_of(connection)
        heard.put((got + rest, end))

    ways.upstream.talk = talk
    visitor = ways.connect(way)
    if way.startswith("websocket"):
        visitor.sendall(b"hello")
    begun.get(timeout=20)
    reset(visitor)

    assert heard.get(timeout=20) == (b"hello", "reset")


@pytest.mark.parametrize("way", ["tcp", "edge", "static"])
def test_a_reset_before_any_byte_is_one_or_no_connection(ways: Ways, way: str) -> None:
    heard: Queue[tuple[bytes, End]] = Queue()
    ways.upstream.talk = lambda connection: heard.put(rest_of(connection))

    for _ in range(20):
        reset(socket.create_connection(("127.0.0.1", ways.ports[way]), 20))
    with socket.create_connection(("127.0.0.1", ways.ports[way]), 20) as last:
        last.sendall(b"last")
        last.shutdown(socket.SHUT_WR)
        assert rest_of(last) == (b"", "end")

    wait_until(lambda: ways.upstream.closed == ways.upstream.connections, "all are over")
    seen = [heard.get_nowait() for _ in range(heard.qsize())]
    assert seen.count((b"last", "end")) == 1
    assert set(seen) <= {(b"last", "end"), (b"", "reset")}


@pytest.mark.parametrize("way", WAYS)
def test_an_orderly_end_stays_one(ways: Ways, way: str) -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(b"a whole file")
        connection.shutdown(socket.SHUT_WR)
        # Closing on unread bytes would be a reset.
        rest_of(connection)

    ways.upstream.talk = talk
    with ways.connect(way) as visitor:
        assert rest_of(visitor) == (b"a whole file", "end")


@pytest.mark.parametrize("way", [way for way in WAYS if way != "tls"])
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_connection_that_is_closed_half_goes_on(ways: Ways, way: str, is_broken: bool) -> None:
    """A reset behind it is still one."""
    arrived: Queue[None] = Queue()

    def talk(connection: socket.socket) -> None:
        rest, end = rest_of(connection)
        connection.sendall(b"%d bytes, %s" % (len(rest), end.encode()))
        if is_broken:
            arrived.get(timeout=20)
            reset(connection)

    ways.upstream.talk = talk
    with ways.connect(way) as visitor:
        if way.startswith("websocket"):
            visitor.sendall(b"hello")
        visitor.shutdown(socket.SHUT_WR)
        got = visitor.recv(12, socket.MSG_WAITALL)
        arrived.put(None)

        assert (got, *rest_of(visitor)) == (b"5 bytes, end", b"", "reset" if is_broken else "end")


@pytest.mark.parametrize("way", ["tls", "tls edge"])
@pytest.mark.parametrize("first", ["visitor", "service"])
def test_each_direction_over_tls_has_its_own_end(ways: Ways, way: str, first: str) -> None:
    """Traffic goes both ways before, and on in the other direction behind the first end."""
    heard: Queue[tuple[bytes, End]] = Queue()
    ended: Queue[None] = Queue()

    def talk(connection: socket.socket) -> None:
        begin = connection.recv(5, socket.MSG_WAITALL)
        connection.sendall(b"begun")
        if first == "service":
            connection.sendall(MUCH)
            connection.shutdown(socket.SHUT_WR)
            heard.put(rest_of(connection))
        else:
            rest, end = rest_of(connection)
            heard.put((begin + rest, end))
            ended.get(timeout=20)
            connection.sendall(MUCH)

    ways.upstream.talk = talk
    name = TLS_EDGE if way == "tls edge" else "localhost"
    context = ssl.create_default_context(cadata=ways.service.ca_pem)
    with socket.create_connection(("127.0.0.1", ways.ports[way]), 20) as connection:
        visitor = TlsVisitor(connection, context, name)
        visitor.sendall(b"hello")
        assert visitor.read_exactly(5) == b"begun"
        if first == "service":
            assert visitor.read_exactly(len(MUCH) + 1) == MUCH
            visitor.sendall(MUCH)
            visitor.end()
            assert heard.get(timeout=20) == (MUCH, "end")
        else:
            visitor.end()
            assert heard.get(timeout=20) == (b"hello", "end")
            ended.put(None)
            assert visitor.read_exactly(len(MUCH) + 1) == MUCH


class Resetting(Listener):
    """Resets each connection as early as it can."""

    def _accept(self) -> None:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            while True:
                self._listener.accept()[0].close()


@pytest.mark.parametrize("way", ["tunnel", "static"])
def test_an_immediate_reset_is_never_an_orderly_end(ways: Ways, way: str) -> None:
    """It may arrive before the connection to the local service is known to be open."""
    with Resetting() as upstream, ways.service.client() as remote:
        if way == "tunnel":
            tunnel = ways.local.tunnels.start(addr=upstream.port, proto="tcp", name="resetting")
            port = urlsplit(tunnel.public_url).port or 0
        else:
            port = free_port()
            backend = remote.backends.static.create(address=upstream.address)
            remote.edges.tcp.create(
                hostports=[f"localhost:{port}"], backend={"backend_id": backend.id}
            )
        ends = []
        for _ in range(100):
            try:
                with socket.create_connection(("127.0.0.1", port), 20) as visitor:
                    ends.append(rest_of(visitor))
            except ConnectionResetError:
                ends.append((b"", "reset"))

    assert ends == [(b"", "reset")] * 100


def test_a_service_that_has_responded_may_leave_the_rest_unread(ways: Ways) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(5, socket.MSG_WAITALL)
        connection.sendall(b"413")
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    ways.upstream.talk = talk
    with ways.connect("tcp") as visitor:
        assert rest_of(visitor) == (b"413", "end")
        try:
            for _ in range(100):
                visitor.sendall(b"x" * 65536)
        except OSError:
            pass
