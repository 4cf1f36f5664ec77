"""What the driver does with the results of an accepted epoch: print lines, hand out records."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from holdfast.errors import JobExecutionError
from holdfast.graph.nodes import ResultKind, ResultOperation
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block, decode_records

#: between two looks at what runs the job, while it waits for the program, in seconds
_LOOK: Final = 0.1


def _nothing() -> None:
    """Where nothing can go wrong meanwhile."""


class CollectedRecords:
    """A bounded queue between a running job and the program that iterates over its results."""

    def __init__(self, capacity: int = 64) -> None:
        """Hold at most this many blocks; the job waits while the program is behind."""
        self._capacity = capacity
        self._blocks: deque[list[Any]] = deque()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def put(self, records: list[Any], check: Callable[[], None] = _nothing) -> None:
        """Add records; waits for space unless nobody reads any more.

        ``check`` is called while it waits, and may raise an error.

        Raises:
            JobExecutionError: when the job has ended, and the records cannot be handed out.
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

    def deliver(self, blocks: Iterable[Block], check: Callable[[], None] = _nothing) -> list[Block]:
        """Print, hand out; returns the blocks that are left for writers of the engine.

        ``check`` is called while a program is behind with reading, and may raise an error.
        """
        others = []
        for block in blocks:
            operation = self._plan.operators[block.header.exchange].node.operation
            if not isinstance(operation, ResultOperation):
                others.append(block)
            elif operation.kind is ResultKind.PRINT:
                _print(decode_records(block.data))
            elif block.header.exchange in self._collected:
                self._collected[block.header.exchange].put(decode_records(block.data), check)
        return others


def _print(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
