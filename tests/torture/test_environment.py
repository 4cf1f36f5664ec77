"""The job of a tortured program: its outputs are in the run, and are read from there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from holdfast.common import Configuration, Encoder, RestartStrategies, SimpleStringSchema
from holdfast.datastream import SinkFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.delta import DeltaSink
from holdfast.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileSink,
)
from holdfast.datastream.connectors.iceberg import IcebergSink
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.graph.operations import ResultOperation, SinkOperation
from holdfast.plan.model import Plan
from holdfast.testing import LocalExecutor
from holdfast.torture.comparing import Guarantee
from holdfast.torture.environment import environment_for
from holdfast.torture.order import (
    JobNote,
    Order,
    SinkPlace,
    read_notes,
    read_order,
    write_note,
    write_order,
)
from holdfast.torture.reading import read_contents
from holdfast.torture.redirecting import MARK, OneLine
from tests.torture.agents import agents_ended


@pytest.fixture
def order(tmp_path: Path) -> Iterator[Order]:
    made = Order(str(tmp_path / "run"), str(tmp_path / "shared"), "t-run", "job.py", disturbed=True)
    write_order(made)
    with agents_ended(tmp_path / "run"):
        yield made


def environment(order: Order, **settings: str) -> StreamExecutionEnvironment:
    return environment_for(order)(Configuration(settings)).set_parallelism(2)


def planned(env: StreamExecutionEnvironment, name: str = "job") -> Plan:
    return env._take_plan(name)


def sink_functions(plan: Plan) -> list[Any]:
    operations = [op.node.operation for op in plan.operators.values()]
    return [operation.function for operation in operations if isinstance(operation, SinkOperation)]


class OwnSink(SinkFunction):
    """A sink that nobody else knows."""

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Drop it."""


def test_an_order_is_written_and_read(order: Order) -> None:
    assert read_order(order.path / "order.json") == order
    replaced = msgspec.structs.replace(order, arguments=("--output", "{run}/a", "x"))
    assert replaced.own_arguments() == ["--output", f"{order.output}/a", "x"]


def test_sinks_are_redirected(order: Order, tmp_path: Path) -> None:
    env = environment(order)
    numbers = env.from_source(NumberSequenceSource(1, 3))
    encoder = Encoder.simple_string_encoder()
    numbers.sink_to(FileSink.for_row_format(str(tmp_path / "production"), encoder).build())
    numbers.sink_to(FileSink.for_row_format(str(order.output / "own"), encoder).build())
    schema = KafkaRecordSerializationSchema.builder().set_topic("orders")
    schema.set_value_serialization_schema(SimpleStringSchema())
    kafka = KafkaSink.builder().set_bootstrap_servers("broker:9092")
    kafka.set_record_serializer(schema.build()).set_transactional_id_prefix("orders")
    numbers.sink_to(kafka.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build())
    numbers.sink_to(DataFrameSink("json", str(tmp_path / "rows"), schema="n INT"))
    numbers.add_sink(OwnSink())
    files, own, topics, _ = sink_functions(planned(env))
    assert files.sink.base_path == str(order.path / "sinks" / "1-1")
    assert isinstance(files.sink.encoder, OneLine)
    assert own.sink.base_path == str(order.output / "own"), "it is in the run already"
    assert topics.sink.transactional_id_prefix == "orders-t-run-1-3"
    (note,) = read_notes(order.path)
    assert note.parallelism == 2
    assert [(sink.kind, sink.guarantee) for sink in note.sinks] == [
        ("files", "exactly once"),
        ("files", "exactly once"),
        ("kafka", "exactly once"),
        ("rows", "exactly once"),
        ("", ""),
    ]


def test_a_sink_of_parquet_files_is_redirected_and_read(order: Order, tmp_path: Path) -> None:
    env = environment(order)
    rows = env.from_source(NumberSequenceSource(1, 3)).map(lambda n: (n,))
    writers = ParquetBulkWriters.for_row_type(pa.schema([("n", pa.int64())]))
    rows.sink_to(FileSink.for_bulk_format(str(tmp_path / "production"), writers).build())
    (function,) = sink_functions(planned(env))
    assert function.sink.base_path == str(order.path / "sinks" / "1-2")
    (note,) = read_notes(order.path)
    (place,) = note.sinks
    assert (place.kind, place.guarantee) == ("rows", "exactly once")
    folder = Path(place.place["path"]) / "n=1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1, 2]}), folder / "part.parquet")
    contents = read_contents(order)[place.id]
    assert sorted(contents.records) == ["{'n': 1}", "{'n': 2}"]


@pytest.mark.parametrize("delimiter", [None, b"-- next file --\n"])
def test_compacted_files_are_redirected_and_read(
    order: Order, tmp_path: Path, delimiter: bytes | None
) -> None:
    env = environment(msgspec.structs.replace(order, disturbed=False))
    env.enable_checkpointing(10)
    sink = FileSink.for_row_format(
        str(tmp_path / "production"), Encoder.simple_string_encoder()
    ).enable_compact(
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build(),
        FileCompactor.concat_file_compactor(delimiter),
    )
    env.from_source(NumberSequenceSource(1, 200)).sink_to(sink.build()).name("files")
    with LocalExecutor(env, quota=10) as run:
        for _ in range(8):
            run.epoch()
            run.clock.advance(20)
        run.run_to_end()
    assert not (tmp_path / "production").exists()
    (found,) = read_contents(order).values()
    assert found.records == Counter(map(str, range(1, 201)))


