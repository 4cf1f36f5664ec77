"""The responses about jobs, with Flink's field names; Holdfast's own fields are documented."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, field

# ruff: noqa: D101 - the fields are those of Flink, and documented there


class Shape(msgspec.Struct, frozen=True):
    """Base of responses."""


class Kebab(msgspec.Struct, frozen=True, rename="kebab"):
    """Base of responses with names-like-this."""


class Errors(Shape, frozen=True):
    """Error messages."""

    errors: list[str]


class Nothing(Shape, frozen=True):
    """An empty response, for success."""


# The server


class Overview(Kebab, frozen=True):
    taskmanagers: int
    taskmanagers_blocked: int
    slots_total: int
    slots_available: int
    slots_free_and_blocked: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    holdfast_version: str


class Features(Kebab, frozen=True):
    web_submit: bool
    web_cancel: bool
    web_rescale: bool
    web_history: bool


class Config(Kebab, frozen=True):
    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features


class JobIdAndStatus(Shape, frozen=True):
    id: str
    status: str


class Jobs(Shape, frozen=True):
    jobs: list[JobIdAndStatus]


class TaskCounts(Shape, frozen=True):
    total: int = 0
    created: int = 0
    scheduled: int = 0
    deploying: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0
    reconciling: int = 0
    initializing: int = 0


class JobSummary(Kebab, frozen=True):
    """`engine` is Holdfast's own."""

    jid: str
    name: str
    start_time: int
    end_time: int
    duration: int
    state: str
    last_modification: int
    tasks: TaskCounts
    engine: str


class JobsOverview(Shape, frozen=True):
    jobs: list[JobSummary]


# A job


class IoMetrics(Kebab, frozen=True):
    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: float


class VertexNow(Kebab, frozen=True):
    """The current load of a vertex; Holdfast's own. Times are the maximum of its subtasks.

    `records-written` is the number of records that its sinks accepted in this attempt.
    `busiest-subtask` is the one that is busy most of the time, and `others-busy-ms-per-second` the
    average of all others. Both are null if the vertex has one subtask, or does not run.
    """

    records_in_per_second: float
    records_out_per_second: float
    busy_ms_per_second: int
    busiest_subtask: int | None
    others_busy_ms_per_second: int | None
    idle_ms_per_second: int
    backpressured_ms_per_second: int
    backpressure_level: str
    watermark: int | None
    records_written: int
    records_written_per_second: float


class JobVertex(Shape, frozen=True):
    id: str
    slot_sharing_group_id: str = field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = field(name="maxParallelism")
    parallelism: int
    status: str
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    tasks: dict[str, int]
    metrics: IoMetrics
    now: VertexNow


class PlanInput(Shape, frozen=True):
    num: int
    id: str
    ship_strategy: str
    exchange: str
    local_strategy: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET


class PlanOperatorInput(Shape, frozen=True):
    id: str
    ship_strategy: str


class PlanOperator(Shape, frozen=True):
    """An operator within a node; Holdfast's own."""

    id: str
    name: str
    kind: str
    keyed: bool
    inputs: list[PlanOperatorInput]
    sink: bool


class PlanNode(Shape, frozen=True):
    """`level` is Holdfast's own: one more than that of the vertices before it."""

    id: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    inputs: list[PlanInput]
    optimizer_properties: dict[str, Any]
    level: int
    operators: list[PlanOperator]


class PlanGraph(Shape, frozen=True):
    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class PlanAnswer(Shape, frozen=True):
    plan: PlanGraph


class JobDetails(Shape, frozen=True):
    """`engine` and the reason for its choice are Holdfast's own, and so are the following.

    `spark-ui` is the address of Spark's own web UI, `history-directory` that of the job's history.
    """

    jid: str
    name: str
    is_stoppable: bool = field(name="isStoppable")
    state: str
    job_type: str = field(name="job-type")
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    max_parallelism: int = field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertex]
    status_counts: dict[str, int] = field(name="status-counts")
    plan: PlanGraph
    engine: str
    engine_reason: str = field(name="engine-reason")
    spark_ui: str | None = field(name="spark-ui")
    history_directory: str | None = field(name="history-directory")


class ExecutionConfigInfo(Kebab, frozen=True):
    execution_mode: str
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str]


class SettingEntry(Shape, frozen=True):
    """A setting; Holdfast's own. `origin`: default, program, command line, or Spark."""

    key: str
    value: str
    origin: str


