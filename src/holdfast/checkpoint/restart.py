"""What follows a failure: restart after a while, or give up.

`make_policy` turns a strategy, which is configuration, into a policy, which counts.
`strategy_from_configuration` reads a strategy from Flink's configuration keys.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, TypeVar

from holdfast.common.config_options import ConfigOption, ConfigOptions
from holdfast.common.configuration import Configuration
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
from holdfast.errors import JobDefinitionError

__all__ = [
    "GiveUp",
    "LimitedExponentialDelay",
    "Restart",
    "RestartPolicy",
    "make_policy",
    "strategy_from_configuration",
]

T = TypeVar("T")

#: a backoff stops growing here, far above any maximum, so that it stays a number
_ENOUGH: Final = 1e15


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the next attempt after that many milliseconds."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed for good."""

    reason: str


class RestartPolicy(ABC):
    """Decides about failures of one job, one after another."""

    @abstractmethod
    def on_failure(self, now_ms: int) -> Restart | GiveUp:
        """Count a failure of the running attempt at that time, and decide what follows.

        Called once per attempt that failed; times do not decrease.
        """


@dataclass(frozen=True)
class LimitedExponentialDelay(ExponentialDelayRestartStrategyConfiguration):
    """Exponential delay that gives up after so many failures without a reset; None for never."""

    attempts_before_reset_backoff: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.attempts_before_reset_backoff
        if limit is not None and limit < 1:
            message = f"attempts_before_reset_backoff must be at least 1; got {limit}"
            raise ValueError(message)


class _NoRestart(RestartPolicy):
    def on_failure(self, now_ms: int) -> GiveUp:
        return GiveUp("no restart strategy is set, or it is 'none'")


class _FixedDelay(RestartPolicy):
    def __init__(self, strategy: FixedDelayRestartStrategyConfiguration) -> None:
        self._attempts = strategy.restart_attempts
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
        self._limit = getattr(strategy, "attempts_before_reset_backoff", None)
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


_TYPE: Final = "restart-strategy.type"
_OLD_TYPE: Final = "restart-strategy"
_NAMES: Final = {
    "none": "none",
    "off": "none",
    "disable": "none",
    "fixed-delay": "fixed-delay",
    "fixeddelay": "fixed-delay",
    "failure-rate": "failure-rate",
    "failurerate": "failure-rate",
    "exponential-delay": "exponential-delay",
    "exponentialdelay": "exponential-delay",
}


def _duration(key: str, default_ms: int) -> ConfigOption[timedelta]:
    default = timedelta(milliseconds=default_ms)
    return ConfigOptions.key(f"restart-strategy.{key}").duration_type().default_value(default)


def _int(key: str, default: int) -> ConfigOption[int]:
    return ConfigOptions.key(f"restart-strategy.{key}").int_type().default_value(default)


def _double(key: str, default: float) -> ConfigOption[float]:
    return ConfigOptions.key(f"restart-strategy.{key}").double_type().default_value(default)


_FIXED_ATTEMPTS: Final = _int("fixed-delay.attempts", 1)
_FIXED_DELAY: Final = _duration("fixed-delay.delay", 1_000)
_RATE_FAILURES: Final = _int("failure-rate.max-failures-per-interval", 1)
_RATE_INTERVAL: Final = _duration("failure-rate.failure-rate-interval", 60_000)
_RATE_DELAY: Final = _duration("failure-rate.delay", 1_000)
_INITIAL_BACKOFF: Final = _duration("exponential-delay.initial-backoff", 1_000)
_MAX_BACKOFF: Final = _duration("exponential-delay.max-backoff", 60_000)
_MULTIPLIER: Final = _double("exponential-delay.backoff-multiplier", 1.5)
_THRESHOLD: Final = _duration("exponential-delay.reset-backoff-threshold", 3_600_000)
_JITTER: Final = _double("exponential-delay.jitter-factor", 0.1)
_LIMIT: Final = (
    ConfigOptions.key("restart-strategy.exponential-delay.attempts-before-reset-backoff")
    .int_type()
    .no_default_value()
)


def strategy_from_configuration(
    configuration: Configuration,
) -> RestartStrategyConfiguration | None:
    """Return the strategy that ``restart-strategy.type`` names; None if it is not set.

    The older key ``restart-strategy`` counts where the new one is not set. Raise a
    JobDefinitionError that names the key if a value cannot be read or makes no sense.
    """
    key = _TYPE if configuration.contains_key(_TYPE) else _OLD_TYPE
    if not configuration.contains_key(key):
        return None
    text = configuration.get_string(key, "")
    name = _NAMES.get(text.strip().lower())
    if name is None:
        raise JobDefinitionError(_unknown(key, text))
    try:
        return _BUILDERS[name](configuration)
    except ValueError as error:
        message = f"restart strategy {name!r} (keys 'restart-strategy.{name}.*'): {error}"
        raise JobDefinitionError(message) from error


def _unknown(key: str, text: str) -> str:
    names = sorted(set(_NAMES.values()))
    near = difflib.get_close_matches(text.strip().lower(), _NAMES, n=1)
    hint = f"did you mean {_NAMES[near[0]]!r}? " if near else ""
    return f"configuration key {key!r}: unknown restart strategy {text!r}; {hint}one of {names}"


def _fixed_delay(configuration: Configuration) -> RestartStrategyConfiguration:
    return FixedDelayRestartStrategyConfiguration(
        _value(configuration, _FIXED_ATTEMPTS), _value(configuration, _FIXED_DELAY)
    )


def _failure_rate(configuration: Configuration) -> RestartStrategyConfiguration:
    return FailureRateRestartStrategyConfiguration(
        _value(configuration, _RATE_FAILURES),
        _value(configuration, _RATE_INTERVAL),
        _value(configuration, _RATE_DELAY),
    )


def _exponential_delay(configuration: Configuration) -> RestartStrategyConfiguration:
    return LimitedExponentialDelay(
        _value(configuration, _INITIAL_BACKOFF),
        _value(configuration, _MAX_BACKOFF),
        _value(configuration, _MULTIPLIER),
        _value(configuration, _THRESHOLD),
        _value(configuration, _JITTER),
        configuration.get(_LIMIT),
    )


def _value(configuration: Configuration, option: ConfigOption[T]) -> T:
    value = configuration.get(option)
    assert value is not None, "the option has a default"
    return value


_BUILDERS: Final[dict[str, Callable[[Configuration], RestartStrategyConfiguration]]] = {
    "none": lambda _: RestartStrategies.no_restart(),
    "fixed-delay": _fixed_delay,
    "failure-rate": _failure_rate,
    "exponential-delay": _exponential_delay,
}
