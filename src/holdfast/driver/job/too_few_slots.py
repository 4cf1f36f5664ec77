"""What a job does if there are too few task slots: it continues with fewer subtasks, or fails."""

from __future__ import annotations

from holdfast.common.options.engine import SLOTS_MIN, SLOTS_WAIT
from holdfast.datastream.engines import needed_slots
from holdfast.driver.job.rescaling import rescaled
from holdfast.driver.job_events import JobTraits, SlotsMissing
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.plan.model import Plan


def fitting(plan: Plan, slots: int) -> Plan | None:
    """Return the plan reduced to this many task slots; None if that is not possible.

    Operators with more subtasks than fit get fewer, and the others keep theirs.
    """
    needed = needed_slots(plan)
    if needed <= slots:
        return plan
    width = plan.widest_level.parallelism - (needed - slots)
    wide = {op.uid: width for op in plan.operators.values() if op.parallelism > width}
    try:
        return rescaled(plan, wide) if width > 0 else None
    except JobDefinitionError:
        return None


def too_few(traits: JobTraits, wanted: Plan, missing: SlotsMissing) -> JobExecutionError:
    """Return the error for a job that does not find the task slots that it needs."""
    found = f"needs {missing.needed} task slots and found {missing.found} ('{SLOTS_WAIT}')"
    remedy = "start more executors"
    if not traits.takes_checkpoints:
        remedy += ", or take checkpoints, which let a job continue with fewer"
    elif missing.found < traits.least_slots:
        found += f"; it continues with {traits.least_slots} or more ('{SLOTS_MIN}')"
        remedy += ", or lower that number"
    elif fitting(wanted, missing.found) is None:
        found += ", and cannot run with fewer subtasks"
    return JobExecutionError(f"job '{traits.name}' {found}; {remedy}")
