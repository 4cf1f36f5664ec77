"""What the driver does with the results of an accepted epoch: print lines, hand out records."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.graph.nodes import ResultKind, ResultOperation
from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block, decode_records

_END = object()


class CollectedRecords:
    """A bounded queue between a running job and the program that iterates over its results."""

    def __init__(self, capacity: int = 64) -> None:
        """Hold at most this many blocks; the job waits while the program is behind."""
        self._blocks: queue.Queue[Any] = queue.Queue(capacity)
        self._closed = threading.Event()

    def put(self, records: list[Any]) -> None:
        """Add records; waits for space unless nobody reads any more."""
        while not self._closed.is_set():
            try:
                self._blocks.put(records, timeout=0.2)
            except queue.Full:
                continue
            return

    def end(self, error: BaseException | None = None) -> None:
        """No more records will come; ``error`` is raised to the reader after the last one."""
        self.put([_END, error])

    def close(self) -> None:
        """The reader has gone; the job need not wait for it."""
        self._closed.set()

    def __iter__(self) -> Iterator[Any]:
        while True:
            records = self._blocks.get()
            if records and records[0] is _END:
                if records[1] is not None:
                    raise records[1]
                return
            yield from records


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


def _print(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
