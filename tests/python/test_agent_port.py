"""The agent port under pressure: sockets that do nothing keep no agents out."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import ginnel
from processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ginnel.service_settings import ServiceSettings


@contextlib.contextmanager
def idle_sockets(
    address: tuple[str, int], source: str, count: int
) -> Iterator[list[socket.socket]]:
    """So many connections from an address that send nothing."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = socket.create_connection(address, 30, (source, 0))
            opened.append(stack.enter_context(one))
        yield opened


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


SETTINGS: ServiceSettings = {
    "agent": {"first_byte_timeout": "60s"},
    "max_agent_connections": 16,
}


def test_idle_sockets_of_one_address_keep_no_agent_of_another_out() -> None:
    with ginnel.Service(settings=SETTINGS) as service:
        host, _, port = str(service.agent_addr).rpartition(":")
        with idle_sockets((host, int(port)), "127.0.0.9", 30) as idle:
            wait_until(lambda: sum(map(is_closed, idle)) >= 18, "most of them to be refused")
            with ginnel.Agent(service, timeout=10) as agent:
                assert agent.state == "online"
            # The newest one made room, and not the first.
            assert not is_closed(idle[0])


def test_an_address_with_an_agent_keeps_no_agent_of_another_out() -> None:
    with (
        ginnel.Service(settings=SETTINGS) as service,
        ginnel.Agent(service, timeout=10) as before,
    ):
        host, _, port = str(service.agent_addr).rpartition(":")
        # The agent itself is at this address, which may use the reserve.
        with idle_sockets((host, int(port)), "127.0.0.1", 30) as idle:
            wait_until(lambda: sum(map(is_closed, idle)) >= 10, "the port to be full")
            with socket.create_connection((host, int(port)), 30, ("127.0.0.8", 0)) as other:
                other.settimeout(30)
                other.sendall(b"\x16\x03\x01")
                wait_until(lambda: sum(map(is_closed, idle)) >= 16, "one to make room")
                assert not is_closed(other)
            assert before.state == "online"
