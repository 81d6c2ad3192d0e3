"""What captured requests can do beside holding their fields."""

from __future__ import annotations

from .._core.custom_repr import CustomRepr
from .message import Message


class RequestAccessors(CustomRepr):
    """A captured exchange; what is asked of it is answered by its request."""

    __slots__ = ()

    @property
    def _message(self) -> Message:
        message: Message = self.request  # type: ignore[attr-defined]
        return message

    @property
    def raw(self) -> bytes:
        """The bytes of the request: start line, headers, an empty line, body."""
        return self._message._raw

    @property
    def body(self) -> bytes:
        """The body of the request, in the encoding that it was sent in."""
        return self._message.body

    @property
    def text(self) -> str:
        """The body of the request as text, without content codings and in its charset."""
        return self._message.text

    def json(self) -> object:
        """The body of the request as JSON.

        Raises:
            ValueError: The body is not JSON.
        """
        return self._message.json()

    def form(self) -> dict[str, list[str]]:
        """The fields of the request's form by their names. Files are not among them.

        Raises:
            ValueError: The body is not a form.
        """
        return self._message.form()

    def header(self, name: str) -> str | None:
        """The first value of a header of the request; None when there is none."""
        return self._message.header(name)
