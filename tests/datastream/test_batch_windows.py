"""Windows over columns: the same results as a loop over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Time, WatermarkStrategy
from holdfast.datastream import DataStream, ProcessWindowFunction, StreamExecutionEnvironment
from holdfast.datastream.columns.aggregates import avg, count, first, last, max_, min_, sum_, top
from holdfast.datastream.columns.windows import Spans
from holdfast.datastream.window import EventTimeSessionWindows, ProcessingTimeSessionWindows
from holdfast.datastream.windows.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from holdfast.errors import JobExecutionError, JobTypeError
from holdfast.runtime.operators.batch_windows.panes import PaneIndex
from holdfast.state.errors import StateTypeError
from holdfast.testing import AdvanceClock, EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.conftest import Executor
from tests.lives import Life, live, lives

_ROWS = pa.schema([("user", pa.string()), ("n", pa.int32()), ("at", pa.int64())])
_LATE = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(1000))
_STRATEGY = _LATE.with_timestamp_assigner("at")
_AGGREGATES = {
    "rows": count(),
    "total": sum_("n"),
    "least": min_("n"),
    "most": max_("n"),
    "mean": avg("n"),
    "begin": first("n"),
    "end": last("n"),
}

#: a user, a number that may be null, and a time
Record = tuple[str, int | None, int]


_TUMBLING: Any = TumblingEventTimeWindows.of(Time.milliseconds(100), Time.milliseconds(30))
_SLIDING: Any = SlidingEventTimeWindows.of(Time.milliseconds(100), Time.milliseconds(40))
_GAPS: Any = SlidingEventTimeWindows.of(Time.milliseconds(30), Time.milliseconds(70))


def _stream(
    env: StreamExecutionEnvironment, records: list[Record], strategy: Any = _STRATEGY
) -> DataStream:
    columns = zip(*records, strict=True)
    arrays = [pa.array(c, t) for c, t in zip(columns, _ROWS.types, strict=True)]
    rows = env.from_collection([pa.RecordBatch.from_arrays(arrays, schema=_ROWS)]).uid("rows")
    return rows.assign_timestamps_and_watermarks(strategy).uid("time")


def _expected(records: list[Record], size: int, slide: int, offset: int) -> list[Any]:
    windows: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    for user, n, at in records:
        start = at - (at - offset) % slide
        while start + size > at:
            windows.setdefault((user, start), []).append((at, n))
            start -= slide
    return sorted(_row(*place, size, rows) for place, rows in windows.items())


def _row(user: str, start: int, size: int, rows: list[tuple[int, int | None]]) -> Any:
    known = [n for _, n in rows if n is not None]
    return (
        *(user, start, start + size, len(rows)),
        *((sum(known), min(known), max(known)) if known else (None, None, None)),
        sum(known) / len(known) if known else None,
    )


_RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.integers(-9, 9), st.integers(0, 900)),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize(
    ("windows", "slide"),
    [(_TUMBLING, 100), (_SLIDING, 40), (_GAPS, 70)],
    ids=["tumbling", "sliding", "with gaps"],
)
def test_windows_survive_crashes_and_rescaling(windows: Any, slide: int) -> None:
    @settings(max_examples=8, deadline=None)
    @given(_RECORDS, lives(st.integers(1, 30)))
    def check(records: list[Record], life: Life) -> None:
        def build(env: StreamExecutionEnvironment) -> DataStream:
            keyed = _stream(env, records).key_by("user")
            return keyed.window_batches(windows, _AGGREGATES).uid("windows").map(tuple).uid("rows2")

        expected = _expected(records, windows.size, slide, windows.offset)
        found = sorted(live(build, life), key=lambda row: row[:3])
        assert [row[:8] for row in found] == expected

    check()


class _Counted(ProcessWindowFunction[Any, Any, Any, Any]):
    """How many records a window has, and the sum of their numbers."""

    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterator[Any]:
        window, numbers = context.window(), [n for _, n, _ in elements]
        known = [n for n in numbers if n is not None]
        yield key, window.start, window.end, len(numbers), sum(known) if known else None


@pytest.mark.parametrize(
    "windows", [_TUMBLING, _SLIDING, _GAPS], ids=["tumbling", "sliding", "gaps"]
)
def test_late_rows_are_those_that_are_late_as_records(windows: Any) -> None:
    """A late row may be too late for some of its sliding windows only."""

    @settings(max_examples=25, deadline=None)
    @given(_RECORDS, st.sampled_from([0, 40, 100]), st.integers(1, 12))
    def check(records: list[Record], disorder: int, quota: int) -> None:
        def stream() -> DataStream:
            env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(disorder))
            return _stream(env, records, strategy.with_timestamp_assigner("at"))

        aggregates = {"rows": count(), "total": sum_("n")}
        found = stream().key_by("user").window_batches(windows, aggregates).map(tuple)
        rows = stream().map(tuple).key_by(lambda row: row[0])
        expected = rows.window(windows).process(_Counted())
        # which rows are late depends on when the watermark advances: after each epoch
        assert sorted(collect(found, quota=quota)) == sorted(collect(expected, quota=quota))

    check()


def test_windows_run_on_every_engine(executor: Executor) -> None:
    records: list[Record] = [("abc"[n % 3], n, n) for n in range(300)]
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    keyed = _stream(env, records).key_by("user")
    found = executor.collect(keyed.window_batches(_SLIDING, _AGGREGATES).map(tuple))
    expected = _expected(records, _SLIDING.size, _SLIDING.slide, 0)
    assert sorted(row[:8] for row in found) == expected


def test_first_and_last_are_those_that_arrived_first_and_last() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: list[Record] = [("a", 5, 10), ("a", 3, 20), ("a", 9, 120), ("a", 4, 130)]
    keyed = _stream(env, records).key_by("user")
    aggregates = {"begin": first("n"), "end": last("n")}
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(100))
    assert collect(keyed.window_batches(tumbling, aggregates).map(tuple)) == [
        ("a", 0, 100, 5, 3),
        ("a", 100, 200, 9, 4),
    ]
    sliding = SlidingEventTimeWindows.of(Time.milliseconds(200), Time.milliseconds(100))
    assert collect(keyed.window_batches(sliding, aggregates).map(tuple)) == [
        ("a", -100, 100, 5, 3),
        ("a", 0, 200, 5, 4),
        ("a", 100, 300, 9, 4),
    ]


_TIMES = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.integers(-3, 3), st.integers(0, 300)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=8, deadline=None)
@given(_TIMES, st.booleans(), lives(st.integers(1, 12)))
def test_top_rows_are_those_of_a_sorted_list(
    records: list[Record], smallest: bool, life: Life
) -> None:
    """Those with equal values in the order in which they came."""
    tumbling: Any = TumblingEventTimeWindows.of(Time.milliseconds(100))

    def build(env: StreamExecutionEnvironment) -> DataStream:
        keyed = _stream(env, records).key_by("user")
        best = {"best": top(3, "n", ["at", "n"], smallest=smallest)}
        return keyed.window_batches(tumbling, best).uid("windows").map(tuple).uid("rows2")

    windows: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for user, n, at in records:
        rows = windows.setdefault((user, at - at % 100, at - at % 100 + 100), [])
        rows += [(at, n)] if n is not None else []
    for rows in windows.values():
        rows.sort(key=lambda row: row[1] if smallest else -row[1])
    expected = sorted((*place, rows[:3]) for place, rows in windows.items())
    found = [(*row[:3], list(map(tuple, row[3]))) for row in live(build, life)]
    assert sorted(found) == expected


def test_top_rows_of_sliding_windows_are_the_best_of_their_panes() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: list[Record] = [("a", 5, 130), ("a", 3, 20), ("a", 9, 120), ("a", 5, 40), ("a", 1, 90)]
    keyed = _stream(env, records).key_by("user")
    sliding = SlidingEventTimeWindows.of(Time.milliseconds(200), Time.milliseconds(100))
    aggregates = {"numbers": top(2, "n", "n"), "times": top(3, by="n", columns="at")}
    assert collect(keyed.window_batches(sliding, aggregates).map(tuple), quota=2) == [
        ("a", -100, 100, [5, 3], [40, 20, 90]),
        ("a", 0, 200, [9, 5], [120, 40, 130]),
        ("a", 100, 300, [9, 5], [120, 130]),
    ]


@pytest.mark.parametrize(
    ("kind", "values", "best"),
    [
        (pa.int64(), [-(2**63), 5, 2**63 - 1], [2**63 - 1, 5]),
        (pa.uint8(), [0, 255, 1], [255, 1]),
        (pa.float32(), [float("nan"), -1.5, 0.5], [0.5, -1.5]),
        (pa.bool_(), [False, True, True], [True, True]),
        (
            pa.date32(),
            [date(2026, 1, 2), date(2026, 1, 3), None],
            [date(2026, 1, 3), date(2026, 1, 2)],
        ),
    ],
)
def test_top_compares_values_of_any_fixed_width(kind: Any, values: Any, best: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    rows = pa.record_batch({"k": [1, 1, 1], "v": pa.array(values, kind), "at": [1, 2, 3]})
    stream = env.from_collection([rows]).assign_timestamps_and_watermarks(_STRATEGY).key_by("k")
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(100))
    found = collect(
        stream.window_batches(tumbling, {"best": top(2, "v")}).map(lambda row: row.best)
    )
    assert [row.v for row in found[0]] == best
    assert found[0][0].k == 1, "all columns"


#: windows that are combined of several panes
_TWO_PANES: Any = SlidingEventTimeWindows.of(Time.milliseconds(200), Time.milliseconds(100))
_SESSIONS: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(100))


def _of_values(values: pa.Array, windows: Any, **aggregates: Any) -> Any:
    """Return the aggregates of the window that begins at 0; a value every 60 milliseconds."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    times = range(0, 60 * len(values), 60)
    rows = pa.record_batch({"k": ["a"] * len(values), "v": values, "at": pa.array(times)})
    stream = env.from_collection([rows]).assign_timestamps_and_watermarks(_STRATEGY).key_by("k")
    found = collect(stream.window_batches(windows, aggregates).map(tuple))
    return next(row[3:] for row in found if row[1] == 0)


