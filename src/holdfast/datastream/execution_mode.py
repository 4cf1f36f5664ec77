"""How a job is run."""

from __future__ import annotations

from enum import Enum

from holdfast.common.configuration import Configuration

__all__ = ["RUNTIME_MODE", "RuntimeExecutionMode", "is_batch"]

RUNTIME_MODE = "execution.runtime-mode"


class RuntimeExecutionMode(Enum):
    """Flink's modes. Holdfast runs every job as a stream; a bounded one ends by itself.

    In batch mode the rolling reductions of a keyed stream give their last value only.
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


def is_batch(configuration: Configuration) -> bool:
    """Return whether the batch mode was asked for."""
    mode = configuration.get_string(RUNTIME_MODE, RuntimeExecutionMode.STREAMING.value)
    return mode.upper() == RuntimeExecutionMode.BATCH.value
