"""The function of a ``FileSink``: records into segments, segments into part files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.datastream.connectors.files.part_files import (
    FileTransaction,
    OpenSegment,
    Part,
    PartFiles,
    Place,
    Segment,
    check_bucket,
)
from holdfast.datastream.functions import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SinkFunction,
)
from holdfast.datastream.functions.two_phase_commit import TwoPhaseCommitSinkFunction

if TYPE_CHECKING:
    from holdfast.datastream.connectors.file_system import FileSink, RollingPolicy

#: set by the program and by ``open``; all other fields move with the subtask
_NOT_CARRIED = frozenset(
    [
        *("_sink", "_place", "_encode", "_bucket_of", "_only_bucket", "_limit", "_files"),
        *("_subtask", "_clock", "_current", "_held"),
    ]
)


class FileSinkFunction(TwoPhaseCommitSinkFunction):
    """Writes segments in transactions; a commit turns them into part files.

    The id of the sink is created in the program. So all attempts of a program write to one
    hidden directory, where the next attempt finds the leftovers of the last one; and no other job
    uses it, even if it writes part files to the same place.
    """

    transaction_type = FileTransaction
    user_context_type = Place
    #: names the part files of this subtask in this attempt
    _token = ""
    _next_part = 0
    #: where the programs wrote from whose state this one continues
    _earlier: tuple[Place, ...] = ()
    _files: PartFiles
    _subtask: int
    #: the processing time
    _clock: Callable[[], int]
    #: the transaction that was begun last
    _current: FileTransaction | None = None

    def __init__(self, sink: FileSink, sink_id: str = "") -> None:
        """Take the sink's settings, and the id of an earlier object of this sink or a new one."""
        self._sink = sink
        self._place = Place(sink.base_path, sink_id or uuid.uuid4().hex[:16])
        if sink.encoder is not None:
            self._encode = sink.encoder.encode
        self._bucket_of = sink.buckets.bucket
        self._only_bucket = sink.buckets.only_bucket
        self._limit = sink.rolling.largest_part()

    @property
    def sink(self) -> FileSink:
        """Return the sink's settings."""
        return self._sink

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        attempt = runtime_context.get_attempt_number()
        self._files = PartFiles(self._place, attempt, self._subtask)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Choose unique names for the part files of this attempt."""
        self._token = uuid.uuid4().hex[:16]
        self._next_part = 0

    def begin_transaction(self) -> FileTransaction:
        self._current = FileTransaction(self._place)
        return self._current

    def invoke(
        self, transaction: FileTransaction, value: Any, context: SinkFunction.Context
    ) -> None:
        """Append a record to the segment of its bucket."""
        bucket = self._only_bucket
        if bucket is None:
            bucket = self._bucket_of(value, context.current_processing_time())
        data = self._encode(value)
        segment = transaction.writing.get(bucket)
        if segment is None:
            segment = self._open_segment(bucket, context)
            transaction.writing[bucket] = segment
        try:
            segment.write(data)
        except Exception as error:
            self._files.fail(segment, error)
        segment.size += len(data)
        if segment.size >= self._limit:
            self._close(transaction, bucket)

    def end_round(self) -> None:
        """Close the segments that the rolling policy closes before the checkpoint."""
        transaction = self._current
        if transaction is None or not transaction.writing:
            return
        now, rolls = self._clock(), self._sink.rolling.rolls
        for bucket, segment in tuple(transaction.writing.items()):
            if rolls(segment.size, now - segment.begun, segment.idle(now)):
                self._close(transaction, bucket)

    def pre_commit(self, transaction: FileTransaction) -> None:
        for bucket in tuple(transaction.writing):
            self._close(transaction, bucket)

    def commit(self, transaction: FileTransaction) -> None:
        """Publish the part files."""
        self._files.publish(transaction)

    def recover_and_commit(self, transaction: FileTransaction) -> None:
        """Publish the part files, unless they were published and moved away."""
        self._files.publish(transaction, may_be_gone=True)

    def abort(self, transaction: FileTransaction) -> None:
        self._files.discard(transaction)

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Decide on part files: which segments they are made of, and their names."""
        by_bucket: dict[str, list[Segment]] = {}
        for transaction in transactions:
            for part in transaction.parts:
                by_bucket.setdefault(part.bucket, []).extend(part.segments)
        parts = [
            Part(bucket, group, self._next_name())
            for bucket, segments in sorted(by_bucket.items())
            for group in _groups(segments, self._sink.rolling)
        ]
        return [FileTransaction(self._place, parts)] if parts else []

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        for transaction in self.pending_transactions():
            if not transaction.is_named:
                self._files.sync(transaction)

    def initialize_user_context(self) -> Place:
        """Return where the next attempt may clean up."""
        return self._place

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Delete the segments that will not be published; one subtask does it for all."""
        self._earlier = tuple({*contexts} - {self._place})
        if self._subtask == 0:
            keep = [name for transaction in transactions for name in transaction.names]
            self._files.sweep_earlier(self._earlier, keep)

    def close(self) -> None:
        """Delete everything except part files."""
        self._files.sweep_own(self._earlier)

    def _open_segment(self, bucket: str, context: SinkFunction.Context) -> OpenSegment:
        check_bucket(bucket)  # or a record could choose any directory
        self._clock = context.current_processing_time
        return self._files.open_segment(self._clock())

    def _close(self, transaction: FileTransaction, bucket: str) -> None:
        segment = self._files.close_segment(transaction.writing[bucket])
        del transaction.writing[bucket]
        if segment is not None:
            transaction.parts.append(Part(bucket, (segment,)))

    def _next_name(self) -> str:
        files, number = self._sink.files, self._next_part
        self._next_part += 1
        name = f"{files.part_prefix}-{self._token}-{self._subtask}-{number}"
        return name + files.part_suffix

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_CARRIED}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._sink, self._place.sink)


def _groups(segments: list[Segment], rolling: RollingPolicy) -> Iterator[tuple[Segment, ...]]:
    """Group the segments of one bucket, in order, by their part file."""
    group = segments[:1]
    for segment in segments[1:]:
        size = sum(part.size for part in group)
        age, idle = segment.begun - group[0].begun, segment.begun - group[-1].begun
        if rolling.rolls(size, age, idle):
            yield tuple(group)
            group = []
        group.append(segment)
    yield tuple(group)
