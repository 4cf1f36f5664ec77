"""State in columns as data: tools, savepoints and queries have an entry per key."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.common import Time
from holdfast.datastream import (
    DataStream,
    KeyedBatchFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ColumnStateDescriptor, StateTtlConfig
from holdfast.errors import JobExecutionError
from holdfast.savepoint import KeyedState, Savepoint, SavepointWriter
from holdfast.savepoint.data import RowPlace
from holdfast.state.backend import HeapKeyedStateBackend
from holdfast.testing import LocalExecutor
from tests.savepoint.jobs import configuration

ORDERS = pa.schema([("user", pa.string()), ("shop", pa.int32()), ("amount", pa.int64())])
RESULT = pa.schema([("user", pa.string()), ("shop", pa.int32()), ("total", pa.int64())])
RECORDS = [(f"u{n % 7}", n % 2, n) for n in range(60)]


def expiring(name: str, type_: pa.DataType) -> ColumnStateDescriptor:
    descriptor = ColumnStateDescriptor(name, type_)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1000)).build())
    return descriptor


TOTAL = ColumnStateDescriptor("total", pa.int64(), default=0)
LARGEST = ColumnStateDescriptor("largest", pa.int32())
LAST = expiring("last", pa.decimal128(10, 2))


class Totals(KeyedBatchFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_column_state(TOTAL)
        self.largest = runtime_context.get_column_state(LARGEST)
        self.last = runtime_context.get_column_state(LAST)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        self.largest.max(keys, batch["amount"])
        self.last.put(keys, batch["amount"].cast(pa.decimal128(19, 0)))
        total = self.total.running_add(keys, batch["amount"])
        return {"user": batch["user"], "shop": batch["shop"], "total": total}


def job(
    directory: Path,
    key: str | list[str],
    start: str | None = None,
    parallelism: int = 2,
    backend: str = "hashmap",
) -> DataStream:
    config = configuration(directory, backend, start)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    env.set_max_parallelism(8)
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array(column, type_)
                for column, type_ in zip(zip(*part, strict=True), ORDERS.types, strict=True)
            ],
            schema=ORDERS,
        )
        for part in (RECORDS[at : at + 6] for at in range(0, len(RECORDS), 6))
    ]
    orders = env.from_collection(batches).uid("orders")
    totals = orders.key_by(key).process_batches(Totals(), RESULT).uid("totals").name("Totals")
    return totals.map(tuple).uid("tuples")


def totals_of(records: list[tuple[str, int, int]], *fields: int) -> dict[Any, int]:
    found: Counter[Any] = Counter()
    for record in records:
        key = tuple(record[field] for field in fields)
        found[key if len(fields) > 1 else key[0]] += record[2]
    return dict(found)


def by_key(savepoint: Savepoint, state: str) -> dict[Any, Any]:
    return {row["key"]: row["value"] for row in savepoint.keyed_state("totals", state)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, int]:
    """Two savepoints of a job, and how many records the first one has seen."""
    directory = tmp_path_factory.mktemp("job")
    with LocalExecutor(job(directory, "user"), quota=12) as run:
        run.epoch(checkpoint=True)
        for user in ("u0", "u1"):
            assert run.query_state("totals", "total", user) == totals_of(_seen(run), 0).get(user)
        assert run.query_state("totals", "total", "nobody") is None
        assert run.query_state("totals", "total", 7) is None
        first = run.savepoint()
        seen = len(_seen(run))
        run.epoch()
        return first, run.savepoint(), seen


def _seen(run: LocalExecutor) -> list[tuple[str, int, int]]:
    return RECORDS[: len(run.records)]


def holdfast(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    return result.output


def test_a_savepoint_is_read_as_data(saved: tuple[str, str, int]) -> None:
    savepoint = Savepoint.read(saved[0])
    assert by_key(savepoint, "total") == totals_of(RECORDS[: saved[2]], 0)
    kinds = {state.name: state for state in savepoint.operators["totals"].states}
    assert {name: state.kind for name, state in kinds.items()} == dict.fromkeys(
        kinds, "ColumnState"
    )
    assert kinds["last"].expires
    table = savepoint.keyed_state("totals", "largest").to_arrow()
    assert table.schema.field("value").type == pa.int32()
    sizes = {size.state: size.entries for size in savepoint.sizes()}
    assert sizes["total"] == sizes["last"] == len(by_key(savepoint, "total"))


def test_the_command_line_shows_compares_and_exports_it(
    saved: tuple[str, str, int], tmp_path: Path
) -> None:
    first, second, seen = saved
    listed = holdfast("state", "list", first)
    assert "largest" in listed
    shown = holdfast("state", "show", first, "totals", "total", "--json")
    rows = json.loads(shown)
    assert {row["key"]: row["value"] for row in rows} == totals_of(RECORDS[:seen], 0)
    assert "total" in holdfast("state", "diff", first, second)
    target = tmp_path / "total.parquet"
    holdfast("state", "export", first, "totals", "total", "--output", str(target))
    assert pq.read_table(target).num_rows == len(rows)


def test_the_web_ui_browses_it_page_by_page(tmp_path: Path) -> None:
    with LocalExecutor(job(tmp_path, ["user", "shop"]), quota=12) as run:
        run.epoch()
        saved = Savepoint.read(run.savepoint())
        expected = totals_of(_seen(run), 0, 1)
    found, place = {}, RowPlace()
    while place is not None:
        rows, place = saved.keyed_state("totals", "total").page(place, 3, 1 << 20)
        assert len(rows) <= 3
        found.update({row["key"]: row["value"] for row in rows})
    assert found == expected
    rows, _ = saved.keyed_state("totals", "last").page(RowPlace(), 100, 1 << 20)
    assert {"key", "value", "accessed"} == set(rows[0])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_goes_on_from_a_savepoint_with_another_parallelism(
    saved: tuple[str, str, int], tmp_path: Path, parallelism: int
) -> None:
    stream = job(tmp_path, "user", start=saved[0], parallelism=parallelism)
    with LocalExecutor(stream, quota=50) as run:
        run.run_to_end()
    assert totals_of(RECORDS[: saved[2]], 0) | {
        user: total for user, _, total in run.records
    } == totals_of(RECORDS, 0)


def test_state_is_made_and_changed_by_the_savepoint_api(tmp_path: Path) -> None:
    made = (
        SavepointWriter(max_parallelism=8)
        .with_operator(
            "totals",
            KeyedState(TOTAL, {("u0", 0): 1000, ("new", 1): 7}),
            KeyedState(LAST, {("new", 1): 7}),
        )
        .write(tmp_path / "made")
    )
    writer = SavepointWriter(Savepoint.read(made))
    path = writer.map("totals", "total", lambda value: value * 2).write(tmp_path / "changed")
    with LocalExecutor(job(tmp_path, ["user", "shop"], start=path), quota=50) as run:
        run.run_to_end()
    expected = totals_of(RECORDS, 0, 1)
    expected["u0", 0] += 2000
    assert {(user, shop): total for user, shop, total in run.records} == expected
    savepoint = Savepoint.read(path)
    for descriptor, value in ((TOTAL, 14), (LAST, 7)):
        backend = HeapKeyedStateBackend(range(8), 8)
        backend.import_key_groups(savepoint.image.storage, savepoint.heads("totals"))
        backend.column_state("totals", descriptor)
        held = {key: value for key, _, value in backend.entries("totals", descriptor.name)}
        assert held["new", 1] == value


class Counts(KeyedBatchFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_column_state(TOTAL)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        return {"total": self.total.running_count(keys)}


@pytest.mark.parametrize(
    "by", ["key", ["key", "one"], lambda batch: batch["key"]], ids=["name", "names", "function"]
)
@pytest.mark.parametrize(
    "kind",
    [pa.uint64(), pa.timestamp("ms"), pa.date64(), pa.duration("s"), pa.time32("s")],
    ids=str,
)
def test_keys_that_the_savepoint_api_wrote_have_the_type_of_the_job(
    kind: pa.DataType, by: Any, tmp_path: Path
) -> None:
    """Keys are Python values there, which do not tell the type of a column."""
    days = pa.array([86_400_000, 2 * 86_400_000, 86_400_000])
    if pa.types.is_time(kind):
        days = pa.array([1, 2, 1], pa.int32())
    keys = (days.cast(pa.uint64()) if kind == pa.uint64() else days).view(kind)
    held = [(key, 1) if isinstance(by, list) else key for key in keys.to_pylist()]
    made = SavepointWriter(max_parallelism=8).with_operator(
        "totals", KeyedState(TOTAL, {held[0]: 1000, held[1]: 0})
    )
    config = configuration(tmp_path, "hashmap", made.write(tmp_path / "made"))
    env = StreamExecutionEnvironment.get_execution_environment(config).set_max_parallelism(8)
    rows = env.from_collection([pa.record_batch({"key": keys, "one": [1, 1, 1]})])
    totals = rows.key_by(by).process_batches(Counts(), pa.schema([("total", pa.int64())]))
    with LocalExecutor(totals.uid("totals").map(lambda row: row.total), quota=50) as run:
        run.run_to_end()
    assert sorted(run.records) == [1, 1001, 1002]


def test_rocksdb_refuses_it(tmp_path: Path) -> None:
    message = "state 'total' of operator 'totals' is state in columns, which is held in memory"
    with pytest.raises(JobExecutionError, match=message):
        LocalExecutor(job(tmp_path, "user", backend="rocksdb"), quota=50).run_to_end()
