"""Where the outputs go: to the console, to a table that Spark writes, or to exactly-once files.

One of them is written as Parquet, too, exactly once as well.
"""

from importlib.util import find_spec
from typing import Any, Literal

import msgspec

from examples.orders.batch_sink import BatchSink
from examples.orders.events import OrderStatus
from examples.orders.pipeline import Outputs
from holdfast.common import Encoder
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
)
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.filesystem import join

__all__ = ["BATCHES", "PARQUET", "SinkKind", "attach", "missing_for"]

SinkKind = Literal["console", "parquet", "delta", "files"]

_encode = msgspec.json.Encoder().encode

#: the directory of the batches, beside those of the other outputs
BATCHES = "batches"
#: the directory of the statuses in Parquet
PARQUET = "statuses_parquet"


def attach(outputs: Outputs, kind: SinkKind, directory: str) -> None:
    """Give every output a sink; batches are files whatever the kind."""
    for name, stream in outputs._asdict().items():
        if name == "orders":
            batches = stream.add_sink(BatchSink(join(directory, BATCHES)))
            batches.uid(BATCHES).name(BATCHES)
        elif kind == "console":
            stream.print(name)
        else:
            path = join(directory, name)
            sink = json_lines(path) if kind == "files" else DataFrameSink(kind, path)
            stream.sink_to(sink).uid(f"{name}-{kind}").name(f"{name} to {kind}")
    if kind == "files":
        statuses = outputs.statuses.sink_to(parquet(join(directory, PARQUET)))
        statuses.uid("statuses-parquet").name("statuses to parquet")


def missing_for(kind: SinkKind) -> str | None:
    """What a kind of sink needs and this environment does not have; None if nothing is missing."""
    if kind == "delta" and find_spec("delta") is None:
        return (
            "--sink delta needs Delta Lake: install delta-spark and give its jars to Spark. "
            "No release of it is for Spark 4.3 yet (4.4.1 is for 4.0 to 4.2); use --sink parquet"
        )
    return None


class JsonLine(Encoder):
    """A record as a line of JSON."""

    def encode(self, value: Any) -> bytes:
        return _encode(value) + b"\n"


def json_lines(directory: str) -> FileSink:
    """Part files that appear with the checkpoint that contains them."""
    return (
        FileSink.for_row_format(directory, JsonLine())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig("part", ".jsonl"))
        .build()
    )


def parquet(directory: str) -> FileSink:
    """Parquet files of statuses, which appear as the other part files do."""
    return (
        FileSink.for_bulk_format(directory, ParquetBulkWriters.for_row_type(OrderStatus))
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
