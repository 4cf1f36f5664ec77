"""A query as a job of Holdfast."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from benchmarks.nexmark.columns import COLUMN_QUERIES
from benchmarks.nexmark.columns import streams as batches
from benchmarks.nexmark.data import side_input
from benchmarks.nexmark.queries import QUERIES, watermarks
from benchmarks.nexmark.source import NexmarkSource
from holdfast.datastream import DataStream, StreamExecutionEnvironment

__all__ = ["dropped", "program"]

#: What is left of batches that are dropped.
_NOTHING = pa.schema([("nothing", pa.null())])


def program(
    env: StreamExecutionEnvironment,
    query: str,
    directory: Path,
    endless: bool = False,
    in_columns: bool = False,
) -> DataStream:
    """The results of a query over the events of a data set.

    Args:
        env: Where the job is built.
        query: Its name.
        directory: What `data.make` returned.
        endless: Whether the job goes on when all events were read.
        in_columns: Whether it is the form in columns; results then are batches or tuples.
    """
    table = str(side_input(directory))
    if in_columns:
        form = COLUMN_QUERIES[query]
        source = NexmarkSource(directory, endless, form.columns)
        return form.build(env.from_source(source, batches.watermarks(), "events"), table)
    events = env.from_source(NexmarkSource(directory, endless), watermarks(), "events")
    return QUERIES[query](events, table)


def dropped(results: DataStream, query: str) -> DataStream:
    """The results of a query in columns without those that are batches: sinks take records."""
    if COLUMN_QUERIES[query].gives_batches:
        return results.map_batches(lambda batch: None, _NOTHING)
    return results
