"""What agents captured while a test ran, for the report of one that failed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from .._core.agent import Agent
from ..exceptions import APIError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..local.requests import CapturedRequest

TITLE = "ginnel: captured requests"
MAX_LISTED = 20
"""How many requests are listed, the newest ones."""
SECONDS = 3
"""How long an agent may take to tell."""


def sections(urls: Iterable[str], since: float) -> Iterator[tuple[str, str]]:
    """A section of a report for each agent, by the addresses of their APIs."""
    for url in dict.fromkeys(urls):
        # Agents tell the second in which a request arrived.
        yield TITLE, _captured(url, datetime.fromtimestamp(int(since), UTC))


def agent_urls(fixtures: Iterable[object]) -> Iterator[str]:
    """The addresses of the agents that are among fixtures, or that clients among them call."""
    clients = sys.modules.get("ginnel._agent_base")
    for value in fixtures:
        if isinstance(value, Agent) and value.url:
            yield f"{value.url}/api"
        elif clients and isinstance(value, clients.AgentOptions):
            yield value.base_url


def _captured(url: str, since: datetime) -> str:
    from .._agent_api.client import AgentClient

    options = {"timeout": SECONDS, "deadline": SECONDS, "max_retries": 0}
    with AgentClient(url, allow_http=True, **options) as client:  # type: ignore[arg-type]
        try:
            listed = client.requests.list(limit=1000).to_list()
        except APIError as error:
            return f"cannot be fetched: {error}"
    return _lines([request for request in listed if request.start >= since])


def _lines(newest_first: list[CapturedRequest]) -> str:
    if not newest_first:
        return "none during this test"
    shown = [_line(request) for request in reversed(newest_first[:MAX_LISTED])]
    more = len(newest_first) - len(shown)
    return "\n".join([f"… {more} earlier ones", *shown] if more else shown)


def _line(captured: CapturedRequest) -> str:
    """Time, tunnel, method, path, status and duration."""
    from .._capture.body import address, cut, visible
    from .._repr.text import LINE, outcome

    at = captured.start.astimezone().strftime("%H:%M:%S")
    asked = f"{captured.request.method} {address(captured.request.uri)}"
    told = f"{at}  {captured.tunnel_name}  {asked} -> {outcome(captured)}"
    return visible(cut(told, LINE))
