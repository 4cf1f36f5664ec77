"""One attempt of a job: one Structured Streaming query, each of whose micro-batches is an epoch.

The query's input is a stream of ticks, together with the DataFrames that the job reads. Its
``foreachBatch`` runs one Spark job per epoch and decides, from the acknowledgements, whether the
epoch becomes part of the job.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.driver.driver import JobDriver
from holdfast.errors import HoldfastError, JobExecutionError
from holdfast.runtime.epochs import EpochReport
from holdfast.runtime.outcome import EpochOutcome
from holdfast.runtime.protocol import EpochTask
from holdfast.spark.epoch import run_epoch
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.writer import Writers

_KEPT_REPORTS = 10_000


@dataclass
class Machinery:
    """What all attempts of a job share.

    Attributes:
        reports: what the accepted epochs did.
        last_epoch: the number of the last epoch that was begun, in any attempt.
    """

    driver: JobDriver
    job_id: str
    interval_ms: int
    rows: RowSources
    writers: Writers
    broadcast: Broadcast[bytes]
    reports: list[EpochReport] = field(default_factory=list)
    last_epoch: int = -1


class Attempt:
    """A query that runs from its start to its end or its failure."""

    def __init__(self, job: Machinery, log: OffsetLog, first_batch: int) -> None:
        """Epochs go on from the job's last one; ``first_batch`` is Spark's number of the first."""
        self._job = job
        self._log = log
        self._first_epoch = job.last_epoch + 1
        self._first_batch = first_batch
        self._over = threading.Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the query."""
        job = self._job
        writer = (
            job.rows.stream()
            .writeStream.foreachBatch(self._run_epoch)
            .queryName(f"{job.driver.plan.name}-{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", str(self._log.directory))
            .trigger(processingTime=f"{job.interval_ms} milliseconds")
        )
        self._query: StreamingQuery = writer.start()

    def wait(self) -> BaseException | None:
        """Wait until the last epoch is done or the query has failed; returns why it failed."""
        while not self._over.wait(0.02):
            if not self._query.isActive:
                break
        failure = self._stop_query()
        if self._error is not None:
            self._error.__cause__ = self._error.__cause__ or failure
        elif failure is not None and not self._over.is_set():
            self._error = _explain(failure)
        return self._error

    def _stop_query(self) -> Exception | None:
        """Stop the query; returns the exception that it ended with."""
        try:
            if self._error is not None:
                self._query.awaitTermination(10)
            self._query.stop()
            return self._query.exception()
        except Exception as error:
            return error

    def _run_epoch(self, batch: DataFrame, number: int) -> None:
        """Called by Spark for every micro-batch."""
        if self._over.is_set():
            return
        epoch = self._first_epoch + number - self._first_batch
        self._log.batch = number
        self._job.last_epoch = epoch
        try:
            self._epoch(batch, epoch)
        except BaseException as error:
            self._error = self._error or _explain(error)
            self._over.set()
            raise

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        job, session = self._job, batch.sparkSession

        def execute(tasks: Sequence[EpochTask]) -> EpochOutcome:
            first = job.driver.book.fresh and not tasks[0].closing
            blocks = job.rows.blocks(batch, job.broadcast, job.job_id, epoch, first)
            return run_epoch(session, job.driver.plan, job.broadcast, tasks, blocks)

        report = job.driver.epoch(
            epoch, execute, lambda blocks: job.writers.write(session, blocks), self._log.entries
        )
        job.reports.append(report)
        del job.reports[:-_KEPT_REPORTS]
        if job.driver.over:
            self._over.set()


def _explain(error: BaseException) -> BaseException:
    """Our own exceptions as they are; Spark's with what it says, without its stack."""
    if isinstance(error, HoldfastError):
        return error
    text = str(error)
    if isinstance(error, PySparkException) or "py4j" in type(error).__module__:
        text = text.split("\n\tat ")[0].strip()
    explained = JobExecutionError(f"Spark could not run an epoch: {text[:2000]}")
    explained.__cause__ = error
    return explained
