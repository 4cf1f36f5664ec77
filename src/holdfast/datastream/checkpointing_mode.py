"""The guarantees of checkpoints."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """How often a record may be reflected in state after a recovery."""

    EXACTLY_ONCE = 0
    """After a recovery every record is reflected in the state exactly once."""

    AT_LEAST_ONCE = 1
    """After a recovery a record may be reflected in the state more than once; none is missing.

    Holdfast accepts this mode but guarantees exactly once: a barrier is the end of an epoch in both
    modes, so a weaker guarantee would gain nothing.
    """
