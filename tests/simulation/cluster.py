"""A cluster that runs the subtasks of an epoch: badly, as the world's chance has it.

It does with runs what Spark may do with tasks. Each level is a stage: a run of a subtask is
there to be read when it has come to its end, and if there are several, each reader gets
one of them. A run that is delayed is a generator that is left and gone on with later: then it
writes its state, and acknowledges, when its epoch, its attempt or its driver may be long gone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NoReturn, cast

from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.errors import JobExecutionError
from holdfast.plan.model import Plan
from holdfast.runtime.epochs.task import FailedRun, Subtask
from holdfast.runtime.operators.sources.free_loop import LoopsInProcess
from holdfast.runtime.operators.sources.loop_thread import LocalSource, SourceThread
from holdfast.runtime.wire.blocks import Block, Kind
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.job_code import JobCode
from holdfast.state.storage.directory import StateStorage
from tests.simulation.world import World


class ClusterGaveUp(JobExecutionError):
    """What Spark says when a task failed too often."""


@dataclass(eq=False)
class Worker:
    """A process: the subtasks that it keeps, and the run that it is busy with."""

    name: str
    kept: dict[tuple[str, int, int, int], Subtask] = field(default_factory=dict)
    busy: bool = False


class Run:
    """One run of a subtask in a worker; it can be left and gone on with between two blocks."""

    def __init__(
        self, cluster: Cluster, worker: Worker, task: EpochTask, subtask: int, inbox: list[Block]
    ) -> None:
        self.worker, self.task, self.subtask = worker, task, subtask
        self.name = f"subtask {task.level}/{subtask} of epoch {task.epoch}"
        self.trial = cluster.trial
        self.blocks: list[Block] = []
        self.ended = False
        self._world = cluster.world
        self._place = (task.job, task.attempt, task.level, subtask)
        kept = worker.kept.pop(self._place) if self._place in worker.kept else None
        self._runner = cluster.new_subtask(task, subtask) if kept is None else kept
        self._steps = cast(Generator[Block, None, None], self._runner.run(task, iter(inbox)))
        worker.busy = True

    def go_on(self, blocks: int = 1_000_000) -> None:
        """Make so many blocks; if it comes to its end, the worker keeps the subtask."""
        with self._world.worker(self.worker.name):
            try:
                for _ in range(blocks):
                    block = next(self._steps)
                    self.blocks.append(Block(block.header, bytes(block.data)))
            except FailedRun:
                self._runner.close()
                self._end()
            except StopIteration:
                if not self.task.closing:
                    self.worker.kept[self._place] = self._runner
                self._end()

    def lose(self) -> None:
        """The task is killed; its worker lives."""
        self._steps.close()
        self._runner.close()
        self._end()

    def _end(self) -> None:
        self.ended = True
        self.worker.busy = False


class Cluster:
    """All processes but the driver.

    Attributes:
        trial: what the epoch that runs now has come to so far; None between epochs.
        zombies: runs that were given up, and still go on some day.
    """

    _storage: StateStorage

    def __init__(self, world: World) -> None:
        self.world = world
        self.trial: Trial | None = None
        self.zombies: list[Run] = []
        self._names = (f"worker {number}" for number in count(1))
        self._workers: list[Worker] = []
        self._homes: dict[tuple[int, int], Worker] = {}
        self._stirring = False
        self._late: list[Block] = []

    def begin(self, plan: Plan, code: JobCode, job: str, storage: StateStorage) -> None:
        """A driver starts a job; its workers are new, and zombies of others may be left."""
        self.plan = plan
        self._storage = storage
        self._code = replace(code, id=job)
        self._workers = [
            Worker(next(self._names)) for _ in range(self.world.random.randrange(1, 4))
        ]
        self._homes.clear()
        self._late.clear()

    def crash(self) -> None:
        """All processes end."""
        self._workers.clear()
        for zombie in self.zombies:
            zombie.lose()
        self.zombies.clear()
        self._late.clear()

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run an epoch, as a driver has it run."""
        self._kill_workers()
        self.trial = trial = Trial(self, tasks)
        try:
            outcome = trial.run()
        finally:
            self.trial = None
        self.stir()
        return outcome

    def new_subtask(self, task: EpochTask, subtask: int) -> Subtask:
        return Subtask(
            self._code,
            task.level,
            subtask,
            task.attempt,
            self._storage,
            self.world.clock,
            LoopsInProcess(SourceThread, LocalSource),
        )

    def worker_for(self, level: int, subtask: int) -> Worker:
        """The worker of the last time, unless it is busy, or the subtask moves."""
        home = self._homes.get((level, subtask))
        moves = home is None or home.busy or self.world.happens("a subtask moves")
        if home is None or moves:
            idle = [worker for worker in self._workers if not worker.busy]
            if not idle:
                idle = [Worker(next(self._names))]
                self._workers += idle
            home = self._homes[level, subtask] = self.world.random.choice(idle)
        return home

    def kill(self, worker: Worker) -> None:
        """A worker dies, with all that it keeps."""
        if worker in self._workers:
            self._workers.remove(worker)
        self._homes = {p: home for p, home in self._homes.items() if home is not worker}
        for zombie in [zombie for zombie in self.zombies if zombie.worker is worker]:
            self.zombies.remove(zombie)

    def _kill_workers(self) -> None:
        for worker in list(self._workers):
            if self.world.happens("a worker is killed"):
                self.world.tell(f"{worker.name} is killed")
                self.kill(worker)

    def stir(self) -> None:
        """Perhaps a zombie goes on."""
        if not self.zombies or self._stirring or not self.world.happens("a zombie goes on"):
            return
        self._stirring = True
        zombie = self.world.random.choice(self.zombies)
        self.world.late = zombie.trial is not self.trial
        try:
            zombie.go_on(self.world.random.choice((1, 2, 1_000_000)))
            if zombie.ended:
                self.zombies.remove(zombie)
                self._came_to_its_end(zombie)
        finally:
            self._stirring = self.world.late = False

    def _came_to_its_end(self, zombie: Run) -> None:
        world = self.world
        if zombie.trial is self.trial and self.trial is not None:
            world.tell(f"{zombie.worker.name} comes to the end of {zombie.name} after all")
            world.counts["a zombie came in time"] += 1
            self.trial.add(zombie)
            return
        world.tell(f"{zombie.worker.name} comes to the end of {zombie.name}, too late")
        world.counts["a zombie came too late"] += 1
        if zombie.task.job == self._code.id:  # a driver hears only those that work for it
            self._late += [b for b in zombie.blocks if b.header.kind == Kind.ACKNOWLEDGEMENT]

    def late_acknowledgement(self) -> list[Block]:
        """Perhaps an acknowledgement of a run that nobody waits for any more."""
        if self._late and self.world.happens("an acknowledgement comes again"):
            self.world.tell("an acknowledgement comes from a run that nobody waits for")
            return [self._late.pop()]
        return []


