"""One epoch as one Spark job: a stage per level, with the blocks shuffled in between."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block, decode_header
from holdfast.runtime.protocol import EpochTask
from holdfast.spark.exchange import BATCH_BYTES, ROW_SCHEMA
from holdfast.spark.worker import LevelTask

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # The log of a query is in local files. For these Spark's usual class starts processes, to look
    # at links and to set permissions, and an epoch waits for two entries.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # a query whose call to this process is never answered cannot be stopped: do not wait for ever
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # The agreement of step 8 does this, and lets an epoch run again where Spark would fail it: two
    # runs of a subtask never give the same bytes, for their stamps differ.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}


def query_session(session: SparkSession) -> SparkSession:
    """A session for one query, with the settings that epochs need; the user's is not touched."""
    own = session.newSession()
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    return own


def run_epoch(
    session: SparkSession,
    plan: Plan,
    job: Broadcast[bytes],
    tasks: Iterable[EpochTask],
    rows: DataFrame | None = None,
) -> EpochOutcome:
    """Run all levels over each other and collect what is for the driver.

    ``rows`` are blocks that were made from DataFrames; they feed level 0.
    """
    frame = rows
    for task in tasks:
        width = plan.levels[task.level].parallelism
        if frame is None:
            frame = session.range(0, width, 1, width).selectExpr("cast(id as int) as target")
        else:
            frame = frame.repartitionById(width, "target")
        frame = frame.mapInArrow(LevelTask(job, task), ROW_SCHEMA)
    assert frame is not None
    rows_out = frame.select("head", "data").collect()
    return sort_out(Block(decode_header(bytes(head)), bytes(data)) for head, data in rows_out)
