"""Cloud endpoints: addresses that a traffic policy serves, whether an agent is there or not."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from addresses import free_port
from postgres import ON_BOTH_STORES
from processes import wait_until
from recorder import Recorder, get, say
from test_reserved_domains import bot

HOST = "cloud.example.test"


def act(kind: str, **config: Any) -> str:
    return json.dumps({"on_http_request": [{"actions": [{"type": kind, "config": config}]}]})


def respond(body: str) -> str:
    return act("custom-response", status_code=200, content=body)


def visit(service: ginnel.Service, host: str = HOST, path: str = "/") -> tuple[int, bytes]:
    assert service.http_url is not None
    status, _, body = get(urlsplit(service.http_url).netloc, host, path)
    return status, body


@ON_BOTH_STORES
async def test_a_cloud_endpoint_lives_from_create_to_delete(
    client: Any, service: ginnel.Service
) -> None:
    made = await client.endpoints.create(
        url=f"http://{HOST}",
        type="cloud",
        traffic_policy=respond("one"),
        description="d",
        metadata="m",
        bindings=["public"],
    )

    assert made.id.startswith("ep_")
    assert (made.type, made.url, made.proto) == ("cloud", f"http://{HOST}", "http")
    assert urlsplit(made.public_url).port == urlsplit(service.http_url).port
    assert (made.description, made.metadata, made.bindings) == ("d", "m", ["public"])
    assert (made.hostport, made.pooling_enabled) == (f"{HOST}:80", False)
    assert json.loads(made.traffic_policy) == json.loads(respond("one"))
    assert made.principal.id.startswith("usr_")
    assert await client.endpoints.get(made.id) == made
    assert [it async for it in client.endpoints.list()] == [made]
    assert visit(service) == (200, b"one")

    changed = await client.endpoints.update(made.id, traffic_policy=respond("two"))

    assert (changed.description, changed.url) == ("d", made.url)
    assert changed.updated_at >= made.updated_at
    assert visit(service) == (200, b"two")
    moved = await client.endpoints.update(made.id, url="http://moved.example.test", description="x")
    assert (moved.url, moved.description) == ("http://moved.example.test", "x")
    assert visit(service)[0] == 404
    assert visit(service, "moved.example.test") == (200, b"two")
    await client.endpoints.delete(made.id)
    assert visit(service, "moved.example.test")[0] == 404
    with pytest.raises(ginnel.NotFoundError):
        await client.endpoints.get(made.id)
    with service.client() as admin:
        events = admin.audit_events.list(resource_id=made.id).to_list()
    assert [event.operation for event in events] == [
        "endpoints.delete",
        "endpoints.update",
        "endpoints.update",
        "endpoints.create",
    ]


def test_it_is_served_over_tls(service: ginnel.Service) -> None:
    with service.client() as remote:
        remote.endpoints.create(url=f"https://{HOST}", traffic_policy=respond("safe"))

        with service.opener().open(service.edge_url(HOST, "/x")) as response:
            assert response.read() == b"safe"


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        (act("deny", status_code=403), 403),
        (act("redirect", to="https://other.example.test/", status_code=302), 302),
        (act("forward-internal", url="http://nobody.internal"), 404),
    ],
)
def test_terminating_actions_decide(service: ginnel.Service, policy: str, status: int) -> None:
    with service.client() as remote:
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=policy)

        assert visit(service)[0] == status


def test_what_no_rule_answers_fails(service: ginnel.Service) -> None:
    config = {"headers": {"x-a": "b"}}
    rule = {"actions": [{"type": "add-headers", "config": config}]}
    with service.client() as remote:
        remote.endpoints.create(
            url=f"http://{HOST}", traffic_policy=json.dumps({"on_http_request": [rule]})
        )

        assert visit(service)[0] >= 500


def test_it_leads_to_internal_endpoints_of_agents(service: ginnel.Service) -> None:
    with Recorder() as local, service.client() as remote:
        remote.endpoints.create(
            url=f"http://{HOST}", traffic_policy=act("forward-internal", url="https://app.internal")
        )
        with ginnel.Agent(service) as agent, agent.client() as here:
            inside = here.endpoints.start(
                name="app",
                url="https://app.internal",
                upstream={"url": local.port},
                bindings=["internal"],
            )
            assert (inside.url, inside.bindings) == ("https://app.internal", ["internal"])

            assert visit(service, path="/orders")[0] == 200

            assert local.targets == ["/orders"]
            assert visit(service, "app.internal")[0] == 404
            listed = {it.type: it.bindings for it in remote.endpoints.list()}
            assert listed == {"cloud": ["public"], "ephemeral": ["internal"]}
        assert visit(service)[0] == 404


def test_cloud_endpoints_lead_to_each_other_and_not_in_circles(service: ginnel.Service) -> None:
    with service.client() as remote:
        for number in range(3):
            remote.endpoints.create(
                url=f"http://{number}.internal",
                traffic_policy=act("forward-internal", url=f"http://{number + 1}.internal"),
            )
        remote.endpoints.create(url="http://3.internal", traffic_policy=respond("inside"))
        remote.endpoints.create(
            url="http://loop.internal",
            traffic_policy=act("forward-internal", url="http://loop.internal"),
        )
        for target in ("0", "loop"):
            remote.endpoints.create(
                url=f"http://{target}.example.test",
                traffic_policy=act("forward-internal", url=f"http://{target}.internal"),
            )

        assert visit(service, "0.example.test") == (200, b"inside")
        assert visit(service, "loop.example.test")[0] >= 500


def test_a_port_of_its_own_leads_bytes_inside(service: ginnel.Service) -> None:
    port = free_port()
    inward = {"type": "forward-internal", "config": {"url": "tcp://db.internal:5432"}}
    policy = json.dumps({"on_tcp_connect": [{"actions": [inward]}]})
    with Recorder() as local, service.client() as remote, ginnel.Agent(service) as agent:
        made = remote.endpoints.create(url=f"tcp://127.0.0.1:{port}", traffic_policy=policy)
        with agent.client() as here:
            here.endpoints.start(
                name="db", url="tcp://db.internal:5432", upstream={"url": local.address}
            )

        assert say(f"127.0.0.1:{port}", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200

        remote.endpoints.delete(made.id)
        with pytest.raises(ConnectionRefusedError):
            say(f"127.0.0.1:{port}", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


@ON_BOTH_STORES
async def test_a_port_of_another_program_is_called_so(client: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        policy = json.dumps({"on_tcp_connect": [{"actions": [{"type": "close-connection"}]}]})

        with pytest.raises(ginnel.ConflictError) as refused:
            await client.endpoints.create(url=f"tcp://127.0.0.1:{port}", traffic_policy=policy)

    assert f"url: port {port} is in use by an endpoint, an edge or another program" in str(
        refused.value
    )


async def test_an_address_is_served_by_one(client: Any, service: ginnel.Service) -> None:
    made = await client.endpoints.create(url=f"http://{HOST}", traffic_policy=respond("x"))
    with pytest.raises(ginnel.ConflictError, match=made.id) as twice:
        await client.endpoints.create(url=f"http://{HOST}", traffic_policy=respond("y"))
    assert twice.value.error_code == "ERR_NGROK_334"
    with pytest.raises(ginnel.ConflictError):
        await client.edges.https.create(hostports=[f"{HOST}:80"])
    with ginnel.Agent(service) as agent, agent.client() as here:
        with pytest.raises(ginnel.APIStatusError, match="already online"):
            here.tunnels.start(addr=1, proto="http", name="t", domain=HOST, schemes=["http"])
        here.tunnels.start(
            addr=1, proto="http", name="o", domain="o.example.test", schemes=["http"]
        )
        with pytest.raises(ginnel.ConflictError, match="already online"):
            await client.endpoints.create(url="http://o.example.test", traffic_policy=respond("z"))
        [of_agent] = [it async for it in client.endpoints.list() if it.type == "ephemeral"]
        with pytest.raises(ginnel.BadRequestError, match="endpoint of an agent"):
            await client.endpoints.delete(of_agent.id)
    await client.edges.https.create(hostports=["e.example.test:443"])
    with pytest.raises(ginnel.ConflictError, match="edghts_"):
        await client.endpoints.create(url="https://e.example.test", traffic_policy=respond("z"))


async def test_a_port_is_one_whatever_host_stands_before_it(
    client: Any, service: ginnel.Service
) -> None:
    port = free_port()
    policy = json.dumps({"on_tcp_connect": [{"actions": [{"type": "deny"}]}]})
    made = await client.endpoints.create(url=f"tcp://a.test:{port}", traffic_policy=policy)

    with pytest.raises(ginnel.ConflictError):
        await client.endpoints.create(url=f"tcp://b.test:{port}", traffic_policy=policy)
    reserved = await client.reserved_addrs.create(port=port)
    with pytest.raises(ginnel.ConflictError, match=made.id):
        await client.reserved_addrs.delete(reserved.id)
    # Bytes name no host.
    with bot(service) as (remote, _, _):
        remote.reserved_domains.create(domain="a.test")


async def test_an_update_may_change_the_protocol_with_the_policy(
    client: Any, service: ginnel.Service
) -> None:
    port = free_port()
    policy = json.dumps({"on_tcp_connect": [{"actions": [{"type": "deny"}]}]})
    made = await client.endpoints.create(url=f"http://{HOST}", traffic_policy=respond("x"))

    with pytest.raises(ginnel.BadRequestError):
        await client.endpoints.update(made.id, url=f"tcp://127.0.0.1:{port}")
    assert visit(service) == (200, b"x")
    moved = await client.endpoints.update(
        made.id, url=f"tcp://127.0.0.1:{port}", traffic_policy=policy
    )

    assert moved.proto == "tcp"
    assert visit(service)[0] == 404
    back = await client.endpoints.update(
        made.id, url=f"http://*.{HOST}", traffic_policy=respond("y")
    )
    assert back.proto == "http"
    assert visit(service, f"any.{HOST}") == (200, b"y")
    with pytest.raises(ConnectionRefusedError):
        say(f"127.0.0.1:{port}", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_reserved_domains_are_their_owners(service: ginnel.Service) -> None:
    with service.client() as admin, bot(service) as (remote, _, _):
        domain = admin.reserved_domains.create(domain="*.owned.example.test")

        with pytest.raises(ginnel.BadRequestError, match="reserved by another"):
            remote.endpoints.create(url="http://a.owned.example.test", traffic_policy=respond("x"))

        own = admin.endpoints.create(url="http://a.owned.example.test", traffic_policy=respond("x"))
        assert own.domain is not None
        assert own.domain.id == domain.id
        with pytest.raises(ginnel.ConflictError, match=own.id):
            admin.reserved_domains.delete(domain.id)


async def test_it_is_served_and_ends_on_all_nodes(store: str, make_client: Any) -> None:
    one = ginnel.Service(store=store, settings={"node_name": "one"})
    with one, ginnel.Service(store=store, settings={"node_name": "two"}) as two:
        client = make_client(one.api_key, base_url=one.url)
        made = await client.endpoints.create(url=f"http://{HOST}", traffic_policy=respond("x"))
        assert visit(one) == (200, b"x")
        wait_until(lambda: visit(two) == (200, b"x"), "the other node")

        await client.endpoints.delete(made.id)

        assert visit(one)[0] == 404
        wait_until(lambda: visit(two)[0] == 404, "the other node")


def test_it_is_there_after_a_restart(tmp_path: Any) -> None:
    with ginnel.Service(tmp_path / "db") as service, service.client() as remote:
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=respond("kept"))

    with ginnel.Service(tmp_path / "db") as service:
        assert visit(service) == (200, b"kept")


@ON_BOTH_STORES
async def test_pages_hold_endpoints_of_all_kinds(client: Any, service: ginnel.Service) -> None:
    page = await client.backends.http_response.create(body="hi")
    edges = []
    for number in range(3):
        edge = await client.edges.https.create(
            hostports=[f"{number}{it}.example.test:443" for it in "ab"]
        )
        edges.append(edge.id)
        await client.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": page.id}
        )
        await client.endpoints.create(
            url=f"http://{number}.example.test", traffic_policy=respond("x")
        )
    with ginnel.Agent(service) as agent, agent.client() as here:
        here.tunnels.start(addr=8080, proto="http", name="t")

        pages = [page async for page in client.endpoints.list(limit=3).pages()]

        assert [len(page) for page in pages] == [3, 3, 3, 1]
        found = [endpoint for page in pages for endpoint in page]
        ids = [endpoint.id for endpoint in found]
        assert ids == sorted(set(ids), reverse=True)
        for endpoint in found:
            assert await client.endpoints.get(endpoint.id) == endpoint
