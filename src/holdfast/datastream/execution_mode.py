"""How a job is run."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """Flink's modes. Holdfast runs every job as a stream; a bounded one ends by itself.

    In batch mode the rolling reductions of a keyed stream give their last value only.
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"
