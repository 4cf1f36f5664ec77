"""Times of records, and their percentiles; without Holdfast, since programs of peers use it, too.

A file of times has the sum of the counts that its records carried, and then for each record when it
was made and when it arrived.
"""

from __future__ import annotations

import os
import uuid
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

__all__ = ["Seen", "Times", "check", "latency_figures", "new_file", "percentiles", "read_times"]

#: The share of the records that only warms up.
WARM_UP = 0.3

_SUFFIX = "times"
_MS = 1000.0


class Seen(NamedTuple):
    """All records that arrived, in the order in which they were made."""

    made: Sequence[float]
    arrived: Sequence[float]
    #: The sum of the counts that they carried.
    total: int


def new_file(directory: str, suffix: str) -> Path:
    """Return a path that no other process or function has."""
    return Path(directory) / f"{os.getpid()}-{uuid.uuid4().hex}.{suffix}"


class Times:
    """Takes note of records in one function, and writes its notes at the end."""

    def __init__(self) -> None:
        self._times = array("d")
        self._total = 0

    def note(self, made: float, count: int, now: float) -> None:
        """Take note of one record."""
        self._times.append(made)
        self._times.append(now)
        self._total += count

    def write(self, directory: str) -> None:
        """Write all notes to a file of their own."""
        data = array("d", [float(self._total)]) + self._times
        new_file(directory, _SUFFIX).write_bytes(data.tobytes())


def read_times(directory: str) -> Seen:
    """Return what all functions together took note of."""
    pairs: list[tuple[float, float]] = []
    total = 0
    for path in Path(directory).glob(f"*.{_SUFFIX}"):
        data = array("d", path.read_bytes())
        total += round(data[0])
        pairs.extend(zip(data[1::2], data[2::2], strict=True))
    pairs.sort()
    return Seen([made for made, _ in pairs], [arrived for _, arrived in pairs], total)


def check(what: str, found: object, expected: object) -> None:
    """End the program if a result is not what it should be."""
    if found != expected:
        raise SystemExit(f"Error: wrong result: {what} is {found!r}, expected {expected!r}")


def latency_figures(seen: Seen, name: str = "") -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum, in milliseconds, after warm-up."""
    first = round(len(seen.made) * WARM_UP)
    made, arrived = seen.made[first:], seen.arrived[first:]
    return percentiles((b - a for a, b in zip(made, arrived, strict=True)), name)


def percentiles(seconds: Iterable[float], name: str = "") -> dict[str, float]:
    """Return median, 99th percentile and maximum of some times, in milliseconds.

    >>> percentiles([0.001, 0.002, 0.003], "x_")
    {'x_p50': 2.0, 'x_p99': 2.98, 'x_max': 3.0}
    """
    values = [each * _MS for each in seconds]
    cuts = quantiles(values, n=100, method="inclusive")
    figures = {"p50": cuts[49], "p99": cuts[98], "max": max(values)}
    return {f"{name}{key}": round(value, 2) for key, value in figures.items()}
