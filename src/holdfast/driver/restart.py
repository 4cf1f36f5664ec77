"""What follows a failure: restart after a while, or give up.

`make_policy` turns a strategy, which is configuration, into a policy, which counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from holdfast.checkpoint.errors import DirectoryInUseError
from holdfast.common.restart_strategy import (
    ExponentialDelayRestartStrategyConfiguration,
    FailureRateRestartStrategyConfiguration,
    FallbackRestartStrategyConfiguration,
    FixedDelayRestartStrategyConfiguration,
    NoRestartStrategyConfiguration,
    RestartStrategies,
    RestartStrategyConfiguration,
)
from holdfast.common.time import format_duration, to_millis
from holdfast.errors import JobDefinitionError, SparkLostError
from holdfast.state.errors import PickledStateError, StateMigrationError

__all__ = [
    "GiveUp",
    "Restart",
    "RestartPolicy",
    "is_permanent",
    "make_policy",
]

#: a backoff stops growing here, far above any maximum, so that it stays a number
_ENOUGH: Final = 1e15

#: the state will not be readable the next time either; another driver has the job; there is no
#: Spark in this process any more
_PERMANENT: Final = (
    StateMigrationError,
    PickledStateError,
    DirectoryInUseError,
    SparkLostError,
)


def is_permanent(failure: BaseException) -> bool:
    """Return whether no restart can help after a failure."""
    return isinstance(failure, _PERMANENT)


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the next attempt after that many milliseconds."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed for good."""

    reason: str


class RestartPolicy(ABC):
    """Decides about failures of one job, one after another.

    Attributes:
        restarts: whether a failure is ever followed by a restart.
    """

    restarts: bool = True

    @abstractmethod
    def on_failure(self, now_ms: int) -> Restart | GiveUp:
        """Count a failure of the running attempt at that time, and decide what follows.

        Called once per attempt that failed; times do not decrease.
        """


class _NoRestart(RestartPolicy):
    restarts = False

    def on_failure(self, now_ms: int) -> GiveUp:
        return GiveUp("no restart strategy is set, or it is 'none'")


class _FixedDelay(RestartPolicy):
    def __init__(self, strategy: FixedDelayRestartStrategyConfiguration) -> None:
        self._attempts = strategy.restart_attempts
        self.restarts = self._attempts > 0
        self._delay = to_millis(strategy.delay_between_attempts_interval)
        self._restarts = 0

    def on_failure(self, now_ms: int) -> Restart | GiveUp:
        if self._restarts >= self._attempts:
            return GiveUp(f"it was restarted {self._restarts} times, which is all that is allowed")
        self._restarts += 1
        return Restart(self._delay)


class _FailureRate(RestartPolicy):
    """Gives up at the first failure that is one too many for the interval that ends with it."""

    def __init__(self, strategy: FailureRateRestartStrategyConfiguration) -> None:
        self._most = strategy.max_failure_rate
        self._interval = to_millis(strategy.failure_interval)
        self._delay = to_millis(strategy.delay_between_attempts_interval)
        #: the times of the last failures, as many as would be too many
        self._failures: deque[int] = deque(maxlen=self._most + 1)

    def on_failure(self, now_ms: int) -> Restart | GiveUp:
        self._failures.append(now_ms)
        if len(self._failures) > self._most and now_ms - self._failures[0] <= self._interval:
            interval = format_duration(timedelta(milliseconds=self._interval))
            return GiveUp(
                f"it failed {len(self._failures)} times within {interval}; {self._most} allowed"
            )
        return Restart(self._delay)


class _ExponentialDelay(RestartPolicy):
    """Each delay is the one before times the multiplier, with jitter, within its bounds.

    An attempt that ran for the reset threshold makes delays, and the count of failures, start anew.
    """

    def __init__(self, strategy: ExponentialDelayRestartStrategyConfiguration, rng: Random) -> None:
        self._initial = to_millis(strategy.initial_backoff)
        self._longest = to_millis(strategy.max_backoff)
        self._multiplier = strategy.backoff_multiplier
        self._threshold = to_millis(strategy.reset_backoff_threshold)
        self._jitter = strategy.jitter_factor
        self._limit = strategy.attempts_before_reset_backoff
        self._rng = rng
        #: when the running attempt started; None for the first one
        self._started: int | None = None
        #: since the last reset
        self._failures = 0
        self._backoff = float(self._initial)

    def on_failure(self, now_ms: int) -> Restart | GiveUp:
        if self._started is not None and now_ms - self._started >= self._threshold:
            self._reset()
        self._failures += 1
        if self._limit is not None and self._failures > self._limit:
            return GiveUp(f"it failed {self._failures} times in a row; {self._limit} allowed")
        delay = self._delay()
        self._backoff = min(self._backoff * self._multiplier, _ENOUGH)
        self._started = now_ms + delay
        return Restart(delay)

    def _reset(self) -> None:
        self._failures = 0
        self._backoff = float(self._initial)

    def _delay(self) -> int:
        offset = int(self._backoff * self._jitter)
        delay = int(self._backoff) + self._rng.randint(-offset, offset)
        return max(self._initial, min(delay, self._longest))


def make_policy(
    strategy: RestartStrategyConfiguration | None, checkpointing: bool, rng: Random | None = None
) -> RestartPolicy:
    """Return the policy of a strategy.

    None, and the strategy that falls back to the configuration, mean what they do in Flink 2: no
    restart without checkpointing, exponential delay with its defaults with it. ``rng`` makes the
    jitter.
    """
    if strategy is None or isinstance(strategy, FallbackRestartStrategyConfiguration):
        strategy = _default(checkpointing)
    if isinstance(strategy, NoRestartStrategyConfiguration):
        return _NoRestart()
    if isinstance(strategy, FixedDelayRestartStrategyConfiguration):
        return _FixedDelay(strategy)
    if isinstance(strategy, FailureRateRestartStrategyConfiguration):
        return _FailureRate(strategy)
    if isinstance(strategy, ExponentialDelayRestartStrategyConfiguration):
        return _ExponentialDelay(strategy, rng or Random())
    message = f"not a restart strategy: {strategy!r}; make one with RestartStrategies"
    raise JobDefinitionError(message)


def _default(checkpointing: bool) -> RestartStrategyConfiguration:
    if checkpointing:
        return RestartStrategies.exponential_delay_restart()
    return RestartStrategies.no_restart()
