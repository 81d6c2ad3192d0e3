"""The blocking client of the management API, and what all clients share."""

from __future__ import annotations

from .._native import Core
from .remote_tree import RemoteResources
from .resource import Spelling, cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike
    from types import TracebackType
    from typing import Any, Self, TypeAlias, TypeVar

    from ..events import Event
    from ..remote._raw import RawRemoteResources

    _Hook: TypeAlias = Callable[[Event], object]
    _Scalar: TypeAlias = str | int | float | bool | None
    _Parameter: TypeAlias = _Scalar | list[str] | list[int] | list[float] | list[bool]
    _Path: TypeAlias = str | PathLike[str]
    _Method = TypeVar("_Method", bound=Callable[..., Any])

__tracebackhide__ = True
"""pytest shows the arguments of frames, which may be secrets."""


def takes_options(method: _Method) -> _Method:
    """A method of a client that says which option there is instead of one that it does not know."""
    code = method.__code__
    known = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])

    def checked(self: _Client, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except TypeError:
            if unknown := options.keys() - known:
                problem = _unknown(self, method.__name__, min(unknown), known)
                raise TypeError(problem) from None
            raise

    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(checked, name, getattr(method, name))
    # Where `inspect.signature` finds what is taken.
    checked.__wrapped__ = method  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _unknown(client: _Client, method: str, option: str, known: frozenset[str]) -> str:
    """What to say of an option that a method does not have."""
    from difflib import get_close_matches

    kind = type(client)
    called = kind.__name__ if method == "__init__" else f"{kind.__name__}.{method}"
    problem = f"{called}() has no option {option!r}"
    if near := get_close_matches(option, known, 1):
        return f"{problem}; did you mean {near[0]!r}?"
    code = kind.__init__.__wrapped__.__code__  # type: ignore[attr-defined]
    if option in code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]:
        return f"{problem}: it is set once, by {kind.__name__}()"
    return problem


def copied(headers: object) -> object:
    """The headers as they are now; what is no mapping is left for the core to refuse."""
    return dict(headers) if hasattr(headers, "keys") else headers  # type: ignore[call-overload]


class _Client(Spelling):
    """What all clients share: options, connections, an end."""

    _core: Core
    _options: dict[str, object]

    def _open(self, given: dict[str, Any]) -> None:
        """Make the core with what `__init__` was given, by the names of its parameters."""
        names = ("on_request", "on_response", "on_retry")
        hooks = tuple(given[name] for name in names)
        self._options = {
            name: value for name, value in given.items() if name not in ("self", *names)
        }
        self._options["headers"] = copied(given["headers"])
        self._options["hooks"] = hooks if any(hook is not None for hook in hooks) else None
        self._core = Core(self._options)

    @takes_options
    def with_options(
        self,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
        service_version: str | None = None,
        extra_query: Mapping[str, _Parameter] | None = None,
    ) -> Self:
        """A client with other options that shares this one's connections.

        What is left out stays as it is. Closing one closes both. It costs so little that there may
        be one for each call: `remote.with_options(timeout=2).api_keys.list()`.

        Args:
            timeout: Seconds for one attempt; 0 for no limit.
            deadline: Seconds for a call with its retries and pauses; 0 for no limit.
            max_retries: How many times to retry a failed attempt.
            headers: Headers to add to each request, in place of all that were added before.
            service_version: The version of the API to ask for.
            extra_query: Parameters to append to the query of each request, in place of those
                before; a list is a parameter that is there several times. A request that has one of
                a name already, by its arguments or as the address of a page, keeps its own.

        Raises:
            ConfigError: An option is unusable; the message names it.
            TypeError: There is no such option; the message names the nearest one.
        """
        if headers is not None and type(headers) is not dict:
            headers = copied(headers)  # type: ignore[assignment]
        other = object.__new__(type(self))
        other._core = self._core.with_options(
            timeout, deadline, max_retries, headers, service_version, extra_query
        )
        options = other._options = self._options.copy()
        if timeout is not None:
            options["timeout"] = timeout
        if deadline is not None:
            options["deadline"] = deadline
        if max_retries is not None:
            options["max_retries"] = max_retries
        return other

    def close(self) -> None:
        """Close the connections; calls raise ClientClosedError from now on. Twice is fine."""
        self._core.close()

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._core.is_closed

    @property
    def base_url(self) -> str:
        """The address that requests go to."""
        return self._core.base_url

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = type(self).__name__
        problem = f"{name} cannot be pickled or copied deeply: it has open connections and a key"
        raise TypeError(
            f"{problem}; make another {name} where it is needed, or share it between threads"
        )

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ""
        key = f", key {self._core.key_hint}" if self._core.key_hint else ""
        return f"<{type(self).__name__} of {self.base_url}{key}{state}>"

    def __rich_repr__(self) -> Iterator[tuple[str, object] | tuple[str, object, object]]:
        yield "base_url", self.base_url
        yield "key", self._core.key_hint, ""
        yield "is_closed", self.is_closed, False

    def _repr_html_(self) -> str:
        from .lazy import render

        return render("clients.client", self)


