"""The responses about checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Final

import msgspec
from msgspec import UNSET

from holdfast.history.events import CheckpointSeen, SubtaskCheckpoint
from holdfast.history.job import JobHistory
from holdfast.plan.vertices import Vertex
from holdfast.rest.shapes import checkpoints as checkpoint_shapes
from holdfast.rest.views.jobs import now_ms, percentile

_NONE: Final = checkpoint_shapes.Percentiles(0, 0, 0, 0, 0, 0, 0, 0)


def checkpoints_config(history: JobHistory) -> checkpoint_shapes.CheckpointsConfig:
    """Return the checkpoint settings of the job."""
    told = {} if history.began is None else history.began.checkpointing
    return msgspec.convert(told, checkpoint_shapes.CheckpointsConfig)


def checkpoints(history: JobHistory) -> checkpoint_shapes.Checkpoints:
    """Return counts, a summary of the last checkpoints, and each of them, the newest first."""
    seen = sorted(history.checkpoints.values(), key=lambda one: -one.id)
    completed = [one for one in seen if one.status == "COMPLETED"]
    return checkpoint_shapes.Checkpoints(
        counts=counts(history),
        summary=_summary(completed),
        latest=checkpoint_shapes.LatestCheckpoints(
            completed=_first(history, (c for c in completed if not c.savepoint)),
            savepoint=_first(history, (c for c in completed if c.savepoint)),
            failed=_first(history, (c for c in seen if c.status == "FAILED")),
            restored=_restored(history),
        ),
        history=[_info(history, one) for one in seen],
    )


def counts(history: JobHistory) -> checkpoint_shapes.CheckpointCountsInfo:
    """Return the number of checkpoints of each kind."""
    told = history.counts
    return checkpoint_shapes.CheckpointCountsInfo(
        restored=told.restored,
        total=told.checkpoints,
        in_progress=told.checkpoints - told.completed - told.failed,
        completed=told.completed,
        failed=told.failed,
    )


def _summary(completed: list[CheckpointSeen]) -> checkpoint_shapes.CheckpointSummary:
    return checkpoint_shapes.CheckpointSummary(
        checkpointed_size=percentiles(one.written for one in completed),
        state_size=percentiles(one.size for one in completed),
        end_to_end_duration=percentiles(_duration(one) for one in completed),
        alignment_buffered=_NONE,
        processed_data=_NONE,
        persisted_data=_NONE,
    )


def percentiles(numbers: Iterable[float]) -> checkpoint_shapes.Percentiles:
    """Return Flink's summary of many numbers; zeros if there are none."""
    found = sorted(numbers)
    if not found:
        return _NONE
    at = percentile(found)
    return checkpoint_shapes.Percentiles(
        found[0], found[-1], fmean(found), at(0.5), at(0.9), at(0.95), at(0.99), at(0.999)
    )


def _first(
    history: JobHistory, found: Iterable[CheckpointSeen]
) -> checkpoint_shapes.CheckpointInfo | None:
    one = next(iter(found), None)
    return None if one is None else _info(history, one)


def _restored(history: JobHistory) -> checkpoint_shapes.RestoredCheckpoint | None:
    for begun in reversed(history.attempts):
        if begun.checkpoint is not None:
            return checkpoint_shapes.RestoredCheckpoint(
                id=begun.checkpoint,
                restore_timestamp=begun.time,
                is_savepoint=begun.savepoint,
                savepoint_format="CANONICAL" if begun.savepoint else None,
                external_path=begun.path,
            )
    return None


def _duration(seen: CheckpointSeen) -> int:
    return max(0, (now_ms() if seen.ended is None else seen.ended) - seen.triggered)


def checkpoint_details(
    history: JobHistory, seen: CheckpointSeen
) -> checkpoint_shapes.CheckpointInfo:
    """Return a checkpoint with the parts of all vertices, which are kept for recent ones only."""
    tasks = {
        vertex.id: _task(seen, vertex, parts)
        for vertex in history.graph.vertices
        if (parts := _parts(seen, vertex)) is not None
    }
    return msgspec.structs.replace(_info(history, seen), tasks=tasks)


