"""What a service tells of the calls that were made."""

from __future__ import annotations

import json
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall:
    """A call of an operation, as the service took it."""

    operation: str
    """The operation, such as `api_keys.get`."""
    method: str
    """The HTTP method."""
    path: str
    """The path, as it was sent."""
    query: str | None
    """The query string; None without one."""
    arguments: Mapping[str, object] | None
    """The arguments, from path, query and body; None when they could not be read, or were not
    looked at."""
    status: int | None
    """The status of the response; None when the connection was cut."""


def read(text: str) -> list[ServiceCall]:
    """The calls in a JSON text."""
    return [ServiceCall(**call) for call in json.loads(text)]
