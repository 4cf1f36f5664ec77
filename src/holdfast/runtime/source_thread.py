"""The loop of a source function, in a thread, with a bounded queue between it and the epochs.

The checkpoint lock makes emission and the change of the source's position one: the loop holds it
while it emits, and whoever wants a consistent picture of the source holds it while looking. The
records of the current epoch are kept until the next one is asked for, so that an epoch
that is run again reads the same records.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any, NoReturn

from holdfast.common.private import user_directory
from holdfast.datastream.functions import SourceContext, SourceFunction
from holdfast.runtime.blocks import decode_records, encode_records
from holdfast.runtime.checkpointing import initialize, notify, snapshot
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.sources import (
    Beginning,
    LiveSource,
    ReadRequest,
    Snapshot,
    SnapshotRequest,
)
from holdfast.state.operator_state import decode_image, encode_image

#: among the records: nothing comes for a while
_IDLE = Watermark(idle=True)
_CAPACITY = 100_000
_BATCH = 4096
_LONGEST_READ = 0.5
_IN_MEMORY = 16 * 1024 * 1024


class SourceCancelled(BaseException):
    """Leaves ``run`` through the user's code when the job has ended and the loop emits on."""


class _Context(SourceContext):
    def __init__(self, thread: SourceThread, lock: threading.RLock) -> None:
        self._thread = thread
        self._lock: Any = lock

    def collect(self, value: Any) -> None:
        with self._lock:
            self._thread.emit(value)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        self._refuse("collect_with_timestamp")

    def emit_watermark(self, timestamp: int) -> None:
        self._refuse("emit_watermark")

    def mark_as_temporarily_idle(self) -> None:
        self._refuse("mark_as_temporarily_idle")

    def _refuse(self, method: str) -> NoReturn:
        message = (
            f"run() calls {method}, but the class of the source function does not say that it "
            "gives timestamps; set gives_timestamps = True in it"
        )
        raise TypeError(message)

    def get_checkpoint_lock(self) -> Any:
        return self._lock


class _StampingContext(_Context):
    """The context of a function that gives timestamps: records go with theirs."""

    def collect(self, value: Any) -> None:
        with self._lock:
            self._thread.emit((value, None))

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        with self._lock:
            self._thread.emit((value, _millis(timestamp)))

    def emit_watermark(self, timestamp: int) -> None:
        with self._lock:
            self._thread.emit(Watermark(_millis(timestamp)))

    def mark_as_temporarily_idle(self) -> None:
        with self._lock:
            self._thread.emit(_IDLE)


def _millis(timestamp: Any) -> int:
    if timestamp.__class__ is not int:
        message = f"a timestamp must be in milliseconds, an int; got {timestamp!r}"
        raise TypeError(message)
    return timestamp


