"""One driver in the life of a job, from its start to its end.

`JobRunner` runs the job as it does on Spark. Here is who asks it for something, at any moment, and
looks at what becomes of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.checkpoint.errors import CheckpointCorruptionError, DirectoryInUseError
from holdfast.checkpoint.events import Outcome
from holdfast.checkpoint.metadata import CheckpointMetadata
from holdfast.common import CompletableFuture, JobStatus
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.job_events import (
    ActionFailed,
    AttemptStarted,
    ChangePlan,
    EndJob,
    EpochCommitted,
    JobEvent,
    JobStarting,
    PlanChanged,
    RunEpoch,
    SlotsMissing,
    Wait,
)
from holdfast.driver.reports import attempts_of, checkpoints_of
from holdfast.errors import (
    DisagreementError,
    HoldfastError,
    InternalError,
    JobDefinitionError,
    JobExecutionError,
    RepeatedFailureError,
    UserFunctionError,
)
from holdfast.plan.model import Plan
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.injected_faults import SimulatedKill
from tests.driver.job_rules import validate
from tests.simulation.cluster import ClusterGaveUp
from tests.simulation.engine import SimulatedEngine
from tests.simulation.verifier import Image
from tests.simulation.world import SimulatedFailure, Violation

if TYPE_CHECKING:
    from tests.simulation.life import Life

SAVEPOINTS = "/savepoints"
#: what a job may say when it fails because of what was done to it
_EXCUSES = (
    "No space left on device",
    "consecutive failures are tolerated",
    "the job was drained for a savepoint that failed",
    "has lost its connection to slot",
    "task slots and found",
    "there are not enough slots for that plan",
)
#: a missing file, or a snapshot that could not be taken though nobody let it fail
_UNEXPLAINED = re.compile(
    r"No such file|it is neither in|snapshot_state of [^:]*: (?!SimulatedFailure)"
)


class Results(CollectedRecords):
    """The records that the driver delivered since the attempt began."""

    def __init__(self) -> None:
        super().__init__()
        self.records: Counter[Any] = Counter()

    def put(self, records: list[Any], check: Callable[[], None] | None = None) -> None:
        self.records.update(records)


class _Asked(NamedTuple):
    """A request, and what is to be so when it is answered well."""

    what: str
    answer: CompletableFuture[Any]
    widths: dict[str, int]


class Reign:
    """A driver from its start to its end; its death is an exception."""

    def __init__(
        self, life: Life, runner: JobRunner, engine: SimulatedEngine, results: Results
    ) -> None:
        self._life, self._world, self._random = life, life.world, life.world.random
        self.runner, self._engine, self._results = runner, engine, results
        self._last_epoch = self._accepted_epoch = self._read_epoch = -1
        #: the last epoch that read, if the job then left for another plan
        self._left_at: int | None = None
        self._restarts = 0
        #: the parallelism that the job is to have; how many slots its last start found, if too few
        self._wanted = self._widths()
        self._found: int | None = None
        #: completed, and not told to listeners in an accepted epoch yet
        self._untold: set[int] = set()
        self._asked: list[_Asked] = []
        self._barriers: list[int] = []
        #: those of which nobody has seen yet what became of them
        self._open: list[int] = []
        #: what the savepoint holds with which the job stops
        self._stopped_with: Image | None = None
        self._stops = self._cancelled = self._covered = False
        self._asking = self._end_failed = False
        engine.reign = self
        self._world.requests = self._ask
        self._watch_book()
        self._watch_store()
        self._watch_end()

    def run(self) -> None:
        self._tell(JobStarting())
        while not self.runner.over.is_set():
            event = self._carry_out()
            if event is not None:
                self._tell(event)
            self._world.check()
        if self._world.driver_dead:
            raise SimulatedKill("at the end of the job")
        self._check_end()

    def _tell(self, event: JobEvent) -> None:
        self.runner.tell(event)
        validate(self.runner.machine)

    def _carry_out(self) -> JobEvent | None:
        action = self.runner.machine.action
        if isinstance(action, RunEpoch):
            self._begin_epoch(action)
        elif isinstance(action, EndJob):
            self._world.tell(f"the job ends: {action.outcome.value}")
        event = self.runner.carry_out()
        match event:
            case AttemptStarted():
                self._begin_attempt()
            case EpochCommitted():
                self._look(event)
            case ActionFailed():
                self._fail(event)
            case SlotsMissing():
                self._found = event.found
                self._world.tell(f"an attempt needs {event.needed} slots, and finds {event.found}")
            case PlanChanged():
                assert isinstance(action, ChangePlan)
                self._change_plan(action.plan)
        self._take_answers()
        return event

    def wait(self, seconds: float) -> None:
        """Time goes by before a restart."""
        self._restarts += 1
        self._world.counts["an attempt began again"] += 1
        self._world.clock.advance(round(seconds * 1000))
        self._world.step()

    # Attempts

    def _begin_attempt(self) -> None:
        began = self.runner.history.attempts[-1]
        start = self.runner.checkpoints.start_from
        if began.path is None or (start is not None and start.address != began.path):
            start = None
        if began.checkpoint is not None and start is None:
            start = self._life.store.image(self._life.store.read(began.checkpoint))
        name, restored = "the beginning", 0
        if start is not None:
            restored = start.metadata.id
            name = f"checkpoint {restored} of epoch {start.metadata.epoch}"
            self._last_epoch = max(self._last_epoch, start.metadata.epoch)
        self._world.tell(f"attempt {began.number} begins with {name}")
        self._see_ended()
        left_at, self._left_at = self._left_at, None
        if left_at is not None and (start is None or start.metadata.epoch != left_at):
            raise Violation(f"the job left after epoch {left_at}, and begins with {name}")
        self._untold = {checkpoint for checkpoint in self._untold if checkpoint <= restored}
        self._began_with = self._life.read_image(start)
        self._results.records.clear()
        self._stops = self._covered = False
        self._stopped_with = None

    def _fail(self, event: ActionFailed) -> None:
        error = event.failure
        assert isinstance(error, HoldfastError)
        action = self.runner.machine.action
        self._world.tell(f"{type(action).__name__} failed: {str(error).splitlines()[0]}")
        check_excuse(error)
        if self._accepted_epoch == self._last_epoch and self._engine.tasks:
            self._untold -= set(self._engine.tasks[0].completed)
        self._world.make_space()

    def _change_plan(self, plan: Plan) -> None:
        """The job has another plan: somebody asked for it, or slots have come or gone."""
        world, found = self._world, _widths(plan)
        fewer, self._found = self._found, None
        asked = [asked for asked in self._asked if asked.what == "rescaling"]
        if fewer is not None:
            world.counts["the job goes on with fewer slots"] += 1
            self._life.go_on_with_fewer_slots()
            world.tell(f"the job goes on with {fewer} slots: {found}")
            if found != {uid: min(width, fewer) for uid, width in self._wanted.items()}:
                raise Violation(f"{self._wanted} is wanted, {fewer} slots are left: {found}")
        elif asked:
            self._wanted = found
        else:
            world.counts["the job goes back to more slots"] += 1
            world.tell(f"the job goes back to {found}")
            width = max(found.values())
            if found != {uid: min(wanted, width) for uid, wanted in self._wanted.items()}:
                raise Violation(f"{self._wanted} is wanted, and the job goes back to {found}")
        if fewer is None:
            self._left_at = self._read_epoch
        world.counts["the job runs with another plan"] += 1
        self._watch_book()

    # Epochs

    def _begin_epoch(self, order: RunEpoch) -> None:
        if order.again:
            self._world.tell(f"epoch {order.epoch} is discarded and run again")
            self._world.counts["an epoch was discarded"] += 1
            return
        if order.epoch <= self._last_epoch:
            raise Violation(f"epoch {order.epoch} follows epoch {self._last_epoch}")
        if self._cancelled and not order.closing:
            raise Violation(f"epoch {order.epoch} reads, and the job was cancelled before it")
        if self.runner.book.finished and not (order.closing or order.last):
            raise Violation(f"epoch {order.epoch} has nothing to read, and takes no checkpoint")
        self._last_epoch = order.epoch
        self._life.count_epoch()
        self._world.epoch_begins()
        self._world.clock.advance(self._random.choice((10, 60, 110, 110)))
        few = (1, 2, 4, 8) if self._engine.abilities.keeps_state else (1, 2, 2, 4)
        quota = 100 if self._world.calm else self._random.choice(few)
        self.runner.book.quota = quota

    def executes(self, task: EpochTask, tries: int) -> None:
        """The engine runs an epoch."""
        for checkpoint in self._see_ended():
            self._perhaps_check(checkpoint)
        if tries == 1 and task.checkpoint is not None:
            self._life.begin_barrier(task.checkpoint)
            self._barriers.append(task.checkpoint)
            self._world.counts["two checkpoints were under way at once"] += bool(self._open)
            self._open.append(task.checkpoint)

    def _watch_book(self) -> None:
        book = self.runner.book
        accept = book.accept

        def note(epoch: int, *details: Any) -> Any:
            accepted = accept(epoch, *details)
            self._accepted_epoch = epoch
            return accepted

        book.accept = note  # type: ignore[assignment,method-assign]

    def _watch_store(self) -> None:
        store = self.runner.checkpoints.store
        write = store.write

        def note(metadata: CheckpointMetadata) -> None:
            write(metadata)
            self._life.see_complete(metadata.id)

        store.write = note  # type: ignore[method-assign]
        superseded = self.runner.checkpoints._coordination.superseded
        delete = superseded.delete

        def may_fail(live: set[str], since: int | None) -> None:
            with self._world.letting_go():
                delete(live, since)

        superseded.delete = may_fail  # type: ignore[method-assign]

    def _watch_end(self) -> None:
        end = self.runner.checkpoints.end

        def note(outcome: Outcome) -> None:
            try:
                end(outcome)
            except HoldfastError as error:
                self._world.tell(f"the end of the job failed: {error}")
                check_excuse(error)
                self._end_failed = True

        self.runner.checkpoints.end = note  # type: ignore[method-assign]

    def _look(self, event: EpochCommitted) -> None:
        """Look at what an accepted epoch left: on the disk, and with listeners."""
        world, task = self._world, self._engine.tasks[0]
        self._check_told(task)
        reduced, found = self.runner.machine.plans.is_reduced, self._widths()
        if reduced != (found != self._wanted):
            raise Violation(f"{self._wanted} is wanted, and the job is content with {found}")
        if not task.closing:
            self._read_epoch = task.epoch
        world.tell(f"epoch {task.epoch} is accepted")
        for checkpoint in self._see_ended():
            if checkpoint == task.checkpoint and event.finished:
                self._check_checkpoint(checkpoint, finished=True)
            else:
                self._perhaps_check(checkpoint)
        if task.checkpoint in world.was_complete:
            self._covered = event.finished

    def _see_ended(self) -> list[int]:
        """Look what has become of checkpoints; returns those that are complete."""
        world = self._world
        complete = [c for c in self._open if c in world.was_complete]
        in_flight = self.runner.checkpoints._coordinator.in_flight
        aborted = [c for c in self._open if c not in complete and c not in in_flight]
        self._open = [c for c in self._open if c not in complete and c not in aborted]
        for checkpoint in complete:
            world.counts["a checkpoint was completed"] += 1
            world.tell(f"checkpoint {checkpoint} is complete")
            self._untold.add(checkpoint)
        for checkpoint in aborted:
            world.counts["a checkpoint was aborted"] += 1
            world.tell(f"checkpoint {checkpoint} is not there")
        return complete

    def _check_told(self, task: EpochTask) -> None:
        """Listeners were told of everything that had ended before the epoch."""
        told = {*task.completed, *task.aborted}
        missed = [n for n in range(self._listeners()) if not told <= self._world.heard[n]]
        if missed:
            raise Violation(f"subtasks {missed} of totals were not told of {sorted(told)}")
        self._untold -= told
        if self._untold:
            raise Violation(f"listeners were not told of {sorted(self._untold)}")

    def _listeners(self) -> int:
        return self._widths()["totals"]

    def _widths(self) -> dict[str, int]:
        return _widths(self.runner.plan)

    def _perhaps_check(self, checkpoint: int) -> None:
        # NB: one that was complete may be superfluous by now
        if self._random.random() < 0.6 and self._life.see_complete(checkpoint):
            self._check_checkpoint(checkpoint, finished=False)

    def _check_checkpoint(self, checkpoint: int, finished: bool) -> None:
        store = self._life.store
        image = self._life.read_image(store.image(store.read(checkpoint)))
        assert image is not None
        results, until = self._results.records, self._engine.results_until(checkpoint)
        self._check_results(image, results if until is None else until)
        if until is not None and not until <= results:
            raise Violation(f"{until - results} was not delivered with {image.name}")
        if finished and not (image.at_end or image.drained):
            raise Violation(f"the job ends, and stands at {image.positions}")

    def _check_results(self, image: Image, results: Counter[Any]) -> None:
        """What the attempt delivered is what has changed since it began."""
        expected = image.results()
        if self._began_with is not None:
            expected.subtract(self._began_with.results())
        if results != expected:
            what = f"expected {expected}, found {results}"
            raise Violation(f"wrong results in the attempt until {image.name}: {what}")

    # Requests: they come at any moment, between two steps of the driver

    def _ask(self) -> None:
        if self._asking:
            return
        self._asking = True
        try:
            self._perhaps_ask()
        finally:
            self._asking = False

    def _perhaps_ask(self) -> None:
        world, runner = self._world, self.runner
        if world.happens("a savepoint is asked for"):
            self._note("savepoint", runner.savepoint(SAVEPOINTS))
        if world.happens("a checkpoint is asked for"):
            self._note("checkpoint", runner.checkpoint())
        if world.happens("the job stops with a savepoint"):
            drain = self._random.random() < 0.2
            self._note("stop", runner.savepoint(SAVEPOINTS, stop=True, drain=drain))
        if world.happens("the job is rescaled while it runs"):
            self._rescale()
        if world.happens("the job is cancelled"):
            during = runner.machine.action
            world.tell(f"the job is cancelled in {during}")
            if isinstance(during, Wait):
                world.counts["a job was cancelled while restarting"] += 1
            self._cancelled = self._cancelled or not runner.machine.ended
            runner.cancel()

    def _note(self, what: str, answer: CompletableFuture[Any], **widths: int) -> None:
        during, counts = self.runner.machine.action, self._world.counts
        self._world.tell(f"somebody asks for a {what} in {type(during).__name__}")
        counts["two requests waited at once"] += bool(self._asked)
        counts["something was asked for while the job ended"] += isinstance(during, EndJob)
        rescaling = any(asked.what == "rescaling" for asked in self._asked)
        counts["a stop was asked for while rescaling"] += rescaling and what == "stop"
        self._asked.append(_Asked(what, answer, widths))

    def _rescale(self) -> None:
        widths = self._life.other_widths(self.runner.plan)
        try:
            self._note("rescaling", self.runner.rescale(widths), **widths)
        except JobDefinitionError as error:
            raise Violation(f"the plan is refused: {error}") from error
        except JobExecutionError as error:
            self._world.tell(f"no rescaling: {error}")
            self._world.counts["a rescaling was refused"] += 1

    def _take_answers(self) -> None:
        done = [asked for asked in self._asked if asked.answer.done()]
        self._asked = [asked for asked in self._asked if not asked.answer.done()]
        for asked in done:
            failure = asked.answer.exception()
            if failure is not None:
                self._world.tell(f"no {asked.what}: {str(failure).splitlines()[0]}")
            elif asked.what == "rescaling":
                self._check_widths(asked)
            elif asked.what != "checkpoint":
                self._take_savepoint(asked)

    def _check_widths(self, asked: _Asked) -> None:
        self._world.counts["a rescaling was answered"] += 1
        found = self._widths()
        if self.runner.status not in (JobStatus.RUNNING, JobStatus.CANCELLING):
            raise Violation(f"the job is rescaled, and {self.runner.status}")
        if any(found[uid] != width for uid, width in asked.widths.items() if uid in found):
            raise Violation(f"the job is rescaled to {asked.widths}, and runs with {found}")

    def _take_savepoint(self, asked: _Asked) -> None:
        path = asked.answer.result(0)
        self._world.tell(f"there is {path}")
        self._world.counts["a savepoint was made"] += 1
        image = self._life.check_savepoint(path)
        if asked.what == "stop":
            self._stops, self._stopped_with = True, image

    # The end

    def _check_end(self) -> None:
        action, life, world = self.runner.machine.action, self._life, self._world
        assert isinstance(action, EndJob)
        world.counts[f"the job ended: {action.outcome.value}"] += 1
        self._take_answers()
        self._check_outcome(action)
        self._check_history()
        if self._end_failed:
            world.make_space()
        elif action.outcome is Outcome.FINISHED:
            life.check_finished()
            life.done = self._random.random() > 0.1
            if not life.done:
                life.run_again()
        elif action.outcome is Outcome.STOPPED and self.runner.book.finished:
            life.done = True  # drained: there is nothing to go on with
        else:
            life.choose_start()

    def _check_outcome(self, end: EndJob) -> None:
        outcome = end.outcome
        if self._asked:
            raise Violation(f"the job has ended, and nobody answered {self._asked}")
        if outcome is Outcome.STOPPED and not self._stops:
            raise Violation("the job counts as stopped, and went on after its savepoint")
        if outcome is Outcome.STOPPED and self._stopped_with is not None:
            self._check_results(self._stopped_with, self._results.records)
        if outcome is Outcome.CANCELLED and not self._cancelled:
            raise Violation("the job counts as cancelled, and nobody asked for that")
        if outcome is Outcome.FINISHED and not self._covered:
            raise Violation("the job has finished, and no checkpoint covers what it read")
        if outcome is Outcome.FAILED:
            assert isinstance(end.failure, HoldfastError)
            check_excuse(end.failure)
            if isinstance(end.failure, RepeatedFailureError):
                self._check_record(end.failure)
        if outcome not in (Outcome.FAILED, Outcome.CANCELLED) and self._untold:
            raise Violation(f"the job has ended; nobody was told of {sorted(self._untold)}")

    def _check_record(self, error: RepeatedFailureError) -> None:
        """A record ends the job only when it has failed as often as it may."""
        self._world.counts["a record failed too often"] += 1
        failures = [one for one in self.runner.history.failures if one.record == error.record]
        if not 0 < self._life.failures_per_record <= len(failures):
            raise Violation(f"the job ends after {len(failures)} failures on {error.record}")

    def _check_history(self) -> None:
        """What people are told of the job is what happened, over restarts and changes of plan."""
        history = self.runner.history
        seen = [one.id for one in checkpoints_of(history)]
        missing = sorted(set(self._barriers) - set(seen))
        if missing:
            raise Violation(f"nobody is told of checkpoints {missing}")
        problems = [one.failure or "" for one in checkpoints_of(history)]
        unexplained = [problem for problem in problems if _is_unexplained(problem)]
        if unexplained:
            raise Violation(f"checkpoints failed: {unexplained}")
        numbers = [attempt.number for attempt in attempts_of(history)]
        if numbers != list(range(len(numbers))):
            raise Violation(f"people are told of attempts {numbers}")
        open_ones = [seen for seen in history.rescales.values() if seen.ended is None]
        if open_ones:
            raise Violation(f"nobody is told what became of {open_ones}")
        if self._restarts > self._life.restarts_allowed:
            raise Violation(f"the job was restarted {self._restarts} times")
        stopped = self.runner.machine.action.outcome is Outcome.STOPPED
        if stopped != (history.savepoint is not None):
            raise Violation(f"people are told of the last savepoint {history.savepoint}")
        if history.status != self.runner.status.name:
            raise Violation(f"the history says {history.status}: {self.runner.status}")


def _widths(plan: Plan) -> dict[str, int]:
    return {op.uid: op.parallelism for op in plan.operators.values()}


def _is_unexplained(problem: str) -> bool:
    """Whether a checkpoint failed for a reason that nothing of what was done to it explains."""
    return _UNEXPLAINED.search(problem) is not None


def check_excuse(error: HoldfastError) -> None:
    """A job may fail because of what was done to it, and for no other reason."""
    if isinstance(error, ClusterGaveUp | DisagreementError):
        return
    if isinstance(error, UserFunctionError) and isinstance(error.original, SimulatedFailure):
        return
    damaged = isinstance(error, CheckpointCorruptionError | DirectoryInUseError | InternalError)
    damaged |= _is_unexplained(str(error))
    if damaged or not any(excuse in str(error) for excuse in _EXCUSES):
        raise Violation(f"the driver says: {error}") from error
