"""The function of a ``FileSink``: records into segments, segments into part files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from holdfast.datastream.connectors.files.compacting import FileCompactor
from holdfast.datastream.connectors.files.part_files import (
    FileTransaction,
    OpenSegment,
    Part,
    PartFiles,
    Place,
    Segment,
    check_bucket,
)
from holdfast.datastream.connectors.files.shared import name_of
from holdfast.datastream.functions import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SinkFunction,
)
from holdfast.datastream.functions.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.filesystem import MissingFileError

if TYPE_CHECKING:
    from holdfast.datastream.connectors.file_system import FileSink, RollingPolicy

#: set by the program and by ``open``; all other fields move with the subtask
_NOT_CARRIED = frozenset(
    [
        *("_sink", "_place", "_encode", "_bucket_of", "_only_bucket", "_limit", "_files"),
        *("_subtask", "_clock", "_current", "_held", "_at_barrier", "_ended", "_let_go"),
        *("_columns", "_begins"),
    ]
)


@dataclass
class Waiting:
    """The segments of one bucket that are not published yet.

    Attributes:
        held: how many checkpoints contain the oldest of them.
        saved: the names of those that a checkpoint contains.
        merged: the names of segments whose records are in others of them.
    """

    bucket: str
    segments: list[Segment] = field(default_factory=list)
    held: int = 0
    saved: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the number of bytes in all."""
        return sum(segment.size for segment in self.segments)

    def add(self, transaction: FileTransaction, part: Part) -> None:
        """Take the segments of a part."""
        self.segments.extend(part.segments)
        self.held = max(self.held, transaction.held)
        if transaction.held:
            self.saved.extend(segment.name for segment in part.segments)
        self.merged.extend(name for name in transaction.merged if name not in self.merged)


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
    #: whether the attempt has just begun
    _begins = False
    #: where the programs wrote from whose state this one continues
    _earlier: tuple[Place, ...] = ()
    _files: PartFiles
    _subtask: int
    #: the processing time
    _clock: Callable[[], int]
    #: the transaction that was begun last
    _current: FileTransaction | None = None
    #: whether a checkpoint is taken now
    _at_barrier = False
    #: whether there will be no more records
    _ended = False
    #: segments that were let go of, though a checkpoint contains them
    _let_go: tuple[str, ...] = ()

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
        compacts = self._sink.compaction is not None
        self._files = PartFiles(self._place, attempt, self._subtask, compacts)
        if self._begins and self._subtask == 0:
            self._files.check_place()
        self._begins = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Choose unique names for the part files of this attempt."""
        self._token = uuid.uuid4().hex[:16]
        self._next_part = 0
        self._begins = True

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
        """Delete the segments, except those that a checkpoint contains: a job may start there."""
        if transaction.held or (transaction.parts and transaction.is_named):
            self._let_go += (*transaction.names, *transaction.merged)
        else:
            self._files.discard(transaction)

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Decide on part files: which segments they are made of, and their names."""
        sealed = [each for each in transactions if each.sealed]
        waiting = _by_bucket(each for each in transactions if not each.sealed)
        holds = self._at_barrier and not self._ended
        self._at_barrier = False
        held = [each for each in waiting if holds and self._holds_back(each)]
        released = [each for each in waiting if each not in held]
        return [
            *(each for before in sealed for each in self._release_sealed(before)),
            *(self._release(released) if released else ()),
            *(self._hold(each) for each in held),
        ]

    def is_held(self, transaction: FileTransaction) -> bool:
        """Return whether it waits for its compaction."""
        return transaction.held > 0

    def recover_held(self, transaction: FileTransaction) -> FileTransaction | None:
        """Leave out what was published after the checkpoint."""
        if transaction.place == self._place and not transaction.sealed:
            return self._files.without_published(transaction)
        # Any number of jobs may start from that checkpoint, or savepoint.
        return self._left_to_publish(self._with_names(replace(transaction, sealed=True)))

    def finish(self) -> None:
        """Let nothing wait any more: there will be no more records."""
        self._ended = True

    def _holds_back(self, waiting: Waiting) -> bool:
        """Return whether segments wait for more of their bucket."""
        compaction = self._sink.compaction
        if compaction is None:
            return False
        return not compaction.strategy.is_due(waiting.size, waiting.held + 1)

    def _hold(self, waiting: Waiting) -> FileTransaction:
        """Return what the next checkpoint contains and does not publish.

        The part files are those that a job publishes which starts from that checkpoint.
        """
        parts = [self._named(waiting.bucket, group) for group in self._groups(waiting)]
        return FileTransaction(self._place, parts, held=waiting.held + 1)

    def _named(self, bucket: str, segments: tuple[Segment, ...]) -> Part:
        """Return a part with the name that it has in every job."""
        names, files = (segment.name for segment in segments), self._sink.files
        return Part(bucket, segments, name_of(names, files.part_prefix, files.part_suffix))

    def _release(self, released: list[Waiting]) -> Iterator[FileTransaction]:
        """Yield the transactions with the part files of some buckets."""
        transaction = FileTransaction(
            self._place,
            [
                Part(each.bucket, group, self._next_name())
                for each in released
                for group in self._groups(each)
            ],
            [name for each in released for name in each.merged],
            saved=[name for each in released for name in each.saved],
        )
        yield from self._joined(transaction)

    def _release_sealed(self, transaction: FileTransaction) -> Iterator[FileTransaction]:
        """Yield the same for what waited in a savepoint, with the part files as saved there."""
        left = self._left_to_publish(transaction)
        if left is not None:
            yield from self._joined(replace(left, held=0, saved=left.names))

    def _left_to_publish(self, transaction: FileTransaction) -> FileTransaction | None:
        """Return what no other job has published; None if there is nothing."""
        left = self._files.left_to_publish(transaction)
        return left and self._with_names(left)

    def _with_names(self, transaction: FileTransaction) -> FileTransaction:
        """Return a transaction with the names that its part files have in every job."""
        parts = [part if part.name else self._named(*part[:2]) for part in transaction.parts]
        return replace(transaction, parts=parts)

    def _joined(self, transaction: FileTransaction) -> Iterator[FileTransaction]:
        """Yield transactions whose parts have one segment each, if that is to be so now."""
        if not self._joins(transaction):
            yield transaction
            return
        parts = [self._whole(transaction, part) for part in transaction.parts]
        if transaction.place == self._place:
            yield _with_parts(transaction, parts)
            return
        # NB: what is merged is in the own directory: segments elsewhere are swept now
        moved = [part for part in parts if part not in transaction.parts]
        before = [part for part in transaction.parts if part not in parts]
        if moved:
            merged = _with_parts(replace(transaction, parts=before), moved)
            own = self._files.own_place(transaction.place)
            yield replace(merged, place=own, merged_in=transaction.place)
        stay = [part for part in parts if part not in moved]
        if stay:
            yield replace(transaction, parts=stay)

    def _groups(self, waiting: Waiting) -> Iterator[tuple[Segment, ...]]:
        """Group the segments of one bucket, in order, by their part file."""
        compaction = self._sink.compaction
        if compaction is None:
            yield from _groups(waiting.segments, self._sink.rolling)
            return
        threshold = compaction.strategy.size_threshold
        yield from _groups(waiting.segments, _BySize(threshold or self._limit))

    def _joins(self, transaction: FileTransaction) -> bool:
        """Return whether segments are joined before the checkpoint, not when it is complete."""
        return self._sink.compaction is not None or bool(transaction.saved)

    def _join(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        compaction = self._sink.compaction
        compactor = compaction and compaction.compactor
        (compactor or FileCompactor.concat_file_compactor()).compact(files, stream)

    def _whole(self, transaction: FileTransaction, part: Part) -> Part:
        if len(part.segments) == 1:
            return part
        try:
            return self._files.merge(transaction.place, part, self._join)
        except MissingFileError:
            # The part was published and this run does not count. Otherwise its publication fails.
            if transaction.saved:
                self._files.check_whole(transaction.place, part)
            return part

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._at_barrier = True
        for transaction in self.pending_transactions():
            if not transaction.is_named and not transaction.held:
                self._files.sync(transaction)

    def keep_for_savepoint(self, transactions: list[Any]) -> None:
        """Note the names of the segments: the next attempt deletes what it does not know.

        What waits for its compaction waits no longer, because another job may publish it, too.
        """
        for transaction in transactions:
            transaction.sealed = transaction.sealed or self.is_held(transaction)
        self._files.keep(transactions)

    def initialize_user_context(self) -> Place:
        """Return where the next attempt may clean up."""
        return self._place

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Delete the segments that will not be published; one subtask does it for all."""
        self._earlier = tuple({*contexts} - {self._place})
        if self._subtask == 0:
            keep = [
                name
                for transaction in transactions
                for name in (*transaction.names, *transaction.merged)
            ]
            self._files.sweep_earlier(self._earlier, keep)

    def close(self) -> None:
        """Delete everything except part files."""
        self._files.sweep_own(self._earlier, self._let_go)

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


def _with_parts(transaction: FileTransaction, parts: list[Part]) -> FileTransaction:
    """Return a transaction with parts of one segment each; the other segments are superfluous."""
    before = [*transaction.merged, *transaction.names]
    kept = {segment.name for part in parts for segment in part.segments}
    return replace(transaction, parts=parts, merged=[name for name in before if name not in kept])


def _by_bucket(transactions: Iterable[FileTransaction]) -> list[Waiting]:
    found: dict[str, Waiting] = {}
    for transaction in transactions:
        for part in transaction.parts:
            found.setdefault(part.bucket, Waiting(part.bucket)).add(transaction, part)
    return [found[key] for key in sorted(found)]


class _BySize(NamedTuple):
    """Closes a part file that is large enough, however old it is."""

    largest: int

    def rolls(self, size: int, age: int, idle: int) -> bool:
        return size >= self.largest


def _groups(
    segments: list[Segment], rolling: RollingPolicy | _BySize
) -> Iterator[tuple[Segment, ...]]:
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
