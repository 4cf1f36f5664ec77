"""The course of an attempt: what it is heading for, and its epochs. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.driver.job_events import (
    Action,
    AwaitTurn,
    EpochCommitted,
    JobTraits,
    RunEpoch,
    StopAttempt,
)

#: maximum number of runs of an epoch whose subtasks do not agree
_TRIES: Final = 4


class Goal(Enum):
    """What an attempt is heading for."""

    READ = "read on"
    FINISH = "finish"
    STOP = "stop with a savepoint"
    LEAVE = "leave for another plan"
    CANCEL = "be cancelled"


class AttemptCourse:
    """The course of the current attempt. The numbers of epochs increase over attempts.

    Attributes:
        goal: what the attempt is heading for.
        epoch: the last epoch that was started, in any attempt.
    """

    def __init__(self, traits: JobTraits) -> None:
        """Start before the first epoch."""
        self._traits = traits
        self.goal = Goal.READ
        self.epoch = -1
        self._tries = 0
        #: whether all sources have ended
        self._finished = False

    def begin_attempt(self) -> None:
        """Begin another attempt, which reads on."""
        self.goal, self._finished = Goal.READ, False

    def start_after(self, epoch: int) -> None:
        """Start after the epoch of a checkpoint, and after all that were ever started."""
        self.epoch = max(self.epoch, epoch)

    def cancel(self) -> None:
        """Head for the end, unless the attempt has a goal already."""
        if self.goal is Goal.READ:
            self.goal = Goal.CANCEL

    def next_epoch(self) -> RunEpoch:
        """Return the next epoch."""
        self.epoch += 1
        self._tries = 1
        closing = self.goal is not Goal.READ
        return RunEpoch(self.epoch, last=self._finished and not closing, closing=closing)

    def again(self, order: RunEpoch) -> RunEpoch | None:
        """Return the same epoch again; None if it must not be run again."""
        if not self._traits.abilities.reruns or self._tries >= _TRIES:
            return None
        self._tries += 1
        return RunEpoch(order.epoch, order.last, order.closing, again=True)

    def committed(self, event: EpochCommitted, covered: bool) -> Action:
        """Return what follows an epoch; ``covered``: the job can leave for another plan."""
        if self.goal is not Goal.READ:
            return StopAttempt()
        self._finished = event.finished
        self.goal = self._new_goal(event, covered)
        if self.goal is Goal.FINISH and not self._traits.closes:
            return StopAttempt()
        return AwaitTurn()

    def _new_goal(self, event: EpochCommitted, covered: bool) -> Goal:
        if event.stops:
            return Goal.STOP
        if event.finished and (event.complete or not self._traits.takes_checkpoints):
            return Goal.FINISH
        return Goal.LEAVE if covered else Goal.READ
