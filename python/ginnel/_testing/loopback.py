"""The guard of `ginnel_loopback_only`: while it is on, no connection leaves this machine.

The dialler of the Rust core guards clients, agents and services. An audit hook guards all sockets
of Python (PEP 578), also those of `_socket`, which a replaced method of `socket.socket` would miss.
uvloop connects in C without either, so its methods are replaced.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, contextmanager
from errno import ENETUNREACH
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from .. import _native

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    import pytest

_EVENTS = frozenset(["socket.connect", "socket.sendto", "socket.sendmsg"])
# Addresses of these families are on this machine.
_LOCAL_FAMILIES = {
    getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK", "AF_ALG") if hasattr(socket, name)
}


class _Guard:
    """The number of guards that are on, and whether the process has the audit hook."""

    count = 0
    has_hook = False


@contextmanager
def loopback_only(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forbid connections and datagrams to other machines, in all threads of this process.

    `patch` replaces methods of uvloop, and is undone by the caller.
    """
    if not _Guard.has_hook:
        # A hook cannot be removed.
        sys.addaudithook(_audit)
        _Guard.has_hook = True
    with ExitStack() as guarded:
        before = _native.loopback_only(True)
        guarded.callback(_native.loopback_only, before)
        guarded.enter_context(_counted())
        _guard_uvloop(patch)
        yield


@contextmanager
def _counted() -> Iterator[None]:
    _Guard.count += 1
    try:
        yield
    finally:
        _Guard.count -= 1


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise for an address that is not on this machine."""
    if not _Guard.count or event not in _EVENTS:
        return
    used, address = arguments
    # `sendmsg` without an address sends where the socket is connected to.
    if address is None or used.family in _LOCAL_FAMILIES:
        return
    if used.family not in (socket.AF_INET, socket.AF_INET6):
        raise _refusal(address)
    if isinstance(address, tuple) and address:
        _check(address[0])


def _check(host: object) -> None:
    """Raise for a host that is not this machine; resolves names."""
    text = bytes(host).decode() if isinstance(host, (bytes, bytearray)) else str(host)
    if _is_loopback(text):
        return
    if not _is_address(text):
        try:
            found = socket.getaddrinfo(text, None)
        except (OSError, UnicodeError):
            found = []
        if found and all(_is_loopback(str(entry[4][0])) for entry in found):
            return
    raise _refusal(text)


def _is_loopback(text: str) -> bool:
    """Return true for a loopback address in any of its forms; false for a name."""
    if not _is_address(text):
        return False
    address = ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _refusal(host: object) -> OSError:
    return OSError(ENETUNREACH, f"{host} is not this machine, and ginnel_loopback_only is on")


def _guard_uvloop(patch: pytest.MonkeyPatch) -> None:
    """Replace the methods of uvloop that connect, if it is installed."""
    try:
        from uvloop import Loop
    except ImportError:
        return
    connect, datagrams = Loop.create_connection, Loop.create_datagram_endpoint

    async def create_connection(
        self: Any, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        await _check_for_loop(self, host)
        return await connect(self, protocol_factory, host, port, **options)

    async def create_datagram_endpoint(
        self: Any,
        protocol_factory: Any,
        local_addr: Any = None,
        remote_addr: Any = None,
        **options: Any,
    ) -> Any:
        if remote_addr is not None:
            await _check_for_loop(self, remote_addr[0])

        def guarded() -> _GuardedProtocol:
            return _GuardedProtocol(protocol_factory())

        opened: Awaitable[Any] = datagrams(self, guarded, local_addr, remote_addr, **options)
        transport, protocol = await opened
        return _GuardedTransport(transport), protocol.guarded

    patch.setattr(Loop, "create_connection", create_connection)
    patch.setattr(Loop, "create_datagram_endpoint", create_datagram_endpoint)


async def _check_for_loop(loop: Any, host: object) -> None:
    """Check a host without holding up its loop."""
    if host is not None:
        await loop.run_in_executor(None, _check, host)


class _GuardedTransport:
    """A transport of datagrams that sends none to another machine."""

    def __init__(self, guarded: Any) -> None:
        self.guarded = guarded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.guarded, name)

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send a datagram."""
        if addr is not None:
            _check(addr[0])
        self.guarded.sendto(data, addr)


class _GuardedProtocol:
    """A protocol of datagrams whose transport is guarded."""

    def __init__(self, guarded: Any) -> None:
        self.guarded = guarded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.guarded, name)

    def connection_made(self, transport: Any) -> None:
        """Give the protocol the guarded transport."""
        self.guarded.connection_made(_GuardedTransport(transport))
