"""Calls in the form in which generated clients of this API send them.

The Python client puts its defaults into every update: empty texts, lists and maps for what its
caller has left out, and no fields for what is None. That of Go leaves out all that is empty.
"""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from postgres import ON_BOTH_STORES
from processes import wait_until

LEFT_OUT = {"match_type": "", "match": "", "description": "", "metadata": ""}
"""What an update of a route has in it that was called without arguments."""


@ON_BOTH_STORES
async def test_an_update_of_one_field_of_a_route_keeps_the_others(client: Any) -> None:
    page = await client.backends.http_response.create(body="hi")
    edge = await client.edges.https.create(hostports=["a.example.test:443"])
    made = await client.edges.https.routes.create(
        edge.id, match_type="exact_path", match="/a", description="d", metadata="m"
    )
    path = f"/edges/https/{edge.id}/routes/{made.id}"

    async def update(**fields: object) -> tuple[object, ...]:
        shown = await client.request("PATCH", path, json=LEFT_OUT | fields)
        return tuple(shown[name] for name in LEFT_OUT)

    assert await update() == ("exact_path", "/a", "d", "m")
    assert await update(match="/b") == ("exact_path", "/b", "d", "m")
    assert await update(match_type="path_prefix") == ("path_prefix", "/b", "d", "m")
    assert await update(description="e") == ("path_prefix", "/b", "e", "m")
    assert await update(backend={"backend_id": page.id}) == ("path_prefix", "/b", "e", "m")
    assert (await client.edges.https.get(edge.id)).routes[0].backend.backend.id == page.id
    # Where neither is empty, an empty text clears as everywhere.
    changed = await client.edges.https.routes.update(edge.id, made.id, description="")
    assert (changed.description, changed.metadata) == ("", "m")


@ON_BOTH_STORES
async def test_an_update_of_a_static_backend_keeps_its_address(client: Any) -> None:
    made = await client.backends.static.create(address="localhost:80")
    body = {"address": "", "description": "d"}

    shown = await client.request("PATCH", f"/backends/static/{made.id}", json=body)

    assert (shown["address"], shown["description"]) == ("localhost:80", "d")


@pytest.mark.parametrize("operation", ["stop", "restart"])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, None),
        ({"Content-Length": "0"}, None),
        ({"Content-Type": "application/json"}, None),
        ({"Content-Type": "application/json"}, b"{}"),
    ],
)
def test_an_agent_is_told_something_without_a_body(
    service: ginnel.Service, operation: str, headers: dict[str, str], body: bytes | None
) -> None:
    with ginnel.Agent(service) as agent, service.client() as remote:
        [session] = remote.tunnel_sessions.list()
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
        key = {"Authorization": f"Bearer {service.api_key}", "Ngrok-Version": "2"}

        path = f"/tunnel_sessions/{session.id}/{operation}"
        connection.request("POST", path, body, headers=key | headers)
        status = connection.getresponse().status
        connection.close()

        assert status == 204
        if operation == "stop":
            wait_until(lambda: agent.state == "offline", "the agent to stop")
        else:
            first = session.id
            wait_until(
                lambda: [it.id for it in remote.tunnel_sessions.list()] not in ([], [first]),
                "another session",
            )


def test_an_agent_that_cannot_update_itself_says_so_without_a_body(
    service: ginnel.Service,
) -> None:
    with ginnel.Agent(service), service.client() as remote:
        [session] = remote.tunnel_sessions.list()
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
        key = {"Authorization": f"Bearer {service.api_key}"}

        connection.request("POST", f"/tunnel_sessions/{session.id}/update", headers=key)
        response = connection.getresponse()

        assert (response.status, b"ERR_NGROK_806" in response.read()) == (400, True)
        connection.close()


async def test_what_is_not_offered_is_refused_in_words(client: Any) -> None:
    route = "/edges/https/edghts_1/routes/edghtsrt_1"
    login = (f"{route}/saml",)
    others = ("/ssh_credentials", "/agent_ingresses", "/abuse_reports/abrp_1")
    for path in (*others, *login):
        with pytest.raises(ginnel.ServerError) as refused:
            await client.request("GET", path)
        assert (refused.value.status_code, refused.value.error_code) == (501, "ERR_NGROK_9745")
        assert "is not offered" in refused.value.message
