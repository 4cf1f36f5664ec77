"""A job as one Structured Streaming query: each micro-batch is an epoch.

The query's input is a stream of ticks, together with the DataFrames that the job reads. Its
``foreachBatch`` runs one Spark job per epoch and decides, from the acknowledgements, whether the
epoch becomes part of the job.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.common.job_status import JobStatus
from holdfast.datastream.shipment import Shipment
from holdfast.errors import (
    DisagreementError,
    HoldfastError,
    JobCancelledError,
    JobExecutionError,
)
from holdfast.plan.model import Plan
from holdfast.runtime.delivery import CollectedRecords, Delivery
from holdfast.runtime.epochs import EpochBook, EpochReport
from holdfast.runtime.failures import to_exception
from holdfast.runtime.job import make_job_code, pack
from holdfast.spark.directory import JobDirectory
from holdfast.spark.epoch import EpochOutcome, query_session, run_epoch
from holdfast.spark.rows import RowSources
from holdfast.spark.session import is_local
from holdfast.spark.shipping import deliver_shipment
from holdfast.spark.writer import Writers
from holdfast.state.storage import LocalStateStorage

_logger = logging.getLogger(__name__)
_KEPT_REPORTS = 10_000
_TRIES = 4


@dataclass(frozen=True)
class JobSettings:
    """What the configuration says about how a job runs.

    Attributes:
        interval_ms: the interval of epochs.
        largest_epoch: how many records a source subtask reads in one epoch at most.
        directory: where the job's directory is made; None for the system's temporary one.
        parameters: the global job parameters.
        shipment: what the workers get besides the job.
    """

    interval_ms: int
    largest_epoch: int
    directory: str | None
    parameters: Mapping[str, str]
    shipment: Shipment


class SparkJob:
    """A started job: its query, its book, and how it ends."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        job_id: str,
        settings: JobSettings,
        collected: dict[int, CollectedRecords] | None = None,
    ) -> None:
        """Check that everything can be sent to the workers; nothing runs yet."""
        self.plan = plan
        self.job_id = job_id
        self.status = JobStatus.CREATED
        self.reports: list[EpochReport] = []
        self._session = session
        self._interval_ms = settings.interval_ms
        self._directory = JobDirectory(settings.directory)
        self._storage = LocalStateStorage(self._directory.path / "state")
        self._collected = collected or {}
        self._delivery = Delivery(plan, self._collected)
        self._book = EpochBook(job_id, plan, settings.largest_epoch)
        self._cancel_asked = threading.Event()
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self.on_end: Callable[[], None] | None = None
        self._last_epoch = -1
        try:
            self._paths = deliver_shipment(
                session.sparkContext, settings.shipment, self._directory.path
            )
            self._rows = RowSources(query_session(session), plan)
            self._writers = Writers(plan)
            directory = str(self._directory.path)
            self._code = make_job_code(
                job_id, self._writers.plan, directory, settings.parameters, is_local(session)
            )
        except BaseException:
            self._directory.remove()
            raise

    def start(self) -> None:
        """Start the query and the thread that watches over its end."""
        self._broadcast = self._session.sparkContext.broadcast(pack(self._code, self._paths))
        self._started = time.time()
        writer = (
            self._rows.stream()
            .writeStream.foreachBatch(self._run_epoch)
            .queryName(f"{self.plan.name}-{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", str(self._directory.path / "spark"))
            .trigger(processingTime=f"{self._interval_ms} milliseconds")
        )
        self.status = JobStatus.RUNNING
        try:
            self._query: StreamingQuery = writer.start()
        except BaseException:
            self._clean_up()
            raise
        threading.Thread(target=self._watch, name="holdfast-job", daemon=True).start()

    def cancel(self) -> None:
        """Ask the job to end now, after the epoch that runs."""
        if not self._ended.is_set():
            self.status = JobStatus.CANCELLING
            self._cancel_asked.set()

    @property
    def error(self) -> BaseException | None:
        """Why the job failed, if it did."""
        return self._error

    @property
    def net_runtime_ms(self) -> int:
        """How long the job ran."""
        return int((self._stopped - self._started) * 1000)

    def metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Users' metrics as of the last epoch, by operator uid and subtask."""
        return dict(self._book.metrics)

    def _run_epoch(self, batch: DataFrame, epoch: int) -> None:
        """Called by Spark for every micro-batch."""
        if self._over.is_set():
            return
        try:
            self._epoch(batch, epoch, closing=self._cancel_asked.is_set())
        except BaseException as error:
            self._error = self._error or _explain(error)
            self._over.set()
            raise

    def _epoch(self, batch: DataFrame, epoch: int, closing: bool) -> None:
        outcome, report, unneeded = self._agree(batch, epoch, closing)
        self._last_epoch = epoch
        self._writers.write(batch.sparkSession, self._delivery.deliver(outcome.results))
        for name in unneeded:
            self._storage.delete(name)
        self.reports.append(report)
        del self.reports[:-_KEPT_REPORTS]
        if self._book.finished or closing:
            self._over.set()

    def _agree(
        self, batch: DataFrame, epoch: int, closing: bool
    ) -> tuple[EpochOutcome, EpochReport, list[str]]:
        """Run an epoch until its subtasks agree on what they read (step 8)."""
        for attempt in range(1, _TRIES + 1):
            started = time.time()
            try:
                outcome = self._run_once(batch, epoch, closing)
                seconds = time.time() - started
                return outcome, *self._book.accept(epoch, outcome.acks, started, seconds)
            except DisagreementError as error:
                if attempt == _TRIES:
                    raise
                _logger.warning("epoch %d is discarded and run again: %s", epoch, error)
        raise AssertionError

    def _run_once(self, batch: DataFrame, epoch: int, closing: bool) -> EpochOutcome:
        first = self._last_epoch < 0 and not closing
        blocks = self._rows.blocks(batch, self._broadcast, self.job_id, epoch, first)
        tasks = self._book.tasks(epoch, closing)
        outcome = run_epoch(batch.sparkSession, self.plan, self._broadcast, tasks, blocks)
        if outcome.failures:
            raise to_exception(outcome.failures[0])
        return outcome

    def _watch(self) -> None:
        """Wait until the last epoch is done or the query has failed; then leave nothing behind."""
        while not self._over.wait(0.02):
            if not self._query.isActive:
                break
        failure = self._stop_query()
        if self._error is not None:
            self._error.__cause__ = self._error.__cause__ or failure
        elif failure is not None and not self._over.is_set():
            self._error = _explain(failure)
        self._finish()

    def _stop_query(self) -> Exception | None:
        """Stop the query; returns the exception that it ended with."""
        try:
            if self._error is not None:
                self._query.awaitTermination(10)
            self._query.stop()
            return self._query.exception()
        except Exception as error:
            return error

    def _finish(self) -> None:
        self._stopped = time.time()
        self._clean_up()
        if self._error is not None:
            self.status = JobStatus.FAILED
        elif self._cancel_asked.is_set() and not self._book.finished:
            self.status = JobStatus.CANCELED
            self._error = JobCancelledError(f"job '{self.plan.name}' was cancelled")
        else:
            self.status = JobStatus.FINISHED
        for collected in self._collected.values():
            collected.end(self._error)
        self._ended.set()
        if self.on_end is not None:
            self.on_end()

    def _clean_up(self) -> None:
        self._directory.remove()
        try:
            self._broadcast.destroy()
        except Exception as error:
            _logger.debug("the job's broadcast could not be destroyed: %s", error)


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