def test_a_delta_table_that_spark_writes_is_read_as_a_table(order: Order, tmp_path: Path) -> None:
    env = environment(order)
    numbers = env.from_source(NumberSequenceSource(1, 3)).map(lambda n: (n,))
    numbers.sink_to(DataFrameSink("Delta", str(tmp_path / "production"), schema="n BIGINT"))
    planned(env)
    (note,) = read_notes(order.path)
    (place,) = note.sinks
    assert (place.kind, place.guarantee) == ("delta", "exactly once")
    assert place.place["path"].startswith(str(order.path))


def test_a_delta_table_is_redirected_and_read(order: Order, tmp_path: Path) -> None:
    env = environment(msgspec.structs.replace(order, disturbed=False))
    numbers = env.from_source(NumberSequenceSource(1, 3)).map(lambda n: (n,))
    schema = pa.schema([("n", pa.int64())])
    numbers.sink_to(DeltaSink.for_table(str(tmp_path / "production"), schema).build()).name("table")
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert not (tmp_path / "production").exists()
    (found,) = read_contents(order).values()
    assert (found.name, found.guarantee.value) == ("table: committer", "exactly once")
    assert sorted(found.records) == ["{'n': 1}", "{'n': 2}", "{'n': 3}"]


def test_an_iceberg_table_is_redirected_and_read(order: Order, tmp_path: Path) -> None:
    uri = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path)}
    load_catalog("test", **uri).create_namespace("shop")
    schema = pa.schema([("n", pa.int64())])
    sink = IcebergSink.builder().set_catalog("test", uri).set_table("shop.numbers")
    env = environment(msgspec.structs.replace(order, disturbed=False))
    numbers = env.from_source(NumberSequenceSource(1, 3)).map(lambda n: (n,))
    numbers.sink_to(sink.set_schema(schema).create_if_absent().build()).name("table")
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert not load_catalog("test", **uri).table_exists("shop.numbers")
    (found,) = read_contents(order).values()
    assert (found.name, found.guarantee.value) == ("table: committer", "exactly once")
    assert sorted(found.records) == ["{'n': 1}", "{'n': 2}", "{'n': 3}"]


def test_settings_of_the_program_do_not_lead_out_of_the_run(order: Order, tmp_path: Path) -> None:
    env = environment(order)
    env.enable_checkpointing(60_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "production"))
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_source(NumberSequenceSource(1, 3)).print()
    planned(env)
    config = env.get_checkpoint_config()
    assert str(order.path) in str(config.get_checkpoint_directory())
    assert env._configuration.get_string("holdfast.directory", "").startswith(str(order.path))
    assert config.get_checkpoint_interval() == 300
    assert env.get_restart_strategy() != RestartStrategies.no_restart()


def test_an_undisturbed_job_keeps_its_own_restart_strategy(order: Order) -> None:
    env = environment(msgspec.structs.replace(order, disturbed=False))
    env.enable_checkpointing(60_000).set_restart_strategy(RestartStrategies.no_restart())
    env.from_source(NumberSequenceSource(1, 3)).print()
    planned(env)
    assert env.get_checkpoint_config().get_checkpoint_interval() == 60_000
    assert env.get_restart_strategy() == RestartStrategies.no_restart()


def test_a_savepoint_of_the_run_is_the_start_of_the_next_one(order: Order) -> None:
    (order.path / "savepoint").write_text("/a/savepoint")
    env = environment(order)
    env.from_source(NumberSequenceSource(1, 3)).print()
    planned(env)
    assert env._configuration.to_dict()["execution.state-recovery.path"] == "/a/savepoint"


def test_printed_and_collected_records_are_marked(order: Order) -> None:
    env = environment(order)
    numbers = env.from_source(NumberSequenceSource(1, 3))
    numbers.print("label")
    operation = ResultOperation
    plan = planned(env)
    prefixes = [
        op.node.operation.prefix
        for op in plan.operators.values()
        if isinstance(op.node.operation, operation)
    ]
    assert prefixes == [f"{MARK}1-1{MARK}label"]


def test_contents_are_read_from_the_run(order: Order) -> None:
    files = order.path / "sinks" / "1-2"
    (files / ".hidden").mkdir(parents=True)
    (files / ".hidden" / "segment").write_text("not committed\n")
    (files / "part-0").write_bytes(OneLine(Encoder.simple_string_encoder()).encode("a\nb"))
    (order.output / "own").mkdir()
    (order.output / "own" / "one").write_text("x\ny\n")
    (order.output / "own" / "two").write_text("y\ncut off")
    (order.path / "stdout").write_text(
        f"a line of the program\n{MARK}1-1{MARK}> 5\n{MARK}1-1{MARK}label:2> 6> 7\n"
    )
    once, twice = Guarantee.EXACTLY_ONCE.value, Guarantee.AT_LEAST_ONCE.value
    sinks = (
        SinkPlace("1-1", "print", "printed", twice),
        SinkPlace("1-2", "files", "files", once, {"path": str(files), "encoded": True}),
        SinkPlace("1-3", "unknown"),
    )
    write_note(order.path, 1, JobNote("job", 2, sinks))
    found = read_contents(order)
    assert dict(found["1-1"].records) == {"5": 1, "6> 7": 1}
    assert dict(found["1-2"].records) == {"a\nb": 1}
    assert found["1-3"].unread.startswith("it is not known how to read it")
    assert dict(found["output/own"].records) == {"x": 1, "y": 2}


def test_a_function_of_the_user_reads_what_he_knows(order: Order) -> None:
    (order.output / "table.json").write_text(json.dumps({"k": 1}))
    write_note(order.path, 1, JobNote("job", 2, ()))

    def contents(run: Path) -> dict[str, Any]:
        table = json.loads((run / "table.json").read_text())
        return {"table": table, "list": [1, 1]}

    found = read_contents(order, contents)
    assert dict(found["own-table"].values) == {"k": "1"}
    assert found["own-table"].guarantee is Guarantee.BY_KEY
    assert dict(found["own-list"].records) == {"1": 2}
