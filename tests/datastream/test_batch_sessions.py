"""Sessions over columns: the same results as sessions of records, also for late rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.common import Time, WatermarkStrategy
from holdfast.datastream import DataStream, ProcessWindowFunction, StreamExecutionEnvironment
from holdfast.datastream.columns.aggregates import avg, count, first, last, max_, min_, sum_, top
from holdfast.datastream.window import EventTimeSessionWindows
from holdfast.runtime.operators.batch_windows.sessions import DueIndex
from holdfast.state.backend import HeapKeyedStateBackend
from holdfast.state.descriptors import ColumnStateDescriptor
from holdfast.testing import LocalExecutor, collect
from tests.lives import Life, live, lives

_ROWS = pa.schema([("user", pa.string()), ("n", pa.int32()), ("at", pa.int64())])
_AGGREGATES = {
    "rows": count(),
    "total": sum_("n"),
    "least": min_("n"),
    "most": max_("n"),
    "mean": avg("n"),
    "best": top(2, "n", "n"),
}

#: a user, a number that may be null, and a time
Record = tuple[str, int | None, int]


class Summary(ProcessWindowFunction):
    """The same as the aggregates, from a list of records."""

    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterator[Any]:
        """Compute them."""
        window, every = context.window(), list(elements)
        known = [n for _, n, _ in every if n is not None]
        yield (
            *(key, window.start, window.end, len(every)),
            *((sum(known), min(known), max(known)) if known else (None, None, None)),
            sum(known) / len(known) if known else None,
            sorted(known, reverse=True)[:2],
        )


def _stream(env: StreamExecutionEnvironment, records: list[Record], disorder: int) -> DataStream:
    columns = zip(*records, strict=True)
    arrays = [pa.array(c, t) for c, t in zip(columns, _ROWS.types, strict=True)]
    rows = env.from_collection([pa.RecordBatch.from_arrays(arrays, schema=_ROWS)]).uid("rows")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(disorder))
    stamped = strategy.with_timestamp_assigner("at")
    return rows.assign_timestamps_and_watermarks(stamped).uid("time")


#: more than the times of two records can differ
_NEVER_LATE = 2000
_RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.integers(-9, 9), st.integers(-300, 900)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=10, deadline=None)
@given(
    _RECORDS,
    st.sampled_from([1, 50, 300]),
    st.sampled_from([0, 100, _NEVER_LATE]),
    lives(st.integers(1, 12)),
)
# the third row is late when it comes, and touches the session of the second one
@example([("a", 1, 0), ("a", 2, 60), ("a", 3, 20), ("a", 4, -40)], 50, 0, Life(1, quota=2))
# the second row is late, and the row that it would touch comes after it
@example([("b", 1, 70), ("a", 2, 10), ("a", 3, 40)], 50, 0, Life(1, quota=1))
def test_sessions_are_those_of_records(
    records: list[Record], gap: int, disorder: int, life: Life
) -> None:
    windows: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(gap))
    if disorder < _NEVER_LATE:
        # which late rows touch a session depends on their order, which several subtasks change
        same = tuple(1 if isinstance(event, int) else event for event in life.events)
        life = replace(life, parallelism=1, events=same)

    def in_columns(env: StreamExecutionEnvironment) -> DataStream:
        keyed = _stream(env, records, disorder).key_by("user")
        return keyed.window_batches(windows, _AGGREGATES).uid("windows").map(tuple).uid("tuples")

    def of_records(env: StreamExecutionEnvironment) -> DataStream:
        keyed = _stream(env, records, disorder).map(tuple).uid("tuples").key_by(lambda row: row[0])
        return keyed.window(windows).process(Summary()).uid("windows")

    found, expected = live(in_columns, life), live(of_records, life)
    assert sorted(found, key=lambda row: row[:3]) == sorted(expected, key=lambda row: row[:3])


def test_a_row_between_two_sessions_makes_one_of_them() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: list[Record] = [("a", 1, 0), ("a", 2, 150), ("b", 3, 10), ("a", 4, 80), ("a", 5, 400)]
    keyed = _stream(env, records, 1000).key_by("user")
    windows: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(100))
    aggregates = {"rows": count(), "begin": first("n"), "end": last("n")}
    # in the order of their ends; the first one is from three panes
    assert collect(keyed.window_batches(windows, aggregates).map(tuple)) == [
        ("b", 10, 110, 1, 3, 3),
        ("a", 0, 250, 3, 1, 2),
        ("a", 400, 500, 1, 5, 5),
    ]


def _panes(run: LocalExecutor, uid: str) -> int:
    """How many panes are in the state files."""
    op = run._operator(uid)
    (head,) = run._book.heads[op.level]
    backend = HeapKeyedStateBackend(range(op.max_parallelism), op.max_parallelism)
    backend.restore(run.storage, head)
    backend.column_state(uid, ColumnStateDescriptor("count", pa.int64()), True)
    return backend.columns.of(uid, True).columns["count"].count


def test_state_does_not_grow_with_a_session() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: list[Record] = [("a", 1, at) for at in range(0, 1000, 50)]
    keyed = _stream(env, records, 0).key_by("user")
    windows: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(100))
    sessions = keyed.window_batches(windows, {"rows": count()}).uid("windows").map(tuple)
    with LocalExecutor(sessions, quota=1) as run:
        for _ in range(15):
            run.epoch()
        assert 1 <= _panes(run, "windows") <= 2, "panes that are over are moved to the next one"
        run.run_to_end()
        assert run.records == [("a", 0, 1050, 20)]


@pytest.mark.parametrize("batches", [1, 50])
def test_a_time_at_which_nothing_is_due_costs_nothing(batches: int) -> None:
    """The index is asked once, however many slots there are: it compares with one time."""
    index = DueIndex()
    for batch in range(batches):
        times = np.arange(1000, 2000) + batch
        index.add(times[::-1].copy(), np.arange(1000) + batch * 1000)
    looked_at: list[int] = []
    index._push = lambda times, slots: looked_at.append(len(times))  # type: ignore[method-assign]
    assert not len(index.pop(999))
    assert looked_at == []
    assert index.pop(1000).tolist() == [999]
