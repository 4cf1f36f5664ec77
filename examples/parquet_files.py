"""Parquet files on both sides, exactly once, while the job fails in the middle.

The first job writes orders to Parquet files, in a directory per country. It fails once, goes back
to its last checkpoint and computes some orders again; the files have each order once. The second
job reads them, as objects of the same class, and adds up what a country has bought. Any other
reader of Parquet can do that as well. Prints:

    failed once, restarted, and wrote 6000 orders: none is lost, none is doubled
    CH bought for 20059.97 in 2000 orders

``--output PATH`` writes to a path of yours, also one that begins with ``s3a://`` or ``hdfs://``.
"""

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from holdfast.common import Configuration, RestartStrategies, WatermarkStrategy
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

ORDERS = 6000
COUNTRIES = ("CH", "FR", "IT")


@dataclass
class Order:
    """An order. Its fields are the columns of the files; ``note`` can be null."""

    id: int
    country: str
    price: Annotated[Decimal, pa.decimal128(12, 2)]
    at: datetime
    note: str | None = None


class MakeOrderAndFail(MapFunction):
    """Makes an order of its number; raises at one of them, once."""

    def __init__(self, marker: Path, fail_at: int) -> None:
        self.marker = marker
        self.fail_at = fail_at

    def map(self, value: int) -> Order:
        if value == self.fail_at and not self.marker.exists():
            self.marker.touch()
            msg = f"simulated failure at order {value}"
            raise RuntimeError(msg)
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
        return Order(value, COUNTRIES[value % 3], Decimal(1000 + value % 9) / 100, at)


def write(output: str, folder: Path) -> None:
    """Write all orders, with a failure in the middle."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"holdfast.epoch.max-records": "250"})
    )
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    numbers = env.from_source(
        NumberSequenceSource(0, ORDERS - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    sink = (
        FileSink.for_bulk_format(output, ParquetBulkWriters.for_row_type(Order))
        .with_bucket_assigner(BucketAssigner.field_bucket_assigner("country"))
        .build()
    )
    numbers.map(MakeOrderAndFail(folder / "failed", ORDERS * 3 // 4)).sink_to(sink)
    env.execute("orders to Parquet")


def read(output: str) -> list[Order]:
    """Return the orders of all files."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(Order), output).build()
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
    return list(orders.execute_and_collect("orders from Parquet"))


def main(output: str | None) -> None:
    """Write orders, read them again, and look at each."""
    with tempfile.TemporaryDirectory() as folder:
        output = output or f"{folder}/orders"
        write(output, Path(folder))
        assert (Path(folder) / "failed").exists()
        orders = read(output)
    found = Counter(order.id for order in orders)
    lost, doubled = set(range(ORDERS)) - found.keys(), [id_ for id_ in found if found[id_] > 1]
    if lost or doubled:
        raise SystemExit(f"{len(lost)} orders are lost, {len(doubled)} are doubled")
    print(f"failed once, restarted, and wrote {len(orders)} orders: none is lost, none is doubled")
    prices = [order.price for order in orders if order.country == "CH"]
    print(f"CH bought for {sum(prices)} in {len(prices)} orders")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write and read Parquet files exactly once.")
    parser.add_argument("--output", help="a new directory, on any file system; a temporary if not")
    main(parser.parse_args().output)
