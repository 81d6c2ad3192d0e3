"""How results look in a notebook, and as data frames."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import ginnel
from ginnel._results import Results
from ginnel.remote.api_keys import ApiKey
from ginnel.remote.ip_policies import IpPolicy


class _Text(HTMLParser):
    """Collects the text and the tags of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

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
