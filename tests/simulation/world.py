"""The world of one seed: its chance, its clock, its disk, and the story of what happened in it.

Whatever can go wrong asks ``happens`` whether it does, here and now. Each seed has a climate: some
misfortunes are common in it, others never happen, so that over many seeds they meet in many ways.
"""

from __future__ import annotations

import errno
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from holdfast.runtime.worker.injected_faults import SimulatedKill
from holdfast.testing import ManualClock, MemoryFileSystem

#: how likely a misfortune is where it can happen, in a climate that has it
ODDS = {
    "a run is lost": 0.08,
    "a run is delayed": 0.10,
    "a run is repeated": 0.08,
    "a stage is computed again": 0.08,
    "another copy is read": 0.5,
    "a zombie goes on": 0.12,
    "a worker is killed": 0.05,
    "a subtask moves": 0.2,
    "a function raises": 0.10,
    "a snapshot raises": 0.15,
    "an epoch is slow": 0.10,
    "the disk is full": 0.01,
    "a superfluous file cannot be deleted": 0.02,
    "the cluster gives up": 0.02,
    "an acknowledgement comes again": 0.15,
    "the driver dies in an epoch": 0.025,
    "the driver dies at a file": 0.4,
    "the machine crashes": 0.8,
    "the job is rescaled": 0.6,
    "a savepoint is asked for": 0.12,
    "the job stops with a savepoint": 0.06,
    "the job is cancelled": 0.04,
    "a checkpoint is asked for": 0.08,
    "the job is rescaled while it runs": 0.10,
    "a plan is refused": 0.5,
    "a start fails": 0.08,
    "the engine stops by itself": 0.03,
    "the job starts from a savepoint": 0.4,
    "the job starts from an older checkpoint": 0.1,
    "the job changes its engine": 0.3,
    "a slot dies": 0.06,
    "a slot stalls": 0.15,
    "a slot is cut off from the driver": 0.06,
    "two slots are cut off from each other": 0.06,
    "a slot goes on after its attempt": 0.3,
    "a slot of an earlier attempt calls": 0.5,
    "messages are late": 0.5,
    "a writer is slow": 0.5,
    "a state cannot be written": 0.05,
    "slots are gone": 0.5,
    "slots come back": 1.0,
}

#: those that nothing fails of
DELAYS = (
    "a writer is slow",
    "messages are late",
    "a slot stalls",
    "a zombie goes on",
    "slots are gone",
    "slots come back",
)

#: what came later than the others comes after them, so that seeds keep their climate
_LATER = ("slots are gone", "slots come back")

#: how often somebody might ask for something while the driver is at a file
_REQUESTS = 0.03


class SimulatedFailure(Exception):
    """What the functions of the job raise."""


class Violation(AssertionError):
    """Something happened that the protocol rules out."""