def _info(history: JobHistory, seen: CheckpointSeen) -> checkpoint_shapes.CheckpointInfo:
    completed, failed = seen.status == "COMPLETED", seen.status == "FAILED"
    parts = [part for of_vertex in seen.subtasks.values() for part in of_vertex]
    return checkpoint_shapes.CheckpointInfo(
        class_name=seen.status.lower(),
        id=seen.id,
        status=seen.status,
        is_savepoint=seen.savepoint,
        savepoint_format="CANONICAL" if seen.savepoint else None,
        trigger_timestamp=seen.triggered,
        latest_ack_timestamp=_latest(parts, seen.ended or -1 if completed else -1),
        checkpointed_size=seen.written,
        state_size=seen.size,
        end_to_end_duration=_duration(seen),
        alignment_buffered=0,
        processed_data=0,
        persisted_data=0,
        num_subtasks=seen.total,
        num_acknowledged_subtasks=seen.acknowledged,
        checkpoint_type="SAVEPOINT" if seen.savepoint else "CHECKPOINT",
        tasks={},
        external_path=seen.path if completed else UNSET,
        discarded=not seen.savepoint and seen.id not in history.retained if completed else UNSET,
        failure_timestamp=seen.ended or 0 if failed else UNSET,
        failure_message=seen.failure if failed else UNSET,
    )


def _latest(parts: Iterable[SubtaskCheckpoint | None], unknown: int = -1) -> int:
    return max((part.acknowledged for part in parts if part is not None), default=unknown)


def _parts(seen: CheckpointSeen, vertex: Vertex) -> list[SubtaskCheckpoint | None] | None:
    """Return the part of each subtask, None if not acknowledged; None if no longer kept.

    Sources that Spark reads have no parts.
    """
    if not seen.acknowledged:
        return [None] * vertex.parallelism
    return seen.subtasks.get(vertex.id, []) if seen.subtasks else None


def _task(
    seen: CheckpointSeen, vertex: Vertex, parts: list[SubtaskCheckpoint | None]
) -> checkpoint_shapes.TaskCheckpoint:
    known = [part for part in parts if part is not None]
    latest = _latest(known)
    return checkpoint_shapes.TaskCheckpoint(
        id=seen.id,
        status=seen.status,
        latest_ack_timestamp=latest,
        checkpointed_size=sum(part.written for part in known),
        state_size=sum(part.size for part in known),
        end_to_end_duration=max(0, latest - seen.triggered) if known else -1,
        alignment_buffered=0,
        processed_data=0,
        persisted_data=0,
        num_subtasks=len(parts) or vertex.parallelism,
        num_acknowledged_subtasks=len(known) if parts else vertex.parallelism,
    )


def task_details(
    seen: CheckpointSeen, vertex: Vertex
) -> checkpoint_shapes.TaskCheckpointDetails | None:
    """Return the parts of a vertex's subtasks in a checkpoint; None if they are no longer kept."""
    parts = _parts(seen, vertex)
    if parts is None:
        return None
    return checkpoint_shapes.TaskCheckpointDetails(
        **msgspec.structs.asdict(_task(seen, vertex, parts)),
        summary=_summary_of_subtasks(seen, [part for part in parts if part is not None]),
        subtasks=[_subtask(seen, number, part) for number, part in enumerate(parts)],
    )


def _summary_of_subtasks(
    seen: CheckpointSeen, parts: list[SubtaskCheckpoint]
) -> checkpoint_shapes.SubtasksSummary:
    def over(figure: Callable[[SubtaskCheckpoint], int]) -> checkpoint_shapes.Percentiles:
        return percentiles(map(figure, parts))

    return checkpoint_shapes.SubtasksSummary(
        checkpointed_size=over(lambda part: part.written),
        state_size=over(lambda part: part.size),
        end_to_end_duration=over(lambda part: _end_to_end(seen, part)),
        checkpoint_duration=checkpoint_shapes.Durations(
            over(lambda part: part.sync), over(lambda part: part.asynchronous)
        ),
        alignment=checkpoint_shapes.Alignment(
            _NONE, _NONE, _NONE, over(lambda part: part.alignment)
        ),
        start_delay=over(lambda part: part.start_delay),
    )


def _subtask(
    seen: CheckpointSeen, number: int, part: SubtaskCheckpoint | None
) -> checkpoint_shapes.CompletedSubtask | checkpoint_shapes.PendingSubtask:
    if part is None:
        return checkpoint_shapes.PendingSubtask(number, "pending_or_failed")
    return checkpoint_shapes.CompletedSubtask(
        index=number,
        status="completed",
        ack_timestamp=part.acknowledged,
        end_to_end_duration=_end_to_end(seen, part),
        checkpointed_size=part.written,
        state_size=part.size,
        checkpoint=checkpoint_shapes.Durations(part.sync, part.asynchronous),
        alignment=checkpoint_shapes.Alignment(0, 0, 0, part.alignment),
        start_delay=part.start_delay,
        unaligned_checkpoint=False,
        aborted=False,
    )


def _end_to_end(seen: CheckpointSeen, part: SubtaskCheckpoint) -> int:
    return max(0, part.acknowledged - seen.triggered)
