"""Windows over columns: where they are, and what is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from holdfast.datastream.columns.aggregates import (
    EARLIEST,
    LATEST,
    Aggregate,
    count,
    state_name,
)
from holdfast.datastream.windows.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from holdfast.datastream.windows.sessions import EventTimeSessionWindows
from holdfast.errors import JobTypeError

if TYPE_CHECKING:
    import pyarrow as pa

#: the columns of a result that say which window it is of
START: Final = "window_start"
END: Final = "window_end"

#: the assigners of windows over columns
BatchAssigner = (
    TumblingEventTimeWindows[Any]
    | SlidingEventTimeWindows[Any]
    | EventTimeSessionWindows[Any]
    | TumblingProcessingTimeWindows[Any]
)
_ASSIGNERS: Final = (
    TumblingEventTimeWindows,
    SlidingEventTimeWindows,
    EventTimeSessionWindows,
    TumblingProcessingTimeWindows,
)


@dataclass(frozen=True)
class Spans:
    """Tumbling or sliding windows, in milliseconds."""

    size: int
    slide: int
    offset: int

    @property
    def pane(self) -> int:
        """Return the length of a pane: windows consist of whole panes, which they share."""
        return gcd(self.size, self.slide)

    def last_end(self, pane: int) -> int:
        """Return the end of the last window that a pane may be in."""
        return pane - (pane - self.offset) % self.slide + self.size

    def first_end(self, pane: int) -> int:
        """Return the end of the first window that a pane is in."""
        last = self.last_end(pane)
        return last - (last - pane - 1) // self.slide * self.slide

    def end_after(self, time: int) -> int:
        """Return the first end of a window after this time."""
        return time - (time - self.offset - self.size) % self.slide + self.slide


@dataclass(frozen=True)
class Gaps:
    """Sessions that end after a gap, in milliseconds."""

    gap: int


@dataclass(frozen=True)
class BatchWindows:
    """Windows over columns: where they are, and what is computed.

    Attributes:
        shape: where they begin and end.
        by_clock: whether they are windows of processing time.
        aggregates: by the name of the column of the result.
        partials: what a pane keeps, by the name of its state, with its type.
        schema: the columns of the results: key, window, aggregates.
        keys: the names of the key's columns.
        rows: the columns of the rows.
    """

    shape: Spans | Gaps
    by_clock: bool
    aggregates: Mapping[str, Aggregate]
    partials: Mapping[str, tuple[Aggregate, pa.DataType]]
    schema: pa.Schema
    keys: tuple[str, ...]
    rows: pa.Schema


def describe_windows(
    assigner: BatchAssigner,
    aggregates: Mapping[str, Aggregate],
    keys: list[str],
    columns: pa.Schema,
) -> BatchWindows:
    """Return the description of windows over rows with these columns.

    Raises:
        JobTypeError: when a column does not exist or has the wrong type, or for other windows.
    """
    _check_names(aggregates, keys, columns)
    _check_aggregates(aggregates)
    shape = _shape_of(assigner)
    needed = [count(), *aggregates.values()]
    if isinstance(shape, Gaps):
        needed += [Aggregate(EARLIEST), Aggregate(LATEST)]
    partials = {
        state_name(part): (part, part.type_in(columns))
        for aggregate in needed
        for part in aggregate.partials
    }
    by_clock = isinstance(assigner, TumblingProcessingTimeWindows)
    return BatchWindows(
        *(shape, by_clock, dict(aggregates), partials),
        *(_schema_of(aggregates, keys, columns), tuple(keys), columns),
    )


def _check_names(aggregates: Mapping[str, Aggregate], keys: list[str], columns: pa.Schema) -> None:
    missing = [name for name in keys if name not in columns.names]
    taken = [name for name in aggregates if name in (*keys, START, END)]
    if missing or taken or not aggregates:
        problem = (
            f"there is no column '{missing[0]}'; the columns are {', '.join(columns.names)}"
            if missing
            else f"the name '{taken[0]}' is taken; give the aggregate another one"
            if taken
            else "there are no aggregates, as in aggregates={'n': count()}"
        )
        message = f"window_batches: {problem}"
        raise JobTypeError(message)


def _check_aggregates(aggregates: Mapping[str, Aggregate]) -> None:
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            message = (
                f"window_batches: expected an aggregate of holdfast.datastream.columns.aggregates "
                f"for the column '{name}', as in sum_('amount'); got {aggregate!r} "
                f"({type(aggregate).__name__})"
            )
            raise JobTypeError(message)


def _schema_of(
    aggregates: Mapping[str, Aggregate], keys: list[str], columns: pa.Schema
) -> pa.Schema:
    """Return the columns of the results."""
    import pyarrow as pa

    fields = [
        *(pa.field(name, columns.field(name).type) for name in keys),
        *(pa.field(name, pa.int64()) for name in (START, END)),
        *(pa.field(name, aggregate.type_in(columns)) for name, aggregate in aggregates.items()),
    ]
    return pa.schema(fields)


def _shape_of(assigner: Any) -> Spans | Gaps:
    if not isinstance(assigner, _ASSIGNERS):
        names = ", ".join(kind.__name__ for kind in _ASSIGNERS)
        message = (
            f"window_batches: expected one of {names}; got {type(assigner).__name__}; use "
            "window(...) for others"
        )
        raise JobTypeError(message)
    if isinstance(assigner, EventTimeSessionWindows):
        return Gaps(assigner.session_gap)
    return Spans(assigner.size, getattr(assigner, "slide", assigner.size), assigner.offset)