@pytest.mark.parametrize("windows", [_TWO_PANES, _SESSIONS], ids=["sliding", "session"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.duration("ms"), [timedelta(1), timedelta(3), None, timedelta(2)]),
        (pa.decimal128(5, 2), [Decimal(1), Decimal(3), None, Decimal(2)]),
        (pa.float16(), [np.float16(1), np.float16(3), None, np.float16(2)]),
        (pa.timestamp("us", "UTC"), [*(datetime(2026, 1, d, tzinfo=UTC) for d in (1, 3)), None]),
        (pa.large_string(), ["a", "c", None, "b"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "c", None, "b"]),
        (pa.bool_(), [False, True, None, False]),
        (pa.list_(pa.int64()), [[1], [3], None, [2]]),
        (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": 3}, None, {"x": 2}]),
    ],
    ids=str,
)
def test_panes_are_combined_for_values_of_any_type(kind: Any, values: Any, windows: Any) -> None:
    array = pa.array(values, kind)
    known = [value for value in array.to_pylist() if value is not None]
    begin, end, best = _of_values(
        array, windows, begin=first("v"), end=last("v"), best=top(1, "at", "v")
    )
    if pa.types.is_struct(kind):
        begin, end = {"x": begin.x}, {"x": end.x}
        assert (begin, end, best[0].x) == (known[0], known[-1], known[-1]["x"])
        return
    assert (begin, end, best) == (known[0], known[-1], [values[-1]])
    if not pa.types.is_nested(kind):
        assert _of_values(array, windows, a=min_("v"), b=max_("v")) == (min(known), max(known))


