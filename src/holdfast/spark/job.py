"""A job on Spark: attempts, one after the other, until it finishes, is cancelled or gives up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from holdfast.checkpoint.events import CheckpointRecord, Outcome
from holdfast.checkpoint.restart import GiveUp
from holdfast.common import CompletableFuture, Configuration, ExecutionConfig
from holdfast.common.job_status import JobStatus
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.checkpoints import JobCheckpoints
from holdfast.driver.driver import JobDriver
from holdfast.driver.queries import query_state
from holdfast.driver.recording import Recorder
from holdfast.driver.rescaling import rescaled
from holdfast.errors import HoldfastError, JobCancelledError, JobExecutionError
from holdfast.filesystem import configure, hadoop_options
from holdfast.history.job import JobHistory
from holdfast.history.journal import open_journal
from holdfast.plan.model import Plan
from holdfast.rest.options import rest_options
from holdfast.rest.serving import serve
from holdfast.runtime.delivery import CollectedRecords
from holdfast.runtime.epochs import AttemptReport, EpochReport
from holdfast.runtime.job import make_job_code, new_key, pack
from holdfast.spark.attempt import Attempt, Machinery
from holdfast.spark.directory import make_job_directory
from holdfast.spark.epoch import query_session
from holdfast.spark.hadoop import hadoop_settings
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.session import is_local
from holdfast.spark.shipping import deliver_shipment
from holdfast.spark.writer import Writers
from holdfast.state.errors import StateError, StateStorageError

_logger = logging.getLogger(__name__)
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
        self._recorder = Recorder()
        self._recorder.job(job_id, plan, configuration)
        self._rest = rest_options(configuration)
        self._stop_serving: Callable[[], None] = lambda: None
        self._set_status(JobStatus.CREATED)
        self.error: BaseException | None = None
        self.on_end: Callable[[], None] | None = None
        self.attempts: list[AttemptReport] = []
        self._collected = collected or {}
        self._ended = threading.Event()
        self._state = state_settings(configuration)
        self._session, self._settings = session, settings
        self._rescaling: _Rescaling | None = None
        self._key = new_key()
        self._directory = make_job_directory(configuration.to_dict().get(_DIRECTORY))
        try:
            context = session.sparkContext
            self._paths = deliver_shipment(context, settings.shipment, self._directory.path)
            self._file_systems = hadoop_options(hadoop_settings(context) | configuration.to_dict())
            configure(self._file_systems)
            self._job = self._prepare(plan)
            self._keep_history()
        except BaseException:
            self._directory.remove()
            raise

    def _prepare(self, plan: Plan) -> Machinery:
        session, configuration = self._session, self._settings.configuration
        scratch = self._directory.path
        # workers keep what they know of a plan under its name
        name = self.job_id if not self.attempts else f"{self.job_id}-{len(self.attempts)}"
        driver = JobDriver(
            plan,
            name,
            configuration,
            scratch,
            collected=self._collected,
            recorder=self._recorder,
        )
        try:
            self.plan = driver.plan
            rows, writers = RowSources(query_session(session), self.plan), Writers(self.plan)
            code = make_job_code(
                name,
                writers.plan,
                str(scratch),
                ExecutionConfig(configuration).get_global_job_parameters(),
                is_local(session),
                driver.checkpoints.store.state.address,
                driver.faults,
                self._file_systems,
                self._state,
                driver.checkpoints.store.staging,
                key=self._key,
            )
            broadcast = session.sparkContext.broadcast(pack(code, self._paths))
        except BaseException:
            driver.checkpoints.store.release()
            raise
        interval = self._settings.interval_ms
        return Machinery(driver, name, interval, rows, writers, broadcast)

    def _keep_history(self) -> None:
        if self._checkpoints.kept:
            store, scratch = self._checkpoints.store, self._directory.path
            place = str(store.directory)
            journal = open_journal(store.files, place, self.job_id, self.history, scratch)
            self._recorder.keep_in(journal)

    def start(self) -> None:
        """Start the first attempt, and the thread that watches over the job's end."""
        self._started = time.time()
        try:
            self._stop_serving = serve(self, self._rest)
            attempt = self._begin(0)
        except BaseException:
            self._recorder.status(JobStatus.FAILED)
            self._recorder.close()
            self._stop_serving()
            self._checkpoints.store.release()
            self._clean_up()
            raise
        self._set_status(JobStatus.RUNNING)
        threading.Thread(
            target=self._watch, args=(attempt,), name="holdfast-job", daemon=True
        ).start()

    def cancel(self) -> None:
        """Ask the job to end now, after the epoch that runs."""
        if not self._ended.is_set():
            self._set_status(JobStatus.CANCELLING)
            self._job.driver.cancel_asked.set()

    def checkpoint(self) -> CompletableFuture[int]:
        """Ask for a checkpoint with the next epoch; the future is done with its id."""
        checkpoints = self._checkpoints
        answer = checkpoints.ask_checkpoint()
        self._refuse_if_late(checkpoints)
        return answer

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Ask for a savepoint with the next epoch; the future is done with its path."""
        checkpoints = self._checkpoints
        answer = checkpoints.ask_savepoint(directory, stop, drain)
        self._refuse_if_late(checkpoints)
        return answer

    def _refuse_if_late(self, asked: JobCheckpoints) -> None:
        """Answer what nobody else will: the job, or that driver of it, has ended meanwhile."""
        if self._ended.is_set() or asked is not self._checkpoints:
            asked.refuse_savepoints()

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Go on from a new checkpoint with another parallelism; done when the job runs like that.

        Raises:
            JobDefinitionError: when the job cannot run like that.
            JobExecutionError: when it does not run, or is being rescaled.
        """
        plan = rescaled(self.plan, parallelism)
        if self._ended.is_set() or self._rescaling is not None:
            what = "has ended" if self._ended.is_set() else "is being rescaled already"
            raise JobExecutionError(f"job '{self.plan.name}' {what}")
        change = self._rescaling = _Rescaling(plan)
        driver = self._job.driver

        def go_on(asked: CompletableFuture[int]) -> None:
            failure = asked.exception()
            if failure is None:
                driver.leaving = True
            else:
                self._end_rescaling(failure)

        self.checkpoint().add_done_callback(go_on)
        return change.done

    def query_state(self, operator: str, state: str, key: Any, window: Any) -> Any:
        """What a key has in a state as of the last accepted epoch."""
        try:
            return query_state(self._job.driver, operator, state, key, window)
        except StateError as error:
            if not self._ended.is_set():
                raise
            message = (
                f"job '{self.plan.name}' has ended; its state is in its last checkpoint or "
                "savepoint, if it was to keep one: read that with holdfast.savepoint"
            )
            raise StateStorageError(message) from error

    def _set_status(self, status: JobStatus) -> None:
        self.status = status
        self._recorder.status(status)

    @property
    def history(self) -> JobHistory:
        """What the job did."""
        return self._recorder.history

    @property
    def savepoint_directory(self) -> str | None:
        """Where savepoints go if nobody says where."""
        return self._checkpoints.savepoint_directory

    @property
    def _checkpoints(self) -> JobCheckpoints:
        return self._job.driver.checkpoints

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
        return dict(self._job.driver.book.metrics)

    def watermarks(self) -> dict[tuple[str, int], int]:
        """How far time was after the last epoch, by operator uid and subtask."""
        return dict(self._job.driver.book.watermarks)

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints, oldest first."""
        return self._checkpoints.history()

    def _begin(self, number: int) -> Attempt:
        """Start an attempt from a checkpoint, or from the beginning."""
        job = self._job
        start = job.driver.begin_attempt(number)
        origin = None if start is None else start.metadata.id
        self.attempts.append(AttemptReport(number, time.time(), origin))
        log = OffsetLog(self._directory.path / f"spark-{number}", job.rows.streams)
        first_batch = 0
        if start is not None:
            job.last_epoch = max(job.last_epoch, start.metadata.epoch)
            first_batch = log.start_from(start.metadata.spark)
        attempt = Attempt(job, log, first_batch)
        attempt.start()
        return attempt

    def _watch(self, attempt: Attempt) -> None:
        """Run attempts until the job is over; then leave nothing behind."""
        number = 0
        while True:
            failure = attempt.wait()
            self._end_sources(number)
            if failure is not None:
                self._recorder.failure(number, failure)
                self.attempts[-1] = replace(
                    self.attempts[-1], failure=str(failure), failed=time.time()
                )
            leaves = failure is None and self._leaves
            if failure is not None and self._job.driver.leaving:
                self._end_rescaling(failure)
            if not leaves and (failure is None or self._cancelled or self._gives_up(failure)):
                break
            number += 1
            try:
                if leaves:
                    self._change_plan()
                attempt = self._begin(number)
            except BaseException as error:
                failure = error
                break
            self._set_status(JobStatus.RUNNING)
            if leaves:
                self._end_rescaling(None)
        self._finish(failure)

    @property
    def _leaves(self) -> bool:
        """Whether the attempt has ended in order to go on with another plan."""
        driver = self._job.driver
        ended = driver.cancel_asked.is_set() or driver.stopped or driver.book.finished
        return driver.leaving and self._rescaling is not None and not ended

    def _change_plan(self) -> None:
        """Make everything anew for another plan; with the old one, if that is not possible."""
        self._set_status(JobStatus.RESTARTING)
        change, old, plan = self._rescaling, self._job, self.plan
        assert change is not None
        # NB: as after a failure: checkpoints stay, and the job goes on from the last of them
        old.driver.checkpoints.end(Outcome.FAILED)
        try:
            new = self._prepare(change.plan)
        except HoldfastError as error:
            self._end_rescaling(error)
            new = self._prepare(plan)
        new.last_epoch, new.reports = old.last_epoch, old.reports
        new.driver.cancel_asked = old.driver.cancel_asked
        self._job = new
        old.driver.checkpoints.refuse_savepoints()
        _destroy(old)

    def _end_rescaling(self, failure: BaseException | None) -> None:
        change, self._rescaling = self._rescaling, None
        if change is not None and failure is not None:
            change.done.set_exception(failure)
        elif change is not None:
            change.done.set_result(None)

    @property
    def _cancelled(self) -> bool:
        driver = self._job.driver
        return driver.cancel_asked.is_set() and not (driver.book.finished or driver.stopped)

    def _gives_up(self, failure: BaseException) -> bool:
        """Ask the restart strategy; waits for as long as it says."""
        decision = self._checkpoints.after_failure(failure)
        if isinstance(decision, GiveUp):
            return True
        self._set_status(JobStatus.RESTARTING)
        _logger.warning(
            "job '%s' failed and starts again in %.1f s: %s",
            self.plan.name,
            decision.after_ms / 1000,
            str(failure).splitlines()[0],
        )
        return self._job.driver.cancel_asked.wait(decision.after_ms / 1000)

    def _end_sources(self, attempt: int) -> None:
        """The processes of source functions watch their registration; without it they end."""
        for registration in (self._directory.path / "sources").glob(f"*-{attempt}.json"):
            registration.unlink(missing_ok=True)

    def _finish(self, failure: BaseException | None) -> None:
        self._stopped = time.time()
        self.error = failure
        if failure is None and self._cancelled:
            self.error = JobCancelledError(f"job '{self.plan.name}' was cancelled")
            status, outcome = JobStatus.CANCELED, Outcome.CANCELLED
        elif failure is not None:
            status, outcome = JobStatus.FAILED, Outcome.FAILED
        elif self._job.driver.stopped:
            status, outcome = JobStatus.FINISHED, Outcome.STOPPED
        else:
            status, outcome = JobStatus.FINISHED, Outcome.FINISHED
        try:
            self._checkpoints.end(outcome)
        except Exception as error:
            _logger.warning("the job's checkpoints could not be closed: %s", error)
        self._recorder.status(status)
        # NB: before the directory goes, where the history may be
        self._recorder.close()
        self._clean_up()
        self.status = status
        self._ended.set()
        self._checkpoints.refuse_savepoints()
        ended = f"job '{self.plan.name}' has ended before it had another parallelism"
        self._end_rescaling(JobExecutionError(ended))
        self._stop_serving()
        for collected in self._collected.values():
            collected.end(self.error)
        if self.on_end is not None:
            self.on_end()

    def _clean_up(self) -> None:
        self._job.driver.close()
        self._directory.remove()
        self._state.forget(self._key)
        _destroy(self._job)


def _destroy(job: Machinery) -> None:
    try:
        job.broadcast.destroy()
    except Exception as error:
        _logger.debug("the job's broadcast could not be destroyed: %s", error)


@dataclass(frozen=True)
class _Rescaling:
    """A change of parallelism that was asked for."""

    plan: Plan
    done: CompletableFuture[None] = field(default_factory=CompletableFuture)
