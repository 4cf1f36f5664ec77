"""The sources of a subtask: readers with a position, and loops that run independently."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.datastream.connectors.base import SourceReader
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.errors import HoldfastError
from holdfast.graph.operations import SourceOperation
from holdfast.metrics import MetricGroup
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.event_time import END, Watermark
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import at_work
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.errors import decoding
from holdfast.state.live.operator_state import Image, encode_image
from holdfast.state.types.unpickling import unpickle

POSITION = "position"


class ReadRequest(msgspec.Struct, frozen=True):
    """A request to a source for one epoch.

    Attributes:
        barrier: a checkpoint ends the epoch: the loop is halted after it, until its snapshot.
        completed, aborted: checkpoints that ended, for a loop that listens.
        plan: the plan of the source's planner for the epoch, for a reader.
        halts: a loop that is read as its records arrive is halted after it, also after its
            snapshot, until a read without this.
    """

    epoch: int
    limit: int
    barrier: bool = False
    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    plan: bytes | None = None
    halts: bool = False

    @property
    def concerns_checkpoints(self) -> bool:
        """Return whether a loop has something to do even if it has no more records."""
        return bool(self.barrier or self.completed or self.aborted)


class SnapshotRequest(msgspec.Struct, frozen=True):
    """A request for a snapshot to a loop that is halted."""

    checkpoint: int
    timestamp: int


class LoopSnapshot(NamedTuple):
    """A loop's part in a checkpoint: its operator state, or why it could not take part."""

    image: bytes | None = None
    failure: str | None = None


class LiveSource(ABC):
    """A running source function, in any process.

    Attributes:
        watermark: the function's own watermark, after a read.
    """

    watermark: Watermark = Watermark()

    @abstractmethod
    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Yield the records of an epoch; the same ones when the epoch is read again."""

    def notify(self, completed: Sequence[int], aborted: Sequence[int]) -> None:
        """Notify the function of checkpoints that ended, if a read does not do so."""

    @abstractmethod
    def snapshot(self, request: SnapshotRequest) -> LoopSnapshot:
        """Return the function's state after a read with a barrier; then resume the loop."""

    @property
    def awaits(self) -> bool:
        """Return whether everything was read, and the reader is woken when there is more."""
        return False

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Return whether the loop has ended and everything it emitted was read."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; the loop continues."""


class LoopStart(NamedTuple):
    """What the loop of a source starts with: whether from a checkpoint, and its state there.

    Attributes:
        checkpointing: whether the job takes checkpoints.
    """

    restored: bool = False
    image: bytes | None = None
    checkpointing: bool = False


class SourceAccess(ABC):
    """Gives a subtask access to the loops of its source functions."""

    @abstractmethod
    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: LoopStart
    ) -> LiveSource:
        """Return the running loop of a subtask; start it with ``beginning`` if needed."""


