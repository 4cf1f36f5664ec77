"""What stands in for Spark's workers: caches of subtasks, and the loops of source functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from holdfast.datastream.functions import SourceFunction
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.blocks import Block, decode_header, encode_header
from holdfast.runtime.context import Clock, OperatorContext
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.job import JobCode, unpack
from holdfast.runtime.loop_source import LoopsInProcess
from holdfast.runtime.protocol import EpochTask
from holdfast.runtime.source_thread import LocalSource, SourceThread
from holdfast.runtime.sources import Beginning, LiveSource, SourceAccess
from holdfast.runtime.task import FailedRun, Subtask
from holdfast.state.storage import StateStorage
from holdfast.testing.calls import counting_job

_decode_task = msgspec.msgpack.Decoder(EpochTask).decode


class EncodedBlock(NamedTuple):
    """A block as it lies between two workers."""

    head: bytes
    data: bytes


class Worker:
    """A worker process as far as the runtime can tell: its own copy of the job, its subtasks."""

    def __init__(
        self,
        packed: bytes,
        storage: StateStorage,
        clock: Clock,
        sources: SourceAccess,
        calls: Counter[str] | None,
    ) -> None:
        """Unpack the job."""
        job = unpack(packed)
        self._job = job if calls is None else counting_job(job, calls)
        self._storage = storage
        self._clock = clock
        self._sources = sources
        self._kept: dict[tuple[int, int], Subtask] = {}

    def run(self, task: bytes, subtask: int, blocks: Iterable[EncodedBlock]) -> list[EncodedBlock]:
        """Run a subtask to its end; it is kept for the next epoch unless it failed."""
        order = _decode_task(task)
        kept = self._take(order, subtask)
        outgoing: list[EncodedBlock] = []
        try:
            outgoing.extend(_encoded(kept.run(order, _decoded(blocks))))
        except FailedRun:
            kept.close()
            return outgoing
        except BaseException:
            kept.close()
            raise
        self._kept[order.level, subtask] = kept
        return outgoing

    def die(self, task: bytes, subtask: int, blocks: Iterable[EncodedBlock]) -> None:
        """Begin to run a subtask, and stop as its first block leaves it."""
        order = _decode_task(task)
        doomed = self._take(order, subtask)
        try:
            for _ in islice(doomed.run(order, _decoded(blocks)), 1):
                pass
        except FailedRun:
            pass
        finally:
            doomed.close()

    def forget(self) -> None:
        """Lose all subtasks, as a process that dies."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _take(self, order: EpochTask, subtask: int) -> Subtask:
        kept = self._kept.pop((order.level, subtask), None)
        return kept or Subtask(
            self._job,
            order.level,
            subtask,
            order.attempt,
            self._storage,
            self._clock,
            self._sources,
        )


def _encoded(blocks: Iterable[Block]) -> Iterator[EncodedBlock]:
    return (EncodedBlock(encode_header(block.header), bytes(block.data)) for block in blocks)


def _decoded(blocks: Iterable[EncodedBlock]) -> Iterator[Block]:
    return (Block(decode_header(head), memoryview(data)) for head, data in blocks)


class LocalSources(LoopsInProcess[SourceThread]):
    """The loops of source functions, in threads of this process; all workers share them."""

    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: Beginning
    ) -> LiveSource:
        """The loop of a subtask."""
        return LocalSource(self.loop(job, operator, subtask, beginning))

    def _start(
        self,
        function: SourceFunction,
        context: OperatorContext,
        report: FailureReporter,
        beginning: Beginning,
    ) -> SourceThread:
        return SourceThread(function, context, report, beginning)
