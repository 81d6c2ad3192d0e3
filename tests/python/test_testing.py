"""The fixtures of `ginnel.testing`, and what a service offers to tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ginnel
from ginnel.testing import ServiceCall


def test_fixtures_come_without_being_asked_for(
    ginnel_service: ginnel.Service, ginnel_remote: ginnel.RemoteClient
) -> None:
    made = ginnel_remote.api_keys.create(description="ci")

    assert ginnel_remote.base_url == ginnel_service.url
    assert ginnel_service.client().api_keys.get(made.id).description == "ci"


async def test_the_asyncio_client_works_in_the_loop_of_a_plugin(
    ginnel_async_remote: ginnel.AsyncRemoteClient,
) -> None:
    made = await ginnel_async_remote.ip_policies.create(description="office")

    assert [policy.id async for policy in ginnel_async_remote.ip_policies.list()] == [made.id]


async def test_calls_are_told_as_the_service_took_them(
    client: Any, service: ginnel.Service
) -> None:
    key = await client.api_keys.create(description="ci")
    await client.api_keys.list(limit=5).first()
    with pytest.raises(ginnel.NotFoundError):
        await client.api_keys.get("ak_" + "0" * 27)
    with pytest.raises(ginnel.BadRequestError):
        await client.request("PATCH", f"/api_keys/{key.id}", json={"description": 7})

    made, listed, missed, refused = service.calls
    assert made == ServiceCall(
        operation="api_keys.create",
        method="POST",
        path="/api_keys",
        query=None,
        arguments={"description": "ci"},
        status=201,
    )
    assert (listed.operation, listed.query, listed.status) == ("api_keys.list", "limit=5", 200)
    assert listed.arguments == {"limit": 5}
    assert (missed.operation, missed.arguments, missed.status) == (
        "api_keys.get",
        {"id": "ak_" + "0" * 27},
        404,
    )
    assert (refused.path, refused.arguments, refused.status) == (f"/api_keys/{key.id}", None, 400)


async def test_a_call_fails_as_often_as_it_was_asked_to(
    client: Any, service: ginnel.Service
) -> None:
    service.fail("api_keys.list", status=503, times=2, retry_after=0)

    assert await client.ip_policies.list().to_list() == []
    assert len(await client.api_keys.list().to_list()) == 1

    assert [(call.operation, call.status) for call in service.calls] == [
        ("ip_policies.list", 200),
        ("api_keys.list", 503),
        ("api_keys.list", 503),
        ("api_keys.list", 200),
    ]


async def test_an_answer_can_be_late_or_break_off(
    service: ginnel.Service, make_client: Any
) -> None:
    hasty = make_client(service.api_key, base_url=service.url, timeout=0.3, max_retries=0)

    service.fail("api_keys.list", delay=5, times=1)
    with pytest.raises(ginnel.APITimeoutError):
        await hasty.api_keys.list().first()
    service.fail(cut=True)
    with pytest.raises(ginnel.APIConnectionError) as broken:
        await hasty.ip_policies.list().first()
    assert not isinstance(broken.value, ginnel.APITimeoutError)
    service.fail("bot_users.list", delay=0.05)
    assert await hasty.bot_users.list().to_list() == []

    assert [(call.operation, call.status) for call in service.calls] == [
        ("ip_policies.list", None),
        ("bot_users.list", 200),
    ]


async def test_a_retried_call_gets_past_a_broken_one(client: Any, service: ginnel.Service) -> None:
    service.fail(cut=True)

    assert await client.ip_policies.list().to_list() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"operation": "api_keys.dance"}, LookupError),
        ({"operation": "agent.tunnels.list"}, LookupError),
        ({"status": 200}, ValueError),
        ({"status": 503, "times": 0}, ValueError),
        ({"delay": -1.0}, ValueError),
    ],
)
def test_a_fault_that_cannot_be(
    service: ginnel.Service, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        service.fail(**options)


async def test_reset_forgets_faults_calls_and_data(client: Any, service: ginnel.Service) -> None:
    key = (await client.api_keys.create()).id
    service.fail(status=500, times=None)

    service.reset()

    with pytest.raises(ginnel.NotFoundError):
        await client.api_keys.get(key)
    assert len(await client.api_keys.list().to_list()) == 1
    assert [call.operation for call in service.calls] == ["api_keys.get", "api_keys.list"]


async def test_a_snapshot_can_be_returned_to_again_and_again(
    client: Any, service: ginnel.Service, make_client: Any
) -> None:
    edge = await client.edges.https.create(hostports=["app.test:443"])
    backend = await client.backends.tunnel_group.create(labels={"a": "b"})
    failover = await client.backends.failover.create(backends=[backend.id])
    key = await client.api_keys.create()
    state = service.snapshot()
    listed = await client.backends.failover.list().to_list()

    for _ in range(2):
        await client.edges.https.delete(edge.id)
        await client.backends.failover.delete(failover.id)
        await client.api_keys.delete(key.id)
        later = await client.edges.https.create(hostports=["app.test:443"])
        assert later.id > edge.id

        service.restore(state)

        assert await client.edges.https.get(edge.id) == edge
        assert await client.backends.failover.list().to_list() == listed
        with pytest.raises(ginnel.NotFoundError):
            await client.edges.https.get(later.id)
        with pytest.raises(ginnel.ConflictError):
            await client.backends.tunnel_group.delete(backend.id)
        other = make_client(key.token, base_url=service.url)
        assert (await other.api_keys.get(key.id)).id == key.id


def test_a_database_in_a_file_is_not_emptied(tmp_path: Path) -> None:
    with ginnel.Service(tmp_path / "ginnel.db") as service, service.client() as remote:
        key = remote.api_keys.create().id

        service.reset()

        assert remote.api_keys.get(key).id == key


def test_a_service_that_has_stopped_says_so(service: ginnel.Service) -> None:
    service.stop()

    with pytest.raises(ginnel.ServiceError, match="has stopped"):
        service.fail(status=500)


async def test_no_connection_leaves_this_machine(
    ginnel_loopback_only: None, service: ginnel.Service, make_client: Any
) -> None:
    import socket

    here = make_client(service.api_key, base_url=service.url)
    away = make_client("k", base_url="https://192.0.2.1", timeout=20, max_retries=0)

    assert await here.api_keys.list().first()
    began = time.monotonic()
    with pytest.raises(ginnel.APIConnectionError, match="only this machine is allowed"):
        await away.api_keys.list().first()
    with pytest.raises(OSError, match="is not this machine"):
        socket.create_connection(("192.0.2.1", 80), timeout=20)
    with pytest.raises(OSError, match="is not this machine"):
        await asyncio.open_connection("192.0.2.1", 80)
    assert time.monotonic() - began < 15


def fetch(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=20) as got:
        return got.status, got.read()


def wsgi(environ: dict[str, Any], start: Any) -> list[bytes]:
    start("200 OK", [("content-type", "text/plain")])
    return [environ["PATH_INFO"].encode(), environ["wsgi.input"].read(3)]


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    start = {"type": "http.response.start", "status": 201, "headers": [(b"x-a", b"b")]}
    await send(start)
    await send({"type": "http.response.body", "body": scope["path"].encode(), "more_body": True})
    await send({"type": "http.response.body", "body": message["body"]})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(("target", "status"), [(wsgi, 200), (asgi, 201), (Handler, 200)])
def test_what_a_test_makes_public_is_reached_and_captured(
    ginnel_tunnel: Any, ginnel_agent_client: ginnel.AgentClient, target: object, status: int
) -> None:
    url = ginnel_tunnel(target)

    assert fetch(f"{url}/hook", b"abc") == (status, b"/hookabc")

    seen = ginnel_agent_client.requests.wait_for(timeout=30)
    assert (seen.tunnel_name, seen.request.uri) == ("test-1", "/hook")


async def test_a_tunnel_leads_to_a_port_and_replays(
    ginnel_tunnel: Any, ginnel_async_agent_client: ginnel.AsyncAgentClient
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = await asyncio.to_thread(ginnel_tunnel, server.server_address[1], name="web")
        assert await asyncio.to_thread(fetch, url, b"xyz") == (200, b"/xyz")

        captured = await ginnel_async_agent_client.requests.wait_for(timeout=30)
        await ginnel_async_agent_client.requests.replay(captured.id)

        assert captured.tunnel_name == "web"
        assert len(await ginnel_async_agent_client.requests.list().to_list()) == 2
        server.shutdown()


def test_a_tunnel_leads_nowhere_else(ginnel_tunnel: Any) -> None:
    with pytest.raises(TypeError, match="not to float"):
        ginnel_tunnel(8080.0)


def test_edges_follow_a_state_that_is_returned_to(service: ginnel.Service) -> None:
    with service.client() as remote:
        backend = remote.backends.http_response.create(body="here")
        edge = remote.edges.https.create(hostports=["app.example.test:443"])
        remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": backend.id}
        )
        state = service.snapshot()
        remote.edges.https.delete(edge.id)
        with pytest.raises(urllib.error.HTTPError) as gone:
            service.opener().open("https://app.example.test/")
        gone.value.close()

        service.restore(state)

    with service.opener().open("https://app.example.test/") as got:
        assert got.read() == b"here"


def test_the_plugin_works_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(ginnel_service, ginnel_remote):\n"
        "    ginnel_service.fail('api_keys.list', status=429, retry_after=0)\n"
        "    assert ginnel_remote.api_keys.list().first()\n"
        "    assert [call.status for call in ginnel_service.calls] == [429, 200]\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout
