"""What can go wrong.

GinnelError
├ ConfigError(ValueError): an option is missing or unusable
├ ValidationError(ValueError): an argument makes no request; nothing was sent
├ ClientClosedError(RuntimeError): the client was closed
├ PaginationError: a page leads where the key must not go, or in a circle
├ ServiceError: the embedded service cannot start
│ ├ ServiceAddressError: its address is in use, or cannot be listened on
│ └ ServiceStoreError: its database is damaged, locked, read-only, newer, or no database at all
├ AgentError: the agent in this process cannot start
├ CassetteError: a cassette does not know the call, or cannot be read or written
└ APIError: a call failed
  ├ APIConnectionError(ConnectionError): no complete response arrived
  │ ├ APITimeoutError(TimeoutError): not within the timeout or the deadline
  │ └ AgentNotRunningError: nobody listens at the agent's address
  ├ ResponseDecodeError: the response is not what the operation returns
  └ APIStatusError: the response is an error
    ├ BadRequestError: 400
    ├ AuthenticationError: 401, and 403 where the key itself was refused
    ├ PermissionDeniedError: 403
    ├ NotFoundError: 404
    ├ ConflictError: 409
    ├ RateLimitError: 429
    └ ServerError: 5xx

All of them can be pickled, and `str` gives one line.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "APIConnectionError",
    "APIError",
    "APIStatusError",
    "APITimeoutError",
    "AgentError",
    "AgentNotRunningError",
    "AuthenticationError",
    "BadRequestError",
    "CassetteError",
    "ClientClosedError",
    "ConfigError",
    "ConflictError",
    "GinnelError",
    "NotFoundError",
    "PaginationError",
    "PermissionDeniedError",
    "RateLimitError",
    "ResponseDecodeError",
    "ServerError",
    "ServiceAddressError",
    "ServiceError",
    "ServiceStoreError",
    "ValidationError",
]


class GinnelError(Exception):
    """The base of all exceptions of this package."""


class ConfigError(GinnelError, ValueError):
    """An option is missing or unusable; the message names it."""


class ValidationError(GinnelError, ValueError):
    """An argument makes no request; the message names it. Nothing was sent."""


class ClientClosedError(GinnelError, RuntimeError):
    """The client was closed."""


class PaginationError(GinnelError):
    """A page's `next_page_uri` leads to another server, or to a page that was seen before."""


class ServiceError(GinnelError):
    """The embedded service cannot start; the message says why."""


class ServiceAddressError(ServiceError):
    """An address of the embedded service is in use, or cannot be listened on."""


class ServiceStoreError(ServiceError):
    """The database of the embedded service cannot be used; its file was left as it was."""


class AgentError(GinnelError):
    """The agent in this process cannot start or is refused; the message says why."""


class CassetteError(GinnelError):
    """A cassette does not know a call and may not record it, or its file cannot be used."""


class APIError(GinnelError):
    """A call failed.

    `method` and `url` say which, `attempts` how many times it was tried.
    """

    def __init__(
        self,
        text: str = "",
        *,
        method: str | None = None,
        url: str | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(text)
        self.method = method
        self.url = url
        self.attempts = attempts

    def __repr__(self) -> str:
        known = {name: getattr(self, name, None) for name in ("status_code", "error_code")}
        known |= {"method": self.method, "url": self.url}
        told = "".join(f", {name}={value!r}" for name, value in known.items() if value)
        return f"{type(self).__name__}({str(self)!r}{told})"

    def _repr_html_(self) -> str:
        from ._core.lazy import render

        return render("results.problem", self)


class APIConnectionError(APIError, ConnectionError):
    """No complete response arrived."""


class APITimeoutError(APIConnectionError, TimeoutError):
    """No complete response arrived within the timeout of an attempt or the deadline of the call."""


class AgentNotRunningError(APIConnectionError):
    """Nobody listens at the agent's address."""


class ResponseDecodeError(APIError):
    """The response is not what the operation returns; `body` holds what it was."""

    def __init__(
        self,
        text: str = "",
        *,
        method: str | None = None,
        url: str | None = None,
        attempts: int = 1,
        body: bytes = b"",
    ) -> None:
        super().__init__(text, method=method, url=url, attempts=attempts)
        self.body = body


class APIStatusError(APIError):
    """The response is an error.

    `status_code` is its status, `error_code` the API's own code such as `ERR_NGROK_218` (absent on
    a plain 404), `message` the API's words, `details` more of them for programs (its `err` is the
    reason that an agent gives, and part of `str`), `operation_id` the name of the failed operation
    at the server, `request_id` that of the request, `headers` the headers of the response in
    lower case, `body` its body, `retry_after` the seconds that the server asks to wait.
    """

    def __init__(
        self,
        text: str = "",
        *,
        method: str | None = None,
        url: str | None = None,
        attempts: int = 1,
        status_code: int = 0,
        error_code: str | None = None,
        message: str = "",
        details: Mapping[str, object] | None = None,
        operation_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        retry_after: float | None = None,
    ) -> None:
        text = _with_reason(text, message, (details or {}).get("err"))
        super().__init__(text, method=method, url=url, attempts=attempts)
        self.status_code = status_code
        self.error_code = error_code
        self.message = message
        self.details: Mapping[str, object] = details or {}
        self.operation_id = operation_id
        self.headers: Mapping[str, str] = headers or {}
        self.body = body
        self.retry_after = retry_after

    @property
    def request_id(self) -> str | None:
        """The name that the server gave to the request, from `X-Request-Id` or `Ngrok-Trace-Id`."""
        from ._core.raw_response import request_id

        return request_id(self.headers)


def _with_reason(text: str, message: str, reason: object) -> str:
    """What the agent gives as its reason stands behind its message."""
    if not isinstance(reason, str) or not reason.strip():
        return text
    from ._capture.body import cut, visible

    told = visible(cut(" ".join(reason.split())))
    if told in text or not text.startswith(message):
        return text
    return f"{message}: {told}{text.removeprefix(message)}"


class BadRequestError(APIStatusError):
    """400: the request is invalid."""


class AuthenticationError(APIStatusError):
    """401, or 403 with a code from 200 to 208: the key itself was refused."""


class PermissionDeniedError(APIStatusError):
    """403: the key does not permit this."""


class NotFoundError(APIStatusError):
    """404: no such resource."""


class ConflictError(APIStatusError):
    """409: something that exists stands in the way."""


class RateLimitError(APIStatusError):
    """429: too many requests; `retry_after` says how long to wait."""


class ServerError(APIStatusError):
    """5xx: the server failed."""
