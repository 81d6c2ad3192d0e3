"""Traffic policies: checked, and tried without traffic.

    from ginnel import policy

    for problem in policy.check(document):
        print(problem)
    report = policy.test(document, request="https://example.com/admin", client_ip="192.0.2.1")
    assert report.response.status == 403

What decides here is what decides at an edge: it is the same code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict

from . import _native
from .exceptions import ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any, Literal

    _Protocol: TypeAlias = Literal["http", "https", "tcp", "tls"]

Document: TypeAlias = Mapping[str, object] | str | Path
Headers: TypeAlias = Mapping[str, str | Sequence[str]]


class GivenRequest(TypedDict, total=False):
    """A request. What is left out is a GET of http://localhost/ without headers and body."""

    method: str
    url: str
    headers: Headers
    body: str


class GivenResponse(TypedDict, total=False):
    """A response. What is left out is an empty 200."""

    status: int
    headers: Headers
    body: str


class GivenLogin(TypedDict, total=False):
    """Somebody who has logged in, in the words of the issuer."""

    id: str
    email: str
    email_verified: bool
    name: str
    groups: list[str]


class GivenTls(TypedDict, total=False):
    """What the visitor and the service agreed on."""

    version: str
    cipher_suite: str
    sni: str
    alpn: str
    resumed: bool


class Ranges(TypedDict, total=False):
    """The rules of an IP policy: CIDRs."""

    allow: Sequence[str]
    deny: Sequence[str]


