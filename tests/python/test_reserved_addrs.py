"""Reserved addresses: whose TCP ports they are, for agents and for edges."""

from __future__ import annotations

from typing import Any

import pytest

import ginnel
from addresses import free_port
from postgres import ON_BOTH_STORES
from recorder import Recorder, get
from test_reserved_domains import bot


def port_of(address: str | None) -> int:
    assert address is not None
    return int(address.rpartition(":")[2])


def refusal(service: ginnel.Service, token: str | None, **options: Any) -> str:
    """Why a TCP tunnel is refused; empty where it is not."""
    try:
        with ginnel.Agent(service, authtoken=token, timeout=20) as agent:
            agent.client().tunnels.start(addr=1, proto="tcp", name="ssh", **options)
    except (ginnel.AgentError, ginnel.APIStatusError) as refused:
        return str(refused)
    return ""


@ON_BOTH_STORES
async def test_a_reserved_address_lives_from_create_to_delete(
    client: Any, service: ginnel.Service
) -> None:
    made = await client.reserved_addrs.create(description="ssh", metadata="m", region="eu")

    assert made.id.startswith("ra_")
    assert made.addr == f"127.0.0.1:{port_of(made.addr)}"
    assert (made.description, made.metadata, made.region) == ("ssh", "m", "eu")
    assert await client.reserved_addrs.get(made.id) == made
    assert [it async for it in client.reserved_addrs.list()] == [made]
    changed = await client.reserved_addrs.update(made.id, description="shell")
    assert (changed.description, changed.metadata, changed.addr) == ("shell", "m", made.addr)
    other = await client.reserved_addrs.create()
    assert other.addr != made.addr
    await client.reserved_addrs.delete(made.id)
    with pytest.raises(ginnel.NotFoundError):
        await client.reserved_addrs.get(made.id)
    with service.client() as admin:
        events = admin.audit_events.list(resource_id=made.id).to_list()
    assert [event.operation for event in events] == [
        "reserved_addrs.delete",
        "reserved_addrs.update",
        "reserved_addrs.create",
    ]


@ON_BOTH_STORES
def test_a_port_is_reserved_once(service: ginnel.Service) -> None:
    port = free_port()
    with service.client() as admin, bot(service) as (remote, _, _):
        made = remote.reserved_addrs.create(port=port)
        assert made.addr == f"127.0.0.1:{port}"

        with pytest.raises(ginnel.ConflictError, match="another owner already") as refused:
            admin.reserved_addrs.create(port=port)
        assert refused.value.error_code == "ERR_NGROK_9740"
        with pytest.raises(ginnel.ConflictError, match="its owner already"):
            remote.reserved_addrs.create(port=port)
        admin.reserved_addrs.delete(made.id)
        admin.reserved_addrs.create(port=port)


def test_agents_of_others_cannot_have_a_reserved_port() -> None:
    with ginnel.Service(reserve=0) as service, bot(service) as (remote, owner, token):
        made = remote.reserved_addrs.create()
        assert made.owner_id == owner

        refused = refusal(service, None, remote_addr=made.addr)
        assert f"port {port_of(made.addr)} is reserved by another owner" in refused
        assert refusal(service, token, remote_addr=made.addr) == ""
        remote.reserved_addrs.delete(made.id)
        assert refusal(service, None, remote_addr=made.addr) == ""


def test_visitors_reach_the_owners_tunnel_at_a_reserved_address() -> None:
    with (
        ginnel.Service() as service,
        Recorder() as upstream,
        bot(service) as (remote, _, token),
        ginnel.Agent(service, authtoken=token) as agent,
    ):
        made = remote.reserved_addrs.create()

        tunnel = agent.client().tunnels.start(
            addr=upstream.port, proto="tcp", name="web", remote_addr=made.addr
        )

        assert tunnel.public_url == f"tcp://{made.addr}"
        assert made.addr
        assert get(made.addr, "a.test", "/x")[0] == 200


def test_a_port_that_an_agent_of_another_has_cannot_be_reserved() -> None:
    with (
        ginnel.Service() as service,
        service.client() as admin,
        bot(service) as (_, owner, token),
        ginnel.Agent(service, authtoken=token) as agent,
    ):
        tunnel = agent.client().tunnels.start(addr=1, proto="tcp", name="ssh")
        port = port_of(tunnel.public_url)

        with pytest.raises(ginnel.ConflictError, match="in use by the tunnel tn_") as refused:
            admin.reserved_addrs.create(port=port)

        assert refused.value.error_code == "ERR_NGROK_9741"
        made = admin.reserved_addrs.create(port=port, owner_id=owner)
        assert f"tcp://{made.addr}" == tunnel.public_url


def test_a_port_that_waits_for_an_agent_that_is_gone_goes_to_who_reserves_it() -> None:
    with ginnel.Service() as service, bot(service) as (remote, _, token):
        with ginnel.Agent(service) as agent:
            tunnel = agent.client().tunnels.start(addr=1, proto="tcp", name="ssh")
            port = port_of(tunnel.public_url)

        made = remote.reserved_addrs.create(port=port)

        assert refusal(service, token, remote_addr=made.addr) == ""


def test_edges_of_others_cannot_have_a_reserved_port() -> None:
    with (
        ginnel.Service() as service,
        Recorder() as upstream,
        service.client() as admin,
        bot(service) as (remote, owner, _),
    ):
        made = admin.reserved_addrs.create(owner_id=owner)
        assert made.addr
        with pytest.raises(ginnel.BadRequestError, match=r"hostports\[0\].*reserved by another"):
            admin.edges.tcp.create(hostports=[made.addr])
        backend = remote.backends.static.create(address=upstream.address)

        edge = remote.edges.tcp.create(hostports=[made.addr], backend={"backend_id": backend.id})

        assert get(made.addr, "a.test", "/x")[0] == 200
        # What does not name ports is anybody's to change.
        assert admin.edges.tcp.update(edge.id, description="x").description == "x"
        with pytest.raises(ginnel.ConflictError, match=edge.id):
            remote.reserved_addrs.delete(made.id)
        remote.edges.tcp.delete(edge.id)
        remote.reserved_addrs.delete(made.id)


@ON_BOTH_STORES
def test_the_port_of_an_edge_can_be_reserved_for_its_owner_alone(service: ginnel.Service) -> None:
    port = free_port()
    with service.client() as admin, bot(service) as (_, owner, _):
        edge = admin.edges.tcp.create(hostports=[f"db.example.test:{port}"])

        with pytest.raises(ginnel.ConflictError, match=edge.id) as refused:
            admin.reserved_addrs.create(port=port, owner_id=owner)

        assert refused.value.error_code == "ERR_NGROK_9741"
        made = admin.reserved_addrs.create(port=port)
        with pytest.raises(ginnel.ConflictError, match=edge.id):
            admin.reserved_addrs.delete(made.id)


def test_a_port_where_another_program_listens_cannot_be_reserved() -> None:
    with (
        ginnel.Service() as service,
        service.client() as remote,
        Recorder() as other,
        pytest.raises(ginnel.ConflictError, match=f"cannot listen on {other.port}"),
    ):
        remote.reserved_addrs.create(port=other.port)
