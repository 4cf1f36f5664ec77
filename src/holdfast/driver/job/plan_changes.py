"""The plans of a job, and the changes from one to another. Pure.

A user requests another parallelism, or task slots come back: then the running attempt takes a
checkpoint first (`PlanChanges.rescaling`). If slots are lost, the job continues with fewer from the
last checkpoint (`PlanChanges.narrowing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.datastream.engines import needed_slots
from holdfast.driver.job.too_few_slots import fitting
from holdfast.driver.job_events import (
    AnswerRescale,
    Cause,
    CheckpointEnded,
    Effect,
    JobTraits,
    ReportRescale,
    RescaleRequested,
    SlotsCame,
    SlotsMissing,
    TakeCheckpoint,
)
from holdfast.errors import JobExecutionError
from holdfast.plan.model import Plan

_SUPERSEDED: Final = JobExecutionError("another parallelism was requested in the meantime")


@dataclass(slots=True)
class PlanChange:
    """A change of plan.

    Attributes:
        by_user: a user requested it, so the plan becomes the wanted one.
        covered: the checkpoint from which the job will continue is complete.
        changed: the new plan is in place.
    """

    request: int
    plan: Plan
    by_user: bool = True
    covered: bool = False
    changed: bool = False


class PlanChanges:
    """The plans of a job.

    Invariant: every request for another plan is answered once. So is every change of plan that the
    machine itself decides on.

    Invariant: a plan with fewer subtasks than wanted is derived from the wanted plan. Consequence:
    a job that lost slots more than once returns to the plan that it had before the first loss.

    Attributes:
        plan: the plan that runs, or will run with the next attempt.
        wanted: the plan that would run with enough task slots.
        rescaling: the change that was requested, or that slots allow; until it runs.
        narrowing: the change to a plan that fits the slots that are left; until it runs.
    """

    def __init__(self, traits: JobTraits, plan: Plan) -> None:
        """Start with the plan of the program."""
        self._traits = traits
        self.plan = self.wanted = plan
        self.rescaling: PlanChange | None = None
        self.narrowing: PlanChange | None = None

    @property
    def is_reduced(self) -> bool:
        """Return whether the job has fewer subtasks than are wanted."""
        return self.plan is not self.wanted

    @property
    def is_covered(self) -> bool:
        """Return whether the checkpoint for another plan is complete."""
        return self.rescaling is not None and self.rescaling.covered

    @property
    def _is_changed(self) -> bool:
        return self.rescaling is not None and self.rescaling.changed

    # Another parallelism

    def problem(self) -> str | None:
        """Return why no other plan can be requested now; None if it can."""
        if self.rescaling is not None and (self.rescaling.by_user or self.rescaling.covered):
            return "is being rescaled already"
        if not self._traits.abilities.resizes:
            return "cannot be rescaled while it runs; stop it with a savepoint and start it again"
        return None

    def request(self, event: RescaleRequested) -> list[Effect]:
        """Head for the plan that a user wants."""
        superseded = self.answer(_SUPERSEDED, superseded=True)
        self.rescaling = PlanChange(event.request, event.plan)
        told = ReportRescale(event.request, Cause.UPDATE_REQUIREMENT, event.plan, event.plan)
        return [*superseded, told, TakeCheckpoint(event.request)]

    def slots_came(self, event: SlotsCame) -> list[Effect]:
        """Head for more subtasks, if the job has fewer than wanted and more fit now."""
        if self.rescaling is not None or not self.is_reduced:
            return []
        wider = fitting(self.wanted, event.slots)
        if wider is None or needed_slots(wider) <= needed_slots(self.plan):
            return []
        self.rescaling = PlanChange(event.request, wider, by_user=False)
        told = ReportRescale(event.request, Cause.NEW_RESOURCE_AVAILABLE, wider, self.wanted)
        return [told, TakeCheckpoint(event.request)]

    def checkpoint_ended(self, event: CheckpointEnded, in_epoch: bool) -> list[Effect]:
        """Record the end of a checkpoint for another plan; ``in_epoch``: while an epoch runs."""
        if self.rescaling is None or self.rescaling.request != event.request:
            return []
        if event.failure is not None:
            return self.answer(event.failure)
        if not in_epoch:
            # records that were read since then would be read again by the next attempt
            return [TakeCheckpoint(event.request)]
        self.rescaling.covered = True
        return []

    # Fewer task slots than before

    def fitting(self, missing: SlotsMissing) -> Plan | None:
        """Return the plan that fits the available slots; None if they are too few."""
        enough = missing.found >= self._traits.least_slots
        return fitting(self.wanted, missing.found) if enough else None

    def narrow(self, missing: SlotsMissing, plan: Plan, failure: BaseException) -> list[Effect]:
        """Change to a plan that fits the available slots."""
        answers = self.answer_started(failure)
        self.narrowing = PlanChange(missing.request, plan, by_user=False)
        told = ReportRescale(missing.request, Cause.RECOVERABLE_FAILOVER, plan, self.wanted)
        return [*answers, told]

    # Results

    def put_in_place(self) -> None:
        """Record that the next attempt runs with the new plan."""
        change = self.narrowing or self.rescaling
        assert change is not None
        change.changed = True
        self.plan = change.plan
        if change.by_user:
            self.wanted = change.plan

    def answer(self, failure: BaseException | None, superseded: bool = False) -> list[Effect]:
        """Answer the pending request for another plan, if there is one."""
        rescaling, self.rescaling = self.rescaling, None
        return [] if rescaling is None else [AnswerRescale(rescaling.request, failure, superseded)]

    def answer_narrowing(self, failure: BaseException | None) -> list[Effect]:
        """Report the result of the change to fewer slots, if there is one."""
        narrowing, self.narrowing = self.narrowing, None
        return [] if narrowing is None else [AnswerRescale(narrowing.request, failure)]

    def answer_started(self, failure: BaseException | None) -> list[Effect]:
        """Report whether the changes run with which an attempt was started."""
        answers = self.answer_narrowing(failure)
        return answers + (self.answer(failure) if self._is_changed else [])

    def answer_covered(self, failure: BaseException) -> list[Effect]:
        """Abandon a change of plan whose checkpoint is complete, but whose plan is not in place."""
        return self.answer(failure) if self.is_covered and not self._is_changed else []

    def answer_all(self, failure: BaseException) -> list[Effect]:
        """Abandon all changes of plan."""
        return [*self.answer_narrowing(failure), *self.answer(failure)]
