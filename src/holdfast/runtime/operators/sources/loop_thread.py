"""The loop of a source function, read epoch by epoch.

The records of the current epoch are kept until the next epoch is requested, so that an epoch that
is run again reads the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any

from holdfast.common.private import user_directory
from holdfast.datastream.functions import SourceFunction
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.operators.sources.loop import SourceLoop
from holdfast.runtime.operators.sources.source_instance import (
    LiveSource,
    LoopSnapshot,
    LoopStart,
    ReadRequest,
    SnapshotRequest,
)
from holdfast.runtime.wire.blocks import decode_records, encode_records

_LONGEST_READ = 0.5
_IN_MEMORY = 16 * 1024 * 1024


class SourceThread:
    """Runs one source function, and returns what it emits, encoded, epoch by epoch."""

    def __init__(
        self,
        function: SourceFunction,
        context: OperatorContext,
        report: FailureReporter,
        beginning: LoopStart = LoopStart(),  # noqa: B008 - immutable
    ) -> None:
        """Initialize and open the function and start its loop."""
        self._epoch = -1
        # NB: before the spool, which would be left open if the function cannot be opened
        self._loop = SourceLoop(function, context, report, beginning)
        self._spool = _Spool()

    def read(self, request: ReadRequest) -> Iterator[bytes]:
        """Yield the encoded batches of an epoch: those returned before, then new ones."""
        loop = self._loop
        if request.epoch != self._epoch:
            loop.go_on()
            self._spool.close()
            self._spool = _Spool()
            self._epoch = request.epoch
            loop.notify(request.completed, request.aborted)
        yield from self._spool.replay()
        if self._spool.complete:
            return
        yield from self._spooled(loop.take(request.limit - self._spool.records, _LONGEST_READ))
        if request.barrier:
            yield from self._spooled(loop.halt())
        self._spool.complete = True
        self._spool.watermark = loop.watermark
        loop.check()

    def snapshot(self, request: SnapshotRequest) -> LoopSnapshot:
        """Return the function's state after a read with a barrier; then resume the loop."""
        if self._spool.snapshot is None:
            self._spool.snapshot = self._loop.snapshot(request)
            self._loop.go_on()
        return self._spool.snapshot

    @property
    def watermark(self) -> Watermark:
        """Return the function's own watermark at the end of the epoch."""
        return self._spool.watermark

    @property
    def finished(self) -> bool:
        """Return whether the loop has ended and the queue is empty."""
        return self._loop.finished

    def cancel(self) -> None:
        """Cancel the function; it may take time to end."""
        self._loop.cancel()

    def stop(self) -> None:
        """Cancel the function, wait for its loop, and close it."""
        try:
            self._loop.stop()
        finally:
            self._spool.close()

    def _spooled(self, batches: Iterator[list[Any]]) -> Iterator[bytes]:
        for batch in batches:
            data = encode_records(batch)
            self._spool.add(data, len(batch))
            yield data


class LocalSource(LiveSource):
    """A loop in this process."""

    def __init__(self, thread: SourceThread) -> None:
        """Read from this thread."""
        self.thread = thread

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        for data in self.thread.read(request):
            yield decode_records(data)
        self.watermark = self.thread.watermark

    def snapshot(self, request: SnapshotRequest) -> LoopSnapshot:
        return self.thread.snapshot(request)

    @property
    def finished(self) -> bool:
        return self.thread.finished

    def close(self) -> None:
        """Do nothing: there is no connection to close."""


class _Spool:
    """The batches of one epoch, on disk when they are large."""

    def __init__(self) -> None:
        # NB: the file has no name
        place = str(user_directory())
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY, dir=place)  # noqa: SIM115
        self._sizes: list[int] = []
        self.records = 0
        self.complete = False
        self.snapshot: LoopSnapshot | None = None
        self.watermark = Watermark()

    def add(self, data: bytes, count: int) -> None:
        self._file.seek(0, 2)
        self._file.write(data)
        self._sizes.append(len(data))
        self.records += count

    def replay(self) -> Iterator[bytes]:
        offset = 0
        for size in tuple(self._sizes):
            self._file.seek(offset)
            offset += size
            yield self._file.read(size)

    def close(self) -> None:
        self._file.close()
