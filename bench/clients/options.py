"""What a copy by `with_options` costs, in microseconds: the best of several rounds for each option."""

from __future__ import annotations

import timeit
from typing import Any

import ginnel

ROUNDS = 7
COPIES = 20_000
CHANGES: list[dict[str, Any]] = [
    {"timeout": 2},
    {"deadline": 5, "max_retries": 0},
    {"extra_query": {"expand": "all"}},
    {"headers": {"x-tenant": "7"}},
]


def main() -> None:
    for kind in (ginnel.RemoteClient, ginnel.AsyncRemoteClient):
        client = kind("k", base_url="http://127.0.0.1:1", headers={"x-tenant": "1"})
        for changes in CHANGES:
            copy = timeit.Timer(lambda: client.with_options(**changes))  # noqa: B023
            best = min(copy.repeat(ROUNDS, COPIES)) / COPIES * 1e6
            print(f"{kind.__name__:18} {', '.join(changes):22} {best:6.2f} us")


if __name__ == "__main__":
    main()
