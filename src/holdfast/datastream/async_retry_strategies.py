"""Ready-made strategies for trying an asynchronous call again.

They are values: the delay follows from the number of attempts alone, so records that are retried
at the same time do not lengthen each other's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.async_functions import AsyncRetryPredicate, AsyncRetryStrategy

__all__ = [
    "NO_RETRY_STRATEGY",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

OUT = TypeVar("OUT")


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
