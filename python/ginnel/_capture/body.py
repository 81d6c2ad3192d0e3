"""Bodies of captured messages made readable: unpacked, indented, without secrets, and short."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import _native
from . import mask
from .multipart import Part, Parts, apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from .message import Message

LONGEST = 2000
"""How many characters of a text are shown."""
LOOKED_AT = 4 * LONGEST
"""How many characters of a header or an address are searched for secrets."""
READ = 65_536
"""How many bytes of a body are looked at."""
READ_FOR_PARTS = 8 << 20
"""How many bytes of a packed body are looked at for its parts."""

MAX_DECODED_BYTES = 64 << 20
"""How many bytes a body may have once its encoding is taken off."""

_TEXTUAL = ("json", "xml", "text", "javascript", "yaml", "x-www-form-urlencoded", "graphql")
_MEDIA = ("audio/", "font/", "image/", "video/")
_ENDS = {
    "whole": "{} decoded",
    "longer": "{} decoded",
    "cut": "{} decoded, its end is missing",
    "damaged": "{} decoded, it is damaged",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A body, or one of its parts, made readable."""

    text: str
    """What can be read of it."""
    title: str = ""
    """Which part it is; empty for a body without parts."""
    headers: list[tuple[str, str]] = field(default_factory=list)
    """The headers of the part, without secrets."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body made readable."""

    sections: list[Section] = field(default_factory=list)
    """The body, or each of its parts; none where it is empty."""
    note: str = ""
    """What was taken off it, and what is missing."""


def look(message: Message) -> Body:
    """A body unpacked, taken apart, indented, without secrets, and short."""
    body = message.body
    if not body:
        return Body()
    content_type = message.header("content-type") or ""
    kind = content_type.partition(";")[0].strip().lower()
    is_multipart = kind.startswith("multipart/")
    opened, note = _unpacked(message, body, READ_FOR_PARTS if is_multipart else READ)
    told = ", ".join(filter(None, (size(message) + (f" of {visible(kind)}" if kind else ""), note)))
    if opened is None:
        return Body([Section(f"({told})")])
    if is_multipart and (parts := apart(opened, content_type)):
        cut = "" if parts.whole else "the end of its last part is missing"
        return Body(_sections(parts), ", ".join(filter(None, (note, cut))))
    text = _text(opened[:READ], kind)
    if text is None:
        return Body([Section(f"({told})")])
    call = (getattr(message, "method", ""), getattr(message, "uri", ""))
    masked = _masked(text, kind, *call)
    return Body([Section(_beginning(visible(masked), size(message)))], note)


def said(data: bytes, *, compressed: bool | None = None) -> str:
    """What a message of a stream says, without secrets; its size where it is no text."""
    size = f"{len(data):,} bytes"
    if compressed:
        return size
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return size
    return _beginning(visible(_masked(text[:READ], "")), size)


def decoded(message: Message) -> bytes:
    """A body without the encoding that it was sent in; as it is where that cannot be taken off."""
    encoding = (message.header("content-encoding") or "").strip().lower()
    if encoding in ("", "identity"):
        return message.body
    unpacked = _native.unpack(encoding, message.body, MAX_DECODED_BYTES)
    return message.body if unpacked is None else unpacked[0]


def readable(message: Message) -> str:
    """The body as text; what is no text is told by its length and type. Empty without a body."""
    shown = []
    for section in look(message).sections:
        head = [section.title, *(f"{name}: {value}" for name, value in section.headers)]
        shown.append(
            "\n".join([*filter(None, head), *([""] if section.title else []), section.text])
        )
    return "\n\n".join(shown)


def masked_body(text: str) -> str:
    """The text of a body of an unknown type without secrets, and indented if it is JSON."""
    return _masked(text, "")


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


def cut(text: str, longest: int = LONGEST) -> str:
    """A text, or the beginning of a long one and how long it is."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def address(target: str) -> str:
    """A path or an address without secrets, and short."""
    return _searched(target, mask.uri)


def field_value(name: str, value: str) -> str:
    """The value of a header without secrets, and short."""
    return _searched(value, lambda beginning: mask.header(name, beginning))


def _searched(text: str, mask_by: Callable[[str], str]) -> str:
    # More than is shown, so that what is cut here cannot be half a secret there.
    masked = mask_by(text[:LOOKED_AT])
    if len(text) <= LOOKED_AT:
        return cut(masked)
    return f"{masked[:LONGEST]}… ({len(text):,} characters)"


def _sections(parts: Parts) -> list[Section]:
    sections = [_section(number, part) for number, part in enumerate(parts.shown, 1)]
    return sections + ([Section("", f"{parts.left_out} more parts")] if parts.left_out else [])


def _section(number: int, part: Part) -> Section:
    told = f"{len(part.body):,} bytes"
    headers = [(visible(n), visible(field_value(n, value))) for n, value in part.headers]
    text = None if not part.body else _text(part.body[:READ], part.kind)
    if text is None:
        text = f"({told} of {visible(part.kind) or 'a file'})" if part.body else ""
    elif _native.is_secret_parameter(part.name):
        text = mask.MASK
    else:
        text = _beginning(visible(_masked(text, part.kind)), told)
    return Section(text, f"part {number}, {told}", headers)


def _unpacked(message: Message, body: bytes, most: int) -> tuple[bytes | None, str]:
    """The first bytes of a body, decompressed, and what there is to say about that.

    None where they cannot be had.
    """
    encoding = (message.header("content-encoding") or "").strip().lower()
    if encoding in ("", "identity"):
        return body[:most], ""
    unpacked = _native.unpack(encoding, body, most)
    shown = visible(encoding[:80])
    if unpacked is None:
        return None, shown
    opened, end = unpacked
    if opened or end == "whole":
        return opened, _ENDS[end].format(shown)
    return None, f"damaged {shown}" if end == "damaged" else f"{shown}, its end is missing"


def _text(body: bytes, kind: str) -> str | None:
    if kind and not any(word in kind for word in _TEXTUAL):
        return None
    # A character may have been cut in two at the end.
    text = body.decode("utf-8", "replace").rstrip("\ufffd")
    strange = sum(not (c.isprintable() or c.isspace()) or c == "\ufffd" for c in text)
    return None if strange * 10 > len(text) else text


def _masked(text: str, kind: str, method: str = "", target: str = "") -> str:
    """The text of a body without secrets, and indented if it is JSON; it may be cut off."""
    media_type = "text/plain" if kind.startswith(_MEDIA) else kind
    masked = _native.mask_body(media_type, text.encode("utf-8", "replace"), method, target)
    text = text if masked is None else masked
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text, strict=False), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return text


def _beginning(text: str, size: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({size} in all)"
