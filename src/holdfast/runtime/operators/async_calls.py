"""The calls of an asynchronous function in one subtask.

Each record starts a call. If as many calls are running as the capacity allows, the next record
waits for one of them. At the end of an epoch, before its watermark advances, all calls are awaited.
Results are forwarded only while a caller waits, never in between.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from holdfast.datastream.functions import AsyncFunction
from holdfast.datastream.functions.async_retries import AsyncRetryStrategy
from holdfast.graph.operations import AsyncSettings
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.runtime.worker.logs import begin_task

#: forwards results with their timestamps
Emit = Callable[[Iterable[tuple[Any, int | None]]], None]


class _AsyncCall:
    """The call for one record, and its result."""

    __slots__ = ("deadline", "done", "error", "record", "results", "stamp", "task")

    def __init__(self, record: Any, stamp: int | None) -> None:
        self.record = record
        self.stamp = stamp
        self.done = False
        self.deadline = 0.0
        self.results: Iterable[Any] = ()
        self.error: BaseException | None = None
        #: a reference is needed, because asyncio itself keeps only a weak one
        self.task: asyncio.Task[None] | None = None


class AsyncCalls:
    """Calls an asynchronous function for each record, many at a time."""

    def __init__(
        self,
        function: AsyncFunction[Any, Any],
        settings: AsyncSettings,
        loop: EventLoop,
        report: FailureReporter,
        emit: Emit,
    ) -> None:
        """Call this function, and pass its results to ``emit``."""
        self._function = function
        self._invoke: Callable[[Any], Coroutine[Any, Any, list[Any]]] = function.async_invoke
        self._strategy: AsyncRetryStrategy[Any] = settings.retry
        predicate = self._strategy.get_retry_predicate()
        self._retries_results = predicate.result_predicate()
        self._retries_errors = predicate.exception_predicate()
        if self._retries_results or self._retries_errors:
            self._invoke = self._invoke_again_and_again
        self._capacity = settings.capacity
        self._deadlines: _Deadlines | None = None
        if settings.timeout:
            self._deadlines = _Deadlines(settings, loop, self._give_up)
        self._calls: _Calls = _InOrder() if settings.ordered else _AsTheyEnd()
        self._loop = loop
        self._report = report
        self._emit = emit

    def begin(self, record: Any, stamp: int | None) -> None:
        """Start the call for a record, when the capacity allows it."""
        if len(self._calls) >= self._capacity:
            self._hand_on()
        call = _AsyncCall(record, stamp)
        self._calls.add(call)
        call.task = self._loop.loop.create_task(self._run(call))

    def finish(self) -> None:
        """Wait for all calls, and forward their results."""
        while len(self._calls):
            self._hand_on()

    def __len__(self) -> int:
        """Return the number of calls whose results were not forwarded yet."""
        return len(self._calls)

    def hand_on_ready(self) -> bool:
        """Forward the results that are available; return whether there were any."""
        if not len(self._calls) or not self._calls.ready():
            return False
        self._hand_on()
        return True

    def _hand_on(self) -> None:
        """Wait until there is a result to forward, and forward all that are available."""
        self._loop.wait(self._calls.ready)
        ended = self._calls.take()
        for call in ended:
            if call.error is not None:
                self._report.at(call.record, call.error)
        self._emit([(result, call.stamp) for call in ended for result in call.results])

    async def _run(self, call: _AsyncCall) -> None:
        begin_task(self._report)
        if self._deadlines is not None:
            self._deadlines.watch(call)
        try:
            results = self._checked("async_invoke", await self._invoke(call.record))
        except (Exception, asyncio.CancelledError) as error:
            self._end(call, (), error)
        else:
            self._end(call, results)

    def _give_up(self, call: _AsyncCall) -> None:
        """End a call that has timed out."""
        try:
            results = self._checked("timeout", self._function.timeout(call.record))
        except Exception as error:
            self._end(call, (), error)
        else:
            self._end(call, results)
        assert call.task is not None
        call.task.cancel()

    def _end(
        self, call: _AsyncCall, results: Iterable[Any], error: BaseException | None = None
    ) -> None:
        if not call.done:  # a call that timed out gets here twice
            call.done, call.results, call.error = True, results, error
            self._calls.ended(call)
            if self._calls.ready():
                self._loop.wake()

    async def _invoke_again_and_again(self, record: Any) -> list[Any]:
        attempts = 1
        while True:
            try:
                results = await self._function.async_invoke(record)
            except Exception as error:
                if not self._is_retried(self._retries_errors, error, attempts):
                    raise
            else:
                if not self._is_retried(self._retries_results, results, attempts):
                    return results
            await asyncio.sleep(self._strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1

    def _is_retried(
        self, condition: Callable[[Any], bool] | None, outcome: Any, attempts: int
    ) -> bool:
        if condition is None or not condition(outcome):
            return False
        return self._strategy.can_retry(attempts)

    def _checked(self, method: str, results: Any) -> Iterable[Any]:
        if results.__class__ is list:
            return results
        if isinstance(results, Iterable) and not isinstance(results, str | bytes):
            return list(results)
        message = (
            f"{method} of {type(self._function).__name__} must return a list with any number of "
            f"results; got {results!r}"
        )
        raise TypeError(message)


class _Deadlines:
    """Ends calls that take too long.

    All calls have the same timeout, so the call that started first is the first to time out. One
    timer, for that call, is enough.
    """

    def __init__(
        self, settings: AsyncSettings, loop: EventLoop, give_up: Callable[[_AsyncCall], None]
    ) -> None:
        self._seconds = settings.timeout / 1000
        self._most = 2 * settings.capacity + 64
        self._loop = loop
        self._give_up = give_up
        self._calls: deque[_AsyncCall] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, call: _AsyncCall) -> None:
        """Set the deadline of a call that starts now."""
        call.deadline = self._loop.loop.time() + self._seconds
        self._calls.append(call)
        if len(self._calls) > self._most:  # those behind a slow call ended long ago
            self._calls = deque(call for call in self._calls if not call.done)
        if self._timer is None:
            self._timer = self._loop.loop.call_at(call.deadline, self._expire)

    def _expire(self) -> None:
        now = self._loop.loop.time()
        while self._calls and (self._calls[0].done or self._calls[0].deadline <= now):
            call = self._calls.popleft()
            if not call.done:
                self._give_up(call)
        self._timer = None
        if self._calls:
            self._timer = self._loop.loop.call_at(self._calls[0].deadline, self._expire)


class _Calls(ABC):
    """Calls whose results were not forwarded yet."""

    @abstractmethod
    def add(self, call: _AsyncCall) -> None:
        """Add a call that starts."""

    @abstractmethod
    def ended(self, call: _AsyncCall) -> None:
        """Record that a call has results, or an error."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether there is a result that may be forwarded."""

    @abstractmethod
    def take(self) -> list[_AsyncCall]:
        """Remove and return the calls whose results may be forwarded."""

    @abstractmethod
    def __len__(self) -> int: ...


class _InOrder(_Calls):
    """Forwards results in the order in which calls started."""

    def __init__(self) -> None:
        self._calls: deque[_AsyncCall] = deque()

    def add(self, call: _AsyncCall) -> None:
        self._calls.append(call)

    def ended(self, call: _AsyncCall) -> None:
        pass

    def ready(self) -> bool:
        return self._calls[0].done

    def take(self) -> list[_AsyncCall]:
        taken = []
        while self._calls and self._calls[0].done:
            taken.append(self._calls.popleft())
        return taken

    def __len__(self) -> int:
        return len(self._calls)


class _AsTheyEnd(_Calls):
    """Forwards results in the order in which calls ended."""

    def __init__(self) -> None:
        self._under_way: set[_AsyncCall] = set()
        self._ended: list[_AsyncCall] = []

    def add(self, call: _AsyncCall) -> None:
        self._under_way.add(call)

    def ended(self, call: _AsyncCall) -> None:
        self._under_way.discard(call)
        self._ended.append(call)

    def ready(self) -> bool:
        return bool(self._ended)

    def take(self) -> list[_AsyncCall]:
        taken, self._ended = self._ended, []
        return taken

    def __len__(self) -> int:
        return len(self._under_way) + len(self._ended)
