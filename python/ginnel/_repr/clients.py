"""Clients, pagers, services and agents as cards in a notebook; nothing is fetched for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core.resource import cached_property
from .html import GOOD, OPEN, badge, code, frame, line, link, pairs, quiet, strong, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._core.agent import Agent
    from .._core.client import _Client
    from .._core.service import Service


def client(shown: _Client) -> str:
    """A client: where its calls go, by which key, and what it offers."""
    options = {name: shown._options.get(name) for name in ("timeout", "deadline", "max_retries")}
    is_agent = bool(shown._options.get("agent"))
    rows = {
        "inspection page": link(shown.base_url.removesuffix("/api")) if is_agent else "",
        "key": text(shown._core.key_hint),
        **{name: text(str(value)) for name, value in options.items() if value is not None},
        "resources": " ".join(code(name) for name in _resources(type(shown))),
    }
    state = badge("closed", OPEN) if shown.is_closed else ""
    return _card(type(shown).__name__, shown.base_url, state, rows)


def pager(name: str, item: str, whole: str) -> str:
    """A list that has not been fetched, and how it is."""
    awaited = "await " if whole.startswith("await ") else ""
    shown = line(strong(name), quiet("of"), code(item), quiet("· nothing is fetched yet"))
    loop = f"{'async ' if awaited else ''}for item in pager"
    return frame(shown, line(*map(code, (f"{awaited}pager[:5]", whole, loop))))


def service(shown: Service) -> str:
    """A service: where its API, its edges and its agents' port are."""
    rows = {
        "public HTTP": link(shown.http_url or ""),
        "public HTTPS": link(shown.https_url or ""),
        "agents": code(shown.agent_addr) if shown.agent_addr else "",
        "certificate": code(str(shown.ca_path)) if shown.ca_path else "",
    }
    return _card("Service", shown.url, _running(shown.is_running), rows)


def agent(shown: Agent) -> str:
    """An agent: how its link to the service is, and where its page and its API are."""
    state = badge(shown.state, GOOD if shown.state == "online" else OPEN)
    rows = {"agent API": link(f"{shown.url}/api") if shown.url else ""}
    return _card("Agent", shown.url or "", state, rows)


def _card(name: str, url: str, state: str, rows: Mapping[str, str]) -> str:
    """What it is, its address, its state, and whatever else has a value."""
    return frame(
        line(strong(name), link(url) if url else "", state),
        pairs((row, value) for row, value in rows.items() if value),
    )


def _running(is_running: bool) -> str:
    return badge("running", GOOD) if is_running else badge("stopped", OPEN)


def _resources(kind: type[_Client]) -> list[str]:
    """The names of what a client holds."""
    inherited = [vars(base) for base in reversed(kind.__mro__)]
    return [
        name
        for members in inherited
        for name, value in members.items()
        if isinstance(value, cached_property)
    ]