def test_the_mean_of_large_numbers_is_rounded() -> None:
    """Their sum has more bits than a float: times in milliseconds, for example."""
    large = pa.array([2**62, 2**61, 5])
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(1000))
    for windows in (tumbling, _TWO_PANES, _SESSIONS):
        total, mean = _of_values(large, windows, total=sum_("v"), mean=avg("v"))
        assert total == 2**62 + 2**61 + 5
        assert mean == pytest.approx(total / 3)


def test_decimals_have_exact_sums() -> None:
    prices = pa.array(
        [Decimal("0.10"), Decimal("999.95"), None, Decimal("0.20")], pa.decimal128(5, 2)
    )
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(1000))
    for windows in (tumbling, _TWO_PANES, _SESSIONS):
        total, mean = _of_values(prices, windows, total=sum_("v"), mean=avg("v"))
        assert total == Decimal("1000.25")
        assert mean == pytest.approx(1000.25 / 3)


@pytest.mark.parametrize("windows", [_TWO_PANES, _SESSIONS], ids=["sliding", "session"])
def test_a_sum_of_panes_that_does_not_fit_is_an_error(windows: Any) -> None:
    assert _of_values(pa.array([2**62, -(2**62), 2**62]), windows, total=sum_("v")) == (2**62,)
    with pytest.raises(StateTypeError, match=f"'sum of v' of a window is {2**63}, which does not"):
        _of_values(pa.array([2**62, 0, 2**62]), windows, total=sum_("v"))


def _by_the_clock() -> DataStream:
    """Sums of ten milliseconds: two epochs of the first window, the next one, a pause."""
    script = [
        *(("a", 1, 0), ("a", 2, 0), AdvanceClock(9), ("a", 4, 0), ("b", 8, 0)),
        *(AdvanceClock(1), ("a", 16, 0), AdvanceClock(30), EndOfEpoch()),
    ]
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    keyed = env.from_source(ScriptedSource(script)).to_batches(_ROWS).key_by("user")
    tumbling = TumblingProcessingTimeWindows.of(Time.milliseconds(10))
    return keyed.window_batches(tumbling, {"sum": sum_("n")}).map(tuple)


