"""An engine whose subtasks keep their state, without any: a test says what they have stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.job_events import Abilities, EpochCommitted, JobEvent, JobStarting, RunEpoch
from holdfast.driver.outcome import EpochOutcome
from holdfast.runtime.wire.protocol import Acknowledgement, EpochTask, StoredState
from holdfast.state.errors import StateLookupError
from holdfast.state.format.files import StateFile, encode_file
from holdfast.state.format.head import FileRef, Head
from holdfast.testing import ManualClock
from tests.driver.job_rules import validate
from tests.endless import Endless

Place = tuple[int, int]

#: those of the plan of `make`: a source, and two subtasks that sum up
SOURCE, FIRST, SECOND = PLACES = ((0, 0), (1, 0), (1, 1))
SETTINGS = {
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.timeout": "10 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "0 s",
}


class KeepingEngine(Engine):
    """Acknowledges at once, and stores states when a test says so.

    Attributes:
        rounds: the first level's task of every epoch.
        dues: what `await_turn` was told.
        finished: whether the sources have ended.
        failing: functions whose snapshot fails in the next checkpoint.
        while_waiting: done when somebody waits for stored states; by default time passes.
        asked: the queries.
    """

    abilities = Abilities(reruns=False, resizes=True, keeps_state=True)

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.rounds: list[EpochTask] = []
        self.dues: list[int | None] = []
        self.wakes = 0
        self.finished = False
        self.failing: set[Place] = set()
        self.while_waiting: Callable[[], object] = lambda: None
        self.asked: list[tuple[Any, ...]] = []
        self.starts: list[SavedImage | None] = []
        self._heads: dict[Place, Head] = {}
        self._barriers: dict[int, int] = {}
        self._stored: list[StoredState] = []

    def prepare(self, job: PlannedJob) -> None:
        self.job = job

    def start(self, attempt: int, start: SavedImage | None) -> None:
        self.starts.append(start)
        self._stored.clear()
        self._heads.clear()

    def await_turn(self, due_ms: int | None = None) -> None:
        self.dues.append(due_ms)

    def wake(self) -> None:
        self.wakes += 1

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        self.rounds.append(tasks[0])
        failing, self.failing = self.failing, set()
        for task in tasks:
            for subtask, head in enumerate(task.heads):
                self._heads.setdefault((task.level, subtask), head)
            if task.checkpoint is not None:
                self._barriers[task.checkpoint] = task.epoch
        acks = [
            self._ack(task, subtask, (task.level, subtask) in failing)
            for task in tasks
            for subtask in range(len(task.heads))
        ]
        return EpochOutcome(acks, [], [], [], 0.0)

    def _ack(self, task: EpochTask, subtask: int, fails: bool) -> Acknowledgement:
        storing = task.checkpoint is not None and not fails
        return Acknowledgement(
            level=task.level,
            subtask=subtask,
            stamp=f"{task.epoch}-{task.level}-{subtask}",
            consumed={},
            head=self._heads[task.level, subtask],
            finished=self.finished,
            saturated=False,
            records_in=0,
            records_out=0,
            records_read=0,
            seconds={},
            metrics={},
            snapshot_failure="the ledger is locked" if fails else None,
            acknowledged=self.clock(),
            storing=storing,
        )

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        if patience_ms and not self._stored:
            self.clock.advance(patience_ms)
            self.while_waiting()
        stored, self._stored = self._stored, []
        return stored

    def begin(self, checkpoint: int, place: Place) -> str:
        """Write the file of a state, and tell nobody yet; returns its name."""
        name = f"{self._barriers[checkpoint]}-{place[0]}-{place[1]}-{checkpoint:012x}.state"
        self.job.storage.write(name, encode_file(StateFile(()), name), durable=True)
        return name

    def store(self, checkpoint: int, *places: Place) -> None:
        """Store states of a checkpoint; without places those of all subtasks."""
        for place in places or PLACES:
            name, epoch = self.begin(checkpoint, place), self._barriers[checkpoint]
            head = self._heads[place]
            ref = FileRef(name, len(self.job.storage.read(name)), head.until, epoch)
            self._heads[place] = head.extended(ref, name, 0)
            self._say(checkpoint, place, None)

    def begin_anew(self, place: Place) -> None:
        """Let the next state of a subtask be a base."""
        self._heads[place] = Head()

    def fail_to_store(self, checkpoint: int, place: Place) -> None:
        self._say(checkpoint, place, "disk full")

    def _say(self, checkpoint: int, place: Place, failure: str | None) -> None:
        now = self.clock()
        self._stored.append(
            StoredState(checkpoint, *place, self._heads[place], failure, now, seconds=0.25)
        )

    def query(
        self, level: int, subtask: int, operator: str, state: str, key: Any, window: Any = None
    ) -> Any:
        self.asked.append((level, subtask, operator, state, key, window))
        if state != "sum":
            raise StateLookupError(f"there is no state {state!r}")
        return 7

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def files(self) -> set[str]:
        """The state files that there are."""
        return {path.name for path in Path(self.job.state_directory).iterdir()}


class Job:
    """A job that is run action by action."""

    def __init__(self, scratch: Path, **settings: str) -> None:
        self.clock = ManualClock()
        self.engine = KeepingEngine(self.clock)
        given = {key.replace("_", "."): value for key, value in settings.items()}
        configuration = Configuration({**SETTINGS, **given})
        env = StreamExecutionEnvironment(configuration).set_parallelism(2)
        env.add_source(Endless()).uid("source").key_by(lambda n: n % 5).sum().uid("sums")
        self.runner = JobRunner(
            self.engine, env._take_plan("job"), "job", configuration, scratch, clock=self.clock
        )
        self.runner.tell(JobStarting())

    def step(self) -> JobEvent | None:
        event = self.runner.carry_out()
        if event is not None:
            self.runner.tell(event)
            validate(self.runner.machine)
        return event

    def round(self, after_ms: int = 0) -> JobEvent:
        """Run the next epoch; returns what came of it."""
        self.clock.advance(after_ms)
        while not isinstance(self.runner.machine.action, RunEpoch):
            self.step()
        event = self.step()
        assert event is not None
        return event

    def checkpoint(self) -> int:
        """Run a round in which a checkpoint is due; returns its id."""
        if not self.engine.rounds:
            self.round()
        assert isinstance(self.round(1000), EpochCommitted)
        assert self.engine.rounds[-1].checkpoint is not None
        return self.engine.rounds[-1].checkpoint

    def to_end(self) -> None:
        while not self.runner.over.is_set():
            self.step()

    @property
    def completed(self) -> list[int]:
        return self.runner.checkpoints.store.completed()

    @property
    def told(self) -> EpochTask:
        """What the subtasks of the first level were told last."""
        return self.engine.rounds[-1]
