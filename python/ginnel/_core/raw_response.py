"""Answers as they came, with the result that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["RawResponse"]

T_co = TypeVar("T_co", covariant=True)

REQUEST_IDS = ("x-request-id", "ngrok-trace-id")
"""The headers by which servers name a request, the first one that is there counts."""


def request_id(headers: Mapping[str, str]) -> str | None:
    """The name that the server gave to a request, where the headers of its response say it."""
    return next((headers[name] for name in REQUEST_IDS if name in headers), None)


class RawResponse(Generic[T_co]):
    """The answer to a call of `client.with_raw_response`; `parse` gives its result.

    Answers that report an error are raised, as by every call.
    """

    __slots__ = ("_parse", "attempts", "body", "elapsed", "headers", "method", "status_code", "url")

    status_code: int
    """The status."""
    headers: Mapping[str, str]
    """The headers, with their names in lower case; of those that came more than once, the last."""
    body: bytes
    """The body, without the coding that it was sent in."""
    elapsed: float
    """How many seconds the call took, with its attempts and pauses."""
    attempts: int
    """How many attempts the call took."""
    method: str
    """The HTTP method of the request."""
    url: str
    """The address of the request."""

    def __init__(
        self,
        status_code: int,
        headers: Mapping[str, str],
        body: bytes,
        elapsed: float,
        attempts: int,
        method: str,
        url: str,
        parse: Callable[[], object],
    ) -> None:
        self.status_code = status_code
        self.headers = headers
        self.body = body
        self.elapsed = elapsed
        self.attempts = attempts
        self.method = method
        self.url = url
        self._parse = parse

    @property
    def request_id(self) -> str | None:
        """The name that the server gave to the request, from `X-Request-Id` or `Ngrok-Trace-Id`."""
        return request_id(self.headers)

    def parse(self) -> T_co:
        """What the call returns without `with_raw_response`; of a list, its first `Page`.

        Raises:
            ResponseDecodeError: The response is something else.
        """
        result = self._parse()
        if isinstance(result, tuple):
            from .pager import filled_page

            result = filled_page(*result)
        return cast("T_co", result)

    def __repr__(self) -> str:
        told = f"{self.status_code}, {len(self.body)} bytes, {self.elapsed * 1000:.1f} ms"
        return f"<RawResponse of {self.method} {self.url}: {told}>"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "method", self.method
        yield "url", self.url
        yield "status_code", self.status_code
        yield "elapsed", self.elapsed
        yield "attempts", self.attempts
