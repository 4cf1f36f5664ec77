"""Simulated workers: caches of subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from holdfast.runtime.context import Clock
from holdfast.runtime.epochs.task import FailedRun, Subtask
from holdfast.runtime.operators.sources.source_instance import SourceAccess
from holdfast.runtime.wire.blocks import Block, decode_header, encode_header
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.job_code import unpack
from holdfast.state.storage.directory import StateStorage
from holdfast.testing.calls import counting_job

_decode_task = msgspec.msgpack.Decoder(EpochTask).decode


class EncodedBlock(NamedTuple):
    """An encoded block, between two workers."""

    head: bytes
    data: bytes


class Worker:
    """A simulated worker process, with its own copy of the job and its subtasks."""

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
        """Start to run a subtask, and stop when its first block leaves it."""
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
        """Drop all subtasks, as a dying process does."""
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
