"""The function of a ``FileSink`` for bulk formats: records into files such as Parquet.

Segments are whole files, which cannot be joined by their bytes. So those that become one part file
are merged when a checkpoint is taken: their records are written again, as one segment. That segment
is in the checkpoint, and becomes the part file as any other does. The old ones are deleted when it
is published; before that they may be needed, because the epoch may be run again.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO, Final, cast

from holdfast.datastream.connectors.files.part_files import FileTransaction, OpenSegment, Part
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.formats.bulk import BulkWriterFactory
from holdfast.datastream.functions import SinkFunction
from holdfast.filesystem import MissingFileError

#: how many records may be in memory, in all buckets
_MOST_HELD: Final = 256 * 1024


class BulkSegment(OpenSegment):
    """A segment with its writer. Its size is that of what has left the writer."""

    __slots__ = ("records", "writer")

    def __init__(self, segment: OpenSegment, factory: BulkWriterFactory) -> None:
        """Take over a segment that was just opened."""
        stream = cast(BinaryIO, _CountingStream(self, segment.stream))
        super().__init__(segment.name, segment.path, stream, segment.begun)
        self.records = 0
        self.writer = factory.create(stream)

    def idle(self, now: int) -> int:
        """Return how long no record was added, as far as was checked."""
        if self.records != self._seen:
            self._seen, self._grown = self.records, now
        return now - self._grown


class _CountingStream(io.RawIOBase):
    """Counts the bytes of a segment."""

    def __init__(self, segment: BulkSegment, stream: BinaryIO) -> None:
        super().__init__()
        self._segment = segment
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        # NB: a writer that was given up may write the foot of its file when it is collected
        if not self._stream.closed:
            self._stream.write(data)
            self._segment.size += size
        return size

    def tell(self) -> int:
        return self._segment.size

    def close(self) -> None:
        self._stream.close()
        super().close()


class BulkFileSinkFunction(FileSinkFunction):
    """Collects records in the writers of open segments."""

    #: the number of records that may be in memory
    _held = 0

    def begin_transaction(self) -> FileTransaction:
        self._held = 0
        return super().begin_transaction()

    def invoke(
        self, transaction: FileTransaction, value: Any, context: SinkFunction.Context
    ) -> None:
        """Give a record to the writer of its bucket."""
        bucket = self._only_bucket
        if bucket is None:
            bucket = self._bucket_of(value, context.current_processing_time())
        segment = cast(BulkSegment | None, transaction.writing.get(bucket))
        if segment is None:
            segment = BulkSegment(self._open_segment(bucket, context), self._factory)
            transaction.writing[bucket] = segment
        try:
            segment.writer.add_element(value)
        except Exception as error:
            self._files.fail(segment, error)
        segment.records += 1
        self._held += 1
        if self._held >= _MOST_HELD:
            self._flush(transaction)
        if segment.size >= self._limit:
            self._close(transaction, bucket)

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Decide on part files as for a row format, and merge the segments of each."""
        before = [name for each in transactions for name in (*each.merged, *each.names)]
        result = super().merge_transactions(transactions)
        for transaction in result:
            transaction.parts = [self._whole(part) for part in transaction.parts]
            kept = frozenset(transaction.names)
            transaction.merged = [name for name in before if name not in kept]
        return result

    def _whole(self, part: Part) -> Part:
        if len(part.segments) == 1:
            return part
        try:
            return self._files.merge(part, self._factory.merge)
        except MissingFileError:
            # The part was published and this run does not count. Otherwise its publication fails.
            return part

    def _flush(self, transaction: FileTransaction) -> None:
        """Write what is in memory."""
        for segment in transaction.writing.values():
            try:
                cast(BulkSegment, segment).writer.flush()
            except Exception as error:
                self._files.fail(segment, error)
        self._held = 0

    def _close(self, transaction: FileTransaction, bucket: str) -> None:
        segment = cast(BulkSegment, transaction.writing[bucket])
        try:
            segment.writer.finish()
        except Exception as error:
            self._files.fail(segment, error)
        super()._close(transaction, bucket)

    @property
    def _factory(self) -> BulkWriterFactory:
        factory = self._sink.bulk
        assert factory is not None
        return factory
