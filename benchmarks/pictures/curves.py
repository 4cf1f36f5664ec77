"""Curves: the latency of both engines by rate, median and 99th percentile."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.pictures.figures import Point
from benchmarks.pictures.scale import LogScale, short
from benchmarks.pictures.svg import Drawing, Theme, text_width

__all__ = ["draw_curves"]

_WIDTH = 860.0
_HEIGHT = 430.0
_LEFT = 84.0
_TOP = 60.0
_BOTTOM = 60.0
_SMALL = 12.0
#: The least distance between two labels.
_LINE = 16.0

#: A curve: engine, percentile, and its points in pixels.
Curve = tuple[str, str, list[tuple[float, float]]]


def draw_curves(title: str, points: Sequence[Point], theme: Theme) -> str:
    """Return the picture: records per second against milliseconds, both logarithmic."""
    drawing = Drawing(_WIDTH, _HEIGHT, title, theme)
    engines = list(dict.fromkeys(point.engine for point in points))
    room = max(text_width(f"{engine} engine, p99", _SMALL) for engine in engines) + 24
    values = [value for point in points for value in (point.p50, point.p99) if value]
    rates = [point.rate for point in points]
    across = LogScale(min(rates) / 1.3, max(rates) * 1.15, _LEFT, _WIDTH - room - 10)
    up = LogScale(min(values) / 1.5, max(values) * 1.5, _HEIGHT - _BOTTOM, _TOP)
    drawing.text(20, 30, title, size=17, bold=True)
    _axes(drawing, across, up, sorted(set(rates)))
    curves = [
        (engine, name, found)
        for engine in engines
        for name in ("p50", "p99")
        if (found := _placed(points, engine, name, across, up))
    ]
    for engine, name, found in curves:
        colour = (theme.first, theme.second)[engines.index(engine) % 2]
        # NB: lines differ by more than their colour
        drawing.line(found, colour, width=2.5, dashes="" if name == "p50" else "7 5")
        for x, y in found:
            drawing.dot(x, y, colour, filled=name == "p50")
    _labels(drawing, curves, across.end + 16)
    return drawing.render()


def _placed(
    points: Sequence[Point], engine: str, name: str, across: LogScale, up: LogScale
) -> list[tuple[float, float]]:
    found = [
        (point.rate, value)
        for point in points
        if point.engine == engine and (value := getattr(point, name)) is not None
    ]
    return [(across.at(rate), up.at(value)) for rate, value in sorted(found)]


def _axes(drawing: Drawing, across: LogScale, up: LogScale, rates: Sequence[float]) -> None:
    faint, grid = drawing.theme.faint, drawing.theme.grid
    for tick in up.ticks():
        y = up.at(tick)
        drawing.line([(across.start, y), (across.end, y)], grid)
        label = f"{short(tick)} ms"
        drawing.text(across.start - 8, y + 4, label, anchor="end", size=_SMALL, colour=faint)
    last = float("-inf")
    for rate in rates:
        x = across.at(rate)
        drawing.line([(x, up.end), (x, up.start)], grid)
        if x - last >= 48:
            label = f"{short(rate)}/s"
            drawing.text(x, up.start + 18, label, anchor="middle", size=_SMALL, colour=faint)
            last = x
    note = "records per second, logarithmic"
    middle = (across.start + across.end) / 2
    drawing.text(middle, up.start + 40, note, anchor="middle", size=_SMALL, colour=faint)


def _labels(drawing: Drawing, curves: Sequence[Curve], x: float) -> None:
    """Write what each curve is at its end; labels that would touch are moved apart."""
    last = float("-inf")
    for engine, name, found in sorted(curves, key=lambda curve: curve[2][-1][1]):
        y = max(found[-1][1], last + _LINE)
        drawing.text(x, y + 4, f"{engine} engine, {name}", size=_SMALL)
        last = y
