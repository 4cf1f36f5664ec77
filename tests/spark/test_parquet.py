"""Parquet part files that jobs on Spark write: Spark itself, DuckDB and pyarrow read the same."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from holdfast.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)


@dataclasses.dataclass
class Item:
    product: str
    pieces: int | None


@dataclasses.dataclass
class Order:
    id: int
    price: Decimal
    at: datetime.datetime
    day: datetime.date
    items: list[Item]
    counts: dict[str, int]
    data: bytes
    note: str | None


def order(number: int) -> Order:
    return Order(
        number,
        Decimal(number) / 4,
        NOON + datetime.timedelta(hours=number),
        datetime.date(2026, 1, 1) + datetime.timedelta(days=number),
        [Item("tea", n or None) for n in range(number % 3)],
        {str(number): number},
        bytes([number]),
        None if number % 2 else f"note {number}",
    )


def plain(found: Order) -> tuple[Any, ...]:
    items = [(item.product, item.pieces) for item in found.items]
    moment = int(found.at.timestamp() * 1_000_000)
    return (
        *(found.id, found.price, moment, found.day, items, found.counts, found.data, found.note),
    )


def test_what_is_written_is_read_by_others_and_by_the_source(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    orders = [order(number) for number in range(40)]
    path = str(tmp_path / "out")
    builder = FileSink.for_bulk_format(path, ParquetBulkWriters.for_row_type(Order))
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    env.set_parallelism(2)
    env.from_collection(orders).rebalance().sink_to(builder.build())
    env.execute()
    expected = [plain(each) for each in orders]

    frame = spark.read.parquet(path).selectExpr(
        *("id", "price", "unix_micros(at)", "day", "items", "counts", "data", "note")
    )
    rows = sorted(map(tuple, frame.collect()))
    by_spark = [
        (*row[:4], [tuple(item) for item in row[4]], row[5], bytes(row[6]), row[7]) for row in rows
    ]
    assert by_spark == expected

    by_arrow = pq.read_table(path).sort_by("id").to_pylist()
    made = [
        Order(**{**row, "items": [Item(**i) for i in row["items"]], "counts": dict(row["counts"])})
        for row in by_arrow
    ]
    assert [plain(each) for each in made] == expected

    query = (
        f"select id, price, epoch_us(\"at\"), day, data, note from '{path}/*.parquet' order by id"
    )
    assert duckdb.sql(query).fetchall() == [
        (id_, price, at, day, data, note) for id_, price, at, day, _, _, data, note in expected
    ]

    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(Order), path).build()
    again = StreamExecutionEnvironment.get_execution_environment().from_source(source)
    found = sorted(again.execute_and_collect(), key=lambda each: each.id)
    assert [plain(each) for each in found] == expected
