"""Delivery of the results of an accepted epoch: prints lines, passes records to the program."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from holdfast.errors import JobExecutionError
from holdfast.graph.operations import ResultKind, ResultOperation
from holdfast.plan.model import Plan
from holdfast.runtime.wire.blocks import Block, decode_records

#: interval of the checks of the engine while the job waits for the program, in seconds
_LOOK: Final = 0.1


def _nothing() -> None:
    """Check nothing."""


class CollectedRecords:
    """A bounded queue between a running job and the program that iterates over its results."""

    def __init__(self, capacity: int = 64, told: Callable[[], None] = _nothing) -> None:
        """Hold at most this many blocks; the job waits while the program is behind.

        ``told`` is called in the job's thread when the queue has become ready.
        """
        self._capacity = capacity
        self._told = told
        self._blocks: deque[list[Any]] = deque()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def put(self, records: list[Any], check: Callable[[], None] = _nothing) -> None:
        """Add records; wait for space unless the reader has closed the queue.

        ``check`` is called while it waits, and may raise an error.

        Raises:
            JobExecutionError: when the job has ended, and the records cannot be delivered.
        """
        with self._changed:
            while not self._changed.wait_for(self._takes, _LOOK):
                check()
            if self._closed:
                return
            if self._ended:
                raise JobExecutionError("the job has ended before its records were read")
            self._blocks.append(records)
            self._changed.notify_all()
        self._told()

    def end(self, error: BaseException | None = None) -> None:
        """End the queue; ``error`` is raised in the reader after the last record."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()
        self._told()

    def close(self) -> None:
        """Close the queue from the reader's side; the job does not wait for it any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while (records := self.take()) is not None:
            yield from records

    @property
    def is_ready(self) -> bool:
        """Return whether `take` does not wait."""
        return bool(self._blocks) or self._ended

    def _takes(self) -> bool:
        return len(self._blocks) < self._capacity or self._ended or self._closed

    def take(self) -> list[Any] | None:
        """Return the next block, wait for it if necessary; return None after the last one.

        Raises:
            HoldfastError: after the last block, the error with which the job has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_ready)
            if self._blocks:
                records = self._blocks.popleft()
                self._changed.notify_all()
                return records
        if self._error is not None:
            raise self._error
        return None


class Delivery:
    """Passes the results of accepted epochs to their destinations."""

    def __init__(self, plan: Plan, collected: dict[int, CollectedRecords] | None = None) -> None:
        """Take the queues for collected records, by operator."""
        self._plan = plan
        self._collected = collected or {}

    def deliver(self, blocks: Iterable[Block], check: Callable[[], None] = _nothing) -> list[Block]:
        """Print or pass on results; return the blocks that are left for writers of the engine.

        ``check`` is called while the job waits for the program to read, and may raise an error.
        """
        others = []
        for block in blocks:
            operation = self._plan.operators[block.header.operator].node.operation
            if not isinstance(operation, ResultOperation):
                others.append(block)
            elif operation.kind is ResultKind.PRINT:
                _print(decode_records(block.data))
            elif block.header.operator in self._collected:
                self._collected[block.header.operator].put(decode_records(block.data), check)
        return others


def _print(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
