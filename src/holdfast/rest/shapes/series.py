"""The responses about figures over time, which Flink does not have.

They are columns: the n-th value of each list belongs to the n-th time.
"""

from __future__ import annotations

from holdfast.rest.shapes.jobs import Kebab


class VertexSeries(Kebab, frozen=True):
    """Records per second, load in milliseconds per second, and the delay of the watermark in ms."""

    id: str
    name: str
    records_in: list[float | None]
    records_out: list[float | None]
    busy: list[int | None]
    backpressured: list[int | None]
    watermark_lag: list[int | None]


class MetricSeries(Kebab, frozen=True):
    """A user's metric, summed over the subtasks; of a distribution, the mean of each span.

    `least` and `most` are the minimum and maximum of a distribution so far, otherwise null.
    """

    operator: str
    operator_name: str
    name: str
    is_distribution: bool
    count: float | None
    least: float | None
    most: float | None
    values: list[float | None]


class Series(Kebab, frozen=True):
    """The figures of a job over time; each point is a mean over the `span` that ends at `time`."""

    time: list[int]
    span: list[int]
    records_read: list[float]
    records_written: list[float]
    state_bytes: list[int]
    memory_bytes: list[int]
    checkpoint_duration: list[int | None]
    checkpoints_failed: list[int]
    vertices: list[VertexSeries]
    metrics: list[MetricSeries]
