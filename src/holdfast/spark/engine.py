"""Runs the epochs of a job as Spark jobs: one Structured Streaming query per attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark import Broadcast
from pyspark.sql import SparkSession

from holdfast.common import Configuration
from holdfast.datastream.shipment import Shipment
from holdfast.driver.engine import PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.start import Start
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block
from holdfast.runtime.protocol import EpochTask
from holdfast.spark.attempt import Attempt, Turn
from holdfast.spark.base import SparkEngine
from holdfast.spark.epoch import query_session, run_epoch
from holdfast.spark.offsets import OffsetLog
from holdfast.spark.rows import RowSources
from holdfast.spark.writer import Writers

__all__ = ["SparkEpochs"]


@dataclass(frozen=True)
class _Prepared:
    """What all attempts of a plan share."""

    name: str
    plan: Plan
    rows: RowSources
    writers: Writers
    broadcast: Broadcast[bytes]


class SparkEpochs(SparkEngine):
    """Every epoch is a Spark job, with a stage per level.

    State goes to files after each epoch, for the next one may run anywhere.
    """

    abilities = Abilities(reruns=True, resizes=True)

    def __init__(
        self,
        session: SparkSession,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
    ) -> None:
        """Prepare what does not depend on the plan; see `SparkEngine`."""
        super().__init__(session, configuration, interval_ms, shipment)
        self._prepared: _Prepared | None = None
        self._attempt: Attempt | None = None
        self._turn: Turn | None = None
        self._log: OffsetLog | None = None
        self._number = 0
        #: whether the next epoch is the first of the job
        self._fresh = True

    def prepare(self, job: PlannedJob) -> None:
        """Check that everything can be sent to the workers, and give it to Spark."""
        rows, writers = RowSources(query_session(self._session), job.plan), Writers(job.plan)
        broadcast = self._ship(job, writers.plan)
        self._prepared = _Prepared(job.name, job.plan, rows, writers, broadcast)

    def start(self, attempt: int, start: Start | None) -> None:
        """Start a query, which reads on where the checkpoint says."""
        job = self._job
        self._number = attempt
        self._fresh = start is None
        self._log = OffsetLog(self.scratch / f"spark-{attempt}", job.rows.streams)
        if start is not None:
            self._log.start_from(start.metadata.spark)
        self._attempt = Attempt(job.plan.name, job.rows, self._jvm)
        self._attempt.start(str(self._log.directory), self._interval_ms)

    def await_turn(self, due_ms: int | None = None) -> None:
        """Wait for Spark's next micro-batch."""
        assert self._attempt is not None
        assert self._log is not None
        self._turn = self._attempt.next_turn()
        self._log.batch = self._turn.number

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run an epoch as a Spark job of the query."""
        job, turn = self._job, self._current
        first = self._fresh and not tasks[0].closing

        def run() -> EpochOutcome:
            blocks = job.rows.blocks(turn.batch, job.broadcast, job.name, tasks[0].epoch, first)
            session = turn.batch.sparkSession
            return run_epoch(session, job.plan, job.broadcast, tasks, blocks)

        return turn.call(run, self._jvm.check)

    def write(self, blocks: list[Block]) -> None:
        """Write the results for DataFrame sinks."""
        if blocks:
            turn, writers = self._current, self._job.writers
            turn.call(lambda: writers.write(turn.batch.sparkSession, blocks), self._jvm.check)

    def log(self) -> Mapping[str, bytes]:
        """What Spark has noted of its sources."""
        assert self._log is not None
        return self._log.entries()

    def end_turn(self) -> None:
        """Let Spark go on with the next micro-batch."""
        self._current.end(kept=True)
        self._turn, self._fresh = None, False

    def stop(self) -> None:
        """Stop the query, and the processes of source functions."""
        attempt, self._attempt = self._attempt, None
        turn, self._turn = self._turn, None
        if attempt is not None:
            try:
                attempt.stop(turn)
            finally:
                self._end_sources()

    def _end_sources(self) -> None:
        """The processes of source functions watch their registration; without it they end."""
        for registration in (self.scratch / "sources").glob(f"*-{self._number}.json"):
            registration.unlink(missing_ok=True)

    @property
    def _job(self) -> _Prepared:
        assert self._prepared is not None
        return self._prepared

    @property
    def _current(self) -> Turn:
        assert self._turn is not None
        return self._turn
