"""Controls Python's garbage collector in processes with state.

State consists of many long-lived objects. The collector searches all objects for cycles, so it
would traverse the whole state again and again: by itself when there are many new objects, and
because Spark's worker calls it after every task. So live objects are frozen, which excludes them
from collections. They are included again only as often as the cost of a full collection allows.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

#: new objects between two collections of generation 0; thresholds of the older generations
_THRESHOLDS = (100_000, 50, 100)

#: maximum share of a process's time for full collections, and for collections during a task
_SHARE = 0.01


class Garbage:
    """Decides which objects the collector examines.

    Args:
        clock: The CPU time of this process, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._due = 0.0
        self._spare_due = 0.0

    def expect_state(self) -> None:
        """Raise the thresholds for automatic collections."""
        gc.set_threshold(*_THRESHOLDS)

    def spare(self) -> None:
        """Exclude all live objects from later collections; call this when a task has ended.

        Cycles among new objects are collected first. Cycles among excluded objects that are no
        longer used stay until the next full collection.
        """
        if self._clock() >= self._due:
            self.collect()
        else:
            gc.collect()
        gc.freeze()

    def spare_beside(self) -> None:
        """Do the same while a task runs, unless it was done a short time ago."""
        began = self._clock()
        if began >= self._spare_due:
            self.spare()
            ended = self._clock()
            self._spare_due = ended + (ended - began) / _SHARE

    def collect(self) -> None:
        """Collect among all objects."""
        began = self._clock()
        gc.unfreeze()
        gc.collect()
        ended = self._clock()
        self._due = ended + (ended - began) / _SHARE
