"""How captured requests and tunnels look as text: a line in lists and logs, more where alone."""

from __future__ import annotations

from math import inf

from .._capture.body import address, cut, field_value, readable, said, size, visible
from ..local.requests import CapturedRequest, RequestMessage, ResponseMessage, StreamMessage
from ..local.tunnels import AgentTunnel, Metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from .._core.record import Record

PREVIEW = 60
"""How many characters of a body a line has room for."""
LINE = 1000
"""How long a line may be."""
HEADERS = 100
"""How many headers are shown."""


def line(shown: Record) -> str:
    """One line."""
    name = type(shown).__name__
    match shown:
        case CapturedRequest():
            asked = f"{shown.request.method} {address(shown.request.uri)}"
            summary = f"{name} {shown.id}: {asked} -> {outcome(shown)}, tunnel {shown.tunnel_name}"
        case RequestMessage() | ResponseMessage():
            summary = f"{name} {start_line(shown)}{_preview(shown)}"
        case StreamMessage():
            content = _short(said(shown.data, compressed=shown.compressed))
            summary = f"{name} {shown.index}: {shown.kind} from {shown.sender}: {content}"
        case AgentTunnel():
            summary = f"{name} {shown.name}: {shown.public_url} -> {forwards_to(shown)}"
        case Metrics():
            summary = f"{name} {figures(shown)}"
        case _:
            raise TypeError(name)
    return f"<{visible(cut(summary, LINE))}>"


def members(shown: Record) -> Iterator[tuple[str, str]]:
    """What a line tells, by name."""
    match shown:
        case CapturedRequest():
            yield "id", shown.id
            yield "request", f"{shown.request.method} {address(shown.request.uri)}"
            yield "response", outcome(shown)
            yield "tunnel_name", shown.tunnel_name
        case RequestMessage() | ResponseMessage():
            yield "start_line", start_line(shown)
            yield "body", _preview(shown).removeprefix(", ")
        case StreamMessage():
            yield "index", str(shown.index)
            yield "sender", shown.sender
            yield "kind", shown.kind
            yield "data", _short(said(shown.data, compressed=shown.compressed))
        case AgentTunnel():
            yield "name", shown.name
            yield "public_url", shown.public_url
            yield "addr", forwards_to(shown)
            yield "status", shown.status or ""
        case Metrics():
            yield "figures", figures(shown)
        case _:
            raise TypeError(type(shown).__name__)


def lines(shown: Record) -> str:
    """All that is worth seeing."""
    match shown:
        case CapturedRequest():
            parts = [line(shown), _message(shown.request)]
            parts += [_message(shown.response)] if shown.response else []
            return "\n\n".join(parts)
        case RequestMessage() | ResponseMessage():
            return _message(shown)
        case StreamMessage():
            return f"{line(shown)}\n\n{said(shown.data, compressed=shown.compressed)}"
        case _:
            return line(shown)


def exchange(captured: CapturedRequest) -> str:
    """A request and its status in a few words: `GET /path 404`."""
    status = captured.response.status_code if captured.response else "without a response"
    return visible(cut(f"{captured.request.method} {address(captured.request.uri)} {status}", LINE))


def start_line(message: RequestMessage | ResponseMessage) -> str:
    """The first line of a message."""
    if isinstance(message, RequestMessage):
        return f"{message.method} {address(message.uri)} {message.proto}"
    return f"{message.proto} {message.status}"


def outcome(captured: CapturedRequest) -> str:
    """What became of a request, how long that took, and why it failed where it did."""
    failed = f": {captured.error}" if captured.error else ""
    if captured.response is None:
        return f"no response{failed or ' yet'}"
    return f"{captured.response.status} in {milliseconds(captured.duration)}{failed}"


def milliseconds(nanoseconds: float) -> str:
    """A duration, as people read it."""
    return f"{_near(nanoseconds) / 1e6:,.1f} ms"


def per_second(rate: float) -> str:
    """A rate, as people read it."""
    return f"{_near(rate):.2f}/s"


def _near(number: float) -> float:
    """A float for an integer of any size."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def forwards_to(tunnel: AgentTunnel) -> str:
    """Where the requests of a tunnel go."""
    return tunnel.config.addr if tunnel.config else "?"


def figures(metrics: Metrics) -> str:
    """What has come through a tunnel, and how long it took."""
    conns, http = metrics.conns, metrics.http
    summary = f"{conns.count} connections, {conns.gauge} open"
    if http.count:
        half, most = milliseconds(http.p50), milliseconds(http.p99)
        summary += f"; {http.count} requests, half within {half}, 99 % within {most}"
    return summary


def moment(time: datetime) -> str:
    """A time, as people read it."""
    summary = time.isoformat(" ", "milliseconds" if time.microsecond else "seconds")
    zone = "+00:00"
    return f"{summary.removesuffix(zone)} UTC" if summary.endswith(zone) else summary


def masked_headers(message: RequestMessage | ResponseMessage) -> list[tuple[str, str]]:
    """The headers in order, without secrets."""
    return [
        (visible(cut(name)), visible(field_value(name, value)))
        for name, values in message.headers.items()
        for value in values
    ]


def _message(message: RequestMessage | ResponseMessage) -> str:
    head = [visible(cut(start_line(message)))]
    headers = masked_headers(message)
    head += [f"{name}: {value}" for name, value in headers[:HEADERS]]
    head += [f"({len(headers) - HEADERS} more headers)"] if len(headers) > HEADERS else []
    body = readable(message)
    return "\n".join([*head, "", body] if body else head)


def _preview(message: RequestMessage | ResponseMessage) -> str:
    body = " ".join(readable(message).split())
    return f", {size(message)}: {_short(body)}" if body else ""


def _short(text: str) -> str:
    """The beginning of a text in one line."""
    words = " ".join(text.split())
    return words if len(words) <= PREVIEW else f"{words[:PREVIEW]}…"
