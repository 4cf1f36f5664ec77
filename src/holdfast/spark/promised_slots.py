"""Task slots that are reserved for the resident jobs of this process, even while they do not run.

A job that restarts, or is about to start, has no tasks that Spark could count.
"""

from __future__ import annotations

import threading


class PromisedSlots:
    """The number of slots that are reserved for each job.

    Attributes:
        lock: held by callers while they count free slots and reserve them.
    """

    def __init__(self) -> None:
        """Start with no jobs."""
        self.lock = threading.RLock()
        self._slots: dict[object, int] = {}

    def promise(self, job: object, slots: int) -> None:
        """Set the number of slots of a job."""
        with self.lock:
            self._slots[job] = slots

    def release(self, job: object) -> None:
        """Release the slots of a job; an unknown one is ignored."""
        with self.lock:
            self._slots.pop(job, None)

    def of(self, job: object) -> int:
        """Return the number of slots of a job."""
        with self.lock:
            return self._slots.get(job, 0)

    def to_others(self, job: object = None) -> int:
        """Return the number of slots of all other jobs."""
        with self.lock:
            return sum(self._slots.values()) - self._slots.get(job, 0)


#: the reservations of this process, which has one Spark context at a time
promised_slots = PromisedSlots()
