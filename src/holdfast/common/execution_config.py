"""Settings of a job's execution: `ExecutionConfig`, stored in a `Configuration`.

PyFlink's settings of Java serializers and closures have no meaning here and are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from holdfast.common.config_options import ConfigOptions, to_text
from holdfast.common.configuration import Configuration
from holdfast.common.options.setting import Setting, count, duration, flag
from holdfast.common.time import DurationLike, to_millis, to_timedelta

__all__ = ["ExecutionConfig"]

T = TypeVar("T")

_AUTO_UIDS: Final = flag("pipeline.auto-generate-uids", True)
_CANCEL_INTERVAL: Final = duration("task.cancellation.interval", timedelta(seconds=30), least=None)
_CANCEL_TIMEOUT: Final = duration("task.cancellation.timeout", timedelta(minutes=3), least=None)
_COMPRESSION: Final = flag("execution.checkpointing.snapshot-compression")
_GLOBAL_PARAMETERS: Final = Setting(
    ConfigOptions.key("pipeline.global-job-parameters").map_type().default_value({})
)
_LATENCY_INTERVAL: Final = duration("metrics.latency.interval", timedelta(), least=None)
_MAX_PARALLELISM: Final = count("pipeline.max-parallelism", -1)
_OBJECT_REUSE: Final = flag("pipeline.object-reuse")
_PARALLELISM: Final = count("parallelism.default", -1)
_WATERMARK_INTERVAL: Final = duration(
    "pipeline.auto-watermark-interval", timedelta(milliseconds=200), least=None
)


class ExecutionConfig:
    """The settings of a job's execution; each is an entry of the underlying `Configuration`.

    Intervals can be any duration and are returned in milliseconds, as in PyFlink.
    """

    PARALLELISM_DEFAULT: Final = -1
    """Use the default parallelism of the environment."""
    PARALLELISM_UNKNOWN: Final = -2
    """The parallelism is not known yet and must not be set."""

    MAX_PARALLELISM_LIMIT: Final = 1 << 15

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get_configuration(self) -> Configuration:
        """Return the underlying configuration, not a copy of it."""
        return self._configuration

    def set_auto_watermark_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how often watermarks are generated."""
        return self._set_interval(_WATERMARK_INTERVAL, interval)

    def get_auto_watermark_interval(self) -> int:
        """Return how often watermarks are generated, in milliseconds; 200 unless set."""
        return self._interval(_WATERMARK_INTERVAL)

    def set_latency_tracking_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how often latency is measured; zero means never."""
        return self._set_interval(_LATENCY_INTERVAL, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return how often latency is measured, in milliseconds."""
        return self._interval(_LATENCY_INTERVAL)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism of operators that do not set their own."""
        if parallelism < 1 and parallelism != self.PARALLELISM_DEFAULT:
            message = f"the parallelism must be at least 1; got {parallelism}"
            raise ValueError(message)
        return self._set(_PARALLELISM, parallelism)

    def get_parallelism(self) -> int:
        """Return the parallelism, `PARALLELISM_DEFAULT` unless set."""
        return self._get(_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups, which limits the parallelism permanently."""
        if not 0 < max_parallelism <= self.MAX_PARALLELISM_LIMIT:
            message = (
                f"the maximum parallelism must be in [1, {self.MAX_PARALLELISM_LIMIT}]; "
                f"got {max_parallelism}"
            )
            raise ValueError(message)
        return self._set(_MAX_PARALLELISM, max_parallelism)

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, -1 unless set."""
        return self._get(_MAX_PARALLELISM)

    def set_task_cancellation_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set the time between two attempts to cancel a task."""
        return self._set_interval(_CANCEL_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the time between two attempts to cancel a task, in milliseconds."""
        return self._interval(_CANCEL_INTERVAL)

    def set_task_cancellation_timeout(self, timeout: DurationLike) -> ExecutionConfig:
        """Set the time after which a task that is not cancelled is an error; zero for never."""
        return self._set_interval(_CANCEL_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return the timeout for the cancellation of a task, in milliseconds."""
        return self._interval(_CANCEL_TIMEOUT)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Derive the uid of an operator from its position in the graph unless it is given."""
        return self._set(_AUTO_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Require a uid on every operator, so that no state is lost by a change of the job."""
        return self._set(_AUTO_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether uids are derived unless given."""
        return self._get(_AUTO_UIDS)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Pass the same object to all operators of a chain."""
        return self._set(_OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Pass a separate object to each operator of a chain."""
        return self._set(_OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """Return whether operators of a chain share objects."""
        return self._get(_OBJECT_REUSE)

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, Any]
    ) -> ExecutionConfig:
        """Set the user's own parameters, which every function can read; values become text."""
        texts = {key: to_text(value) for key, value in global_job_parameters_dict.items()}
        return self._set(_GLOBAL_PARAMETERS, texts)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the user's own parameters."""
        parameters = self._get(_GLOBAL_PARAMETERS)
        return dict(parameters)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Set whether full snapshots are compressed."""
        return self._set(_COMPRESSION, use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """Return whether full snapshots are compressed."""
        return self._get(_COMPRESSION)

    def _set(self, setting: Setting[Any], value: Any) -> ExecutionConfig:
        self._configuration.set(setting.option, value)
        return self

    def _get(self, setting: Setting[T]) -> T:
        return setting.get(self._configuration)

    def _set_interval(self, setting: Setting[timedelta], interval: DurationLike) -> ExecutionConfig:
        value = to_timedelta(interval)
        if value < timedelta():
            message = f"{setting} must not be negative; got {interval!r}"
            raise ValueError(message)
        return self._set(setting, value)

    def _interval(self, setting: Setting[timedelta]) -> int:
        return to_millis(self._get(setting))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionConfig):
            return NotImplemented
        return self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._configuration!r})"
