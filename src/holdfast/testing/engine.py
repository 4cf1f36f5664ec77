"""Runs epochs in this process: every subtask of every level, one after another."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.runtime.operators.sources.free_loop import LoopsInProcess
from holdfast.runtime.operators.sources.loop_thread import LocalSource, SourceThread
from holdfast.runtime.wire.blocks import Block, decode_header
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.injected_faults import SimulatedKill
from holdfast.runtime.worker.job_code import make_job_code, new_key, pack
from holdfast.state.settings import StateSettings
from holdfast.testing.clock import ManualClock
from holdfast.testing.worker import EncodedBlock, Worker

#: Subtasks as (level, number); True for all of them.
Subtasks = Collection[tuple[int, int]] | bool

_encode_task = msgspec.msgpack.Encoder().encode


class ExecutorEngine(Engine):
    """Workers in this process; see ``LocalExecutor``.

    Attributes:
        rerun: subtasks that run twice in the next epoch.
        kill: subtasks of the next epoch whose first run dies.
        workers: simulated worker processes.
        sources: the loops of source functions.
    """

    abilities = Abilities(reruns=True, resizes=True)

    def __init__(
        self,
        workers: int,
        seed: int | None,
        clock: ManualClock,
        calls: Counter[str] | None,
        state: StateSettings,
        **code: Any,
    ) -> None:
        """Make no worker yet; ``code`` is what the job's code has besides its plan."""
        self.rerun: Subtasks = ()
        self.kill: Subtasks = ()
        self.workers: list[Worker] = []
        self.sources = LoopsInProcess(SourceThread, LocalSource)
        self._number = workers
        self._random = None if seed is None else random.Random(seed)
        self._clock = clock
        self._calls = calls
        self._state = state
        self._code = code
        self._key = new_key()

    def prepare(self, job: PlannedJob) -> None:
        """Make the workers, each with the job's code."""
        code = make_job_code(
            job.name,
            job.plan,
            "",
            faults=job.faults,
            state_directory=str(getattr(job.storage, "directory", job.name)),
            state=self._state,
            staging_directory=job.staging_directory,
            key=self._key,
            **self._code,
        )
        packed = pack(code)
        self._plan = job.plan
        self.workers = [
            Worker(packed, job.storage, self._clock, self.sources, self._calls)
            for _ in range(self._number)
        ]

    def start(self, attempt: int, start: SavedImage | None) -> None:
        """Do nothing."""

    def await_turn(self, due_ms: int | None = None) -> None:
        """Return immediately."""

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run every subtask of every level."""
        blocks: list[EncodedBlock] = []
        for task in tasks:
            width = self._plan.levels[task.level].parallelism
            order = _encode_task(task)
            inboxes = self._deal(blocks, task.level, width)
            blocks = []
            for subtask, inbox in enumerate(inboxes):
                blocks += self._run(task, order, subtask, inbox)
        return sort_out(Block(decode_header(head), data) for head, data in blocks)

    def _run(
        self, task: EpochTask, order: bytes, subtask: int, inbox: list[EncodedBlock]
    ) -> list[EncodedBlock]:
        """Run a subtask; if its worker is killed, again in the next one, as Spark does."""
        place, turn = (task.level, subtask), task.epoch + subtask
        if _includes(self.kill, place):
            self.worker(turn).die(order, subtask, inbox)
        if _includes(self.rerun, place):
            self.worker(turn + 1).run(order, subtask, inbox)
        while True:
            try:
                return self.worker(turn).run(order, subtask, inbox)
            except SimulatedKill:
                self.worker(turn).forget()
                turn += 1

    def _deal(
        self, blocks: Iterable[EncodedBlock], level: int, width: int
    ) -> list[list[EncodedBlock]]:
        """Return the blocks for each subtask; one for a later level is passed on by one of them."""
        inboxes: list[list[EncodedBlock]] = [[] for _ in range(width)]
        for block in blocks:
            header = decode_header(block.head)
            target = header.subtask if header.level == level else header.subtask % width
            inboxes[target].append(block)
        if self._random is not None:
            for inbox in inboxes:
                self._random.shuffle(inbox)
        return inboxes

    def worker(self, turn: int) -> Worker:
        """Return the worker in which a subtask runs at its turn."""
        return self.workers[turn % len(self.workers)]

    def forget(self) -> None:
        """Drop all subtasks, as dying processes do."""
        for worker in self.workers:
            worker.forget()

    def stop(self) -> None:
        """End the attempt."""
        self.forget()
        self.sources.stop()

    def explain(self, error: BaseException, what: str = "") -> BaseException:
        """Return the error unchanged, for tests."""
        return error

    def close(self) -> None:
        """Keep everything for inspection; see `let_go`."""

    def let_go(self) -> None:
        """Release everything, as a killed process does."""
        self.stop()
        self._state.forget(self._key)


def _includes(subtasks: Subtasks, place: tuple[int, int]) -> bool:
    return subtasks if isinstance(subtasks, bool) else place in subtasks
