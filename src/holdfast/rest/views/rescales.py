"""The responses about changes of a job's parallelism."""

from __future__ import annotations

from collections import Counter
from typing import Final

from holdfast.common.configuration import Configuration
from holdfast.common.options.engine import SLOTS_MIN
from holdfast.history.events import RescaleSeen
from holdfast.history.job import JobHistory
from holdfast.rest.shapes import rescales as shapes
from holdfast.rest.views.jobs import now_ms

#: slot k runs subtask k of every operator: all share one group
_GROUP: Final = "0" * 32
_GROUP_NAME: Final = "default"
#: Flink's ``terminalState`` by its ``terminatedReason``; all others are IGNORED
_STATES: Final = {"SUCCEEDED": "COMPLETED", "EXCEPTION_OCCURRED": "FAILED"}


def rescales_history(history: JobHistory) -> list[shapes.JobRescaleDetails]:
    """Return the last changes, newest first."""
    return [_details(history, seen) for seen in reversed(history.rescales.values())]


def rescales_overview(history: JobHistory) -> shapes.JobRescalesOverview:
    """Return the number of the last changes by result, and the latest of each kind."""
    newest = rescales_history(history)
    counts = Counter(one.terminal_state for one in newest)

    def latest(state: str) -> shapes.JobRescaleDetails | None:
        return next((one for one in newest if one.terminal_state == state), None)

    return shapes.JobRescalesOverview(
        shapes.RescalesCounts(
            ignored=counts["IGNORED"],
            in_progress=counts[None],
            completed=counts["COMPLETED"],
            failed=counts["FAILED"],
        ),
        shapes.LatestRescales(latest("COMPLETED"), latest("FAILED"), latest("IGNORED")),
    )


def _details(history: JobHistory, seen: RescaleSeen) -> shapes.JobRescaleDetails:
    ended = seen.ended if seen.ended is not None else history.ended
    least = min(_least_slots(history), seen.slots_desired)
    return shapes.JobRescaleDetails(
        rescale_uuid=_uuid(history.id, seen.id),
        resource_requirements_uuid=_uuid(history.id, 0),
        rescale_attempt_id=seen.id,
        vertices={vertex: _vertex(vertex, seen, least) for vertex in seen.vertices},
        slots={_GROUP: _slots(seen, least)},
        start_timestamp=seen.started,
        end_timestamp=seen.ended,
        terminal_state=None if seen.reason is None else _STATES.get(seen.reason, "IGNORED"),
        trigger_cause=seen.cause,
        terminated_reason=seen.reason,
        duration=max(0, (now_ms() if ended is None else ended) - seen.started),
        failure=seen.failure,
    )


def _least_slots(history: JobHistory) -> int:
    """Return the number of task slots below which the job does not continue."""
    configuration = {} if history.began is None else history.began.configuration
    return SLOTS_MIN.get(Configuration(configuration))


def _uuid(job: str, number: int) -> str:
    """Return a name for a change that is unique across jobs."""
    return f"{job}-{number}"


def _vertex(vertex_id: str, seen: RescaleSeen, least: int) -> shapes.VertexParallelismRescaleInfo:
    vertex = seen.vertices[vertex_id]
    # a job with DataFrame sinks needs one slot more than it has subtasks
    spare = seen.slots_desired - max(one.desired for one in seen.vertices.values())
    return shapes.VertexParallelismRescaleInfo(
        job_vertex_id=vertex_id,
        job_vertex_name=vertex.name,
        slot_sharing_group_id=_GROUP,
        slot_sharing_group_name=_GROUP_NAME,
        desired_parallelism=vertex.desired,
        sufficient_parallelism=min(vertex.desired, max(1, least - spare)),
        pre_rescale_parallelism=vertex.before,
        post_rescale_parallelism=vertex.after,
    )


def _slots(seen: RescaleSeen, least: int) -> shapes.SlotSharingGroupRescaleInfo:
    return shapes.SlotSharingGroupRescaleInfo(
        slot_sharing_group_id=_GROUP,
        slot_sharing_group_name=_GROUP_NAME,
        desired_slots=seen.slots_desired,
        minimal_required_slots=least,
        pre_rescale_slots=seen.slots_before,
        post_rescale_slots=seen.slots_after,
    )
