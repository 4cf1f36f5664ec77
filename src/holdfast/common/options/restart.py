"""The settings of a job's restart strategy.

Keys and defaults are Flink's, except for the limit of failures on the same record.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.common.configuration import Configuration
from holdfast.common.options.checkpoints import is_checkpointing_enabled
from holdfast.common.options.setting import Setting, count, duration, number, text
from holdfast.common.restart_strategy import (
    ExponentialDelayRestartStrategyConfiguration,
    FailureRateRestartStrategyConfiguration,
    FallbackRestartStrategyConfiguration,
    FixedDelayRestartStrategyConfiguration,
    NoRestartStrategyConfiguration,
    RestartStrategyConfiguration,
)
from holdfast.errors import ConfigurationError

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)

_TYPE: Final = text("restart-strategy.type", older=("restart-strategy",))

#: how many failures on the same record, without a checkpoint in between, end the job; 0: no limit
SAME_RECORD_LIMIT: Final = count("holdfast.restart.same-record-limit", None, least=0)
#: its default for a strategy without a limit of its own
_SAME_RECORD_DEFAULT: Final = 8


@dataclass(frozen=True)
class _Kind:
    """A kind of strategy: its names, today's first, and the setting of each of its fields."""

    made: type[Any]
    names: tuple[str, ...]
    settings: dict[str, Setting[Any]]

    def read(self, configuration: Configuration) -> RestartStrategyConfiguration:
        """Return the strategy of this kind that a configuration describes."""
        values = {field: setting.get(configuration) for field, setting in self.settings.items()}
        made: RestartStrategyConfiguration = self.made(**values)
        return made

    def put(self, configuration: Configuration, strategy: RestartStrategyConfiguration) -> None:
        """Write a strategy of this kind into a configuration."""
        for field, setting in self.settings.items():
            setting.clear(configuration)
            if (value := getattr(strategy, field)) is not None:
                setting.put(configuration, value)
        _TYPE.put(configuration, self.names[0])


_NONE: Final = _Kind(NoRestartStrategyConfiguration, ("none", "off", "disable"), {})
_FIXED: Final = _Kind(
    FixedDelayRestartStrategyConfiguration,
    ("fixed-delay", "fixeddelay"),
    {
        "restart_attempts": count("restart-strategy.fixed-delay.attempts", 1, 0),
        "delay_between_attempts_interval": duration("restart-strategy.fixed-delay.delay", _SECOND),
    },
)
_RATE: Final = _Kind(
    FailureRateRestartStrategyConfiguration,
    ("failure-rate", "failurerate"),
    {
        "max_failure_rate": count("restart-strategy.failure-rate.max-failures-per-interval", 1, 1),
        "failure_interval": duration(
            "restart-strategy.failure-rate.failure-rate-interval", _MINUTE
        ),
        "delay_between_attempts_interval": duration("restart-strategy.failure-rate.delay", _SECOND),
    },
)
_EXPONENTIAL: Final = _Kind(
    ExponentialDelayRestartStrategyConfiguration,
    ("exponential-delay", "exponentialdelay"),
    {
        "initial_backoff": duration("restart-strategy.exponential-delay.initial-backoff", _SECOND),
        "max_backoff": duration("restart-strategy.exponential-delay.max-backoff", _MINUTE),
        "backoff_multiplier": number("restart-strategy.exponential-delay.backoff-multiplier", 1.5),
        "reset_backoff_threshold": duration(
            "restart-strategy.exponential-delay.reset-backoff-threshold", timedelta(hours=1)
        ),
        "jitter_factor": number("restart-strategy.exponential-delay.jitter-factor", 0.1),
        "attempts_before_reset_backoff": count(
            "restart-strategy.exponential-delay.attempts-before-reset-backoff", None, 1
        ),
    },
)
_KINDS: Final = (_NONE, _FIXED, _RATE, _EXPONENTIAL)


def restart_strategy(configuration: Configuration) -> RestartStrategyConfiguration:
    """Return what to do when the job fails.

    Unless a strategy is configured, a job with checkpoints restarts forever with exponential delay,
    and a job without them is not restarted.
    """
    configured = configured_restart_strategy(configuration)
    if not isinstance(configured, FallbackRestartStrategyConfiguration):
        return configured
    default = _EXPONENTIAL if is_checkpointing_enabled(configuration) else _NONE
    return default.read(configuration)


def same_record_limit(configuration: Configuration, unlimited: bool) -> int:
    """Return how many failures on the same record end the job; 0: no number of them does.

    ``unlimited``: the restart strategy has no limit of its own. Only then there is a default:
    a configured number of restarts is used in full.
    """
    found = SAME_RECORD_LIMIT.find(configuration)
    if found is not None:
        return found
    return _SAME_RECORD_DEFAULT if unlimited else 0


def configured_restart_strategy(configuration: Configuration) -> RestartStrategyConfiguration:
    """Return the strategy that was set, or ``fall_back_restart()`` if none was."""
    name = _TYPE.find(configuration)
    if name is None:
        return FallbackRestartStrategyConfiguration()
    word = name.strip().lower()
    for kind in _KINDS:
        if word in kind.names:
            return kind.read(configuration)
    known = ", ".join(kind.names[0] for kind in _KINDS)
    message = f"restart-strategy.type: there is no strategy {name!r}; use one of {known}"
    raise ConfigurationError(message)


def put_restart_strategy(
    configuration: Configuration, strategy: RestartStrategyConfiguration
) -> None:
    """Write a strategy into a configuration; ``fall_back_restart()`` removes the setting."""
    if isinstance(strategy, FallbackRestartStrategyConfiguration):
        _TYPE.clear(configuration)
        return
    kind = next((kind for kind in _KINDS if isinstance(strategy, kind.made)), None)
    if kind is None:
        message = (
            "a restart strategy must be created by RestartStrategies; "
            f"got {type(strategy).__name__}"
        )
        raise TypeError(message)
    kind.put(configuration, strategy)
