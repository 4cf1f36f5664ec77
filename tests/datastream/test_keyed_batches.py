"""Functions of batches with state in columns: as functions that are called record by record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import WatermarkStrategy
from holdfast.datastream import (
    BatchTypeInfo,
    DataStream,
    KeyedBatchFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ColumnStateDescriptor, ValueStateDescriptor
from holdfast.errors import JobExecutionError, JobTypeError
from holdfast.testing import LocalExecutor, collect
from tests.conftest import Executor
from tests.lives import Life, live, lives

_ORDERS = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("at", pa.int64())])
_TOTALS = pa.schema([("user", pa.string()), ("total", pa.int64())])

Order = tuple[str, int]


class _Totals(KeyedBatchFunction):
    """The total of a user after each of its orders."""

    def open(self, runtime_context: RuntimeContext) -> None:
        total = ColumnStateDescriptor("total", pa.int64(), default=0)
        self.total = runtime_context.get_column_state(total)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        return {"user": batch["user"], "total": self.total.running_add(keys, batch["amount"])}


class _TotalsOneByOne(KeyedProcessFunction):
    """The same, record by record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.total.update((self.total.value() or 0) + value.amount)
        yield value.user, self.total.value()


def _environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    return env


def _orders(env: StreamExecutionEnvironment, *orders: Order) -> DataStream:
    users, amounts = [user for user, _ in orders], [amount for _, amount in orders]
    columns = [pa.array(users), pa.array(amounts, pa.int64()), pa.array(range(len(orders)))]
    batch = pa.RecordBatch.from_arrays(
        [c.cast(t) for c, t in zip(columns, _ORDERS.types, strict=True)], schema=_ORDERS
    )
    return env.from_collection([batch]).uid("orders")


def _pairs(stream: DataStream) -> DataStream:
    return stream.map(tuple).uid("pairs")


_SOME = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("b", 6)] * 5


def test_state_in_columns_on_every_engine(executor: Executor) -> None:
    totals = _orders(_environment(), *_SOME).key_by("user").process_batches(_Totals(), _TOTALS)
    found = executor.collect(_pairs(totals))
    expected = _orders(_environment(), *_SOME).key_by("user").process(_TotalsOneByOne())
    assert sorted(found) == sorted(collect(expected))


@pytest.mark.spark
@pytest.mark.engine("epochs")
def test_state_in_columns_on_the_epochs_engine(spark: Any) -> None:
    totals = _orders(_environment(), *_SOME).key_by("user").process_batches(_Totals(), _TOTALS)
    found = list(_pairs(totals).execute_and_collect())
    assert max(total for user, total in found if user == "a") == 45


_ORDER_LISTS = st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(-9, 99)), max_size=50)


@settings(max_examples=20, deadline=None)
@given(_ORDER_LISTS, lives(st.integers(1, 30)))
def test_crashes_and_rescaling_change_nothing(orders: list[Order], life: Life) -> None:
    if not orders:
        return

    def build(env: StreamExecutionEnvironment) -> DataStream:
        keyed = _orders(env, *orders).key_by("user")
        return _pairs(keyed.process_batches(_Totals(), _TOTALS).uid("totals"))

    expected, so_far = [], dict.fromkeys("abcdefg", 0)
    for user, amount in orders:
        so_far[user] += amount
        expected.append((user, so_far[user]))
    assert sorted(live(build, life)) == sorted(expected)


class TestKeys:
    def _by(self, selector: Any) -> list[Any]:
        totals = _orders(_environment(), *_SOME).key_by(selector)
        return sorted(collect(_pairs(totals.process_batches(_Totals(), _TOTALS))))

    @pytest.mark.parametrize(
        "selector",
        [
            ["user"],
            lambda batch: batch["user"],
            lambda batch: pc.utf8_upper(batch["user"]),
            lambda batch: batch["user"].to_numpy(zero_copy_only=False),
        ],
    )
    def test_keys_are_columns_or_computed(self, selector: Any) -> None:
        assert self._by(selector) == self._by("user")

    def test_several_columns_are_one_key(self) -> None:
        def by_both(*names: str) -> list[Any]:
            keyed = _orders(_environment(), *_SOME).key_by(list(names))
            return sorted(collect(_pairs(keyed.process_batches(_Totals(), _TOTALS))))

        found = by_both("user", "amount")
        assert found == sorted(
            (user, n * amount) for user, amount in _SOME[:6] for n in range(1, 6)
        )

    def test_records_by_the_name_of_a_field(self) -> None:
        found = collect(_orders(_environment(), *_SOME).key_by("user").process(_TotalsOneByOne()))
        assert sorted(found) == self._by("user")

    def test_a_missing_column_is_named(self) -> None:
        with pytest.raises(JobTypeError, match="there is no column 'x'; the columns are user"):
            self._by("x")

    def test_a_key_selector_must_give_a_key_for_each_row(self) -> None:
        with pytest.raises(
            JobExecutionError, match=r"a key for each of its 30 rows.* returned 1 keys"
        ):
            self._by(lambda batch: batch["user"].slice(0, 1))

    def test_names_are_texts(self) -> None:
        with pytest.raises(JobTypeError, match="expected the names of columns"):
            _orders(_environment(), *_SOME).key_by([1])  # type: ignore[list-item]


