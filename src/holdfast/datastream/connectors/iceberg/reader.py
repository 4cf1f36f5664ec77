"""The reader of an `IcebergSource` in a subtask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.datastream.connectors.base import SourceReader
from holdfast.datastream.connectors.iceberg.shares import (
    ALL,
    Position,
    Stage,
    StepCursor,
    StepFile,
    decode,
    encode,
    share,
)
from holdfast.datastream.connectors.iceberg.steps import (
    Batches,
    TableReading,
    TableSteps,
    expired,
    next_snapshot,
)
from holdfast.datastream.formats.records import maker_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask


class IcebergPlan(NamedTuple):
    """The plan of an epoch, for the readers.

    Attributes:
        start: the snapshot with which readers start that have no position; None while the table has
            none.
        scans: whether they read all its rows, not only those of later snapshots.
        head: the last snapshot that is read.
    """

    start: int | None
    scans: bool
    head: int | None


class IcebergReader(SourceReader):
    """Reads the share of one subtask, file by file.

    Invariant: what it reads is a function of its position and the plan. Snapshots and files never
    change, and the plan says which snapshot is the last.
    """

    def __init__(
        self, reading: TableReading, row_type: Any, follows: bool, subtask: int, parallelism: int
    ) -> None:
        """Connect to nothing yet; ``follows``: whether later snapshots are read."""
        self._steps = TableSteps(reading)
        self._address = reading.address
        self._maker = maker_of(row_type)
        self._follows = follows
        self._subtask, self._parallelism = subtask, parallelism
        self._plan = IcebergPlan(None, False, None)
        self._go_to(Position())

    def _go_to(self, position: Position) -> None:
        self._cursor, self._stages, self._ended = position
        #: the share of the current step, once it is known
        self._share: list[StepFile[FileScanTask]] | None = None
        #: the rest of the current file, once it is open
        self._rest: Batches | None = None
        self._order: dict[int, int] = {}
        self._ordered_to: int | None = None

    def restore(self, position: Any) -> None:
        self.close()
        self._go_to(decode(position))

    def follow(self, plan: IcebergPlan) -> None:
        """Take the plan. All subtasks get the first one before a checkpoint, so all start alike."""
        self._plan = plan
        if not self._ended:
            self._begin()

    def position(self) -> Any:
        return encode(Position(self._cursor, self._stages, self._ended))

    @property
    def finished(self) -> bool:
        return self._ended

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        while limit > 0 and self._cursor is not None and not self._ended:
            batch = self._next_batch(limit)
            if batch is not None:
                limit -= batch.num_rows
                yield self._maker.records(batch)
            elif not self._next_step():
                return

    def close(self) -> None:
        """Close the file that is open."""
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    def _begin(self) -> None:
        """Find the first step, if there is one."""
        if self._cursor is not None:
            return
        if self._stages:
            stage = self._stages[-1]
            first = min(stage, key=lambda each: self._place(each.snapshot))
            is_read = all(each.file == ALL for each in stage if each.snapshot == first.snapshot)
            self._cursor = first._replace(file=ALL if is_read else 0, row=0)
        elif self._plan.start is not None:
            self._cursor = StepCursor(
                self._plan.start, self._plan.scans, 0 if self._plan.scans else ALL
            )
        elif not self._follows:
            self._ended = True

    def _next_batch(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows of the step; None at its end."""
        assert self._cursor is not None
        own = self._own_share(self._cursor)
        while self._cursor.file < len(own):
            cursor, part = self._cursor, own[self._cursor.file]
            start = max(cursor.row, part.row)
            if self._rest is None:
                self._rest = self._steps.batches(cursor.snapshot, part._replace(row=start))
            batch = next(self._rest, None)
            if batch is None:
                self._rest, self._cursor = None, cursor._replace(file=cursor.file + 1, row=0)
                continue
            if batch.num_rows > limit:
                self._rest = _with_first(batch.slice(limit), self._rest)
                batch = batch.slice(0, limit)
            self._cursor = cursor._replace(row=start + batch.num_rows)
            return batch
        return None

    def _own_share(self, cursor: StepCursor) -> list[StepFile[FileScanTask]]:
        if cursor.file == ALL:
            return []
        if self._share is None:
            parts = self._steps.parts(cursor.snapshot, cursor.is_scan)
            for each in {cursor.snapshot, *_snapshots(self._stages)}:
                self._place(each)
            self._share = share(
                *(parts, cursor.snapshot, self._stages, self._order),
                *(self._parallelism, self._subtask),
            )
        return self._share

    def _next_step(self) -> bool:
        """Go to the next snapshot; False if there is none now."""
        assert self._cursor is not None
        if not self._follows:
            self._ended = True
            return False
        if self._cursor.snapshot == self._plan.head:
            return False
        self._place(self._cursor.snapshot)
        following = next_snapshot(self._order, self._cursor.snapshot)
        if following is None:
            return False
        self._cursor, self._share, self._rest = StepCursor(following, False), None, None
        # NB: only stages at the front may go: a later one is computed from what earlier ones leave
        while self._stages and not self._concerns(self._stages[0], following):
            self._stages = self._stages[1:]
        return True

    def _concerns(self, stage: Stage, snapshot: int) -> bool:
        return any(self._place(each.snapshot) >= self._place(snapshot) for each in stage)

    def _place(self, snapshot: int) -> int:
        """Return the place of a snapshot in the history of the table.

        Raises:
            TableError: when it has expired.
        """
        if not self._follows:  # all subtasks read the same snapshot
            return self._order.setdefault(snapshot, 0)
        head = self._plan.head
        if head is not None and head != self._ordered_to:
            self._order, self._ordered_to = self._steps.order(head), head
        if snapshot not in self._order:
            raise expired(self._address, snapshot)
        return self._order[snapshot]


def _snapshots(stages: Sequence[Stage]) -> set[int]:
    return {cursor.snapshot for stage in stages for cursor in stage}


def _with_first(first: pa.RecordBatch, rest: Batches) -> Batches:
    yield first
    yield from rest
