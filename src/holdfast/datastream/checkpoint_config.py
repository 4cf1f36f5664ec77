"""Settings of a job's checkpoints: `CheckpointConfig`, a set of doors into a `Configuration`."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeAlias

from holdfast.common import ConfigOptions, Configuration, Duration
from holdfast.common._settings import (
    CHECKPOINT_INTERVAL,
    Setting,
    choice,
    is_checkpointing_enabled,
)
from holdfast.common.time import DurationLike, format_duration, to_millis, to_timedelta
from holdfast.datastream.checkpoint_storage import (
    DIRECTORY,
    SAVEPOINT_DIRECTORY,
    CheckpointStorage,
    FileSystemCheckpointStorage,
    path_of,
    put_storage,
    storage_of,
)
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention

__all__ = ["CheckpointConfig", "ExternalizedCheckpointCleanup"]

ExternalizedCheckpointCleanup: TypeAlias = ExternalizedCheckpointRetention
"""The older name of `ExternalizedCheckpointRetention`."""

_SHORTEST: Final = timedelta(milliseconds=10)
_ANY_FAILURES: Final = 2**31 - 1


def _length(
    key: str, default: timedelta, least: timedelta = timedelta(), older: tuple[str, ...] = ()
) -> Setting[timedelta]:
    return Setting(ConfigOptions.key(key).duration_type().default_value(default), older, least)


def _count(key: str, default: int, least: int, older: tuple[str, ...] = ()) -> Setting[int]:
    return Setting(ConfigOptions.key(key).int_type().default_value(default), older, least)


def _switch(key: str, older: tuple[str, ...] = ()) -> Setting[bool]:
    return Setting(ConfigOptions.key(key).boolean_type().default_value(False), older)


_MODE: Final = choice(
    "execution.checkpointing.mode", CheckpointingMode, CheckpointingMode.EXACTLY_ONCE
)
_RETENTION: Final = choice(
    "execution.checkpointing.externalized-checkpoint-retention",
    ExternalizedCheckpointRetention,
    ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
)
_TIMEOUT: Final = _length("execution.checkpointing.timeout", timedelta(minutes=10), _SHORTEST)
_MIN_PAUSE: Final = _length("execution.checkpointing.min-pause", timedelta())
_CONCURRENT: Final = _count("execution.checkpointing.max-concurrent-checkpoints", 1, 1)
_FAILURES: Final = _count("execution.checkpointing.tolerable-failed-checkpoints", 0, 0)
_RETAINED: Final = _count(
    "execution.checkpointing.num-retained", 1, 1, ("state.checkpoints.num-retained",)
)
_UNALIGNED: Final = _switch(
    "execution.checkpointing.unaligned.enabled", ("execution.checkpointing.unaligned",)
)
_FORCED: Final = _switch("execution.checkpointing.unaligned.forced")
_ALIGNMENT: Final = _length(
    "execution.checkpointing.aligned-checkpoint-timeout",
    timedelta(),
    older=("execution.checkpointing.alignment-timeout",),
)


class CheckpointConfig:
    """How checkpoints are taken; every setting is an entry of the `Configuration` underneath.

    Lengths of time are taken as any duration, an int counting milliseconds, and returned in
    milliseconds, as in PyFlink.
    """

    ExternalizedCheckpointCleanup: ClassVar = ExternalizedCheckpointRetention

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    # When

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval is set."""
        return is_checkpointing_enabled(self._configuration)

    def set_checkpoint_interval(self, checkpoint_interval: DurationLike) -> CheckpointConfig:
        """Set the time between the starts of two checkpoints: at least 10 ms.

        A checkpoint is taken at the end of an epoch, so they are never closer than epochs are.
        """
        interval = to_timedelta(checkpoint_interval)
        if interval < _SHORTEST:
            message = (
                f"the interval of checkpoints must be at least {format_duration(_SHORTEST)}; "
                f"got {format_duration(interval)}"
            )
            raise ValueError(message)
        return self._put(CHECKPOINT_INTERVAL, interval)

    def get_checkpoint_interval(self) -> int:
        """Return the time between the starts of two checkpoints, -1 if there are none."""
        interval = CHECKPOINT_INTERVAL.find(self._configuration)
        if interval is None or not self.is_checkpointing_enabled():
            return -1
        return max(1, to_millis(interval))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: DurationLike
    ) -> CheckpointConfig:
        """Set the time from the end of a checkpoint to the start of the next."""
        return self._put(_MIN_PAUSE, min_pause_between_checkpoints)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the time from the end of a checkpoint to the start of the next; 0 unless set."""
        return to_millis(_MIN_PAUSE.get(self._configuration))

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be under way at once."""
        return self._put(_CONCURRENT, max_concurrent_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be under way at once; 1 unless set."""
        return _CONCURRENT.get(self._configuration)

    # How

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set what a checkpoint promises."""
        return self._put(_MODE, checkpointing_mode)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return what a checkpoint promises; `CheckpointingMode.EXACTLY_ONCE` unless set."""
        return _MODE.get(self._configuration)

    def set_checkpointing_consistency_mode(
        self, checkpointing_mode: CheckpointingMode
    ) -> CheckpointConfig:
        """Set what a checkpoint promises; Flink's newer name."""
        return self.set_checkpointing_mode(checkpointing_mode)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return what a checkpoint promises; Flink's newer name."""
        return self.get_checkpointing_mode()

    def set_checkpoint_timeout(self, checkpoint_timeout: DurationLike) -> CheckpointConfig:
        """Set after what time a checkpoint is given up: at least 10 ms."""
        return self._put(_TIMEOUT, checkpoint_timeout)

    def get_checkpoint_timeout(self) -> int:
        """Return after what time a checkpoint is given up; 600 000 unless set."""
        return to_millis(_TIMEOUT.get(self._configuration))

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail before the job does."""
        return self._put(_FAILURES, tolerable_checkpoint_failure_number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints in a row may fail before the job does; 0 unless set."""
        return _FAILURES.get(self._configuration)

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Let the first failed checkpoint fail the job, or none; older."""
        return self._put(_FAILURES, 0 if fail_on_checkpointing_errors else _ANY_FAILURES)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first failed checkpoint fails the job; older."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    # Where, and for how long

    def set_checkpoint_storage(
        self, storage: CheckpointStorage | str | os.PathLike[str]
    ) -> CheckpointConfig:
        """Set where checkpoints are kept: a storage, or a directory."""
        if isinstance(storage, str | os.PathLike):
            storage = FileSystemCheckpointStorage(path_of(storage))
        put_storage(self._configuration, storage)
        return self

    def set_checkpoint_storage_dir(
        self, checkpoint_path: str | os.PathLike[str]
    ) -> CheckpointConfig:
        """Keep checkpoints in a directory that the driver and all executors see."""
        return self.set_checkpoint_storage(checkpoint_path)

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return where checkpoints are kept, or None if that is not set."""
        return storage_of(self._configuration)

    def get_checkpoint_directory(self) -> str | None:
        """Return the directory of checkpoints, or None for the directory of the running job."""
        storage_of(self._configuration)  # to name what is wrong with it, if anything is
        return DIRECTORY.find(self._configuration)

    def get_savepoint_directory(self) -> str | None:
        """Return where savepoints go that are taken without naming a directory."""
        return SAVEPOINT_DIRECTORY.find(self._configuration)

    def set_max_retained_checkpoints(self, max_retained_checkpoints: int) -> CheckpointConfig:
        """Set how many completed checkpoints are kept; the oldest go first."""
        return self._put(_RETAINED, max_retained_checkpoints)

    def get_max_retained_checkpoints(self) -> int:
        """Return how many completed checkpoints are kept; 1 unless set."""
        return _RETAINED.get(self._configuration)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set what becomes of checkpoints when the job is cancelled."""
        return self._put(_RETENTION, retention_mode)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return what becomes of checkpoints when the job is cancelled."""
        return _RETENTION.get(self._configuration)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether a retention other than the default is set."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def enable_externalized_checkpoints(
        self, cleanup_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set what becomes of checkpoints when the job is cancelled; older."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_cleanup(
        self, cleanup_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set what becomes of checkpoints when the job is cancelled; older."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointRetention:
        """Return what becomes of checkpoints when the job is cancelled; older."""
        return self.get_externalized_checkpoint_retention()

    # Alignment: noted, without effect. A barrier is the end of an epoch, and by then no record
    # is on its way: there is nothing to align, and nothing to overtake.

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Noted, without effect: a barrier is the end of an epoch, so nothing is aligned."""
        return self._put(_UNALIGNED, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Noted, without effect: see `enable_unaligned_checkpoints`."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was noted."""
        return _UNALIGNED.get(self._configuration)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: DurationLike) -> CheckpointConfig:
        """Noted, without effect: see `enable_unaligned_checkpoints`."""
        return self._put(_ALIGNMENT, alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return what was noted."""
        return Duration.of_millis(to_millis(_ALIGNMENT.get(self._configuration)))

    def set_alignment_timeout(self, alignment_timeout: DurationLike) -> CheckpointConfig:
        """Noted, without effect; the older name of `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Return what was noted; the older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Noted, without effect: see `enable_unaligned_checkpoints`."""
        return self._put(_FORCED, force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was noted."""
        return _FORCED.get(self._configuration)

    def _put(self, setting: Setting[Any], value: object) -> CheckpointConfig:
        setting.put(self._configuration, value)
        return self

    def __repr__(self) -> str:
        return f"CheckpointConfig({self._configuration!r})"
