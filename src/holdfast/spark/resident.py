"""Runs a job on resident slots: one long barrier job of Spark's per attempt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from holdfast.common import Configuration
from holdfast.common.engine_options import heartbeat_timeout, slot_settings
from holdfast.datastream.checkpoint_config import CheckpointConfig
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
from holdfast.driver.slots import Slots
from holdfast.driver.start import Start
from holdfast.errors import InternalError
from holdfast.runtime.blocks import Block
from holdfast.runtime.peers import listen
from holdfast.runtime.protocol import EpochTask, StoredState
from holdfast.runtime.sockets import ip_of, own_ip
from holdfast.spark.barrier import BarrierJob, SlotTask
from holdfast.spark.base import SparkEngine
from holdfast.spark.certificate import encrypts_network, make_certificate
from holdfast.spark.choosing import (
    Facts,
    await_slots,
    check_width,
    session_facts,
    slots_for,
)
from holdfast.spark.promised_slots import promised_slots
from holdfast.spark.session import is_local
from holdfast.spark.writer import Writers
from holdfast.state.errors import StateStorageError

__all__ = ["ResidentEngine"]

#: how long the tasks of slots may take to call the driver, in seconds
_PATIENCE: Final = 120.0
#: how long a query may take, in seconds
_QUERY_PATIENCE: Final = 30.0
_MS: Final = 1000
_LOOPBACK: Final = "127.0.0.1"
_HOST: Final = "spark.driver.host"
_BIND: Final = "spark.driver.bindAddress"


class ResidentEngine(SparkEngine):
    """Slots that stay for as long as an attempt lasts, each with one subtask of every level.

    State stays where it is, and goes to files for checkpoints only.
    """

    abilities = Abilities(reruns=False, resizes=True, keeps_state=True)

    def __init__(
        self,
        session: SparkSession,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
    ) -> None:
        """Prepare what does not depend on the plan; see `SparkEngine`."""
        super().__init__(session, configuration, interval_ms, shipment)
        self._heartbeat = heartbeat_timeout(configuration)
        self._patience = slot_settings(configuration).wait
        #: set when nobody waits for a start any more
        self._given_up = threading.Event()
        if encrypts_network(session.sparkContext):
            self._certificate = make_certificate(session.sparkContext)
        self._job: PlannedJob | None = None
        self._writers: Writers | None = None
        self._slots: Slots | None = None
        #: the host that had each slot last, by number
        self._hosts: tuple[str, ...] = ()
        self._ends = False
        self._barrier: BarrierJob | None = None

    def prepare(self, job: PlannedJob) -> None:
        """Check that everything can be sent to the workers, and give it to Spark."""
        writers = Writers(job.plan)
        with promised_slots.lock:
            if needed_slots(job.plan) > promised_slots.of(self):
                check_width(self._session, self, job.plan, self._check_wanted)
            self._ship(job, writers.plan)
            promised_slots.promise(self, needed_slots(job.plan))
        self._job, self._writers = job, writers

    def start(self, attempt: int, start: Start | None) -> None:
        """Start the slots, and wait until all know each other."""
        job = self._planned
        assert self._broadcast is not None
        subtasks = sum(level.parallelism for level in job.plan.levels)
        bind, host = _places(self._session)
        slots = Slots(
            job.name,
            attempt,
            subtasks,
            self._heartbeat,
            partial(
                listen,
                host=bind,
                key=self._key.hex(),
                certificate=self._certificate,
                ports=self._ports,
            ),
            self._hosts,
        )
        self._slots = slots
        self._await_slots()
        local = is_local(self._session)
        task = SlotTask(
            self._broadcast,
            job.name,
            attempt,
            slots.address,
            host,
            local,
            self._heartbeat,
            CheckpointConfig(self._configuration).is_checkpointing_enabled(),
        )
        width = job.plan.widest_level.parallelism
        self._barrier = BarrierJob(self._session, f"holdfast-{job.name}-{attempt}", task, width)
        self._barrier.start(slots.fail)
        slots.gather(width, _PATIENCE, self._check_start)
        self._hosts = slots.hosts

    def _await_slots(self) -> None:
        """Wait for slots in the place of lost ones; Spark looks for them every 15 s only.

        Raises:
            SlotsMissingError: when there are still too few.
            AbandonedError: when the job is cancelled.
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
            raise AbandonedError("the job is cancelled while an attempt starts")

    def _check_start(self) -> None:
        self._check_wanted()
        needed, found = promised_slots.of(self), self._facts().slots
        if found < needed:
            raise LostSlotError(
                f"executors were lost while an attempt started: it needs {needed} task slots, "
                f"and {found} are left"
            )

    def available_slots(self) -> int:
        """Return the slots that the job has, and those that are free."""
        return slots_for(self._session, self)

    def await_turn(self, due_ms: int | None = None) -> None:
        """Let the stream go on for the interval of epochs, or until one is due."""
        pause = self._running.pause(self._interval_ms / _MS)
        wait = pause if due_ms is None else min(pause, due_ms / _MS)
        self._running.wait(wait, self._planned.deliver, self._jvm.check)

    def wake(self) -> None:
        """End the wait for the next turn; from any thread."""
        if self._slots is not None:
            self._slots.wake()

    def abandon(self) -> None:
        """Let a round, or a start, not be waited for that takes long; from any thread."""
        self._given_up.set()
        if self._slots is not None:
            self._slots.abandon()

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Send a mark through all subtasks."""
        return self._running.round(tasks, self._planned.deliver, self._jvm.check)

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        """Return the states that slots have stored."""
        if self._slots is None:
            return []
        return self._slots.stored(patience_ms / _MS, self._planned.deliver, self._jvm.check)

    def query(
        self, level: int, subtask: int, operator: str, state: str, key: Any, window: Any = None
    ) -> Any:
        """Ask the subtask itself."""
        slots = self._slots
        if slots is None:
            raise StateStorageError("the job does not run now; ask again")
        asked = slots.query(level, subtask, operator, state, (key, window))
        try:
            return asked.result(_QUERY_PATIENCE)
        except TimeoutError:
            message = f"subtask {subtask} of operator '{operator}' is busy; ask again later"
            raise StateStorageError(message) from None

    def write(self, blocks: list[Block]) -> None:
        """Write the results for DataFrame sinks."""
        if blocks:
            assert self._writers is not None
            self._writers.write(self._session, blocks)

    def expect_end(self) -> None:
        """Let the hosts delete what they keep of the job."""
        self._ends = True

    def stop(self) -> None:
        """Tell the slots that the attempt is over, and wait until Spark has ended their tasks."""
        slots, self._slots = self._slots, None
        barrier, self._barrier = self._barrier, None
        if slots is None:
            return
        if barrier is None or self._jvm.lost() is not None:
            slots.stop(self._ends, lambda seconds: True)
        elif not slots.stop(self._ends, barrier.wait):
            barrier.cancel()

    def close(self) -> None:
        """Remove what the job had, and free its slots for others."""
        promised_slots.release(self)
        super().close()

    @property
    def _planned(self) -> PlannedJob:
        assert self._job is not None
        return self._job

    @property
    def _running(self) -> Slots:
        if self._slots is None:
            raise InternalError("no attempt runs")
        return self._slots


def _places(session: SparkSession) -> tuple[str, str]:
    """Return the address at which the driver listens, and the host that executors look for.

    They differ where the driver is behind a port mapping, as in a container.
    """
    if is_local(session):
        return _LOOPBACK, _LOOPBACK
    settings = session.sparkContext.getConf()
    host = settings.get(_HOST) or own_ip()
    bind = settings.get(_BIND)
    return ip_of(bind or host, _BIND if bind else _HOST), host
