"""The loop of a source function, in a thread, with a bounded queue to its reader.

The checkpoint lock makes the emission of a record and the change of the source's position atomic:
the loop holds it while it emits, and a thread that needs a consistent snapshot of the source holds
it too.

`SourceThread` reads it epoch by epoch, `LoopSource` as the records arrive.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, NoReturn

from holdfast.datastream.functions import SourceContext, SourceFunction
from holdfast.runtime.checkpointing import initialize, notify, snapshot
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.operators.sources.queue_room import QueueRoom
from holdfast.runtime.operators.sources.source_instance import (
    LoopSnapshot,
    LoopStart,
    SnapshotRequest,
)
from holdfast.runtime.worker.logs import at_work
from holdfast.state.live.operator_state import decode_image, encode_image

#: among the records: the source is idle
_IDLE = Watermark(idle=True)
_BATCH = 4096


class SourceCancelled(BaseException):
    """Unwinds ``run`` through the user's code if it still emits after the job has ended."""


class _Context(SourceContext):
    def __init__(self, loop: SourceLoop, lock: threading.RLock) -> None:
        self._loop = loop
        self._lock: Any = lock

    def collect(self, value: Any) -> None:
        with self._lock:
            self._loop.emit(value)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        self._refuse("collect_with_timestamp")

    def emit_watermark(self, timestamp: int) -> None:
        self._refuse("emit_watermark")

    def mark_as_temporarily_idle(self) -> None:
        self._refuse("mark_as_temporarily_idle")

    def _refuse(self, method: str) -> NoReturn:
        message = (
            f"run() calls {method}, but the class of the source function does not declare "
            "that it gives timestamps; set gives_timestamps = True in it"
        )
        raise TypeError(message)

    def get_checkpoint_lock(self) -> Any:
        return self._lock


class _StampingContext(_Context):
    """The context of a function that gives timestamps: records are paired with theirs."""

    def collect(self, value: Any) -> None:
        with self._lock:
            self._loop.emit((value, None))

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        with self._lock:
            self._loop.emit((value, _millis(timestamp)))

    def emit_watermark(self, timestamp: int) -> None:
        with self._lock:
            self._loop.emit(Watermark(_millis(timestamp)))

    def mark_as_temporarily_idle(self) -> None:
        with self._lock:
            self._loop.emit(_IDLE)


def _millis(timestamp: Any) -> int:
    if timestamp.__class__ is not int:
        message = f"a timestamp must be in milliseconds, an int; got {timestamp!r}"
        raise TypeError(message)
    return timestamp


def _nobody() -> None:
    """Do nothing, for a reader that polls."""