class _Blocking(_Client):
    """What clients share whose calls wait for their results."""

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        query: Mapping[str, object] | None = None,
    ) -> object:
        """Send any request, with the key, retries and errors of every call; returns plain JSON."""
        return self._core.request(method, path, json, query)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Awaited(_Client):
    """What clients share whose calls are awaited."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        query: Mapping[str, object] | None = None,
    ) -> object:
        """Send any request, with the key, retries and errors of every call; returns plain JSON."""
        return await self._core.start_request(method, path, json, query)

    async def aclose(self) -> None:
        """Close the connections, as `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _RemoteOptions(_Client):
    @takes_options
    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
        service_version: str | None = None,
        ca_bundle: _Path | None = None,
        client_cert: _Path | tuple[_Path, _Path] | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        allow_http: bool = False,
        app: str | None = None,
        max_connections: int | None = None,
        rate_limit: str | None = None,
        on_request: _Hook | None = None,
        on_response: _Hook | None = None,
        on_retry: _Hook | None = None,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            api_key: The bearer token; else `GINNEL_API_KEY`.
            base_url: Where the API is served; else `GINNEL_BASE_URL`.
            timeout: Seconds for one attempt, 10 by default; 0 for no limit.
            deadline: Seconds for a call with its retries and pauses, 90 by default; 0 for no limit.
            max_retries: How many times to retry a failed attempt, 2 by default.
            headers: Headers to add to each request, in place of those of their names. `Host` is
                sent as given. Those of the transport are refused: `Content-Length`,
                `Transfer-Encoding`, `Connection` and the like; so is `Proxy-Authorization`, see
                `proxy`.
            service_version: The version of the API to ask for, "2" by default.
            ca_bundle: A PEM file of certificates to trust instead of the system's; else
                `GINNEL_CA_BUNDLE`.
            client_cert: A certificate to show to servers that ask for one: a PEM file that holds
                the certificate, those between it and its authority, and its key, or a pair of
                files, `(certificate, key)`; else `GINNEL_CLIENT_CERT`, one file. The key is not
                encrypted. Proxies are not shown the certificate.
            proxy: The proxy to use, instead of one from the environment, as
                `scheme://[user:password@]host[:port]`. The scheme is `http` (also where it is left
                out), `https`, `socks5` (names are resolved here) or `socks5h` (by the proxy).
            trust_env: False to ignore the proxies of the environment. Addresses on this machine
                never go through them.
            allow_http: True to send the key unencrypted to another machine.
            app: What to put in front of our `User-Agent`, such as "deploy/1.2".
            max_connections: How many connections there are at most, 100 by default. Calls that find
                none wait in the order in which they came.
            rate_limit: How many requests are sent at most in a time, such as "120/60s", retries
                counted; the time is in ms, s, m or h. Calls wait in the order in which they came.
                Copies by `with_options` share the limit.
            on_request: Called with an `Event` before each attempt.
            on_response: Called with an `Event` after each attempt, answered or failed.
            on_retry: Called with an `Event` before the pause that another attempt follows. What a
                hook raises is reported through `sys.unraisablehook` and does not end the call.

        Raises:
            ConfigError: An option is missing or unusable; the message names it.
            TypeError: There is no such option; the message names the nearest one.
        """
        self._open(locals())


class RemoteClient(_RemoteOptions, _Blocking, RemoteResources):
    """A client of the management API whose calls wait for their results.

    Its attributes mirror the paths of the API: `remote.backends.failover.create(...)`. Threads may
    share it. Calls raise the exceptions of `ginnel.exceptions`.
    """

    @cached_property
    def with_raw_response(self) -> RawRemoteResources:
        """The same calls, which return a `RawResponse` each."""
        from ..remote._raw import RawRemoteResources

        return RawRemoteResources(self._core.raw())
