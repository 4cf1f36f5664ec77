"""Source functions at the pace of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ParallelSourceFunction,
    RuntimeContext,
    SourceContext,
    SourceFunction,
)
from holdfast.datastream.functions.base import WrappingFunction
from holdfast.datastream.state import ListStateDescriptor
from holdfast.torture.agent import ensure_agent
from holdfast.torture.pacing import Pace
from holdfast.torture.shares import FirstRecords, RecordShare

__all__ = ["paced_function"]

#: interval of looking whether a loop may go on, in seconds
_LOOK: Final = 0.01
#: the same for a share that was read
_LOOK_AT_SHARE: Final = 0.2
_COUNT: Final = ListStateDescriptor("holdfast-torture-count", int)


def paced_function(
    function: SourceFunction, run: str, name: str, first: FirstRecords | None = None
) -> SourceFunction:
    """Return a source function that does the same at the pace of a run.

    Args:
        function: of the user's program.
        run: the directory of the run.
        name: of the source, in the names of files.
        first: which records are read; None: all.
    """
    parallel = isinstance(function, ParallelSourceFunction)
    base = _ParallelPacedLoop if parallel else PacedLoop
    # NB: an attribute of the class, because jobs are planned with it
    fields = {"gives_timestamps": function.gives_timestamps}
    kind = type(type(function).__name__, (base,), fields)
    return kind(function, run, name, first)  # type: ignore[no-any-return]


class PacedLoop(WrappingFunction, SourceFunction):
    """Runs the loop of another source function, and waits afterwards until the run may end."""

    def __init__(
        self, function: SourceFunction, run: str, name: str, first: FirstRecords | None
    ) -> None:
        """Take what `paced_function` is given."""
        self._function = function
        self._count = _Count()
        self._run = run
        self._name = name
        self._first = first
        self._subtask = 0
        self._share: RecordShare | None = None
        self._cancelled = False

    def wrapped(self) -> tuple[Any, ...]:
        """Return the function, and what counts its records."""
        return self._function, self._count

    def open(self, runtime_context: RuntimeContext) -> None:
        """Find out the number of the subtask."""
        ensure_agent(self._run)
        self._subtask = runtime_context.get_index_of_this_subtask()
        if self._first is not None:
            parallelism = runtime_context.get_number_of_parallel_subtasks()
            self._share = self._first.share(self._subtask, parallelism)
        super().open(runtime_context)

    def run(self, ctx: SourceContext) -> None:
        """Run the loop with a context that waits."""
        pace = Pace(self._run, f"{self._name}-{self._subtask}")
        pace.count = self._count.value
        share = self._share
        if share is None or share.left(pace.count):
            self._run_loop(_PacedContext(ctx, pace, self._count, share, self._is_cancelled))
        pace.note(at_once=True)
        while pace.held and not self._cancelled:
            time.sleep(_LOOK)

    def _run_loop(self, ctx: SourceContext) -> None:
        over = threading.Event()
        if self._share is not None:
            watch = (self._share, over)
            name = "holdfast-share"
            threading.Thread(target=self._watch, args=watch, name=name, daemon=True).start()
        try:
            self._function.run(ctx)
        except _ShareIsRead:
            pass
        finally:
            over.set()
        if self._share is not None and not self._cancelled:
            self._share.is_read(self._count.value, ended=True)

    def _watch(self, share: RecordShare, over: threading.Event) -> None:
        """End a loop that waits for records which are not read, or that never come."""
        while not over.wait(_LOOK_AT_SHARE):
            if share.is_read(self._count.value):
                self._function.cancel()
                return

    def cancel(self) -> None:
        """Stop waiting, and cancel the loop."""
        self._cancelled = True
        self._function.cancel()

    def _is_cancelled(self) -> bool:
        return self._cancelled


class _ParallelPacedLoop(PacedLoop, ParallelSourceFunction):
    """The same in every subtask."""


class _Count(CheckpointedFunction):
    """How many records a loop has emitted; it goes back with the state of the loop."""

    def __init__(self) -> None:
        self.value = 0

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._saved = context.get_operator_state_store().get_list_state(_COUNT)
        self.value = sum(self._saved.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._saved.update([self.value])


class _ShareIsRead(BaseException):
    """Unwinds ``run`` through the user's code when it has emitted its share."""


class _PacedContext(SourceContext):
    """Waits before a record is emitted, or before the checkpoint lock is taken for it.

    NB: it never waits with the lock, because no checkpoint could be taken meanwhile.
    """

    def __init__(
        self,
        ctx: SourceContext,
        pace: Pace,
        count: _Count,
        share: RecordShare | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._ctx = ctx
        self._pace = pace
        self._count = count
        self._share = share
        self._stopped = stopped
        self._thread = threading.get_ident()
        self._lock = _PacedLock(ctx.get_checkpoint_lock(), self.wait)

    def wait(self) -> None:
        while (room := self._pace.room()) is not None and room < 1 and not self._stopped():
            time.sleep(_LOOK)

    def collect(self, value: Any) -> None:
        with self._lock:
            if self._may_emit():
                self._ctx.collect(value)
                self._emitted()

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        with self._lock:
            if self._may_emit():
                self._ctx.collect_with_timestamp(value, timestamp)
                self._emitted()

    def _may_emit(self) -> bool:
        """Return whether a record is one of the first; end the loop if it is not."""
        if self._share is None or self._share.left(self._count.value):
            return True
        # NB: the exception would not reach run() from another thread
        if threading.get_ident() == self._thread:
            raise _ShareIsRead
        return False

    def _emitted(self) -> None:
        self._count.value += 1
        self._pace.take(1)
        # NB: at once, because it may take long until the loop emits again
        self._may_emit()

    def emit_watermark(self, timestamp: int) -> None:
        self._ctx.emit_watermark(timestamp)

    def mark_as_temporarily_idle(self) -> None:
        self._ctx.mark_as_temporarily_idle()

    def get_checkpoint_lock(self) -> Any:
        return self._lock


class _PacedLock:
    """The checkpoint lock; whoever takes it waits for the pace before."""

    def __init__(self, lock: Any, wait: Callable[[], None]) -> None:
        self._lock = lock
        self._wait = wait
        self._held = threading.local()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        depth = getattr(self._held, "depth", 0)
        if not depth:
            self._wait()
        taken = bool(self._lock.acquire(blocking, timeout))
        self._held.depth = depth + taken
        return taken

    def release(self) -> None:
        self._held.depth -= 1
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