class World:
    """One seed.

    Attributes:
        counts: how often what happened.
        story: what happened, in its order.
        calm: whether nothing goes wrong any more.
        acting: the process that is at work; "driver", or the name of a worker.
        late: whether that is a zombie of an epoch that is over.
        late_files: what zombies wrote when their epoch was over.
        disturb: called between the steps of the driver, so that others are at work meanwhile.
        ticks: the time that subtasks measure, in seconds.
        requests: called there too: perhaps somebody asks the driver for something.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # every second seed begins with subtasks that stay
        self.begins_resident = seed % 2 == 1
        self.random = Random(seed)
        self.clock = ManualClock(1_000_000)
        # every third seed has its checkpoints on another machine
        self.files = MemoryFileSystem(self._watch, is_remote=seed % 3 == 0)
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.violations: list[str] = []
        self.calm = False
        self.acting = "driver"
        self.driver_dead = False
        self.ticks = 0.0
        self.late = False
        self.late_files: set[str] = set()
        self.disturb: Callable[[], None] = lambda: None
        self.requests: Callable[[], None] = lambda: None
        #: the checkpoints that a listener was told of in the running epoch, by subtask
        self.heard: defaultdict[int, set[int]] = defaultdict(set)
        #: the checkpoints whose metadata was seen on the disk, and which must stay there
        self.complete: set[int] = set()
        #: all that ever were
        self.was_complete: set[int] = set()
        self.is_complete: Callable[[int], bool] = lambda checkpoint: False
        self._odds = self._climate()
        self._readings = 0
        #: steps of the driver until it dies; None: it lives
        self._steps_to_live: int | None = None
        #: writes that will find space, and those after them that will not
        self._spared = self._refused = 0
        self._lets_go = False
        #: calls of functions until one raises; 0: none does
        self._calls_to_failure = 0

    def _climate(self) -> dict[str, float]:
        # NB: where subtasks stay, much takes several epochs, so some of these are to last
        mildness = self.random.choice((0.15, 0.4, 1)) if self.begins_resident else 1
        return {
            what: odds * self.random.choice((0, 0, 1, 1, 2)) * (1 if what in DELAYS else mildness)
            for what, odds in sorted(ODDS.items(), key=lambda odds: (odds[0] in _LATER, odds[0]))
        }

    # Chance

    def happens(self, what: str) -> bool:
        """Whether a misfortune happens now; it is counted then."""
        if self.calm or self.random.random() >= self._odds[what]:
            return False
        self.counts[what] += 1
        return True

    def tell(self, line: str) -> None:
        """Add to the story."""
        self.story.append(f"{self.clock() - 1_000_000:>6} ms  {line}")

    def violate(self, problem: str) -> None:
        """Take note of a violation where an exception would be taken for a failure of the job."""
        self.tell(f"VIOLATION: {problem}")
        self.violations.append(problem)

    def check(self) -> None:
        if self.violations:
            raise Violation("; ".join(self.violations))

    def calm_down(self) -> None:
        if not self.calm:
            self.tell("nothing goes wrong any more")
        self.calm = True
        self._refused = self._calls_to_failure = 0
        self._steps_to_live = None

    # The disk

    def new_driver(self) -> None:
        """A new process; perhaps it dies at one of its steps."""
        self.driver_dead = False
        self._steps_to_live = None
        if self.happens("the driver dies at a file"):
            self._steps_to_live = self.random.choice((10, 40, 120))
            self._steps_to_live = self.random.randrange(1, self._steps_to_live)

    def kill_driver(self, where: str) -> None:
        self.driver_dead = True
        self.tell(f"the driver dies {where}")
        raise SimulatedKill(where)

    def step(self) -> None:
        """The driver does something that is no file's."""
        self.disturb()
        self.requests()

    def refuse_write(self, after: int) -> None:
        """Let a write fail, after so many that succeed."""
        self._refused, self._spared = 1, after

    def make_space(self) -> None:
        self._refused = self._spared = 0

    @contextmanager
    def letting_go(self) -> Iterator[None]:
        """The driver deletes what is superfluous; its job goes on if it cannot."""
        self._lets_go = True
        try:
            yield
        finally:
            self._lets_go = False

    @contextmanager
    def worker(self, name: str) -> Iterator[None]:
        """Another process is at work."""
        before, self.acting = self.acting, name
        try:
            yield
        finally:
            self.acting = before

    def _watch(self, what: str, path: str) -> None:
        if self.acting == "driver":
            if self.driver_dead:
                raise SimulatedKill("dead already")
            self.disturb()
            if self.random.random() < _REQUESTS:
                self.requests()
            if self._steps_to_live is not None:
                self._steps_to_live -= 1
                if self._steps_to_live <= 0:
                    self.kill_driver(f"before it can {what} {path}")
        if what in ("write", "make directory", "lock"):
            self._need_space(what, path)
        deletes = self._lets_go and what == "delete"
        if deletes and self.happens("a superfluous file cannot be deleted"):
            self.tell(f"the storage is away: the driver cannot {what} {path}")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if self.late and what == "write":
            self.counts["a zombie wrote its state late"] += 1
            self.late_files.add(path)

    def _need_space(self, what: str, path: str) -> None:
        if not self._refused and self.happens("the disk is full"):
            self._refused = self.random.randrange(1, 6)
        if self._spared:
            self._spared -= 1
        elif self._refused:
            self._refused -= 1
            self.tell(f"the disk is full: {self.acting} cannot {what} {path}")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    # What the functions of the job call

    def epoch_begins(self) -> None:
        self.heard.clear()
        self._calls_to_failure = 0
        if self.happens("a function raises"):
            self._calls_to_failure = self.random.randrange(1, 15)

    def new_reading(self) -> int:
        self._readings += 1
        return self._readings

    def function_called(self, operator: str) -> None:
        if self._calls_to_failure:
            self._calls_to_failure -= 1
            if not self._calls_to_failure:
                self.counts["a function raised"] += 1
                self.tell(f"the function of {operator} raises in {self.acting}")
                raise SimulatedFailure(operator)

    def snapshot_called(self, operator: str) -> None:
        if self.happens("a snapshot raises"):
            self.tell(f"the snapshot of {operator} raises in {self.acting}")
            raise SimulatedFailure(operator)

    def told_complete(self, subtask: int, checkpoint: int) -> None:
        self._heard(subtask, checkpoint)
        if checkpoint not in self.was_complete and not self.is_complete(checkpoint):
            self.violate(f"a listener was told that checkpoint {checkpoint} is complete: it is not")

    def told_aborted(self, subtask: int, checkpoint: int) -> None:
        self._heard(subtask, checkpoint)
        if checkpoint in self.was_complete or self.is_complete(checkpoint):
            self.violate(f"a listener was told that checkpoint {checkpoint} is aborted: it is not")

    def _heard(self, subtask: int, checkpoint: int) -> None:
        if not self.late:
            self.heard[subtask].add(checkpoint)