class JobConfig(Kebab, frozen=True):
    """`configuration` and `settings` are Holdfast's own; secrets are masked.

    These are the settings that were set for the job, and all settings with their origin.
    """

    jid: str
    name: str
    execution_config: ExecutionConfigInfo
    configuration: dict[str, str]
    settings: list[SettingEntry]


class ExceptionEntry(Shape, frozen=True):
    exception_name: str = field(name="exceptionName")
    stacktrace: str
    timestamp: int
    task_name: str | None = field(name="taskName")
    endpoint: str | None
    task_manager_id: str | None = field(name="taskManagerId")
    failure_labels: dict[str, str] = field(name="failureLabels")
    concurrent_exceptions: list[Any] = field(name="concurrentExceptions")
    attempt: int
    subtask: int | None


class ExceptionHistory(Shape, frozen=True):
    entries: list[ExceptionEntry]
    truncated: bool


class JobExceptions(Shape, frozen=True):
    root_exception: str | None = field(name="root-exception")
    timestamp: int | None
    all_exceptions: list[Any] = field(name="all-exceptions")
    truncated: bool
    exception_history: ExceptionHistory = field(name="exceptionHistory")


class StartEntry(Kebab, frozen=True):
    """The parts of the start of an attempt, one after the other, in seconds; Holdfast's own.

    They end when the previous attempt has stopped, the delay of the restart strategy is over, the
    attempt has its task slots, its state is loaded, and its sinks have accepted a record.
    """

    stop: float
    delay: float
    slots: float
    load: float | None
    first_result: float | None


class AttemptEntry(Kebab, frozen=True):
    """An attempt of the job; Holdfast's own. ``origin`` describes where it started.

    The bytes of state that it loaded are from the checkpoint storage, and from disks of the hosts
    themselves; null while they are not known. ``start-seconds`` is null until its state is loaded.
    """

    number: int
    start_time: int
    checkpoint: int | None
    path: str | None
    is_savepoint: bool
    origin: str
    loaded_bytes: int | None
    loaded_local_bytes: int | None
    start_seconds: StartEntry | None


class Attempts(Shape, frozen=True):
    attempts: list[AttemptEntry]
    total: int
    failures: int


class Metric(Shape, frozen=True):
    """Without ``get`` only the names are returned; a value is text, as in Flink."""

    id: str
    value: str | UnsetType = UNSET


class EpochEntry(Kebab, frozen=True):
    """An epoch; Holdfast's own. Times are seconds: of its Spark job, and of each numbered step."""

    epoch: int
    start_time: int
    duration: float
    records_read: int
    records: int
    quota: int
    steps: dict[str, float]
    memory_bytes: int
    state_bytes: int
    checkpoint: int | None


class Epochs(Kebab, frozen=True):
    epochs: list[EpochEntry]
    total: int
    records_read: int


# A vertex


class Spread(Shape, frozen=True):
    min: float
    max: float
    avg: float
    sum: float
    median: float
    p25: float
    p75: float
    p95: float


class AggregatedMetrics(Kebab, frozen=True):
    read_bytes: Spread
    write_bytes: Spread
    read_records: Spread
    write_records: Spread
    accumulated_backpressured_time: Spread
    accumulated_idle_time: Spread
    accumulated_busy_time: Spread


class Aggregated(Kebab, frozen=True):
    metrics: AggregatedMetrics
    status_duration: dict[str, Spread]


class SubtaskDetails(Kebab, frozen=True):
    """`watermark` and `now` are Holdfast's own."""

    subtask: int
    status: str
    attempt: int
    endpoint: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    taskmanager_id: str
    status_duration: dict[str, int]
    watermark: int | None
    now: VertexNow


class OperatorMetric(Shape, frozen=True):
    """A user's metric; Holdfast's own. Its value in each subtask; null where it has none."""

    operator: str
    name: str
    values: list[Any]


class VertexDetails(Shape, frozen=True):
    """`written` and `metrics` are Holdfast's own.

    They are the number of records that each sink accepted, by operator, and the users' metrics.
    """

    id: str
    name: str
    parallelism: int
    max_parallelism: int = field(name="maxParallelism")
    now: int
    aggregated: Aggregated
    subtasks: list[SubtaskDetails]
    written: dict[str, int]
    metrics: list[OperatorMetric]


class SubtaskBackPressure(Shape, frozen=True):
    subtask: int
    level: str = field(name="backpressure-level")
    ratio: float
    idle_ratio: float = field(name="idleRatio")
    busy_ratio: float = field(name="busyRatio")


class BackPressure(Kebab, frozen=True):
    status: str
    backpressure_level: str
    end_timestamp: int
    subtasks: list[SubtaskBackPressure]
