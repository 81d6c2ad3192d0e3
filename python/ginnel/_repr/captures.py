"""Captured requests, tunnels and their figures as cards in a notebook.

What was captured is only ever escaped text, whatever a visitor sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._capture.body import address, look, said, size, visible
from .._capture.mask import text as masked
from ..local.requests import CapturedRequest, RequestMessage, ResponseMessage, StreamMessage
from ..local.tunnels import AgentTunnel, ConnectionMetrics, HttpMetrics, Metrics
from .html import (
    BAD,
    OPEN,
    badge,
    block,
    code,
    folded,
    frame,
    grid,
    line,
    link,
    pairs,
    quiet,
    sides,
    status,
    strong,
    text,
)
from .text import (
    figures,
    forwards_to,
    masked_headers,
    milliseconds,
    moment,
    per_second,
    start_line,
)

if TYPE_CHECKING:
    from .._core.record import Record

_FIGURES = ("count", "open", "rate1", "rate5", "rate15", "p50", "p90", "p95", "p99")


def card(shown: Record) -> str:
    """One captured request, one of its messages, one tunnel, or its figures."""
    match shown:
        case CapturedRequest():
            return _exchange(shown)
        case RequestMessage() | ResponseMessage():
            kind = "Request" if isinstance(shown, RequestMessage) else "Response"
            return frame(_message(shown, strong(kind), code(start_line(shown))))
        case StreamMessage():
            return frame(line(strong(type(shown).__name__)), inside(shown))
        case AgentTunnel():
            return _tunnel(shown)
        case Metrics():
            return _metrics(shown)
        case _:
            raise TypeError(type(shown).__name__)


def row(shown: Record) -> dict[str, str]:
    """The columns of a table, in HTML."""
    match shown:
        case CapturedRequest():
            answer = shown.response
            return {
                "start": text(moment(shown.start)),
                "tunnel": text(shown.tunnel_name),
                "method": text(shown.request.method),
                "uri": text(address(shown.request.uri)),
                "status": _outcome(shown),
                "took": text(milliseconds(shown.duration)) if answer else "",
                "id": text(shown.id),
            }
        case AgentTunnel():
            return {
                "name": text(shown.name),
                "public_url": link(shown.public_url or ""),
                "addr": text(forwards_to(shown)),
                "requests": text(str(shown.metrics.http.count)) if shown.metrics else "",
            }
        case RequestMessage() | ResponseMessage():
            return {"message": text(start_line(shown)), "body": text(size(shown))}
        case StreamMessage():
            return {
                "index": text(str(shown.index)),
                "sender": text(shown.sender),
                "kind": text(shown.kind),
                "time": text(moment(shown.time)) if shown.time else "",
                "event": text(visible(shown.event or "")),
                "event_id": text(visible(masked(shown.event_id or ""))),
                "data": block(said(shown.data, compressed=shown.compressed)),
            }
        case Metrics():
            return {"figures": text(figures(shown))}
        case _:
            raise TypeError(type(shown).__name__)


def inside(shown: Record) -> str:
    """What stands in the card of another record: no secrets either."""
    if isinstance(shown, RequestMessage | ResponseMessage):
        return _message(shown, code(start_line(shown)))
    return pairs((name, value) for name, value in row(shown).items() if value)


def _exchange(captured: CapturedRequest) -> str:
    request, response = captured.request, captured.response
    took = quiet(f"in {milliseconds(captured.duration)}") if response else ""
    where = [f"tunnel {captured.tunnel_name}", f"from {captured.remote_addr}"]
    where += [moment(captured.start), captured.id]
    both = [_message(request, strong("Request"), quiet(request.proto))]
    if response is not None:
        both.append(_message(response, strong("Response"), quiet(response.proto)))
    return frame(
        line(strong(request.method), code(address(request.uri)), _outcome(captured), took),
        line(" · ".join(map(quiet, where))),
        line(badge("failed", BAD), quiet(visible(captured.error))) if captured.error else "",
        sides(*both),
    )


def _outcome(captured: CapturedRequest) -> str:
    """What became of a request, as a badge."""
    if captured.response is not None:
        return status(captured.response.status_code, captured.response.status)
    return badge("no response", BAD) if captured.error else badge("no response yet", OPEN)


def _message(message: RequestMessage | ResponseMessage, *title: str) -> str:
    headers = masked_headers(message)
    body = look(message)
    told = ", ".join(filter(None, (size(message), body.note)))
    shown = line(*title, quiet(told))
    if headers:
        count = f"{len(headers)} header{'s' if len(headers) > 1 else ''}"
        shown += folded(count, pairs((name, text(value)) for name, value in headers))
    for section in body.sections:
        shown += line(quiet(section.title))
        shown += pairs((name, text(value)) for name, value in section.headers)
        shown += block(section.text)
    return shown


def _tunnel(tunnel: AgentTunnel) -> str:
    told = "" if tunnel.metrics is None else figures(tunnel.metrics)
    return frame(
        line(
            strong(tunnel.name), link(tunnel.public_url or ""), "&rarr;", code(forwards_to(tunnel))
        ),
        line(quiet(told)),
    )


def _metrics(metrics: Metrics) -> str:
    rows = []
    both: dict[str, ConnectionMetrics | HttpMetrics]
    both = {"connections": metrics.conns, "requests": metrics.http}
    for name, figure in both.items():
        row = {"traffic": text(name), "count": f"{figure.count:,}"}
        row["open"] = f"{metrics.conns.gauge:,}" if figure is metrics.conns else ""
        for rate in ("rate1", "rate5", "rate15"):
            row[rate] = per_second(getattr(figure, rate))
        for quantile in ("p50", "p90", "p95", "p99"):
            row[quantile] = text(milliseconds(getattr(figure, quantile)))
        rows.append(row)
    return frame(grid(("traffic", *_FIGURES), rows, "Metrics"))
