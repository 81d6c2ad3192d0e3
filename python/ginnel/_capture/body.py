"""Bodies of captured messages made readable: unpacked, indented, without secrets, and short."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import _native
from . import mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._native import MaskedPart
    from .message import Message

LONGEST = 2000
"""How many characters of a text are shown."""
LOOKED_AT = 4 * LONGEST
"""How many characters of a header or an address are searched for secrets."""
READ = 65_536
"""How many bytes of a body are looked at."""
READ_FOR_PARTS = 8 << 20
"""How many bytes of a packed body are looked at for its parts."""

MOST_PARTS = 20
"""How many parts of a body are shown."""


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
    most = READ_FOR_PARTS if kind.startswith("multipart/") else READ
    # Codings are removed from all of it, up to as many bytes as are looked at.
    is_coded = any(message._values("content-encoding"))
    read = message._read(body if is_coded else body[:most], most)
    call = (getattr(message, "method", ""), getattr(message, "uri", ""))
    shown = read.masked(*call, is_response=False)
    notes = list(map(visible, read.notes))
    if shown.parts:
        cut = "" if shown.is_whole else "the end of its last part is missing"
        return Body(_sections(shown.parts), ", ".join(filter(None, (*notes, cut))))
    if read.kind == "empty":
        return Body([], ", ".join(notes))
    if shown.text is None:
        told = size(message) + (f" of {visible(kind)}" if kind else "")
        return Body([Section(f"({', '.join((told, *notes))})")])
    text = _indented(shown.text)
    return Body([Section(_beginning(visible(text), size(message)))], ", ".join(notes))


def said(data: bytes, *, compressed: bool | None = None) -> str:
    """What a message of a stream says, without secrets; its size where it is no text."""
    size = f"{len(data):,} bytes"
    if compressed:
        return size
    read = _native.read_body("", [], data[:READ], len(data) > READ, READ)
    # Messages have no type that names another charset.
    text = read.masked("", "", is_response=False).text if read.charset == "utf-8" else None
    return size if text is None else _beginning(visible(_indented(text)), size)


def decoded(message: Message) -> bytes:
    """A body without its content codings; as it is where they cannot be removed."""
    return message._read().content


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
    return _masked(text)


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


def _sections(parts: list[MaskedPart]) -> list[Section]:
    sections = [_section(number, part) for number, part in enumerate(parts[:MOST_PARTS], 1)]
    left_out = len(parts) - len(sections)
    return sections + ([Section("", f"{left_out} more parts")] if left_out else [])


def _section(number: int, part: MaskedPart) -> Section:
    told = f"{part.size:,} bytes"
    headers = [(visible(name), visible(cut(value))) for name, value in part.headers]
    if part.text is None:
        text = f"({told} of {visible(part.media_type) or 'a file'})"
    else:
        text = _beginning(visible(_indented(part.text[:READ])), told)
    return Section(text, f"part {number}, {told}", headers)


def _masked(text: str) -> str:
    """A text of an unknown type without secrets, and indented if it is JSON; it may be cut off."""
    masked = _native.mask_body("", text.encode("utf-8", "replace"))
    return _indented(text if masked is None else masked)


def _indented(text: str) -> str:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text, strict=False), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return text


def _beginning(text: str, size: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({size} in all)"
