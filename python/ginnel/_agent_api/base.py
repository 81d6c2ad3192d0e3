"""What both clients of the agent API share."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from .._core.client import _Client, takes_options
from ..exceptions import AgentNotRunningError, APITimeoutError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    from .._core.client import _Path
    from ..events import Event
    from ..local.held_requests import HeldRequest
    from ..local.requests import CapturedRequest
    from ..local.status import Status
    from ..local.tunnels import AgentTunnel

    _Hook: TypeAlias = Callable[[Event], object]
    _Predicate: TypeAlias = Callable[[CapturedRequest], object]

PORTS = range(4040, 4050)
"""Where agents listen by default."""

GONE = (NotFoundError, AgentNotRunningError)
"""What says that a tunnel does not run any more, somebody else having stopped it or its agent."""


SECONDS_FOR_NAMES = 1.0
"""How long an error may take to find out which tunnels run."""


def nearest_name(name: str, running: Iterable[AgentTunnel]) -> str:
    from .._capture.body import cut, visible
    from .._core.resource import did_you_mean

    names = [tunnel.name for tunnel in running]
    if told := did_you_mean(name, names):
        return told
    return visible(cut(f"; running: {', '.join(names)}")) if names else "; no tunnel is running"


def tunnel_names(tunnel: AgentTunnel, definition: Mapping[str, Any]) -> list[str]:
    """The tunnels that a definition has started: one for each public scheme."""
    both = len(definition.get("schemes") or ()) > 1 or definition.get("bind_tls") == "both"
    return [tunnel.name, f"{tunnel.name} (http)"] if both else [tunnel.name]


def is_cut(listed: CapturedRequest) -> bool:
    """True if a list, or the agent itself, has only the beginning of a body."""
    response = listed.response
    return response is not None and bool(listed.request.truncated or response.truncated)


class Wait:
    """Something that is waited for, by looking at it again and again."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._started = monotonic()

    @property
    def left(self) -> float:
        """Seconds until the end of the wait."""
        return self._started + self.timeout - monotonic()

    @property
    def pause(self) -> float:
        """Seconds until the next look: longer for who has waited for long."""
        return min(max(0.01, (self.timeout - self.left) / 10), 0.1)


class Search(Wait):
    """Finds the oldest answered request that matches; each is shown to the predicate once."""

    FEW, MOST = 5, 1000
    """How many requests are asked for: when little is expected to be new, and otherwise."""
    MAX_LISTED = 5
    """How many of the requests that did not match the error for a timeout lists."""

    def __init__(
        self, predicate: _Predicate | None, timeout: float, count: Callable[[int], object]
    ) -> None:
        super().__init__(timeout)
        self._count = count
        self.limit = self.MOST
        self._predicate = predicate
        self._seen: set[str] = set()
        self._listed: list[str] = []
        self._pending: set[str] = set()
        self._raised: list[Exception] = []

    def needs_whole(self, listed: CapturedRequest) -> bool:
        """True if the list has only the beginning of a body that the predicate will be shown.

        At the end of the wait, the predicate is shown the beginning.
        """
        return listed.id not in self._seen and self.left > 0 and is_cut(listed)

    def look(self, newest_first: list[CapturedRequest]) -> CapturedRequest | None:
        """The request that was searched for, if it is among these."""
        listed = {request.id for request in newest_first}
        partial = len(newest_first) >= self.limit < self.MOST
        if partial and (self._seen.isdisjoint(listed) or not self._pending <= listed):
            # There may be more that is new behind these.
            self.limit = self.MOST
            return None
        self.limit = self.FEW
        self._pending = {request.id for request in newest_first if request.response is None}
        for request in reversed(newest_first):
            if request.id in self._seen or request.response is None:
                continue
            self._seen.add(request.id)
            self._count(1)
            if self._matches(request):
                return request
            if len(self._listed) < self.MAX_LISTED:
                from .._repr.text import exchange

                self._listed.append(exchange(request))
        return None

    def _matches(self, request: CapturedRequest) -> bool:
        """What the predicate says; where it raises, the request is not the one it is meant for."""
        if self._predicate is None:
            return True
        try:
            return bool(self._predicate(request))
        except Exception as error:
            self._raised.append(error)
            return False

    def late(self) -> APITimeoutError:
        """The error for a search without success."""
        told = [f"no captured request matched within {self.timeout:g} s", self._told_of_seen()]
        if self._pending:
            told.append(f"{len(self._pending)} without a response yet")
        if self._raised:
            kinds = Counter(type(error).__name__ for error in self._raised)
            raised = ", ".join(f"{kind} on {count}" for kind, count in kinds.items())
            told.append(f"predicate raised {raised}")
        return APITimeoutError("; ".join(told))

    @property
    def raised(self) -> Exception | None:
        """What the predicate raised first."""
        return self._raised[0] if self._raised else None

    def _told_of_seen(self) -> str:
        listed = [*self._listed, *(["…"] if len(self._seen) > len(self._listed) else [])]
        return f"saw {len(self._seen)}{': ' if listed else ''}{', '.join(listed)}"


