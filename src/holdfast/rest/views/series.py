"""The responses about figures over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.history.events import MetricPoint, PointSeen, VertexPoint
from holdfast.history.job import JobHistory
from holdfast.history.points import at_most
from holdfast.plan.vertices import Vertex, VertexOperator
from holdfast.rest.shapes import series as shapes

#: number of points in a response, unless a client wants fewer or more
POINTS: Final = 240


def series(history: JobHistory, since: int, most: int) -> shapes.Series:
    """Return the figures since a time; at most ``most`` points."""
    points = at_most([point for point in history.series.points if point.time > since], most)
    return shapes.Series(
        time=[point.time for point in points],
        span=[point.span for point in points],
        records_read=[point.read for point in points],
        records_written=[point.written for point in points],
        state_bytes=[point.state for point in points],
        memory_bytes=[point.memory for point in points],
        checkpoint_duration=[point.checkpoint for point in points],
        checkpoints_failed=[point.failed for point in points],
        vertices=[_vertex(vertex, points) for vertex in history.graph.vertices],
        metrics=[
            metric
            for vertex in history.graph.vertices
            for operator in vertex.operators
            for metric in _metrics(operator, points)
        ],
    )


def _vertex(vertex: Vertex, points: Sequence[PointSeen]) -> shapes.VertexSeries:
    found: list[VertexPoint | None] = [point.vertices.get(vertex.id) for point in points]
    return shapes.VertexSeries(
        id=vertex.id,
        name=vertex.name,
        records_in=[None if one is None else one.records_in for one in found],
        records_out=[None if one is None else one.records_out for one in found],
        busy=[None if one is None else one.busy for one in found],
        backpressured=[None if one is None else one.blocked for one in found],
        watermark_lag=[None if one is None else one.lag for one in found],
    )


def _metrics(
    operator: VertexOperator, points: Sequence[PointSeen]
) -> Iterator[shapes.MetricSeries]:
    by_point = [point.metrics.get(operator.uid, {}) for point in points]
    for name in dict.fromkeys(name for metrics in by_point for name in metrics):
        values = [metrics.get(name) for metrics in by_point]
        last = next(value for value in reversed(values) if value is not None)
        spread = last if isinstance(last, tuple) else (None, None, None, None)
        yield shapes.MetricSeries(
            operator=operator.uid,
            operator_name=operator.name,
            name=name,
            is_distribution=isinstance(last, tuple),
            count=spread[0],
            least=spread[2],
            most=spread[3],
            values=list(_values(values)),
        )


def _values(values: Sequence[MetricPoint | None]) -> Iterator[float | None]:
    """Yield numbers as they are, and the mean of the values that a distribution got since."""
    count, total = 0.0, 0.0
    for value in values:
        if not isinstance(value, tuple):
            yield value
            continue
        if value[0] < count:  # it began anew with an attempt
            count, total = 0.0, 0.0
        more = value[0] - count
        yield round((value[1] - total) / more, 3) if more > 0 else None
        count, total = value[0], value[1]
