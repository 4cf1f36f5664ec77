"""Python's garbage collector, in processes in which state lives.

State is many objects that live long. The collector looks for cycles among all objects, so it would
go through the whole state again and again: by itself when there are many new objects, and because
Spark's worker asks for it after every task. What lives is put out of its sight, then, and brought
back into it only as often as the time that a search takes allows.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["Garbage"]

#: new objects between two searches among new objects; then how many of these between larger ones
_THRESHOLDS = (100_000, 50, 100)

#: the part of a process's time that searches may take: among all objects, and beside a task
_SHARE = 0.01


class Garbage:
    """Decides what the collector looks at.

    Args:
        clock: The time that this process has worked, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._due = 0.0
        self._spare_due = 0.0

    def expect_state(self) -> None:
        """Let there be more new objects before the collector looks at them by itself."""
        gc.set_threshold(*_THRESHOLDS)

    def spare(self) -> None:
        """Spare the collector all that lives now; to be called when a task has ended.

        Cycles among what is new are gone then. Those among what was spared, and is not used any
        more, stay until the next search among all objects.
        """
        if self._clock() >= self._due:
            self.collect()
        else:
            gc.collect()
        gc.freeze()

    def spare_beside(self) -> None:
        """Do the same beside a task that goes on, unless that was done a short time ago."""
        began = self._clock()
        if began >= self._spare_due:
            self.spare()
            ended = self._clock()
            self._spare_due = ended + (ended - began) / _SHARE

    def collect(self) -> None:
        """Search among all objects."""
        began = self._clock()
        gc.unfreeze()
        gc.collect()
        ended = self._clock()
        self._due = ended + (ended - began) / _SHARE
