"""Spark DataFrames as sources, Spark writers and part files as sinks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.common import Encoder, Row, Types
from holdfast.datastream import KeyedBatchFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    StreamFormat,
)
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.datastream.state import ColumnStateDescriptor
from holdfast.errors import JobDefinitionError, JobExecutionError, UserFunctionError
from holdfast.rest.views.jobs import job_details, vertex_details
from tests.gates import Numbers

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

COUNTS = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])


@dataclasses.dataclass
class Reading:
    sensor: str
    value: float


def test_a_batch_frame_is_a_bounded_source(spark: Any, env: StreamExecutionEnvironment) -> None:
    frame = spark.range(1000).selectExpr("id", "id % 3 as k", "named_struct('a', id) as inner")
    stream = env.from_dataframe(frame).map(lambda row: (row.k, row.inner.a, row["id"]))
    records = stream.key_by(lambda r: r[0]).sum(1).execute_and_collect()
    totals: dict[int, int] = {}
    for key, total, _ in records:
        totals[key] = max(total, totals.get(key, 0))
    assert totals == {k: sum(range(k, 1000, 3)) for k in range(3)}


def test_rows_are_rows(spark: Any, env: StreamExecutionEnvironment) -> None:
    frame = spark.createDataFrame(
        [(1, ["x"], {"k": 2}), (2, None, None)], "a int, b array<string>, c map<string,int>"
    )
    records = sorted(env.from_dataframe(frame).execute_and_collect(), key=lambda row: row.a)
    assert records == [Row(a=1, b=["x"], c={"k": 2}), Row(a=2, b=None, c=None)]


def test_rows_as_batches(spark: Any, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    """From a frame to files, without a record."""
    frame = spark.range(1000).selectExpr("id", "id % 3 as k", "named_struct('a', id) as inner")
    inner = pa.struct([("a", pa.int64())])
    schema = pa.schema([("k", pa.int32()), ("id", pa.int64()), ("inner", inner)])
    rows = env.from_dataframe(frame, batch_schema=schema).key_by("k")
    bulk = ParquetBulkWriters.for_row_type(schema)
    buckets = BucketAssigner.field_bucket_assigner("k")
    sink = FileSink.for_bulk_format(str(tmp_path), bulk).with_bucket_assigner(buckets)
    rows.sink_to(sink.build())
    assert [node.kind for node in env._graph.pending()] == ["source", "sink"]
    env.execute()
    for k in range(3):
        files = (tmp_path / f"k={k}").glob("*.parquet")
        found = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        assert sorted(row["id"] for row in found) == list(range(k, 1000, 3))
        assert all(row["inner"] == {"a": row["id"]} and row["k"] == k for row in found)


def test_a_streaming_frame_keeps_state_over_epochs(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    for part in range(3):
        frame = spark.range(part * 10, part * 10 + 10).selectExpr("id % 2 as k")
        frame.coalesce(1).write.mode("append").json(str(tmp_path / "in"))
    reader = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1)
    rows = env.from_dataframe(reader.json(str(tmp_path / "in")))
    counts = rows.key_by(lambda row: row.k).map_with_state(
        lambda row, count: ((row.k, (count or 0) + 1), (count or 0) + 1)
    )
    records = counts.execute_and_collect()
    assert sorted(next(records) for _ in range(30)) == [
        (k, n + 1) for k in (0, 1) for n in range(15)
    ]
    records.close()


def test_a_streaming_frame_as_batches_keeps_state_over_epochs(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    for part in range(3):
        frame = spark.range(part * 10, part * 10 + 10).selectExpr("id % 2 as k", "id")
        frame.coalesce(1).write.mode("append").json(str(tmp_path / "in"))
    reader = spark.readStream.schema("k long, id long").option("maxFilesPerTrigger", 1)
    frame = reader.json(str(tmp_path / "in"))
    schema = pa.schema([("k", pa.int64()), ("total", pa.int64())])
    rows = env.from_dataframe(frame, batch_schema=pa.schema([("k", pa.int64())]))
    totals = rows.key_by("k").process_batches(Counts(), schema)
    kinds = [node.kind for node in env._graph.pending()]
    assert not {"to_batches", "to_records"} & set(kinds)
    records = totals.map(tuple).execute_and_collect()
    assert sorted(next(records) for _ in range(30)) == [
        (k, n + 1) for k in (0, 1) for n in range(15)
    ]
    records.close()


class Counts(KeyedBatchFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        count = ColumnStateDescriptor("count", pa.int64(), default=0)
        self.count = runtime_context.get_column_state(count)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        return {"k": batch["k"], "total": self.count.running_count(keys)}


def test_frames_beside_other_sources(spark: Any, env: StreamExecutionEnvironment) -> None:
    rows = env.from_dataframe(spark.range(5)).map(lambda row: row.id)
    numbers = env.from_collection([10, 11]).union(rows)
    assert sorted(numbers.execute_and_collect()) == [0, 1, 2, 3, 4, 10, 11]


def test_an_error_in_a_key_selector_over_rows(spark: Any, env: StreamExecutionEnvironment) -> None:
    keyed = env.from_dataframe(spark.range(3), "numbers").key_by(lambda row: row.nothing)
    with pytest.raises(UserFunctionError, match="'Source: numbers'"):
        list(keyed.map(lambda row: row).execute_and_collect())


@pytest.mark.usefixtures("engine")
def test_a_spark_writer_with_a_declared_type(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    words = env.from_collection(["a", "b", "a"]).map(lambda word: (word, 1), COUNTS)
    counts = words.key_by(lambda row: row.word).sum("count")
    counts.sink_to(DataFrameSink("parquet", str(tmp_path / "out"), partition_by=["word"]))
    env.execute()
    written = spark.read.parquet(str(tmp_path / "out"))
    assert sorted((r["word"], r["count"]) for r in written.collect()) == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
    ]


@pytest.mark.usefixtures("engine")
def test_a_spark_writer_of_dataclasses_and_of_a_schema(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    readings = env.from_collection([Reading("s1", 1.5), Reading("s2", 2.5)], Reading)
    readings.sink_to(DataFrameSink("json", str(tmp_path / "json")))
    readings.map(lambda r: {"name": r.sensor}).sink_to(
        DataFrameSink(
            "csv", str(tmp_path / "csv"), schema="name string", options={"header": "true"}
        )
    )
    env.execute()
    rows = spark.read.json(str(tmp_path / "json")).collect()
    assert sorted((r.sensor, r.value) for r in rows) == [("s1", 1.5), ("s2", 2.5)]
    names = spark.read.option("header", True).csv(str(tmp_path / "csv")).collect()
    assert sorted(r.name for r in names) == ["s1", "s2"]


@pytest.mark.usefixtures("engine")
def test_two_spark_writers_show_what_each_has_written(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    numbers = env.from_collection(list(range(30)), Types.LONG())
    for name, step in (("all", 1), ("even", 2)):
        chosen = numbers.filter(lambda n, step=step: n % step == 0).map(
            lambda n: ("word", n), COUNTS
        )
        chosen.sink_to(DataFrameSink("parquet", str(tmp_path / name))).name(name).uid(name)
    client: Any = env.execute_async("two writers")
    client.get_job_execution_result().result()
    history = client._job.history
    shown: Counter[str] = Counter()
    for vertex in history.graph.vertices:
        shown.update(vertex_details(history, vertex).written)
    assert shown == {"all": 30, "even": 15}
    total = sum(vertex.now.records_written for vertex in job_details(history).vertices)
    assert total == 45
    for name, count in shown.items():
        assert spark.read.parquet(str(tmp_path / name)).count() == count


def test_a_writer_needs_columns(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="declare the stream's type"):
        env.from_collection([1]).sink_to(DataFrameSink("parquet", "/nowhere"))
    with pytest.raises(ValueError, match="mode must be one of append"):
        DataFrameSink("parquet", "/nowhere", mode="upsert")


def test_a_type_without_columns(spark: Any, env: StreamExecutionEnvironment) -> None:
    env.from_collection([1], Types.LONG()).sink_to(DataFrameSink("parquet", "/nowhere"))
    with pytest.raises(JobDefinitionError, match="columns need names"):
        env.execute()


@pytest.mark.usefixtures("engine")
def test_a_record_that_does_not_fit(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    rows = env.from_collection([{"n": 1}, {"n": 2.5}])
    rows.sink_to(DataFrameSink("json", str(tmp_path / "out"), schema="n int")).name("numbers")
    with pytest.raises(UserFunctionError, match=r"field 'n' is declared int32.* 2\.5 .*") as caught:
        env.execute()
    assert "in operator 'numbers'" in str(caught.value)
    # NB: the first record may have been written in an epoch before
    written = [line for path in tmp_path.glob("out/*.json") for line in path.read_text().split()]
    assert set(written) <= {'{"n":1}'}


@pytest.mark.usefixtures("engine")
def test_a_format_that_spark_does_not_know(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.from_collection([("a", 1)], COUNTS).sink_to(DataFrameSink("nonsense", str(tmp_path)))
    with pytest.raises(JobExecutionError, match=r"could not write nonsense"):
        env.execute()


def test_a_path_that_spark_cannot_use_is_told_before_the_first_record(
    spark: Any, env: StreamExecutionEnvironment
) -> None:
    env.enable_checkpointing(300)
    sink = DataFrameSink("json", "nowhere://bucket/out", schema="word string, count int")
    env.from_collection([("a", 1)], COUNTS).sink_to(sink).name("lake")
    expected = r"operator 'lake': Spark cannot write to 'nowhere://bucket/out': .*scheme.*package"
    with pytest.raises(JobDefinitionError, match=expected) as caught:
        env.execute()
    assert "\tat " not in str(caught.value)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_path_that_cannot_be_written_is_told_before_the_first_record(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path, checkpoints: bool
) -> None:
    """A sink that is exactly once is not silently less than that."""
    (tmp_path / "file").touch()
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part-0.parquet").touch()
    if checkpoints:
        env.enable_checkpointing(300)
        sink = DataFrameSink("json", str(tmp_path / "file/out"))
        expected = r"operator 'lake': cannot write to '.*/file/out': NotADirectoryError.*; let the"
    else:
        sink = DataFrameSink("delta", str(tmp_path / "rows"))
        expected = (
            r"operator 'lake': '.*/rows' is not a Delta table, and there is 'part-0\.parquet'"
        )
    env.from_collection([("a", 1)], COUNTS).sink_to(sink).name("lake")
    with pytest.raises(JobDefinitionError, match=expected):
        env.execute()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "part-0.parquet", "rows"]


@pytest.mark.usefixtures("engine")
def test_part_files_appear_with_their_epoch(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("to be\nor not\nto be\n")
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), source.as_uri()
    ).process_static_file_set()
    sink = (
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
        )
    )
    env.from_source(lines.build()).flat_map(str.split).sink_to(sink.build())
    env.execute()
    files = list((tmp_path / "out").iterdir())
    assert all(f.name.startswith("words-") and f.suffix == ".txt" for f in files)
    written = "".join(f.read_text() for f in files).split()
    assert sorted(written) == ["be", "be", "not", "or", "to", "to"]


def test_a_missing_input_file() -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/no/such")
    with pytest.raises(FileNotFoundError, match="no file or directory /no/such"):
        builder.build()
    elsewhere = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "s3://b/k")
    with pytest.raises(ValueError, match="only local paths"):
        elsewhere.build()


@dataclasses.dataclass(frozen=True)
class Published:
    """Opens when rows can be read in a directory."""

    directory: Path

    def __call__(self) -> bool:
        return any(self.directory.glob("word=*/*.parquet"))


@pytest.mark.usefixtures("engine")
def test_a_spark_writer_writes_each_row_once_through_a_restart(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.enable_checkpointing(100)
    env.set_parallelism(2)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    out, broken = tmp_path / "out", tmp_path / "broken"

    def fail_once(number: int) -> int:
        # rows were published by then, and others are in no checkpoint
        if number == 150 and not broken.exists():
            broken.touch()
            raise RuntimeError("once")
        return number

    numbers = env.from_source(Numbers(200, {100: Published(out)})).map(fail_once)
    rows = numbers.map(lambda n: (str(n % 2), n), COUNTS)
    rows.sink_to(DataFrameSink("parquet", str(out), partition_by=["word"]))
    env.execute()
    assert broken.exists()
    found = [row["count"] for row in spark.read.parquet(str(out)).collect()]
    assert sorted(found) == list(range(200))
    assert list((tmp_path / "checkpoints").rglob("rows/*/*.parquet")) == []
