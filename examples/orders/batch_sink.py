"""Hands orders on in batches of a hundred: to a warehouse, say, that prints them as one list.

An incomplete batch waits in a buffer, which is operator state: it is in every checkpoint, and
comes back after a failure. A complete batch is a line of a file, with all others of its epoch. The
file is written under a hidden name and gets its name when the checkpoint that contains it is
complete, so no order is lost and none is in two batches.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from examples.orders.events import OrderEvent
from holdfast.datastream import RuntimeContext, SinkFunction, TwoPhaseCommitSinkFunction
from holdfast.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from holdfast.datastream.state import ListState, ListStateDescriptor
from holdfast.filesystem import file_system_of, join

__all__ = ["BATCH_SIZE", "BatchSink"]

BATCH_SIZE = 100

_SUFFIX = ".jsonl"

_encode = msgspec.json.Encoder().encode


@dataclass
class Batches:
    """A transaction: complete batches, and the hidden file that holds them.

    Attributes:
        full: not written yet.
        file: written; to be named, or deleted.
    """

    full: list[list[OrderEvent]] = field(default_factory=list)
    file: str | None = None


class BatchSink(TwoPhaseCommitSinkFunction):
    """Writes orders in batches of a hundred, each a line of JSON; the last ones may have fewer."""

    transaction_type = Batches

    def __init__(self, directory: str, size: int = BATCH_SIZE) -> None:
        """Write to a directory that all workers see, or to an address: ``s3a://bucket/batches``."""
        self._directory = directory
        self._size = size
        self._buffer: list[OrderEvent] = []
        self._token = ""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._files, self._folder = file_system_of(self._directory)
        self._files.make_directories(self._folder)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._buffered: ListState[OrderEvent] = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("buffered-orders", OrderEvent)
        )
        self._buffer = list(self._buffered.get())
        # what this attempt writes has its own names, for the next one to clean up behind it
        self._token = uuid.uuid4().hex[:12]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._buffered.update(self._buffer)

    def begin_transaction(self) -> Batches:
        return Batches()

    def invoke(
        self, transaction: Batches, value: OrderEvent, context: SinkFunction.Context
    ) -> None:
        self._buffer.append(value)
        # there may be more than a batch after a restart with fewer subtasks
        while len(self._buffer) >= self._size:
            transaction.full.append(self._buffer[: self._size])
            del self._buffer[: self._size]

    def finish_processing(self, transaction: Batches) -> None:
        """There are no more orders: what is left is a batch, too."""
        while self._buffer:
            transaction.full.append(self._buffer[: self._size])
            del self._buffer[: self._size]

    def pre_commit(self, transaction: Batches) -> None:
        if not transaction.full:
            return
        name = f".{self._token}-{uuid.uuid4().hex[:12]}{_SUFFIX}"
        lines = b"".join(_encode(orders) + b"\n" for orders in transaction.full)
        self._files.write(join(self._folder, name), lines, durable=True)
        transaction.file = name
        transaction.full.clear()

    def commit(self, transaction: Batches) -> None:
        if transaction.file is not None:
            hidden = join(self._folder, transaction.file)
            if self._files.exists(hidden):  # otherwise it was committed before
                shown = join(self._folder, f"batches-{transaction.file[1:]}")
                self._files.move(hidden, shown)

    def abort(self, transaction: Batches) -> None:
        if transaction.file is not None:
            self._files.delete(join(self._folder, transaction.file))

    def initialize_user_context(self) -> str:
        return self._token

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Delete what the attempt before left behind; one subtask does it for all."""
        if self._subtask == 0:
            kept = {transaction.file for transaction in transactions}
            hidden = tuple(f".{token}-" for token in contexts)
            for file in self._files.list_directory(self._folder):
                if file.name.startswith(hidden) and file.name not in kept:
                    self._files.delete(join(self._folder, file.name))
