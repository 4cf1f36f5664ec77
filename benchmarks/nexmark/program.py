"""A query as a job of Holdfast."""

from __future__ import annotations

from pathlib import Path

from benchmarks.nexmark.data import side_input
from benchmarks.nexmark.queries import QUERIES, watermarks
from benchmarks.nexmark.source import NexmarkSource
from holdfast.datastream import DataStream, StreamExecutionEnvironment

__all__ = ["program"]


def program(
    env: StreamExecutionEnvironment, query: str, directory: Path, endless: bool = False
) -> DataStream:
    """The results of a query over the events of a data set.

    Args:
        env: Where the job is built.
        query: Its name.
        directory: What `data.make` returned.
        endless: Whether the job goes on when all events were read.
    """
    events = env.from_source(NexmarkSource(directory, endless), watermarks(), "events")
    return QUERIES[query](events, str(side_input(directory)))
