"""A clock of a process that can be set while it runs, as a bad time server does."""

from __future__ import annotations

import os
import pathlib


class Clock:
    """The time of day of one process, by `libfaketime`; its monotonic clock is left alone."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.set(0)

    def set(self, offset: int) -> None:
        """Sets it so many seconds off; the process sees it within a second."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(f"{offset:+d}\n")
        fresh.replace(self._path)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that its process is started with."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def library() -> pathlib.Path:
    named = os.environ.get("GINNEL_FAKETIME")
    installed = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    for path in [pathlib.Path(named)] if named else installed:
        if path.exists():
            return path
    raise AssertionError("faketime is missing: run `make packages`, or name it in GINNEL_FAKETIME")
