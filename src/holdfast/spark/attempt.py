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
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.driver.book import EpochReport
from holdfast.driver.driver import JobDriver
from holdfast.driver.outcome import EpochOutcome
from holdfast.errors import SparkLostError
from holdfast.printable import printable
from holdfast.runtime.protocol import EpochTask
from holdfast.spark.epoch import run_epoch
from holdfast.spark.jvm import DriverJvm
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.writer import Writers

_KEPT_REPORTS = 10_000
#: between two looks at the query, in seconds
_LOOK = 0.02


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
    jvm: DriverJvm
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
        self._given_up = False
        #: held while an epoch runs
        self._running = threading.Lock()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the query."""
        job = self._job
        writer = (
            job.rows.stream()
            .writeStream.foreachBatch(self._run_epoch)
            .queryName(f"{printable(job.driver.plan.name)}-{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", str(self._log.directory))
            .trigger(processingTime=f"{job.interval_ms} milliseconds")
        )
        self._query: StreamingQuery = writer.start()

    def wait(self) -> BaseException | None:
        """Wait until the last epoch is done or the query has failed; returns why it failed."""
        problem = self._watch()
        self._given_up = True
        if isinstance(problem, SparkLostError):
            self._job.driver.abandon(problem)
        elif not isinstance(self._error, SparkLostError):
            problem = self._stop_query() or problem
        # NB: an epoch may still run although its query has ended; no other may begin before its end
        with self._running:
            if self._error is not None and self._error is not problem:
                self._error.__cause__ = self._error.__cause__ or problem
            elif problem is not None and not self._over.is_set():
                self._error = self._job.jvm.explain(problem)
            return self._error

    def stop(self) -> None:
        """End an attempt that nobody has waited for."""
        self._over.set()
        self._stop_query()

    def _watch(self) -> BaseException | None:
        """Wait for the end of the query; returns why nobody can know of it, if that is so."""
        jvm = self._job.jvm
        try:
            while not self._over.wait(_LOOK):
                jvm.check()
                if not self._query.isActive:
                    break
        except Exception as error:
            return jvm.explain(error)
        return None

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
        with self._running:
            if self._over.is_set() or self._given_up:
                return
            epoch = self._first_epoch + number - self._first_batch
            self._log.batch = number
            self._job.last_epoch = epoch
            try:
                self._epoch(batch, epoch)
            except BaseException as error:
                self._error = self._job.jvm.explain(error)
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
