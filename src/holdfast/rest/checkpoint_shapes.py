"""What the API answers of checkpoints, field by field, with Flink's names."""

# ruff: noqa: D101 - the fields are those of Flink, and documented there

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from holdfast.rest.shapes import Shape


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


class CheckpointSummary(Shape, frozen=True):
    checkpointed_size: Percentiles
    state_size: Percentiles
    end_to_end_duration: Percentiles
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


class CheckpointInfo(Shape, frozen=True):
    class_name: str = field(name="className")
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = field(name="savepointFormat")
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
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


class CheckpointDuration(Shape, frozen=True):
    sync: int
    asynchronous: int = field(name="async")


class CheckpointAlignment(Shape, frozen=True):
    buffered: int
    processed: int
    persisted: int
    duration: int


class SubtaskCheckpointInfo(Shape, frozen=True):
    class_name: str = field(name="className")
    index: int
    status: str
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: CheckpointDuration
    alignment: CheckpointAlignment
    start_delay: int
    unaligned_checkpoint: bool
    aborted: bool


class DurationSummary(Shape, frozen=True):
    sync: Percentiles
    asynchronous: Percentiles = field(name="async")


class AlignmentSummary(Shape, frozen=True):
    buffered: Percentiles
    processed: Percentiles
    persisted: Percentiles
    duration: Percentiles


class SubtasksSummary(Shape, frozen=True):
    checkpointed_size: Percentiles
    state_size: Percentiles
    end_to_end_duration: Percentiles
    checkpoint_duration: DurationSummary
    alignment: AlignmentSummary
    start_delay: Percentiles


class TaskCheckpointDetails(TaskCheckpoint, frozen=True, kw_only=True):
    summary: SubtasksSummary
    subtasks: list[SubtaskCheckpointInfo]
