"""The time that a timer is based on."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """Whether a timer is based on event time (the watermark) or on processing time (the clock)."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
