"""Bodies of captured messages made readable: unpacked, indented, without secrets, and short."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from . import _mask

if TYPE_CHECKING:
    from ._message import Message

LONGEST = 2000
"""How many characters of a body are shown."""
LOOKED_AT = 4 * LONGEST
"""How many characters of a text without structure are searched for secrets."""
READ = 65_536
"""How many bytes of a body are looked at."""

_TEXTUAL = ("json", "xml", "text", "javascript", "yaml", "x-www-form-urlencoded", "graphql")


def readable(message: Message) -> str:
    """The body as text; what is no text is told by its length and type. Empty without a body."""
    if not message.body:
        return ""
    kind = (message.header("content-type") or "").partition(";")[0].strip().lower()
    body = _unpacked(message)
    text = None if body is None else _text(body, kind)
    if text is None:
        return f"({size(message)}{' of ' + visible(kind) if kind else ''})"
    return _cut(visible(_masked(text, kind, whole=len(message.body) <= READ)), size(message))


def size(message: Message) -> str:
    """How long the body is, as it was sent; a `+` where not all of it was kept."""
    count = len(message.body)
    return f"{count:,}{'+' if getattr(message, 'truncated', None) else ''} bytes"


def visible(text: str) -> str:
    """The text with what cannot be seen, or acts on a terminal, written as an escape."""
    if text.isprintable():
        return text
    seen = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return "".join(seen)


def _unpacked(message: Message) -> bytes | None:
    """The first bytes of the body, decompressed; None where we cannot."""
    match (message.header("content-encoding") or "identity").strip().lower():
        case "identity":
            return message.body[:READ]
        case "gzip" | "x-gzip" | "deflate":
            try:
                # Either header; a body that was cut gives what it gives.
                return zlib.decompressobj(47).decompress(message.body, READ)
            except zlib.error:
                return None
        case _:
            return None


def _text(body: bytes, kind: str) -> str | None:
    if kind and not any(word in kind for word in _TEXTUAL):
        return None
    # A character may have been cut in two at the end.
    text = body.decode("utf-8", "replace").rstrip("\ufffd")
    strange = sum(not (c.isprintable() or c.isspace()) or c == "\ufffd" for c in text)
    return None if strange * 10 > len(text) else text


def _masked(text: str, kind: str, *, whole: bool) -> str:
    if whole and text.lstrip()[:1] in ("{", "["):
        try:
            value = _mask.json(json.loads(text, strict=False))
            return json.dumps(value, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    mask = _mask.parameters if kind.endswith("x-www-form-urlencoded") else _mask.text
    # More than is shown, so that what is cut here cannot be half a secret there.
    return mask(text) if len(text) <= LOOKED_AT else mask(text[:LOOKED_AT])[:LONGEST] + "…"


def _cut(text: str, size: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({size} in all)"
