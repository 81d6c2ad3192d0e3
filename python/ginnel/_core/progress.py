"""Counting aloud what takes long."""

from __future__ import annotations

import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def counting(
    wanted: bool, what: str, total: int | None = None
) -> Iterator[Callable[[int], object]]:
    """Gives a function to call with the number of new items.

    Shows a bar of `tqdm` where that is installed, else one line that is written over.
    """
    if not wanted:
        yield lambda _: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield from _counting_plainly(what, total)
        return
    with tqdm(total=total, desc=what, unit="") as bar:
        yield bar.update


def _counting_plainly(what: str, total: int | None) -> Iterator[Callable[[int], object]]:
    of = "" if total is None else f" of {total}"
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        sys.stderr.write(f"\r{what}: {done}{of}")
        sys.stderr.flush()

    try:
        yield count
    finally:
        sys.stderr.write("\n")