__all__ = [
    "Action",
    "Decision",
    "PolicyError",
    "Problem",
    "Problems",
    "Report",
    "Request",
    "Response",
    "Rule",
    "Trial",
    "check",
    "test",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a document."""

    place: str
    """Where it is, such as `on_http_request[0].actions[1].config.status_code`."""
    code: int
    """The number of the error, which the service answers with too."""
    message: str
    """What is wrong, with the limit if there is one."""

    def __str__(self) -> str:
        return f"{self.place}: {self.message} ({self.code})"


class PolicyError(ValidationError):
    """A document cannot be tried, because something is wrong with it; `problems` says what."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems: list[Problem] = list(problems)

    def __reduce__(self) -> tuple[type[PolicyError], tuple[list[Problem]]]:
        return type(self), (self.problems,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What one action did."""

    index: int
    """The number of the action in its rule, from 0."""
    type: str
    """The type of the action, such as `rate-limit`."""
    result: Mapping[str, object] | None
    """What later expressions find under `actions.ngrok`."""
    ended: bool
    """Whether the action ended the phase."""
    error_code: int | None
    """The number of its failure."""
    error: str | None
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one rule did."""

    phase: str
    """The phase, such as `on_http_request`."""
    index: int
    """The number of the rule in its phase, from 0."""
    name: str
    """The name of the rule; may be empty."""
    matched: bool
    """Whether all expressions were true."""
    error: str | None
    """Why an expression was neither true nor false, so that the rule was skipped."""
    actions: tuple[Action, ...]
    """What the actions did that ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The action that ended the last phase that was ended."""

    phase: str
    """The phase, such as `on_http_request`."""
    rule: int
    """The number of the rule in its phase, from 0."""
    name: str
    """The name of the rule; may be empty."""
    action: str
    """The type of the action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as the upstream sees it."""

    method: str
    """The method."""
    url: str
    """The URL."""
    headers: Mapping[str, tuple[str, ...]]
    """The values of each header, by lower-case name."""
    body: str
    """The body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response as the visitor sees it."""

    status: int
    """The status."""
    code: int | None
    """The number of the error, where the service speaks for itself."""
    headers: Mapping[str, tuple[str, ...]]
    """The values of each header, by lower-case name."""
    body: str
    """The body before it is compressed."""
    compression: str | None
    """How the body is compressed."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """What became of a request, or of a connection."""

    outcome: Literal["continue", "respond", "close", "forward"]
    """Who gets it: the upstream, nobody because the rules answer or close, or an endpoint."""
    decision: Decision | None
    """The action that decided; none where everything goes on."""
    rules: tuple[Rule, ...]
    """Every rule that was looked at, in order, and what its actions did."""
    request: Request | None
    """The request as the upstream sees it; none where it never does."""
    response: Response | None
    """The response as the visitor sees it; none for connections."""
    forwarded_to: str | None
    """Where `forward-internal` sends it."""
    logs: tuple[object, ...]
    """What `log` actions said."""
    vars: Mapping[str, object]
    """The variables of the phase that ran last."""
    actions: Mapping[str, object]
    """What expressions find under `actions.ngrok`."""
    failed_expressions: int
    """How many expressions were neither true nor false."""

    @property
    def matched(self) -> tuple[Rule, ...]:
        """The rules whose actions ran."""
        return tuple(rule for rule in self.rules if rule.matched)

    def __repr__(self) -> str:
        from ._repr.traffic import report_line

        return report_line(self)

    def _repr_html_(self) -> str:
        from ._repr.traffic import report_card

        return report_card(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython prints: all of it where it stands alone, a line where it is one of many."""
        from ._repr.traffic import report_line, report_lines

        printer.text(report_line(self) if printer.indentation else report_lines(self))


class Problems(list[Problem]):
    """What is wrong with a document: a list in every way, and a table in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from ._repr.traffic import problems_card

        return problems_card(self)


def check(
    document: Document, *, protocol: _Protocol = "http", edge: bool | None = None
) -> Problems:
    """Say what is wrong with a document; an empty list says that nothing is.

    Args:
        document: A mapping, a text in JSON or YAML, or the path of a file with one.
        protocol: What the traffic speaks that the document is for.
        edge: Whether it is for edges, and not for endpoints of agents. Unless given, `inbound` and
            `outbound` tell: these are for edges.
    """
    found = _native.check_policy(_text(document), protocol, edge)
    return Problems(Problem(place=place, code=code, message=text) for place, code, text in found)


class Trial:
    """A policy that is tried with one request after the other.

    Requests share what they share at an edge: rate limits, circuit breakers and keys.
    """

    __slots__ = ("_protocol", "_trial")

    def __init__(
        self,
        document: Document,
        *,
        protocol: _Protocol = "http",
        edge: bool | None = None,
        begin: datetime | None = None,
    ) -> None:
        """Compile a document.

        Args:
            document: A mapping, a text in JSON or YAML, or the path of a file with one.
            protocol: What the traffic speaks.
            edge: Whether it is for edges; unless given, its spelling tells.
            begin: The time of the first request, aware; now unless given.

        Raises:
            PolicyError: Something is wrong with the document.
        """
        text = _text(document)
        if problems := check(text, protocol=protocol, edge=edge):
            raise PolicyError(problems)
        if begin is not None and begin.tzinfo is None:
            raise ValidationError("begin: has no time zone")
        self._protocol = protocol
        start = None if begin is None else begin.isoformat()
        self._trial = _native.Trial(text, protocol, edge, start)

    def run(
        self,
        *,
        request: GivenRequest | str | None = None,
        response: GivenResponse | int | None = None,
        client_ip: str | None = None,
        client_port: int | None = None,
        tls: GivenTls | None = None,
        endpoint: str | None = None,
        ip_policies: Mapping[str, Ranges] | None = None,
        fetch: Mapping[str, GivenResponse] | None = None,
        login: GivenLogin | None = None,
        offline: Sequence[str] = (),
        after: float = 0.0,
    ) -> Report:
        """Take a request through the policy; or a connection, if the protocol is tcp or tls.

        Args:
            request: The request, or just its URL.
            response: What the upstream answers, or just its status.
            client_ip: Where the visitor comes from; 127.0.0.1 unless given.
            client_port: The port of the visitor.
            tls: What was agreed on by TLS.
            endpoint: The URL of the endpoint; that of the request unless given.
            ip_policies: The rules of IP policies, by identifier.
            fetch: What other servers answer, by URL; others cannot be reached.
            login: Who has logged in, for `openid-connect` and `oauth`; nobody unless given.
            offline: URLs that `forward-internal` does not reach.
            after: How many seconds after the request before this one it comes.

        Raises:
            ValidationError: The arguments are not a valid request or connection.
        """
        if request is None and self._protocol in ("http", "https"):
            request = {}
        connection = {"client_ip": client_ip, "client_port": client_port, "tls": tls}
        given: dict[str, object] = {
            "connection": {name: value for name, value in connection.items() if value is not None},
            "endpoint": endpoint,
            "request": {"url": request} if isinstance(request, str) else request,
            "response": {"status": response} if isinstance(response, int) else response,
            "ip_policies": ip_policies,
            "fetch": fetch,
            "login": login,
            "offline": list(offline),
            "after": f"{after:f}s" if after else None,
        }
        given = {name: value for name, value in given.items() if value is not None}
        return _report(json.loads(self._trial.run(json.dumps(given))))


def test(
    document: Document,
    *,
    request: GivenRequest | str | None = None,
    response: GivenResponse | int | None = None,
    client_ip: str | None = None,
    client_port: int | None = None,
    tls: GivenTls | None = None,
    endpoint: str | None = None,
    ip_policies: Mapping[str, Ranges] | None = None,
    fetch: Mapping[str, GivenResponse] | None = None,
    login: GivenLogin | None = None,
    offline: Sequence[str] = (),
    protocol: _Protocol = "http",
    edge: bool | None = None,
    begin: datetime | None = None,
) -> Report:
    """Say what each rule and action of a document does with a request, and what comes of it.

    The arguments are those of `Trial` and `Trial.run`.

    Raises:
        PolicyError: Something is wrong with the document.
        ValidationError: The arguments are not a valid request or connection.
    """
    return Trial(document, protocol=protocol, edge=edge, begin=begin).run(
        request=request,
        response=response,
        client_ip=client_ip,
        client_port=client_port,
        tls=tls,
        endpoint=endpoint,
        ip_policies=ip_policies,
        fetch=fetch,
        login=login,
        offline=offline,
    )


# pytest takes a function of this name for a test when a test module imports it.
test.__test__ = False  # type: ignore[attr-defined]


def _text(document: Document) -> str:
    """The document as JSON or YAML."""
    if isinstance(document, Path):
        return document.read_text(encoding="utf-8")
    if isinstance(document, str):
        return document
    try:
        return json.dumps(dict(document))
    except (TypeError, ValueError) as problem:
        raise ValidationError(f"document: {problem}") from None


def _report(told: dict[str, Any]) -> Report:
    request, response, decision = told["request"], told["response"], told["decision"]
    told["request"] = request and Request(**_with_headers(request))
    told["response"] = response and Response(**_with_headers(response))
    told["decision"] = decision and Decision(**decision)
    told["rules"] = tuple(
        Rule(**{**rule, "actions": tuple(Action(**action) for action in rule["actions"])})
        for rule in told["rules"]
    )
    told["logs"] = tuple(told["logs"])
    return Report(**told)


def _with_headers(message: dict[str, Any]) -> dict[str, Any]:
    headers: dict[str, tuple[str, ...]] = {}
    for name, value in message["headers"]:
        headers[name] = (*headers.get(name, ()), value)
    return {**message, "headers": headers}