def test_windows_of_processing_time() -> None:
    with LocalExecutor(_by_the_clock()) as run:
        run.epoch()
        run.epoch()
        assert run.records == [], "the clock is at 9, which is in the window"
        run.epoch()
        assert sorted(run.records) == [("a", 0, 10, 7), ("b", 0, 10, 8)]
        run.epoch()
        assert run.records[2:] == [("a", 10, 20, 16)], "without a record"


def test_windows_of_processing_time_survive_a_crash() -> None:
    with LocalExecutor(_by_the_clock()) as run:
        run.epoch()
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
        assert sorted(run.records) == [("a", 0, 10, 7), ("a", 10, 20, 16), ("b", 0, 10, 8)]


def test_the_next_window_is_found_without_a_look_at_the_others() -> None:
    """Only the first pane is looked at, however many there are."""
    index = PaneIndex(Spans(size=1000, slide=10, offset=0))
    index.add(np.arange(0, 100_000, 10), np.arange(10_000))
    assert index.next_end(after=-1) == 10
    with patch.object(index, "_slots", None):
        assert index.next_end(after=10) == 20
    assert index.slots_until(1010).tolist() == list(range(1, 101))
    assert index.pop_until(1010).tolist() == [0, 1]
    assert index.next_end(after=1010) == 1020


@given(st.integers(1, 50), st.integers(1, 50), st.integers(-20, 20), st.integers(-300, 300))
def test_ends_of_windows(size: int, slide: int, offset: int, time: int) -> None:
    spans = Spans(size, slide, offset)
    ends = [start + size for start in range(offset - 500 * slide, offset + 700, slide)]
    pane = time - (time - offset) % spans.pane
    holding = [end for end in ends if end - size <= pane < end]
    if holding:
        assert (spans.first_end(pane), spans.last_end(pane)) == (holding[0], holding[-1])
    assert spans.end_after(time) == min(end for end in ends if end > time)


def test_late_rows_are_dropped() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: list[Record] = [("a", 1, 0), ("a", 1, 5000), ("a", 1, 10)]
    keyed = _stream(env, records).key_by("user")
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(100))
    # an epoch of two rows, so that the watermark is behind the third one's window
    found = collect(keyed.window_batches(tumbling, {"rows": count()}).map(tuple), quota=2)
    assert found == [("a", 0, 100, 1), ("a", 5000, 5100, 1)]


@pytest.mark.parametrize("windows", [_TUMBLING, _SESSIONS], ids=["tumbling", "session"])
@pytest.mark.parametrize("by", ["user", ["user", "n"]], ids=str)
def test_a_key_that_is_null_is_an_error_also_in_a_late_row(by: Any, windows: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    records: Any = [("a", 1, 5000), ("a", 2, 5001), (None, 3, 10)]
    keyed = _stream(env, records).key_by(by)
    with pytest.raises(JobExecutionError, match="a key is null, or a field of it; filter these"):
        collect(keyed.window_batches(windows, {"rows": count()}), quota=2)


def test_windows_need_timestamps() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([pa.record_batch({"user": ["a"]})]).key_by("user")
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(100))
    with pytest.raises(JobExecutionError, match="windows need the timestamps of the rows"):
        collect(rows.window_batches(tumbling, {"rows": count()}))


@pytest.mark.parametrize(
    ("selector", "windows", "aggregates", "message"),
    [
        (lambda b: b["user"], "tumbling", {"n": count()}, "the key must be a column"),
        ("user", "sessions by the clock", {"n": count()}, "got ProcessingTimeSessionWindows"),
        (
            "user",
            "tumbling",
            {"n": sum_("x")},
            "there is no column 'x'; the columns are user, n, at",
        ),
        ("user", "tumbling", {"n": sum_("user")}, "sum needs numbers; column 'user' has string"),
        ("user", "tumbling", {"n": top(2, "user")}, "top needs numbers, dates or times"),
        ("user", "tumbling", {"n": top(2, "n", ["x"])}, "there is no column 'x'"),
        ("user", "tumbling", {"user": count()}, "the name 'user' is taken"),
        ("user", "tumbling", {}, "there are no aggregates"),
        ("x", "tumbling", {"n": count()}, "there is no column 'x'"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    selector: Any, windows: str, aggregates: Any, message: str
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = _stream(env, [("a", 1, 1)])
    chosen: Any = {
        "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(100)),
        "sessions by the clock": ProcessingTimeSessionWindows.with_gap(Time.milliseconds(100)),
    }[windows]
    with pytest.raises(JobTypeError, match=message):
        stream.key_by(selector).window_batches(chosen, aggregates)


def test_top_needs_a_number_of_rows() -> None:
    with pytest.raises(JobTypeError, match="n must be at least 1; got 0"):
        top(0, "n")
