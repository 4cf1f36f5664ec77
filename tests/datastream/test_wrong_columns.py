"""Mistakes with functions of batches: the message names operator, what was found, and the remedy.

What a failed job says ends with the user's own line, in this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from holdfast.common import Time, Types
from holdfast.datastream import (
    BatchFunction,
    KeyedBatchFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.columns.aggregates import count
from holdfast.datastream.data_stream import DataStream
from holdfast.datastream.state import ColumnStateDescriptor, ValueStateDescriptor
from holdfast.datastream.window import TumblingEventTimeWindows
from holdfast.errors import JobExecutionError, JobTypeError
from holdfast.testing import collect

TOTALS = pa.schema([("user", pa.string()), ("total", pa.int64())])
#: takes a stream; not typed as one, because what is tried does not fit
Build = Callable[[Any], Any]


@pytest.fixture
def orders() -> DataStream:
    batch = pa.record_batch({"user": ["ann", "bob", "ann"], "amount": [5, 7, 1]})
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    return env.from_collection([batch])


class Nothing(KeyedBatchFunction):
    def process_batch(self, batch: Any, keys: Any, ctx: Any) -> Any:
        return None


class OfRecords(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Mapping(BatchFunction):
    def map_batch(self, batch: Any) -> Any:
        return batch


WINDOW = TumblingEventTimeWindows.of(Time.seconds(1))
#: what is wrong when the program is built
BUILT: dict[str, tuple[Build, str]] = {
    "a key that is not a column": (
        lambda s: s.key_by("usr"),
        "key_by: there is no column 'usr'; the columns are user, amount$",
    ),
    "a schema that is none": (
        lambda s: s.map_batches(lambda b: b, "user"),
        r"map_batches: expected a pyarrow.Schema, .* for schema; got 'user' \(str\)$",
    ),
    "a function with keys for map_batches": (
        lambda s: s.map_batches(Nothing(), TOTALS),
        r"\(Nothing\); call key_by\(\.\.\.\)\.process_batches\(Nothing\(\.\.\.\), schema\)$",
    ),
    "a function of records for process_batches": (
        lambda s: s.key_by("user").process_batches(OfRecords(), TOTALS),
        r"\(OfRecords\); call key_by\(\.\.\.\)\.process\(OfRecords\(\.\.\.\)\)$",
    ),
    "a function of batches for process": (
        lambda s: s.process(Mapping()),
        r"\(Mapping\); call map_batches\(Mapping\(\.\.\.\), schema\)$",
    ),
    "an aggregate that is none": (
        lambda s: s.key_by("user").window_batches(WINDOW, {"total": "sum"}),
        r"for the column 'total', as in sum_\('amount'\); got 'sum' \(str\)$",
    ),
}
#: methods that the stream does not have
MISSING: dict[str, tuple[Build, str]] = {
    "process_batches without keys": (
        lambda s: s.process_batches(Nothing(), TOTALS),
        r"the stream has no keys; call stream.key_by\(\.\.\.\)\.process_batches\(\.\.\.\)$",
    ),
    "window_batches without keys": (
        lambda s: s.window_batches(WINDOW, {"n": count()}),
        r"the stream has no keys; call stream.key_by\(\.\.\.\)\.window_batches\(\.\.\.\)$",
    ),
    "reduce without keys": (
        lambda s: s.reduce(lambda a, b: a),
        r"the stream has no keys; call stream.key_by\(\.\.\.\)\.reduce\(\.\.\.\)$",
    ),
    "map_batches with keys": (
        lambda s: s.key_by("user").map_batches(lambda b: b, TOTALS),
        r"call it before key_by: stream.map_batches\(\.\.\.\)$",
    ),
    "a name that is misspelled": (
        lambda s: s.mapp(lambda x: x),
        "no attribute 'mapp'; did you mean 'map'\\?$",
    ),
    "a name of no stream": (lambda s: s.xyzzy(), "no attribute 'xyzzy'$"),
}


@pytest.mark.parametrize("mistake", BUILT)
def test_a_mistake_that_is_found_when_the_program_is_built(
    orders: DataStream, mistake: str
) -> None:
    build, message = BUILT[mistake]
    with pytest.raises(JobTypeError, match=message):
        build(orders)


@pytest.mark.parametrize("mistake", MISSING)
def test_a_method_that_needs_another_stream(orders: DataStream, mistake: str) -> None:
    build, message = MISSING[mistake]
    with pytest.raises(AttributeError, match=message):
        build(orders)


class WithState(KeyedBatchFunction):
    """Requests a state, and does something with it."""

    def __init__(self, use: Callable[[Any, Any, Any], Any]) -> None:
        self.use = use

    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_column_state(ColumnStateDescriptor("t", pa.int64(), 0))
        self.value = runtime_context.get_state(ValueStateDescriptor("v", Types.INT()))

    def process_batch(self, batch: Any, keys: Any, ctx: Any) -> Any:
        return self.use(self, keys, ctx)


class ColumnsForRecords(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_column_state(ColumnStateDescriptor("t", pa.int64()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.totals.add(value, 1)
        yield value


def mapped(function: Callable[[Any], Any]) -> Build:
    return lambda s: s.map_batches(function, TOTALS)


def used(use: Callable[[Any, Any, Any], Any]) -> Build:
    return lambda s: s.key_by("user").process_batches(WithState(use), TOTALS)


#: what is wrong when the job runs
RUN: dict[str, tuple[Build, str]] = {
    "a result of another type": (
        mapped(lambda b: 3),
        r"'<lambda>' \(test_wrong_columns\.py, line \d+\) returned 3 \(int\); return a pyarrow",
    ),
    "a column that is not returned": (
        mapped(lambda b: {"user": b["user"]}),
        "'total' is declared int64; got only user; return the column, or change the declared",
    ),
    "columns of different lengths": (
        mapped(lambda b: {"user": b["user"], "total": [1, 2]}),
        "different lengths: 'user' has 3, 'total' has 2; return a value for each row",
    ),
    "a column that the batch does not have": (
        mapped(lambda b: {"user": b["usr"], "total": b["amount"]}),
        '"usr" does not exist in schema.*the columns of the batch are user, amount',
    ),
    "a key selector for records": (
        lambda s: s.key_by(lambda row: row.user).process_batches(Nothing(), TOTALS),
        r"no attribute 'user'.*called with a pyarrow.RecordBatch.* name it: key_by\('name'\)",
    ),
    "a value that does not fit the state": (
        used(lambda f, keys, ctx: f.totals.add(keys, ["x", "y", "z"])),
        "state 't' of .* does not fit its type int64: .*; convert the values, or declare another",
    ),
    "fewer values than rows": (
        used(lambda f, keys, ctx: f.totals.add(keys, [1, 2])),
        "state 't' of .*: expected 3 values; got 2; give one value for each row of the keys",
    ),
    "a state that is requested in process_batch": (
        used(lambda f, keys, ctx: ctx.get_column_state(ColumnStateDescriptor("s", pa.int64()))),
        r"the context of a batch has no attribute 'get_column_state'; request the state in open",
    ),
    "the key of a batch": (
        used(lambda f, keys, ctx: ctx.get_current_key()),
        r"no attribute 'get_current_key': a batch has many keys; they are an argument",
    ),
    "a state with a value for one key": (
        used(lambda f, keys, ctx: f.value.update(3)),
        r"A function of batches has many keys at once: it requests get_column_state\(\.\.\.\)",
    ),
    "a column state in a function of records": (
        lambda s: s.key_by("user").process(ColumnsForRecords()),
        r"state 't' of .*: expected the keys of a batch; got Row\(.*; use the state in process_ba",
    ),
}


@pytest.mark.parametrize("mistake", RUN)
def test_a_mistake_that_is_found_when_the_job_runs(orders: DataStream, mistake: str) -> None:
    build, message = RUN[mistake]
    with pytest.raises(JobExecutionError, match=f"(?s){message}") as failed:
        collect(build(orders))
    text = str(failed.value)
    assert "in operator '" in text
    assert "test_wrong_columns.py" in text, "the user's own line"
    assert ".pxi" not in text
    assert "/holdfast/" not in text


def test_a_field_that_records_do_not_have() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    keyed = env.from_collection([{"a": 1}]).key_by("b").reduce(lambda a, b: a)
    with pytest.raises(
        JobExecutionError, match=r"key_by: the record has no field of the name 'b' \(KeyError"
    ):
        collect(keyed)


def test_generators_give_several_batches(orders: DataStream) -> None:
    def halves(batch: pa.RecordBatch) -> Any:
        renamed = batch.rename_columns(["user", "total"])
        yield renamed.slice(0, 1)
        yield renamed.slice(1)

    found = collect(orders.map_batches(halves, TOTALS).map(tuple))
    assert found == [("ann", 5), ("bob", 7), ("ann", 1)]


def test_a_generator_with_state(orders: DataStream) -> None:
    class Running(KeyedBatchFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            total = ColumnStateDescriptor("t", pa.int64(), 0)
            self.total = runtime_context.get_column_state(total)

        def process_batch(self, batch: Any, keys: Any, ctx: Any) -> Any:
            yield {"user": batch["user"], "total": self.total.running_add(keys, batch["amount"])}

    found = collect(orders.key_by("user").process_batches(Running(), TOTALS).map(tuple))
    assert found == [("ann", 5), ("bob", 7), ("ann", 6)]
