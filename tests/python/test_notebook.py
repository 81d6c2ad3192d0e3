"""How results look in a notebook, and as data frames."""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel
from ginnel._core.results import Results
from ginnel.local.requests import CapturedRequest
from ginnel.remote.api_keys import ApiKey
from ginnel.remote.ip_policies import IpPolicy


class _Text(HTMLParser):
    """Collects the text and the tags of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str | None] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "a":
            self.links.append(dict(attrs)["href"])

    def handle_data(self, data: str) -> None:
        self.text += data + " "


async def test_a_result_is_a_card_without_its_secrets(client: ginnel.AsyncRemoteClient) -> None:
    created = await client.api_keys.create(description="ci")

    shown = _Text(created._repr_html_()).text

    assert "ApiKey" in shown
    assert created.id in shown
    assert "ci" in shown
    assert created.token is not None
    assert created.token not in shown


def test_values_are_text_and_never_markup() -> None:
    hostile = IpPolicy.from_dict({"id": "ipp_1", "uri": "", "description": "<script>x</script>"})

    shown = _Text(hostile._repr_html_())

    assert "script" not in shown.tags
    assert "<script>x</script>" in shown.text


async def test_a_list_is_a_table(client: ginnel.AsyncRemoteClient) -> None:
    for number in range(3):
        await client.ip_policies.create(description=f"office {number}")

    listed = await client.ip_policies.list(limit=2).to_list()
    shown = _Text(listed._repr_html_()).text

    assert isinstance(listed, list)
    assert [f"office {number}" in shown for number in range(3)] == [True, True, True]
    assert "3 items" in shown


async def test_a_pager_shows_itself_without_fetching(service: ginnel.Service) -> None:
    client = service.client()
    client.close()

    assert repr(client.api_keys.list()) == "<Pager of ApiKey>"


def app(environ: dict[str, Any], start: Any) -> list[bytes]:
    start("204 No Content", [])
    return []


async def office(client: Any, count: int) -> list[str]:
    """The descriptions of so many IP policies, in the order of their list."""
    for number in range(count):
        await client.ip_policies.create(description=f"office {number}")
    return [f"office {number}" for number in reversed(range(count))]


def listings(service: ginnel.Service) -> list[str | None]:
    """The queries of the calls that fetched a page of IP policies."""
    return [call.query for call in service.calls if call.operation == "ip_policies.list"]


@pytest.mark.parametrize(
    ("part", "queries"),
    [
        (slice(5), ["limit=5"]),
        (slice(3, 7), ["limit=7"]),
        (slice(1, 8, 3), ["limit=8"]),
        (slice(4, 4), []),
        (slice(0), []),
        (slice(None), [None]),
        (slice(10, None), [None]),
        (slice(60), [None]),
    ],
)
async def test_a_slice_of_a_pager_fetches_no_more_than_it_needs(
    client: Any, service: ginnel.Service, part: slice, queries: list[str | None]
) -> None:
    names = await office(client, 12)

    found = await client.ip_policies.list()[part]

    assert [policy.description for policy in found] == names[part]
    assert listings(service) == queries
    assert type(found) is Results


async def test_a_page_size_that_was_asked_for_is_kept(client: Any, service: ginnel.Service) -> None:
    names = await office(client, 12)

    found = await client.ip_policies.list(limit=2)[3:7]

    assert [policy.description for policy in found] == names[3:7]
    assert len(listings(service)) == 4
    assert {query.rpartition("limit=")[2] for query in listings(service) if query} == {"2"}


async def test_one_item_of_a_pager_is_one_small_request(
    client: Any, service: ginnel.Service
) -> None:
    names = await office(client, 3)
    pager = client.ip_policies.list()

    assert (await pager[0]).description == names[0]
    assert (await pager[2]).description == names[2]
    assert (await pager.first()).description == names[0]
    assert len(await pager.to_list(2)) == 2
    assert listings(service) == ["limit=1", "limit=3", "limit=1", "limit=2"]
    with pytest.raises(IndexError, match=r"^pager\[3\]: the list has 3 items$"):
        await pager[3]
    with pytest.raises(ginnel.ValidationError, match="limit=-1: must be 0 or more"):
        await pager.to_list(-1)


def test_captured_requests_are_fetched_as_they_are_needed(
    ginnel_tunnel: Any, ginnel_agent: ginnel.Agent
) -> None:
    url = ginnel_tunnel(app)
    for number in range(3):
        urlopen(f"{url}/{number}").read()
    with asked(ginnel_agent) as (client, paths):
        client.requests.wait_for(lambda captured: captured.request.uri == "/2")
        paths.clear()

        assert [captured.request.uri for captured in client.requests.list()[1:3]] == ["/1", "/0"]
        assert client.requests.list(tunnel_name="test-1")[0].request.uri == "/2"
        assert client.requests.list(limit=2)[5:] == []
        assert client.tunnels.list()[0].name == "test-1"

    assert paths == [*["/requests/http"] * 3, "/tunnels"]


@contextmanager
def asked(agent: ginnel.Agent) -> Iterator[tuple[ginnel.AgentClient, list[str]]]:
    """A client of the agent, and the paths that it has asked for."""
    paths: list[str] = []
    with ginnel.AgentClient(agent.url, on_request=lambda event: paths.append(event.path)) as client:
        yield client, paths


@pytest.mark.parametrize(
    ("part", "error", "text"),
    [
        (-1, IndexError, r"pager[-1]: a pager counts from the start"),
        (slice(-3, None), IndexError, r"pager[-3:]: a pager counts from the start"),
        (slice(None, -1), IndexError, r"use to_list()[:-1]"),
        (slice(None, None, -1), IndexError, r"use to_list()[::-1]"),
        (slice(None, None, 0), ValueError, r"pager[::0]: the step must be 1 or more"),
        ("a", TypeError, "pager[a]: positions are whole numbers, not str"),
        (1.5, TypeError, "pager[1.5]: positions are whole numbers, not float"),
        (slice("a", None), TypeError, "pager['a':]: positions are whole numbers, not str"),
    ],
)
async def test_what_a_pager_cannot_give_it_says_in_words(
    client: Any, service: ginnel.Service, part: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        await client.ip_policies.list()[part]

    assert service.calls == []


def test_a_pager_says_why_it_has_no_length(service: ginnel.Service) -> None:
    blocking, waiting = service.client(), service.async_client()
    pagers = (blocking.ip_policies.list(), waiting.ip_policies.list())

    for pager, whole in zip(pagers, ("pager.to_list()", "await pager.to_list()"), strict=True):
        with pytest.raises(TypeError, match=re.escape(f"use len({whole})")):
            len(pager)
        assert pager
    assert service.calls == []
    assert list(pagers[0]) == []
    with pytest.raises(TypeError, match="'AsyncPager' object is not iterable"):
        list(pagers[1])  # type: ignore[call-overload]
    blocking.close()
    waiting.close()


async def test_a_part_of_a_list_is_a_list_with_a_card(client: Any) -> None:
    names = await office(client, 4)

    listed = await client.ip_policies.list().to_list()
    (page,) = [page async for page in client.ip_policies.list().pages()]

    for part in (listed[1:3], page[1:3], listed[1:2] + listed[2:3], listed[1:3].copy()):
        assert [policy.description for policy in part] == names[1:3]
        assert "2 items" in _Text(part._repr_html_()).text
    assert listed[-1] == page[3] == listed[3]


async def test_an_error_is_a_card(client: ginnel.AsyncRemoteClient) -> None:
    with pytest.raises(ginnel.NotFoundError) as caught:
        await client.api_keys.get("ak_" + "x" * 27)

    shown = _Text(caught.value._repr_html_()).text

    assert "NotFoundError" in shown
    assert "GET" in shown


async def test_a_list_becomes_a_data_frame(client: ginnel.AsyncRemoteClient) -> None:
    pytest.importorskip("pandas")
    await client.api_keys.create(description="ci")

    frame = (await client.api_keys.list().to_list()).to_pandas()

    assert frame.iloc[0]["description"] == "ci"
    assert "token" not in frame.columns


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    key = ApiKey.from_dict({"id": "ak_1", "uri": ""})

    with pytest.raises(ImportError, match=r"pip install 'ginnel\[pandas\]'"):
        Results([key]).to_pandas()


async def test_progress_is_counted_on_stderr(
    client: ginnel.AsyncRemoteClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    await client.ip_policies.create()

    await client.ip_policies.list().to_list(progress=True)

    assert "IpPolicy: 1" in capsys.readouterr().err


def test_clients_are_cards_with_addresses_to_click_on() -> None:
    key = "secret-key-0123456789abcdef"
    remote = ginnel.AsyncRemoteClient(key, base_url="http://127.0.0.1:9/a&b", timeout=3)
    local = ginnel.AgentClient("http://127.0.0.1:4041")

    shown = _Text(remote._repr_html_())
    page = _Text(local._repr_html_())

    assert shown.links == [remote.base_url]
    assert "AsyncRemoteClient" in shown.text
    assert "ip_policies" in shown.text
    assert "timeout" in shown.text
    assert 'href="http://127.0.0.1:9/a&amp;b"' in remote._repr_html_()
    assert page.links == ["http://127.0.0.1:4041/api", "http://127.0.0.1:4041"]
    for text in (remote._repr_html_(), repr(remote), str(list(remote.__rich_repr__()))):
        assert key not in text
    assert "closed" not in shown.text
    remote.close()
    assert "closed" in _Text(remote._repr_html_()).text


def test_service_and_agent_are_cards_with_addresses_to_click_on(
    ginnel_service: ginnel.Service, ginnel_agent: ginnel.Agent
) -> None:
    shown, agent = _Text(ginnel_service._repr_html_()), _Text(ginnel_agent._repr_html_())

    assert shown.links == [ginnel_service.url, ginnel_service.http_url, ginnel_service.https_url]
    assert "running" in shown.text
    assert str(ginnel_service.agent_addr) in shown.text
    assert agent.links == [ginnel_agent.url, f"{ginnel_agent.url}/api"]
    assert "online" in agent.text
    for secret in (ginnel_service.api_key, ginnel_service.authtoken):
        assert secret is not None
        assert secret not in ginnel_service._repr_html_() + repr(ginnel_service)
        assert secret not in str(list(ginnel_service.__rich_repr__()))
    ginnel_agent.stop()
    ginnel_service.stop()
    assert "stopped" in _Text(ginnel_service._repr_html_()).text
    assert "offline" in _Text(ginnel_agent._repr_html_()).text


async def test_a_pager_is_a_card_that_says_how_it_is_fetched(service: ginnel.Service) -> None:
    with service.client() as blocking, service.client() as other:
        waiting = ginnel.AsyncRemoteClient(service.api_key, base_url=other.base_url)

        shown = _Text(blocking.ip_policies.list()._repr_html_()).text
        awaited = _Text(waiting.ip_policies.list()._repr_html_()).text

    assert "IpPolicy" in shown
    assert "pager[:5]" in shown
    assert "await" not in shown
    assert "await pager[:5]" in awaited
    assert service.calls == []
    await waiting.aclose()


def test_rich_prints_what_repr_prints() -> None:
    console_module = pytest.importorskip("rich.console")
    key = ApiKey.from_dict({"id": "ak_1", "uri": "u", "token": "top-secret", "later": "x"})
    remote = ginnel.RemoteClient("a-key-0123456789abcdef", base_url="http://127.0.0.1:9")

    def printed(value: object) -> str:
        console = console_module.Console(width=200, record=True, file=io.StringIO())
        console.print(value)
        return str(console.export_text())

    assert printed(key).strip() == repr(key)
    assert "top-secret" not in printed([key])
    assert printed(remote).startswith("RemoteClient(base_url='http://127.0.0.1:9")
    assert "0123456789abcdef" not in printed(remote)
    assert printed(remote.api_keys.list()).strip() == "Pager(of='ApiKey')"


def test_nobody_needs_rich() -> None:
    code = (
        "import sys, ginnel\n"
        "client = ginnel.RemoteClient('k', base_url='http://127.0.0.1:9')\n"
        "list(client.__rich_repr__()), client._repr_html_(), client.api_keys.list()._repr_html_()\n"
        "assert 'rich' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "assert 'matplotlib' not in sys.modules and 'pandas' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def exchange(number: int, status: str | None, milliseconds: float) -> CapturedRequest:
    """A captured request as an agent would tell it."""
    message = {"proto": "HTTP/1.1", "headers": {}, "raw": ""}
    wire: dict[str, object] = {
        "uri": "",
        "id": str(number),
        "tunnel_name": "web",
        "remote_addr": "192.0.2.1",
        "start": f"2026-01-02T03:04:{number:02}Z",
        "duration": int(milliseconds * 1e6),
        "request": {**message, "method": "GET", "uri": "/"},
    }
    if status:
        wire["response"] = {**message, "status": status, "status_code": int(status[:3])}
    return CapturedRequest.from_dict(wire)


def test_captured_requests_are_drawn_by_duration_and_status() -> None:
    pytest.importorskip("matplotlib")
    captured = [exchange(at, "200 OK", 2) for at in range(5)]
    captured += [exchange(6, "502 Bad Gateway", 900), exchange(7, None, 0)]

    with ginnel.AgentClient() as here:
        drawn: Any = here.requests.plot(captured)

    durations, statuses = drawn.axes
    assert [text.get_text() for text in durations.get_legend().get_texts()] == ["2xx", "5xx"]
    assert durations.get_yscale() == "log"
    assert [len(points.get_offsets()) for points in durations.collections] == [5, 1]
    assert [label.get_text() for label in statuses.get_yticklabels()] == [
        "200",
        "502",
        "no response",
    ]
    assert [bar.get_width() for bar in statuses.patches] == [5, 1, 1]
    assert drawn._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["client", "async_client"])
async def test_a_figure_fetches_what_it_draws(
    ginnel_agent: ginnel.Agent, ginnel_tunnel: Any, kind: str
) -> None:
    pytest.importorskip("matplotlib")
    here = getattr(ginnel_agent, kind)()
    empty = here.requests.plot()
    empty = await empty if kind == "async_client" else empty
    url = ginnel_tunnel(app)
    for number in range(3):
        await asyncio.to_thread(lambda at: urlopen(f"{url}/{at}").read(), number)

    drawn = here.requests.plot(limit=2, tunnel_name="test-1")
    drawn = await drawn if kind == "async_client" else drawn

    assert [text.get_text() for text in empty.axes[0].texts] == ["no captured requests"]
    assert drawn.axes[1].get_title() == "Statuses of 2 requests"
    here.close()


def test_without_matplotlib_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with (
        ginnel.AgentClient() as here,
        pytest.raises(ImportError, match=r"pip install 'ginnel\[plot\]'"),
    ):
        here.requests.plot([])
