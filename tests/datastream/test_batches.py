"""Functions that take many records at once, and the ways between records and batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Row, Types, WatermarkStrategy
from holdfast.datastream import (
    BatchFunction,
    DataStream,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.errors import JobExecutionError, JobTypeError
from holdfast.testing import LocalExecutor, collect
from tests.conftest import Executor
from tests.lives import Life, live, lives

_NUMBERS = pa.schema([("n", pa.int64())])
_PAIRS = pa.schema([("k", pa.string()), ("n", pa.int64())])


@dataclass
class Pair:
    """A record of two columns."""

    k: str
    n: int


def _environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    return env


def _numbers(*parts: list[int]) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array(part, pa.int64())], schema=_NUMBERS) for part in parts]


def _doubled(batch: pa.RecordBatch) -> Any:
    return {"n": pc.multiply(batch["n"], 2)}


def test_a_function_of_batches_runs_on_every_engine(executor: Executor) -> None:
    env = _environment()
    numbers = env.from_collection(_numbers(list(range(50)), [50, 51]))
    doubled = numbers.map_batches(_doubled, _NUMBERS).rebalance().map_batches(_doubled, _NUMBERS)
    kept = doubled.filter(lambda row: row.n % 8 == 0).map(lambda row: row.n)
    assert sorted(executor.collect(kept)) == list(range(0, 208, 8))


class TestRecordsAndBatches:
    def test_records_of_a_declared_class_become_batches_and_objects_again(self) -> None:
        pairs = [Pair("a", 1), Pair("b", 2)]
        seen = _environment(1).from_collection(pairs, Pair).map_batches(lambda batch: batch, Pair)
        assert collect(seen) == pairs

    def test_records_of_a_row_type_become_batches_and_rows_again(self) -> None:
        kind = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
        rows = _environment(1).from_collection([Row(k="a", n=1)], kind)
        assert collect(rows.map_batches(lambda batch: batch, kind)) == [Row(k="a", n=1)]

    def test_single_values_are_a_column(self) -> None:
        numbers = _environment(1).from_collection([1, 2, 3], Types.LONG())
        doubled = numbers.map_batches(
            lambda batch: {"value": pc.multiply(batch["value"], 2)}, Types.LONG()
        )
        assert collect(doubled.map(lambda number: number + 1)) == [3, 5, 7]

    def test_undeclared_records_need_columns(self) -> None:
        records = _environment(1).from_collection([{"n": 1}]).map(lambda record: record)
        with pytest.raises(JobTypeError, match=r"the records of 'Map' have no known columns.*to_b"):
            records.map_batches(_doubled, _NUMBERS)
        assert collect(records.to_batches(_NUMBERS).map_batches(_doubled, _NUMBERS)) == [Row(n=2)]

    def test_rows_become_dicts_on_request(self) -> None:
        rows = _environment(1).from_collection(_numbers([1]))
        assert collect(rows.to_records(dict)) == [{"n": 1}]

    def test_a_record_that_does_not_fit_is_named(self) -> None:
        records = _environment(1).from_collection([{"n": 1}, {"n": "x"}])
        with pytest.raises(JobExecutionError, match="field 'n' is declared int64; its value 'x'"):
            collect(records.to_batches(_NUMBERS))

    def test_two_readers_share_the_records(self) -> None:
        env = _environment(1)
        rows = env.from_collection(_numbers([1]))
        rows.map(lambda row: row).print()
        rows.filter(bool).print()
        assert [node.kind for node in env._graph.pending()].count("to_records") == 1

    def test_a_union_of_batches_and_records_gives_records(self) -> None:
        env = _environment(1)
        both = env.from_collection(_numbers([1])).union(env.from_collection([Row(n=2)]))
        assert sorted(collect(both.map(lambda row: row.n))) == [1, 2]

    def test_a_union_of_batches_gives_batches(self) -> None:
        env = _environment(1)
        both = env.from_collection(_numbers([1])).union(env.from_collection(_numbers([2])))
        assert sorted(collect(both.map_batches(_doubled, _NUMBERS).map(lambda row: row.n))) == [
            2,
            4,
        ]


class TestResults:
    def _run(self, result: Any, schema: pa.Schema = _NUMBERS) -> list[Any]:
        numbers = _environment(1).from_collection(_numbers([1, 2, 3]))
        return collect(numbers.map_batches(lambda batch: result(batch), schema).map(tuple))

    @pytest.mark.parametrize(
        "result",
        [
            lambda batch: batch.filter(pc.greater(batch["n"], 1)),
            lambda batch: pa.Table.from_batches([batch]).slice(1),
            lambda batch: {"n": batch["n"].to_numpy()[1:]},
            lambda batch: [batch.slice(1, 1), batch.slice(2), batch.slice(3)],
            lambda batch: (batch.slice(at, 1) for at in (1, 2)),
            lambda batch: batch.append_column("left out", batch["n"]).slice(1),
        ],
        ids=["mask", "table", "dict of numpy", "list", "generator", "more columns"],
    )
    def test_a_result_may_have_several_forms(self, result: Any) -> None:
        assert self._run(result) == [(2,), (3,)]

    def test_a_result_may_be_a_frame_of_pandas(self) -> None:
        frame = self._run(lambda batch: batch.to_pandas().query("n > 1"))
        assert frame == [(2,), (3,)], "its index is left out"

    def test_a_result_may_be_a_frame_with_views_of_texts(self) -> None:
        """Frames of polars have them."""

        class Frame:
            def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
                texts = [pa.array([text], pa.string_view()) for text in ("a", "a long text " * 3)]
                table = pa.table({"k": pa.chunked_array(texts), "n": [1, 2]})
                return table.__arrow_c_stream__(requested_schema)

        assert self._run(lambda batch: Frame(), _PAIRS) == [("a", 1), ("a long text " * 3, 2)]

    def test_a_function_may_yield_its_results(self) -> None:
        def each(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            yield batch.slice(1, 1)
            yield batch.slice(2)

        numbers = _environment(1).from_collection(_numbers([1, 2, 3]))
        assert collect(numbers.map_batches(each, _NUMBERS).map(tuple)) == [(2,), (3,)]

    @pytest.mark.parametrize("result", [lambda batch: None, lambda batch: batch.slice(3)])
    def test_there_may_be_no_result(self, result: Any) -> None:
        assert self._run(result) == []

    @pytest.mark.parametrize(
        ("result", "message"),
        [
            (
                lambda batch: {"n": batch["n"].cast(pa.float64())},
                r"column 'n' is declared int64; got a column of double; cast .*'Map Batches'",
            ),
            (lambda batch: {"m": batch["n"]}, "column 'n' is declared int64; got only m"),
            (
                lambda batch: {"n": ["x"]},
                "column 'n' is declared int64; got values that do not fit",
            ),
            (lambda batch: 7, r"returned 7 \(int\); return a pyarrow RecordBatch"),
        ],
    )
    def test_a_result_that_does_not_fit_is_refused(self, result: Any, message: str) -> None:
        with pytest.raises(JobExecutionError, match=f"(?s){message}"):
            self._run(result)

    def test_a_column_without_nulls_has_none(self) -> None:
        strict = pa.schema([pa.field("n", pa.int64(), nullable=False)])
        with pytest.raises(JobExecutionError, match="int64 without nulls; got 1 nulls"):
            self._run(lambda batch: {"n": pa.array([None], pa.int64())}, strict)


class _Offset(BatchFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.batches = runtime_context.get_metrics_group().counter("batches")
        self.offset = 100

    def map_batch(self, batch: pa.RecordBatch) -> Any:
        self.batches.inc()
        return {"n": pc.add(batch["n"], self.offset)}


def test_a_function_object_is_opened_and_has_metrics() -> None:
    numbers = _environment(1).from_collection(_numbers([1, 2]))
    with LocalExecutor(numbers.map_batches(_Offset(), _NUMBERS)) as run:
        run.run_to_end()
    assert run.records == [Row(n=101), Row(n=102)]


class _Stamps(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value.n, ctx.timestamp()


class TestEventTime:
    def _stamped(self, env: StreamExecutionEnvironment) -> DataStream:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("n")
        return env.from_collection(_numbers([10, 20, 30])).assign_timestamps_and_watermarks(
            strategy
        )

    def test_a_column_gives_the_timestamps(self) -> None:
        stamped = self._stamped(_environment(1))
        assert stamped._batch_type() is not None
        assert collect(stamped.process(_Stamps())) == [(10, 10), (20, 20), (30, 30)]

    def test_timestamps_travel_with_the_rows(self) -> None:
        moved = self._stamped(_environment(2)).rebalance().map_batches(_doubled, _NUMBERS)
        assert sorted(collect(moved.rebalance().process(_Stamps()))) == [
            (20, 10),
            (40, 20),
            (60, 30),
        ]

    def test_results_with_another_number_of_rows_have_no_timestamps(self) -> None:
        some = self._stamped(_environment(1)).map_batches(lambda batch: batch.slice(1), _NUMBERS)
        assert collect(some.process(_Stamps())) == [(20, None), (30, None)]

    def test_results_take_their_timestamps_from_a_column(self) -> None:
        some = self._stamped(_environment(1)).map_batches(
            lambda batch: batch.slice(1), _NUMBERS, timestamp_column="n"
        )
        assert collect(some.process(_Stamps())) == [(20, 20), (30, 30)]

    def test_times_may_be_of_a_timestamp_type(self) -> None:
        env = _environment(1)
        times = pa.array([1_500_000], pa.timestamp("us", tz="UTC"))
        batch = pa.record_batch({"n": pa.array([1]), "at": times})
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
        for stream in (env.from_collection([batch]), env.from_collection([batch]).to_records()):
            stamped = stream.assign_timestamps_and_watermarks(strategy)
            assert collect(stamped.process(_Stamps())) == [(1, 1500)]

    def test_a_column_without_times_is_refused(self) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("k")
        batch = pa.record_batch({"k": ["x"]})
        stamped = (
            _environment(1).from_collection([batch]).assign_timestamps_and_watermarks(strategy)
        )
        with pytest.raises(JobExecutionError, match="column 'k' cannot give the timestamps"):
            collect(stamped.map(lambda row: row))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=60), lives(st.integers(1, 40)))
def test_a_life_with_crashes_and_rescaling_changes_nothing(numbers: list[int], life: Life) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        records = env.from_collection(numbers, Types.LONG()).uid("numbers")
        batches = records.map_batches(
            lambda batch: {"n": pc.multiply(batch["value"], 2)}, _NUMBERS
        ).uid("doubled")
        return batches.rebalance().map(lambda row: row.n).uid("unpacked")

    assert sorted(live(build, life)) == sorted(2 * number for number in numbers)
