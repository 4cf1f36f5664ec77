"""One epoch as one Spark job: a stage per level, with the blocks shuffled in between."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.plan.model import Plan
from holdfast.runtime.wire.blocks import Block, decode_header
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.spark.exchange import BATCH_BYTES, ROW_SCHEMA
from holdfast.spark.worker import LevelTask, ShippedJob

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # The log of a query is in local files. Spark's default class starts processes for these, to
    # check links and to set permissions, and an epoch waits for two entries.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # a query whose call to this process is never answered cannot be stopped: do not wait forever
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Step 8 checks this itself, and repeats an epoch where Spark would fail it. Two
    # runs of a subtask never produce the same bytes, because their stamps differ.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}


def query_session(session: SparkSession) -> SparkSession:
    """Return a new session for one query, with the settings that epochs need."""
    own = session.newSession()
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    return own


def run_epoch(
    session: SparkSession,
    plan: Plan,
    job: ShippedJob,
    tasks: Iterable[EpochTask],
    rows: DataFrame | None = None,
) -> EpochOutcome:
    """Run all levels as consecutive stages, and collect the blocks for the driver.

    ``rows`` are blocks of the rows of DataFrames; they are the input of level 0.
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
