"""The sources of a subtask: readers with a position, and loops that run beside the workers."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.datastream.connectors.base import SourceReader
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.errors import HoldfastError
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.event_time import END, Watermark
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.job import JobCode
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.operator_state import Image, encode_image

POSITION = "position"


class ReadRequest(msgspec.Struct, frozen=True):
    """What a loop is asked for in one epoch.

    Attributes:
        checkpoint: the checkpoint whose barrier ends the epoch, or None.
        completed, aborted: checkpoints that ended, for a loop that listens.
    """

    epoch: int
    limit: int
    checkpoint: int | None = None
    timestamp: int = 0
    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()


class LiveSource(ABC):
    """A running source function, wherever its loop is.

    Attributes:
        image: after a read with a barrier, the function's operator state at that place.
        snapshot_failure: after such a read, why the function could not take part, if it could not.
        watermark: after a read, how far the function says that time is.
    """

    image: bytes | None = None
    snapshot_failure: str | None = None
    watermark: Watermark = Watermark()

    @abstractmethod
    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """The records of an epoch; the same ones again when the epoch is read again."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the loop has ended and everything it emitted was read."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection; the loop goes on."""


class Beginning(NamedTuple):
    """What the loop of a source begins with: whether from a checkpoint, and its state there."""

    restored: bool = False
    image: bytes | None = None


class SourceAccess(ABC):
    """How a subtask finds the loops of its source functions."""

    @abstractmethod
    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: Beginning
    ) -> LiveSource:
        """The running loop of a subtask; started from its beginning if it does not run yet."""


class SourceInstance:
    """One source operator in one subtask."""

    def __init__(
        self,
        operator: PlannedOperator,
        job: JobCode,
        subtask: int,
        backend: KeyedStateBackend,
        access: SourceAccess,
    ) -> None:
        """Make the reader, or find the loop when the first epoch reads."""
        operation = operator.node.operation
        assert isinstance(operation, SourceOperation)
        self.operator = operator
        self._source = operation.source
        self._subtask = subtask
        self._report = FailureReporter(operator.name, subtask)
        self._backend = backend
        self._reader: SourceReader | None = None
        self._live: LiveSource | None = None
        self._connect: Callable[[], LiveSource] | None = None
        self._finished = False
        self._beginning = Beginning()
        if isinstance(operation.source, FunctionSource):
            self._connect = lambda: access.connect(job, operator, subtask, self._beginning)
        else:
            self._reader = operation.source.create_reader(subtask, operator.parallelism)

    def restore(self) -> None:
        """Go to the position in the loaded state."""
        data = self._backend.get_blob(self.operator.uid, POSITION)
        if data is None:
            return
        self._finished, position = pickle.loads(data)
        if self._reader is not None:
            self._reader.restore(position)

    def begin(self, restored: bool, image: Image | None) -> None:
        """Begin an attempt with this operator state."""
        self._beginning = Beginning(restored, encode_image(image) if image else None)

    def take_over(self, saved: Sequence[bytes]) -> None:
        """Take this subtask's share of the positions that another number of subtasks had."""
        before = [pickle.loads(data) for data in saved]
        if len(before) == self.operator.parallelism:
            share = before[self._subtask]
        elif self._reader is None:
            share = (all(ended for ended, _ in before), None)
        else:
            positions = [position for _, position in before]
            dealt = self._source.redistribute(positions, self.operator.parallelism)
            share = (False, dealt[self._subtask])
        self._backend.set_blob(self.operator.uid, POSITION, pickle.dumps(share, 5))

    def end(self) -> None:
        """Count as ended, though there may be more to read."""
        self._finished = True

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Batches of an epoch."""
        if self._finished:
            return
        batches = self._batches(request)
        while True:
            try:
                batch = next(batches, None)
            except HoldfastError:
                raise
            except Exception as error:
                self._report.during("read", error)
            if batch is None:
                return
            yield batch

    @property
    def finished(self) -> bool:
        """Whether there will never be another record."""
        if not self._finished:
            origin = self._reader or self._live
            self._finished = origin is not None and origin.finished
        return self._finished

    def save(self) -> None:
        """Put the position where it is persisted with the state."""
        position = self._reader.position() if self._reader is not None else None
        data = pickle.dumps((self.finished, position), 5)
        self._backend.set_blob(self.operator.uid, POSITION, data)
        if self._live is not None and self._live.image is not None:
            self._backend.set_blob(self.operator.uid, OPERATOR_STATE, self._live.image)

    @property
    def watermark(self) -> Watermark:
        """How far the source itself says that time is."""
        if self.finished:
            return END
        return self._live.watermark if self._live is not None else Watermark()

    @property
    def snapshot_failure(self) -> str | None:
        """Why the loop could not take part in the epoch's checkpoint, if it could not."""
        return self._live.snapshot_failure if self._live is not None else None

    def close(self) -> None:
        """Let go of connections."""
        if self._reader is not None:
            self._reader.close()
        if self._live is not None:
            self._live.close()
            self._live = None

    def _batches(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        if self._reader is not None:
            return iter(self._reader.read(request.limit))
        if self._live is None:
            assert self._connect is not None
            self._live = self._connect()
        return self._live.read(request)
