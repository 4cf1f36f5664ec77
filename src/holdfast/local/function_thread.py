"""Runs the functions of a job in the thread of the program that waits for the job.

A debugger can then be used as in any other program: ``breakpoint()`` in a function reads commands
from the terminal, and Ctrl-C gets to the function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from holdfast.driver.outcome import AbandonedError

T = TypeVar("T")


class FunctionThread:
    """Carries out calls of the job's thread in the thread that created this object.

    That thread must call `work`; until then, calls wait for it.
    """

    def __init__(self) -> None:
        """Take the current thread."""
        self._owner = threading.get_ident()
        self._changed = threading.Condition()
        self._waiting: _Call[Any] | None = None
        self._left = False

    def call(self, do: Callable[[], T]) -> T:
        """Call ``do`` in that thread, and return its result; from any thread.

        After `leave`, it is called in the current thread.
        """
        if threading.get_ident() == self._owner:
            return do()
        call = _Call(do)
        with self._changed:
            self._waiting = call
            self._changed.notify_all()
            self._changed.wait_for(lambda: call.done or (self._left and not call.begun))
            self._waiting = None
        return call.result() if call.done else do()

    def wake(self) -> None:
        """Let `work` check its condition."""
        with self._changed:
            self._changed.notify_all()

    def work(self, is_over: Callable[[], bool], cancel: Callable[[], object]) -> None:
        """Carry out calls until ``is_over()`` is true; who makes it true calls `wake`.

        An interrupt cancels the job; calls are carried out until the job has ended.

        Raises:
            KeyboardInterrupt: if there was an interrupt.
        """
        interrupted: KeyboardInterrupt | None = None
        try:
            while True:
                try:
                    if not self._work_once(is_over):
                        break
                except KeyboardInterrupt as interrupt:
                    interrupted = interrupt
                    cancel()
                    self._abandon_call()
        except BaseException:
            self.leave()
            raise
        if interrupted is not None:
            raise interrupted

    def leave(self) -> None:
        """Carry out no more calls."""
        self._abandon_call()
        with self._changed:
            self._left = True
            self._changed.notify_all()

    def _work_once(self, is_over: Callable[[], bool]) -> bool:
        """Carry out the next call; return False if ``is_over()`` is true."""
        with self._changed:
            self._changed.wait_for(lambda: is_over() or self._pending is not None)
            call = self._pending
            # NB: even if there is a call: a program that iterates gets its record first
            if call is None or is_over():
                return False
            call.begun = True
        call.carry_out()
        self.wake()
        return True

    @property
    def _pending(self) -> _Call[Any] | None:
        call = self._waiting
        return None if call is None or call.begun else call

    def _abandon_call(self) -> None:
        """End a call that an interrupt has cut short."""
        with self._changed:
            call = self._waiting
            if call is not None and call.begun and not call.done:
                call.fail(AbandonedError("a function was interrupted"))
            self._changed.notify_all()


class _Call(Generic[T]):
    """A call, and its result or its error."""

    def __init__(self, do: Callable[[], T]) -> None:
        self._do = do
        self._result: T | None = None
        self._error: BaseException | None = None
        self.begun = False
        self.done = False

    def carry_out(self) -> None:
        """Call the function; an interrupt is for the thread that calls this."""
        try:
            self._result = self._do()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._error = error
        self.done = True

    def fail(self, error: BaseException) -> None:
        self._error, self.done = error, True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._result)
