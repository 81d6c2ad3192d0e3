"""The page "Timeouts and limits" has the values of the code."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

import ginnel
from ginnel import _native

PAGE = (Path(__file__).parents[2] / "docs/operate/limits.md").read_text()


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(text: str) -> dict[str, str]:
    """The rows of the tables in a part of the page: key and default."""
    return dict(re.findall(r"^\| `([\w.]+)` \| `?([^|`]+)`? \|", text, re.MULTILINE))


def defaults_of(settings: str) -> dict[str, str]:
    return {it["key"]: str(it["default"]).strip("`") for it in json.loads(settings)}


def test_the_defaults_of_the_service_are_those_of_the_code() -> None:
    defaults = defaults_of(_native.service_settings())
    agents, _, _ = section("Agents and tunnels").partition("| Key of the agent")
    shown = rows(section("Visitors and backends")) | rows(agents) | rows(section("Management API"))

    assert len(shown) > 20
    assert {key: defaults.get(key) for key in shown} == shown


@pytest.mark.parametrize("prefix", ["edge.", "api."])
def test_every_limit_of_the_service_is_on_the_page(prefix: str) -> None:
    limits = {key for key in defaults_of(_native.service_settings()) if key.startswith(prefix)}

    assert limits
    assert sorted(limits - rows(PAGE).keys()) == []


def test_the_defaults_of_the_agent_are_those_of_its_reference() -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text()
    defaults = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `([^|`]+)` \| ", reference, re.MULTILINE))
    _, _, agent = section("Agents and tunnels").partition("| Key of the agent")
    shown = rows(agent)

    assert len(shown) == 6
    assert {key: defaults.get(key) for key in shown} == shown


def test_the_options_of_clients_are_options() -> None:
    shown = rows(section("Clients"))

    assert len(shown) == 4
    assert shown.keys() <= inspect.signature(ginnel.RemoteClient).parameters.keys()
    assert shown.keys() <= inspect.signature(ginnel.AgentClient).parameters.keys()
    assert f"{shown['max_connections'].strip()} by default" in (
        ginnel.RemoteClient.__init__.__doc__ or ""
    )
