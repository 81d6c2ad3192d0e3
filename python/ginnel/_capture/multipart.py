"""The parts of multipart bodies, as forms with files send them."""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 20
"""How many parts are shown."""
_HEAD = 8192
"""How many bytes of a part may be its headers."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a body."""

    headers: list[tuple[str, str]]
    """Its headers, in order."""
    body: bytes
    """What follows its headers."""

    def header(self, name: str) -> str:
        """The first value of a header; empty when there is none."""
        return next((value for known, value in self.headers if known.lower() == name), "")

    @property
    def name(self) -> str:
        """The name of the field that it is; empty where it is none."""
        return _encoded_words(parameter(self.header("content-disposition"), "name"))

    @property
    def kind(self) -> str:
        """Its media type, in small letters; plain text unless it says something else."""
        kind = self.header("content-type").partition(";")[0].strip().lower()
        if parameter(self.header("content-disposition"), "filename") and not kind:
            return ""
        return kind or "text/plain"


@dataclass(frozen=True, slots=True)
class Parts:
    """A body that was taken apart."""

    shown: list[Part]
    """The first parts."""
    left_out: int
    """How many more there are."""
    whole: bool
    """Whether the end was there, so that the last part is complete."""


def apart(body: bytes, content_type: str) -> Parts | None:
    """A body by its parts; None where it is not made of parts."""
    boundary = parameter(content_type, "boundary")
    if not content_type.lower().startswith("multipart/") or not 0 < len(boundary) <= 70:
        return None
    line = re.escape(f"\r\n--{boundary}".encode())
    between = re.compile(line + rb"(?:(--)|[ \t]{0,80}(?=\r\n))")
    parts: list[bytes] = []
    begin = None
    for found in between.finditer(b"\r\n" + body):
        # What is counted from has two bytes more in front, and the line ends with two.
        if begin is not None:
            parts.append(body[begin : max(begin, found.start() - 2)])
        if found[1]:
            return _read(parts, whole=True)
        begin = found.end()
    return None if begin is None else _read([*parts, body[begin:]], whole=False)


def _read(parts: list[bytes], *, whole: bool) -> Parts:
    return Parts([_part(part) for part in parts[:MOST]], max(0, len(parts) - MOST), whole)


def _part(part: bytes) -> Part:
    if part.startswith(b"\r\n"):
        return Part([], part[2:])
    head, _, body = part.partition(b"\r\n\r\n")
    return Part(list(_headers(head[:_HEAD])), body)


def _headers(head: bytes) -> Iterator[tuple[str, str]]:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()


def parameter(value: str, name: str) -> str:
    """What a header says after `name=`; empty where it says nothing."""
    from email.message import Message as Header
    from email.utils import collapse_rfc2231_value

    header = Header()
    header["content-type"] = " ".join(value.split())
    found = header.get_param(name)
    return collapse_rfc2231_value(found) if found else ""


def _encoded_words(text: str) -> str:
    """Returns a text with its encoded words read, such as `=?utf-8?Q?pass=77ord?=` (RFC 2047)."""
    from email.errors import HeaderParseError
    from email.header import decode_header

    if "=?" not in text:
        return text
    try:
        words = decode_header(text)
    except HeaderParseError:
        return text
    return "".join(it if isinstance(it, str) else it.decode("utf-8", "replace") for it, _ in words)
