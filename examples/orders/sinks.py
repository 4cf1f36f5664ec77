"""Where the outputs go: to the console, to Parquet through Spark, or to exactly-once files."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from examples.orders.batch_sink import BatchSink
from examples.orders.pipeline import Outputs
from holdfast.common import Encoder
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
)

__all__ = ["BATCHES", "SinkKind", "attach"]

SinkKind = Literal["console", "parquet", "files"]

#: the directory of the batches, beside those of the other outputs
BATCHES = "batches"


def attach(outputs: Outputs, kind: SinkKind, directory: Path) -> None:
    """Give every output a sink; batches are files whatever the kind."""
    for name, stream in outputs._asdict().items():
        if name == "orders":
            batches = stream.add_sink(BatchSink(str(directory / BATCHES)))
            batches.uid(BATCHES).name(BATCHES)
        elif kind == "console":
            stream.print(name)
        else:
            sink = parquet(directory / name) if kind == "parquet" else json_lines(directory / name)
            stream.sink_to(sink).uid(f"{name}-{kind}").name(f"{name} to {kind}")


class JsonLine(Encoder):
    """A record as a line of JSON."""

    def encode(self, value: Any) -> bytes:
        return msgspec.json.encode(value) + b"\n"


def json_lines(directory: Path) -> FileSink:
    """Part files that appear with the checkpoint that contains them."""
    return (
        FileSink.for_row_format(str(directory), JsonLine())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig("part", ".jsonl"))
        .build()
    )


def parquet(directory: Path) -> DataFrameSink:
    """A table that Spark writes, epoch by epoch; in the same way, ``delta``."""
    return DataFrameSink("parquet", str(directory))
