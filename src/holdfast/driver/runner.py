"""Runs a job: carries out what its machine says, and tells the machine what came of it.

A job has a thread of its own, in which all actions are carried out; see `JobRunner.start`. Tests
and the simulation carry them out one by one instead. Requests come from any thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import Outcome
from holdfast.common import CompletableFuture, Configuration
from holdfast.common.engine_options import slot_settings
from holdfast.common.job_status import JobStatus
from holdfast.common.restart_options import restart_strategy
from holdfast.common.time import wall_clock
from holdfast.driver.book import EpochBook
from holdfast.driver.checkpoints import JobCheckpoints
from holdfast.driver.delivery import CollectedRecords
from holdfast.driver.engine import Engine, EngineChoice, PlannedJob
from holdfast.driver.epochs import Epochs, has_listeners
from holdfast.driver.job import STATUSES, JobMachine
from holdfast.driver.job_events import (
    FALLIBLE,
    Action,
    ActionFailed,
    AnswerRescale,
    AttemptStarted,
    AttemptStopped,
    AwaitTurn,
    Broken,
    CancelRequested,
    ChangePlan,
    CheckpointEnded,
    EndJob,
    EpochAbandoned,
    EpochCommitted,
    EpochDiscarded,
    JobEvent,
    JobInstruction,
    JobStarting,
    JobTraits,
    PlanChanged,
    PlanRefused,
    ReportFailure,
    ReportRescale,
    ReportStatus,
    RescaleRequested,
    RunEpoch,
    SlotsCame,
    SlotsMissing,
    StartAbandoned,
    StartAttempt,
    StopAttempt,
    TakeCheckpoint,
    TimeIsUp,
    TurnCame,
    Wait,
)
from holdfast.driver.outcome import AbandonedError, LostSlotError, SlotsMissingError
from holdfast.driver.queries import ask_subtask, query_state
from holdfast.driver.recording import Recorder
from holdfast.driver.rescaling import rescaled
from holdfast.driver.restart import RestartPolicy, is_permanent, make_policy
from holdfast.driver.steady import Steady
from holdfast.driver.supervisor import Steps, supervise
from holdfast.errors import (
    DisagreementError,
    InternalError,
    JobCancelledError,
    JobExecutionError,
)
from holdfast.filesystem import FileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.history.job import JobHistory
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.context import Clock
from holdfast.runtime.faults import FAULTS_KEY, Faults
from holdfast.state.errors import StateCorruptionError, StateError, StateStorageError
from holdfast.state.storage import StateStorage

__all__ = ["JobRunner"]

_logger = get_logger(__name__)
_LARGEST_EPOCH: Final = "holdfast.epoch.max-records"
_DEFAULT_LARGEST_EPOCH: Final = 4_000_000
#: between two looks at the engine while nothing runs, in seconds
_LOOK: Final = 0.1
#: between two looks for task slots at most, in milliseconds
_LOOK_FOR_SLOTS: Final = 1000


class JobRunner:
    """A job on an engine, from its start to its end.

    Attributes:
        status: what people are told; the end only when it is carried out.
        error: what the job ended with; None if it ended well.
        over: set when the job has ended, and everybody who waits for it is released.
        checkpoints: those of the job, over all its attempts and plans.
        recorder: keeps the job's history.
        epochs: those of the plan that runs now.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        job_id: str,
        configuration: Configuration,
        scratch: Path,
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
        """Lock the checkpoint directory, find where to begin, prepare the engine; nothing runs yet.

        Args:
            engine: runs the epochs.
            plan: the job's plan.
            job_id: tells this start of the job from others.
            configuration: the environment's.
            scratch: the job's own directory, which the workers see.
            collected: where the records go that the program collects, by operator.
            clock: the time, for checkpoints and restarts.
            storage: the state of a job without checkpoints.
            files: finds the file systems of addresses.
            simulated: all processes of the job are this one.
            policy: what follows a failure, instead of what the configuration says.
            sleep: waits before a restart, in place of this thread.
            choice: what is told of the engine.

        Raises:
            CheckpointError: when the checkpoint directory is in use, or cannot be read.
            JobDefinitionError: when the job does not fit the checkpoint that it goes on from.
        """
        self.job_id = job_id
        self.status = JobStatus.CREATED
        self.error: BaseException | None = None
        self.over = threading.Event()
        #: what else is to be done at the end of the job
        self._at_end: list[tuple[str, Callable[[], object]]] = []
        self.recorder = Recorder()
        self.recorder.job(job_id, plan, configuration, choice)
        self.recorder.status(self.status)
        self._engine = engine
        self._clock = clock
        self._sleep = sleep
        self._collected = dict(collected or {})
        self._largest_quota = configuration.get_integer(_LARGEST_EPOCH, _DEFAULT_LARGEST_EPOCH)
        self._faults = Faults(configuration.to_dict().get(FAULTS_KEY, ""), simulated)
        self._started = self._stopped = time.time()
        #: held while the machine is told something; told when it was
        self._told = threading.Condition(threading.RLock())
        self._requests = itertools.count(1)
        self._rescales: dict[int, CompletableFuture[None]] = {}
        #: why an epoch was discarded
        self._disagreement: DisagreementError | None = None
        #: the last attempt failed with state that could not be read
        self._suspects = False
        slots = slot_settings(configuration)
        stable = round(slots.stable * 1000)
        self._steady_slots = Steady(stable)
        #: how often slots are looked for, and when they last were
        self._look_every, self._looked = min(stable, _LOOK_FOR_SLOTS), 0
        self.checkpoints = JobCheckpoints(
            configuration,
            plan,
            scratch,
            clock,
            storage,
            files,
            self.recorder.checkpoint,
            self._faults,
        )
        try:
            self.start_from = self.checkpoints.open()
            self.epochs = self._prepare(self.checkpoints.plan, job_id)
        except BaseException:
            self.checkpoints.store.release()
            raise
        self.machine = JobMachine(
            JobTraits(
                name=plan.name,
                takes_checkpoints=self.checkpoints.enabled,
                closes=self.checkpoints.enabled or has_listeners(plan),
                abilities=engine.abilities,
                least_slots=slots.least,
            ),
            policy or make_policy(restart_strategy(configuration), self.checkpoints.enabled),
            self.checkpoints.plan,
        )

    def _prepare(self, plan: Plan, name: str) -> Epochs:
        """Make the engine ready for a plan; if it refuses, everything is as before."""
        store = self.checkpoints.store
        epochs = Epochs(
            plan,
            name,
            self._engine,
            self.checkpoints,
            self.recorder,
            self._faults,
            self._collected,
            self._largest_quota,
        )
        storage = self.checkpoints.storage
        self._engine.prepare(
            PlannedJob(
                name,
                plan,
                storage,
                store.state.address,
                store.staging,
                self._faults,
                epochs.deliver,
            )
        )
        self.checkpoints.plan = plan
        self.recorder.plan(plan)
        return epochs

    # What is known of the job

    @property
    def plan(self) -> Plan:
        """What runs now."""
        return self.epochs.plan

    @property
    def book(self) -> EpochBook:
        """The heads of all states."""
        return self.epochs.book

    @property
    def history(self) -> JobHistory:
        """What the job did."""
        return self.recorder.history

    @property
    def savepoint_directory(self) -> str | None:
        """Where savepoints go if nobody says where."""
        return self.checkpoints.savepoint_directory

    @property
    def net_runtime_ms(self) -> int:
        """How long the job ran."""
        return int((self._stopped - self._started) * 1000)

    def query_state(self, operator: str, state: str, key: Any, window: Any = None) -> Any:
        """What a key has in a state now, or as of the last accepted epoch."""
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
                "savepoint, if it was to keep one: read that with holdfast.savepoint"
            )
            raise StateStorageError(message) from error

    # Requests

    @property
    def _is_ending(self) -> bool:
        return self.machine.ended or self.over.is_set()

    def cancel(self) -> None:
        """Ask the job to end now, after the epoch that runs, if that does not take long."""
        self.tell(CancelRequested())
        self._engine.abandon()
        self._engine.wake()

    def checkpoint(self) -> CompletableFuture[int]:
        """Ask for a checkpoint with the next epoch; the future is done with its id."""
        with self._told:
            if self._is_ending:
                return _refused("checkpoint")
            asked = self.checkpoints.ask_checkpoint()
        self._engine.wake()
        return asked

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Ask for a savepoint with the next epoch; the future is done with its path."""
        with self._told:
            if self._is_ending:
                return _refused("savepoint")
            asked = self.checkpoints.ask_savepoint(directory, stop, drain)
        self._engine.wake()
        return asked

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Go on from a new checkpoint with another parallelism; done when the job runs like that.

        Raises:
            JobDefinitionError: when the job cannot run like that.
            JobExecutionError: when it does not run, or is being rescaled.
        """
        plan = rescaled(self.machine.wanted, parallelism)
        done: CompletableFuture[None] = CompletableFuture()
        request = next(self._requests)
        self._rescales[request] = done
        self.tell(RescaleRequested(request, plan))
        self._engine.wake()
        if done.done() and isinstance(done.exception(), JobExecutionError):
            done.result()
        return done

    # The machine

    def tell(self, event: JobEvent) -> None:
        """Tell the machine what happened, and carry out the effects; from any thread."""
        answers: list[Callable[[], None]] = []
        with self._told:
            for instruction in self.machine.handle(event):
                self._carry_out_effect(instruction, answers)
            self._told.notify_all()
        # NB: without the lock, for whoever waits may ask for something else at once
        for answer in answers:
            answer()

    def _carry_out_effect(
        self, instruction: JobInstruction, answers: list[Callable[[], None]]
    ) -> None:
        match instruction:
            case ReportStatus(status):
                self.status = status
                self.recorder.status(status)
            case ReportFailure(attempt, failure, restart_ms):
                origin = None if restart_ms is None else self.checkpoints.next_origin
                self.recorder.failure(attempt, failure, restart_ms, origin)
                self._suspects = isinstance(failure, StateCorruptionError | StateStorageError)
            case TakeCheckpoint(request):
                # NB: with the lock: the machine must hear of the checkpoint before it hears that
                # the epoch is committed, for then the job may leave
                asked = self.checkpoints.ask_checkpoint(halts=True)
                asked.add_done_callback(partial(self._taken, request))
            case ReportRescale(request, cause, plan, wanted):
                self.recorder.rescale(request, cause, self.plan, plan, wanted)
            case AnswerRescale(request, problem, superseded):
                self.recorder.rescale_ended(request, problem, self._reason(problem, superseded))
                # NB: nobody waits for what the machine has decided by itself
                if request in self._rescales:
                    answers.append(partial(_answer, self._rescales.pop(request), problem))

    def _reason(self, problem: BaseException | None, superseded: bool) -> str:
        """Return why a change of plan has ended, in the words of Flink's ``terminatedReason``."""
        if problem is None:
            return "SUCCEEDED"
        if superseded:
            return "RESOURCE_REQUIREMENTS_UPDATED"
        return _REASONS.get(self.machine.status, "EXCEPTION_OCCURRED")

    def _taken(self, request: int, checkpoint: CompletableFuture[int]) -> None:
        self.tell(CheckpointEnded(request, checkpoint.exception()))

    def at_end(self, what: str, do: Callable[[], object]) -> None:
        """Do that as well when the job has ended; ``what`` names it if it fails."""
        self._at_end.append((what, do))

    def start(self) -> None:
        """Start the first attempt, and then the thread in which the job lives.

        Raises:
            HoldfastError: when it does not start; then nothing of the job is left.
        """
        self._started = time.time()
        self.tell(JobStarting())
        try:
            self.step()
            if isinstance(self.machine.action, AwaitTurn):
                supervise(self._live, self._break)
                return
            self._live()
        except BaseException as error:
            self.give_up(error)
        assert self.error is not None
        raise self.error

    def give_up(self, error: BaseException) -> None:
        """End a job that has no thread of its own."""
        self.tell(Broken(error))
        self._live()

    def _live(self) -> None:
        while not self.over.is_set():
            self.step()

    def _break(self, error: BaseException) -> None:
        """End the job: its thread cannot go on."""
        failure = self._explained(error, f"job '{self.plan.name}' cannot go on")
        Steps(self.plan.name).take("note its failure", partial(self.tell, Broken(failure)))
        self._end(EndJob(Outcome.FAILED, failure))

    def step(self) -> None:
        """Carry out an action, and tell the machine what came of it."""
        event = self.carry_out()
        if event is not None:
            self.tell(event)

    def carry_out(self, checkpoint: bool = False) -> JobEvent | None:
        """Carry out what is to be done; returns what came of it, which the machine has to know.

        None: the job has ended, or a request has changed what is to be done. ``checkpoint``: if it
        is an epoch, it takes one, whatever the time.
        """
        action = self.machine.action
        assert action is not None
        try:
            return self._carry_out(action, checkpoint)
        except DisagreementError as error:
            assert isinstance(action, RunEpoch)
            self._disagreement = error
            return EpochDiscarded(action.epoch, error, self._clock())
        except AbandonedError as error:
            self.epochs.give_up(str(error))
            if isinstance(action, StartAttempt):
                return StartAbandoned()
            assert isinstance(action, RunEpoch)
            return EpochAbandoned(action.epoch)
        except SlotsMissingError as error:
            assert isinstance(action, StartAttempt)
            self.epochs.give_up(str(error))
            return SlotsMissing(next(self._requests), error.needed, error.found, self._clock())
        except Exception as error:
            if not isinstance(action, FALLIBLE):
                raise
            failure = self._explained(error)
            self.epochs.give_up(str(failure))
            lost = isinstance(failure, LostSlotError)
            return ActionFailed(failure, self._clock(), is_permanent(failure), lost)

    def _explained(self, error: BaseException, *what: str) -> BaseException:
        failure = self._engine.explain(error, *what)
        if isinstance(failure, InternalError):
            self.machine.add_log_to(failure)
        return failure

    def _carry_out(self, action: Action, checkpoint: bool) -> JobEvent | None:
        match action:
            case StartAttempt(number):
                return self._start_attempt(number)
            case AwaitTurn():
                self._engine.await_turn(self._due_in())
                self._look_for_slots()
                return TurnCame()
            case RunEpoch():
                return self._run_epoch(action, checkpoint)
            case StopAttempt():
                return self._stop_attempt()
            case ChangePlan(plan):
                return self._change_plan(plan)
            case Wait():
                return self._wait(action)
            case EndJob():
                self._end(action)
                return None

    def _start_attempt(self, number: int) -> AttemptStarted:
        start = self.start_from if number == 0 else self.checkpoints.restart(self._suspects)
        self.recorder.attempt(number, start)
        self.epochs.begin_attempt(number, start)
        self._engine.start(number, start)
        return AttemptStarted(-1 if start is None else start.metadata.epoch)

    def _due_in(self) -> int | None:
        """Return in how many milliseconds an epoch is wanted at the latest; None: by nobody."""
        if self.machine.is_closing or self.book.unproven:
            return 0
        return self.checkpoints.due_in(self.book.finished)

    def _look_for_slots(self) -> None:
        """Tell the machine of task slots for more subtasks, if the job has fewer than wanted."""
        now = self._clock()
        if not self.machine.is_reduced:
            self._steady_slots.forget()
        elif now - self._looked >= self._look_every:
            self._looked = now
            slots = self._engine.available_slots()
            if slots is not None and self._steady_slots.see(slots, now):
                self._steady_slots.forget()
                self.tell(SlotsCame(next(self._requests), slots))

    def _is_cancelled(self) -> bool:
        return self.machine.status is JobStatus.CANCELLING

    def _run_epoch(self, order: RunEpoch, checkpoint: bool) -> EpochCommitted:
        if order.again:
            why = self._disagreement
            _logger.warning("epoch %d is discarded and run again: %s", order.epoch, why)
        else:
            self._disagreement = None
            self.epochs.trigger(order, checkpoint)
        completion = self.epochs.run(self._is_cancelled)
        self._engine.end_turn()
        return EpochCommitted(
            order.epoch, self.book.finished, completion.complete, completion.stops
        )

    def _stop_attempt(self) -> AttemptStopped:
        self.epochs.give_up(str(self._disagreement))
        if self.machine.is_ending:
            self._engine.expect_end()
        try:
            self._engine.stop()
        except Exception as error:
            _logger.warning("job '%s': an attempt did not stop well: %s", self.plan.name, error)
        return AttemptStopped()

    def _change_plan(self, plan: Plan) -> PlanChanged | PlanRefused:
        old, name = self.epochs, f"{self.job_id}-{self.machine.attempt + 1}"
        try:
            self.epochs = self._prepare(self.checkpoints.fitted(plan), name)
        except Exception as error:
            return PlanRefused(self._explained(error))
        old.close()
        return PlanChanged()

    def _wait(self, order: Wait) -> TimeIsUp | None:
        """Wait; a request may cut it short."""
        if self._sleep is not None:
            self._sleep(order.ms / 1000)
            self._engine.check()
            return TimeIsUp()
        end = time.monotonic() + order.ms / 1000
        while (left := end - time.monotonic()) > 0:
            with self._told:
                if self._told.wait_for(lambda: self.machine.action is not order, min(_LOOK, left)):
                    return None
            self._engine.check()
        return TimeIsUp()

    def _end(self, order: EndJob) -> None:
        """End the job: leave nothing behind, and release all who wait for it."""
        steps = Steps(self.plan.name)
        self._stopped = time.time()
        self.error = order.failure
        if order.outcome is Outcome.CANCELLED:
            self.error = JobCancelledError(f"job '{self.plan.name}' was cancelled")
        status = STATUSES[order.outcome]
        steps.take("stop its attempt", self._engine.stop)
        steps.take("close its checkpoints", partial(self.checkpoints.end, order.outcome))
        steps.take("note its end", partial(self.recorder.status, status))
        # NB: before the engine's directory goes, where the history may be
        steps.take("close its history", self.recorder.close)
        steps.take("close its connections", self.epochs.close)
        steps.take("close what ran it", self._engine.close)
        self.status = status
        self.over.set()
        steps.take("refuse checkpoints", self.checkpoints.refuse)
        for what, do in self._at_end:
            steps.take(what, do)
        for collected in self._collected.values():
            steps.take("end its results", partial(collected.end, self.error))


#: why a change of plan came to nothing, if the job has ended
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
