"""Counting aloud what takes long."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any


def counting(
    is_shown: bool, what: str, total: int | None = None
) -> AbstractContextManager[Callable[[int], object]]:
    """Gives a function to call with the number of new items.

    Shows a bar of `tqdm` where that is installed, else one line that is written over.
    """
    if not is_shown:
        return _Hidden()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(what, total)
    return _Bar(tqdm(total=total, desc=what, unit=""))


class _Hidden:
    def __enter__(self) -> Callable[[int], object]:
        return lambda _: None

    def __exit__(self, *_: object) -> None:
        pass


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def __enter__(self) -> Callable[[int], object]:
        update: Callable[[int], object] = self._bar.__enter__().update
        return update

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)


class _Line:
    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total}"
        self._done = 0

    def __enter__(self) -> Callable[[int], object]:
        return self._count

    def _count(self, more: int) -> None:
        self._done += more
        sys.stderr.write(f"\r{self._what}: {self._done}{self._of}")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        sys.stderr.write("\n")