class _Silence(_Totals):
    """The total of a user ten milliseconds after each order."""

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        self.total.add(keys, batch["amount"])
        ctx.register_timers(keys, pc.add(pc.multiply(pc.divide(ctx.timestamps, 10), 10), 10))

    def on_timers(self, keys: Any, timestamps: pa.Array, ctx: Any) -> Any:
        users = keys.distinct.take(pa.array(keys.indices))
        return {"user": users, "total": self.total.get(keys), "at": timestamps}


_TIMED = pa.schema([("user", pa.string()), ("total", pa.int64()), ("at", pa.int64())])
_BY_COLUMN = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")


@settings(max_examples=12, deadline=None)
@given(_ORDER_LISTS, lives(st.integers(1, 30)))
def test_timers_survive_crashes_and_rescaling(orders: list[Order], life: Life) -> None:
    if not orders:
        return

    def build(env: StreamExecutionEnvironment) -> DataStream:
        timed = _orders(env, *orders).assign_timestamps_and_watermarks(_BY_COLUMN).uid("time")
        silence = timed.key_by("user").process_batches(_Silence(), _TIMED).uid("silence")
        return _pairs(silence)

    due = {(user, at // 10 * 10 + 10) for at, (user, _) in enumerate(orders)}
    assert sorted((user, at) for user, _, at in live(build, life)) == sorted(due)


class _Cleared(KeyedBatchFunction):
    """Leaves no state, only timers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rows = runtime_context.get_column_state(ColumnStateDescriptor("rows", pa.int64()))

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        self.rows.count(keys)
        self.rows.clear(keys)
        ctx.register_timers(keys, pc.add(batch["at"], 5))

    def on_timers(self, keys: Any, timestamps: pa.Array, ctx: Any) -> Any:
        found = keys.values
        return {"key": found.field(0) if pa.types.is_struct(found.type) else found}


@pytest.mark.parametrize(
    "by", ["key", ["key", "one"], lambda batch: batch["key"]], ids=["name", "names", "function"]
)
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.timestamp("ms"), pa.date64(), pa.duration("s")], ids=str
)
def test_timers_before_the_first_batch_have_keys_of_the_right_type(kind: Any, by: Any) -> None:
    """After a crash, no state tells the type of the keys, and timers have Python values."""
    day = 86_400_000
    env = _environment(1).enable_checkpointing(1000)
    keys = pa.array([day, 2 * day, day, day]).cast(pa.uint64() if kind == pa.uint64() else "int64")
    rows = pa.record_batch(
        {"key": keys.view(kind), "one": [1] * 4, "at": [0, 1, 1000, 2000], "kept": [1, 1, 0, 1]}
    )
    timed = env.from_collection([rows]).assign_timestamps_and_watermarks(_BY_COLUMN)
    # the third row moves the watermark, and is no row of the function
    kept = timed.map_batches(
        lambda batch: batch.filter(pc.equal(batch["kept"], 1)), rows.schema, timestamp_column="at"
    )
    found = kept.key_by(by).process_batches(_Cleared(), pa.schema([("key", kind)])).map(tuple)
    with LocalExecutor(found, quota=2) as run:
        run.epoch(checkpoint=True)
        assert run.recover() is not None
        run.epoch(quota=1)
        assert len(run.records) == 2
        run.run_to_end()
    assert len(run.records) == 3


def test_timers_need_on_timers() -> None:
    class Forgotten(_Totals):
        def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
            ctx.register_timers(keys, batch["at"])

    keyed = _orders(_environment(), *_SOME).key_by("user")
    with pytest.raises(JobExecutionError, match="must override on_timers"):
        collect(keyed.process_batches(Forgotten(), _TOTALS))


def test_rows_go_to_side_outputs() -> None:
    large = OutputTag("large", BatchTypeInfo(_ORDERS))

    class Sorted(_Totals):
        def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
            ctx.output(large, batch.filter(pc.greater(batch["amount"], 5)))
            return super().process_batch(batch, keys, ctx)

    totals = _orders(_environment(), *_SOME).key_by("user").process_batches(Sorted(), _TOTALS)
    assert (
        len(collect(totals.get_side_output(large).map_batches(lambda batch: batch, _ORDERS))) == 5
    )
