"""Avro files of a FileSink and for a FileSource."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import fastavro
import pytest

from holdfast.common import Row
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from holdfast.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from holdfast.errors import UserFunctionError
from holdfast.testing import Crash, EndOfEpoch, LocalExecutor, ScriptedSource, collect

TEXT = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
SCHEMA = AvroSchema.parse_string(TEXT)
ORDERS = [Row(id=n, note=None if n % 2 else f"note {n}") for n in range(40)]


def write(stream: Any, path: Path) -> None:
    builder = FileSink.for_bulk_format(str(path), AvroBulkWriters.for_generic_record(SCHEMA))
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    stream.sink_to(builder.build()).name("orders")


def test_a_job_that_crashes_writes_every_record_once(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.enable_checkpointing("1 h")
    script = [*ORDERS[:10], EndOfEpoch(), *ORDERS[10:20], EndOfEpoch(), Crash(), *ORDERS[20:]]
    write(env.from_source(ScriptedSource(script)), tmp_path / "out")
    with LocalExecutor(env, workers=2) as run:
        run.epoch()
        run.epoch(checkpoint=True)
        with pytest.raises(UserFunctionError, match="SimulatedCrash"):
            run.epoch()
        run.recover()
        run.run_to_end()
    files = sorted((tmp_path / "out").glob("*.avro"))
    assert len(files) == 2
    streams = [io.BytesIO(file.read_bytes()) for file in files]
    by_avro: list[Any] = [record for stream in streams for record in fastavro.reader(stream)]
    assert sorted(by_avro, key=lambda record: record["id"]) == [row.as_dict() for row in ORDERS]
    source = FileSource.for_bulk_file_format(AvroInputFormat(SCHEMA), str(tmp_path / "out"))
    read = StreamExecutionEnvironment.get_execution_environment().from_source(source.build())
    assert sorted(collect(read, quota=7), key=lambda row: row.id) == ORDERS


def test_a_record_that_does_not_fit_fails_the_job(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    write(env.from_collection([Row(id=1, note="a"), Row(id=2**40, note="b")]), tmp_path / "out")
    with LocalExecutor(env) as run, pytest.raises(UserFunctionError) as caught:
        run.run_to_end()
    assert "a record does not fit the Avro schema" in str(caught.value)
    assert "Order.id is <1099511627776> of type <class 'int'> expected int" in str(caught.value)
    assert list((tmp_path / "out").glob("*.avro")) == []


@pytest.mark.parametrize("compression", ["deflate", "bzip2", "xz", "null"])
def test_files_are_merged_and_read_from_any_record(compression: str) -> None:
    factory = AvroBulkWriters.for_generic_record(SCHEMA, compression=compression)
    files = []
    for first in (0, 20):
        stream = io.BytesIO()
        writer = pickle.loads(pickle.dumps(factory)).create(stream)
        for number, order in enumerate(ORDERS[first : first + 20]):
            writer.add_element(order if number % 2 else order.as_dict())
            if number == 12:
                writer.flush()
        writer.finish()
        files.append(io.BytesIO(stream.getvalue()))
    whole = io.BytesIO()
    factory.merge(files, whole)
    for start in (0, 1, 12, 13, 20, 39, 40):
        reader = AvroInputFormat(SCHEMA).open(io.BytesIO(whole.getvalue()))
        assert [row for batch in reader.read(start) for row in batch] == ORDERS[start:]


def test_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"compression must be one of deflate, .*; got 'zip'"):
        AvroBulkWriters.for_generic_record(SCHEMA, compression="zip")
    (tmp_path / "schema.json").write_text(TEXT)
    assert AvroSchema.parse_file(str(tmp_path / "schema.json"))._schema == SCHEMA._schema
