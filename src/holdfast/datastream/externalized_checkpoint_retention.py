"""The retention of checkpoints when a job is cancelled."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """Whether checkpoints of a cancelled job are kept; those of a failed job always are."""

    DELETE_ON_CANCELLATION = 0
    """They are deleted with the job."""

    RETAIN_ON_CANCELLATION = 1
    """They are kept, and the user has to delete them."""

    NO_EXTERNALIZED_CHECKPOINTS = 2
    """Flink's default; a cancelled job's checkpoints are deleted."""
