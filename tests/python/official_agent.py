"""A program on the official agent library, driven line by line through its standard input.

It runs in a process of its own because the library may abort the interpreter at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import ngrok


async def perform(session: Any, command: dict[str, Any]) -> Any:
    match command:
        case {"connect": token, "server": server, "ca": ca}:
            builder = ngrok.SessionBuilder().authtoken(token).server_addr(server)
            return await builder.ca_cert(bytearray(ca.encode())).connect()
        case {"http": port, **options}:
            endpoint = session.http_endpoint()
            for name, value in options.items():
                set_option = getattr(endpoint, name)
                endpoint = set_option(**value) if isinstance(value, dict) else set_option(value)
            listener = await endpoint.listen_and_forward(f"http://127.0.0.1:{port}")
        case {"tcp": port}:
            listener = await session.tcp_endpoint().listen_and_forward(f"tcp://127.0.0.1:{port}")
        case {"labeled": port, "labels": labels, **options}:
            tunnel = session.labeled_listener()
            for name, value in options.items():
                tunnel = getattr(tunnel, name)(value)
            for key, value in labels.items():
                tunnel = tunnel.label(key, value)
            listener = await tunnel.listen_and_forward(f"http://127.0.0.1:{port}")
        case _:
            raise ValueError(command)
    KEPT.append(listener)
    return listener.url() if hasattr(listener, "url") else listener.id()


KEPT: list[Any] = []


async def main() -> None:
    session = None
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            result = await perform(session, command)
        except ValueError as error:
            answer: dict[str, Any] = {"error": [str(part) for part in error.args]}
        else:
            if "connect" in command:
                session, result = result, "connected"
            answer = {"result": result}
        print(json.dumps(answer), flush=True)


asyncio.run(main())
