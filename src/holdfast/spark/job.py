"""A job on Spark: attempts, one after the other, until it finishes, is cancelled or gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from holdfast.checkpoint.events import CheckpointRecord, Outcome
from holdfast.common import CompletableFuture, Configuration, ExecutionConfig
from holdfast.common.job_status import JobStatus
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.book import AttemptReport, EpochReport
from holdfast.driver.checkpoints import JobCheckpoints
from holdfast.driver.delivery import CollectedRecords
from holdfast.driver.driver import JobDriver
from holdfast.driver.queries import query_state
from holdfast.driver.recording import Recorder
from holdfast.driver.rescaling import rescaled
from holdfast.driver.restart import GiveUp
from holdfast.errors import HoldfastError, JobCancelledError, JobExecutionError, first_line
from holdfast.filesystem import configure, hadoop_options
from holdfast.history.job import JobHistory
from holdfast.history.journal import open_journal
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.rest.options import rest_options
from holdfast.rest.serving import serve
from holdfast.runtime.job import make_job_code, new_key, pack
from holdfast.spark.attempt import Attempt, Machinery
from holdfast.spark.directory import make_job_directory
from holdfast.spark.epoch import query_session
from holdfast.spark.hadoop import hadoop_settings
from holdfast.spark.jvm import DriverJvm
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.session import is_local
from holdfast.spark.shipping import deliver_shipment
from holdfast.spark.supervisor import Steps, supervise
from holdfast.spark.writer import Writers
from holdfast.state.errors import StateError, StateStorageError

_logger = get_logger(__name__)
_DIRECTORY = "holdfast.directory"
#: between two looks at the JVM while nothing runs, in seconds
_LOOK = 0.1


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
        #: of the last attempt, as the history has it
        self._failure: BaseException | None = None
        self.on_end: Callable[[], None] | None = None
        self.attempts: list[AttemptReport] = []
        self._collected = collected or {}
        self._ended = threading.Event()
        self._state = state_settings(configuration)
        self._session, self._settings = session, settings
        self._rescaling: _Rescaling | None = None
        self._jvm = DriverJvm(session.sparkContext)
        self._key = new_key()
        self._directory = make_job_directory(configuration.to_dict().get(_DIRECTORY))
        try:
            context = session.sparkContext
            self._paths = deliver_shipment(context, settings.shipment, self._directory.path)
            self._file_systems = hadoop_options(hadoop_settings(context) | configuration.to_dict())
            configure(self._file_systems)
            self._job = self._prepare(plan)
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
        return Machinery(driver, name, interval, rows, writers, broadcast, self._jvm)

    def _keep_history(self) -> None:
        if self._checkpoints.kept:
            store, scratch = self._checkpoints.store, self._directory.path
            place = str(store.directory)
            journal = open_journal(store.files, place, self.job_id, self.history, scratch)
            self._recorder.keep_in(journal)

    def start(self) -> None:
        """Start the first attempt, and the thread in which the job lives."""
        self._started = self._stopped = time.time()
        try:
            self._keep_history()
            self._stop_serving = serve(self, self._rest)
            attempt = self._begin(0)
            self._set_status(JobStatus.RUNNING)
            self._supervise(attempt)
        except BaseException:
            self._undo_start()
            raise

    def _supervise(self, attempt: Attempt) -> None:
        try:
            supervise(lambda: self._live(attempt), self._finish)
        except BaseException:
            attempt.stop()
            raise

    def _undo_start(self) -> None:
        steps = Steps(self.plan.name)
        steps.take("note its end", lambda: self._recorder.status(JobStatus.FAILED))
        steps.take("close its history", self._recorder.close)
        steps.take("stop its REST server", self._stop_serving)
        steps.take("unlock its checkpoints", self._checkpoints.store.release)
        self._clean_up(steps)

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

    def _live(self, attempt: Attempt) -> BaseException | None:
        """Run attempts until the job is over; returns what it failed with."""
        number = 0
        while True:
            failure = attempt.wait()
            self._end_sources(number)
            if failure is not None:
                self._note_failure(failure)
            leaves = failure is None and self._leaves
            if failure is not None and self._job.driver.leaving:
                self._end_rescaling(failure)
            if not leaves and (failure is None or self._cancelled or self._gives_up(failure)):
                return failure
            number += 1
            if leaves:
                self._change_plan()
            attempt = self._begin(number)
            self._set_status(JobStatus.RUNNING)
            if leaves:
                self._end_rescaling(None)

    def _note_failure(self, failure: BaseException) -> None:
        number = self.attempts[-1].number
        self._failure = failure
        self._recorder.failure(number, failure)
        self.attempts[-1] = replace(self.attempts[-1], failure=str(failure), failed=time.time())

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
            "job '%s' failed: %s; it starts again in %.1f s, %s",
            self.plan.name,
            first_line(failure),
            decision.after_ms / 1000,
            self._checkpoints.next_origin,
        )
        return self._pause(decision.after_ms / 1000)

    def _pause(self, seconds: float) -> bool:
        """Wait; return True if the job is cancelled meanwhile.

        Raises:
            SparkLostError: when the JVM dies meanwhile.
        """
        end = time.monotonic() + seconds
        while not self._job.driver.cancel_asked.wait(min(_LOOK, max(0, end - time.monotonic()))):
            if lost := self._jvm.lost():
                raise lost
            if time.monotonic() >= end:
                return False
        return True

    def _end_sources(self, attempt: int) -> None:
        """The processes of source functions watch their registration; without it they end."""
        for registration in (self._directory.path / "sources").glob(f"*-{attempt}.json"):
            registration.unlink(missing_ok=True)

    def _finish(self, failure: BaseException | None) -> None:
        """End the job: leave nothing behind, and release all who wait for it."""
        steps = Steps(self.plan.name)
        self._stopped = time.time()
        self.error = failure
        if failure is not None and failure is not self._failure:
            steps.take("note its failure", lambda: self._note_unexpected(failure))
        status, outcome = self._outcome()
        steps.take("close its checkpoints", lambda: self._checkpoints.end(outcome))
        steps.take("note its end", lambda: self._recorder.status(status))
        # NB: before the directory goes, where the history may be
        steps.take("close its history", self._recorder.close)
        self._clean_up(steps)
        self.status = status
        self._ended.set()
        steps.take("refuse savepoints", self._checkpoints.refuse_savepoints)
        ended = JobExecutionError(
            f"job '{self.plan.name}' has ended before it had another parallelism"
        )
        steps.take("end its rescaling", lambda: self._end_rescaling(ended))
        steps.take("stop its REST server", self._stop_serving)
        for collected in self._collected.values():
            steps.take("end its results", partial(collected.end, self.error))
        if self.on_end is not None:
            steps.take("release its callers", self.on_end)

    def _note_unexpected(self, failure: BaseException) -> None:
        """Take what ended the thread for the failure of the last attempt."""
        self.error = self._jvm.explain(failure, f"job '{self.plan.name}' cannot go on")
        self._note_failure(self.error)

    def _outcome(self) -> tuple[JobStatus, Outcome]:
        if self.error is not None:
            return JobStatus.FAILED, Outcome.FAILED
        if self._cancelled:
            self.error = JobCancelledError(f"job '{self.plan.name}' was cancelled")
            return JobStatus.CANCELED, Outcome.CANCELLED
        stopped = self._job.driver.stopped
        return JobStatus.FINISHED, Outcome.STOPPED if stopped else Outcome.FINISHED

    def _clean_up(self, steps: Steps) -> None:
        steps.take("close its connections", self._job.driver.close)
        steps.take("remove its directory", self._directory.remove)
        steps.take("remove local databases", lambda: self._state.forget(self._key))
        _destroy(self._job)


def _destroy(job: Machinery) -> None:
    try:
        job.jvm.check()
        job.broadcast.destroy()
    except Exception as error:
        _logger.debug("the job's broadcast could not be destroyed: %s", error)


@dataclass(frozen=True)
class _Rescaling:
    """A change of parallelism that was asked for."""

    plan: Plan
    done: CompletableFuture[None] = field(default_factory=CompletableFuture)
