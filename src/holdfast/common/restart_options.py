"""A job's restart strategy and its start from a savepoint, as entries of a configuration.

Keys and defaults are Flink's. Nothing here acts on them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.common._settings import Setting, is_checkpointing_enabled
from holdfast.common.config_options import ConfigOptions
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

__all__ = [
    "configured_restart_strategy",
    "put_restart_strategy",
    "restart_strategy",
]

_NONE: Final = ("none", "off", "disable")
_FIXED: Final = ("fixed-delay", "fixeddelay")
_RATE: Final = ("failure-rate", "failurerate")
_EXPONENTIAL: Final = ("exponential-delay", "exponentialdelay")


def _count(key: str, default: int, least: int) -> Setting[int]:
    return Setting(ConfigOptions.key(key).int_type().default_value(default), least=least)


def _length(key: str, default: timedelta) -> Setting[timedelta]:
    option = ConfigOptions.key(key).duration_type().default_value(default)
    return Setting(option, least=timedelta())


def _number(key: str, default: float) -> Setting[float]:
    return Setting(ConfigOptions.key(key).double_type().default_value(default))


_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)

_TYPE: Final = Setting(
    ConfigOptions.key("restart-strategy.type").string_type().no_default_value(),
    older=("restart-strategy",),
)
_ATTEMPTS: Final = _count("restart-strategy.fixed-delay.attempts", 1, 0)
_FIXED_DELAY: Final = _length("restart-strategy.fixed-delay.delay", _SECOND)
_FAILURES: Final = _count("restart-strategy.failure-rate.max-failures-per-interval", 1, 1)
_RATE_INTERVAL: Final = _length("restart-strategy.failure-rate.failure-rate-interval", _MINUTE)
_RATE_DELAY: Final = _length("restart-strategy.failure-rate.delay", _SECOND)
_INITIAL: Final = _length("restart-strategy.exponential-delay.initial-backoff", _SECOND)
_LONGEST: Final = _length("restart-strategy.exponential-delay.max-backoff", _MINUTE)
_MULTIPLIER: Final = _number("restart-strategy.exponential-delay.backoff-multiplier", 1.5)
_RESET: Final = _length(
    "restart-strategy.exponential-delay.reset-backoff-threshold", timedelta(hours=1)
)
_JITTER: Final = _number("restart-strategy.exponential-delay.jitter-factor", 0.1)
_LIMIT: Final = Setting(
    ConfigOptions.key("restart-strategy.exponential-delay.attempts-before-reset-backoff")
    .int_type()
    .no_default_value(),
    least=1,
)


def restart_strategy(configuration: Configuration) -> RestartStrategyConfiguration:
    """Return what to do when the job fails.

    Unless a strategy is configured, a job with checkpoints restarts for ever with exponential
    delay, and a job without them is not restarted.
    """
    configured = configured_restart_strategy(configuration)
    if not isinstance(configured, FallbackRestartStrategyConfiguration):
        return configured
    if is_checkpointing_enabled(configuration):
        return _exponential_delay(configuration)
    return RestartStrategies.no_restart()


def configured_restart_strategy(configuration: Configuration) -> RestartStrategyConfiguration:
    """Return the strategy that was set, or ``fall_back_restart()`` if none was."""
    name = _TYPE.find(configuration)
    if name is None:
        return RestartStrategies.fall_back_restart()
    return _strategy_of(name, configuration)


def put_restart_strategy(
    configuration: Configuration, strategy: RestartStrategyConfiguration
) -> None:
    """Write a strategy into a configuration; ``fall_back_restart()`` takes the choice out."""
    match strategy:
        case FallbackRestartStrategyConfiguration():
            _TYPE.clear(configuration)
            return
        case NoRestartStrategyConfiguration():
            name = _NONE[0]
        case FixedDelayRestartStrategyConfiguration():
            name = _FIXED[0]
            _ATTEMPTS.put(configuration, strategy.restart_attempts)
            _FIXED_DELAY.put(configuration, strategy.delay_between_attempts_interval)
        case FailureRateRestartStrategyConfiguration():
            name = _RATE[0]
            _FAILURES.put(configuration, strategy.max_failure_rate)
            _RATE_INTERVAL.put(configuration, strategy.failure_interval)
            _RATE_DELAY.put(configuration, strategy.delay_between_attempts_interval)
        case ExponentialDelayRestartStrategyConfiguration():
            name = _EXPONENTIAL[0]
            _INITIAL.put(configuration, strategy.initial_backoff)
            _LONGEST.put(configuration, strategy.max_backoff)
            _MULTIPLIER.put(configuration, strategy.backoff_multiplier)
            _RESET.put(configuration, strategy.reset_backoff_threshold)
            _JITTER.put(configuration, strategy.jitter_factor)
            _LIMIT.clear(configuration)
            if strategy.attempts_before_reset_backoff is not None:
                _LIMIT.put(configuration, strategy.attempts_before_reset_backoff)
        case _:
            message = (
                "a restart strategy must be one that RestartStrategies makes; "
                f"got {type(strategy).__name__}"
            )
            raise TypeError(message)
    _TYPE.put(configuration, name)


def _strategy_of(name: str, configuration: Configuration) -> RestartStrategyConfiguration:
    word = name.strip().lower()
    if word in _NONE:
        return RestartStrategies.no_restart()
    if word in _FIXED:
        return RestartStrategies.fixed_delay_restart(
            _ATTEMPTS.get(configuration), _FIXED_DELAY.get(configuration)
        )
    if word in _RATE:
        return RestartStrategies.failure_rate_restart(
            _FAILURES.get(configuration),
            _RATE_INTERVAL.get(configuration),
            _RATE_DELAY.get(configuration),
        )
    if word in _EXPONENTIAL:
        return _exponential_delay(configuration)
    known = ", ".join(names[0] for names in (_NONE, _FIXED, _RATE, _EXPONENTIAL))
    message = f"restart-strategy.type: there is no strategy {name!r}; use one of {known}"
    raise ValueError(message)


def _exponential_delay(configuration: Configuration) -> RestartStrategyConfiguration:
    return RestartStrategies.exponential_delay_restart(
        _INITIAL.get(configuration),
        _LONGEST.get(configuration),
        _MULTIPLIER.get(configuration),
        _RESET.get(configuration),
        _JITTER.get(configuration),
        _LIMIT.find(configuration),
    )
