"""Strategies for timestamps and watermarks: configuration only, the runtime implements them.

A `WatermarkStrategy` is immutable: each ``with_...`` method returns a changed copy. The generator
of watermarks is one of `NoWatermarks`, `BoundedOutOfOrderness` (with a delay of zero for monotonous
timestamps) and `CustomGenerator`; each creates generators, one per subtask.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
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
    "ColumnTimestamps",
    "CustomGenerator",
    "GeneratorSpec",
    "NoWatermarks",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

#: the ``record_timestamp`` of a record that has no timestamp yet
NO_TIMESTAMP: Final = MIN_LONG_VALUE


class TimestampAssigner(ABC):
    """Assigns each record its event time; called once per record, in the workers."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of the record in milliseconds since the epoch.

        ``record_timestamp`` is the current timestamp of the record, from its source or an earlier
        assigner; -2**63 if it has none.
        """


@dataclass(frozen=True)
class NoWatermarks:
    """No watermarks, for jobs that use processing time."""

    def create(self) -> WatermarkGenerator:
        """Return a generator for one subtask."""
        return NoWatermarksGenerator()


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """Watermarks that follow the largest timestamp with a fixed delay."""

    delay: timedelta

    def __post_init__(self) -> None:
        _not_negative("max_out_of_orderness", self.delay)

    def create(self) -> WatermarkGenerator:
        """Return a generator for one subtask."""
        return BoundedOutOfOrdernessWatermarks(to_millis(self.delay))


@dataclass(frozen=True)
class CustomGenerator:
    """Watermarks of user-defined generators, created by ``factory`` in each subtask."""

    factory: Callable[[], WatermarkGenerator]

    def create(self) -> WatermarkGenerator:
        """Return a generator for one subtask.

        Raises:
            TypeError: if the factory returns something else.
        """
        made = self.factory()
        # Any object with these methods is accepted: PyFlink has no base class for it.
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
    """The limit of how far a source may be ahead of the others of its group."""

    group: str
    max_drift: timedelta
    update_interval: timedelta

    def __post_init__(self) -> None:
        _not_negative("max_allowed_watermark_drift", self.max_drift)
        _positive("update_interval", self.update_interval)


@dataclass(frozen=True)
class WatermarkStrategy:
    """How timestamps are assigned to records, and how watermarks are generated."""

    generator: GeneratorSpec
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout: timedelta | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for timestamps that never decrease within a subtask."""
        return WatermarkStrategy(BoundedOutOfOrderness(timedelta()))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: DurationLike) -> WatermarkStrategy:
        """Return a strategy for records that are late by at most this duration."""
        return WatermarkStrategy(BoundedOutOfOrderness(to_timedelta(max_out_of_orderness)))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy that generates no watermarks."""
        return WatermarkStrategy(NoWatermarks())

    @staticmethod
    def for_generator(
        generator_supplier: Callable[[], WatermarkGenerator],
    ) -> WatermarkStrategy:
        """Return a strategy with a user-defined generator.

        ``generator_supplier`` is a `WatermarkGenerator` class or a function that creates one; it is
        called in the workers, once per subtask.
        """
        return WatermarkStrategy(CustomGenerator(_callable(generator_supplier)))

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int] | str
    ) -> WatermarkStrategy:
        """Return this strategy with timestamps from the assigner.

        It may be a function of (value, record_timestamp), a `TimestampAssigner`, or the name of the
        column or field with the timestamps. A stream of batches keeps its batches only with a name.
        """
        return replace(self, timestamp_assigner=_assigner(timestamp_assigner))

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        """Return this strategy with inputs marked as idle after this time without records."""
        timeout = to_timedelta(idle_timeout)
        _positive("idle_timeout", timeout)
        return replace(self, idle_timeout=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """Return this strategy with a limit on how far a source may be ahead of its group.

        A subtask of a source is not read while its watermark is more than
        ``max_allowed_watermark_drift`` ahead of the lowest watermark in the group; nor is a
        partition of a Kafka topic. Subtasks that are idle or have ended do not count. All sources
        of a job whose strategies name the same ``watermark_group`` belong to the group.

        It works for the sources of ``from_source``; elsewhere a strategy with an alignment is
        rejected. Watermarks are compared after every epoch, so ``update_interval`` (by default one
        second) has no effect.
        """
        interval = (
            timedelta(seconds=1) if update_interval is None else to_timedelta(update_interval)
        )
        drift = to_timedelta(max_allowed_watermark_drift)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))

    def create_generator(self, clock: Callable[[], int]) -> WatermarkGenerator:
        """Return a generator for one subtask; ``clock``, in milliseconds, is used for idleness."""
        generator = self.generator.create()
        if self.idle_timeout is None:
            return generator
        return WatermarksWithIdleness(generator, to_millis(self.idle_timeout), clock)


@dataclass(frozen=True)
class _FunctionAssigner(TimestampAssigner):
    function: Callable[[Any, int], int]

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self.function(value, record_timestamp)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class ColumnTimestamps(TimestampAssigner):
    """Takes timestamps from a column of batches, or from that field of records."""

    column: str

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the field in milliseconds; a datetime without a time zone is UTC."""
        plain = isinstance(value, tuple) or not hasattr(value, "__getitem__")
        found = getattr(value, self.column) if plain else value[self.column]
        if not isinstance(found, datetime):
            return found  # type: ignore[no-any-return] # what is no int is refused
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND


def _callable(given: Any) -> Any:
    if callable(given):
        return given
    message = (
        "for_generator takes a WatermarkGenerator class or a function that creates one; "
        f"got {type(given).__name__}: {given!r}"
    )
    raise TypeError(message)


def _assigner(given: Any) -> Any:
    if isinstance(given, str):
        return ColumnTimestamps(given)
    # Any object with this method is accepted: PyFlink does not require the base class either.
    if hasattr(given, "extract_timestamp"):
        return given
    if callable(given):
        return _FunctionAssigner(given)
    message = (
        "a timestamp assigner is a TimestampAssigner or a function of (value, record_timestamp), "
        "or the name of a column; "
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
