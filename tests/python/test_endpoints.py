"""Endpoints: what is online in public, of tunnels and of edges, on one node and on several."""

from __future__ import annotations

from typing import Any

import pytest

import ginnel
from postgres import ON_BOTH_STORES
from recorder import Recorder, get


@ON_BOTH_STORES
async def test_a_tunnel_is_an_endpoint_while_it_is_online(
    client: Any, service: ginnel.Service
) -> None:
    with ginnel.Agent(service, metadata="mine") as agent, agent.client() as here:
        started = here.tunnels.start(
            addr=8080, proto="http", name="web", metadata="m", description="d"
        )

        [endpoint] = [it async for it in client.endpoints.list()]

        assert endpoint.id.startswith("ep_")
        assert (endpoint.type, endpoint.proto) == ("ephemeral", "http")
        assert endpoint.url == endpoint.public_url == started.public_url
        assert endpoint.hostport == started.public_url.removeprefix("http://")
        assert endpoint.hostport == f"{endpoint.host}:{endpoint.port}"
        assert (endpoint.metadata, endpoint.bindings) == ("m", ["public"])
        assert endpoint.description == here.endpoints.get("web").description == "d"
        assert endpoint.upstream_url.endswith(":8080")
        assert await client.endpoints.get(endpoint.id) == endpoint
        [tunnel] = [it async for it in client.tunnels.list()]
        [session] = [it async for it in client.tunnel_sessions.list()]
        assert endpoint.tunnel.id == tunnel.id
        assert endpoint.tunnel.uri.endswith(f"/tunnels/{tunnel.id}")
        assert (endpoint.tunnel_session.id, endpoint.tunnel_session.uri) == (
            session.id,
            session.uri,
        )
        assert (tunnel.endpoint.id, tunnel.endpoint.uri) == (endpoint.id, endpoint.uri)
        assert endpoint.principal.id.startswith("usr_")
        here.tunnels.stop("web")
        assert [it async for it in client.endpoints.list()] == []
        with pytest.raises(ginnel.NotFoundError):
            await client.endpoints.get(endpoint.id)


@ON_BOTH_STORES
async def test_an_edge_is_an_endpoint_where_it_leads_to_a_backend(client: Any) -> None:
    page = await client.backends.http_response.create(body="hi")
    edge = await client.edges.https.create(
        hostports=["a.example.test:443", "a.example.test:80"], description="d", metadata="m"
    )
    assert [it async for it in client.endpoints.list()] == []
    domain = await client.reserved_domains.create(domain="*.example.test")

    await client.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": page.id}
    )

    both = [it async for it in client.endpoints.list()]
    assert {it.hostport for it in both} == {"a.example.test:443", "a.example.test:80"}
    assert {it.proto for it in both} == {"https", "http"}
    for endpoint in both:
        assert (endpoint.type, endpoint.edge.id) == ("edge", edge.id)
        assert endpoint.edge.uri == edge.uri
        assert endpoint.url.startswith(f"{endpoint.proto}://a.example.test:")
        assert (endpoint.description, endpoint.metadata) == ("d", "m")
        assert endpoint.domain.id == domain.id
        assert (endpoint.tunnel, endpoint.tunnel_session) == (None, None)
        assert endpoint.principal.id.startswith("usr_")
        # It is the same every time.
        assert await client.endpoints.get(endpoint.id) == endpoint
    await client.edges.https.delete(edge.id)
    assert [it async for it in client.endpoints.list()] == []


async def test_a_tcp_edge_is_an_endpoint_that_visitors_reach(client: Any) -> None:
    with Recorder() as upstream:
        backend = await client.backends.static.create(address=upstream.address)
        address = await client.reserved_addrs.create()
        edge = await client.edges.tcp.create(
            hostports=[address.addr], backend={"backend_id": backend.id}
        )

        [endpoint] = [it async for it in client.endpoints.list()]

        assert (endpoint.proto, endpoint.hostport) == ("tcp", address.addr)
        assert (endpoint.edge.id, endpoint.tcp_addr.id) == (edge.id, address.id)
        assert endpoint.tcp_addr.uri == address.uri
        assert get(endpoint.hostport, "a.test", "/")[0] == 200


@ON_BOTH_STORES
async def test_pages_hold_tunnels_and_edges_newest_first(
    client: Any, service: ginnel.Service
) -> None:
    page = await client.backends.http_response.create(body="hi")
    names = [f"{number}.example.test:443" for number in range(4)]
    edge = await client.edges.https.create(hostports=names)
    await client.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": page.id}
    )
    with ginnel.Agent(service) as agent, agent.client() as here:
        for number in range(3):
            here.tunnels.start(addr=8080, proto="http", name=str(number))

        pages = [page async for page in client.endpoints.list(limit=2).pages()]

    assert [len(page) for page in pages] == [2, 2, 2, 1]
    ids = [endpoint.id for page in pages for endpoint in page]
    assert ids == sorted(set(ids), reverse=True)


async def test_endpoints_of_other_nodes_are_listed(store: str, make_client: Any) -> None:
    one = ginnel.Service(store=store, settings={"node_name": "one"})
    with one, ginnel.Service(store=store, settings={"node_name": "two"}) as two:
        client = make_client(one.api_key, base_url=two.url)
        with ginnel.Agent(one) as agent, agent.client() as here:
            started = here.tunnels.start(addr=8080, proto="tcp", name="db")

            [endpoint] = [it async for it in client.endpoints.list()]

            assert endpoint.url == started.public_url
            assert await client.endpoints.get(endpoint.id) == endpoint
