"""Sinks that take batches: the same files and tables as of records, exactly once."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, Types
from holdfast.datastream import BatchTypeInfo, OutputTag, StreamExecutionEnvironment
from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.fitting import BatchColumns, fits
from holdfast.datastream.columns.splitting import split_by
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.connectors.tables.batches import BatchChanges
from holdfast.datastream.formats.columns import Columns, RowError
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.datastream.formats.records import RecordMaker
from holdfast.errors import HoldfastError
from holdfast.filesystem import FileSystemError
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.operators.transactions import TransactionalSinkOperator
from holdfast.runtime.record_context import RecordContext
from holdfast.testing import LocalExecutor
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine, make_instance

#: a process that is killed does not close its files
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("country", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("gone", pa.bool_()),
    ]
)
COLUMNS = pa.schema([ORDERS.field("id"), ORDERS.field("country"), ORDERS.field("price")])
MISFITS = OutputTag("misfits", Types.PICKLED_BYTE_ARRAY())


def orders(count: int, start: int = 0) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch(
        {
            "id": list(numbers),
            "country": [["CH", "a/b", None, "DE"][n % 4] for n in numbers],
            "price": [n / 2 for n in numbers],
            "gone": [n % 5 == 0 for n in numbers],
        },
        schema=ORDERS,
    )


def batches(count: int = 40, size: int = 8) -> list[pa.RecordBatch]:
    return [orders(size, at) for at in range(0, count, size)]


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    configuration = Configuration({"execution.checkpointing.interval": "1 h"})
    return StreamExecutionEnvironment(configuration).set_parallelism(parallelism)


def run_with_faults(env: StreamExecutionEnvironment) -> None:
    """Run a job with repeated epochs and a restart between a checkpoint and the next."""
    with LocalExecutor(env, quota=5) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        run.recover()
        last = len(run.plan.levels) - 1
        again = [(max(last - 1, 0), 0), (last, 0)]
        run.epoch(rerun=again)
        run.epoch(checkpoint=True, rerun=again)
        run.run_to_end()


def written(sink: Any, rows: Sequence[pa.RecordBatch], as_records: bool = False) -> list[str]:
    """Run a job with a sink, and return the kinds of its operators."""
    env = environment()
    stream = env.from_collection(rows).rebalance()
    (stream.to_records() if as_records else stream).sink_to(sink)
    kinds = [node.kind for node in env._graph.pending()]
    run_with_faults(env)
    return kinds


def parquet_sink(directory: Path, buckets: BucketAssigner | None = None) -> FileSink:
    builder = FileSink.for_bulk_format(str(directory), ParquetBulkWriters.for_row_type(COLUMNS))
    chosen = buckets or BucketAssigner.base_path_bucket_assigner()
    return builder.with_bucket_assigner(chosen).build()


def files(directory: Path) -> list[tuple[str, int, str | None, float]]:
    """The rows of all part files, each with its bucket."""
    found = []
    for path in directory.rglob("*.parquet"):
        bucket = path.parent.relative_to(directory).as_posix()
        if not bucket.startswith(".holdfast"):
            rows = pq.ParquetFile(path).read().to_pylist()
            found += [(bucket, *row.values()) for row in rows]
    return sorted(found, key=lambda row: row[1])


@pytest.mark.parametrize(
    "buckets",
    [
        BucketAssigner.base_path_bucket_assigner(),
        BucketAssigner.field_bucket_assigner("country", "gone"),
    ],
    ids=["one", "by columns"],
)
def test_part_files_are_those_of_records(tmp_path: Path, buckets: BucketAssigner) -> None:
    kinds = written(parquet_sink(tmp_path / "batches", buckets), batches())
    assert "to_records" not in kinds
    kinds = written(parquet_sink(tmp_path / "records", buckets), batches(), as_records=True)
    assert "to_records" in kinds
    assert files(tmp_path / "batches") == files(tmp_path / "records")
    assert [row[1] for row in files(tmp_path / "batches")] == list(range(40))


def test_time_buckets_take_batches(tmp_path: Path) -> None:
    buckets = BucketAssigner.date_time_bucket_assigner("yyyy")
    assert "to_records" not in written(parquet_sink(tmp_path, buckets), batches())
    assert len(files(tmp_path)) == 40


class Odd(BucketAssigner):
    def bucket(self, record: Any, now_ms: int) -> str:
        return "odd" if record.id % 2 else "even"


def test_a_bucket_assigner_of_the_user_gets_records(tmp_path: Path) -> None:
    assert "to_records" in written(parquet_sink(tmp_path, Odd()), batches())
    assert {row[0] for row in files(tmp_path)} == {"odd", "even"}


def test_a_key_that_is_a_function_gets_records(tmp_path: Path) -> None:
    env = environment()
    stream = env.from_collection(batches())
    stream.key_by(lambda row: row.country or "").sink_to(parquet_sink(tmp_path / "function"))
    stream.key_by("id").sink_to(parquet_sink(tmp_path / "column"))
    run_with_faults(env)
    assert files(tmp_path / "function") == files(tmp_path / "column")


def test_a_row_that_does_not_fit_is_named(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("country", pa.string(), nullable=False)])
    bulk = ParquetBulkWriters.for_row_type(schema)
    messages = []
    for as_records in (False, True):
        sink = FileSink.for_bulk_format(str(tmp_path), bulk).build()
        with pytest.raises(HoldfastError) as caught:
            written(sink, batches(), as_records)
        messages.append(str(caught.value))
    assert "field 'country' is declared string; its value None is None" in messages[0]
    assert "id=2" in messages[0]
    assert (
        messages[0].splitlines()[0].split(":", 1)[1]
        == (messages[1].splitlines()[0].split(":", 1)[1])
    )


@pytest.mark.parametrize("partition_by", [(), ("country",)], ids=["one", "partitions"])
def test_rows_of_a_delta_table_are_those_of_records(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    pytest.importorskip("deltalake")
    from tests.datastream.delta_tables import rows

    found = []
    for name, as_records in (("batches", False), ("records", True)):
        kinds = written(
            _delta(tmp_path / name).partition_by(*partition_by).build(), batches(), as_records
        )
        assert ("to_records" in kinds) is as_records
        found.append(sorted(rows(str(tmp_path / name)), key=str))
    assert found[0] == found[1]
    assert len(found[0]) == 40


def _delta(path: Path) -> Any:
    from holdfast.datastream.connectors.delta import DeltaSink

    return DeltaSink.for_table(str(path), COLUMNS)


def changes() -> list[pa.RecordBatch]:
    """Several changes of a key in a batch and in several, and deletions."""
    filled = ORDERS.set(1, pa.field("country", pa.string(), nullable=False))
    columns = [
        {
            "id": [7, n, n % 3],
            "country": ["CH"] * 3,
            "price": [n / 4, n, n],
            "gone": [n % 2 == 0, n == 5, None],
        }
        for n in range(10)
    ]
    return [pa.record_batch(each, schema=filled) for each in columns]


@pytest.mark.parametrize("key", [("id",), ("id", "country")])
def test_changes_of_a_delta_table_are_those_of_records(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    """Of several changes of a key the last one counts, and a column says which are deletions."""
    pytest.importorskip("deltalake")
    from tests.datastream.delta_tables import rows

    found = []
    for name, as_records in (("batches", False), ("records", True)):
        sink = _delta(tmp_path / name).upsert_by(*key, is_deletion="gone").build()
        assert ("to_records" in written(sink, changes(), as_records)) is as_records
        found.append(sorted(rows(str(tmp_path / name)), key=str))
    assert found[0] == found[1]
    assert [row["id"] for row in found[0]] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_changes_of_an_iceberg_table_are_those_of_records(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    filled = pa.schema([each.with_nullable(each.name == "price") for each in COLUMNS])
    found = _iceberg(tmp_path, changes(), filled, lambda it: it.upsert_by("id", is_deletion="gone"))
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_function_that_tells_deletions_gets_records(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    sink = _delta(tmp_path).upsert_by("id", is_deletion=lambda row: row.gone).build()
    assert "to_records" in written(sink, batches())


def test_rows_that_do_not_fit_can_go_to_a_side_output(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    from holdfast.datastream.connectors.delta import DeltaSink
    from tests.datastream.delta_tables import rows

    wanted = pa.schema([ORDERS.field("id"), ORDERS.field("country").with_nullable(False)])
    sink = DeltaSink.for_table(str(tmp_path), wanted).side_output_misfits(MISFITS).build()
    sent = environment().from_collection(batches()).sink_to(sink)
    with LocalExecutor(sent.get_side_output(MISFITS)) as run:
        run.run_to_end()
    assert sorted(row.id for row in run.records) == list(range(2, 40, 4))
    assert len(rows(str(tmp_path))) == 30


def test_a_change_that_does_not_fit_leaves_the_one_before_it() -> None:
    wanted = pa.schema(
        [pa.field("key", pa.string(), False), pa.field("country", pa.string(), False)]
    )
    kind = pa.schema([("key", pa.string()), ("country", pa.string()), ("gone", pa.bool_())])
    sent = [
        *[("a", "CH", False), ("a", None, False)],
        *[("b", None, False), ("b", "FR", False)],
        *[("c", "DE", False), ("c", None, True)],
        ("d", None, False),
    ]
    rows = pa.RecordBatch.from_pylist([dict(zip(kind.names, row, strict=True)) for row in sent])
    changes = BatchChanges(wanted, ["key"], "gone", BatchTypeInfo(kind))
    for part in (rows, rows.slice(6)):
        changes.add(Batch(part))
        found, errors = changes.take(sorts_out=True)
        expected = [("a", "CH", False), ("b", "FR", False), ("c", None, True)]
        values = sorted(tuple(row.values()) for row in found.to_pylist())
        assert values == (expected if part is rows else [])
        assert [error.record.key for error in errors] == (
            ["a", "b", "d"] if part is rows else ["d"]
        )


@pytest.mark.parametrize("fields", [(), ("country", "bucket(4, id)")], ids=["one", "partitions"])
def test_rows_of_an_iceberg_table_are_those_of_records(
    tmp_path: Path, fields: tuple[str, ...]
) -> None:
    pytest.importorskip("pyiceberg")
    found = _iceberg(tmp_path, batches(), COLUMNS, lambda it: it.partition_by(*fields))
    assert [row["id"] for row in found] == list(range(40))


def _iceberg(
    folder: Path, rows: list[pa.RecordBatch], schema: pa.Schema, settle: Callable[[Any], Any]
) -> list[dict[str, Any]]:
    """Write batches to one table and their records to another; return the rows of both."""
    from holdfast.datastream.connectors.iceberg import IcebergSink
    from tests.datastream.iceberg_tables import CATALOG, NAMESPACE, catalog, properties

    where = properties(folder)
    made = catalog(where)
    made.create_namespace(NAMESPACE)
    found = []
    for name, as_records in (("batches", False), ("records", True)):
        builder = IcebergSink.builder().set_catalog(CATALOG, where).set_table(f"{NAMESPACE}.{name}")
        sink = settle(builder.set_schema(schema).create_if_absent()).build()
        assert ("to_records" in written(sink, rows, as_records)) is as_records
        table = made.load_table(f"{NAMESPACE}.{name}").scan().to_arrow()
        found.append(sorted(table.to_pylist(), key=lambda row: row["id"]))
    assert found[0] == found[1]
    return found[0]


# The columns of batches in those of files and tables


@dataclass
class Order:
    id: int
    country: str | None
    price: float


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.int32()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.string(), pa.large_string()),
        (pa.float32(), pa.float64()),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("us", "Europe/Zurich"), pa.timestamp("us", "UTC")),
        (pa.decimal128(4, 2), pa.decimal128(9, 3)),
        (pa.list_(pa.int32()), pa.large_list(pa.int64())),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
    ],
    ids=str,
)
def test_values_are_those_of_records(found: pa.DataType, wanted: pa.DataType) -> None:
    schema, kind = pa.schema([("x", wanted)]), BatchTypeInfo(pa.schema([("x", found)]))
    assert fits(kind, schema)
    rows = pa.record_batch([pa.array(_values(found), found)], schema=kind.schema)
    records = RecordMaker(kind.record_type).records(rows)
    assert BatchColumns(schema, kind).batch(rows).equals(Columns(schema).batch(records))


def _values(kind: pa.DataType) -> list[Any]:
    if pa.types.is_struct(kind):
        return [{"a": 1}, None, {"a": None}]
    if pa.types.is_list(kind):
        return [[1, None], None, []]
    if pa.types.is_timestamp(kind):
        return [datetime(2026, 7, 1, 12, tzinfo=kind.tz and UTC), None]
    if pa.types.is_decimal(kind):
        return [Decimal("1.25"), None]
    is_text = pa.types.is_string(kind) or pa.types.is_dictionary(kind)
    return ["a", None, ""] if is_text else [1, None, 3]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.string(), pa.int64()),
        (pa.decimal128(9, 3), pa.decimal128(9, 2)),
        (pa.list_(pa.int64()), pa.list_(pa.field("item", pa.int64(), nullable=False))),
    ],
    ids=str,
)
def test_other_columns_are_written_as_records(found: pa.DataType, wanted: pa.DataType) -> None:
    assert not fits(BatchTypeInfo(pa.schema([("x", found)])), pa.schema([("x", wanted)]))


def test_columns_are_found_by_name_and_others_left_out() -> None:
    kind = BatchTypeInfo(Order)
    rows = pa.record_batch({"id": [1], "country": ["CH"], "price": [2.0]}, schema=kind.schema)
    schema = pa.schema([("price", pa.float64()), ("id", pa.int64())])
    assert BatchColumns(schema, kind).batch(rows).to_pylist() == [{"price": 2.0, "id": 1}]
    assert not fits(kind, pa.schema([("missing", pa.int64())]))
    assert not fits(BatchTypeInfo(Types.LONG()), pa.schema([("value", pa.int64())]))


def test_a_number_that_is_too_large_is_a_row_error() -> None:
    kind = BatchTypeInfo(pa.schema([("x", pa.int64())]))
    columns = BatchColumns(pa.schema([("x", pa.int8())]), kind)
    rows = pa.record_batch({"x": [1, 1000, 3]}, schema=kind.schema)
    with pytest.raises(RowError, match="field 'x' is declared int8; its value 1000"):
        columns.batch(rows)
    kept, (error,) = columns.sort_out(rows)
    assert (kept.to_pydict(), error.record.x) == ({"x": [1, 3]}, 1000)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", ""]), st.sampled_from([None, 1.5, float("nan"), -0.0])
        )
    )
)
def test_rows_are_split_by_their_values(pairs: list[tuple[Any, Any]]) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.float64()), ("at", pa.int64())])
    columns = [*zip(*pairs, strict=True)] or [(), ()]
    arrays = [
        pa.array(c, f.type) for c, f in zip([*columns, range(len(pairs))], schema, strict=True)
    ]
    parts = list(split_by(pa.record_batch(arrays, schema=schema), ["a", "b"]))
    expected: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        expected.setdefault(repr(pair), []).append(at)
    assert {repr(values): part["at"].to_pylist() for values, part in parts} == expected


# The commit protocol of part files, with batches


def batch_function(directory: str, buckets: BucketAssigner) -> FileSinkFunction:
    sink = parquet_sink(Path(directory), buckets).for_batches(BatchTypeInfo(ORDERS))
    assert sink is not None
    return sink.create_function()


def test_rows_are_counted(tmp_path: Path) -> None:
    function = batch_function(str(tmp_path), BucketAssigner.base_path_bucket_assigner())
    operator = make_instance(cloudpickle.dumps(function))
    assert isinstance(operator, TransactionalSinkOperator)
    operator.initialize(False, None)
    operator.open()
    step = operator.step()
    assert step.ports[0].call is not None
    for size in (3, 4):
        step.ports[0].call(Batch(orders(size)), RecordContext(OperatorTime(lambda: 0), "sink"))
    assert (step.sink, operator.accepted.drain()) == (None, 7)
    operator.close()


class BatchEngine(SinkEngine):
    """Gives a batch of one row instead of each number."""

    def record(self, number: int) -> Any:
        return Batch(orders(1, number))


STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda n, fates, barrier, complete: ("epoch", n, fates, barrier, complete),
            st.integers(0, 5),
            st.lists(st.sampled_from([Killed(0), Killed(1), Failed(1), Lost()]), max_size=2),
            st.booleans(),
            st.sampled_from([True, True, False, None]),
        ),
        st.builds(lambda n: ("restart", n), st.integers(1, 3)),
        st.builds(lambda n: ("zombie", n), st.integers(0, 50)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("stays", [False, True])
@settings(max_examples=10, deadline=None)
@given(steps=STEPS, parallelism=st.integers(1, 3))
def test_every_row_is_there_once_whatever_happens(
    stays: bool, steps: list[Any], parallelism: int
) -> None:
    buckets = BucketAssigner.field_bucket_assigner("country")
    with tempfile.TemporaryDirectory() as directory:
        job = BatchEngine(batch_function(directory, buckets), parallelism, stays=stays)
        for kind, *given_ in steps:
            if kind == "epoch":
                n, fates, barrier, complete = given_
                job.epoch(n, fates=() if stays else fates, checkpoint=barrier, complete=complete)
            elif kind == "restart":
                job.restart(given_[0])
            elif job.zombies and not stays:
                with contextlib.suppress(FileSystemError):  # it may fail, if it does no harm
                    job.zombies[given_[0] % len(job.zombies)]()
            seen = [row[1] for row in files(Path(directory))]
            assert seen == sorted(set(seen)), "nothing is seen twice"
            assert set(seen) <= set(range(job.completed.position)), "nothing is seen too early"
        job.finish()
        assert [row[1] for row in files(Path(directory))] == list(range(job.position))
