"""Captured requests and tunnels as cards in a notebook.

What was captured is only ever escaped text, whatever a visitor sent. Colours are those of the page,
and of a status ones that can be read on light and on dark. Nothing is fetched.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ._body import readable, size, visible
from ._lines import forwards_to, masked_headers, milliseconds, outcome, start_line
from ._mask import uri
from .local.requests import CapturedRequest, RequestMessage, ResponseMessage
from .local.tunnels import AgentTunnel

if TYPE_CHECKING:
    from ._record import Record

_QUIET = "opacity:.65"
_FRAME = "border:1px solid rgba(128,128,128,.4);border-radius:.4em;padding:.5em .8em;margin:.3em 0"
_SIDES = "display:flex;flex-wrap:wrap;gap:.3em 1.5em"
_SIDE = "flex:1 1 20em;min-width:0"
_PRE = (
    "margin:.3em 0;padding:.4em .6em;background:rgba(128,128,128,.12);color:inherit;"
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto"
)
_CELL = "text-align:left;vertical-align:top;padding:.1em .6em;overflow-wrap:anywhere"
_COLOURS = {2: "#1f9d55", 3: "#3b82c4", 4: "#c77700", 5: "#d64545"}


def card(shown: Record) -> str:
    """One captured request, one of its messages, or one tunnel."""
    match shown:
        case CapturedRequest():
            return _exchange(shown)
        case RequestMessage() | ResponseMessage():
            return f'<div style="{_FRAME}">{_message(shown)}</div>'
        case AgentTunnel():
            return _tunnel(shown)
        case _:
            raise TypeError(type(shown).__name__)


def row(shown: Record) -> dict[str, str]:
    """The columns of a table, in HTML."""
    match shown:
        case CapturedRequest():
            cells = {
                "start": shown.start.isoformat(" ", "milliseconds"),
                "tunnel": shown.tunnel_name,
                "method": shown.request.method,
                "uri": uri(shown.request.uri),
                "status": shown.response.status if shown.response else "",
                "took": milliseconds(shown.duration) if shown.response else "",
                "id": shown.id,
            }
        case AgentTunnel():
            cells = {
                "name": shown.name,
                "public_url": shown.public_url or "",
                "addr": forwards_to(shown),
                "requests": str(shown.metrics.http.count) if shown.metrics else "",
            }
        case RequestMessage() | ResponseMessage():
            cells = {"message": start_line(shown), "body": size(shown)}
        case _:
            raise TypeError(type(shown).__name__)
    return {name: _text(cell) for name, cell in cells.items()}


def _exchange(captured: CapturedRequest) -> str:
    request, response = captured.request, captured.response
    status = f'<strong style="{_colour(response)}">{_text(outcome(captured))}</strong>'
    when = captured.start.isoformat(" ", "milliseconds")
    where = f"tunnel {captured.tunnel_name}, from {captured.remote_addr}, {when}, {captured.id}"
    sides = [_message(request)] + ([_message(response)] if response else [])
    return (
        f'<div style="{_FRAME}">'
        f"<div><strong>{_text(request.method)}</strong> <code>{_text(uri(request.uri))}</code>"
        f" {status}</div>"
        f'<div style="{_QUIET}">{_text(where)}</div>'
        f'<div style="{_SIDES}">'
        + "".join(f'<div style="{_SIDE}">{side}</div>' for side in sides)
        + "</div></div>"
    )


def _message(message: RequestMessage | ResponseMessage) -> str:
    kind = "Request" if isinstance(message, RequestMessage) else "Response"
    headers = masked_headers(message)
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL};{_QUIET}">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in headers
    )
    body = readable(message)
    shown = f'<pre style="{_PRE}">{escape(body)}</pre>' if body else ""
    return (
        f"<div>{kind} <code>{_text(start_line(message))}</code>"
        f' <span style="{_QUIET}">{size(message)}</span></div>'
        f"<details><summary>{len(headers)} headers</summary>"
        f"<table><tbody>{rows}</tbody></table></details>{shown}"
    )


def _tunnel(tunnel: AgentTunnel) -> str:
    figures = []
    if tunnel.metrics is not None:
        conns, http = tunnel.metrics.conns, tunnel.metrics.http
        figures.append(f"{conns.count} connections, {conns.gauge} open")
        if http.count:
            half, most = milliseconds(http.p50), milliseconds(http.p99)
            figures.append(f"{http.count} requests, half within {half}, 99 % within {most}")
    return (
        f'<div style="{_FRAME}"><div><strong>{_text(tunnel.name)}</strong>'
        f" {_link(tunnel.public_url or '')} &rarr; <code>{_text(forwards_to(tunnel))}</code></div>"
        f'<div style="{_QUIET}">{_text("; ".join(figures))}</div></div>'
    )


def _link(url: str) -> str:
    """An address to click on, where it is one that a browser may safely go to."""
    if not url.startswith(("http://", "https://")):
        return f"<code>{_text(url)}</code>"
    return f'<a href="{escape(url)}" rel="noopener noreferrer">{_text(url)}</a>'


def _colour(response: ResponseMessage | None) -> str:
    colour = _COLOURS.get(response.status_code // 100) if response else None
    return f"color:{colour}" if colour else _QUIET


def _text(text: str) -> str:
    return escape(visible(text))
