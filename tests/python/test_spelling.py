"""Errors that say which name was likely meant, and why an agent refuses."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from typing import Any

import pytest

import ginnel

URL = "http://127.0.0.1:9"
CLIENTS = (
    ginnel.RemoteClient("k", base_url=URL),
    ginnel.AsyncRemoteClient("k", base_url=URL),
    ginnel.AgentClient(URL),
    ginnel.AsyncAgentClient(URL),
)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("api_key", "api_keys"),
        ("api_keys.creat", "create"),
        ("edges.htps", "https"),
        ("backends.failovers", "failover"),
        ("with_option", "with_options"),
    ],
)
@pytest.mark.parametrize("client", CLIENTS[:2], ids=lambda client: type(client).__name__)
def test_a_mistyped_attribute_names_the_nearest(client: object, path: str, meant: str) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        client = getattr(client, parent)

    with pytest.raises(AttributeError) as missing:
        getattr(client, name)

    text = f"'{type(client).__name__}' object has no attribute {name!r}; did you mean {meant!r}?"
    assert str(missing.value) == text
    assert missing.value.name == name
    # Python adds no second suggestion.
    assert "".join(traceback.format_exception(missing.value)).lower().count("did you mean") == 1


@pytest.mark.parametrize("client", CLIENTS[2:], ids=lambda client: type(client).__name__)
def test_the_agents_clients_name_the_nearest(client: Any) -> None:
    with pytest.raises(AttributeError, match=r"did you mean 'tunnels'\?"):
        client.tunels  # noqa: B018
    with pytest.raises(AttributeError, match=r"did you mean 'wait_for'\?"):
        client.requests.wait_fr  # noqa: B018


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: type(client).__name__)
def test_a_name_that_is_like_no_other_is_only_missing(client: object) -> None:
    assert not hasattr(client, "zebra")
    assert not hasattr(client, "_repr_svg_")
    assert getattr(client, "base_urls", None) is None
    with pytest.raises(AttributeError, match=r"no attribute 'zebra'$"):
        client.zebra  # type: ignore[attr-defined]  # noqa: B018


def test_a_mistyped_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match=r"did you mean 'RemoteClient'\?$"):
        ginnel.RemotClient  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("client", CLIENTS[:2], ids=lambda client: type(client).__name__)
async def test_a_mistyped_keyword_names_the_nearest(client: Any) -> None:
    kind = type(client.api_keys).__name__

    with pytest.raises(TypeError) as wrong:
        await client.api_keys.create(descripton="ci")

    assert str(wrong.value) == (
        f"{kind}.create() got an unexpected keyword argument 'descripton'. "
        "Did you mean 'description'?"
    )


async def test_what_is_called_wrongly_otherwise_is_told_as_ever() -> None:
    remote, waiting = CLIENTS[:2]
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'id'$"):
        remote.api_keys.get()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given$"):
        await waiting.api_keys.create("ci")  # type: ignore[call-arg]


def test_service_and_agent_name_the_nearest_too(service: ginnel.Service) -> None:
    with pytest.raises(
        TypeError, match=r"^Service\(\) has no option 'sed'; did you mean 'seed'\?$"
    ):
        ginnel.Service(sed=7)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Agent\(\) has no option 'authtokn'; did you mean 'auth"):
        ginnel.Agent(service, authtokn="x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match=r"did you mean 'http_url'\?$"):
        service.htp_url  # type: ignore[attr-defined]  # noqa: B018


def test_methods_stay_what_tools_take_them_for() -> None:
    remote, waiting = CLIENTS[:2]

    assert list(inspect.signature(ginnel.RemoteClient).parameters)[:2] == ["api_key", "base_url"]
    assert "description" in inspect.signature(remote.api_keys.update).parameters
    assert inspect.iscoroutinefunction(waiting.api_keys.get)
    assert not inspect.iscoroutinefunction(remote.api_keys.get)
    assert remote.api_keys.get.__doc__ == waiting.api_keys.get.__doc__
    assert remote.api_keys.get.__qualname__ == "ApiKeys.get"


@pytest.fixture(params=["client", "async_client"])
def here(request: pytest.FixtureRequest, ginnel_agent: ginnel.Agent) -> Any:
    from conftest import Face

    client = getattr(ginnel_agent, request.param)()
    yield client if request.param == "async_client" else Face(client)
    client.close()


async def test_a_mistyped_tunnel_names_the_nearest(here: Any) -> None:
    with pytest.raises(ginnel.NotFoundError, match=r"; no tunnel is running$"):
        await here.tunnels.get("web")
    for name in ("web", "shop"):
        await here.tunnels.start(addr=80, proto="http", name=name)

    for method in (here.tunnels.get, here.tunnels.stop):
        with pytest.raises(ginnel.NotFoundError, match=r"; did you mean 'web'\?$"):
            await method("wbe")
        with pytest.raises(ginnel.NotFoundError, match=r"; running: (web, shop|shop, web)$") as far:
            await method("zzz")
        assert far.value.status_code == 404
    assert (await here.tunnels.get("web")).name == "web"


async def test_an_error_of_the_agent_gives_its_reason(here: Any) -> None:
    await here.tunnels.start(addr=80, proto="http", name="web")

    with pytest.raises(ginnel.BadRequestError) as refused:
        await here.tunnels.start(addr=80, proto="http", name="web")

    error = refused.value
    reason = 'name: tunnel "web" already exists'
    assert error.details["err"] == reason
    assert str(error).startswith(f"invalid tunnel configuration: {reason} (400")
    assert error.message == "invalid tunnel configuration"
    assert "&quot;web&quot; already exists" in error._repr_html_()
    for copied in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(copied) == str(error)
        assert copied.details == error.details


async def test_a_reason_of_many_lines_is_told_in_one(here: Any) -> None:
    with pytest.raises(ginnel.APIStatusError) as refused:
        await here.tunnels.start(addr=80, proto="http", name="web", subdomain="x")

    assert "\n" in str(refused.value.details["err"])
    assert "failed to start tunnel: subdomain: " in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
