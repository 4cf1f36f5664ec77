"""`StateTtlConfig`: the time-to-live (TTL) of state. Configuration only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

from holdfast.common.time import Duration, DurationLike, Time, to_millis, to_timedelta


class TtlUpdateType(Enum):
    """The kinds of access that refresh the TTL."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2

    DISABLED = 0
    ON_CREATE_AND_WRITE = 1
    ON_READ_AND_WRITE = 2


class TtlVisibility(Enum):
    """Whether state that has expired but is not yet cleaned up can still be read."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1

    RETURN_EXPIRED_IF_NOT_CLEANED_UP = 0
    NEVER_RETURN_EXPIRED = 1


class TtlClock(Enum):
    """The clock that the TTL is measured with."""

    ProcessingTime = 0

    PROCESSING_TIME = 0


class TtlCleanup(Enum):
    """The clean-up strategies, as keys of `CleanupStrategies`."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class TtlCleanupSettings:
    """Base of the settings of a clean-up strategy; they are compared by their contents."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__qualname__, *vars(self).values()))


class EmptyCleanup(TtlCleanupSettings):
    """A clean-up strategy without settings."""


class IncrementalCleanup(TtlCleanupSettings):
    """Clean up a few entries at each access."""

    def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
        self._cleanup_size = cleanup_size
        self._run_cleanup_for_every_record = run_cleanup_for_every_record

    def get_cleanup_size(self) -> int:
        """Return how many entries are checked each time."""
        return self._cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Return whether to clean up for every record, not only when state is accessed."""
        return self._run_cleanup_for_every_record


class RocksdbCompactFilterCleanup(TtlCleanupSettings):
    """Drop expired entries when state is compacted."""

    def __init__(
        self,
        query_time_after_num_entries: int,
        periodic_compaction_time: DurationLike | None = None,
    ) -> None:
        self._query_time_after_num_entries = query_time_after_num_entries
        self._periodic_compaction_time = _duration(periodic_compaction_time)

    def get_query_time_after_num_entries(self) -> int:
        """Return after how many entries the clock is read again."""
        return self._query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Duration:
        """Return the longest time between two compactions."""
        return self._periodic_compaction_time


class TtlCleanups:
    """When expired state is removed, in addition to removal on read."""

    Strategies = TtlCleanup
    CleanupStrategy = TtlCleanupSettings
    EmptyCleanupStrategy = EmptyCleanup
    IncrementalCleanupStrategy = IncrementalCleanup
    RocksdbCompactFilterCleanupStrategy = RocksdbCompactFilterCleanup
    EMPTY_STRATEGY = EmptyCleanup()

    def __init__(
        self, strategies: Mapping[TtlCleanup, TtlCleanupSettings], is_cleanup_in_background: bool
    ) -> None:
        self._strategies = dict(strategies)
        self._is_cleanup_in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Return whether the backend's default clean-up is on."""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Return whether expired entries are left out of full snapshots."""
        return TtlCleanup.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanup | None:
        """Return the incremental settings; the default ones if clean-up runs in the background."""
        given = self._strategies.get(TtlCleanup.INCREMENTAL_CLEANUP)
        if isinstance(given, IncrementalCleanup):
            return given
        return IncrementalCleanup(5, False) if self._is_cleanup_in_background else None

    def get_rocksdb_compact_filter_cleanup_strategy(
        self,
    ) -> RocksdbCompactFilterCleanup | None:
        """Return the compaction settings; the default ones if clean-up runs in the background."""
        given = self._strategies.get(TtlCleanup.ROCKSDB_COMPACTION_FILTER)
        if isinstance(given, RocksdbCompactFilterCleanup):
            return given
        in_background = self._is_cleanup_in_background
        return RocksdbCompactFilterCleanup(1000) if in_background else None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((frozenset(self._strategies.items()), self._is_cleanup_in_background))


