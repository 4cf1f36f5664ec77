"""Runs a job: carries out the instructions of its machine, and reports the results to the machine.

A job has a thread of its own, in which all actions are carried out; see `JobRunner.start`. Tests
and the simulation carry them out one by one instead. Requests come from any thread.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

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
from holdfast.driver.epochs.running import Epochs, has_listeners
from holdfast.driver.job.attempts import Attempts
from holdfast.driver.job.machine import STATUSES, JobMachine
from holdfast.driver.job.repeated_failures import place_of
from holdfast.driver.job.rescaling import rescaled
from holdfast.driver.job.restart_policy import RestartPolicy, is_permanent, make_policy
from holdfast.driver.job.slot_watch import SlotWatch
from holdfast.driver.job.supervisor import Steps, supervise
from holdfast.driver.outcome import AbandonedError, LostSlotError, SlotsMissingError
from holdfast.driver.queries import ask_subtask, query_state
from holdfast.driver.recording import Recorder
from holdfast.errors import (
    DisagreementError,
    InternalError,
    JobCancelledError,
    JobExecutionError,
)
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.history.job import JobHistory
from holdfast.history.logs import LogBook
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.context import Clock
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.state.errors import StateCorruptionError, StateError, StateStorageError
from holdfast.state.storage.directory import StateStorage

_logger = get_logger(__name__)
#: interval of the checks of the engine while nothing runs, in seconds
_LOOK: Final = 0.1


class JobRunner:
    """A job on an engine, from its start to its end.

    Attributes:
        status: the reported status; a final status only when the end is carried out.
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
        self.job_id = job_id
        self.status = JobStatus.CREATED
        self.error: BaseException | None = None
        self.over = threading.Event()
        #: further steps at the end of the job, with their names
        self._at_end: list[tuple[str, Callable[[], object]]] = []
        self.recorder = Recorder()
        self.recorder.job(job_id, plan, configuration, choice)
        self.recorder.status(self.status)
        self._engine = engine
        self._clock = clock
        self._sleep = sleep
        self._collected = dict(collected or {})
        self._started = self._stopped = time.time()
        #: held while the machine handles an event, and notified afterwards
        self._told = threading.Condition(threading.RLock())
        self._requests = itertools.count(1)
        self._rescales: dict[int, CompletableFuture[None]] = {}
        #: the last attempt failed because state could not be read
        self._suspects = False
        self._slot_watch = SlotWatch(to_millis(SLOTS_STABLE.get(configuration)))
        faults = Faults(FAULTS.get(configuration), simulated)
        self.checkpoints = JobCheckpoints(
            configuration, plan, scratch, clock, storage, files, self.recorder.checkpoint, faults
        )
        try:
            self._attempts = Attempts(
                engine,
                self.checkpoints,
                self.recorder,
                faults,
                self._collected,
                configuration,
                job_id,
            )
        except BaseException:
            self.checkpoints.store.release()
            raise
        policy = policy or make_policy(restart_strategy(configuration))
        self.machine = JobMachine(
            events.JobTraits(
                name=plan.name,
                takes_checkpoints=self.checkpoints.enabled,
                closes=self.checkpoints.enabled or has_listeners(plan),
                abilities=engine.abilities,
                least_slots=SLOTS_MIN.get(configuration),
                same_record_limit=same_record_limit(configuration, policy.is_unlimited),
            ),
            policy,
            self.checkpoints.plan,
        )

    # Properties of the job

    @property
    def epochs(self) -> Epochs:
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
        with self._told:
            if self._is_ending:
                return _refused("checkpoint")
            asked = self.checkpoints.requests.ask_checkpoint()
        self._engine.wake()
        return asked

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Request a savepoint with the next epoch; the result of the future is its path."""
        with self._told:
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
        plan = rescaled(self.machine.wanted, parallelism)
        done: CompletableFuture[None] = CompletableFuture()
        request = next(self._requests)
        self._rescales[request] = done
        self.tell(events.RescaleRequested(request, plan))
        self._engine.wake()
        if done.done() and isinstance(done.exception(), JobExecutionError):
            done.result()
        return done

    # The machine

    def tell(self, event: events.JobEvent) -> None:
        """Pass an event to the machine, and carry out the effects; from any thread."""
        answers: list[Callable[[], None]] = []
        with self._told:
            for instruction in self.machine.handle(event):
                self._carry_out_effect(instruction, answers)
            self._told.notify_all()
        # NB: without the lock, because a waiting caller may send another request at once
        for answer in answers:
            answer()

    def _carry_out_effect(
        self, instruction: events.JobInstruction, answers: list[Callable[[], None]]
    ) -> None:
        match instruction:
            case events.ReportStatus(status):
                self.status = status
                self.recorder.status(status)
            case events.ReportFailure(attempt, failure, restart_ms, reason):
                origin = None if restart_ms is None else self.checkpoints.next_origin
                self.recorder.failure(attempt, failure, restart_ms, origin, reason)
                self._suspects = isinstance(failure, StateCorruptionError | StateStorageError)
            case events.TakeCheckpoint(request):
                # NB: with the lock: the machine must get the end of the checkpoint before that of
                # the epoch, because the job may change its plan when the epoch is committed
                asked = self.checkpoints.requests.ask_checkpoint(halts=True)
                asked.add_done_callback(partial(self._taken, request))
            case events.ReportRescale(request, cause, plan, wanted):
                self.recorder.rescale(request, cause, self.plan, plan, wanted)
            case events.AnswerRescale(request, problem, superseded):
                self.recorder.rescale_ended(request, problem, self._reason(problem, superseded))
                # NB: no caller waits for a change that the machine decided on itself
                if request in self._rescales:
                    answers.append(partial(_answer, self._rescales.pop(request), problem))

    def _reason(self, problem: BaseException | None, superseded: bool) -> str:
        """Return why a change of plan has ended, with the names of Flink's ``terminatedReason``."""
        if problem is None:
            return "SUCCEEDED"
        if superseded:
            return "RESOURCE_REQUIREMENTS_UPDATED"
        return _REASONS.get(self.machine.status, "EXCEPTION_OCCURRED")

    def _taken(self, request: int, checkpoint: CompletableFuture[int]) -> None:
        self.tell(events.CheckpointEnded(request, checkpoint.exception()))

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
        failure = self._explained(error, f"job '{self.plan.name}' cannot continue")
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
        action = self.machine.action
        assert action is not None
        try:
            return self._carry_out(action, checkpoint)
        except DisagreementError as error:
            assert isinstance(action, events.RunEpoch)
            return events.EpochDiscarded(action.epoch, error, self._clock())
        except AbandonedError as error:
            self.epochs.give_up(str(error))
            if isinstance(action, events.StartAttempt):
                return events.StartAbandoned()
            assert isinstance(action, events.RunEpoch)
            return events.EpochAbandoned(action.epoch)
        except SlotsMissingError as error:
            assert isinstance(action, events.StartAttempt)
            self.epochs.give_up(str(error))
            return events.SlotsMissing(
                next(self._requests), error.needed, error.found, self._clock()
            )
        except Exception as error:
            if not isinstance(action, events.FALLIBLE):
                raise
            failure = self._explained(error)
            self.epochs.give_up(str(failure))
            return events.ActionFailed(
                failure,
                self._clock(),
                permanent=is_permanent(failure),
                lost=isinstance(failure, LostSlotError),
                place=place_of(failure),
                checkpoint=self.checkpoints.last_completed,
            )

    def _explained(self, error: BaseException, *what: str) -> BaseException:
        failure = self._engine.explain(error, *what)
        if isinstance(failure, InternalError):
            self.machine.add_log_to(failure)
        return failure

    def _carry_out(self, action: events.Action, checkpoint: bool) -> events.JobEvent | None:
        match action:
            case events.StartAttempt(number):
                return self._attempts.start(number, self._suspects)
            case events.AwaitTurn():
                self._engine.await_turn(self._due_in())
                self._look_for_slots()
                return events.TurnCame()
            case events.RunEpoch():
                return self._attempts.run_epoch(action, checkpoint, self._is_cancelled)
            case events.StopAttempt():
                return self._attempts.stop(self.machine.is_ending)
            case events.ChangePlan(plan):
                return self._change_plan(plan)
            case events.Wait():
                return self._wait(action)
            case events.EndJob():
                self._end(action)
                return None

    def _due_in(self) -> int | None:
        """Return within how many milliseconds an epoch is needed; None: none is needed."""
        if self.machine.is_closing or self.book.unproven:
            return 0
        return self.checkpoints.due_in(self.book.finished)

    def _look_for_slots(self) -> None:
        """Notify the machine of slots for more subtasks, if the job has fewer than wanted."""
        if not self.machine.is_reduced:
            self._slot_watch.forget()
            return
        slots = self._slot_watch.look(self._engine.available_slots, self._clock())
        if slots is not None:
            self.tell(events.SlotsCame(next(self._requests), slots))

    def _is_cancelled(self) -> bool:
        return self.machine.status is JobStatus.CANCELLING

    def _change_plan(self, plan: Plan) -> events.PlanChanged | events.PlanRefused:
        try:
            self._attempts.change_plan(plan, f"{self.job_id}-{self.machine.attempt + 1}")
        except Exception as error:
            return events.PlanRefused(self._explained(error))
        return events.PlanChanged()

    def _wait(self, order: events.Wait) -> events.TimeIsUp | None:
        """Wait; return None if a request ends the wait early."""
        if self._sleep is not None:
            self._sleep(order.ms / 1000)
            self._engine.check()
            return events.TimeIsUp()
        end = time.monotonic() + order.ms / 1000
        while (left := end - time.monotonic()) > 0:
            with self._told:
                if self._told.wait_for(lambda: self.machine.action is not order, min(_LOOK, left)):
                    return None
            self._engine.check()
        return events.TimeIsUp()

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
        self.status = status
        self.over.set()
        steps.take("refuse checkpoints", self.checkpoints.requests.refuse)
        for what, do in self._at_end:
            steps.take(what, do)
        for collected in self._collected.values():
            steps.take("end its results", partial(collected.end, self.error))


#: why a change of plan failed, if the job has ended
_REASONS: Final = {
    JobStatus.FINISHED: "JOB_FINISHED",
    JobStatus.CANCELED: "JOB_CANCELING",
    JobStatus.FAILED: "JOB_FAILING",
}


def _refused(what: str) -> CompletableFuture[Any]:
    error = CheckpointError(f"there is no {what}: the job has ended")
    return CompletableFuture.failed(error)


def _answer(future: CompletableFuture[None], failure: BaseException | None) -> None:
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
