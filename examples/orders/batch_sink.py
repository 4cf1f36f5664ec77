"""Hands orders on in batches of a hundred: to a warehouse, say, that prints them as one list.

An incomplete batch waits in a buffer, which is operator state: it is in every checkpoint, and
comes back after a failure. A complete batch is a line of a file, with all others of its epoch. The
file is written under a hidden name and gets its name when the checkpoint that contains it is
complete, so no order is lost and none is in two batches.
"""

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from examples.orders.events import OrderEvent
from holdfast.datastream import RuntimeContext, SinkFunction, TwoPhaseCommitSinkFunction
from holdfast.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from holdfast.datastream.state import ListState, ListStateDescriptor

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
        """Write to a directory that all workers see."""
        self._directory = directory
        self._size = size
        self._buffer: list[OrderEvent] = []
        self._token = ""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        Path(self._directory).mkdir(parents=True, exist_ok=True)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        super().initialize_state(context)
        self._buffered: ListState[OrderEvent] = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("buffered-orders", OrderEvent)
        )
        self._buffer = list(self._buffered.get())
        # what this attempt writes has its own names, for the next one to clean up behind it
        self._token = uuid.uuid4().hex[:12]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        super().snapshot_state(context)
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
        with Path(self._directory, name).open("wb") as file:
            file.writelines(_encode(orders) + b"\n" for orders in transaction.full)
            file.flush()
            os.fsync(file.fileno())
        transaction.file = name
        transaction.full.clear()

    def commit(self, transaction: Batches) -> None:
        if transaction.file is not None:
            hidden = Path(self._directory, transaction.file)
            if hidden.exists():  # otherwise it was committed before
                hidden.rename(Path(self._directory, f"batches-{transaction.file[1:]}"))

    def abort(self, transaction: Batches) -> None:
        if transaction.file is not None:
            Path(self._directory, transaction.file).unlink(missing_ok=True)

    def initialize_user_context(self) -> str:
        return self._token

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Delete what the attempt before left behind; one subtask does it for all."""
        if self._subtask == 0:
            kept = {transaction.file for transaction in transactions}
            for token in contexts:
                for path in Path(self._directory).glob(f".{token}-*{_SUFFIX}"):
                    if path.name not in kept:
                        path.unlink(missing_ok=True)
