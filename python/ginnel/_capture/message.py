"""What captured requests and responses have in common."""

from __future__ import annotations

import json

from .. import _native
from .._core.custom_repr import CustomRepr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._native import ReadableBody

CUT_BY_LISTS = (
    "because it is longer than lists carry (`requests.get` has more) or than was captured"
)
MAX_DECODED_BYTES = 64 << 20
"""How many bytes a body may have once its content codings are removed."""


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
        """The body as text, without content codings and in its charset.

        The charset is that of the header, or else the byte order mark's, or else the one that the
        format declares, or else UTF-8, or else Latin-1.
        """
        return self._read().text

    def json(self) -> object:
        """The body as JSON, without content codings and in its charset.

        Raises:
            ValueError: The body is not JSON.
        """
        try:
            value: object = json.loads(self._read().text)
        except ValueError as error:
            if getattr(self, "truncated", None):
                raise ValueError(f"the body is truncated, {CUT_BY_LISTS}: {error}") from error
            raise
        return value

    def form(self) -> dict[str, list[str]]:
        """The fields of a form by their names, in one line or in parts. Files are not among them.

        Raises:
            ValueError: The body is not a form.
        """
        pairs = self._read().form()
        if pairs is None:
            kind = self.header("content-type") or "no content type"
            raise ValueError(f"the body is not a form: {kind}")
        fields: dict[str, list[str]] = {}
        for name, value in pairs:
            fields.setdefault(name, []).append(value)
        return fields

    def _read(self, body: bytes | None = None, most: int = MAX_DECODED_BYTES) -> ReadableBody:
        """The body, or only its first bytes, as people read it."""
        whole = self.body
        read = whole if body is None else body
        is_cut = bool(getattr(self, "truncated", None)) or len(read) < len(whole)
        encodings = self._values("content-encoding")
        return _native.read_body(self.header("content-type") or "", encodings, read, is_cut, most)

    def _values(self, name: str) -> list[str]:
        """All values of a header, whatever the case of its name."""
        known = self._headers.items()
        return [value for own, values in known if own.lower() == name for value in values]

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name; None when there is none."""
        wanted = name.lower()
        for known, values in self._headers.items():
            if known.lower() == wanted and values:
                return values[0]
        return None
