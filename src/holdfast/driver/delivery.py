"""What the driver does with the results of an accepted epoch: print lines, hand out records."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.errors import JobExecutionError
from holdfast.graph.nodes import ResultKind, ResultOperation
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block, decode_records


class CollectedRecords:
    """A bounded queue between a running job and the program that iterates over its results."""

    def __init__(self, capacity: int = 64) -> None:
        """Hold at most this many blocks; the job waits while the program is behind."""
        self._capacity = capacity
        self._blocks: deque[list[Any]] = deque()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def put(self, records: list[Any]) -> None:
        """Add records; waits for space unless nobody reads any more.

        Raises:
            JobExecutionError: when the job has ended, and the records cannot be handed out.
        """
        with self._changed:
            self._changed.wait_for(self._takes)
            if self._closed:
                return
            if self._ended:
                raise JobExecutionError("the job has ended before its records were read")
            self._blocks.append(records)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """No more records will come; ``error`` is raised to the reader after the last one."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def close(self) -> None:
        """The reader has gone; the job need not wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while (records := self._next()) is not None:
            yield from records

    def _takes(self) -> bool:
        return len(self._blocks) < self._capacity or self._ended or self._closed

    def _next(self) -> list[Any] | None:
        """The next block; None after the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self._ended)
            if self._blocks:
                records = self._blocks.popleft()
                self._changed.notify_all()
                return records
        if self._error is not None:
            raise self._error
        return None


class Delivery:
    """Hands the results of accepted epochs to where they belong."""

    def __init__(self, plan: Plan, collected: dict[int, CollectedRecords] | None = None) -> None:
        """Collected records go to the queue of their operator."""
        self._plan = plan
        self._collected = collected or {}

    def deliver(self, blocks: Iterable[Block]) -> list[Block]:
        """Print, hand out; returns the blocks that are left for Spark writers."""
        others = []
        for block in blocks:
            operation = self._plan.operators[block.header.exchange].node.operation
            if not isinstance(operation, ResultOperation):
                others.append(block)
            elif operation.kind is ResultKind.PRINT:
                _print(decode_records(block.data))
            elif block.header.exchange in self._collected:
                self._collected[block.header.exchange].put(decode_records(block.data))
        return others

    def end(self, error: BaseException) -> None:
        """Hand out nothing any more; those who read get the error."""
        for records in self._collected.values():
            records.end(error)


def _print(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
