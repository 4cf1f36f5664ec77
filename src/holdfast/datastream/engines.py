"""What a program alone says about the engine that it runs on; the session says the rest.

The engines are those of ``holdfast.engine``: *resident*, whose subtasks stay in task slots of
Spark from the start of an attempt to its end, and *epochs*, which runs a Spark job per epoch.
"""

from __future__ import annotations

from holdfast.common.configuration import Configuration
from holdfast.common.engine_options import ENGINE, EngineSetting, engine_setting
from holdfast.datastream.execution_mode import is_batch
from holdfast.graph.nodes import WriterOperation
from holdfast.plan.model import Plan

__all__ = ["engine_note", "needed_slots", "not_for_resident", "why_epochs"]


def needed_slots(plan: Plan) -> int:
    """Return how many task slots the resident engine needs: slot k has subtask k of every operator.

    Spark writes what goes to DataFrame sinks while they are taken, and needs a slot for that.
    """
    return plan.widest_level.parallelism + int(writes_rows(plan))


def writes_rows(plan: Plan) -> bool:
    """Return whether there is a DataFrame sink."""
    return any(isinstance(op.node.operation, WriterOperation) for op in plan.operators.values())


def not_for_resident(plan: Plan) -> str | None:
    """Return why a job cannot run on the resident engine, if it cannot."""
    if not plan.rows_sources:
        return None
    names = ", ".join(f"'{op.name}'" for op in plan.rows_sources)
    return f"it reads the rows of a Spark DataFrame ({names}), which come in micro-batches"


def why_epochs(plan: Plan, batch: bool) -> str | None:
    """Return why a job that may choose runs in epochs, if its program says enough for that."""
    return not_for_resident(plan) or ("it runs in batch mode" if batch else None)


def engine_note(plan: Plan, configuration: Configuration) -> str:
    """Return what is known of a job's engine before there is a session."""
    setting, slots = engine_setting(configuration), _slots(needed_slots(plan))
    asked = f"as '{ENGINE}' says"
    if setting is EngineSetting.EPOCHS:
        return f"epochs, {asked}"
    if setting is EngineSetting.RESIDENT:
        refused = not_for_resident(plan)
        return f"resident, {asked}: " + (f"the job cannot start: {refused}" if refused else slots)
    reason = why_epochs(plan, is_batch(configuration))
    return f"epochs: {reason}" if reason else f"resident, if the session has {slots} free"


def _slots(number: int) -> str:
    return f"{number} task slot{'' if number == 1 else 's'}"