class SourceThread:
    """Runs one source function and hands out what it emits, epoch by epoch."""

    def __init__(
        self,
        function: SourceFunction,
        context: OperatorContext,
        report: FailureReporter,
        beginning: Beginning = Beginning(),  # noqa: B008 - immutable
    ) -> None:
        """Initialize and open the function and start its loop."""
        self._states = context.operator_states
        context.checkpointing = beginning.checkpointing
        if beginning.image is not None:
            self._states.load(decode_image(beginning.image, self._states.operator))
        _open(function, context, report, beginning.restored)
        self._function = function
        self._report = report
        self._lock = threading.RLock()
        self._queue: deque[Any] = deque()
        self._space = threading.Event()
        self._cancelled = False
        self._error: BaseException | None = None
        self._epoch = -1
        self._spool = _Spool()
        self._holder: _Holder | None = None
        self._watermark = Watermark()
        self._thread = threading.Thread(target=self._run, name="holdfast-source", daemon=True)
        self._thread.start()

    def emit(self, value: Any) -> None:
        """Put a record into the queue; waits while it is full."""
        while len(self._queue) >= _CAPACITY and not self._cancelled:
            self._space.clear()
            self._space.wait(0.5)
        if self._cancelled:
            raise SourceCancelled
        self._queue.append(value)

    def read(self, request: ReadRequest) -> Iterator[bytes]:
        """The encoded batches of an epoch: what was given before, then what is there now."""
        if request.epoch != self._epoch:
            self._go_on()
            self._spool.close()
            self._spool = _Spool()
            self._epoch = request.epoch
            self._notify(request)
        yield from self._spool.replay()
        if self._spool.complete:
            return
        yield from self._spooled(self._take(request.limit - self._spool.records))
        if request.barrier:
            yield from self._halt()
        self._spool.complete = True
        self._spool.watermark = self._watermark
        self._check()

    def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """The function's state after a read with a barrier; the loop goes on then."""
        if self._spool.snapshot is None:
            failure = None
            try:
                snapshot(self._function, request.checkpoint, request.timestamp, self._states)
            except Exception as error:
                failure = f"snapshot_state: {error!r}"
            image = encode_image(self._states.image()) if self._states.used else None
            self._spool.snapshot = Snapshot(image, failure)
            self._go_on()
        return self._spool.snapshot

    @property
    def watermark(self) -> Watermark:
        """How far time was, by the function's own word, at the end of that epoch."""
        return self._spool.watermark

    @property
    def finished(self) -> bool:
        """Whether the loop has ended and the queue is empty."""
        return not self._thread.is_alive() and not self._queue and self._error is None

    def stop(self, wait: float = 5.0) -> None:
        """Cancel the function, wait for its loop, close it."""
        self._cancelled = True
        self._go_on()
        self._space.set()
        self._function.cancel()
        self._thread.join(wait)
        self._spool.close()
        self._function.close()

    def _spooled(self, batches: Iterator[list[Any]]) -> Iterator[bytes]:
        for batch in batches:
            data = encode_records(batch)
            self._spool.add(data, len(batch))
            yield data

    def _halt(self) -> Iterator[bytes]:
        """Cut the stream where emission and state agree: under the lock, with the queue empty.

        The loop may hold the lock while it waits for space, so the queue is emptied meanwhile.
        """
        self._holder = self._holder or _Holder(self._lock)
        while not self._holder.holds(0.01):
            yield from self._spooled(self._take(_CAPACITY))
        yield from self._spooled(self._take(len(self._queue), patient=True))

    def _go_on(self) -> None:
        """Let the loop run, if it stands still."""
        if self._holder is not None:
            self._holder.let_go()
            self._holder = None

    def _notify(self, request: ReadRequest) -> None:
        try:
            notify(self._function, request.completed, request.aborted)
        except Exception as error:
            self._report.during("notify_checkpoint_complete", error)

    def _take(self, limit: int, patient: bool = False) -> Iterator[list[Any]]:
        deadline = time.monotonic() + _LONGEST_READ
        queue = self._queue
        while queue and limit > 0:
            count = min(len(queue), _BATCH, limit)
            batch = [queue.popleft() for _ in range(count)]
            self._space.set()
            limit -= count
            yield self._without_time(batch) if self._function.gives_timestamps else batch
            if not patient and time.monotonic() > deadline:
                return

    def _without_time(self, items: list[Any]) -> list[Any]:
        """Take watermarks out of what was emitted, and note them."""
        records = []
        for item in items:
            if item.__class__ is not Watermark:
                records.append(item)
                self._watermark = Watermark(self._watermark.time)
            elif item is _IDLE:
                self._watermark = Watermark(self._watermark.time, True)
            else:
                self._watermark = Watermark(max(item.time, self._watermark.time))
        return records

    def _run(self) -> None:
        context = _StampingContext if self._function.gives_timestamps else _Context
        try:
            self._function.run(context(self, self._lock))
        except SourceCancelled:
            pass
        except BaseException as error:
            self._error = error

    def _check(self) -> None:
        """Pass on the loop's exception once everything it emitted before was read."""
        if self._error is not None and not self._queue:
            self._report.during("run", self._error)


def _open(
    function: SourceFunction, context: OperatorContext, report: FailureReporter, restored: bool
) -> None:
    try:
        initialize(function, restored, context.operator_states, context)
    except Exception as error:
        report.during("initialize_state", error)
    try:
        function.open(context)
    except Exception as error:
        report.during("open", error)


class _Holder:
    """Holds the checkpoint lock for whoever serves the runtime: not always the same thread."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock: Any = lock
        self._held = threading.Event()
        self._done = threading.Event()
        threading.Thread(target=self._hold, name="holdfast-barrier", daemon=True).start()

    def holds(self, patience: float) -> bool:
        return self._held.wait(patience)

    def let_go(self) -> None:
        self._done.set()

    def _hold(self) -> None:
        with self._lock:
            self._held.set()
            self._done.wait()


class LocalSource(LiveSource):
    """A loop in this process."""

    def __init__(self, thread: SourceThread) -> None:
        """Read from this thread."""
        self.thread = thread

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Decoded batches."""
        for data in self.thread.read(request):
            yield decode_records(data)
        self.watermark = self.thread.watermark

    def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """As the thread gives it."""
        return self.thread.snapshot(request)

    @property
    def finished(self) -> bool:
        """As the thread says."""
        return self.thread.finished

    def close(self) -> None:
        """Nothing to let go of."""


class _Spool:
    """The batches of one epoch, on disk when they are large."""

    def __init__(self) -> None:
        # NB: it has no name
        place = str(user_directory())
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY, dir=place)  # noqa: SIM115
        self._sizes: list[int] = []
        self.records = 0
        self.complete = False
        self.snapshot: Snapshot | None = None
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
