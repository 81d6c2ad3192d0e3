"""Clients for a tunnel service's management and agent APIs, and the self-hosted system itself."""

from __future__ import annotations

import os
import sys

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError(
        "ginnel does not support free-threaded Python, and this is one: "
        f"{sys.executable}, {sys.version.partition(' (')[0]}; use a build with the global "
        "interpreter lock (pythonX.Y without the t)"
    )

from ._core.client import RemoteClient
from ._native import __version__
from .exceptions import (
    AgentError,
    AgentNotRunningError,
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    CassetteError,
    ClientClosedError,
    ConfigError,
    ConflictError,
    GinnelError,
    NotFoundError,
    PaginationError,
    PermissionDeniedError,
    RateLimitError,
    ResponseDecodeError,
    ServerError,
    ServiceAddressError,
    ServiceError,
    ServiceStoreError,
    ValidationError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._agent_api.client import AgentClient
    from ._agent_api.client_async import AsyncAgentClient
    from ._core.agent import Agent
    from ._core.client_asyncio import AsyncRemoteClient
    from ._core.raw_response import RawResponse
    from ._core.service import Service
else:
    _LATER = {
        "Agent": "_core.agent",
        "AgentClient": "_agent_api.client",
        "AsyncAgentClient": "_agent_api.client_async",
        "AsyncRemoteClient": "_core.client_asyncio",
        "RawResponse": "_core.raw_response",
        "Service": "_core.service",
    }

    def __getattr__(name):
        """Import what needs more than the rest, or is seldom needed, when it is asked for."""
        if name not in _LATER:
            from ._core.resource import did_you_mean

            nearest = "" if name.startswith("_") else did_you_mean(name, __all__)
            message = f"module {__name__!r} has no attribute {name!r}{nearest}"
            raise AttributeError(message, name=name, obj=None)
        module = __import__(f"{__name__}.{_LATER[name]}", fromlist=[name])
        globals()[name] = found = getattr(module, name)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "APIConnectionError",
    "APIError",
    "APIStatusError",
    "APITimeoutError",
    "Agent",
    "AgentClient",
    "AgentError",
    "AgentNotRunningError",
    "AsyncAgentClient",
    "AsyncRemoteClient",
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
    "RawResponse",
    "RemoteClient",
    "ResponseDecodeError",
    "ServerError",
    "Service",
    "ServiceAddressError",
    "ServiceError",
    "ServiceStoreError",
    "ValidationError",
    "__version__",
]

if _level := os.environ.get("GINNEL_LOG"):
    from .events import _print_lines

    _print_lines(_level)
