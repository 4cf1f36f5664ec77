"""Source functions for subtasks that are never run again: records are read as they come.

Nothing is kept of what was read and nothing is encoded, since nobody reads it a second time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Generic, Protocol, TypeVar

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.datastream.functions import SourceFunction
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.job import JobCode
from holdfast.runtime.source_loop import SourceLoop
from holdfast.runtime.sources import (
    Beginning,
    LiveSource,
    ReadRequest,
    Snapshot,
    SnapshotRequest,
    SourceAccess,
)

#: a read ends after so many seconds, so that the subtask sees what else there is to do
_LONGEST_READ = 0.005


class LoopSource(LiveSource):
    """A loop in this process, which only one thread reads."""

    def __init__(self, loop: SourceLoop) -> None:
        """Read from this loop."""
        self._loop = loop
        self._halts = False

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """What is in the queue now; before a barrier, all that the loop has emitted."""
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
        """Tell the function of checkpoints that ended."""
        self._loop.notify(tuple(completed), tuple(aborted))

    def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """The function's state after a read with a barrier; the loop goes on, unless it halts."""
        snapshot = self._loop.snapshot(request)
        if not self._halts:
            self._loop.go_on()
        return snapshot

    @property
    def awaits(self) -> bool:
        """As the loop says."""
        return self._loop.empty

    @property
    def finished(self) -> bool:
        """As the loop says."""
        return self._loop.finished

    def close(self) -> None:
        """Nothing to let go of."""


class _Stoppable(Protocol):
    def cancel(self) -> None: ...

    def stop(self) -> None: ...


_Loop = TypeVar("_Loop", bound=_Stoppable)


class LoopsInProcess(SourceAccess, Generic[_Loop]):
    """The loops of source functions, in threads of this process."""

    def __init__(self, attempt: int = 0) -> None:
        """None runs yet; ``attempt`` is what the functions are told."""
        self._attempt = attempt
        self._loops: dict[tuple[str, int], _Loop] = {}

    def loop(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: Beginning
    ) -> _Loop:
        """The loop of a subtask; started if it does not run yet."""
        place = (operator.uid, subtask)
        if place not in self._loops:
            operation = operator.node.operation
            assert isinstance(operation, SourceOperation)
            assert isinstance(operation.source, FunctionSource)
            # every subtask and every attempt has an object of its own, as processes have
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
        return self._loops[place]

    @abstractmethod
    def _start(
        self,
        function: SourceFunction,
        context: OperatorContext,
        report: FailureReporter,
        beginning: Beginning,
    ) -> _Loop:
        """Start a loop."""

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


class ThreadSources(LoopsInProcess[SourceLoop]):
    """The loops of the subtasks of one attempt in this process."""

    def __init__(self, attempt: int, wake: Callable[[], None]) -> None:
        """``wake`` is called when there is something to read, and when a loop has ended.

        It is called in the loop's thread, and must not block.
        """
        super().__init__(attempt)
        self._wake = wake

    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: Beginning
    ) -> LiveSource:
        """The loop of a subtask."""
        return LoopSource(self.loop(job, operator, subtask, beginning))

    def _start(
        self,
        function: SourceFunction,
        context: OperatorContext,
        report: FailureReporter,
        beginning: Beginning,
    ) -> SourceLoop:
        return SourceLoop(function, context, report, beginning, self._wake)
