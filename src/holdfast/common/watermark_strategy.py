"""How timestamps and watermarks come into being: configuration only, the runtime acts on it.

A `WatermarkStrategy` is immutable: each ``with_...`` returns a new one and keeps the rest. What
generates the watermarks is one of `NoWatermarks`, `BoundedOutOfOrderness` (with a delay of zero for
monotonous timestamps) and `CustomGenerator`; each makes generators, one per subtask.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from holdfast.common.constants import MIN_LONG_VALUE
from holdfast.common.time import DurationLike, format_duration, to_millis, to_timedelta
from holdfast.common.watermark_generators import (
    BoundedOutOfOrdernessWatermarks,
    NoWatermarksGenerator,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarksWithIdleness,
)

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
NO_TIMESTAMP: Final = MIN_LONG_VALUE


class TimestampAssigner(ABC):
    """Gives each record its event time; called once per record, in the workers."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of the record in milliseconds since the epoch.

        ``record_timestamp`` is the timestamp the record has so far, from its source or an earlier
        assigner; -2**63 if it has none.
        """


@dataclass(frozen=True)
class NoWatermarks:
    """No watermarks at all, for jobs that go by processing time."""

    def create(self) -> WatermarkGenerator:
        """Return a generator for one subtask."""
        return NoWatermarksGenerator()


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """Watermarks that follow the largest timestamp seen at a fixed distance."""

    delay: timedelta

    def __post_init__(self) -> None:
        _not_negative("max_out_of_orderness", self.delay)

    def create(self) -> WatermarkGenerator:
        """Return a generator for one subtask."""
        return BoundedOutOfOrdernessWatermarks(to_millis(self.delay))


@dataclass(frozen=True)
class CustomGenerator:
    """Watermarks by generators of the user, made by ``factory`` in each subtask."""

    factory: Callable[[], WatermarkGenerator]

    def create(self) -> WatermarkGenerator:
        """Return a generator for one subtask.

        Raises:
            TypeError: when the factory returns something else.
        """
        made = self.factory()
        # An object with the methods will do: PyFlink's users know no base class for it.
        if hasattr(made, "on_event") and hasattr(made, "on_periodic_emit"):
            return made
        message = (
            "the function given to WatermarkStrategy.for_generator must return a "
            "WatermarkGenerator, with on_event and on_periodic_emit; "
            f"{self.factory!r} returned {type(made).__name__}: {made!r}"
        )
        raise TypeError(message)


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
        """Return a strategy for timestamps that never go back within a subtask."""
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
        called in the workers, once per subtask.
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
        """Return this strategy, where an input silent for that long no longer holds others up."""
        timeout = to_timedelta(idle_timeout)
        _positive("idle_timeout", timeout)
        return replace(self, idle_timeout=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """Return this strategy with a bound on how far a source may be ahead of its group.

        A subtask of a source is not read while its watermark is more than
        ``max_allowed_watermark_drift`` ahead of the lowest watermark in the group; nor is a
        partition of a Kafka topic. Subtasks that are idle or have ended do not count. All sources
        of a job whose strategies name the same ``watermark_group`` belong to the group.

        It works for the sources of ``from_source``; elsewhere a strategy with an alignment is
        refused. Watermarks are compared after every epoch, so ``update_interval`` (by default one
        second) has no effect.
        """
        interval = (
            timedelta(seconds=1) if update_interval is None else to_timedelta(update_interval)
        )
        drift = to_timedelta(max_allowed_watermark_drift)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))

    def create_generator(self, clock: Callable[[], int]) -> WatermarkGenerator:
        """Return a generator for one subtask; the clock, in milliseconds, tells when it is idle."""
        generator = self.generator.create()
        if self.idle_timeout is None:
            return generator
        return WatermarksWithIdleness(generator, to_millis(self.idle_timeout), clock)


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
