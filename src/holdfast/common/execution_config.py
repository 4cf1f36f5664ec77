"""Settings of a job's execution: `ExecutionConfig`, a set of doors into a `Configuration`.

PyFlink's settings of Java serializers and closures have no meaning here and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from holdfast.common.config_options import ConfigOption, ConfigOptions, to_text
from holdfast.common.configuration import Configuration
from holdfast.common.time import DurationLike, to_millis, to_timedelta

__all__ = ["ExecutionConfig"]

T = TypeVar("T")

_AUTO_UIDS = ConfigOptions.key("pipeline.auto-generate-uids").boolean_type().default_value(True)
_CANCEL_INTERVAL = (
    ConfigOptions.key("task.cancellation.interval")
    .duration_type()
    .default_value(timedelta(seconds=30))
)
_CANCEL_TIMEOUT = (
    ConfigOptions.key("task.cancellation.timeout")
    .duration_type()
    .default_value(timedelta(minutes=3))
)
_COMPRESSION = (
    ConfigOptions.key("execution.checkpointing.snapshot-compression")
    .boolean_type()
    .default_value(False)
)
_GLOBAL_PARAMETERS = (
    ConfigOptions.key("pipeline.global-job-parameters").map_type().default_value({})
)
_LATENCY_INTERVAL = (
    ConfigOptions.key("metrics.latency.interval").duration_type().default_value(timedelta())
)
_MAX_PARALLELISM = ConfigOptions.key("pipeline.max-parallelism").int_type().default_value(-1)
_OBJECT_REUSE = ConfigOptions.key("pipeline.object-reuse").boolean_type().default_value(False)
_PARALLELISM = ConfigOptions.key("parallelism.default").int_type().default_value(-1)
_WATERMARK_INTERVAL = (
    ConfigOptions.key("pipeline.auto-watermark-interval")
    .duration_type()
    .default_value(timedelta(milliseconds=200))
)


class ExecutionConfig:
    """How a job is run; every setting is an entry of the `Configuration` underneath.

    Intervals are taken as any duration and returned in milliseconds, as in PyFlink.
    """

    PARALLELISM_DEFAULT: Final = -1
    """Use the default parallelism of the environment."""
    PARALLELISM_UNKNOWN: Final = -2
    """The parallelism is not known yet and must not be set."""

    MAX_PARALLELISM_LIMIT: Final = 1 << 15

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get_configuration(self) -> Configuration:
        """Return the configuration underneath, not a copy of it."""
        return self._configuration

    def set_auto_watermark_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how often watermarks are made."""
        return self._set_interval(_WATERMARK_INTERVAL, interval)

    def get_auto_watermark_interval(self) -> int:
        """Return how often watermarks are made, in milliseconds; 200 unless set."""
        return self._interval(_WATERMARK_INTERVAL)

    def set_latency_tracking_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how often latency is measured; zero is never."""
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
        """Set the number of key groups, which bounds the parallelism for good."""
        if not 0 < max_parallelism <= self.MAX_PARALLELISM_LIMIT:
            message = (
                f"the maximum parallelism must lie in [1, {self.MAX_PARALLELISM_LIMIT}]; "
                f"got {max_parallelism}"
            )
            raise ValueError(message)
        return self._set(_MAX_PARALLELISM, max_parallelism)

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, -1 unless set."""
        return self._get(_MAX_PARALLELISM)

    def set_task_cancellation_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set the time between two tries to cancel a task."""
        return self._set_interval(_CANCEL_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the time between two tries to cancel a task, in milliseconds."""
        return self._interval(_CANCEL_INTERVAL)

    def set_task_cancellation_timeout(self, timeout: DurationLike) -> ExecutionConfig:
        """Set after what time a task that will not be cancelled is an error; zero is never."""
        return self._set_interval(_CANCEL_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return after what time a task that will not be cancelled is an error, in milliseconds."""
        return self._interval(_CANCEL_TIMEOUT)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Derive the uid of an operator from its place unless it is given."""
        return self._set(_AUTO_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Ask for a uid on every operator, so that no state is lost by a change of the job."""
        return self._set(_AUTO_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether uids are derived unless given."""
        return self._get(_AUTO_UIDS)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Hand the same object to all operators of a chain."""
        return self._set(_OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Let operators of a chain have objects of their own."""
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

    def _set(self, option: ConfigOption[Any], value: Any) -> ExecutionConfig:
        self._configuration.set(option, value)
        return self

    def _get(self, option: ConfigOption[T]) -> T:
        return cast(T, self._configuration.get(option))

    def _set_interval(
        self, option: ConfigOption[timedelta], interval: DurationLike
    ) -> ExecutionConfig:
        value = to_timedelta(interval)
        if value < timedelta():
            message = f"{option.key()} must not be negative; got {interval!r}"
            raise ValueError(message)
        return self._set(option, value)

    def _interval(self, option: ConfigOption[timedelta]) -> int:
        return to_millis(self._get(option))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionConfig):
            return NotImplemented
        return self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._configuration!r})"
