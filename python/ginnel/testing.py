"""Fixtures for pytest, which finds them by itself once ginnel is installed.

| Fixture | Gives |
| --- | --- |
| `ginnel_service` | a `Service` in memory, new for each test |
| `ginnel_remote` | a `RemoteClient` with its admin key |
| `ginnel_async_remote` | an `AsyncRemoteClient` with its admin key, for any asyncio plugin |
| `ginnel_agent` | an `Agent` of that service |
| `ginnel_agent_client` | an `AgentClient` of that agent |
| `ginnel_async_agent_client` | an `AsyncAgentClient` of that agent |
| `ginnel_tunnel` | a function that makes a port or an application public, and gives its address |
| `ginnel_loopback_only` | nothing; while it lasts, no connection leaves this machine |

`@pytest.mark.ginnel_service(seed=7)` gives the service options, those of `ginnel.Service`. With a
seed, identifiers, tokens and times are the same in each run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ._calls import ServiceCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from . import Agent, AgentClient, AsyncAgentClient, AsyncRemoteClient, RemoteClient, Service

__all__ = [
    "ServiceCall",
    "ginnel_agent",
    "ginnel_agent_client",
    "ginnel_async_agent_client",
    "ginnel_async_remote",
    "ginnel_loopback_only",
    "ginnel_remote",
    "ginnel_service",
    "ginnel_tunnel",
]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known to pytest."""
    line = "ginnel_service(**options): options of the service of the fixture ginnel_service."
    config.addinivalue_line("markers", line)


@pytest.fixture
def ginnel_service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service in memory, new for each test: API, edges and agents' port on this machine.

    The marker `ginnel_service` gives it options; those nearer to the test come before others.
    """
    from . import Service

    options: dict[str, Any] = {}
    for marker in request.node.iter_markers("ginnel_service"):
        options = {**marker.kwargs, **options}
    with Service(**options) as service:
        yield service


@pytest.fixture
def ginnel_remote(ginnel_service: Service) -> Iterator[RemoteClient]:
    """A client of `ginnel_service` with its admin key."""
    with ginnel_service.client() as remote:
        yield remote


@pytest.fixture
def ginnel_async_remote(ginnel_service: Service) -> Iterator[AsyncRemoteClient]:
    """An asyncio client of `ginnel_service` with its admin key.

    It is bound to no loop, so it works under pytest-asyncio and anyio alike.
    """
    remote = ginnel_service.async_client()
    yield remote
    remote.close()


@pytest.fixture
def ginnel_agent(ginnel_service: Service) -> Iterator[Agent]:
    """An agent of `ginnel_service`, online."""
    from . import Agent

    with Agent(ginnel_service) as agent:
        yield agent


@pytest.fixture
def ginnel_agent_client(ginnel_agent: Agent) -> Iterator[AgentClient]:
    """A client of the API of `ginnel_agent`."""
    with ginnel_agent.client() as client:
        yield client


@pytest.fixture
def ginnel_async_agent_client(ginnel_agent: Agent) -> Iterator[AsyncAgentClient]:
    """An asyncio client of the API of `ginnel_agent`, bound to no loop."""
    client = ginnel_agent.async_client()
    yield client
    client.close()


@pytest.fixture
def ginnel_tunnel(ginnel_agent_client: AgentClient) -> Iterator[Callable[..., str]]:
    """Makes something public for the rest of the test: `ginnel_tunnel(app)` gives its address.

    It takes a port, an address, a WSGI or ASGI application, or a class of `http.server` handlers;
    what else it is given goes to `AgentClient.tunnels.start`. The tunnel is called `test-1`, the
    next one `test-2`, unless `name` says otherwise.
    """
    from contextlib import ExitStack

    from ._serving import served

    with ExitStack() as opened:
        count = 0

        def tunnel(target: object, *, proto: str = "http", **definition: Any) -> str:
            nonlocal count
            count += 1
            name = str(definition.pop("name", f"test-{count}"))
            addr = opened.enter_context(served(target))
            started = opened.enter_context(
                ginnel_agent_client.tunnels.open(addr=addr, proto=proto, name=name, **definition)
            )
            return str(started.public_url)

        yield tunnel


@pytest.fixture
def ginnel_loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forbids any connection off this machine: those of ginnel's clients and of Python's sockets.

    What is tried fails as when the network is down: with `APIConnectionError`, or `OSError`.
    """
    import socket

    from . import _native

    def checked(self: socket.socket, address: object) -> None:
        _check(self, address)
        connect(self, address)  # type: ignore[arg-type]

    def checked_ex(self: socket.socket, address: object) -> int:
        _check(self, address)
        return connect_ex(self, address)  # type: ignore[arg-type]

    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    monkeypatch.setattr(socket.socket, "connect", checked)
    monkeypatch.setattr(socket.socket, "connect_ex", checked_ex)
    before = _native.loopback_only(True)
    yield
    _native.loopback_only(before)


def _check(socket: object, address: object) -> None:
    """Raise for an address that is not on this machine."""
    from errno import ENETUNREACH
    from ipaddress import ip_address

    if not isinstance(address, tuple):
        return
    host = str(address[0])
    try:
        local = ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise OSError(ENETUNREACH, f"{host} is not this machine, and ginnel_loopback_only is on")