class TtlConfigBuilder:
    """Builds a `StateTtlConfig`; every method returns the builder."""

    def __init__(self, ttl: DurationLike) -> None:
        self._ttl = _time(ttl)
        self._update_type = TtlUpdateType.OnCreateAndWrite
        self._state_visibility = TtlVisibility.NeverReturnExpired
        self._ttl_time_characteristic = TtlClock.ProcessingTime
        self._is_cleanup_in_background = True
        self._strategies: dict[TtlCleanup, TtlCleanupSettings] = {}

    def set_update_type(self, update_type: TtlUpdateType) -> TtlConfigBuilder:
        """Set the kinds of access that refresh the TTL."""
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> TtlConfigBuilder:
        """Refresh the TTL on each write (the default)."""
        return self.set_update_type(TtlUpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> TtlConfigBuilder:
        """Refresh the TTL on each read as well."""
        return self.set_update_type(TtlUpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: TtlVisibility) -> TtlConfigBuilder:
        """Set whether expired state can be read until it is cleaned up."""
        self._state_visibility = state_visibility
        return self

    def return_expired_if_not_cleaned_up(self) -> TtlConfigBuilder:
        """Return expired state until it is cleaned up."""
        return self.set_state_visibility(TtlVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> TtlConfigBuilder:
        """Never return expired state (the default)."""
        return self.set_state_visibility(TtlVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlClock) -> TtlConfigBuilder:
        """Set the clock that the TTL is measured with."""
        self._ttl_time_characteristic = ttl_time_characteristic
        return self

    def use_processing_time(self) -> TtlConfigBuilder:
        """Measure in processing time (the default, and the only choice)."""
        return self.set_ttl_time_characteristic(TtlClock.ProcessingTime)

    def cleanup_full_snapshot(self) -> TtlConfigBuilder:
        """Leave expired entries out of full snapshots."""
        return self._clean_up(TtlCleanup.FULL_STATE_SCAN_SNAPSHOT, EmptyCleanup())

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool
    ) -> TtlConfigBuilder:
        """Check ``cleanup_size`` entries at each access, or also for every record."""
        strategy = IncrementalCleanup(cleanup_size, run_cleanup_for_every_record)
        return self._clean_up(TtlCleanup.INCREMENTAL_CLEANUP, strategy)

    def cleanup_in_rocksdb_compact_filter(
        self,
        query_time_after_num_entries: int,
        periodic_compaction_time: DurationLike | None = None,
    ) -> TtlConfigBuilder:
        """Remove expired entries from the files when the state is compacted.

        This works with both backends. RocksDB compacts when as many bytes were written as its
        tables hold, the heap backend when it writes a new base. Both also compact when the period
        has passed since the last compaction.

        Args:
            query_time_after_num_entries: read the clock again after this many entries.
            periodic_compaction_time: compact at least this often; 30 days by default, 0 for never.
        """
        strategy = RocksdbCompactFilterCleanup(
            query_time_after_num_entries, periodic_compaction_time
        )
        return self._clean_up(TtlCleanup.ROCKSDB_COMPACTION_FILTER, strategy)

    def disable_cleanup_in_background(self) -> TtlConfigBuilder:
        """Turn off the backend's default clean-up; strategies that were set stay on."""
        self._is_cleanup_in_background = False
        return self

    def set_ttl(self, ttl: DurationLike) -> TtlConfigBuilder:
        """Set the TTL."""
        self._ttl = _time(ttl)
        return self

    def build(self) -> StateTtlConfig:
        """Return the configuration."""
        return StateTtlConfig(
            self._update_type,
            self._state_visibility,
            self._ttl_time_characteristic,
            self._ttl,
            TtlCleanups(self._strategies, self._is_cleanup_in_background),
        )

    def _clean_up(self, key: TtlCleanup, strategy: TtlCleanupSettings) -> TtlConfigBuilder:
        self._strategies[key] = strategy
        return self


class StateTtlConfig:
    """The time-to-live of state after its last access, and what happens to expired state.

    >>> config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
    >>> config.get_update_type().name, config.get_ttl()
    ('OnReadAndWrite', Time(3600000 ms))
    """

    UpdateType = TtlUpdateType
    StateVisibility = TtlVisibility
    TtlTimeCharacteristic = TtlClock
    CleanupStrategies = TtlCleanups
    Builder = TtlConfigBuilder

    def __init__(
        self,
        update_type: TtlUpdateType,
        state_visibility: TtlVisibility,
        ttl_time_characteristic: TtlClock,
        ttl: DurationLike,
        cleanup_strategies: TtlCleanups,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = _time(ttl)
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: DurationLike) -> TtlConfigBuilder:
        """Return a builder; ``ttl`` may be a Time, a timedelta, milliseconds, or "10 s"."""
        return TtlConfigBuilder(ttl)

    def get_update_type(self) -> TtlUpdateType:
        """Return the kinds of access that refresh the TTL."""
        return self._update_type

    def get_state_visibility(self) -> TtlVisibility:
        """Return whether expired state can be read until it is cleaned up."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Return the TTL."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlClock:
        """Return the clock that the TTL is measured with."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Return whether state expires at all."""
        return self._update_type is not TtlUpdateType.Disabled

    def get_cleanup_strategies(self) -> TtlCleanups:
        """Return when expired state is removed."""
        return self._cleanup_strategies

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._update_type, self._state_visibility, self._ttl))

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig(ttl={self._ttl}, update_type={self._update_type.name}, "
            f"state_visibility={self._state_visibility.name}, "
            f"ttl_time_characteristic={self._ttl_time_characteristic.name})"
        )


def _time(ttl: DurationLike) -> Time:
    time = ttl if isinstance(ttl, Time) else Time.milliseconds(to_millis(ttl))
    if time.to_milliseconds() <= 0:
        message = f"the TTL of a state must be positive; got {ttl!r}"
        raise ValueError(message)
    return time


def _duration(period: DurationLike | None) -> Duration:
    if period is None:
        return Duration.of_days(30)
    if isinstance(period, Duration):
        return period
    return Duration.of_nanos(to_timedelta(period) // timedelta(microseconds=1) * 1000)
