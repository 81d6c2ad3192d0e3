"""Fixtures for pytest, which finds them by itself once ginnel is installed.

| Fixture | Gives |
| --- | --- |
| `ginnel_service` | a `Service` in memory, new for each test |
| `ginnel_session_service` | a `Service` in memory, the same for all tests of a session |
| `ginnel_remote` | a `RemoteClient` with its admin key |
| `ginnel_async_remote` | an `AsyncRemoteClient` with its admin key, for any asyncio plugin |
| `ginnel_agent` | an `Agent` of that service |
| `ginnel_agent_client` | an `AgentClient` of that agent |
| `ginnel_async_agent_client` | an `AsyncAgentClient` of that agent |
| `ginnel_tunnel` | a function that starts a tunnel to a port or application and returns its URL |
| `ginnel_mock` | a function that has that agent respond to matching requests itself |
| `ginnel_loopback_only` | nothing; while it lasts, no connection leaves this machine |

`@pytest.mark.ginnel_service(seed=7)` gives the service options, those of `ginnel.Service`. With a
seed, identifiers, tokens and times are the same in each run.

With `ginnel_service_scope = session` in the configuration of pytest, `ginnel_service` is
`ginnel_session_service`, and holds after each test again what it held before. Tests with the marker
keep a service of their own.

`@pytest.mark.ginnel_cassette("name.json")` plays the calls of a test from a file beside it, or
records them; `cassette` does so for a block. `--ginnel-record` says whether calls are recorded.

`assert_received` asserts what a tunnel received. Where a test fails, its report has a section
`ginnel: captured requests` of what the agents of its fixtures captured meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ._core.service_calls import ServiceCall
from ._testing import cassette as _cassette
from ._testing.cassette import Cassette
from .exceptions import CassetteError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
    from os import PathLike
    from re import Pattern
    from typing import Concatenate, ParamSpec, Protocol, overload

    from . import Agent, AgentClient, AsyncAgentClient, AsyncRemoteClient, RemoteClient, Service
    from ._agent_api.client import AgentRequests
    from ._agent_api.client_async import AsyncAgentRequests
    from ._core.results import Results
    from ._testing.cassette import RecordMode
    from .local.mocks import Mock
    from .local.requests import CapturedRequest

__all__ = [
    "Cassette",
    "CassetteError",
    "ServiceCall",
    "assert_received",
    "cassette",
    "ginnel_agent",
    "ginnel_agent_client",
    "ginnel_async_agent_client",
    "ginnel_async_remote",
    "ginnel_loopback_only",
    "ginnel_mock",
    "ginnel_remote",
    "ginnel_service",
    "ginnel_session_service",
    "ginnel_tunnel",
]

_SCOPES = ("function", "session")
_STARTED = pytest.StashKey[float]()
_AGENTS = pytest.StashKey["list[str]"]()
_CASSETTE = pytest.StashKey[Cassette]()
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the option of the configuration known to pytest."""
    line = "How long the fixture ginnel_service lasts: function or session."
    parser.addini("ginnel_service_scope", line, default=_SCOPES[0])
    parser.getgroup("ginnel").addoption(
        "--ginnel-record",
        choices=_cassette.MODES,
        default=_cassette.DEFAULT_MODE,
        help=(
            "What cassettes do with calls: play alone (none), record where there is no file "
            "(once, the default), record what is not known (new), or everything anew (all)."
        ),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known to pytest."""
    for line in (
        "ginnel_service(**options): options of the service of the fixture ginnel_service.",
        "ginnel_cassette(path, record=None): the calls of the test are played from a file, or "
        "recorded; its path is relative to the file of the test.",
    ):
        config.addinivalue_line("markers", line)
    _cassette.default_mode = config.getoption("--ginnel-record")
    scope = config.getini("ginnel_service_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"ginnel_service_scope={scope}: must be function or session")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins, and use its cassette."""
    item.stash[_STARTED] = time.time()
    item.stash[_AGENTS] = []
    item.stash[_FAILED] = False
    if marker := item.get_closest_marker("ginnel_cassette"):
        item.stash[_CASSETTE] = _marked(item, *marker.args, **marker.kwargs).__enter__()


def _marked(
    item: pytest.Item, path: str | PathLike[str], record: RecordMode | None = None
) -> Cassette:
    return Cassette(item.path.parent / path, record)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Put the cassette of a test away; a test that failed leaves the file as it was."""
    try:
        return (yield)
    finally:
        if used := item.stash.get(_CASSETTE, None):
            del item.stash[_CASSETTE]
            failure = AssertionError if item.stash[_FAILED] else None
            used.__exit__(failure, None, None)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Note the agents of a test, since its fixtures are not known where one of them fails."""
    value = yield
    if (agents := request.node.stash.get(_AGENTS, None)) is not None:
        from ._testing.report import agent_urls

        agents.extend(agent_urls([value]))
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what agents captured to the report of a test that failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    if report.failed and report.when != "teardown":
        from ._testing.report import agent_urls, sections

        fixtures = getattr(item, "funcargs", {}).values()
        urls = [*item.stash.get(_AGENTS, []), *agent_urls(fixtures)]
        report.sections.extend(sections(urls, item.stash.get(_STARTED, 0.0)))
    return report


def cassette(path: str | PathLike[str], *, record: RecordMode | None = None) -> Cassette:
    """Play the calls of a `with` block from a file, or record them: those of all clients.

    ```python
    with cassette("keys.json"):
        remote.api_keys.list().to_list()
    ```

    A call is known by its method, its path with the query, and its body; the address of the
    server does not matter, and nothing is sent for what is played. Each recorded response is played
    once, the answers to the same request in their order; answers that are errors are raised as
    those of a server. Of retries the last response is recorded; calls without a response are not
    recorded. Secrets are masked in the file. It is written at the end of the block, unless that is
    an exception.

    Args:
        path: The file.
        record: `"none"` plays alone, `"once"` records where there is no file, `"new"` records what
            is not in the file, and `"all"` records everything anew. Left out, `--ginnel-record`
            decides; `"once"` without it.

    Raises:
        CassetteError: A call is made that the file does not have, or the file cannot be used.
        ConfigError: There is no such way to record.
    """
    return Cassette(path, record)


@pytest.fixture(scope="session")
def ginnel_session_service() -> Iterator[Service]:
    """A service in memory, the same for all tests of a session; they see each other's resources."""
    from . import Service

    with Service() as service:
        yield service


@pytest.fixture
def ginnel_service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service in memory, new for each test: API, edges and agents' port on this machine.

    The marker `ginnel_service` gives it options; those nearer to the test come before others.
    Without a marker it is `ginnel_session_service` where `ginnel_service_scope` is `session`.
    """
    from . import Service

    markers = list(request.node.iter_markers("ginnel_service"))
    if not markers and request.config.getini("ginnel_service_scope") == "session":
        yield from _restored(request.getfixturevalue("ginnel_session_service"))
        return
    options: dict[str, Any] = {}
    for marker in markers:
        options = {**marker.kwargs, **options}
    with Service(**options) as service:
        yield service


def _restored(service: Service) -> Iterator[Service]:
    """A service that holds again what it held, once its test is over."""
    if not service.is_running:
        raise RuntimeError(
            "ginnel_session_service was stopped; a test that stops its service needs one of its "
            "own: @pytest.mark.ginnel_service"
        )
    before = service.snapshot()
    yield service
    if service.is_running:
        service.restore(before)
        service._rehearsal.forget()


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
    """Starts tunnels for the rest of the test: `ginnel_tunnel(app)` returns a local URL.

    It takes a port, an address, a WSGI or ASGI application, or a class of `http.server` handlers;
    what else it is given goes to `AgentClient.tunnels.start`. The tunnel is called `test-1`, the
    next one `test-2`, unless `name` says otherwise.
    """
    from contextlib import ExitStack

    from ._testing.server import served

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
def ginnel_mock(ginnel_agent_client: AgentClient) -> Iterator[Callable[..., Mock]]:
    """Has the agent respond itself in the rest of a test: `ginnel_mock(path="/pay", status=402)`.

    It takes what `AgentClient.mocks.add` takes, and gives the mock.
    """
    from contextlib import ExitStack

    with ExitStack() as opened:

        def mock(**definition: Any) -> Mock:
            return opened.enter_context(ginnel_agent_client.mocks.open(**definition))

        yield mock


@pytest.fixture
def ginnel_loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forbids any connection off this machine, in all threads of this process.

    That holds for ginnel's clients, agents and services, for sockets and datagrams of Python, and
    for uvloop. Attempts fail as if the network was down: with `APIConnectionError` or `OSError`.
    Libraries that open sockets in C, such as pycurl, grpcio and libpq, are not held.
    """
    from ._testing.loopback import loopback_only

    with monkeypatch.context() as patch, loopback_only(patch):
        yield


if TYPE_CHECKING:
    _P = ParamSpec("_P")

    class _ForBothFaces(Protocol[_P]):
        """A function of what an agent captured; of an asyncio client it is awaited."""

        @overload
        def __call__(
            self,
            source: AgentClient | AgentRequests | Iterable[CapturedRequest],
            /,
            *arguments: _P.args,
            **keywords: _P.kwargs,
        ) -> Results[CapturedRequest]: ...
        @overload
        def __call__(
            self,
            source: AsyncAgentClient | AsyncAgentRequests,
            /,
            *arguments: _P.args,
            **keywords: _P.kwargs,
        ) -> Coroutine[Any, Any, Results[CapturedRequest]]: ...


def _for_both_faces(function: Callable[Concatenate[Any, _P], Any]) -> _ForBothFaces[_P]:
    """The function itself: only type checkers are told which face gives what."""
    return function


@_for_both_faces
def assert_received(
    source: Any,
    /,
    *,
    method: str | None = None,
    path: str | Pattern[str] | None = None,
    headers: Mapping[str, str | Pattern[str] | None] | None = None,
    json: object = None,
    body: bytes | str | None = None,
    status: int | None = None,
    tunnel_name: str | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Any:
    """Assert that a tunnel received a request, and wait for it; returns those that match.

    ```python
    hook, = assert_received(client, method="POST", path="/hook", json={"paid": True}, count=1)
    await assert_received(async_client, path="/hook")
    ```

    The error names the captured request that is nearest, and what differs. Secrets are masked.

    Args:
        source: A client of the agent, its `requests`, or a list of captured requests, which is
            looked at as it is. With an asyncio client the call is awaited.
        method: The method, in any case.
        path: The path, or path and query where it holds a `?`; a pattern is searched for in both.
        headers: Headers with their values; a pattern is searched for, None says that there is no
            such header.
        json: What the body is as JSON, whatever encoding it was sent in.
        body: The body, without the encoding that it was sent in.
        status: The status of the response.
        tunnel_name: The tunnel that received it.
        count: How many requests match; at least one by default.
        timeout: Seconds to wait, 10 by default; with `count=0`, how long none may come, 0 by
            default.

    Raises:
        AssertionError: No such requests were received in time, or others than `count` says.
    """
    from ._testing.assertions import (
        Check,
        Expectation,
        await_received,
        check_received,
        is_asynchronous,
    )

    __tracebackhide__ = True
    expected = Expectation(
        method=method,
        path=path,
        headers=headers,
        json=json,
        body=body,
        status=status,
        tunnel_name=tunnel_name,
    )
    check = Check(expected, count, timeout)
    return (await_received if is_asynchronous(source) else check_received)(source, check)