MIN_RESPONSE_TIME = 0.2
"""Seconds that an agent needs to answer at most; a look with less says nothing about it."""


class Start(Wait):
    """Waits until an agent is online."""

    state = "not running"

    def look(self, status: Status) -> Status | None:
        """The status, if it is the one that was waited for."""
        self.state = status.status
        return status if status.status == "online" else None

    def timed_out(self, allowed: float) -> APITimeoutError:
        """The error after a look that got no response within so many seconds."""
        if allowed >= min(MIN_RESPONSE_TIME, self.timeout / 2):
            self.state = "not answering"
        return self.late()

    def late(self) -> APITimeoutError:
        """The error for an agent that is not online in time."""
        return APITimeoutError(f"after {self.timeout:g} s the agent is {self.state}, not online")


class Held(Wait):
    """Waits until a request is held."""

    def look(self, held: list[HeldRequest], hold_id: str | None) -> HeldRequest | None:
        """The oldest of these, of that hold."""
        return next((it for it in held if hold_id in (None, it.hold_id)), None)

    def late(self) -> APITimeoutError:
        """The error when none is held in time."""
        return APITimeoutError(f"no request was held within {self.timeout:g} s")


class AgentOptions(_Client):
    @takes_options
    def __init__(
        self,
        base_url: str | None = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
        ca_bundle: _Path | None = None,
        client_cert: _Path | tuple[_Path, _Path] | None = None,
        allow_http: bool = False,
        app: str | None = None,
        max_connections: int | None = None,
        rate_limit: str | None = None,
        on_request: _Hook | None = None,
        on_response: _Hook | None = None,
        on_retry: _Hook | None = None,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            base_url: Where the agent API is served, with or without `/api`; else
                `GINNEL_AGENT_URL`, else `http://127.0.0.1:4040/api`.
            timeout: Seconds for one attempt, 10 by default; 0 for no limit.
            deadline: Seconds for a call with its retries and pauses, 90 by default; 0 for no limit.
            max_retries: How many times to retry a failed attempt, 2 by default.
            headers: Headers to add to each request, in place of those of their names. Those of the
                transport are refused, as by `RemoteClient`.
            ca_bundle: A PEM file of certificates to trust instead of the system's, for an agent API
                behind HTTPS; else `GINNEL_CA_BUNDLE`.
            client_cert: A certificate to show to servers that ask for one: a PEM file with
                certificate and key, or a pair of files, `(certificate, key)`; else
                `GINNEL_CLIENT_CERT`, one file.
            allow_http: True to call an agent on another machine unencrypted.
            app: What to put in front of our `User-Agent`, such as "deploy/1.2".
            max_connections: How many connections there are at most, 100 by default. Calls that find
                none wait in the order in which they came.
            rate_limit: How many requests are sent at most in a time, such as "120/60s", retries
                counted; the time is in ms, s, m or h. Calls wait in the order in which they came.
                Copies by `with_options` share the limit.
            on_request: Called with an `Event` before each attempt.
            on_response: Called with an `Event` after each attempt, answered or failed.
            on_retry: Called with an `Event` before the pause that another attempt follows.

        Raises:
            ConfigError: An option is unusable; the message names it.
            TypeError: There is no such option; the message names the nearest one.
        """
        self._open({"agent": True, **locals()})
