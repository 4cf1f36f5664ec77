"""Restart strategies: the configuration only; `holdfast.checkpoint` implements them.

Delays can be any duration (see `holdfast.common.time`) and are stored as `timedelta`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from holdfast.common.time import DurationLike, format_duration, to_timedelta

__all__ = [
    "ExponentialDelayRestartStrategyConfiguration",
    "FailureRateRestartStrategyConfiguration",
    "FallbackRestartStrategyConfiguration",
    "FixedDelayRestartStrategyConfiguration",
    "NoRestartStrategyConfiguration",
    "RestartStrategies",
    "RestartStrategyConfiguration",
]


class RestartStrategyConfiguration(ABC):
    """The base of all restart strategies."""

    @abstractmethod
    def get_description(self) -> str:
        """Return the description that the web UI shows."""


@dataclass(frozen=True)
class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
    """No restart: the first failure fails the job."""

    def get_description(self) -> str:
        """Return the description that the web UI shows."""
        return "Restart deactivated."


@dataclass(frozen=True)
class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
    """The strategy that the configuration (``restart-strategy.type``) sets."""

    def get_description(self) -> str:
        """Return the description that the web UI shows."""
        return "Cluster level default restart strategy"


@dataclass(frozen=True)
class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """A limited number of restarts, each after the same delay."""

    restart_attempts: int
    delay_between_attempts_interval: timedelta

    def __post_init__(self) -> None:
        _at_least("restart_attempts", self.restart_attempts, 0)
        _durations(self, "delay_between_attempts_interval")

    def get_restart_attempts(self) -> int:
        """Return how often the job may be restarted."""
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        """Return the delay before a restart."""
        return self.delay_between_attempts_interval

    def get_description(self) -> str:
        """Return the description that the web UI shows."""
        delay = format_duration(self.delay_between_attempts_interval)
        return f"Restart with fixed delay ({delay}). #{self.restart_attempts} restart attempts."


@dataclass(frozen=True)
class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts as long as failures do not exceed a rate."""

    max_failure_rate: int
    failure_interval: timedelta
    delay_between_attempts_interval: timedelta

    def __post_init__(self) -> None:
        _at_least("max_failure_rate", self.max_failure_rate, 1)
        _durations(self, "failure_interval", "delay_between_attempts_interval")

    def get_max_failure_rate(self) -> int:
        """Return how many failures within the interval are tolerated."""
        return self.max_failure_rate

    def get_failure_interval(self) -> timedelta:
        """Return the interval over which failures are counted."""
        return self.failure_interval

    def get_delay_between_attempts_interval(self) -> timedelta:
        """Return the delay before a restart."""
        return self.delay_between_attempts_interval

    def get_description(self) -> str:
        """Return the description that the web UI shows."""
        return (
            f"Failure rate restart with maximum of {self.max_failure_rate} failures within "
            f"interval {format_duration(self.failure_interval)} and fixed delay "
            f"{format_duration(self.delay_between_attempts_interval)}."
        )


@dataclass(frozen=True)
class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts after delays that grow until the job has run without failure for a while.

    Attributes:
        attempts_before_reset_backoff: the number of failures without a reset after which the job
            fails; None to restart forever.
    """

    initial_backoff: timedelta
    max_backoff: timedelta
    backoff_multiplier: float
    reset_backoff_threshold: timedelta
    jitter_factor: float
    attempts_before_reset_backoff: int | None = None

    def __post_init__(self) -> None:
        _durations(self, "initial_backoff", "max_backoff", "reset_backoff_threshold")
        if self.attempts_before_reset_backoff is not None:
            _at_least("attempts_before_reset_backoff", self.attempts_before_reset_backoff, 1)
        _at_least("backoff_multiplier", self.backoff_multiplier, 1)
        if self.max_backoff < self.initial_backoff:
            longest, first = (
                format_duration(self.max_backoff),
                format_duration(self.initial_backoff),
            )
            message = f"max_backoff must be at least initial_backoff; got {longest} and {first}"
            raise ValueError(message)
        if not 0 <= self.jitter_factor <= 1:
            message = f"jitter_factor must be between 0 and 1; got {self.jitter_factor!r}"
            raise ValueError(message)

    def get_description(self) -> str:
        """Return the description that the web UI shows."""
        return (
            f"Restart with exponential delay: starting at {format_duration(self.initial_backoff)}, "
            f"increasing by {self.backoff_multiplier}, with maximum "
            f"{format_duration(self.max_backoff)}. Delay resets after "
            f"{format_duration(self.reset_backoff_threshold)} with jitter {self.jitter_factor}."
        )


class RestartStrategies:
    """Creates restart strategies."""

    NoRestartStrategyConfiguration: TypeAlias = NoRestartStrategyConfiguration
    FallbackRestartStrategyConfiguration: TypeAlias = FallbackRestartStrategyConfiguration
    FixedDelayRestartStrategyConfiguration: TypeAlias = FixedDelayRestartStrategyConfiguration
    FailureRateRestartStrategyConfiguration: TypeAlias = FailureRateRestartStrategyConfiguration
    ExponentialDelayRestartStrategyConfiguration: TypeAlias = (
        ExponentialDelayRestartStrategyConfiguration
    )

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """Fail the job at its first failure."""
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Use the strategy of the configuration."""
        return FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: DurationLike
    ) -> FixedDelayRestartStrategyConfiguration:
        """Restart at most that many times, each after the delay."""
        return FixedDelayRestartStrategyConfiguration(
            restart_attempts, to_timedelta(delay_between_attempts)
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: DurationLike, delay_interval: DurationLike
    ) -> FailureRateRestartStrategyConfiguration:
        """Restart after the delay unless there are more failures than that within the interval."""
        return FailureRateRestartStrategyConfiguration(
            failure_rate, to_timedelta(failure_interval), to_timedelta(delay_interval)
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: DurationLike = 1_000,
        max_backoff: DurationLike = 60_000,
        backoff_multiplier: float = 1.5,
        reset_backoff_threshold: DurationLike = 3_600_000,
        jitter_factor: float = 0.1,
        attempts_before_reset_backoff: int | None = None,
    ) -> ExponentialDelayRestartStrategyConfiguration:
        """Restart; each delay is the previous one times the multiplier, up to a maximum.

        Restarts continue forever, or end after a number of failures without a reset. After the job
        has run without failure for the threshold, the delay is reset. Each delay is lengthened or
        shortened at random by at most the jitter factor of itself.
        """
        return ExponentialDelayRestartStrategyConfiguration(
            to_timedelta(initial_backoff),
            to_timedelta(max_backoff),
            backoff_multiplier,
            to_timedelta(reset_backoff_threshold),
            jitter_factor,
            attempts_before_reset_backoff,
        )


def _durations(config: RestartStrategyConfiguration, *names: str) -> None:
    for name in names:
        value = to_timedelta(getattr(config, name))
        if value < timedelta():
            message = f"{name} must not be negative; got {format_duration(value)}"
            raise ValueError(message)
        object.__setattr__(config, name, value)


def _at_least(name: str, value: float, least: int) -> None:
    if value < least:
        message = f"{name} must be at least {least}; got {value!r}"
        raise ValueError(message)
