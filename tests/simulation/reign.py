"""One driver in the life of a job: its attempts and their epochs.

This is the part of `holdfast.spark.job` that is not Spark: it runs epochs, begins the next attempt
after a failure if the restart strategy says so, and ends the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.errors import CheckpointCorruptionError, DirectoryInUseError
from holdfast.checkpoint.events import Outcome
from holdfast.common import CompletableFuture
from holdfast.driver.delivery import CollectedRecords
from holdfast.driver.driver import JobDriver
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.restart import GiveUp
from holdfast.driver.start import Start
from holdfast.errors import DisagreementError, HoldfastError, InternalError, UserFunctionError
from holdfast.runtime.protocol import EpochTask
from tests.simulation.cluster import ClusterGaveUp
from tests.simulation.verifier import Image
from tests.simulation.world import SimulatedFailure, Violation

if TYPE_CHECKING:
    from tests.simulation.life import Life

SAVEPOINTS = "/savepoints"
#: what a job may say when it fails because of what was done to it
_EXCUSES = (
    "No space left on device",
    "failures in a row are tolerable",
    "the job was drained for a savepoint that failed",
)


class Results(CollectedRecords):
    """The records that the driver delivered since the attempt began."""

    def __init__(self) -> None:
        super().__init__()
        self.records: Counter[Any] = Counter()

    def put(self, records: list[Any]) -> None:
        self.records.update(records)


class Reign:
    """A driver from its start to its end; its death is an exception."""

    def __init__(self, life: Life, driver: JobDriver, results: Results) -> None:
        self._life, self._world, self._random = life, life.world, life.world.random
        self._driver = driver
        self._results = results
        self._attempt = 0
        self._last_epoch = self._accepted_epoch = -1
        self._tasks: Sequence[EpochTask] = ()
        self._tries = 0
        #: completed, and not told to listeners in an accepted epoch yet
        self._untold: set[int] = set()
        #: who asked for a savepoint, and whether the job is to stop with it
        self._answers: list[tuple[CompletableFuture[str], bool]] = []
        self._stops = False
        self._accept = driver.book.accept
        driver.book.accept = self._note_acceptance  # type: ignore[assignment,method-assign]

    def run(self) -> None:
        self._begin(0)
        while not self._driver.over:
            self._life.count_epoch()
            try:
                self._epoch()
            except HoldfastError as error:
                self._world.tell(f"the epoch failed: {str(error).splitlines()[0]}")
                check_excuse(error)
                if self._accepted_epoch == self._last_epoch:
                    self._untold -= set(self._tasks[0].completed)
                if not self._start_again(error):
                    return
            self._world.check()
        self._end(self._outcome())

    # Attempts

    def _begin(self, number: int) -> None:
        start = self._driver.begin_attempt(number)
        name, restored = "the beginning", 0
        if start is not None:
            restored = start.metadata.id
            name = f"checkpoint {restored} of epoch {start.metadata.epoch}"
            self._last_epoch = max(self._last_epoch, start.metadata.epoch)
        self._world.tell(f"attempt {number} begins with {name}")
        self._untold = {checkpoint for checkpoint in self._untold if checkpoint <= restored}
        self._began_with = self._life.read_image(start)
        self._results.records.clear()
        self._stops = False

    def _start_again(self, failure: HoldfastError) -> bool:
        decision = self._driver.checkpoints.after_failure(failure)
        self._world.make_space()
        if isinstance(decision, GiveUp):
            self._world.tell(f"the job gives up: {decision.reason}")
            self._end(Outcome.FAILED)
            return False
        self._world.counts["an attempt began again"] += 1
        self._world.clock.advance(decision.after_ms)
        self._attempt += 1
        self._begin(self._attempt)
        return True

    # Epochs

    def _epoch(self) -> None:
        self._last_epoch += 1
        self._tries = 0
        self._world.epoch_begins()
        self._world.clock.advance(self._random.choice((10, 60, 110, 110)))
        self._driver.book.quota = 100 if self._world.calm else self._random.choice((1, 2, 2, 4))
        self._ask()
        self._driver.epoch(self._last_epoch, self._execute, _no_writers)
        self._check_told()
        self._look(self._tasks[0])
        self._take_answers()

    def _execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        task, self._tasks = tasks[0], tasks
        self._tries += 1
        if self._tries > 1:
            self._world.tell(f"epoch {task.epoch} is discarded and run again")
            self._world.counts["an epoch was discarded"] += 1
        elif task.checkpoint is not None:
            self._life.begin_barrier(task.checkpoint)
        outcome = self._life.cluster.execute(tasks)
        if self._world.happens("an epoch is slow"):
            self._world.clock.advance(2000)
        return outcome

    def _note_acceptance(self, epoch: int, *details: Any) -> Any:
        accepted = self._accept(epoch, *details)
        self._accepted_epoch = epoch
        return accepted

    def _check_told(self) -> None:
        """Listeners were told of everything that had ended before the epoch."""
        task = self._tasks[0]
        told = {*task.completed, *task.aborted}
        missed = [n for n in range(self._listeners()) if not told <= self._world.heard[n]]
        if missed:
            raise Violation(f"subtasks {missed} of totals were not told of {sorted(told)}")
        self._untold -= told
        if self._untold:
            raise Violation(f"listeners were not told of {sorted(self._untold)}")

    def _listeners(self) -> int:
        operators = self._driver.plan.operators.values()
        return next(op.parallelism for op in operators if op.uid == "totals")

    def _look(self, task: EpochTask) -> None:
        """Look at what an accepted epoch left on the disk."""
        world, checkpoint = self._world, task.checkpoint
        if checkpoint is None:
            world.tell(f"epoch {task.epoch} is accepted")
        elif not self._life.see_complete(checkpoint):
            world.counts["a checkpoint was aborted"] += 1
            world.tell(f"epoch {task.epoch} is accepted; checkpoint {checkpoint} is not there")
        else:
            world.counts["a checkpoint was completed"] += 1
            world.tell(f"epoch {task.epoch} is accepted; checkpoint {checkpoint} is complete")
            self._untold.add(checkpoint)
            if self._random.random() < 0.3 or self._driver.book.finished:
                self._check_checkpoint(checkpoint)

    def _check_checkpoint(self, checkpoint: int) -> None:
        image = self._life.read_image(Start(self._life.store.read(checkpoint)))
        assert image is not None
        self._check_results(image)
        if self._driver.book.finished and not (image.at_end or image.drained):
            raise Violation(f"the job ends, and stands at {image.positions}")

    def _check_results(self, image: Image) -> None:
        """What the attempt delivered is what has changed since it began."""
        expected = image.results()
        if self._began_with is not None:
            expected.subtract(self._began_with.results())
        if self._results.records != expected:
            what = f"expected {expected}, found {self._results.records}"
            raise Violation(f"wrong results in the attempt until {image.name}: {what}")

    # Savepoints, and other wishes

    def _ask(self) -> None:
        checkpoints = self._driver.checkpoints
        if self._world.happens("a savepoint is asked for"):
            self._answers.append((checkpoints.ask_savepoint(SAVEPOINTS), False))
        if self._world.happens("the job stops with a savepoint"):
            drain = self._random.random() < 0.2
            answer = checkpoints.ask_savepoint(SAVEPOINTS, stop=True, drain=drain)
            self._answers.append((answer, True))
        if self._world.happens("the job is cancelled"):
            self._driver.cancel_asked.set()

    def _take_answers(self) -> None:
        done = [(answer, stops) for answer, stops in self._answers if answer.done()]
        self._answers = [(answer, stops) for answer, stops in self._answers if not answer.done()]
        for answer, stops in done:
            try:
                path = answer.result(0)
            except HoldfastError as error:
                self._world.tell(str(error))
                continue
            self._world.tell(f"there is {path}")
            self._world.counts["a savepoint was made"] += 1
            self._life.check_savepoint(path)
            self._stops |= stops

    # The end

    def _outcome(self) -> Outcome:
        if self._driver.stopped:
            return Outcome.STOPPED
        return Outcome.FINISHED if self._driver.book.finished else Outcome.CANCELLED

    def _end(self, outcome: Outcome) -> None:
        world, life = self._world, self._life
        world.tell(f"the job ends: {outcome.value}")
        if outcome is Outcome.STOPPED and not self._stops:
            raise Violation("the job counts as stopped, and went on after its savepoint")
        world.counts[f"the job ended: {outcome.value}"] += 1
        try:
            self._driver.checkpoints.end(outcome)
        except HoldfastError as error:
            world.tell(f"the end of the job failed: {error}")
            check_excuse(error)
            world.make_space()
            return
        if outcome is Outcome.FINISHED:
            life.check_finished()
            life.done = self._random.random() > 0.1
            if not life.done:
                life.run_again()
        elif outcome is Outcome.STOPPED and self._driver.book.finished:
            life.done = True  # drained: there is nothing to go on with
        else:
            life.choose_start()


def check_excuse(error: HoldfastError) -> None:
    """A job may fail because of what was done to it, and for no other reason."""
    if isinstance(error, ClusterGaveUp | DisagreementError):
        return
    if isinstance(error, UserFunctionError) and isinstance(error.original, SimulatedFailure):
        return
    damaged = isinstance(error, CheckpointCorruptionError | DirectoryInUseError | InternalError)
    if damaged or not any(excuse in str(error) for excuse in _EXCUSES):
        raise Violation(f"the driver says: {error}") from error


def _no_writers(blocks: list[Any]) -> None:
    assert not blocks
