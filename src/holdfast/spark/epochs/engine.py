"""The epochs engine: runs epochs as Spark jobs, in one Structured Streaming query per attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.driver.engine import PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.plan.model import Plan
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.spark.dataframe_writer import SAVED_ROWS, SparkWriters
from holdfast.spark.engine_base import SparkEngine
from holdfast.spark.epochs.attempt import Attempt, Turn
from holdfast.spark.epochs.epoch import query_session, run_epoch
from holdfast.spark.epochs.query_offsets import OffsetLog
from holdfast.spark.epochs.rows import RowSources


@dataclass(frozen=True)
class _Prepared:
    """The data that all attempts of a plan share."""

    plan: Plan
    rows: RowSources
    writers: SparkWriters


class SparkEpochs(SparkEngine):
    """An engine that runs every epoch as a Spark job, with one stage per level.

    State is written to files after each epoch, because the next one may run on any worker.
    """

    abilities = Abilities(reruns=True, resizes=True)

    _prepared: _Prepared | None = None
    _attempt: Attempt | None = None
    _turn: Turn | None = None
    _log: OffsetLog | None = None
    #: those of the epoch that runs
    _tasks: Sequence[EpochTask] = ()
    #: whether the next epoch is the first of the job
    _fresh = True

    def prepare(self, job: PlannedJob) -> None:
        """Check that everything can be sent to the workers, and pass it to Spark."""
        rows = RowSources(query_session(self._session), job.plan)
        writers = self._writers_of(job.plan)
        self._ship(job, writers.plan)
        self._prepared = _Prepared(job.plan, rows, writers)

    def start(self, attempt: int, start: SavedImage | None) -> None:
        """Start a query that continues at the position of the checkpoint."""
        job = self._job
        self._desk.begin_attempt(attempt)
        self._fresh = start is None
        self._log = OffsetLog(self.scratch / f"spark-{attempt}", job.rows.streams)
        if start is not None:
            self._log.start_from(
                {name: data for name, data in start.metadata.spark.items() if name != SAVED_ROWS}
            )
        job.writers.begin_attempt(self._session, self._shipped, start, self._rows_directory)
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
        job, turn, shipped = self._job, self._current, self._shipped
        first = self._fresh and not tasks[0].closing
        self._tasks = tasks
        session = turn.batch.sparkSession
        turn.call(lambda: job.writers.complete(session, shipped, tasks), self._check)

        def run() -> EpochOutcome:
            blocks = job.rows.blocks(turn.batch, shipped, tasks[0].epoch, first)
            return run_epoch(turn.batch.sparkSession, job.plan, shipped, tasks, blocks)

        return turn.call(run, self._check)

    def write(self, blocks: list[Block]) -> None:
        """Write the results for DataFrame sinks."""
        if blocks:
            turn, writers, shipped = self._current, self._job.writers, self._shipped
            session = turn.batch.sparkSession
            turn.call(lambda: writers.write(session, shipped, blocks), self._check)

    def log(self) -> Mapping[str, bytes]:
        """Return Spark's log entries about its sources."""
        assert self._log is not None
        return {**self._log.entries(), **self._job.writers.log(self._tasks)}

    def end_turn(self) -> None:
        """Let Spark continue with the next micro-batch."""
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
                self._desk.end_attempt()

    @property
    def _job(self) -> _Prepared:
        assert self._prepared is not None
        return self._prepared

    @property
    def _current(self) -> Turn:
        assert self._turn is not None
        return self._turn
