"""The function of a ``FileSink`` for bulk formats: records into files such as Parquet.

Segments are whole files, which cannot be joined by their bytes. So those that become one part file
are merged when a checkpoint is taken: their records are written again, as one segment. That segment
is in the checkpoint, and becomes the part file as any other does. The old ones are deleted when it
is published; before that they may be needed, because the epoch may be run again.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, cast

from holdfast.datastream.columns.batch import Batch
from holdfast.datastream.columns.fitting import BatchColumns
from holdfast.datastream.columns.splitting import split_by
from holdfast.datastream.connectors.files.part_files import FileTransaction, OpenSegment
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.formats.bulk import BulkWriterFactory
from holdfast.datastream.functions import SinkFunction

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.datastream.connectors.file_system import FileSink

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
            segment = self._begin_segment(transaction, bucket, context)
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

    def _begin_segment(
        self, transaction: FileTransaction, bucket: str, context: SinkFunction.Context
    ) -> BulkSegment:
        segment = BulkSegment(self._open_segment(bucket, context), self._factory)
        transaction.writing[bucket] = segment
        return segment

    def _joins(self, transaction: FileTransaction) -> bool:
        return True

    def _join(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        self._factory.merge(files, stream)

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


class BatchWriter(Protocol):
    """A `BulkWriter` that takes batches."""

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the file."""


class BatchFileSinkFunction(BulkFileSinkFunction):
    """Gives batches to the writers of open segments, without a Python object for each row."""

    takes_batches = True

    def __init__(self, sink: FileSink, sink_id: str = "") -> None:
        """Take the settings of a sink for batches; see `FileSinkFunction`."""
        super().__init__(sink, sink_id)
        assert sink.batch_type is not None
        self._columns = BatchColumns(self._factory.batch_schema, sink.batch_type)

    def invoke(
        self, transaction: FileTransaction, value: Batch, context: SinkFunction.Context
    ) -> None:
        """Give the rows of a batch to the writers of their buckets."""
        names = self._sink.buckets.bucket_columns
        assert names is not None
        now = context.current_processing_time()
        for values, rows in split_by(value.rows, names):
            bucket = self._bucket_of(dict(zip(names, values, strict=True)), now)
            self._add(transaction, bucket, rows, context)

    def _add(
        self,
        transaction: FileTransaction,
        bucket: str,
        rows: pa.RecordBatch,
        context: SinkFunction.Context,
    ) -> None:
        segment = cast(BulkSegment | None, transaction.writing.get(bucket))
        if segment is None:
            segment = self._begin_segment(transaction, bucket, context)
        try:
            cast(BatchWriter, segment.writer).add_batch(self._columns.batch(rows))
        except Exception as error:
            self._files.fail(segment, error)
        segment.records += rows.num_rows
        self._held += rows.num_rows
        if self._held >= _MOST_HELD:
            self._flush(transaction)
        if segment.size >= self._limit:
            self._close(transaction, bucket)
