"""A job on Spark: attempts, one after the other, until it finishes, is cancelled or gives up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from holdfast.checkpoint.events import CheckpointRecord, Outcome
from holdfast.checkpoint.metadata import CheckpointMetadata
from holdfast.checkpoint.restart import GiveUp
from holdfast.common import Configuration, ExecutionConfig
from holdfast.common.job_status import JobStatus
from holdfast.datastream.shipment import Shipment
from holdfast.errors import JobCancelledError
from holdfast.plan.model import Plan
from holdfast.runtime.delivery import CollectedRecords, Delivery
from holdfast.runtime.epochs import EpochBook, EpochReport
from holdfast.runtime.job import make_job_code, pack
from holdfast.spark.attempt import Attempt, Machinery
from holdfast.spark.checkpoints import JobCheckpoints
from holdfast.spark.directory import JobDirectory
from holdfast.spark.epoch import query_session
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.session import is_local
from holdfast.spark.shipping import deliver_shipment
from holdfast.spark.writer import Writers

_logger = logging.getLogger(__name__)
_LARGEST_EPOCH = "holdfast.epoch.max-records"
_DEFAULT_LARGEST_EPOCH = 1_000_000
_DIRECTORY = "holdfast.directory"


@dataclass(frozen=True)
class JobSettings:
    """How a job runs.

    Attributes:
        configuration: the environment's.
        interval_ms: the interval of epochs.
        shipment: what the workers get besides the job.
    """

    configuration: Configuration
    interval_ms: int
    shipment: Shipment


class SparkJob:
    """A started job: its attempts, and how it ends."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        job_id: str,
        settings: JobSettings,
        collected: dict[int, CollectedRecords] | None = None,
    ) -> None:
        """Check that everything can be sent to the workers; nothing runs yet."""
        configuration = settings.configuration
        self.plan = plan
        self.job_id = job_id
        self.status = JobStatus.CREATED
        self.error: BaseException | None = None
        self.on_end: Callable[[], None] | None = None
        self._collected = collected or {}
        self._cancel_asked = threading.Event()
        self._ended = threading.Event()
        self._directory = JobDirectory(configuration.to_dict().get(_DIRECTORY))
        try:
            self._job = self._prepare(session, settings)
        except BaseException:
            self._directory.remove()
            raise

    def _prepare(self, session: SparkSession, settings: JobSettings) -> Machinery:
        configuration, scratch = settings.configuration, self._directory.path
        context = session.sparkContext
        paths = deliver_shipment(context, settings.shipment, scratch)
        rows, writers = RowSources(query_session(session), self.plan), Writers(self.plan)
        checkpoints = JobCheckpoints(configuration, self.plan, scratch)
        code = make_job_code(
            self.job_id,
            writers.plan,
            str(scratch),
            ExecutionConfig(configuration).get_global_job_parameters(),
            is_local(session),
            str(checkpoints.store.storage.directory),
        )
        largest = configuration.get_integer(_LARGEST_EPOCH, _DEFAULT_LARGEST_EPOCH)
        return Machinery(
            plan=self.plan,
            job_id=self.job_id,
            interval_ms=settings.interval_ms,
            rows=rows,
            writers=writers,
            delivery=Delivery(self.plan, self._collected),
            book=EpochBook(self.job_id, self.plan, largest),
            checkpoints=checkpoints,
            broadcast=context.broadcast(pack(code, paths)),
            cancel_asked=self._cancel_asked,
        )

    def start(self) -> None:
        """Start the first attempt, and the thread that watches over the job's end.

        Raises:
            CheckpointError: when the checkpoint directory is in use, or cannot be read.
        """
        self._started = time.time()
        try:
            attempt = self._begin(self._job.checkpoints.open(), 0)
        except BaseException:
            self._job.checkpoints.store.release()
            self._clean_up()
            raise
        self.status = JobStatus.RUNNING
        threading.Thread(
            target=self._watch, args=(attempt,), name="holdfast-job", daemon=True
        ).start()

    def cancel(self) -> None:
        """Ask the job to end now, after the epoch that runs."""
        if not self._ended.is_set():
            self.status = JobStatus.CANCELLING
            self._cancel_asked.set()

    @property
    def reports(self) -> list[EpochReport]:
        """What the accepted epochs did."""
        return list(self._job.reports)

    @property
    def net_runtime_ms(self) -> int:
        """How long the job ran."""
        return int((self._stopped - self._started) * 1000)

    def metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Users' metrics as of the last epoch, by operator uid and subtask."""
        return dict(self._job.book.metrics)

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints, oldest first."""
        return self._job.checkpoints.history()

    def _begin(self, metadata: CheckpointMetadata | None, number: int) -> Attempt:
        """Start an attempt from a checkpoint, or from the beginning."""
        job = self._job
        chains = [level.chains for level in metadata.levels] if metadata else None
        job.book.begin_attempt(number, chains)
        if metadata is not None:
            job.last_epoch = max(job.last_epoch, metadata.epoch)
        log = OffsetLog(self._directory.path / f"spark-{number}", job.rows.streams)
        first_batch = log.start_from(metadata.spark) if metadata else 0
        attempt = Attempt(job, log, first_batch)
        attempt.start()
        return attempt

    def _watch(self, attempt: Attempt) -> None:
        """Run attempts until the job is over; then leave nothing behind."""
        number = 0
        while True:
            failure = attempt.wait()
            self._end_sources(number)
            if failure is None or self._cancel_asked.is_set() or self._gives_up(failure):
                break
            number += 1
            try:
                attempt = self._begin(self._job.checkpoints.restart(), number)
            except BaseException as error:
                failure = error
                break
            self.status = JobStatus.RUNNING
        self._finish(failure)

    def _gives_up(self, failure: BaseException) -> bool:
        """Ask the restart strategy; waits for as long as it says."""
        decision = self._job.checkpoints.after_failure()
        if isinstance(decision, GiveUp):
            return True
        self.status = JobStatus.RESTARTING
        _logger.warning(
            "job '%s' failed and starts again in %.1f s: %s",
            self.plan.name,
            decision.after_ms / 1000,
            str(failure).splitlines()[0],
        )
        return self._cancel_asked.wait(decision.after_ms / 1000)

    def _end_sources(self, attempt: int) -> None:
        """The processes of source functions watch their registration; without it they end."""
        for registration in (self._directory.path / "sources").glob(f"*-{attempt}.json"):
            registration.unlink(missing_ok=True)

    def _finish(self, failure: BaseException | None) -> None:
        self._stopped = time.time()
        self.error = failure
        cancelled = self._cancel_asked.is_set() and not self._job.book.finished
        if failure is None and cancelled:
            self.error = JobCancelledError(f"job '{self.plan.name}' was cancelled")
            status, outcome = JobStatus.CANCELED, Outcome.CANCELLED
        elif failure is not None:
            status, outcome = JobStatus.FAILED, Outcome.FAILED
        else:
            status, outcome = JobStatus.FINISHED, Outcome.FINISHED
        try:
            self._job.checkpoints.end(outcome)
        except Exception as error:
            _logger.warning("the job's checkpoints could not be closed: %s", error)
        self._clean_up()
        self.status = status
        for collected in self._collected.values():
            collected.end(self.error)
        self._ended.set()
        if self.on_end is not None:
            self.on_end()

    def _clean_up(self) -> None:
        self._directory.remove()
        try:
            self._job.broadcast.destroy()
        except Exception as error:
            _logger.debug("the job's broadcast could not be destroyed: %s", error)
