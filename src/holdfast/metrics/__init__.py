"""User metrics, under PyFlink's names.

A metric belongs to its function object. Its value is kept from epoch to epoch, is reset with an
attempt, and is reported to the driver with every epoch. The driver sums counters, meters and the
counts of distributions over the subtasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]


class Metric:
    """A metric of a metric group.

    Attributes:
        path: the names of its groups, and its own name.
    """

    path: tuple[str, ...] = ()

    def snapshot(self) -> Any:
        """Return the values to report."""
        raise NotImplementedError


_M = TypeVar("_M", bound=Metric)


class Counter(Metric):
    """A number that goes up and down."""

    def __init__(self) -> None:
        """Start at zero."""
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add to the count."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract from the count."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count so far."""
        return self._count

    def snapshot(self) -> int:
        """Return the values to report."""
        return self._count


class Meter(Metric):
    """Counts events; the rate over its time span is computed where it is read."""

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        """Set the time span of the rate."""
        self.time_span_in_seconds = time_span_in_seconds
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count an event."""
        self._count += value

    def get_count(self) -> int:
        """Return the number of events."""
        return self._count

    def snapshot(self) -> int:
        """Return the values to report."""
        return self._count


class Distribution(Metric):
    """Sum, count, minimum and maximum of its values."""

    def __init__(self) -> None:
        """Start without values."""
        self.count = 0
        self.sum = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        """Add a value."""
        self.count += 1
        self.sum += value
        self.min = value if self.min is None or value < self.min else self.min
        self.max = value if self.max is None or value > self.max else self.max

    def snapshot(self) -> dict[str, Any]:
        """Return the values to report."""
        return {"count": self.count, "sum": self.sum, "min": self.min, "max": self.max}


class _Gauge(Metric):
    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read

    def snapshot(self) -> Any:
        return self._read()


class MetricGroup:
    """Metrics and nested groups, by name."""

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        """Make a group at a path in the tree of groups."""
        self.path = path
        self._metrics: dict[str, Metric] = {}
        self._groups: dict[str, MetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return the group of that name; with ``extra``, the group for a key and its value."""
        group = self._groups.setdefault(name, MetricGroup((*self.path, name)))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """Return the counter of that name."""
        return self._metric(name, Counter, Counter)

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Call ``obj`` at the end of an epoch and report what it returns."""
        self._metrics[name] = _Gauge(obj)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of that name."""
        return self._metric(name, Meter, lambda: Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of that name."""
        return self._metric(name, Distribution, Distribution)

    def _metric(self, name: str, kind: type[_M], make: Callable[[], _M]) -> _M:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = make()
            metric.path = (*self.path, name)
        if not isinstance(metric, kind):
            message = f"metric '{name}' is a {type(metric).__name__}, not a {kind.__name__}"
            raise TypeError(message)
        return metric

    def snapshot(self) -> dict[str, Any]:
        """Return all values by their dotted path below this group."""
        return {".".join(path): metric.snapshot() for path, metric in self._walk()}

    def _walk(self) -> Iterator[tuple[tuple[str, ...], Metric]]:
        for name, metric in self._metrics.items():
            yield (*self.path, name), metric
        for group in self._groups.values():
            yield from group._walk()

    def dump(self) -> Carried:
        """Return the metrics that keep a value, to move them to another process."""
        return {
            path: (type(metric), vars(metric))
            for path, metric in self._walk()
            if not isinstance(metric, _Gauge)
        }

    def restore(self, carried: Carried) -> None:
        """Set saved values, in the metric objects that already exist."""
        for path, (kind, values) in carried.items():
            group = self.group_at(path[:-1])
            vars(group._metric(path[-1], kind, kind)).update(values)

    def group_at(self, path: tuple[str, ...]) -> MetricGroup:
        """Return the group at a path below this one."""
        group = self
        for name in path:
            group = group.add_group(name)
        return group

    def metric_at(self, path: tuple[str, ...]) -> Metric:
        """Return the metric at a path below this group."""
        return self.group_at(path[:-1])._metrics[path[-1]]


#: Metrics by path, as their kind and their values.
Carried = dict[tuple[str, ...], tuple[type[Metric], dict[str, Any]]]