class SourceLoop:
    """Runs one source function, and returns what it emits.

    One thread reads at a time. `cancel` and `stop` may be called from any thread.

    Attributes:
        watermark: the function's own watermark, after the records that were taken.
    """

    def __init__(
        self,
        function: SourceFunction,
        context: OperatorContext,
        report: FailureReporter,
        beginning: LoopStart = LoopStart(),  # noqa: B008 - immutable
        wake: Callable[[], None] = _nobody,
    ) -> None:
        """Initialize and open the function and start its loop.

        ``wake`` is called in the loop's thread when a record is put into an empty queue, and when
        the loop has ended. It must not block.
        """
        self._states = context.operator_states
        context.checkpointing = beginning.checkpointing
        if beginning.image is not None:
            self._states.load(decode_image(beginning.image, self._states.operator))
        _open(function, context, report, beginning.restored)
        self._function = function
        self._report = report
        self._wake = wake
        self._lock = threading.RLock()
        self._queue: deque[Any] = deque()
        self._room = QueueRoom()
        self._space = threading.Event()
        self._cancelled = False
        self._ended = False
        self._error: BaseException | None = None
        self._holder: _Holder | None = None
        self.watermark = Watermark()
        self._thread = threading.Thread(target=self._run, name="holdfast-source", daemon=True)
        self._thread.start()

    def emit(self, value: Any) -> None:
        """Put a record into the queue; wait while it is full."""
        queue, room = self._queue, self._room
        while len(queue) >= room.records and not self._cancelled:
            self._space.clear()
            # NB: checked again, since the reader may have made space before the clear
            if len(queue) >= room.records and not self._cancelled:
                self._space.wait(0.5)
        if self._cancelled:
            raise SourceCancelled
        room.note(value)
        queue.append(value)
        # NB: after the append, so that a reader that saw an empty queue is certainly woken
        if len(queue) == 1:
            self._wake()

    def take(self, limit: int, longest: float = inf) -> Iterator[list[Any]]:
        """Yield batches from the queue until it is empty, at most for ``longest`` seconds."""
        deadline = time.monotonic() + longest
        queue = self._queue
        while queue and limit > 0:
            count = min(len(queue), _BATCH, limit)
            batch = [queue.popleft() for _ in range(count)]
            self._space.set()
            limit -= count
            yield self._without_time(batch) if self._function.gives_timestamps else batch
            if time.monotonic() > deadline:
                return

    def halt(self) -> Iterator[list[Any]]:
        """Stop the loop where its output and its state agree: under the lock, with an empty queue.

        The loop may hold the lock while it waits for space, so the queue is emptied meanwhile.
        """
        if not self._ended:
            self._holder = self._holder or _Holder(self._lock)
            while not self._holder.holds(0.01):
                yield from self.take(len(self._queue))
        yield from self.take(len(self._queue))

    def go_on(self) -> None:
        """Resume the loop, if it is halted."""
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.let_go()

    def snapshot(self, request: SnapshotRequest) -> LoopSnapshot:
        """Return the function's state, while the loop is halted."""
        failure = None
        try:
            with at_work(self._report):
                snapshot(self._function, request.checkpoint, request.timestamp, self._states)
        except Exception as error:
            failure = f"snapshot_state: {error!r}"
        image = encode_image(self._states.image()) if self._states.used else None
        return LoopSnapshot(image, failure)

    def notify(self, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
        """Notify the function of checkpoints that ended."""
        try:
            with at_work(self._report):
                notify(self._function, completed, aborted)
        except Exception as error:
            self._report.during("notify_checkpoint_complete", error)

    def check(self) -> None:
        """Raise the loop's exception once everything it emitted before was read."""
        if self._error is not None and not self._queue:
            self._report.during("run", self._error)

    @property
    def empty(self) -> bool:
        """Return whether the queue is empty now."""
        return not self._queue

    @property
    def finished(self) -> bool:
        """Return whether the loop has ended and the queue is empty."""
        return self._ended and not self._queue and self._error is None

    def cancel(self) -> None:
        """Cancel the function; it may take time to end."""
        if not self._cancelled:
            self._cancelled = True
            self.go_on()
            self._space.set()
            with at_work(self._report):
                self._function.cancel()

    def stop(self, wait: float = 5.0) -> None:
        """Cancel the function, wait for its loop, and close it."""
        self.cancel()
        self._thread.join(wait)
        with at_work(self._report):
            self._function.close()

    def _without_time(self, items: list[Any]) -> list[Any]:
        """Return the records without watermarks, which are applied."""
        records = []
        for item in items:
            if item.__class__ is not Watermark:
                records.append(item)
                self.watermark = Watermark(self.watermark.time)
            elif item is _IDLE:
                self.watermark = Watermark(self.watermark.time, True)
            else:
                self.watermark = Watermark(max(item.time, self.watermark.time))
        return records

    def _run(self) -> None:
        context = _StampingContext if self._function.gives_timestamps else _Context
        try:
            with at_work(self._report):
                self._function.run(context(self, self._lock))
        except SourceCancelled:
            pass
        except BaseException as error:
            self._error = error
        self._ended = True
        self._wake()


def _open(
    function: SourceFunction, context: OperatorContext, report: FailureReporter, restored: bool
) -> None:
    with at_work(report):
        try:
            initialize(function, restored, context.operator_states, context)
        except Exception as error:
            report.during("initialize_state", error)
        try:
            function.open(context)
        except Exception as error:
            report.during("open", error)


class _Holder:
    """Holds the checkpoint lock for the runtime, whose calls may come from different threads."""

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
