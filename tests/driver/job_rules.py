"""What holds for the machine of a job after every event."""

from __future__ import annotations

from holdfast.common.job_status import JobStatus
from holdfast.driver.job.attempt_course import Goal
from holdfast.driver.job.machine import JobMachine
from holdfast.driver.job_events import ChangePlan, EndJob, RunEpoch, StopAttempt, Wait
from holdfast.errors import InternalError

__all__ = ["validate"]


def validate(machine: JobMachine) -> None:
    """Raise an InternalError if a machine is in a state that it can never be in."""
    for rule, holds in _rules(machine).items():
        if not holds:
            raise InternalError(
                f"{rule}: {machine.action}, {machine.status}, {machine._course.goal}"
            )


def _rules(machine: JobMachine) -> dict[str, bool]:
    action, rescaling, narrowing = machine.action, machine.plans.rescaling, machine.plans.narrowing
    epoch = action if isinstance(action, RunEpoch) else None
    return {
        "a job that has ended has answered everybody": (
            not (machine.ended and (rescaling or narrowing))
        ),
        "a job has ended if its status says so": (
            machine.ended == machine.status.is_globally_terminal_state()
        ),
        "a job that waits is restarting": (
            not isinstance(action, Wait) or machine.status is JobStatus.RESTARTING
        ),
        "an epoch closes if the attempt has a goal": (
            epoch is None or epoch.closing == (machine._course.goal is not Goal.READ)
        ),
        "the last epoch reads nothing, and carries a checkpoint": (
            epoch is None or not epoch.last or machine._traits.takes_checkpoints
        ),
        "an epoch runs again only where the engine can": (
            epoch is None or not epoch.again or machine._traits.abilities.reruns
        ),
        "an attempt that has failed is stopped": (
            machine._failed is None
            or isinstance(action, StopAttempt | Wait | EndJob)
            or (narrowing is not None and isinstance(action, ChangePlan))
        ),
        "an attempt is stopped for a reason": (
            not isinstance(action, StopAttempt)
            or machine._failed is not None
            or machine._course.goal is not Goal.READ
        ),
        "a job leaves only for a plan that was asked for": (
            machine._course.goal is not Goal.LEAVE
            or machine._failed is not None
            or rescaling is not None
            or machine.ended
        ),
        "the plan changes only when a checkpoint is complete": (
            not isinstance(action, ChangePlan)
            or narrowing is not None
            or (rescaling is not None and rescaling.covered)
        ),
        "a job goes on with fewer slots only from a checkpoint": (
            narrowing is None or machine._may_narrow()
        ),
    }
