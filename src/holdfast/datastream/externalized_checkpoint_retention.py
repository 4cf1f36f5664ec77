"""What becomes of a job's checkpoints when it is cancelled."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """Whether checkpoints outlive a job that is cancelled; those of a failed job always do."""

    DELETE_ON_CANCELLATION = 0
    """They are deleted with the job."""

    RETAIN_ON_CANCELLATION = 1
    """They are kept, and it is up to the user to delete them."""

    NO_EXTERNALIZED_CHECKPOINTS = 2
    """Flink's default; a cancelled job's checkpoints are deleted, as with the first."""
