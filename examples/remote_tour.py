"""A tour of the management API, against a service of our own on a file.

Both clients walk every operation for API keys, IP policies, backends and the modules of edges. The
blocking one comes first; the asyncio one has the same names.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

import ginnel


def say(what: str, result: object = "") -> None:
    print(f"  {what:<34} {result}")


def tour(remote: ginnel.RemoteClient) -> None:
    # API keys: the token is in the answer to `create` and nowhere else.
    key = remote.api_keys.create(description="deploy", metadata='{"team": "edge"}')
    say("api_keys.create", key.id)
    say("api_keys.get, token", remote.api_keys.get(key.id).token)
    say(
        "api_keys.update", remote.api_keys.update(key.id, description="deploy, staging").description
    )
    say("api_keys.list", f"{len(remote.api_keys.list().to_list())} keys")
    remote.api_keys.delete(key.id)
    say("api_keys.delete")

    # IP policies.
    policy = remote.ip_policies.create(description="office")
    say("ip_policies.create", policy.id)
    say("ip_policies.get", remote.ip_policies.get(policy.id).created_at)
    say("ip_policies.update", remote.ip_policies.update(policy.id, metadata="vpn").metadata)
    say("ip_policies.list", [found.description for found in remote.ip_policies.list()])
    remote.ip_policies.delete(policy.id)
    say("ip_policies.delete")

    # Backends: tunnels by their labels, and a list that fails over.
    group = remote.backends.tunnel_group.create(labels={"app": "shop", "env": "staging"})
    say("backends.tunnel_group.create", group.labels)
    say("backends.tunnel_group.get", remote.backends.tunnel_group.get(group.id).tunnels)
    group = remote.backends.tunnel_group.update(group.id, labels={"app": "shop"})
    say("backends.tunnel_group.update", group.labels)
    say("backends.tunnel_group.list", len(remote.backends.tunnel_group.list().to_list()))
    failover = remote.backends.failover.create(backends=[group.id])
    say("backends.failover.create", failover.backends)
    say("backends.failover.get", remote.backends.failover.get(failover.id).id)
    say("backends.failover.list", len(remote.backends.failover.list().to_list()))
    # An empty list clears; what is left out would stay.
    say("backends.failover.update", remote.backends.failover.update(failover.id, backends=[]))
    remote.backends.failover.delete(failover.id)
    say("backends.failover.delete")
    remote.backends.tunnel_group.delete(group.id)
    say("backends.tunnel_group.delete")

    # Modules of edges: rules that act on traffic.
    edge = remote.edges.https.create(hostports=["shop.example.test:443"])
    route = remote.edges.https.routes.create(edge.id, match_type="path_prefix", match="/")
    bots = {
        "name": "bots",
        "expressions": ["req.headers['user-agent'].exists(agent, agent.contains('bot'))"],
        "actions": [{"type": "deny", "config": {"status_code": 403}}],
    }
    rules = remote.edges.https.routes.policy
    say("edges.https.routes.policy.replace", rules.replace(edge.id, route.id, inbound=[bots]))
    say("edges.https.routes.policy.get", rules.get(edge.id, route.id).enabled)
    rules.delete(edge.id, route.id)
    say("edges.https.routes.policy.delete")
    agents = remote.edges.https.routes.user_agent_filter
    say(".user_agent_filter.replace", agents.replace(edge.id, route.id, deny=["(?i)curl"]))
    say(".user_agent_filter.get", agents.get(edge.id, route.id).deny)
    agents.delete(edge.id, route.id)
    say(".user_agent_filter.delete")
    tcp = remote.edges.tcp.create()
    refuse = {"name": "all", "actions": [{"type": "deny"}]}
    say("edges.tcp.policy.replace", remote.edges.tcp.policy.replace(tcp.id, inbound=[refuse]))
    say("edges.tcp.policy.get", remote.edges.tcp.policy.get(tcp.id).inbound)
    remote.edges.tcp.policy.delete(tcp.id)
    say("edges.tcp.policy.delete")


async def async_tour(remote: ginnel.AsyncRemoteClient) -> None:
    key = await remote.api_keys.create(description="async")
    key = await remote.api_keys.update(key.id, metadata="m")
    assert await remote.api_keys.get(key.id) == key
    await remote.api_keys.delete(key.id)
    say("api_keys", "create, update, get, delete")

    policy = await remote.ip_policies.create()
    policy = await remote.ip_policies.update(policy.id, description="home")
    assert await remote.ip_policies.get(policy.id) == policy
    assert policy in [found async for found in remote.ip_policies.list()]
    await remote.ip_policies.delete(policy.id)
    say("ip_policies", "create, update, get, list, delete")

    group = await remote.backends.tunnel_group.create(labels={"a": "b"})
    group = await remote.backends.tunnel_group.update(group.id, metadata="m")
    assert await remote.backends.tunnel_group.get(group.id) == group
    assert await remote.backends.tunnel_group.list().first() == group
    failover = await remote.backends.failover.create(backends=[group.id])
    failover = await remote.backends.failover.update(failover.id, description="first")
    assert await remote.backends.failover.get(failover.id) == failover
    assert await remote.backends.failover.list().first() == failover
    await remote.backends.failover.delete(failover.id)
    await remote.backends.tunnel_group.delete(group.id)
    say("backends", "create, update, get, list, delete")

    edge = await remote.edges.https.create()
    route = await remote.edges.https.routes.create(edge.id, match_type="exact_path", match="/a")
    rule = {"name": "log", "actions": [{"type": "log", "config": {"metadata": {"seen": "yes"}}}]}
    rules, agents = remote.edges.https.routes.policy, remote.edges.https.routes.user_agent_filter
    replaced = await rules.replace(edge.id, route.id, outbound=[rule])
    assert await rules.get(edge.id, route.id) == replaced
    await rules.delete(edge.id, route.id)
    await agents.replace(edge.id, route.id, allow=["^good"])
    await agents.get(edge.id, route.id)
    await agents.delete(edge.id, route.id)
    tcp = await remote.edges.tcp.create()
    await remote.edges.tcp.policy.replace(tcp.id, enabled=False)
    await remote.edges.tcp.policy.get(tcp.id)
    await remote.edges.tcp.policy.delete(tcp.id)
    say("edges", "policies and filters: replace, get, delete")

    started = perf_counter()
    creates = (remote.api_keys.create(description=f"key {n}") for n in range(250))
    await asyncio.gather(*creates)
    say("250 keys created at once", f"{(perf_counter() - started) * 1000:.0f} ms")
    pages = [len(page) async for page in remote.api_keys.list().pages()]
    say("api_keys.list, by pages", pages)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ginnel.db"
        with ginnel.Service(path) as service:
            print(f"A service at {service.url}, its data in {path.name}")
            with service.client() as remote:
                print("\nOne call after the other:")
                tour(remote)
            print("\nThe same with asyncio:")
            asyncio.run(async_tour(service.async_client()))
            print("\nAn error says what is wrong, and where:")
            try:
                service.client().edges.tcp.create(hostports=["nowhere"])
            except ginnel.BadRequestError as error:
                print(f"  {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
