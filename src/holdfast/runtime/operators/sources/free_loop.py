"""Source functions for subtasks that never repeat an epoch: records are read as they arrive.

Records are neither kept nor encoded, since they are not read a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.datastream.functions import SourceFunction
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.operators.sources.loop import SourceLoop
from holdfast.runtime.operators.sources.source_instance import (
    LiveSource,
    LoopSnapshot,
    LoopStart,
    ReadRequest,
    SnapshotRequest,
    SourceAccess,
)
from holdfast.runtime.worker.job_code import JobCode

#: maximum duration of a read in seconds, so that the subtask can do other work
_LONGEST_READ = 0.005


class LoopSource(LiveSource):
    """A loop in this process, which is read by one thread only."""

    def __init__(self, loop: SourceLoop) -> None:
        """Read from this loop."""
        self._loop = loop
        self._halts = False

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Yield what is in the queue now; with a barrier, everything that the loop has emitted."""
        loop = self._loop
        self._halts = request.halts
        if request.barrier or request.halts:
            yield from loop.halt()
        else:
            loop.go_on()
            yield from loop.take(request.limit, _LONGEST_READ)
        self.watermark = loop.watermark
        loop.check()

    def notify(self, completed: Sequence[int], aborted: Sequence[int]) -> None:
        self._loop.notify(tuple(completed), tuple(aborted))

    def snapshot(self, request: SnapshotRequest) -> LoopSnapshot:
        """Return the function's state after a read with a barrier; resume unless it is halted."""
        snapshot = self._loop.snapshot(request)
        if not self._halts:
            self._loop.go_on()
        return snapshot

    @property
    def awaits(self) -> bool:
        return self._loop.empty

    @property
    def finished(self) -> bool:
        return self._loop.finished

    def close(self) -> None:
        """Do nothing: there is no connection to close."""


class _Stoppable(Protocol):
    def cancel(self) -> None: ...

    def stop(self) -> None: ...


_Loop = TypeVar("_Loop", bound=_Stoppable)


class LoopsInProcess(SourceAccess, Generic[_Loop]):
    """The loops of the source functions of one attempt, in threads of this process."""

    def __init__(
        self,
        start: Callable[[SourceFunction, OperatorContext, FailureReporter, LoopStart], _Loop],
        read: Callable[[_Loop], LiveSource],
        attempt: int = 0,
    ) -> None:
        """Start without loops.

        Args:
            start: starts a loop.
            read: returns a subtask's access to its loop.
            attempt: the attempt number for the functions.
        """
        self._start = start
        self._read = read
        self._attempt = attempt
        self._loops: dict[tuple[str, int], _Loop] = {}

    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: LoopStart
    ) -> LiveSource:
        place = (operator.uid, subtask)
        if place not in self._loops:
            operation = operator.node.operation
            assert isinstance(operation, SourceOperation)
            assert isinstance(operation.source, FunctionSource)
            # every subtask and every attempt has its own object, as with separate processes
            function = cloudpickle.loads(dumps(operation.source.function))
            context = OperatorContext(
                operator,
                subtask,
                self._attempt,
                None,  # type: ignore[arg-type]
                None,
                job.parameters,
            )
            report = FailureReporter(operator.name, subtask)
            self._loops[place] = self._start(function, context, report, beginning)
        return self._read(self._loops[place])

    def __bool__(self) -> bool:
        return bool(self._loops)

    def stop(self) -> None:
        """Cancel all loops, and wait for them; no subtask may connect meanwhile."""
        with ExitStack() as to_stop:
            loops = []
            while self._loops:
                loops.append(self._loops.popitem()[1])
                to_stop.callback(loops[-1].stop)
            for loop in loops:
                loop.cancel()


def thread_sources(attempt: int, wake: Callable[[], None]) -> LoopsInProcess[SourceLoop]:
    """Return the loops of an attempt, read as records arrive; see `SourceLoop` for ``wake``."""
    return LoopsInProcess(partial(SourceLoop, wake=wake), LoopSource, attempt)
