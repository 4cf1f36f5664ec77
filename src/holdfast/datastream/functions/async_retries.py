"""When an asynchronous call is tried again: what a strategy is, and those that are ready-made.

The latter are values: the delay follows from the number of attempts alone, so records that are
retried at the same time do not lengthen each other's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from holdfast.common.time import DurationLike, to_millis

OUT = TypeVar("OUT")


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
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: DurationLike,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy[Any]:
        """Return a strategy that tries again up to so many times, each time after one delay."""
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
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[OUT], Generic[OUT]):
    """Two conditions, of which each may be missing."""

    def __init__(
        self,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """The condition for results."""
        return self._result_predicate

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """The condition for exceptions."""
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Never tries again."""

    def can_retry(self, current_attempts: int) -> bool:
        """Whether there is another try: no."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """No delay: -1."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """No outcome is worth another try."""
        return RetryPredicate(None, None)


class _LimitedRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Tries again up to so many times, if one of two conditions holds."""

    def __init__(
        self,
        max_attempts: int,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._max_attempts = _positive(self, "max_attempts", max_attempts)
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Whether there were no more than so many tries."""
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """The two conditions."""
        return self._predicate


class FixedDelayRetryStrategy(_LimitedRetryStrategy[OUT], Generic[OUT]):
    """Tries again up to so many times, each time after the same delay."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: DurationLike,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        delay = to_millis(backoff_time_millis)
        self._backoff_time_millis = _positive(self, "backoff_time_millis", delay)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The delay."""
        return self._backoff_time_millis


class ExponentialBackoffDelayRetryStrategy(_LimitedRetryStrategy[OUT], Generic[OUT]):
    """Tries again up to so many times; each delay is a multiple of the one before."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: DurationLike,
        max_retry_delay: DurationLike,
        multiplier: float,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._initial_delay = _positive(self, "initial_delay", to_millis(initial_delay))
        self._max_retry_delay = _positive(self, "max_retry_delay", to_millis(max_retry_delay))
        self._multiplier = _positive(self, "multiplier", multiplier)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The initial delay after the first try, then the multiples, up to the longest delay."""
        try:
            delay = self._initial_delay * self._multiplier ** max(current_attempts - 1, 0)
        except OverflowError:
            return self._max_retry_delay
        return int(min(delay, self._max_retry_delay))


NO_RETRY_STRATEGY: Final[AsyncRetryStrategy[Any]] = NoRetryStrategy()

_Number = TypeVar("_Number", int, float)


def _positive(strategy: object, name: str, value: _Number) -> _Number:
    if value > 0:
        return value
    message = f"{type(strategy).__name__}: {name} must be greater than zero; got {value}"
    raise ValueError(message)
