"""Captured requests as a figure: how long they took, and what was answered."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC
from io import BytesIO
from typing import TYPE_CHECKING

from .html import BAD, GOOD, MOVED, ODD, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..local.requests import CapturedRequest

NO_RESPONSE = "no response"
SPREAD = 50
"""How many times the shortest duration the longest may be on an axis that is not logarithmic."""

_COLOURS = {"1": OPEN, "2": GOOD, "3": MOVED, "4": ODD, "5": BAD}


def figure(captured: Iterable[CapturedRequest]) -> Figure:
    """Durations over time, and how often each status was answered."""
    requests = sorted(captured, key=lambda request: request.start)
    drawn = _empty_figure()
    durations, statuses = drawn.subplots(1, 2, width_ratios=(2, 1))
    _draw_durations(durations, [request for request in requests if request.response])
    _draw_statuses(statuses, requests)
    return drawn


def _empty_figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError("plot needs matplotlib: pip install 'ginnel[plot]'") from missing

    class _RequestFigure(Figure):
        """A figure that a notebook shows, whatever backend matplotlib has."""

        def _repr_png_(self) -> bytes:
            png = BytesIO()
            self.savefig(png, format="png")
            return png.getvalue()

    return _RequestFigure(figsize=(10, 3.5), layout="constrained")


def _draw_durations(axes: Axes, answered: Sequence[CapturedRequest]) -> None:
    axes.set(title="Durations", xlabel="time (UTC)", ylabel="milliseconds")
    if not answered:
        _say_none(axes)
        return
    by_class = defaultdict(list)
    for request in answered:
        by_class[_status(request)[0]].append(request)
    for first_digit, requests in sorted(by_class.items()):
        axes.scatter(
            [request.start.astimezone(UTC) for request in requests],  # type: ignore[arg-type]
            [request.duration / 1e6 for request in requests],
            color=_colour(first_digit),
            label=f"{first_digit}xx",
            s=18,
        )
    _show_times(axes)
    lengths = [request.duration for request in answered]
    if min(lengths) > 0 and max(lengths) > SPREAD * min(lengths):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(title="status")


def _show_times(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _draw_statuses(axes: Axes, requests: Sequence[CapturedRequest]) -> None:
    axes.set(title=f"Statuses of {_count(len(requests))}")
    if not requests:
        _say_none(axes)
        return
    counts = sorted(Counter(map(_status, requests)).items())
    names = [name for name, _ in counts]
    bars = axes.barh(names, [count for _, count in counts], color=[_colour(name) for name in names])
    axes.bar_label(bars, padding=3)
    axes.margins(x=0.15)
    axes.invert_yaxis()


def _say_none(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no captured requests", ha="center", va="center", transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])


def _status(request: CapturedRequest) -> str:
    return str(request.response.status_code) if request.response else NO_RESPONSE


def _colour(status: str) -> str:
    return _COLOURS.get(status[0], OPEN)


def _count(requests: int) -> str:
    return "1 request" if requests == 1 else f"{requests} requests"
