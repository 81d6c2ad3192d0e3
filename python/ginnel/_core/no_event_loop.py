"""What is said where something is awaited and no asyncio loop runs."""

from __future__ import annotations

import sys


def no_loop_error() -> RuntimeError:
    """The error for a call that no asyncio loop can wait for; it says what to do instead."""
    if _is_under_trio():
        return RuntimeError(
            "asynchronous clients of ginnel need asyncio, and this is trio: run the program with "
            'asyncio.run(main()) or anyio.run(main, backend="asyncio"), or call a blocking client '
            "through trio.to_thread.run_sync"
        )
    return RuntimeError(
        "asynchronous clients of ginnel need a running asyncio loop: run the program with "
        "asyncio.run(main()), or use a blocking client"
    )


def _is_under_trio() -> bool:
    # Where trio runs it has been imported.
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        return False
    return True
