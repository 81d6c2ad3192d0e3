"""Spans of OpenTelemetry for the calls of a client; needs `pip install 'ginnel[opentelemetry]'`.

    from ginnel.tracing import traced

    with traced(ginnel.RemoteClient()) as remote:
        remote.api_keys.list().first()

Each call, and each page of a list, is a span of the kind `CLIENT` below the span that is active,
named by method and path template: `GET /api_keys/{id}`. Retries are its events. The request carries
it as W3C `traceparent`, so the trace goes on at the server. It holds no body, secret or identifier.
Clients that are not traced pay nothing.
"""

from __future__ import annotations

import json
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

from . import _native
from .exceptions import APIStatusError

try:
    from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as _missing:
    raise ImportError(
        "ginnel.tracing needs OpenTelemetry: pip install 'ginnel[opentelemetry]'"
    ) from _missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from ._core.client import _Client
    from ._native import Core, PendingCall
    from .events import Event

    _Hook: TypeAlias = Callable[[Event], object] | None
    _Hooks: TypeAlias = tuple[_Hook, _Hook, _Hook]

__all__ = ["traced"]

__tracebackhide__ = True
"""pytest shows the arguments of frames, which may be secrets."""

C = TypeVar("C", bound="_Client")
T = TypeVar("T")

_PROPAGATOR = TraceContextTextMapPropagator()
_templates: dict[str, tuple[str, str]] = {}


def traced(client: C, tracer_provider: TracerProvider | None = None) -> C:
    """A client that makes a span of each call; it shares the connections of the one given.

    Args:
        client: A client of either API, blocking or asyncio.
        tracer_provider: Where spans go; the global provider unless given.
    """
    tracer = get_tracer("ginnel", _native.__version__, tracer_provider)
    other = object.__new__(type(client))
    other._options = client._options
    hooks = cast("_Hooks", client._options.get("hooks") or (None, None, None))
    other._core = cast("Core", _TracedCore(client._core, tracer, hooks))
    return other


class _TracedCore:
    """What stands in for the core of a client that is traced."""

    def __init__(self, core: Core, tracer: Tracer, hooks: _Hooks) -> None:
        self._core = core
        self._tracer = tracer
        self._hooks = hooks
        address = urlsplit(core.base_url)
        self._server: dict[str, str | int] = {"server.address": address.hostname or ""}
        self._server["server.port"] = address.port or (443 if address.scheme == "https" else 80)

    def __getattr__(self, name: str) -> Any:
        # `close`, `base_url` and what else makes no call.
        return getattr(self._core, name)

    def with_options(self, *changed: object) -> _TracedCore:
        return _TracedCore(self._core.with_options(*changed), self._tracer, self._hooks)

    def raw(self) -> _TracedCore:
        return _TracedCore(self._core.raw(), self._tracer, self._hooks)

    def within(self, seconds: float) -> _TracedCore:
        return _TracedCore(self._core.within(seconds), self._tracer, self._hooks)

    def call(self, operation: str, *rest: Any) -> Any:
        return self._wait(*_template(operation), lambda core: core.call(operation, *rest))

    def page(self, operation: str, *rest: Any) -> Any:
        return self._wait(*_template(operation), lambda core: core.page(operation, *rest))

    def request(self, method: str, *rest: Any) -> object:
        return self._wait(method.upper(), None, lambda core: core.request(method, *rest))

    def start(self, operation: str, *rest: Any) -> PendingCall[Any]:
        return self._start(*_template(operation), lambda core: core.start(operation, *rest))

    def start_page(self, operation: str, *rest: Any) -> PendingCall[Any]:
        return self._start(*_template(operation), lambda core: core.start_page(operation, *rest))

    def start_request(self, method: str, *rest: Any) -> PendingCall[Any]:
        return self._start(method.upper(), None, lambda core: core.start_request(method, *rest))

    def _wait(self, method: str, template: str | None, send: Callable[[Core], T]) -> T:
        call = self._begin(method, template)
        try:
            result = send(call.core)
        except BaseException as error:
            call.end(error)
            raise
        call.end(None)
        return result

    def _start(
        self, method: str, template: str | None, send: Callable[[Core], PendingCall[T]]
    ) -> PendingCall[T]:
        call = self._begin(method, template)
        try:
            pending = send(call.core)
        except BaseException as error:
            call.end(error)
            raise
        # Before the task that awaits it is woken, since it was asked for first.
        pending.add_done_callback(call.settled)
        return pending

    def _begin(self, method: str, template: str | None) -> _TracedCall:
        about: dict[str, str | int] = {"http.request.method": method, **self._server}
        if template is not None:
            about["url.template"] = template
        name = method if template is None else f"{method} {template}"
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=about)
        return _TracedCall(self._core, span, self._hooks)


class _TracedCall:
    """One call and its span."""

    def __init__(self, core: Core, span: Span, hooks: _Hooks) -> None:
        self.span = span
        self.hooks = hooks
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers, set_span_in_context(span))
        told = (hooks[0], self.response, self.retry)
        self.core = core.for_call(list(headers.items()), told)

    def response(self, event: Event) -> None:
        if event.status is not None:
            self.span.set_attribute("http.response.status_code", event.status)
        if event.attempt > 1:
            self.span.set_attribute("http.request.resend_count", event.attempt - 1)
        if hook := self.hooks[1]:
            hook(event)

    def retry(self, event: Event) -> None:
        about: dict[str, str | int | float] = {"pause": event.seconds, "attempt": event.attempt}
        if event.status is not None:
            about["http.response.status_code"] = event.status
        self.span.add_event("retry", about)
        if hook := self.hooks[2]:
            hook(event)

    def settled(self, pending: PendingCall[Any]) -> None:
        if not pending.done():
            # The task that waits was woken to tell hooks of an event.
            pending.add_done_callback(self.settled)
        else:
            self.end(CancelledError() if pending.cancelled() else pending.exception())

    def end(self, error: BaseException | None) -> None:
        if error is not None:
            # Only its kind: messages may name what a trace has no business to know.
            status = isinstance(error, APIStatusError) and error.status_code
            self.span.set_attribute("error.type", str(status or type(error).__qualname__))
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


def _template(operation: str) -> tuple[str, str]:
    """Method and path template of an operation."""
    if not _templates:
        for api, prefix in (("remote", ""), ("local", "agent.")):
            for resource in json.loads(_native.operations(api)):
                for known in resource["operations"]:
                    name = f"{prefix}{resource['name']}.{known['name']}"
                    _templates[name] = (known["method"], known["path"])
    return _templates[operation]
