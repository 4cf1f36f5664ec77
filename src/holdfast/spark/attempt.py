"""One attempt of a job: one Structured Streaming query, each of whose micro-batches is an epoch.

The query's input is a stream of ticks, together with the DataFrames that the job reads. Its
``foreachBatch`` runs one Spark job per epoch and decides, from the acknowledgements, whether the
epoch becomes part of the job.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import dataclass, field

from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import DisagreementError, HoldfastError, JobExecutionError
from holdfast.plan.model import Plan
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.epochs import Barrier, EpochBook, EpochReport
from holdfast.runtime.failures import to_exception
from holdfast.spark.checkpoints import JobCheckpoints
from holdfast.spark.epoch import EpochOutcome, run_epoch
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.writer import Writers

_logger = logging.getLogger(__name__)
_KEPT_REPORTS = 10_000
_TRIES = 4


@dataclass
class Machinery:
    """What all attempts of a job share.

    Attributes:
        cancel_asked: set when the job should end after the epoch that runs.
        reports: what the accepted epochs did.
        last_epoch: the number of the last epoch that was begun, in any attempt.
    """

    plan: Plan
    job_id: str
    interval_ms: int
    rows: RowSources
    writers: Writers
    delivery: Delivery
    book: EpochBook
    checkpoints: JobCheckpoints
    broadcast: Broadcast[bytes]
    cancel_asked: threading.Event = field(default_factory=threading.Event)
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
            .queryName(f"{job.plan.name}-{uuid.uuid4().hex[:8]}")
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
            self._epoch(batch, epoch, closing=self._job.cancel_asked.is_set())
        except BaseException as error:
            self._error = self._error or _explain(error)
            self._over.set()
            raise

    def _epoch(self, batch: DataFrame, epoch: int, closing: bool) -> None:
        job = self._job
        barrier = job.checkpoints.epoch_starting(epoch)  # Step 1
        try:
            outcome, report, unneeded = self._agree(batch, epoch, closing, barrier)
        except BaseException as error:
            job.checkpoints.epoch_failed(epoch, str(error), again=False)
            raise
        job.writers.write(batch.sparkSession, job.delivery.deliver(outcome.results))
        failures = [ack.snapshot_failure for ack in outcome.acks if ack.snapshot_failure]
        job.checkpoints.epoch_accepted(epoch, barrier, failures, job.book, self._log)
        job.checkpoints.forget_files(unneeded)
        job.reports.append(report)
        del job.reports[:-_KEPT_REPORTS]
        if job.book.finished or closing:
            self._over.set()

    def _agree(
        self, batch: DataFrame, epoch: int, closing: bool, barrier: Barrier
    ) -> tuple[EpochOutcome, EpochReport, list[str]]:
        """Run an epoch until its subtasks agree on what they read (step 8)."""
        for attempt in range(1, _TRIES + 1):
            started = time.time()
            try:
                outcome = self._run_once(batch, epoch, closing, barrier)
                seconds = time.time() - started
                return outcome, *self._job.book.accept(epoch, outcome.acks, started, seconds)
            except DisagreementError as error:
                if attempt == _TRIES:
                    raise
                _logger.warning("epoch %d is discarded and run again: %s", epoch, error)
        raise AssertionError

    def _run_once(
        self, batch: DataFrame, epoch: int, closing: bool, barrier: Barrier
    ) -> EpochOutcome:
        job = self._job
        first = job.book.fresh and not closing
        blocks = job.rows.blocks(batch, job.broadcast, job.job_id, epoch, first)
        tasks = job.book.tasks(epoch, closing, barrier)
        outcome = run_epoch(batch.sparkSession, job.plan, job.broadcast, tasks, blocks)
        if outcome.failures:
            raise to_exception(outcome.failures[0])
        return outcome


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
