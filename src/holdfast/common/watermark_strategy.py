"""How timestamps and watermarks come into being: configuration only, the runtime acts on it.

A `WatermarkStrategy` is immutable: each ``with_...`` returns a new one and keeps the rest. What
generates the watermarks is one of `NoWatermarks`, `BoundedOutOfOrderness` (with a delay of zero for
monotonous timestamps) and `CustomGenerator`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from holdfast.common.time import DurationLike, format_duration, to_timedelta

__all__ = [
    "NO_TIMESTAMP",
    "BoundedOutOfOrderness",
    "CustomGenerator",
    "GeneratorSpec",
    "NoWatermarks",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

#: what a timestamp assigner is given for a record that has no timestamp yet
NO_TIMESTAMP: Final = -(2**63)


class TimestampAssigner(ABC):
    """Gives each record its event time; called once per record, in the workers."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of the record in milliseconds since the epoch.

        ``record_timestamp`` is the timestamp the record has so far, from its source or an earlier
        assigner; -2**63 if it has none.
        """


class WatermarkOutput(ABC):
    """Where a `WatermarkGenerator` sends its watermarks."""

    @abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Say that no record at or before this timestamp is to come; going back is ignored."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Say that this input has nothing to send, so that others need not wait for it."""

    @abstractmethod
    def mark_active(self) -> None:
        """Say that this input sends again."""


class WatermarkGenerator(ABC):
    """Watermarks by the user's own rule; one object per source subtask, in the workers."""

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """See a record; a watermark may be sent for it."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Send the present watermark; called at the end of each epoch."""


@dataclass(frozen=True)
class NoWatermarks:
    """No watermarks at all, for jobs that go by processing time."""


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """Watermarks that follow the largest timestamp seen at a fixed distance."""

    delay: timedelta

    def __post_init__(self) -> None:
        _not_negative("max_out_of_orderness", self.delay)


@dataclass(frozen=True)
class CustomGenerator:
    """Watermarks by generators of the user, made by ``factory`` in each subtask."""

    factory: Callable[[], WatermarkGenerator]


GeneratorSpec: TypeAlias = NoWatermarks | BoundedOutOfOrderness | CustomGenerator


@dataclass(frozen=True)
class WatermarkAlignment:
    """How far a source may run ahead of the others of its group."""

    group: str
    max_drift: timedelta
    update_interval: timedelta

    def __post_init__(self) -> None:
        _not_negative("max_allowed_watermark_drift", self.max_drift)
        _positive("update_interval", self.update_interval)


@dataclass(frozen=True)
class WatermarkStrategy:
    """Who gives records their timestamps, and how watermarks follow from them."""

    generator: GeneratorSpec
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout: timedelta | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for timestamps that never go back within a source subtask."""
        return WatermarkStrategy(BoundedOutOfOrderness(timedelta()))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: DurationLike) -> WatermarkStrategy:
        """Return a strategy for records that come late by at most that much."""
        return WatermarkStrategy(BoundedOutOfOrderness(to_timedelta(max_out_of_orderness)))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy that makes no watermarks."""
        return WatermarkStrategy(NoWatermarks())

    @staticmethod
    def for_generator(
        generator_supplier: Callable[[], WatermarkGenerator],
    ) -> WatermarkStrategy:
        """Return a strategy of your own.

        ``generator_supplier`` is a `WatermarkGenerator` class or a function that makes one; it is
        called in the workers, once per source subtask.
        """
        return WatermarkStrategy(CustomGenerator(_callable(generator_supplier)))

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Return this strategy with timestamps from the assigner.

        A function of (value, record_timestamp) does as well as a `TimestampAssigner`.
        """
        return replace(self, timestamp_assigner=_assigner(timestamp_assigner))

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        """Return this strategy, where a source silent for that long no longer holds others up."""
        timeout = to_timedelta(idle_timeout)
        _positive("idle_timeout", timeout)
        return replace(self, idle_timeout=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """Return this strategy, where a source too far ahead of its group waits.

        The group's watermark is made known every ``update_interval``, one second unless told.
        """
        interval = (
            timedelta(seconds=1) if update_interval is None else to_timedelta(update_interval)
        )
        drift = to_timedelta(max_allowed_watermark_drift)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))


@dataclass(frozen=True)
class _FunctionAssigner(TimestampAssigner):
    function: Callable[[Any, int], int]

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self.function(value, record_timestamp)


def _callable(given: Any) -> Any:
    if callable(given):
        return given
    message = (
        "for_generator takes a WatermarkGenerator class or a function that makes one; "
        f"got {type(given).__name__}: {given!r}"
    )
    raise TypeError(message)


def _assigner(given: Any) -> Any:
    # An object with the method will do: PyFlink does not ask for the base class either.
    if hasattr(given, "extract_timestamp"):
        return given
    if callable(given):
        return _FunctionAssigner(given)
    message = (
        "a timestamp assigner is a TimestampAssigner or a function of (value, record_timestamp); "
        f"got {type(given).__name__}: {given!r}"
    )
    raise TypeError(message)


def _not_negative(name: str, value: timedelta) -> None:
    if value < timedelta():
        message = f"{name} must not be negative; got {format_duration(value)}"
        raise ValueError(message)


def _positive(name: str, value: timedelta) -> None:
    if value <= timedelta():
        message = f"{name} must be longer than zero; got {format_duration(value)}"
        raise ValueError(message)
