"""The execution modes of a job."""

from __future__ import annotations

from enum import Enum

from holdfast.common.configuration import Configuration
from holdfast.common.options.setting import text

__all__ = ["RUNTIME_MODE", "RuntimeExecutionMode", "is_batch"]


class RuntimeExecutionMode(Enum):
    """Flink's execution modes. Holdfast runs every job as a stream; a bounded one ends by itself.

    In batch mode the rolling reductions of a keyed stream emit their last value only.
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


RUNTIME_MODE = text("execution.runtime-mode", RuntimeExecutionMode.STREAMING.value)


def is_batch(configuration: Configuration) -> bool:
    """Return whether batch mode is set."""
    return RUNTIME_MODE.get(configuration).upper() == RuntimeExecutionMode.BATCH.value
