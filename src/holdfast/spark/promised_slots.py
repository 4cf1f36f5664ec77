"""Task slots that the resident jobs of this process count on, whether they run now or not.

A job that restarts, or is just about to start, has no tasks that Spark could be asked about.
"""

from __future__ import annotations

import threading

__all__ = ["PromisedSlots", "promised_slots"]


class PromisedSlots:
    """How many slots each job counts on.

    Attributes:
        lock: held by callers from counting what is free to promising it.
    """

    def __init__(self) -> None:
        """Start with no jobs."""
        self.lock = threading.RLock()
        self._slots: dict[object, int] = {}

    def promise(self, job: object, slots: int) -> None:
        """Set what a job counts on."""
        with self.lock:
            self._slots[job] = slots

    def release(self, job: object) -> None:
        """Forget a job; one that is not known is ignored."""
        with self.lock:
            self._slots.pop(job, None)

    def of(self, job: object) -> int:
        """Return what a job counts on."""
        with self.lock:
            return self._slots.get(job, 0)

    def to_others(self, job: object = None) -> int:
        """Return what all jobs but this one count on."""
        with self.lock:
            return sum(self._slots.values()) - self._slots.get(job, 0)


#: of this process, which has one Spark context at a time
promised_slots = PromisedSlots()
