"""A tour of the agent API, against a service and an agent of our own.

A small web shop runs on this machine. A tunnel gives it a local URL, real requests come in through
that URL, and both clients look at what was captured and send it again.
"""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import ginnel


class Shop(BaseHTTPRequestHandler):
    """The local service: it takes orders as JSON."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        order = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b'{"bytes": %d}' % len(order)
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def say(what: str, result: object = "") -> None:
    print(f"  {what:<34} {result}")


def order(url: str, body: bytes) -> int:
    request = Request(f"{url}/orders", data=body, headers={"Content-Type": "application/json"})
    with urlopen(request) as answer:
        status: int = answer.status
        return status


def tour(agent: ginnel.AgentClient, port: int) -> None:
    say("root", agent.root().uri)
    say("status", agent.status().status)

    tunnel = agent.tunnels.start(addr=port, proto="http", name="shop")
    say("tunnels.start", f"{tunnel.public_url} -> localhost:{port}")
    say("tunnels.list", [running.name for running in agent.tunnels.list()])

    for item in (b'{"item": "tea"}', b'{"item": "scones"}'):
        say("  a customer orders", order(tunnel.public_url, item))

    # What came in is kept: method, headers, body, and what the shop answered.
    for captured in agent.requests.list(limit=10):
        assert captured.response is not None
        say("requests.list", f"{captured.request.json()} -> {captured.response.status}")
    tea = agent.requests.wait_for(lambda captured: b"tea" in captured.request.body)
    say("requests.wait_for", f"{tea.id}, {tea.duration / 1e6:.1f} ms")
    say("requests.get, raw", agent.requests.get(tea.id).request.raw.splitlines()[0])

    agent.requests.replay(tea.id)
    say("requests.replay", f"{len(agent.requests.list().to_list())} requests now")

    metrics = agent.tunnels.get("shop").metrics
    say(
        "tunnels.get, metrics",
        f"{metrics.http.count} requests, p99 {metrics.http.p99 / 1e6:.1f} ms",
    )
    agent.requests.clear()
    say("requests.clear", f"{len(agent.requests.list().to_list())} left")
    agent.tunnels.stop("shop")
    say("tunnels.stop")

    try:
        agent.tunnels.start(addr=port, proto="https", name="shop")
    except ginnel.BadRequestError as error:
        say("a mistake is told", error.details["err"])


async def tour_again(agent: ginnel.AsyncAgentClient, port: int) -> None:
    """The same names, awaited."""
    async with agent.tunnels.open(addr=port, name="again") as tunnel:
        await asyncio.to_thread(order, tunnel.public_url, b'{"item": "jam"}')
        jam = await agent.requests.wait_for(tunnel_name="again")
        await agent.requests.replay(jam.id)
        captured = await agent.requests.list().to_list()
        say("asyncio: captured and replayed", [found.request.json() for found in captured])


def main() -> None:
    shop = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        print(f"the agent: {agent.url}")
        with agent.client() as client:
            tour(client, shop.server_port)
        asyncio.run(tour_again(agent.async_client(), shop.server_port))


if __name__ == "__main__":
    main()
