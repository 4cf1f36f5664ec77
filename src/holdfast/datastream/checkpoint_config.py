"""Settings of a job's checkpoints: `CheckpointConfig`, a view of a `Configuration`."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeAlias

from holdfast.common import Configuration, Duration
from holdfast.common.options.checkpoints import CHECKPOINT_INTERVAL, is_checkpointing_enabled
from holdfast.common.options.setting import Setting, choice, count, duration, flag
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


_MODE: Final = choice(
    "execution.checkpointing.mode", CheckpointingMode, CheckpointingMode.EXACTLY_ONCE
)
_RETENTION: Final = choice(
    "execution.checkpointing.externalized-checkpoint-retention",
    ExternalizedCheckpointRetention,
    ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
)
_TIMEOUT: Final = duration("execution.checkpointing.timeout", timedelta(minutes=10), _SHORTEST)
_MIN_PAUSE: Final = duration("execution.checkpointing.min-pause", timedelta())
_CONCURRENT: Final = count("execution.checkpointing.max-concurrent-checkpoints", 1, 1)
_FAILURES: Final = count("execution.checkpointing.tolerable-failed-checkpoints", 0, 0)
_RETAINED: Final = count(
    "execution.checkpointing.num-retained", 1, 1, ("state.checkpoints.num-retained",)
)
_UNALIGNED: Final = flag(
    "execution.checkpointing.unaligned.enabled", older=("execution.checkpointing.unaligned",)
)
_FORCED: Final = flag("execution.checkpointing.unaligned.forced")
_ALIGNMENT: Final = duration(
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

        On the epochs engine, checkpoints are never more frequent than epochs.
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
        """Return the time from the end of a checkpoint to the start of the next; by default 0."""
        return to_millis(_MIN_PAUSE.get(self._configuration))

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be in progress at once."""
        return self._put(_CONCURRENT, max_concurrent_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in progress at once; the default is 1."""
        return _CONCURRENT.get(self._configuration)

    # How

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the guarantee of checkpoints."""
        return self._put(_MODE, checkpointing_mode)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints; the default is `CheckpointingMode.EXACTLY_ONCE`."""
        return _MODE.get(self._configuration)

    def set_checkpointing_consistency_mode(
        self, checkpointing_mode: CheckpointingMode
    ) -> CheckpointConfig:
        """Set the guarantee of checkpoints; Flink's newer name."""
        return self.set_checkpointing_mode(checkpointing_mode)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints; Flink's newer name."""
        return self.get_checkpointing_mode()

    def set_checkpoint_timeout(self, checkpoint_timeout: DurationLike) -> CheckpointConfig:
        """Set the timeout of a checkpoint: at least 10 ms."""
        return self._put(_TIMEOUT, checkpoint_timeout)

    def get_checkpoint_timeout(self) -> int:
        """Return the timeout of a checkpoint; the default is 600 000."""
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
        """Set where checkpoints are stored: a storage, or a directory."""
        if isinstance(storage, str | os.PathLike):
            storage = FileSystemCheckpointStorage(path_of(storage))
        put_storage(self._configuration, storage)
        return self

    def set_checkpoint_storage_dir(
        self, checkpoint_path: str | os.PathLike[str]
    ) -> CheckpointConfig:
        """Store checkpoints in a directory that the driver and all executors can access."""
        return self.set_checkpoint_storage(checkpoint_path)

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return the checkpoint storage, or None if it is not set."""
        return storage_of(self._configuration)

    def get_checkpoint_directory(self) -> str | None:
        """Return the directory of checkpoints, or None for the directory of the running job."""
        storage_of(self._configuration)  # to name what is wrong with it, if anything is
        return DIRECTORY.find(self._configuration)

    def get_savepoint_directory(self) -> str | None:
        """Return the default directory of savepoints."""
        return SAVEPOINT_DIRECTORY.find(self._configuration)

    def set_max_retained_checkpoints(self, max_retained_checkpoints: int) -> CheckpointConfig:
        """Set how many completed checkpoints are kept; the oldest are deleted first."""
        return self._put(_RETAINED, max_retained_checkpoints)

    def get_max_retained_checkpoints(self) -> int:
        """Return how many completed checkpoints are kept; the default is 1."""
        return _RETAINED.get(self._configuration)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are kept or deleted when the job is cancelled."""
        return self._put(_RETENTION, retention_mode)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return whether checkpoints are kept or deleted when the job is cancelled."""
        return _RETENTION.get(self._configuration)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether a retention other than the default is set."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def enable_externalized_checkpoints(
        self, cleanup_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are kept when the job is cancelled; older."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_cleanup(
        self, cleanup_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are kept when the job is cancelled; older."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointRetention:
        """Return whether checkpoints are kept when the job is cancelled; older."""
        return self.get_externalized_checkpoint_retention()

    # Unaligned checkpoints: settings are accepted, without effect on both engines.

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accept the setting, without effect: checkpoints are never unaligned."""
        return self._put(_UNALIGNED, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accept the setting, without effect: see `enable_unaligned_checkpoints`."""
        return self.enable_unaligned_checkpoints(False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return the setting."""
        return _UNALIGNED.get(self._configuration)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: DurationLike) -> CheckpointConfig:
        """Accept the setting, without effect: see `enable_unaligned_checkpoints`."""
        return self._put(_ALIGNMENT, alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return the setting."""
        return Duration.of_millis(to_millis(_ALIGNMENT.get(self._configuration)))

    def set_alignment_timeout(self, alignment_timeout: DurationLike) -> CheckpointConfig:
        """Accept the setting, without effect; older: `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Return the setting; the older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Accept the setting, without effect: see `enable_unaligned_checkpoints`."""
        return self._put(_FORCED, force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the setting."""
        return _FORCED.get(self._configuration)

    def _put(self, setting: Setting[Any], value: object) -> CheckpointConfig:
        setting.put(self._configuration, value)
        return self

    def __repr__(self) -> str:
        return f"CheckpointConfig({self._configuration!r})"
