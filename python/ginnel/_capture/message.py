"""What captured requests and responses have in common."""

from __future__ import annotations

import json

from .._core.custom_repr import CustomRepr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Message(CustomRepr):
    """The bytes of a request or a response, taken apart."""

    __slots__ = ()

    # The fields are those of the classes that build on this one; a declaration here would be taken
    # for their defaults.

    @property
    def _raw(self) -> bytes:
        raw: bytes = self.raw  # type: ignore[attr-defined]
        return raw

    @property
    def _headers(self) -> Mapping[str, list[str]]:
        headers: Mapping[str, list[str]] = self.headers  # type: ignore[attr-defined]
        return headers

    @property
    def body(self) -> bytes:
        """What follows the empty line after the headers, in the encoding that it was sent in."""
        return self._raw.partition(b"\r\n\r\n")[2]

    @property
    def text(self) -> str:
        """The body as text, in the charset of its type or UTF-8; other bytes are replaced."""
        from email.message import Message as Header

        header = Header()
        header["content-type"] = self.header("content-type") or ""
        charset = header.get_content_charset("utf-8")
        try:
            return self.body.decode(charset, "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def json(self) -> object:
        """The body as JSON.

        Raises:
            ValueError: The body is not JSON.
        """
        value: object = json.loads(self.body)
        return value

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name; None when there is none."""
        wanted = name.lower()
        for known, values in self._headers.items():
            if known.lower() == wanted and values:
                return values[0]
        return None
