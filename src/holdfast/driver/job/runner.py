"""Runs a job: puts its parts together, gives it a thread, takes requests, and ends it.

All actions of the job's machine are carried out in the thread of the job (`JobRunner.start`). Tests
and the simulation carry them out one by one instead. Requests come from any thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import Outcome
from holdfast.common import CompletableFuture, Configuration
from holdfast.common.job_status import JobStatus
from holdfast.common.options.engine import FAULTS, SLOTS_MIN, SLOTS_STABLE
from holdfast.common.options.restart import restart_strategy, same_record_limit
from holdfast.common.time import to_millis, wall_clock
from holdfast.driver import job_events as events
from holdfast.driver.checkpoints.job_checkpoints import JobCheckpoints
from holdfast.driver.engine import Engine, EngineChoice
from holdfast.driver.epoch_book import EpochBook
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.driver.epochs.running import EpochRunner, has_listeners
from holdfast.driver.job.actions import JobActions
from holdfast.driver.job.attempts import AttemptRunner
from holdfast.driver.job.control import JobControl
from holdfast.driver.job.machine import STATUSES, JobMachine
from holdfast.driver.job.rescaling import rescaled
from holdfast.driver.job.restart_policy import RestartPolicy, make_policy
from holdfast.driver.job.supervisor import Steps, supervise
from holdfast.driver.queries import ask_subtask, query_state
from holdfast.driver.recording import Recorder
from holdfast.errors import JobCancelledError, JobExecutionError
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.history.job import JobHistory
from holdfast.history.logs import LogBook
from holdfast.plan.model import Plan
from holdfast.plan.planner import separated
from holdfast.runtime.context import Clock
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.state.errors import StateError, StateStorageError
from holdfast.state.storage.directory import StateStorage


class JobRunner:
    """A job on an engine, from its start to its end.

    Attributes:
        error: the error with which the job ended; None if it ended without one.
        over: set when the job has ended and all threads that wait for it are released.
        checkpoints: the checkpoints of the job, over all its attempts and plans.
        recorder: records the job's history.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        job_id: str,
        configuration: Configuration,
        scratch: str | os.PathLike[str],
        *,
        collected: Mapping[int, CollectedRecords] | None = None,
        clock: Clock = wall_clock,
        storage: StateStorage | None = None,
        files: FileSystem = LOCAL,
        simulated: bool = False,
        policy: RestartPolicy | None = None,
        sleep: Callable[[float], None] | None = None,
        choice: EngineChoice | None = None,
    ) -> None:
        """Lock the checkpoint directory, find the start, prepare the engine. Nothing runs yet.

        Args:
            engine: runs the epochs.
            plan: the job's plan.
            job_id: identifies this start of the job.
            configuration: the environment's.
            scratch: the address of the job's own directory.
            collected: the queues for records that the program collects, by operator.
            clock: the time, for checkpoints and restarts.
            storage: the state of a job without checkpoints.
            files: finds the file systems of addresses.
            simulated: all processes of the job are this one.
            policy: replaces the restart policy of the configuration.
            sleep: called for the wait before a restart, instead of blocking this thread.
            choice: the engine and why it was chosen, for the history.

        Raises:
            CheckpointError: when the checkpoint directory is in use, or cannot be read.
            JobDefinitionError: when the job does not fit the checkpoint that it continues from.
        """
        if engine.abilities.keeps_state:
            plan = separated(plan)
        self.job_id = job_id
        self.error: BaseException | None = None
        self.over = threading.Event()
        #: further steps at the end of the job, with their names
        self._at_end: list[tuple[str, Callable[[], object]]] = []
        self.recorder = Recorder()
        self.recorder.job(job_id, plan, configuration, choice)
        self.recorder.status(JobStatus.CREATED)
        self._engine = engine
        self._collected = dict(collected or {})
        self._started = self._stopped = time.time()
        faults = Faults(FAULTS.get(configuration), simulated)
        self.checkpoints = JobCheckpoints(
            configuration, plan, scratch, clock, storage, files, self.recorder.checkpoint, faults
        )
        # NB: all settings are read before the directory is locked, since some may be wrong
        slots_stable_ms = to_millis(SLOTS_STABLE.get(configuration))
        policy = policy or make_policy(restart_strategy(configuration))
        traits = _traits(plan, engine, self.checkpoints, configuration, policy)
        self._attempts = AttemptRunner(
            engine, self.checkpoints, self.recorder, faults, self._collected, configuration, job_id
        )
        machine = JobMachine(traits, policy, self.checkpoints.plan)
        self._control = JobControl(machine, self.checkpoints, self.recorder)
        self._actions = JobActions(
            job_id,
            engine,
            self._control,
            self._attempts,
            self.checkpoints,
            clock,
            slots_stable_ms,
            sleep,
            self._end,
        )

    # Properties of the job

    @property
    def machine(self) -> JobMachine:
        """Return the machine that decides what the job does next."""
        return self._control.machine

    @property
    def status(self) -> JobStatus:
        """Return the reported status; a final status only when the end is carried out."""
        return self._control.status

    @property
    def epochs(self) -> EpochRunner:
        """Return the epochs of the current plan."""
        return self._attempts.epochs

    @property
    def plan(self) -> Plan:
        """Return the current plan."""
        return self.epochs.plan

    @property
    def book(self) -> EpochBook:
        """Return the heads of all states."""
        return self.epochs.book

    @property
    def history(self) -> JobHistory:
        """Return the history of the job."""
        return self.recorder.history

    @property
    def logs(self) -> LogBook:
        """Return what the functions of the job logged last."""
        return self.recorder.logs

    @property
    def savepoint_directory(self) -> str | None:
        """Return the default directory of savepoints."""
        return self.checkpoints.savepoint_directory

    @property
    def net_runtime_ms(self) -> int:
        """Return how long the job ran."""
        return int((self._stopped - self._started) * 1000)

    def query_state(self, operator: str, state: str, key: Any, window: Any = None) -> Any:
        """Return the value of a key in a state now, or as of the last accepted epoch."""
        try:
            if self._engine.abilities.keeps_state:
                return ask_subtask(self._engine, self.plan, operator, state, key, window)
            storage = self.checkpoints.storage
            return query_state(self.epochs.book, storage, operator, state, key, window)
        except StateError as error:
            if not self.over.is_set():
                raise
            message = (
                f"job '{self.plan.name}' has ended; its state is in its last checkpoint or "
                "savepoint, if it kept one; read it with holdfast.savepoint"
            )
            raise StateStorageError(message) from error

    # Requests

    @property
    def _is_ending(self) -> bool:
        return self.machine.ended or self.over.is_set()

    def cancel(self) -> None:
        """Cancel the job: end it after the running epoch, or now if that takes long."""
        self.tell(events.CancelRequested())
        self._engine.abandon()
        self._engine.wake()

    def checkpoint(self) -> CompletableFuture[int]:
        """Request a checkpoint with the next epoch; the result of the future is its id."""
        with self._control.told:
            if self._is_ending:
                return _refused("checkpoint")
            asked = self.checkpoints.requests.ask_checkpoint()
        self._engine.wake()
        return asked

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Request a savepoint with the next epoch; the result of the future is its path."""
        with self._control.told:
            if self._is_ending:
                return _refused("savepoint")
            asked = self.checkpoints.requests.ask_savepoint(directory, stop, drain)
        self._engine.wake()
        return asked

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Continue from a new checkpoint with another parallelism; the future ends when it runs.

        Raises:
            JobDefinitionError: when the job cannot run with this parallelism.
            JobExecutionError: when the job has ended, or is being rescaled.
        """
        plan = rescaled(self.machine.plans.wanted, parallelism)
        done = self._control.rescale(plan)
        self._engine.wake()
        if done.done() and isinstance(done.exception(), JobExecutionError):
            done.result()
        return done

    # The life of the job

    def tell(self, event: events.JobEvent) -> None:
        """Pass an event to the machine, and carry out the effects; from any thread."""
        self._control.tell(event)

    def at_end(self, what: str, do: Callable[[], object]) -> None:
        """Add a step to the end of the job; ``what`` names it in the warning if it fails."""
        self._at_end.append((what, do))

    def start(self) -> None:
        """Start the first attempt, and then the thread of the job.

        Raises:
            HoldfastError: when the job cannot be started; it is cleaned up then.
        """
        self._started = time.time()
        self.tell(events.JobStarting())
        try:
            self.step()
            if isinstance(self.machine.action, events.AwaitTurn):
                supervise(self._live, self._break)
                return
            self._live()
        except BaseException as error:
            self.give_up(error)
        assert self.error is not None
        raise self.error

    def give_up(self, error: BaseException) -> None:
        """End a job that has no thread of its own."""
        self.tell(events.Broken(error))
        self._live()

    def _live(self) -> None:
        while not self.over.is_set():
            self.step()

    def _break(self, error: BaseException) -> None:
        """End the job because its thread cannot continue."""
        failure = self._actions.explained(error, f"job '{self.plan.name}' cannot continue")
        Steps(self.plan.name).take("record its failure", partial(self.tell, events.Broken(failure)))
        self._end(events.EndJob(Outcome.FAILED, failure))

    def step(self) -> None:
        """Carry out an action, and pass the resulting event to the machine."""
        event = self.carry_out()
        if event is not None:
            self.tell(event)

    def carry_out(self, checkpoint: bool = False) -> events.JobEvent | None:
        """Carry out the current action; return the resulting event, for the machine.

        Return None if the job has ended, or a request has changed the action. ``checkpoint``: if
        the action is an epoch, it takes a checkpoint even if none is due.
        """
        return self._actions.carry_out(checkpoint)

    def _end(self, order: events.EndJob) -> None:
        """End the job: release all resources, and all threads that wait for it."""
        steps = Steps(self.plan.name)
        self._stopped = time.time()
        self.error = order.failure
        if order.outcome is Outcome.CANCELLED:
            self.error = JobCancelledError(f"job '{self.plan.name}' was cancelled")
        status = STATUSES[order.outcome]
        steps.take("stop its attempt", self._engine.stop)
        steps.take("close its checkpoints", partial(self.checkpoints.end, order.outcome))
        savepoint = self.checkpoints.stopped_with if order.outcome is Outcome.STOPPED else None
        steps.take("record its end", partial(self.recorder.status, status, savepoint))
        # NB: before the engine deletes its directory, where the history may be
        steps.take("close its history", self.recorder.close)
        steps.take("close its connections", self.epochs.close)
        steps.take("close its engine", self._engine.close)
        self._control.status = status
        self.over.set()
        steps.take("refuse checkpoints", self.checkpoints.requests.refuse)
        for what, do in self._at_end:
            steps.take(what, do)
        for collected in self._collected.values():
            steps.take("end its results", partial(collected.end, self.error))


def _refused(what: str) -> CompletableFuture[Any]:
    error = CheckpointError(f"there is no {what}: the job has ended")
    return CompletableFuture.failed(error)


def _traits(
    plan: Plan,
    engine: Engine,
    checkpoints: JobCheckpoints,
    configuration: Configuration,
    policy: RestartPolicy,
) -> events.JobTraits:
    """Return what the machine knows about a job."""
    return events.JobTraits(
        name=plan.name,
        takes_checkpoints=checkpoints.enabled,
        closes=checkpoints.enabled or has_listeners(plan),
        abilities=engine.abilities,
        least_slots=SLOTS_MIN.get(configuration),
        same_record_limit=same_record_limit(configuration, policy.is_unlimited),
    )
