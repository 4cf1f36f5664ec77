"""Starts jobs on Spark, and the handle that a program has on a running one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from holdfast.checkpoint.events import CheckpointRecord
from holdfast.common import (
    CompletableFuture,
    Configuration,
    JobClient,
    JobExecutionResult,
    JobID,
    JobStatus,
)
from holdfast.common.engine_options import EngineSetting, engine_setting
from holdfast.datastream.data_stream import CloseableIterator
from holdfast.datastream.engines import needed_slots
from holdfast.datastream.execution_mode import is_batch
from holdfast.datastream.shipment import Shipment
from holdfast.driver.book import EpochReport
from holdfast.driver.delivery import CollectedRecords
from holdfast.driver.engine import EngineChoice
from holdfast.driver.reports import AttemptReport, attempts_of, checkpoints_of, epochs_of
from holdfast.driver.runner import JobRunner
from holdfast.history.journal import open_journal
from holdfast.plan.model import Plan
from holdfast.printable import printable
from holdfast.rest.options import RestOptions, rest_options
from holdfast.rest.serving import serve
from holdfast.spark.choosing import engine_for
from holdfast.spark.engine import SparkEpochs
from holdfast.spark.jvm import death_named
from holdfast.spark.promised_slots import promised_slots
from holdfast.spark.session import get_session

if TYPE_CHECKING:
    from holdfast.spark.resident import ResidentEngine


def start_job(
    plan: Plan,
    configuration: Configuration,
    interval_ms: int,
    shipment: Shipment,
    collected: dict[int, CollectedRecords] | None = None,
) -> SparkJobClient:
    """Start a plan as a job."""
    settings = configuration.to_dict()
    spark_settings = {key: value for key, value in settings.items() if key.startswith("spark.")}
    rest = rest_options(configuration)
    setting = engine_setting(configuration)
    with death_named():
        slots = 0 if setting is EngineSetting.EPOCHS else needed_slots(plan)
        session = get_session(printable(plan.name), spark_settings, slots)
        with promised_slots.lock:
            choice = engine_for(session, setting, is_batch(configuration), plan)
            engine = _make_engine(choice, session, configuration, interval_ms, shipment)
            if choice.name == "resident":
                promised_slots.promise(engine, slots)
        try:
            job_id = JobID.generate().to_hex_string()
            scratch = engine.scratch
            job = JobRunner(
                engine, plan, job_id, configuration, scratch, collected=collected, choice=choice
            )
        except BaseException:
            engine.close()
            raise
        try:
            _publish(job, scratch, rest)
            client = SparkJobClient(job)
        except BaseException as error:
            job.give_up(error)
            raise
        job.start()
    return client


def _make_engine(
    choice: EngineChoice,
    session: SparkSession,
    configuration: Configuration,
    interval_ms: int,
    shipment: Shipment,
) -> SparkEpochs | ResidentEngine:
    if choice.name == "epochs":
        return SparkEpochs(session, configuration, interval_ms, shipment)
    from holdfast.spark.resident import ResidentEngine

    return ResidentEngine(session, configuration, interval_ms, shipment)


def _publish(job: JobRunner, scratch: Path, rest: RestOptions) -> None:
    """Keep the job's history, and let others look at the job."""
    if job.checkpoints.kept:
        store = job.checkpoints.store
        place = str(store.directory)
        job.recorder.keep_in(open_journal(store.files, place, job.job_id, job.history, scratch))
    job.at_end("stop its REST server", serve(job, rest))


def collect_job(
    plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment, node: int
) -> CloseableIterator:
    """Start a plan and iterate over the records of one of its result operators."""
    records = CollectedRecords()
    client = start_job(plan, configuration, interval_ms, shipment, {node: records})

    def close() -> None:
        records.close()
        client.cancel().result()

    return CloseableIterator(iter(records), close)


class SparkJobClient(JobClient):
    """A job that was started on Spark."""

    def __init__(self, job: JobRunner) -> None:
        """Made by ``start_job``."""
        self._job = job
        self._result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        self._cancelled: CompletableFuture[None] = CompletableFuture()
        job.at_end("release its callers", self._on_end)

    def get_job_id(self) -> JobID:
        """The id of this start of the job."""
        return JobID.from_hex_string(self._job.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The status now."""
        return CompletableFuture.completed(self._job.status)

    def cancel(self) -> CompletableFuture[None]:
        """Ask the job to end; the future is done when it has ended, however it ended."""
        self._job.cancel()
        return self._cancelled

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The result, once the job has ended; or its exception."""
        return self._result

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """The users' counters, summed over subtasks, by metric name."""
        return CompletableFuture.completed(self._accumulators())

    def get_epochs(self) -> list[EpochReport]:
        """What the last epochs did, a thousand at most."""
        return epochs_of(self._job.history)

    def get_metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The users' metrics as of the last epoch, by operator uid and subtask."""
        return dict(self._job.book.metrics)

    def get_watermarks(self) -> dict[str, int]:
        """How far time was after the last epoch, by operator uid."""
        least: dict[str, int] = {}
        for (uid, _), time in dict(self._job.book.watermarks).items():
            least[uid] = min(time, least.get(uid, time))
        return least

    def get_attempts(self) -> tuple[AttemptReport, ...]:
        """The attempts of this start of the program, oldest first."""
        return attempts_of(self._job.history)

    def get_checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints and savepoints, oldest first."""
        return checkpoints_of(self._job.history)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """End the job with a savepoint; the future is done with its path when it has ended.

        ``advance_to_end_of_event_time`` drains the job: its sources end and time goes to its
        end, so that everything that waits is processed. A drained job has nothing to go on with.
        """
        asked = self._job.savepoint(savepoint_directory, True, advance_to_end_of_event_time)
        stopped: CompletableFuture[str] = CompletableFuture()

        def tell(_: object) -> None:
            failure = asked.exception() or self._result.exception()
            if failure is not None:
                stopped.set_exception(failure)
            else:
                stopped.set_result(asked.result())

        asked.add_done_callback(
            lambda answer: (
                tell(answer) if answer.exception() else self._result.add_done_callback(tell)
            )
        )
        return stopped

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint with one of the next epochs; the future is done with its path."""
        return self._job.savepoint(savepoint_directory)

    def query_state(
        self, operator: str, state: str, key: Any, window: Any = None
    ) -> CompletableFuture[Any]:
        """Read what a key has in a keyed state, as of the last completed epoch."""
        answer: CompletableFuture[Any] = CompletableFuture()

        def read() -> None:
            try:
                answer.set_result(self._job.query_state(operator, state, key, window))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=read, name="holdfast-query", daemon=True).start()
        return answer

    def _accumulators(self) -> dict[str, Any]:
        totals: dict[str, Any] = {}
        for values in self.get_metrics().values():
            for name, value in values.items():
                if isinstance(value, int):
                    totals[name] = totals.get(name, 0) + value
        return totals

    def _on_end(self) -> None:
        job = self._job
        self._cancelled.set_result(None)
        if job.error is not None:
            self._result.set_exception(job.error)
        else:
            job_id = self.get_job_id()
            result = JobExecutionResult(job_id, job.net_runtime_ms, self._accumulators())
            self._result.set_result(result)
