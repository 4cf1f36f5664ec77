"""A future that is completed explicitly, as `JobClient` returns it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """The result of an operation that may still be running.

    If several threads set a result, set an exception or cancel, one of them succeeds. The returned
    bool tells each whether it was the one.
    """

    def __init__(self) -> None:
        self._future: Future[T] = Future()

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        """Return a future that already has its result."""
        future: CompletableFuture[T] = CompletableFuture()
        future.set_result(value)
        return future

    @staticmethod
    def failed(error: BaseException) -> CompletableFuture[T]:
        """Return a future that already has its exception."""
        future: CompletableFuture[T] = CompletableFuture()
        future.set_exception(error)
        return future

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome, then return the result or raise the exception."""
        return self._future.result(timeout)

    def exception(self) -> BaseException | None:
        """Return the exception that was set, or None; never wait.

        A cancelled future has a `CancelledError`.
        """
        if self._future.cancelled():
            return CancelledError()
        return self._future.exception() if self._future.done() else None

    def done(self) -> bool:
        """Return whether there is an outcome: a result, an exception, or a cancellation."""
        return self._future.done()

    def cancel(self) -> bool:
        """Cancel unless already completed; return whether this future is now cancelled."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Return whether this future was cancelled before it completed."""
        return self._future.cancelled()

    def set_result(self, value: T) -> bool:
        """Complete with a result; return False if there already was an outcome."""
        try:
            self._future.set_result(value)
        except InvalidStateError:
            return False
        return True

    def set_exception(self, error: BaseException) -> bool:
        """Complete with an exception; return False if there already was an outcome."""
        try:
            self._future.set_exception(error)
        except InvalidStateError:
            return False
        return True

    def add_done_callback(self, callback: Callable[[CompletableFuture[T]], object]) -> None:
        """Call ``callback`` with this future when there is an outcome, or now if there is one.

        The callback runs in the thread that completes the future.
        """
        self._future.add_done_callback(lambda _: callback(self))

    def __repr__(self) -> str:
        return f"<CompletableFuture {self._state()}>"

    def _state(self) -> str:
        if not self.done():
            return "pending"
        if self.cancelled():
            return "cancelled"
        return "failed" if self.exception() else "completed"