class SourceInstance:
    """One source operator in one subtask."""

    def __init__(
        self,
        operator: PlannedOperator,
        job: JobCode,
        subtask: int,
        backend: KeyedStateBackend,
        access: SourceAccess,
        metrics: MetricGroup,
    ) -> None:
        """Create the reader; a loop is connected when the first epoch reads."""
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
        #: whether the loop had ended before this attempt, and does not run in it
        self._over = False
        self._snapshot = LoopSnapshot()
        self._beginning = LoopStart()
        if isinstance(operation.source, FunctionSource):
            self._connect = lambda: access.connect(job, operator, subtask, self._beginning)
        else:
            with at_work(self._report):
                self._reader = operation.source.create_reader(subtask, operator.parallelism)
                self._reader.open(metrics)

    @property
    def is_loop(self) -> bool:
        """Return whether it is a source function, whose loop runs by itself."""
        return self._reader is None

    @property
    def gives_batches(self) -> bool:
        """Return whether it gives batches, of which many rows can be read at once."""
        return self._source.batch_type is not None

    @property
    def gives_time(self) -> bool:
        """Return whether it is a source function that emits its own watermarks."""
        return isinstance(self._source, FunctionSource) and self._source.gives_timestamps

    @property
    def awaits(self) -> bool:
        """Return whether everything was read, and the source signals when there is more."""
        return self._live is not None and self._live.awaits

    def run_free(self) -> None:
        """Read beyond the plans of epochs, because nothing is read again in this attempt."""
        if self._reader is not None:
            self._call("run_free", self._reader.run_free)

    def follow(self, plan: bytes) -> None:
        """Pass a plan of the planner to the reader."""
        if self._reader is not None and not self._finished:
            self._call("follow", self._reader.follow, pickle.loads(plan))

    def restore(self) -> None:
        """Restore the position from the loaded state."""
        data = self._backend.get_blob(self.operator.uid, POSITION)
        if data is None:
            return
        self._finished, position = self._decoded(data)
        if self._reader is not None:
            self._call("restore", self._reader.restore, position)
        else:
            self._over = position

    def begin(self, task: EpochTask, image: Image | None) -> None:
        """Start an attempt with this operator state."""
        state = encode_image(image) if image else None
        self._beginning = LoopStart(task.restored, state, task.takes_checkpoints)
        data = self._backend.get_blob(self.operator.uid, POSITION)
        if self._reader is None and data is not None and self._decoded(data)[0]:
            self._save_position(True, True)

    def take_over(self, saved: Sequence[bytes], image: bytes | None) -> None:
        """Take this subtask's share of saved positions, which other subtasks may have had.

        ``image``: the operator state of the subtask with this number. If its loop has ended, it
        must be kept, because no loop will produce it again.
        """
        before = [self._decoded(data) for data in saved]
        if len(before) == self.operator.parallelism:
            finished, position = before[self._subtask]
            if finished:
                self._backend.set_blob(self.operator.uid, OPERATOR_STATE, image)
        else:
            finished = all(ended for ended, _ in before)
            position = self._share([position for _, position in before])
        self._save_position(finished, position)

    def end(self) -> None:
        """Count as ended, even if there is more to read."""
        self._finished = True

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Yield the batches of an epoch; a loop that has ended still takes part in checkpoints."""
        if self._reader is not None:
            silent = self._finished or request.limit <= 0
            if request.plan is not None:
                # NB: even if nothing is read, so that no reader misses a plan
                self.follow(request.plan)
        else:
            silent = self._over or (self._finished and not request.concerns_checkpoints)
        if silent:
            return
        batches = self._batches(request)
        while True:
            try:
                with at_work(self._report):
                    batch = next(batches, None)
            except HoldfastError:
                raise
            except Exception as error:
                self._report.during("read", error)
            if batch is None:
                return
            yield batch

    def pause(self, splits: Collection[Hashable]) -> None:
        """Exclude these splits from the next reads."""
        if self._reader is not None:
            self._call("pause", self._reader.pause, splits)

    def notify(self, task: EpochTask) -> None:
        """Notify the source of checkpoints that ended (step 3); see `LiveSource.notify`.

        Without checkpoints, an accepted epoch counts as complete.
        """
        reader = self._reader
        if reader is None:
            if self._live is not None and (task.completed or task.aborted):
                self._live.notify(task.completed, task.aborted)
            return
        for checkpoint in sorted({*task.completed, *task.aborted}):
            if checkpoint in task.completed:
                self._call("notify", reader.notify_checkpoint_complete, checkpoint)
            else:
                self._call("notify", reader.notify_checkpoint_aborted, checkpoint)
        if not task.takes_checkpoints:
            self._call("notify", reader.notify_epoch_accepted)

    @property
    def splits(self) -> Collection[Hashable] | None:
        """Return the parts of the input that have their own watermarks, if there are any."""
        return None if self._reader is None else self._reader.splits

    @property
    def finished(self) -> bool:
        """Return whether there will be no more records."""
        if not self._finished:
            origin = self._reader or self._live
            self._finished = origin is not None and origin.finished
        return self._finished

    def save(self) -> None:
        """Save the position with the state."""
        position = self._reader.position() if self._reader is not None else self._over
        self._save_position(self.finished, position)
        if self._snapshot.image is not None:
            self._backend.set_blob(self.operator.uid, OPERATOR_STATE, self._snapshot.image)

    def snapshot(self, checkpoint: int, timestamp: int) -> str | None:
        """Let the source take part in a checkpoint (step 5); return the failure, or None."""
        if self._reader is not None:
            self._call("snapshot_state", self._reader.snapshot_state, checkpoint)
        if self._live is None:
            return None
        self._snapshot = self._live.snapshot(SnapshotRequest(checkpoint, timestamp))
        return self._snapshot.failure

    @property
    def watermark(self) -> Watermark:
        """Return the source's own watermark."""
        if self.finished:
            return END
        return self._live.watermark if self._live is not None else Watermark()

    def close(self) -> None:
        """Close connections."""
        if self._reader is not None:
            with at_work(self._report):
                self._reader.close()
        if self._live is not None:
            self._live.close()
            self._live = None

    def _call(self, what: str, method: Callable[..., None], *arguments: Any) -> None:
        try:
            with at_work(self._report):
                method(*arguments)
        except HoldfastError:
            raise
        except Exception as error:
            self._report.during(what, error)

    def _share(self, positions: list[Any]) -> Any:
        """Return this subtask's share of the positions of another number of subtasks."""
        if self._reader is None:
            return False
        shares: list[Any] = []
        self._call(
            "redistribute",
            lambda: shares.extend(self._source.redistribute(positions, self.operator.parallelism)),
        )
        return shares[self._subtask]

    def _decoded(self, data: bytes) -> tuple[bool, Any]:
        """Return whether the source had ended, and its position."""
        with decoding(f"the position of operator {self.operator.uid!r}"):
            finished, position = unpickle(data)
        return bool(finished), position

    def _save_position(self, finished: bool, position: Any) -> None:
        data = pickle.dumps((finished, position), 5)
        self._backend.set_blob(self.operator.uid, POSITION, data)

    def _batches(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        if self._reader is not None:
            return iter(self._reader.read(request.limit))
        if self._live is None:
            assert self._connect is not None
            self._live = self._connect()
        return self._live.read(request)
