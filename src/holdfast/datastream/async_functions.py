"""Asynchronous functions: many records wait for the outside world at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.common.time import DurationLike
from holdfast.datastream.function_base import Function

__all__ = ["AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"]

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """A function that is awaited; as many calls as the capacity allows are under way at once.

    All calls of a subtask run in one event loop, so what does not await holds up the others. The
    loop runs while there are records that wait, and stands still between epochs. ``open`` and
    ``close`` are called within the running loop, so they may make what belongs to one, such as an
    HTTP session; what they return is awaited if it can be, so each may be an ``async def``.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for a record. An exception fails the job, unless a retry strategy helps."""

    def timeout(self, value: IN) -> list[OUT]:
        """Called instead of waiting longer for a record: its results, or an exception.

        Raises:
            TimeoutError: unless a subclass does something else.
        """
        message = (
            f"{type(self).__name__}.async_invoke took longer than its timeout for the record "
            f"{value!r}; give it more time, or return results for such a record from timeout()"
        )
        raise TimeoutError(message)


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Which outcomes of a call are worth another try."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """A function of the results that says whether to try again; None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """A function of the exception that says whether to try again; None: never."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Whether and when a call is tried again; asked by many records at once, so it keeps nothing.

    ``current_attempts`` is the number of calls for the record so far, from 1.
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether there is another try after that many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """How long to wait before the next try, in milliseconds."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Which outcomes are worth another try."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Return the strategy that never tries again."""
        from holdfast.datastream.async_retry_strategies import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: DurationLike,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return a strategy that tries again up to so many times, each time after one delay."""
        from holdfast.datastream.async_retry_strategies import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: DurationLike,
        max_retry_delay: DurationLike,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return a strategy whose delays grow by a factor, up to a longest one."""
        from holdfast.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )
