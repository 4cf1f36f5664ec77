"""Sources that give batches, without a Python object for each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from holdfast.datastream import BatchTypeInfo, StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.file_system import FileSource
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.formats.parquet import ParquetColumnarRowInputFormat
from holdfast.testing import collect

_COLUMNS = pa.schema([("n", pa.int64()), ("later", pa.string())])
_TABLE = pa.table({"left out": pa.array(["x"] * 100), "n": pa.array(range(100), pa.int64())})


def _batches(source: Source) -> list[Any]:
    """The numbers that a source gives, doubled as columns, in small epochs of two workers."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_source(source)
    assert isinstance(stream.get_type(), BatchTypeInfo)
    name = stream.get_type().schema.names[0]
    doubled = stream.map_batches(
        lambda batch: {"n": pc.multiply(batch[name], 2)}, pa.schema([("n", pa.int64())])
    )
    assert "to_batches" not in [node.kind for node in env._graph.pending()]
    return sorted(collect(doubled.map(lambda row: row.n), quota=7, workers=2))


def test_numbers() -> None:
    assert _batches(NumberSequenceSource(0, 99).in_batches()) == list(range(0, 200, 2))


def test_parquet_files(tmp_path: Path) -> None:
    for part in range(3):
        pq.write_table(_TABLE.slice(40 * part, 40), tmp_path / f"{part}.parquet", row_group_size=15)
    kind = ParquetColumnarRowInputFormat(BatchTypeInfo(_COLUMNS), batch_size=10)
    source = FileSource.for_bulk_file_format(kind, str(tmp_path)).build()
    assert _batches(source) == list(range(0, 200, 2))


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_files(tmp_path: Path, codec: str) -> None:
    """In blocks of 15 records, from which every epoch takes some."""
    fastavro = pytest.importorskip("fastavro")
    from holdfast.datastream.formats.avro import AvroInputFormat, AvroSchema

    fields = [{"name": "n", "type": "long"}, {"name": "left out", "type": ["null", "string"]}]
    shape = {"type": "record", "name": "Number", "fields": fields}
    for part in range(3):
        rows = _TABLE.slice(40 * part, 40).to_pylist()
        with (tmp_path / f"{part}.avro").open("wb") as file:
            fastavro.writer(file, shape, rows, codec=codec, sync_interval=30)
    schema = pa.schema([("n", pa.int64())])
    kind = AvroInputFormat(AvroSchema(json.dumps(shape)), batch_type=BatchTypeInfo(schema))
    source = FileSource.for_bulk_file_format(kind, str(tmp_path)).build()
    assert _batches(source) == list(range(0, 200, 2))


def test_a_field_of_avro_that_does_not_fit_its_column_is_named(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    from holdfast.datastream.formats.avro import AvroInputFormat, AvroSchema

    shape = {"type": "record", "name": "A", "fields": [{"name": "n", "type": "string"}]}
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, shape, [{"n": "text"}])
    kind = BatchTypeInfo(pa.schema([("n", pa.int64())]))
    read = AvroInputFormat(AvroSchema(json.dumps(shape)), batch_type=kind)
    with pytest.raises(Exception, match=r"'n'.*'text'"):
        _batches(FileSource.for_bulk_file_format(read, str(tmp_path)).build())


def test_a_missing_column_that_cannot_be_null_is_named(tmp_path: Path) -> None:
    pq.write_table(_TABLE, tmp_path / "x.parquet")
    schema = pa.schema([pa.field("m", pa.int64(), nullable=False)])
    kind = ParquetColumnarRowInputFormat(BatchTypeInfo(schema))
    with pytest.raises(Exception, match="there is no column 'm', and it cannot be null"):
        _batches(FileSource.for_bulk_file_format(kind, str(tmp_path)).build())


def test_a_delta_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    from holdfast.datastream.connectors.delta import DeltaSource

    deltalake.write_deltalake(str(tmp_path / "table"), _TABLE)
    kind = pa.schema([("n", pa.int64())])
    source = DeltaSource.for_table(str(tmp_path / "table")).as_batches(kind).build()
    assert _batches(source) == list(range(0, 200, 2))


def test_an_iceberg_table(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from holdfast.datastream.connectors.iceberg import IcebergSource
    from tests.datastream.iceberg_tables import CATALOG, NAMESPACE, TABLE, catalog, properties

    where = properties(tmp_path)
    made = catalog(where)
    made.create_namespace(NAMESPACE)
    made.create_table(TABLE, _TABLE.schema).append(_TABLE)
    builder = IcebergSource.builder().set_catalog(CATALOG, where).set_table(TABLE)
    kind = BatchTypeInfo(pa.schema([("n", pa.int64())]))
    assert _batches(builder.set_row_type(kind).build()) == list(range(0, 200, 2))
