"""Sources that read at the pace of a run: readers, and loops of source functions."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Final

from holdfast.datastream.columns.batch import count_rows
from holdfast.datastream.connectors.base import EpochPlanner, Source, SourceReader
from holdfast.datastream.functions import RuntimeContext, SourceContext, SourceFunction
from holdfast.metrics import MetricGroup
from holdfast.torture.agent import ensure_agent
from holdfast.torture.pacing import Pace

__all__ = ["paced", "paced_function"]

#: interval of looking whether a loop may go on, in seconds
_LOOK: Final = 0.01


# Sources with readers


def paced(source: Source, run: str, name: str) -> Source:
    """Return a source that reads the same at the pace of a run."""
    movable = type(source).redistribute is not Source.redistribute
    return (PacedSource if movable else FixedPacedSource)(source, run, name)


class FixedPacedSource(Source):
    """A source at a pace, whose parallelism is fixed."""

    def __init__(self, source: Source, run: str, name: str) -> None:
        """Read another source; ``name`` is part of the names of files."""
        self._source = source
        self._run = run
        self._name = name
        # NB: the planner of the job asks for it
        self.gives_timestamps = bool(getattr(source, "gives_timestamps", False))
        self.batch_type = source.batch_type

    @property
    def parallelism_limit(self) -> int | None:
        """Return that of the source."""
        return self._source.parallelism_limit

    @property
    def listens(self) -> bool:
        """Return that of the source."""
        return self._source.listens

    @property
    def side_outputs(self) -> bool:
        """Return that of the source."""
        return self._source.side_outputs

    def create_planner(self, restored: bool) -> EpochPlanner | None:
        """Return that of the source."""
        return self._source.create_planner(restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return a reader of the source, at the pace of the run."""
        ensure_agent(self._run)
        pace = Pace(self._run, f"{self._name}-{subtask}")
        return PacedReader(self._source.create_reader(subtask, parallelism), pace)


class PacedSource(FixedPacedSource):
    """A source at a pace, whose parallelism can change."""

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Return the positions of the source, with shares of what was read in all."""
        inner = self._source.redistribute([position for position, _ in positions], parallelism)
        total = sum(count for _, count in positions)
        shares = [total // parallelism + (n < total % parallelism) for n in range(parallelism)]
        return list(zip(inner, shares, strict=True))


class PacedReader(SourceReader):
    """Reads as another reader does, at a pace."""

    def __init__(self, reader: SourceReader, pace: Pace) -> None:
        """Read from another reader."""
        self._reader = reader
        self._pace = pace

    @property
    def splits(self) -> Collection[Hashable] | None:  # type: ignore[override]
        """Return those of the reader."""
        return self._reader.splits

    def open(self, metrics: MetricGroup) -> None:
        """Pass it on, as the next ones do."""
        self._reader.open(metrics)

    def run_free(self) -> None:
        """Pass it on."""
        self._reader.run_free()

    def follow(self, plan: Any) -> None:
        """Pass it on."""
        self._reader.follow(plan)

    def pause(self, splits: Collection[Hashable]) -> None:
        """Pass it on."""
        self._reader.pause(splits)

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Pass it on."""
        self._reader.snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Pass it on."""
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Pass it on."""
        self._reader.notify_checkpoint_aborted(checkpoint_id)

    def notify_epoch_accepted(self) -> None:
        """Pass it on."""
        self._reader.notify_epoch_accepted()

    def restore(self, position: Any) -> None:
        """Go to a position, with what was read before it."""
        inner, self._pace.count = position
        self._reader.restore(inner)

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """Yield as much as the pace allows now."""
        room = self._pace.room()
        limit = limit if room is None else min(limit, room)
        if limit > 0:
            for batch in self._reader.read(limit):
                self._pace.take(count_rows(batch))
                yield batch
        self._pace.note(at_once=self._reader.finished)

    def position(self) -> Any:
        """Return the position, with what was read before it."""
        return self._reader.position(), self._pace.count

    @property
    def finished(self) -> bool:
        """Return whether there will never be another record, and the run may end."""
        return self._reader.finished and not self._pace.held

    def close(self) -> None:
        """Pass it on."""
        self._reader.close()


# Source functions


def paced_function(function: SourceFunction, run: str, name: str) -> SourceFunction:
    """Return a source function that does the same at the pace of a run."""
    kind = type(function)
    result = copy.copy(function)
    result.__class__ = type(kind.__name__, (PacedLoop, kind), {"_torture_place": (run, name)})
    return result


class PacedLoop(SourceFunction):
    """Comes before the class of a source function: its loop is the same, at a pace.

    Attributes:
        _torture_place: the directory of the run, and the name of the source in the names of files.
    """

    _torture_place: ClassVar[tuple[str, str]]
    #: the index of the subtask; None once the loop is to end
    _torture_subtask: int | None = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        """Find out the number of the subtask."""
        ensure_agent(self._torture_place[0])
        self._torture_subtask = runtime_context.get_index_of_this_subtask()
        super().open(runtime_context)

    def run(self, ctx: SourceContext) -> None:
        """Run the loop with a context that waits; afterwards, wait until the run may end."""
        run, name = self._torture_place
        pace = Pace(run, f"{name}-{self._torture_subtask}")
        super().run(_PacedContext(ctx, pace, self._torture_stopped))  # type: ignore[safe-super]
        pace.note(at_once=True)
        while pace.held and not self._torture_stopped():
            time.sleep(_LOOK)

    def cancel(self) -> None:
        """Stop waiting, and cancel the loop."""
        self._torture_subtask = None
        super().cancel()

    def _torture_stopped(self) -> bool:
        return self._torture_subtask is None


class _PacedContext(SourceContext):
    """Waits before a record is emitted, or before the checkpoint lock is taken for it.

    NB: it never waits with the lock, because no checkpoint could be taken meanwhile.
    """

    def __init__(self, ctx: SourceContext, pace: Pace, stopped: Callable[[], bool]) -> None:
        self._ctx = ctx
        self._pace = pace
        self._stopped = stopped
        self._lock = _PacedLock(ctx.get_checkpoint_lock(), self.wait)

    def wait(self) -> None:
        while (room := self._pace.room()) is not None and room < 1 and not self._stopped():
            time.sleep(_LOOK)

    def collect(self, value: Any) -> None:
        with self._lock:
            self._ctx.collect(value)
            self._pace.take(1)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        with self._lock:
            self._ctx.collect_with_timestamp(value, timestamp)
            self._pace.take(1)

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
