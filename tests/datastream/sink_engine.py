"""Plays the engine for one sink: subtasks, epochs, checkpoints, and everything that can go wrong.

The records are the numbers 0, 1, 2, …, dealt out to the subtasks in turn. Function objects, their
fields and their operator state go through the runtime's own classes, and every run is in a process
of its own as far as the function can tell, unless it is said to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from holdfast.datastream.functions.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.graph.nodes import Node
from holdfast.graph.operations import SinkOperation
from holdfast.plan.model import Defaults, Level, Plan, PlannedOperator
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.operators.base import Operator, SubtaskParts
from holdfast.runtime.operators.choosing import make_operator
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.runtime.operators.transactions import TransactionalSinkOperator
from holdfast.runtime.record_context import RecordContext
from holdfast.runtime.worker.job_code import JobCode
from holdfast.state.backend import HeapKeyedStateBackend
from holdfast.state.live.operator_state import Image, decode_image, encode_image, redistribute
from holdfast.testing import ManualClock


@dataclass(frozen=True)
class Killed:
    """A run that is killed after some records: nothing more is called."""

    after: int = 0


@dataclass(frozen=True)
class Failed(Killed):
    """A run that fails after some records, in a process that lives on."""


@dataclass(frozen=True)
class Lost:
    """A run that comes to its end, but is not the one that counts."""


Fate = Killed | Lost


@dataclass(frozen=True)
class Head:
    """What is saved of a subtask at the end of a run."""

    fields: bytes | None
    image: bytes


@dataclass(frozen=True)
class Checkpoint:
    """The saved operator state of all subtasks, and the position of the source."""

    position: int
    images: tuple[bytes, ...]


@dataclass
class SinkEngine:
    """A job of one source and one sink.

    Attributes:
        stays: subtasks stay in their processes and are never run again: a transaction is open from
            one checkpoint to the next.
        staging: the directory for what is not committed.
        position: the next record.
        completed: the checkpoint that a restart goes back to.
    """

    function: TwoPhaseCommitSinkFunction
    parallelism: int = 1
    checkpoints: bool = True
    clock: ManualClock = field(default_factory=ManualClock)
    staging: str = ""
    stays: bool = False
    position: int = 0
    completed: Checkpoint = Checkpoint(0, ())
    attempt: int = 0
    #: runs of earlier epochs, to be run again by those who were taken for dead
    zombies: list[Callable[[], object]] = field(default_factory=list)
    #: what subtasks of earlier attempts do who were taken for dead: they hear of the last
    #: checkpoint that was complete in their time
    ghosts: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._code = cloudpickle.dumps(self.function)
        self._ids = iter(range(1, 1_000_000))
        self._saves = False
        #: the subtasks of earlier attempts, with what they have open
        self._lost: list[TransactionalSinkOperator] = []
        self._begin_attempt()

    def epoch(
        self,
        records: int = 0,
        *,
        fates: Sequence[Fate] = (),
        checkpoint: bool = False,
        complete: bool | None = True,
        stay: bool = False,
        close: bool = False,
        ended: bool = False,
    ) -> None:
        """Run an epoch and accept it.

        Args:
            records: how many records the source gives.
            fates: runs of every subtask before the one that counts.
            checkpoint: whether there is a barrier at the end.
            complete: whether the checkpoint is completed; if not, it is aborted; if None, it will
                be completed at the end of the next epoch.
            stay: whether the subtasks run where they ran in the epoch before.
            close: whether the job ends.
            ended: whether the input has ended.
        """
        batch = range(self.position, self.position + records)
        barrier = next(self._ids) if checkpoint else None
        heads = []
        for subtask in range(self.parallelism):
            share = batch[subtask :: self.parallelism]
            run = self._run(subtask, share, barrier, close, ended)
            for fate in fates:
                run(fate)
            heads.append(run(None, stay or self.stays))
            self.zombies.append(lambda run=run: run(Lost()))  # type: ignore[misc]
        self._heads = heads
        self.position += records
        self._told = ([], [])
        if self._late is not None:
            self._complete(*self._late)
            self._late = None
        if barrier is not None:
            taken = Checkpoint(self.position, tuple(head.image for head in heads))
            if complete:
                self._complete(barrier, taken)
            elif complete is None:
                self._late = (barrier, taken)
            else:
                self._told[1].append(barrier)

    def savepoint(self, records: int = 0) -> Checkpoint:
        """Run an epoch that ends with a savepoint: nobody hears of it, or goes back to it.

        Args:
            records: how many records the source gives.
        """
        self._saves = True
        before = self.completed
        try:
            self.epoch(records, checkpoint=True)
        finally:
            self._saves = False
        taken, self.completed = self.completed, before
        self._told[0].clear()
        return taken

    def record(self, number: int) -> Any:
        """The record that the sink gets for a number."""
        return number

    def _complete(self, barrier: int, taken: Checkpoint) -> None:
        self.completed = taken
        self._told[0].append(barrier)

    def restart(
        self, parallelism: int | None = None, function: Any = None, stays: bool | None = None
    ) -> None:
        """Everything dies; the next attempt starts from the last completed checkpoint.

        Args:
            function: the sink of another program, whose first attempt this is.
            stays: whether subtasks stay from now on: the next attempt is another engine's.
        """
        self.parallelism = parallelism or self.parallelism
        self.position = self.completed.position
        for _, instance in self._living.values() if self.stays else ():
            self._lost.append(instance)
            heard = tuple(self._told[0])
            self.ghosts.append(lambda it=instance, heard=heard: it.notify(heard, ()))  # type: ignore[misc]
        self.stays = self.stays if stays is None else stays
        self.attempt += 1
        if function is not None:
            self._code = cloudpickle.dumps(function)
            self.attempt = 0
        self._begin_attempt()

    def finish(self) -> None:
        """A last checkpoint, its notification, and the end."""
        self.epoch(checkpoint=self.checkpoints, ended=True)
        self.epoch(close=True, ended=True)
        for instance in self._lost:
            instance.abandon()

    def _begin_attempt(self) -> None:
        self._heads: list[Head | None] = [None] * self.parallelism
        self._living: dict[int, tuple[Head, TransactionalSinkOperator]] = {}
        #: the checkpoints that the next epoch is told of: completed, aborted
        self._told: tuple[list[int], list[int]] = ([], [])
        self._late: tuple[int, Checkpoint] | None = None

    def _instance(
        self, code: bytes, subtask: int, parallelism: int, attempt: int
    ) -> TransactionalSinkOperator:
        instance = make_instance(
            code, subtask, parallelism, attempt, self.staging, self.stays, self.clock
        )
        assert isinstance(instance, TransactionalSinkOperator)
        return instance

    def _run(
        self,
        subtask: int,
        share: Sequence[int],
        barrier: int | None,
        close: bool,
        ended: bool = False,
    ) -> Callable[..., Head | None]:
        """One run of a subtask, to be called as often as it is run."""
        head, told, attempt = self._heads[subtask], self._told, self.attempt
        images, saves = self.completed.images, self._saves
        code, parallelism = self._code, self.parallelism

        def run(fate: Fate | None, stay: bool = False) -> Head | None:
            kept = self._living.pop(subtask, None) if attempt == self.attempt else None
            if stay and kept is not None and kept[0] is head:
                instance = kept[1]
            else:
                instance = self._instance(code, subtask, parallelism, attempt)
                _load(instance, head, _share(images, subtask, parallelism), bool(images))
            context = RecordContext(OperatorTime(self.clock), "sink")
            if self.checkpoints:
                instance.notify(tuple(told[0]), tuple(told[1]))
            else:
                instance.epoch_accepted()
            for number, record in enumerate(share):
                if isinstance(fate, Killed) and number == fate.after:
                    break
                instance.transactions.accept(self.record(record), context)
            if isinstance(fate, Failed):
                instance.abandon()
            if isinstance(fate, Killed):
                return None
            if ended:
                instance.finish()
            counts = barrier is not None or close or not self.checkpoints
            instance.end_epoch(barrier=counts or not self.stays)
            if barrier is not None:
                instance.snapshot(barrier, 0, saves)
            if close:
                instance.close()
            after = Head(b"", b"") if self.stays and not counts else _head(instance)
            if fate is None:
                self._living[subtask] = (after, instance)
            return after

        return run


def make_instance(
    code: bytes,
    subtask: int = 0,
    parallelism: int = 1,
    attempt: int = 0,
    staging: str = "",
    stays: bool = False,
    clock: Clock = lambda: 0,
) -> Operator:
    """An operator of a sink in one subtask."""
    node = Node(0, "sink", "sink", SinkOperation(None))
    planned = PlannedOperator(node, "sink", 0, 0, parallelism, 128, (), ())
    levels = (Level(0, parallelism, (0,), ()),)
    plan = Plan("test", {0: planned}, (), levels, Defaults(parallelism))
    job = JobCode("test", plan, {0: code}, "", staging_directory=staging, functions_stay=stays)
    backend = HeapKeyedStateBackend(range(128), 128)
    parts = SubtaskParts(job, subtask, attempt, backend, clock, EventLoop())
    return make_operator(planned, parts)


def _load(instance: Operator, head: Head | None, image: Image, restored: bool) -> None:
    """As a subtask does it in step 2."""
    if head is None:
        instance.initialize(restored, image)
        instance.open()
        return
    instance.open()
    instance.context.operator_states.load(decode_image(head.image, "sink"))
    instance.fields.restore(head.fields)


def _share(images: Sequence[bytes], subtask: int, parallelism: int) -> Image:
    dealt = redistribute([decode_image(image, "sink") for image in images], parallelism)
    return dealt[subtask]


def _head(instance: Operator) -> Head:
    image = encode_image(instance.context.operator_states.image())
    return Head(instance.fields.save(), image)
