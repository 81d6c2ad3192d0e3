"""Addresses of this machine that nobody takes while a test does not use them.

A port of 127.0.0.1 that is free now may be given a moment later to whoever asks for any free one.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys

_numbers = itertools.count(os.getpid() * 64)


def own_host() -> str:
    """An address where nobody else listens: a service that was there finds its ports free again."""
    if sys.platform != "linux":
        return "127.0.0.1"
    # Above those that tests name, such as 127.0.0.2.
    return ".".join(map(str, (127 << 24 | next(_numbers) & 0xFFFFFF).to_bytes(4)))


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens; it is none of those that systems choose from."""
    while True:
        port = 10_000 + next(_numbers) % 22_000
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
