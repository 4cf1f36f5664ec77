"""How many records a source subtask reads in an epoch, and how that follows the load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: the first and smallest quota of an engine whose epochs are expensive
FIRST_QUOTA: Final = 20_000


@dataclass(frozen=True)
class Quota:
    """The quota of the first epoch, and how long an epoch should take.

    Larger epochs under load reduce the share of an epoch's fixed cost. The defaults are for epochs
    that are Spark jobs.

    Attributes:
        first: the quota of the first epoch.
        least: the smallest quota.
        short: an epoch of fewer seconds may be larger.
        long: an epoch of more seconds should be smaller.
    """

    first: int = FIRST_QUOTA
    least: int = FIRST_QUOTA
    short: float = 3.0
    long: float = 6.0

    def after(self, quota: int, seconds: float, saturated: bool) -> int:
        """Return the next quota after an epoch that took so long.

        ``saturated``: a source had more records than the quota allowed.
        """
        if seconds > self.long:
            return max(self.least, quota // 2)
        if seconds < self.short and saturated:
            return quota * 2 if seconds > self.short / 2 else quota * 4
        return quota