class Trial:
    """One try at an epoch: what of it has been computed, level by level, in one or more copies."""

    def __init__(self, cluster: Cluster, tasks: Sequence[EpochTask]) -> None:
        self._cluster, self._world, self._plan = cluster, cluster.world, cluster.plan
        self._tasks = tasks
        self._copies: list[list[list[Run]]] = [
            [[] for _ in range(level.parallelism)] for level in self._plan.levels
        ]

    def run(self) -> EpochOutcome:
        for task in self._tasks:
            order = list(range(len(self._copies[task.level])))
            self._world.random.shuffle(order)
            for subtask in order:
                self._perhaps_the_end(task)
                self._compute_again(task.level - 1)
                self._compute(task, subtask)
                if self._world.happens("a run is repeated"):
                    self._compute(task, subtask)
        return self._outcome()

    def add(self, run: Run) -> None:
        """A run came to its end: there is one more copy."""
        self._copies[run.task.level][run.subtask].append(run)

    def _perhaps_the_end(self, task: EpochTask) -> None:
        if self._world.happens("the driver dies in an epoch"):
            self._world.kill_driver(f"in epoch {task.epoch}")
        if self._world.happens("the cluster gives up"):
            self._give_up(task)

    def _give_up(self, task: EpochTask) -> NoReturn:
        self._world.tell(f"the cluster gives up on epoch {task.epoch}")
        raise ClusterGaveUp(f"the cluster gave up on epoch {task.epoch}")

    def _compute_again(self, level: int) -> None:
        """An executor is lost, with what it computed; who reads from now on reads another run."""
        if level >= 0 and self._world.happens("a stage is computed again"):
            subtask = self._world.random.randrange(len(self._copies[level]))
            self._world.tell(f"subtask {level}/{subtask} is computed again")
            self._compute(self._tasks[level], subtask)

    def _compute(self, task: EpochTask, subtask: int) -> None:
        """Run a subtask until one run comes to its end."""
        while True:
            self._cluster.stir()
            worker = self._cluster.worker_for(task.level, subtask)
            run = Run(self._cluster, worker, task, subtask, self._inbox(task.level, subtask))
            if self._comes_to_its_end(run):
                self.add(run)
                return

    def _comes_to_its_end(self, run: Run) -> bool:
        """If it does not, it becomes a zombie, or is lost."""
        delayed = self._world.happens("a run is delayed")
        if not delayed and not self._world.happens("a run is lost"):
            run.go_on()
            return True
        run.go_on(self._world.random.randrange(5))
        if run.ended:
            return True
        after = f"in {run.worker.name} after {len(run.blocks)} blocks"
        if delayed:
            self._world.tell(f"{run.name} is left {after}")
            self._cluster.zombies.append(run)
        else:
            self._world.tell(f"{run.name} is lost {after}")
            run.lose()
            if self._world.random.random() < 0.5:
                self._cluster.kill(run.worker)
        return False

    def _inbox(self, level: int, subtask: int) -> list[Block]:
        """The blocks for a subtask, in any order."""
        if level == 0:
            return []
        width = len(self._copies[level])
        inbox = [
            block
            for copies in self._copies[level - 1]
            for block in self._choose(copies).blocks
            if _target(block, level, width) == subtask
        ]
        self._world.random.shuffle(inbox)
        return inbox

    def _choose(self, copies: list[Run]) -> Run:
        """The run that is read: the last, unless it is another one."""
        if len(copies) > 1 and self._world.happens("another copy is read"):
            return self._world.random.choice(copies)
        return copies[-1]

    def _outcome(self) -> EpochOutcome:
        blocks = [block for copies in self._copies[-1] for block in self._choose(copies).blocks]
        return sort_out([*blocks, *self._cluster.late_acknowledgement()])


def _target(block: Block, level: int, width: int) -> int:
    """Which subtask of a level gets a block; one for a later level is handed through."""
    header = block.header
    return header.subtask if header.level == level else header.subtask % width
