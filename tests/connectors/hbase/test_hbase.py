"""The HBase sink and lookup against a real HBase, most of it in this process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.common import Time, Types
from holdfast.datastream import AsyncDataStream, StreamExecutionEnvironment
from holdfast.datastream.connectors.hbase import (
    HBaseAwayError,
    HBaseLookupFunction,
    HBaseOptions,
    HBaseTableSchema,
    HBaseUpsertSinkFunction,
    HBaseWriteOptions,
)
from holdfast.datastream.connectors.hbase.client import HBaseClient
from holdfast.errors import UserFunctionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect
from holdfast.torture.comparing import Guarantee
from holdfast.torture.environment import environment_for
from holdfast.torture.order import Order, write_order
from holdfast.torture.reading import read_contents
from services.process import free_port
from tests.crashing import every_epoch_is_lost_once
from tests.torture.agents import agents_ended

if TYPE_CHECKING:
    from tests.hbase import Tables

pytestmark = pytest.mark.spark

SCHEMA = (
    HBaseTableSchema()
    .set_row_key("id", str)
    .add_column("f", "count", Types.INT())
    .add_column("f", "note", str)
)
#: sends when it must, and not before
LAZY = HBaseWriteOptions.builder().set_buffer_flush_max_rows(0).set_buffer_flush_interval_millis(0)


@pytest.fixture(scope="module")
def table(hbase: Tables) -> str:
    """A table; each test has its own rows in it."""
    return hbase.create("f", "g")


def _sink(options: HBaseOptions, write_options: HBaseWriteOptions | None = None) -> Any:
    return HBaseUpsertSinkFunction(options, SCHEMA, write_options or LAZY.build())


def _job(script: list[Any], sink: HBaseUpsertSinkFunction) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.enable_checkpointing(3_600_000)
    env.from_source(ScriptedSource(script)).add_sink(sink)
    return env


def _rows(hbase: Tables, table: str, prefix: str) -> dict[str, dict[bytes, bytes]]:
    rows = hbase.rows(table).items()
    return {key.decode(): cells for key, cells in rows if key.decode().startswith(prefix)}


def _cells(count: int, note: str) -> dict[bytes, bytes]:
    return {b"f:count": count.to_bytes(4, "big"), b"f:note": note.encode()}


def test_rows_are_put_and_deleted(hbase: Tables, table: str) -> None:
    hbase.put(table, {b"a-kept": {b"f:other": b"x"}, b"a-gone": _cells(7, "old")})
    script = [
        (True, ("a-1", (1, "one"))),
        (True, ("a-2", (2, "two"))),
        (True, ("a-kept", (3, "three"))),
        (False, ("a-gone", None)),
        EndOfEpoch(),
        (False, ("a-2", None)),
        (False, ("a-1", None)),
        (True, ("a-1", (11, None))),
        (False, ("a-kept", None)),
    ]
    with LocalExecutor(_job(script, _sink(hbase.options(table)))) as run:
        run.run_to_end()
    assert _rows(hbase, table, "a-") == {
        "a-1": {b"f:count": b"\x00\x00\x00\x0b"},
        "a-kept": {b"f:other": b"x"},
    }


def test_none_may_leave_a_column_as_it_is(hbase: Tables, table: str) -> None:
    options = LAZY.build()
    hbase.put(table, {b"b-1": _cells(1, "one")})
    keeping = HBaseWriteOptions(ignore_null_value=True)
    for write_options, key in ((keeping, "b-1"), (options, "b-2")):
        sink = _sink(hbase.options(table), write_options)
        with LocalExecutor(_job([(True, (key, (2, None)))], sink)) as run:
            run.run_to_end()
    assert _rows(hbase, table, "b-") == {
        "b-1": _cells(2, "one"),
        "b-2": {b"f:count": b"\x00\x00\x00\x02"},
    }


def test_what_a_checkpoint_covers_is_in_hbase_and_the_rest_may_wait(
    hbase: Tables, table: str
) -> None:
    script = [(True, ("c-1", (1, ""))), EndOfEpoch(), (True, ("c-2", (2, ""))), EndOfEpoch()]
    script += [(True, ("c-3", (3, ""))), EndOfEpoch()]
    with LocalExecutor(_job(script, _sink(hbase.options(table)))) as run:
        run.epoch()
        assert _rows(hbase, table, "c-") == {}
        run.epoch(checkpoint=True)
        assert _rows(hbase, table, "c-") == {"c-1": _cells(1, ""), "c-2": _cells(2, "")}
        run.run_to_end()
    assert [*_rows(hbase, table, "c-")] == ["c-1", "c-2", "c-3"]


def test_what_is_buffered_goes_along_to_another_process(hbase: Tables, table: str) -> None:
    script = [(True, ("d-1", (1, ""))), EndOfEpoch(), (True, ("d-2", (2, ""))), EndOfEpoch()]
    with LocalExecutor(_job(script, _sink(hbase.options(table))), workers=3) as run:
        run.run_to_end()
    assert _rows(hbase, table, "d-") == {"d-1": _cells(1, ""), "d-2": _cells(2, "")}


def test_epochs_that_are_run_again_change_nothing(hbase: Tables, table: str) -> None:
    script: list[Any] = []
    for number in range(60):
        script.append((number % 7 != 0, (f"e-{number % 11}", (number, str(number)))))
        script += [EndOfEpoch()] if number % 13 == 0 else []
    with (
        every_epoch_is_lost_once(),
        LocalExecutor(
            _job(script, _sink(hbase.options(table), HBaseWriteOptions(0, 3, 5))), workers=2
        ) as run,
    ):
        run.run_to_end()
    expected: dict[str, dict[bytes, bytes]] = {}
    for number in range(60):
        expected.pop(f"e-{number % 11}", None)
        if number % 7 != 0:
            expected[f"e-{number % 11}"] = _cells(number, str(number))
    assert _rows(hbase, table, "e-") == expected


def test_a_region_server_that_is_away_stops_the_epoch_and_not_the_data(
    hbase: Tables, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = [(True, ("f-1", (1, ""))), EndOfEpoch(), (True, ("f-2", (2, ""))), EndOfEpoch()]
    with LocalExecutor(_job(script, _sink(hbase.options(table)))) as run:
        run.epoch(checkpoint=True)
        hbase.server.server.kill()
        back = threading.Thread(target=hbase.server.start_server)
        back.start()
        run.epoch(checkpoint=True)
        back.join()
        assert len(run.checkpoints) == 2
        run.run_to_end()
    assert any("trying again in" in message for message in caplog.messages)
    assert _rows(hbase, table, "f-") == {"f-1": _cells(1, ""), "f-2": _cells(2, "")}


def test_a_call_that_was_given_up_hides_nothing_when_it_arrives_late(
    hbase: Tables, table: str
) -> None:
    client = HBaseClient(hbase.options(table))
    client.mutate(1_000, {b"h-1": {b"f:note": b"early"}})
    client.mutate(1_001, {b"h-1": {b"f:note": None}})
    client.mutate(1_002, {b"h-1": {b"f:note": b"last"}})
    client.mutate(1_000, {b"h-1": {b"f:note": b"early"}})
    client.mutate(1_001, {b"h-1": {b"f:note": None}})
    client.close()
    assert _rows(hbase, table, "h-") == {"h-1": {b"f:note": b"last"}}


def test_a_table_that_does_not_exist_is_named(hbase: Tables, table: str) -> None:
    script = [(True, ("x", (1, "")))]
    message = rf"HBase table 'nowhere' at .*: no such table; there are: .*{table}"
    with (
        LocalExecutor(_job(script, _sink(hbase.options("nowhere")))) as run,
        pytest.raises(UserFunctionError, match=message),
    ):
        run.epoch()


def test_a_family_that_does_not_exist_is_named(hbase: Tables, table: str) -> None:
    schema = HBaseTableSchema().set_row_key("id", str).add_column("wrong", "q", str)
    sink = HBaseUpsertSinkFunction(hbase.options(table), schema)
    with (
        LocalExecutor(_job([(True, ("x", ("",)))], sink)) as run,
        pytest.raises(UserFunctionError, match="has no family wrong; it has: f, g"),
    ):
        run.epoch()


def test_a_record_that_is_no_pair_fails_the_job_with_its_place(hbase: Tables, table: str) -> None:
    with (
        LocalExecutor(_job([("x", (1, ""))], _sink(hbase.options(table)))) as run,
        pytest.raises(UserFunctionError, match=r"takes pairs \(True, row\) to put and"),
    ):
        run.epoch()


def test_a_server_that_is_not_there_is_named() -> None:
    options = HBaseOptions("orders", "127.0.0.1", free_port())
    write_options = HBaseWriteOptions.builder().set_retry(100, 10).build()
    with (
        LocalExecutor(_job([(True, ("x", (1, "")))], _sink(options, write_options))) as run,
        pytest.raises(
            UserFunctionError, match=r"'orders' at 127.0.0.1:\d+ cannot be reached: .*gave up"
        ),
    ):
        run.epoch()
    with pytest.raises(HBaseAwayError, match="cannot be reached"):
        HBaseClient(options).rows([b"x"], [])


def test_rows_are_looked_up(hbase: Tables, table: str) -> None:
    hbase.put(table, {f"g-{n}".encode(): _cells(n, f"no. {n}") for n in range(300)})
    env = StreamExecutionEnvironment.get_execution_environment()
    lookup = HBaseLookupFunction(
        hbase.options(table),
        SCHEMA,
        key_selector=lambda number: f"g-{number}",
        result=lambda number, row: (number, row and (row.f.count, row.f.note)),
    )
    numbers = env.from_collection(range(310))
    found = AsyncDataStream.ordered_wait(numbers, lookup, Time.seconds(60), capacity=250)
    expected = [(n, (n, f"no. {n}") if n < 300 else None) for n in range(310)]
    assert sorted(collect(found)) == expected


def test_a_tortured_sink_has_a_table_of_its_own(hbase: Tables, tmp_path: Path) -> None:
    table = hbase.create("f", "g")
    order = Order(str(tmp_path / "run"), str(tmp_path), "run", "job.py")
    write_order(order)
    env = environment_for(order)().set_parallelism(1)
    rows = [(True, (f"t-{n}", (n, "x"))) for n in range(3)]
    env.from_collection(rows).add_sink(_sink(hbase.options(table)))
    with agents_ended(tmp_path / "run"):
        with LocalExecutor(env) as run:
            run.run_to_end()
        (found,) = read_contents(order).values()
    assert found.guarantee is Guarantee.BY_KEY
    assert sorted(found.values) == ["t-0", "t-1", "t-2"]
    assert hbase.rows(table) == {}
