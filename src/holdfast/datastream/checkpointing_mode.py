"""What a checkpoint promises."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """How often a record may be reflected in state after a recovery."""

    EXACTLY_ONCE = 0
    """After a recovery every record is in the state once."""

    AT_LEAST_ONCE = 1
    """After a recovery a record may be in the state more than once; none is missing.

    Accepted, and more is kept: a barrier is the end of an epoch in both modes, so there is nothing
    to be won by promising less.
    """
