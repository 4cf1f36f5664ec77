"""Carries out the actions of a job, one at a time, and returns the resulting events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from holdfast.common.job_status import JobStatus
from holdfast.driver import job_events as events
from holdfast.driver.checkpoints.job_checkpoints import JobCheckpoints
from holdfast.driver.engine import Engine
from holdfast.driver.job.attempts import AttemptRunner
from holdfast.driver.job.control import JobControl
from holdfast.driver.job.repeated_failures import place_of
from holdfast.driver.job.restart_policy import is_permanent
from holdfast.driver.job.slot_watch import SlotWatch
from holdfast.driver.outcome import AbandonedError, LostSlotError, SlotsMissingError
from holdfast.errors import DisagreementError, InternalError
from holdfast.plan.model import Plan
from holdfast.runtime.context import Clock

#: interval of the checks of the engine while nothing runs, in seconds
_LOOK: Final = 0.1


class JobActions:
    """The actions that the machine of a job decides on, for the thread of the job."""

    def __init__(
        self,
        job_id: str,
        engine: Engine,
        control: JobControl,
        attempts: AttemptRunner,
        checkpoints: JobCheckpoints,
        clock: Clock,
        slots_stable_ms: int,
        sleep: Callable[[float], None] | None,
        end: Callable[[events.EndJob], None],
    ) -> None:
        """Carry out nothing yet.

        ``slots_stable_ms``: how long the number of task slots must be unchanged before it counts.
        ``sleep``: called for the wait before a restart, instead of blocking this thread.
        ``end``: ends the job.
        """
        self._job_id = job_id
        self._engine = engine
        self._control = control
        self._attempts = attempts
        self._checkpoints = checkpoints
        self._clock = clock
        self._slot_watch = SlotWatch(slots_stable_ms)
        self._sleep = sleep
        self._end = end

    def carry_out(self, checkpoint: bool = False) -> events.JobEvent | None:
        """Carry out the current action; return the resulting event, for the machine.

        Return None if the job has ended, or a request has changed the action. ``checkpoint``: if
        the action is an epoch, it takes a checkpoint even if none is due.
        """
        action = self._control.machine.action
        assert action is not None
        try:
            return self._carry_out(action, checkpoint)
        except DisagreementError as error:
            assert isinstance(action, events.RunEpoch)
            return events.EpochDiscarded(action.epoch, error, self._clock())
        except AbandonedError as error:
            self._attempts.epochs.give_up(str(error))
            if isinstance(action, events.StartAttempt):
                return events.StartAbandoned()
            assert isinstance(action, events.RunEpoch)
            return events.EpochAbandoned(action.epoch)
        except SlotsMissingError as error:
            assert isinstance(action, events.StartAttempt)
            self._attempts.epochs.give_up(str(error))
            return events.SlotsMissing(
                self._control.next_request(), error.needed, error.found, self._clock()
            )
        except Exception as error:
            if not isinstance(action, events.FALLIBLE):
                raise
            failure = self.explained(error)
            self._attempts.epochs.give_up(str(failure))
            return events.ActionFailed(
                failure,
                self._clock(),
                permanent=is_permanent(failure),
                lost=isinstance(failure, LostSlotError),
                place=place_of(failure),
                checkpoint=self._checkpoints.last_completed,
            )

    def explained(self, error: BaseException, *what: str) -> BaseException:
        """Return an error as the engine explains it; an internal one gets the machine's log."""
        failure = self._engine.explain(error, *what)
        if isinstance(failure, InternalError):
            self._control.machine.log.add_to(failure)
        return failure

    def _carry_out(self, action: events.Action, checkpoint: bool) -> events.JobEvent | None:
        match action:
            case events.StartAttempt(number):
                return self._attempts.start(number, self._control.suspects)
            case events.AwaitTurn():
                self._engine.await_turn(self._due_in())
                self._look_for_slots()
                return events.TurnCame()
            case events.RunEpoch():
                return self._attempts.run_epoch(action, checkpoint, self._is_cancelled)
            case events.StopAttempt():
                return self._attempts.stop(self._control.machine.is_ending)
            case events.ChangePlan(plan):
                return self._change_plan(plan)
            case events.Wait():
                return self._wait(action)
            case events.EndJob():
                self._end(action)
                return None

    def _due_in(self) -> int | None:
        """Return within how many milliseconds an epoch is needed; None: none is needed."""
        if self._control.machine.is_closing or self._attempts.epochs.book.unproven:
            return 0
        return self._checkpoints.due_in(self._attempts.epochs.book.finished)

    def _look_for_slots(self) -> None:
        """Notify the machine of slots for more subtasks, if the job has fewer than wanted."""
        if not self._control.machine.plans.is_reduced:
            self._slot_watch.forget()
            return
        slots = self._slot_watch.look(self._engine.available_slots, self._clock())
        if slots is not None:
            self._control.tell(events.SlotsCame(self._control.next_request(), slots))

    def _is_cancelled(self) -> bool:
        return self._control.machine.status is JobStatus.CANCELLING

    def _change_plan(self, plan: Plan) -> events.PlanChanged | events.PlanRefused:
        try:
            self._attempts.change_plan(plan, f"{self._job_id}-{self._control.machine.attempt + 1}")
        except Exception as error:
            return events.PlanRefused(self.explained(error))
        return events.PlanChanged()

    def _wait(self, order: events.Wait) -> events.TimeIsUp | None:
        """Wait; return None if a request ends the wait early."""
        if self._sleep is not None:
            self._sleep(order.ms / 1000)
            self._engine.check()
            return events.TimeIsUp()
        end = time.monotonic() + order.ms / 1000
        while (left := end - time.monotonic()) > 0:
            with self._control.told:
                if self._control.told.wait_for(
                    lambda: self._control.machine.action is not order, min(_LOOK, left)
                ):
                    return None
            self._engine.check()
        return events.TimeIsUp()
