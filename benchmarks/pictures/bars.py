"""Bars: how many times as good as others Holdfast is, on a logarithmic axis with 1 in it.

A bar to the right of 1 means that Holdfast is better, one to the left that the other is. A short
vertical line is the least that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from benchmarks.pictures.figures import Comparison
from benchmarks.pictures.scale import LogScale, short
from benchmarks.pictures.svg import Drawing, Theme, text_width

__all__ = ["draw_bars"]

_WIDTH = 860.0
_MARGIN = 20.0
_TOP = 78.0
_ROW = 24.0
_BAR = 14.0
_GAP = 14.0
_FOOT = 44.0
_SMALL = 12.0


def draw_bars(title: str, rows: Sequence[Comparison], heading: str, theme: Theme) -> str:
    """Return the picture of comparisons that have a ratio.

    Args:
        title: Is above the picture.
        rows: What to draw.
        heading: Whether rows are grouped by what was run, ``work``, or by the peer, ``against``.
        theme: The colours.
    """
    ordered = sorted(rows, key=_by_first(rows, heading))
    groups = [(name, list(each)) for name, each in groupby(ordered, key=attrgetter(heading))]
    label = attrgetter("against" if heading == "work" else "work")
    height = _TOP + _FOOT + sum(_ROW * (len(each) + 1) + _GAP for _, each in groups)
    drawing = Drawing(_WIDTH, height, title, theme)
    labels = max(text_width(label(row), _SMALL + 1) for row in rows)
    scale = _scale(rows, _MARGIN + labels + 14)
    _head(drawing, title, any(row.bar for row in rows))
    _axis(drawing, scale, height - _FOOT)
    y = _TOP
    for name, each in groups:
        drawing.text(_MARGIN, y + _ROW - 8, name, bold=True)
        for row in each:
            y += _ROW
            _bar(drawing, scale, row, y, label(row))
        y += _ROW + _GAP
    return drawing.render()


def _by_first(rows: Sequence[Comparison], heading: str) -> Callable[[Comparison], int]:
    """Sort by groups, in the order in which they come first."""
    names = list(dict.fromkeys(getattr(row, heading) for row in rows))
    return lambda row: names.index(getattr(row, heading))


def _scale(rows: Sequence[Comparison], start: float) -> LogScale:
    values = [row.ratio for row in rows if row.ratio] + [row.bar for row in rows if row.bar]
    low, high = min(0.8, *values, 0.8), max(1.5, *values, 1.5)
    # NB: room for the figure at the end of the longest bar
    return LogScale(low / 1.05, high * 1.05, start, _WIDTH - _MARGIN - 110)


def _head(drawing: Drawing, title: str, bars: bool) -> None:
    theme = drawing.theme
    drawing.text(_MARGIN, 30, title, size=17, bold=True)
    x = _MARGIN
    for colour, text in (
        (theme.first, "Holdfast is faster"),
        (theme.second, "the other is faster"),
    ):
        drawing.box(x, 44, 12, 12, colour)
        drawing.text(x + 18, 55, text, size=_SMALL, colour=theme.faint)
        x += 18 + text_width(text, _SMALL) + 22
    if bars:
        drawing.line([(x + 2, 42), (x + 2, 58)], theme.mark, width=2)
        drawing.text(x + 12, 55, "what is wanted", size=_SMALL, colour=theme.faint)


def _axis(drawing: Drawing, scale: LogScale, bottom: float) -> None:
    theme = drawing.theme
    for tick in scale.ticks():
        x = scale.at(tick)
        at_one = tick == 1
        drawing.line([(x, _TOP - 6), (x, bottom + 2)], theme.faint if at_one else theme.grid)
        label = f"{short(tick)} ×"
        drawing.text(x, bottom + 18, label, anchor="middle", size=_SMALL, colour=theme.faint)
    note = "times as fast as the other, logarithmic"
    drawing.text(scale.start, bottom + 36, note, size=_SMALL, colour=theme.faint)


def _bar(drawing: Drawing, scale: LogScale, row: Comparison, y: float, label: str) -> None:
    theme = drawing.theme
    assert row.ratio is not None
    one, end = scale.at(1), scale.at(row.ratio)
    middle = y + _ROW / 2
    drawing.text(
        scale.start - 14, middle + 4, label, anchor="end", size=_SMALL + 1, colour=theme.text
    )
    colour = theme.second if row.slower else theme.first
    drawing.box(min(one, end), middle - _BAR / 2, max(abs(end - one), 1.5), _BAR, colour)
    right = end
    if row.bar is not None:
        x = scale.at(row.bar)
        drawing.line([(x, middle - _BAR / 2 - 3), (x, middle + _BAR / 2 + 3)], theme.mark, width=2)
        right = max(right, x)
    # NB: always to the right, where no other mark of the row can be
    text = f"{_times(row.ratio)} ×"
    drawing.text(max(right, one) + 7, middle + 4, text, size=_SMALL, bold=True)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
