"""Restart policies: what follows a failure, a restart after a delay or the end of the job.

`make_policy` turns a strategy, which is configuration, into a policy, which counts failures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bdb import BdbQuit
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from holdfast.checkpoint.errors import DirectoryInUseError
from holdfast.common.restart_strategy import (
    ExponentialDelayRestartStrategyConfiguration,
    FailureRateRestartStrategyConfiguration,
    FixedDelayRestartStrategyConfiguration,
    NoRestartStrategyConfiguration,
    RestartStrategyConfiguration,
)
from holdfast.common.time import format_duration, to_millis
from holdfast.errors import JobDefinitionError, SparkLostError, UserFunctionError
from holdfast.printable import counted
from holdfast.state.errors import PickledStateError, StateMigrationError

#: upper limit of a backoff, far above any maximum, to avoid overflow
_ENOUGH: Final = 1e15

#: the state will not be readable the next time either; another driver has taken over the job;
#: Spark has ended in this process
_PERMANENT: Final = (
    StateMigrationError,
    PickledStateError,
    DirectoryInUseError,
    SparkLostError,
)


def is_permanent(failure: BaseException) -> bool:
    """Return whether a failure is one after which no restart can help, or none is wanted."""
    # NB: a user who leaves the debugger wants the job to end, too
    quits = isinstance(failure, UserFunctionError) and isinstance(failure.original, BdbQuit)
    return quits or isinstance(failure, _PERMANENT)


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the next attempt after that many milliseconds."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed for good."""

    reason: str


class RestartPolicy(ABC):
    """Decides what follows each failure of one job.

    Attributes:
        restarts: whether a failure is ever followed by a restart.
        is_unlimited: whether every failure is.
    """

    restarts: bool = True
    is_unlimited: bool = False

    @abstractmethod
    def on_failure(self, now_ms: int) -> Restart | GiveUp:
        """Count a failure of the running attempt at this time, and decide what follows.

        Called once per failed attempt; times do not decrease.
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
            return GiveUp(self._reason())
        self._restarts += 1
        return Restart(self._delay)

    def _reason(self) -> str:
        if not self._restarts:
            return "the restart strategy allows no restart"
        return f"it was restarted {counted(self._restarts, 'time')}, which is the maximum"


class _FailureRate(RestartPolicy):
    """Gives up at the first failure that exceeds the limit for the interval ending with it."""

    def __init__(self, strategy: FailureRateRestartStrategyConfiguration) -> None:
        self._most = strategy.max_failure_rate
        self._interval = to_millis(strategy.failure_interval)
        self._delay = to_millis(strategy.delay_between_attempts_interval)
        #: the times of the last failures, one more than is allowed
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
    """Each delay is the previous one times the multiplier, with jitter, within its bounds.

    An attempt that ran for the reset threshold resets the delay and the count of failures.
    """

    def __init__(self, strategy: ExponentialDelayRestartStrategyConfiguration, rng: Random) -> None:
        self._initial = to_millis(strategy.initial_backoff)
        self._longest = to_millis(strategy.max_backoff)
        self._multiplier = strategy.backoff_multiplier
        self._threshold = to_millis(strategy.reset_backoff_threshold)
        self._jitter = strategy.jitter_factor
        self._limit = strategy.attempts_before_reset_backoff
        self.is_unlimited = self._limit is None
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


def make_policy(strategy: RestartStrategyConfiguration, rng: Random | None = None) -> RestartPolicy:
    """Return the policy for a configured strategy; ``rng`` makes the jitter."""
    match strategy:
        case NoRestartStrategyConfiguration():
            return _NoRestart()
        case FixedDelayRestartStrategyConfiguration():
            return _FixedDelay(strategy)
        case FailureRateRestartStrategyConfiguration():
            return _FailureRate(strategy)
        case ExponentialDelayRestartStrategyConfiguration():
            return _ExponentialDelay(strategy, rng or Random())
    message = f"not a restart strategy: {strategy!r}; make one with RestartStrategies"
    raise JobDefinitionError(message)
