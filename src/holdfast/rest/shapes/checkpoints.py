"""The responses about checkpoints, with Flink's field names."""

# ruff: noqa: D101 - the fields are those of Flink, and documented there

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import UNSET, UnsetType, field

from holdfast.rest.shapes.jobs import Shape

#: a number, or percentiles of many
N = TypeVar("N")


class Percentiles(Shape, frozen=True):
    min: float
    max: float
    avg: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


class CheckpointCountsInfo(Shape, frozen=True):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class _Summary(Shape, frozen=True):
    checkpointed_size: Percentiles
    state_size: Percentiles
    end_to_end_duration: Percentiles


class CheckpointSummary(_Summary, frozen=True):
    alignment_buffered: Percentiles
    processed_data: Percentiles
    persisted_data: Percentiles


class TaskCheckpoint(Shape, frozen=True):
    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class CheckpointInfo(TaskCheckpoint, frozen=True):
    class_name: str = field(name="className")
    is_savepoint: bool
    savepoint_format: str | None = field(name="savepointFormat")
    trigger_timestamp: int
    checkpoint_type: str
    tasks: dict[str, TaskCheckpoint]
    external_path: str | UnsetType | None = UNSET
    discarded: bool | UnsetType = UNSET
    failure_timestamp: int | UnsetType = UNSET
    failure_message: str | UnsetType | None = UNSET


class RestoredCheckpoint(Shape, frozen=True):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    savepoint_format: str | None = field(name="savepointFormat")
    external_path: str | None


class LatestCheckpoints(Shape, frozen=True):
    completed: CheckpointInfo | None
    savepoint: CheckpointInfo | None
    failed: CheckpointInfo | None
    restored: RestoredCheckpoint | None


class Checkpoints(Shape, frozen=True):
    counts: CheckpointCountsInfo
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[CheckpointInfo]


class Externalization(Shape, frozen=True):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointsConfig(Shape, frozen=True):
    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


class Durations(Shape, Generic[N], frozen=True):
    sync: N
    asynchronous: N = field(name="async")


class Alignment(Shape, Generic[N], frozen=True):
    buffered: N
    processed: N
    persisted: N
    duration: N


class PendingSubtask(Shape, frozen=True, tag_field="className", tag="pending"):
    """A subtask that has not acknowledged yet, or has failed: Flink has one status for both."""

    index: int
    status: str


class CompletedSubtask(PendingSubtask, frozen=True, tag="completed"):
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: Durations[int]
    alignment: Alignment[int]
    start_delay: int
    unaligned_checkpoint: bool
    aborted: bool


class SubtasksSummary(_Summary, frozen=True):
    checkpoint_duration: Durations[Percentiles]
    alignment: Alignment[Percentiles]
    start_delay: Percentiles


class TaskCheckpointDetails(TaskCheckpoint, frozen=True):
    summary: SubtasksSummary
    subtasks: list[CompletedSubtask | PendingSubtask]
