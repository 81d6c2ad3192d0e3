"""The checker of histories finds those that no order explains."""

from __future__ import annotations

import pytest

from histories import Operation, Resource, is_linearizable

EMPTY = Resource("a")


def created(began: float, ended: float, id: str = "a") -> Operation:
    return Operation("create", "done", began, ended, id)


def got(began: float, ended: float, **fields: str) -> Operation:
    return Operation("get", "done", began, ended, "a", found=Resource("a", **fields))


def updated(began: float, ended: float, **fields: str) -> Operation:
    return Operation("update", "done", began, ended, "a", tuple(fields.items()))


def deleted(began: float, ended: float) -> Operation:
    return Operation("delete", "done", began, ended, "a")


def missed(began: float, ended: float) -> Operation:
    return Operation("get", "refused", began, ended, "a")


def refused(began: float, ended: float) -> Operation:
    return Operation("create", "refused", began, ended)


def unknown(began: float, **fields: str) -> Operation:
    return Operation("update", "unknown", began, id="a", changes=tuple(fields.items()))


@pytest.mark.parametrize(
    "history",
    [
        [],
        [created(0, 1), got(2, 3), deleted(4, 5), missed(6, 7)],
        # Those that overlap may be in either order.
        [created(0, 1), updated(2, 6, metadata="x"), got(3, 4, metadata="x")],
        [created(0, 1), updated(2, 6, metadata="x"), got(3, 4), got(5, 7, metadata="x")],
        [created(0, 1), deleted(2, 5), created(3, 4, "b")],
        [created(0, 1), refused(0.5, 2), missed(0.1, 0.2)],
        # Two changes of different fields keep both.
        [
            created(0, 1),
            updated(2, 4, metadata="x"),
            updated(2, 4, description="y"),
            got(5, 6, metadata="x", description="y"),
        ],
        # What nobody knows of may have happened, late as well, or not.
        [created(0, 1), unknown(2, metadata="x"), got(3, 4)],
        [created(0, 1), unknown(2, metadata="x"), got(3, 4), got(5, 6, metadata="x")],
        [Operation("create", "unknown", 0), refused(1, 2)],
        [Operation("create", "unknown", 0), created(1, 2)],
    ],
)
def test_an_order_is_found(history: list[Operation]) -> None:
    assert is_linearizable(history)


@pytest.mark.parametrize(
    "history",
    [
        # An acknowledged change is not seen, or undone.
        [created(0, 1), missed(2, 3)],
        [created(0, 1), updated(2, 3, metadata="x"), got(4, 5)],
        [created(0, 1), deleted(2, 3), got(4, 5)],
        [created(0, 1), updated(2, 5, metadata="x"), got(3, 4, metadata="x"), got(4.5, 6)],
        # Two have made it, or one was refused what was not there.
        [created(0, 2), created(1, 3, "b")],
        [refused(0, 1), created(2, 3)],
        [created(0, 1), deleted(2, 3), refused(4, 5)],
        # One of two changes is lost.
        [
            created(0, 1),
            updated(2, 4, metadata="x"),
            updated(2, 4, description="y"),
            got(5, 6, description="y"),
        ],
        # Something that nobody has asked for, or that came before it was asked for.
        [created(0, 1), got(2, 3, metadata="z")],
        [created(0, 1), got(2, 3, metadata="x"), unknown(4, metadata="x")],
        # Twice done, with something else between.
        [
            created(0, 1),
            unknown(2, metadata="x"),
            got(3, 4, metadata="x"),
            updated(5, 6, metadata="y"),
            got(7, 8, metadata="x"),
        ],
    ],
)
def test_what_no_order_explains_is_found(history: list[Operation]) -> None:
    assert not is_linearizable(history)


def test_many_operations_at_once_are_searched() -> None:
    updates = [updated(2, 100, metadata=str(number)) for number in range(9)]
    reads = [got(number, number + 0.5, metadata=str(number % 9)) for number in range(9, 13)]

    assert is_linearizable([*updates, *reads], EMPTY)
    assert not is_linearizable([*updates, got(101, 102)], EMPTY)
