"""`http-request`: an action that asks an internal endpoint, and goes on with what it says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from recorder import get

HOST = "front.example.test"
RESULT = "actions.ngrok.http_request"


def respond(body: str) -> dict[str, Any]:
    return {"type": "custom-response", "config": {"status_code": 200, "content": body}}


def document(*actions: dict[str, Any]) -> str:
    return json.dumps({"on_http_request": [{"actions": list(actions)}]})


def asking(url: str, **config: Any) -> dict[str, Any]:
    return {"type": "http-request", "config": {"url": url, **config}}


class Upstream(BaseHTTPRequestHandler):
    """Says what it was asked, or what its path stands for."""

    def do_GET(self) -> None:
        status, headers, body = self.response()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def response(self) -> tuple[int, dict[str, str], bytes]:
        match self.path:
            case "/moved":
                return 302, {"location": "/there"}, b""
            case "/away":
                return 302, {"location": "http://elsewhere.example.test/"}, b""
            case "/long":
                return 200, {}, b"x" * (300 << 10)
        body = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
        asked = {"method": self.command, "path": self.path, "body": body}
        return 201, {"x-said": "yes"}, json.dumps(asked).encode()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Desk:
    """A service, and an agent whose endpoint at `desk.internal` leads to a server of the test."""

    def __init__(self, service: ginnel.Service, port: int, local: ginnel.AgentClient) -> None:
        self.service, self.port, self.local = service, port, local

    def visit(self, *actions: dict[str, Any], path: str = "/") -> tuple[int, str]:
        with self.service.client() as remote:
            made = remote.endpoints.create(url=f"http://{HOST}", traffic_policy=document(*actions))
            assert self.service.http_url is not None
            status, _, body = get(urlsplit(self.service.http_url).netloc, HOST, path)
            remote.endpoints.delete(made.id)
        return status, body.decode()


@pytest.fixture
def desk() -> Iterator[Desk]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with (
        server,
        ginnel.Service() as service,
        ginnel.Agent(service) as agent,
        agent.client() as local,
    ):
        local.endpoints.start(
            name="desk",
            url="http://desk.internal",
            upstream={"url": str(server.server_port)},
            bindings=["internal"],
        )
        yield Desk(service, server.server_port, local)
        server.shutdown()


def test_an_internal_endpoint_is_asked(desk: Desk) -> None:
    ask = asking(
        "http://desk.internal/check?a=1",
        method="POST",
        body="hello ${req.url.path}",
        query_params=[{"key": "b", "value": "2"}],
    )

    results = [f"${{{RESULT}.res.{it}}}" for it in ("status_code", "header['x-said'][0]", "body")]
    status, body = desk.visit(ask, respond(" ".join(results)), path="/visit")

    code, said, rest = body.split(" ", 2)
    assert (status, code, said) == (200, "201", "yes")
    asked = {"method": "POST", "path": "/check?a=1&b=2", "body": "hello /visit"}
    assert json.loads(rest) == asked


def test_the_policy_of_the_internal_endpoint_decides_too(desk: Desk) -> None:
    desk.local.endpoints.start(
        name="guarded",
        url="http://guarded.internal",
        upstream={"url": str(desk.port)},
        bindings=["internal"],
        traffic_policy=json.loads(document({"type": "deny", "config": {"status_code": 403}})),
    )

    status, body = desk.visit(
        asking("http://guarded.internal/"), respond(f"${{{RESULT}.res.status_code}}")
    )

    assert (status, body) == (200, "403")


def test_a_redirect_is_followed_within_internal_endpoints(desk: Desk) -> None:
    shown = respond(f"${{{RESULT}.res.status_code}} ${{{RESULT}.error.message}}")

    assert desk.visit(asking("http://desk.internal/moved"), shown) == (200, "302 ")
    followed = asking("http://desk.internal/moved", max_redirects=1)
    assert desk.visit(followed, shown) == (200, "201 ")
    away = asking("http://desk.internal/away", max_redirects=1, on_error="halt")
    assert desk.visit(away, shown)[0] == 500


@pytest.mark.parametrize(
    ("url", "code"),
    [("http://nobody.internal/", "3600"), ("http://desk.internal/long", "3601")],
)
def test_what_cannot_be_had_has_a_code(desk: Desk, url: str, code: str) -> None:
    status, body = desk.visit(asking(url, timeout="10s", on_error="halt"))

    assert status == 500
    assert code in body


def test_it_is_asked_again_until_the_condition_is_false(desk: Desk) -> None:
    condition = "attempts < 3 && last_attempt.res.statusCode == 201"

    _, body = desk.visit(
        asking("http://desk.internal/again", retry_condition=condition),
        respond(f"${{size({RESULT}.attempts)}}"),
    )

    assert body == "3"


def test_a_policy_that_asks_itself_ends(desk: Desk) -> None:
    ask = asking("http://echo.internal/", timeout="10s")
    both = f"${{{RESULT}.error.message}}${{{RESULT}.res == null ? '' : {RESULT}.res.body}}"
    with desk.service.client() as remote:
        remote.endpoints.create(
            url="http://echo.internal",
            bindings=["internal"],
            traffic_policy=document(ask, respond(both)),
        )

    status, body = desk.visit(asking("http://echo.internal/"), respond(f"${{{RESULT}.res.body}}"))

    assert (status, body) == (200, "the request would loop")
