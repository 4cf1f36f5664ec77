"""The resident engine: runs a job in slots, with one long barrier job of Spark per attempt."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration
from holdfast.common.options.engine import HEARTBEAT, SLOTS_WAIT
from holdfast.datastream.engines import needed_slots
from holdfast.datastream.shipment import Shipment
from holdfast.driver.engine import PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import (
    AbandonedError,
    EpochOutcome,
    LostSlotError,
    SlotsMissingError,
)
from holdfast.driver.slots.attempt_slots import Slots
from holdfast.errors import InternalError
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask, StoredState
from holdfast.spark.dataframe_writer import SparkWriters
from holdfast.spark.engine_base import SparkEngine
from holdfast.spark.engine_choice import (
    Facts,
    await_slots,
    check_width,
    session_facts,
    slots_for,
)
from holdfast.spark.promised_slots import promised_slots
from holdfast.spark.resident.barrier import BarrierJob, SlotTask
from holdfast.state.errors import StateStorageError

#: how long slots may take to connect to the driver, in seconds
_PATIENCE: Final = 120.0
#: how long a query may take, in seconds
_QUERY_PATIENCE: Final = 30.0
_MS: Final = 1000


class ResidentEngine(SparkEngine):
    """An engine whose slots run as long as an attempt, each with one subtask of every level.

    State stays in the slots, and is written to files for checkpoints only.
    """

    abilities = Abilities(reruns=False, resizes=True, keeps_state=True)

    def __init__(
        self,
        session: SparkSession,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
    ) -> None:
        """Prepare everything that does not depend on the plan; see `SparkEngine`."""
        super().__init__(session, configuration, interval_ms, shipment)
        self._heartbeat = HEARTBEAT.get(configuration).total_seconds()
        self._patience = SLOTS_WAIT.get(configuration).total_seconds()
        #: set when the start of an attempt is abandoned
        self._given_up = threading.Event()
        self._job: PlannedJob | None = None
        self._writers: SparkWriters | None = None
        #: those of the round that runs
        self._tasks: Sequence[EpochTask] = ()
        self._slots: Slots | None = None
        #: the last host of each slot, by number
        self._hosts: tuple[str, ...] = ()
        self._ends = False
        self._barrier: BarrierJob | None = None

    def prepare(self, job: PlannedJob) -> None:
        """Check that everything can be sent to the workers, and pass it to Spark."""
        writers = self._writers_of(job.plan)
        with promised_slots.lock:
            if needed_slots(job.plan) > promised_slots.of(self):
                check_width(self._session, self, job.plan, self._check_wanted)
            self._ship(job, writers.plan)
            promised_slots.promise(self, needed_slots(job.plan))
        self._job, self._writers = job, writers

    def start(self, attempt: int, start: SavedImage | None) -> None:
        """Start the slots, and wait until all are connected to each other."""
        job = self._planned
        assert self._writers is not None
        self._writers.begin_attempt(self._session, self._shipped, start, self._rows_directory)
        subtasks = sum(level.parallelism for level in job.plan.levels)
        slots = Slots(
            job.name,
            attempt,
            subtasks,
            self._heartbeat,
            self._listen,
            self._hosts,
            job.logs,
            job.note_progress,
        )
        self._slots = slots
        self._await_slots()
        task = SlotTask(
            self._shipped, attempt, slots.address, self._host, self._local, self._heartbeat
        )
        width = job.plan.widest_level.parallelism
        self._barrier = BarrierJob(self._session, f"holdfast-{job.name}-{attempt}", task, width)
        self._barrier.start(slots.fail)
        slots.gather(width, _PATIENCE, self._check_start)
        self._hosts = slots.hosts

    def _await_slots(self) -> None:
        """Wait for replacements of lost slots; Spark itself checks for them only every 15 s.

        Raises:
            SlotsMissingError: if there are still too few.
            AbandonedError: if the job is cancelled.
        """
        needed = promised_slots.of(self)
        facts = await_slots(self._facts, needed, self._patience, self._check_wanted)
        if facts.free < needed:
            raise SlotsMissingError(needed, facts.free)

    def _facts(self) -> Facts:
        return session_facts(self._session, job=self, again=True)

    def _check_wanted(self) -> None:
        self._jvm.check()
        if self._given_up.is_set():
            raise AbandonedError("the job was cancelled while an attempt was starting")

    def _check_start(self) -> None:
        self._check_wanted()
        needed, found = promised_slots.of(self), self._facts().slots
        if found < needed:
            raise LostSlotError(
                f"executors were lost while an attempt started: it needs {needed} task slots, "
                f"and {found} are left"
            )

    def available_slots(self) -> int:
        """Return the number of the job's slots and the free ones."""
        return slots_for(self._session, self)

    def await_turn(self, due_ms: int | None = None) -> None:
        """Let the stream continue for the interval of epochs, or until an epoch is due."""
        pause = self._running.pause(self._interval_ms / _MS)
        wait = pause if due_ms is None else min(pause, due_ms / _MS)
        self._running.wait(wait, self._planned.deliver, self._check)

    def wake(self) -> None:
        """End the wait for the next turn; can be called from any thread."""
        if self._slots is not None:
            self._slots.wake()

    def abandon(self) -> None:
        """End the wait for a round, or for a start; can be called from any thread."""
        self._given_up.set()
        if self._slots is not None:
            self._slots.abandon()

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run a round: send a mark through all subtasks."""
        assert self._writers is not None
        self._tasks = tasks
        self._writers.complete(self._session, self._shipped, tasks)
        return self._running.round(tasks, self._planned.deliver, self._check)

    def log(self) -> Mapping[str, bytes]:
        """Return the rows of DataFrame sinks that are not written."""
        assert self._writers is not None
        return self._writers.log(self._tasks)

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        """Return the states that slots have stored."""
        if self._slots is None:
            return []
        return self._slots.stored(patience_ms / _MS, self._planned.deliver, self._check)

    def query(
        self, level: int, subtask: int, operator: str, state: str, key: Any, window: Any = None
    ) -> Any:
        """Query the state of a subtask."""
        slots = self._slots
        if slots is None:
            raise StateStorageError("the job is not running now; try again")
        asked = slots.query(level, subtask, operator, state, (key, window))
        try:
            return asked.result(_QUERY_PATIENCE)
        except TimeoutError:
            message = f"subtask {subtask} of operator '{operator}' is busy; try again later"
            raise StateStorageError(message) from None

    def write(self, blocks: list[Block]) -> None:
        """Write the results for DataFrame sinks."""
        if blocks:
            assert self._writers is not None
            self._writers.write(self._session, self._shipped, blocks)

    def expect_end(self) -> None:
        """Let the hosts delete their files of the job when the attempt stops."""
        self._ends = True

    def stop(self) -> None:
        """Notify the slots that the attempt has ended, and wait for the end of their tasks."""
        slots, self._slots = self._slots, None
        barrier, self._barrier = self._barrier, None
        if slots is None:
            return
        if barrier is None or self._jvm.lost() is not None:
            slots.stop(self._ends, lambda seconds: True)
        elif not slots.stop(self._ends, barrier.wait):
            barrier.cancel()

    def close(self) -> None:
        """Remove the job's files, and release its slots."""
        promised_slots.release(self)
        super().close()

    @property
    def _planned(self) -> PlannedJob:
        assert self._job is not None
        return self._job

    @property
    def _running(self) -> Slots:
        if self._slots is None:
            raise InternalError("no attempt is running")
        return self._slots
