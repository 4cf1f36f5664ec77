"""The figures of a job over time, for charts: points that are measured, kept and thinned out. Pure.

A point is a mean over a span of time. When there are too many, two neighbours are merged, so that
spans grow with age: the last minutes are exact, and a job that runs for a year still shows its
first day. The number of points, and so their size, is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.history.events import (
    CheckpointSeen,
    EpochEnded,
    MetricPoint,
    PointSeen,
    SubtaskFigures,
    SubtasksSeen,
    VertexPoint,
)
from holdfast.plan.vertices import JobGraph

#: maximum number of points, and of points of single vertices
_POINTS: Final = 480
_VERTEX_POINTS: Final = 10 * _POINTS
_FEWEST: Final = 60
#: maximum number of user metrics in a point, and length of their names
_METRICS: Final = 40
_LONGEST_NAME: Final = 100
#: watermarks outside of these bounds are not points in time, or are the end of the input
_EARLIEST: Final = 10**11
_LATEST: Final = 2**53
_MS: Final = 1000

Figures = Mapping[str, Sequence[SubtaskFigures]]


class PointSeries:
    """The points of a job, oldest first; old points are merged."""

    def __init__(self) -> None:
        """Start without points."""
        self.points: list[PointSeen] = []

    def add(self, point: PointSeen) -> None:
        """Add the newest point; merge older ones if there are too many."""
        self.points.append(point)
        vertices = max(1, len(point.vertices))
        while len(self.points) > min(_POINTS, max(_FEWEST, _VERTEX_POINTS // vertices)):
            self._merge_one()

    def _merge_one(self) -> None:
        """Merge the two neighbours whose common span is the smallest part of their age."""
        points, now = self.points, self.points[-1].time

        def detail(place: int) -> float:
            earlier, later = points[place], points[place + 1]
            age = now - later.time
            return (later.time - earlier.time + earlier.span) / age if age > 0 else float("inf")

        place = min(range(len(points) - 1), key=detail)
        points[place : place + 2] = [merged(points[place], points[place + 1])]


def at_most(points: Sequence[PointSeen], most: int) -> list[PointSeen]:
    """Return points of about equal spans, ``most`` at the most."""
    if len(points) <= most:
        return list(points)
    first, last = points[0].time - points[0].span, points[-1].time
    width = max(1.0, (last - first) / most)
    found: dict[int, PointSeen] = {}
    for point in points:
        place = min(most - 1, int((point.time - point.span / 2 - first) / width))
        found[place] = merged(found[place], point) if place in found else point
    return list(found.values())


def merged(earlier: PointSeen, later: PointSeen) -> PointSeen:
    """Return one point for the time of both.

    Rates and loads are means, and delays the longest. State, memory and metrics are the last ones.
    """

    def mean(before: float, after: float) -> float:
        total = earlier.span + later.span
        return round((before * earlier.span + after * later.span) / total, 1) if total else after

    vertices = dict(later.vertices)
    for name, before in earlier.vertices.items():
        after = later.vertices.get(name)
        vertices[name] = before if after is None else _merged_vertex(before, after, mean)
    return PointSeen(
        time=later.time,
        span=later.time - (earlier.time - earlier.span),
        read=mean(earlier.read, later.read),
        written=mean(earlier.written, later.written),
        vertices=vertices,
        state=later.state,
        memory=later.memory,
        checkpoint=_longest(earlier.checkpoint, later.checkpoint),
        failed=earlier.failed + later.failed,
        metrics={**earlier.metrics, **later.metrics},
    )


def _merged_vertex(
    before: VertexPoint, after: VertexPoint, mean: Callable[[float, float], float]
) -> VertexPoint:
    return VertexPoint(
        records_in=mean(before.records_in, after.records_in),
        records_out=mean(before.records_out, after.records_out),
        busy=round(mean(before.busy, after.busy)),
        blocked=round(mean(before.blocked, after.blocked)),
        lag=_longest(before.lag, after.lag),
    )


def _longest(one: int | None, other: int | None) -> int | None:
    known = [time for time in (one, other) if time is not None]
    return max(known, default=None)


class PointStart(msgspec.Struct, frozen=True):
    """Where a point starts: a time in milliseconds, and the figures of all subtasks then."""

    since: int
    figures: Figures


def point_since(
    start: PointStart,
    now: int,
    graph: JobGraph,
    subtasks: SubtasksSeen,
    ended: Sequence[CheckpointSeen],
    last: EpochEnded,
) -> PointSeen:
    """Return what happened between two times of one attempt.

    ``ended``: the checkpoints that ended in this time. ``last``: the last epoch so far.
    """
    span = max(1, now - start.since)
    changes = [
        (vertex, start.figures.get(vertex.id, ()), subtasks.figures[vertex.id])
        for vertex in graph.vertices
    ]
    vertices = {
        vertex.id: _vertex_point(before, after, span, now) for vertex, before, after in changes
    }
    sources = [v.id for v in graph.vertices if any(op.source for op in v.operators)]
    took = [seen.ended - seen.triggered for seen in ended if seen.ended is not None]
    return PointSeen(
        time=now,
        span=span,
        read=round(sum(vertices[vertex].records_in for vertex in sources), 1),
        written=round(sum(_rate(before, after, _written, span) for _, before, after in changes), 1),
        vertices=vertices,
        state=last.state,
        memory=last.memory,
        checkpoint=max(took, default=None),
        failed=sum(seen.status == "FAILED" for seen in ended),
        metrics=metric_points(graph, subtasks.metrics),
    )


def _vertex_point(
    before: Sequence[SubtaskFigures], after: Sequence[SubtaskFigures], span: int, now: int
) -> VertexPoint:
    return VertexPoint(
        _rate(before, after, lambda f: f.records_in, span),
        _rate(before, after, lambda f: f.records_out + _written(f), span),
        _share(before, after, lambda f: f.busy),
        _share(before, after, lambda f: f.blocked),
        _lag(after, now),
    )


def _written(figures: SubtaskFigures) -> int:
    return sum(figures.written.values())


def _rate(
    before: Sequence[SubtaskFigures],
    after: Sequence[SubtaskFigures],
    field: Callable[[SubtaskFigures], int],
    span: int,
) -> float:
    """Return by how much a figure of all subtasks grew, per second."""
    return round(_MS * max(0, sum(map(field, after)) - sum(map(field, before))) / span, 1)


def _share(
    before: Sequence[SubtaskFigures],
    after: Sequence[SubtaskFigures],
    field: Callable[[SubtaskFigures], float],
) -> int:
    """Return how a vertex spent its time, in milliseconds per second: its most occupied subtask."""
    most = 0.0
    for place, now in enumerate(after):
        was = before[place] if place < len(before) else SubtaskFigures()
        total = _spent(now) - _spent(was)
        most = max(most, (field(now) - field(was)) / total if total > 0 else 0.0)
    return round(_MS * min(1.0, most))


def _spent(figures: SubtaskFigures) -> float:
    return figures.busy + figures.idle + figures.blocked


def _lag(figures: Sequence[SubtaskFigures], now: int) -> int | None:
    marks = [figure.watermark for figure in figures if figure.watermark is not None]
    mark = min(marks, default=0)
    return max(0, now - mark) if _EARLIEST < mark < _LATEST else None


def metric_points(
    graph: JobGraph, metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, dict[str, MetricPoint]]:
    """Return the users' metrics of all subtasks together, by operator uid; a bounded number."""
    found: dict[str, dict[str, MetricPoint]] = {}
    left = _METRICS
    for operator in (op for vertex in graph.vertices for op in vertex.operators):
        totals = dict(_totals(metrics.get(operator.uid, {})))
        if totals and left > 0:
            found[operator.uid] = dict(list(totals.items())[:left])
            left -= len(found[operator.uid])
    return found


def _totals(by_subtask: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, MetricPoint]]:
    names = sorted({name for values in by_subtask.values() for name in values})
    for name in names:
        values = [values[name] for values in by_subtask.values() if name in values]
        numbers = [value for value in values if _is_number(value)]
        spreads = [value for value in values if is_spread(value)]
        if spreads:
            yield name[:_LONGEST_NAME], _spread(spreads)
        elif numbers:
            yield name[:_LONGEST_NAME], sum(numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def is_spread(value: Any) -> bool:
    """Return whether a metric is a distribution; a gauge may return anything."""
    if not isinstance(value, dict) or value.keys() != {"count", "sum", "min", "max"}:
        return False
    bounds = [value[part] for part in ("min", "max") if value[part] is not None]
    return all(map(_is_number, (value["count"], value["sum"], *bounds)))


def _spread(values: Sequence[Mapping[str, Any]]) -> tuple[float, float, float | None, float | None]:
    """Return the count, the sum, the minimum and the maximum of a distribution."""
    least = [value["min"] for value in values if value["min"] is not None]
    most = [value["max"] for value in values if value["max"] is not None]
    count, total = (sum(value[part] for value in values) for part in ("count", "sum"))
    return count, total, min(least, default=None), max(most, default=None)
