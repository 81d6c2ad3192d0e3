"""What a tunnel shall have received, and what differs where it has not."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from operator import itemgetter
from re import Pattern
from time import sleep
from typing import TYPE_CHECKING

from .._agent_api.base import Wait, is_cut
from .._agent_api.client import AgentClient
from .._agent_api.client_async import AsyncAgentClient, AsyncAgentRequests
from .._capture import mask
from .._capture.body import address, cut, decoded, field_value, visible
from .._core.results import Results
from .._native import is_secret
from .._repr.text import exchange
from ..exceptions import NotFoundError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    from .._agent_api.client import AgentRequests
    from ..local.requests import CapturedRequest

    _Difference: TypeAlias = tuple[float, list[str]]

TIMEOUT = 10.0
"""Seconds to wait for what shall be received."""
MAX_CAPTURED = 1000
"""How many captured requests are looked at."""
MAX_LISTED = 10
"""How many captured requests a failure lists."""
MAX_DIFFERENCES = 20
"""How many differences in a JSON body a failure lists."""
MAX_VALUE = 200
"""How many characters of a value a failure shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a request shall be like; None where it may be like anything."""

    method: str | None = None
    path: str | Pattern[str] | None = None
    headers: Mapping[str, str | Pattern[str] | None] | None = None
    json: object = None
    body: bytes | str | None = None
    status: int | None = None
    tunnel_name: str | None = None

    def __str__(self) -> str:
        told = [self.method or "a request", "" if self.path is None else _pattern(self.path)]
        parts = [f"header {name} {_expected(name, v)}" for name, v in (self.headers or {}).items()]
        parts += [] if self.json is None else [f"json {_shown(self.json, ())}"]
        parts += [] if self.body is None else [f"body {_brief(self.body)}"]
        parts += [] if self.status is None else [f"status {self.status}"]
        parts += [] if self.tunnel_name is None else [f"tunnel {self.tunnel_name}"]
        asked = " ".join(filter(None, told))
        return f"{asked} with {', '.join(parts)}" if parts else asked

    def differences(self, captured: CapturedRequest) -> list[_Difference]:
        """What is different, each with how much it weighs; nothing where the request matches."""
        found = [
            self._method(captured),
            self._path(captured),
            *(self._header(captured, name) for name in self.headers or ()),
            self._json(captured),
            self._body(captured),
            self._status(captured),
            self._tunnel(captured),
        ]
        return [difference for difference in found if difference]

    def _method(self, captured: CapturedRequest) -> _Difference | None:
        got = captured.request.method
        if self.method is None or got.upper() == self.method.upper():
            return None
        return 2.0, [f"method: expected {self.method}, got {visible(cut(got))}"]

    def _path(self, captured: CapturedRequest) -> _Difference | None:
        target = captured.request.uri
        match self.path:
            case None:
                return None
            case Pattern():
                if self.path.search(target):
                    return None
                likeness = 0.0
            case path:
                got = target if "?" in path else target.partition("?")[0]
                if got == path:
                    return None
                likeness = SequenceMatcher(None, got, path).ratio()
        shown = repr(visible(address(target)))
        return 3.0 - likeness, [f"path: expected {_pattern(self.path)}, got {shown}"]

    def _header(self, captured: CapturedRequest, name: str) -> _Difference | None:
        wanted = (self.headers or {})[name]
        values = _values(captured.request.headers, name)
        if wanted is None and not values:
            return None
        if wanted is not None and any(_matches(wanted, value) for value in values):
            return None
        got = ", ".join(repr(visible(field_value(name, value))) for value in values)
        return 1.0, [f"header {name}: expected {_expected(name, wanted)}, got {got or 'none'}"]

    def _json(self, captured: CapturedRequest) -> _Difference | None:
        if self.json is None:
            return None
        try:
            got = captured.request.json()
        except ValueError:
            shown = _brief(decoded(captured.request))
            return 1.5, [f"json: the body is not JSON: {shown}{_incomplete(captured)}"]
        different = list(_json_differences(self.json, got, ()))
        if not different:
            return None
        told = different[:MAX_DIFFERENCES]
        told += [f"… and {len(different) - len(told)} more"] if len(different) > len(told) else []
        return 1.0 - 1.0 / (1 + len(different)), told

    def _body(self, captured: CapturedRequest) -> _Difference | None:
        if self.body is None:
            return None
        wanted = self.body.encode() if isinstance(self.body, str) else self.body
        got = decoded(captured.request)
        if got == wanted or captured.request.text == self.body:
            return None
        shown = f"{_brief(got)}{_incomplete(captured)}"
        return 1.0, [f"body: expected {_brief(wanted)}, got {shown}"]

    def _status(self, captured: CapturedRequest) -> _Difference | None:
        got = captured.response.status_code if captured.response else None
        if self.status is None or got == self.status:
            return None
        return 0.5, [f"status: expected {self.status}, got {got or 'no response yet'}"]

    def _tunnel(self, captured: CapturedRequest) -> _Difference | None:
        if self.tunnel_name is None or captured.tunnel_name == self.tunnel_name:
            return None
        return 0.5, [f"tunnel: expected {self.tunnel_name}, got {visible(captured.tunnel_name)}"]


class Check(Wait):
    """Looks at what was captured until it is as expected, or the time is over."""

    def __init__(self, expected: Expectation, count: int | None, timeout: float | None) -> None:
        if count is not None and count < 0:
            raise ValidationError(f"count={count}: must be 0 or more")
        # What shall not come need not be waited for.
        super().__init__((0.0 if count == 0 else TIMEOUT) if timeout is None else timeout)
        self._expected = expected
        self._count = count

    def look(self, captured: Sequence[CapturedRequest]) -> Results[CapturedRequest] | None:
        """The requests that match, oldest first; None while there may be more to come.

        Raises:
            AssertionError: They are not as many as they shall be, and will not be.
        """
        __tracebackhide__ = True
        oldest_first = sorted(captured, key=lambda request: request.id)
        matching = Results(r for r in oldest_first if not self._expected.differences(r))
        is_late = self.left <= 0
        if self._count is None:
            is_met, is_lost = bool(matching), is_late
        else:
            is_met = len(matching) == self._count and (self._count > 0 or is_late)
            is_lost = len(matching) > self._count or is_late
        if is_met:
            return matching
        if is_lost:
            raise AssertionError(self._failure(oldest_first, matching))
        return None

    def _failure(self, captured: list[CapturedRequest], matching: list[CapturedRequest]) -> str:
        within = f" within {self.timeout:g} s" if self.timeout else ""
        counts = f"{len(matching)} of {len(captured)} captured requests matched"
        told = [f"expected {self._expected}{self._times()}{within}; {counts}"]
        others = [request for request in captured if request not in matching]
        too_many = self._count is not None and len(matching) > self._count
        if others and not too_many:
            told += self._nearest(others)
        return "\n".join([*told, *_listed("matched", matching), *_listed("did not match", others)])

    def _times(self) -> str:
        told = {None: "", 0: ", never", 1: ", once"}
        return told.get(self._count, f", {self._count} times")

    def _nearest(self, others: list[CapturedRequest]) -> Iterator[str]:
        weighed = [(self._expected.differences(request), request) for request in others]
        sums = [(sum(map(itemgetter(0), found)), found, request) for found, request in weighed]
        _, found, nearest = min(sums, key=itemgetter(0))
        yield f"nearest: {exchange(nearest)} (id {visible(nearest.id)})"
        for _, lines in found:
            yield from (f"  {line}" for line in lines)


def check_received(
    source: AgentClient | AgentRequests | Iterable[CapturedRequest], check: Check
) -> Results[CapturedRequest]:
    """Wait until an agent has captured what was expected; a list is looked at as it is."""
    __tracebackhide__ = True
    if isinstance(source, AgentClient):
        source = source.requests
    listing = getattr(source, "list", None)
    if listing is None:
        check.timeout = 0.0
        captured: Any = list(source)  # type: ignore[arg-type]
        matching = check.look(captured)
        assert matching is not None
        return matching
    whole: dict[str, CapturedRequest] = {}
    while True:
        captured = listing(limit=MAX_CAPTURED).to_list()
        for listed in captured:
            if is_cut(listed) and listed.id not in whole:
                with suppress(NotFoundError):
                    whole[listed.id] = source.get(listed.id)  # type: ignore[union-attr]
        matching = check.look([whole.get(listed.id, listed) for listed in captured])
        if matching is not None:
            return matching
        sleep(check.pause)


async def await_received(
    source: AsyncAgentClient | AsyncAgentRequests, check: Check
) -> Results[CapturedRequest]:
    """Wait until an agent has captured what was expected."""
    import asyncio

    __tracebackhide__ = True
    requests = source.requests if isinstance(source, AsyncAgentClient) else source
    whole: dict[str, CapturedRequest] = {}
    while True:
        captured = await requests.list(limit=MAX_CAPTURED).to_list()
        for listed in captured:
            if is_cut(listed) and listed.id not in whole:
                with suppress(NotFoundError):
                    whole[listed.id] = await requests.get(listed.id)
        matching = check.look([whole.get(listed.id, listed) for listed in captured])
        if matching is not None:
            return matching
        await asyncio.sleep(check.pause)


def is_asynchronous(source: object) -> bool:
    """Whether what an agent has captured is awaited."""
    return isinstance(source, AsyncAgentClient | AsyncAgentRequests)


def _listed(title: str, requests: list[CapturedRequest]) -> Iterator[str]:
    if not requests:
        return
    yield f"{title}:"
    yield from (f"  {exchange(request)}" for request in requests[:MAX_LISTED])
    if len(requests) > MAX_LISTED:
        yield f"  … and {len(requests) - MAX_LISTED} more"


def _values(headers: Mapping[str, list[str]], name: str) -> list[str]:
    return [
        value for known, all_ in headers.items() if known.lower() == name.lower() for value in all_
    ]


def _matches(wanted: str | Pattern[str], value: str) -> bool:
    return bool(wanted.search(value)) if isinstance(wanted, Pattern) else wanted == value


def _pattern(wanted: str | Pattern[str]) -> str:
    return f"/{wanted.pattern}/" if isinstance(wanted, Pattern) else visible(address(wanted))


def _expected(name: str, wanted: str | Pattern[str] | None) -> str:
    match wanted:
        case None:
            return "none"
        case Pattern():
            return _pattern(wanted)
        case value:
            return repr(visible(field_value(name, value)))


def _json_differences(wanted: object, got: object, at: tuple[str | int, ...]) -> Iterator[str]:
    match wanted, got:
        case dict(), dict():
            for name in [*wanted, *(name for name in got if name not in wanted)]:
                if name not in got:
                    shown = _shown(wanted[name], (*at, name))
                    yield f"{_place(*at, name)}: expected {shown}, got nothing"
                elif name not in wanted:
                    shown = _shown(got[name], (*at, name))
                    yield f"{_place(*at, name)}: expected nothing, got {shown}"
                else:
                    yield from _json_differences(wanted[name], got[name], (*at, name))
        case (list() | tuple(), list()):
            for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
                yield from _json_differences(one, other, (*at, index))
            if len(wanted) != len(got):
                yield f"{_place(*at)}: expected {len(wanted)} items, got {len(got)}"
        case _:
            if wanted != got or isinstance(wanted, bool) != isinstance(got, bool):
                yield f"{_place(*at)}: expected {_shown(wanted, at)}, got {_shown(got, at)}"


def _place(*at: str | int) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
    return visible(f"json{''.join(steps)}")


def _shown(value: object, at: tuple[str | int, ...]) -> str:
    """A JSON value without secrets, and short."""
    names = [name for name in at if isinstance(name, str)]
    is_number = value is None or isinstance(value, bool | int | float)
    # Numbers, booleans and null stay, unless they are inside a hidden value.
    hiding = at[:-1] if is_number and names and at[-1] == names[-1] else at
    if any(isinstance(name, str) and is_secret(name) for name in hiding):
        return mask.MASK
    told = json.dumps(mask.json(value), ensure_ascii=False, default=repr)
    return visible(cut(told, MAX_VALUE))


def _brief(body: bytes | str) -> str:
    text = body if isinstance(body, str) else body.decode("utf-8", "backslashreplace")
    return visible(cut(repr(mask.text(text)), MAX_VALUE))


def _incomplete(captured: CapturedRequest) -> str:
    return " (not all of it was captured)" if captured.request.truncated else ""
