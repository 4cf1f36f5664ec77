"""The events of a job that its history records.

A history is a list of these, oldest first. In a file each is a line of JSON with its kind as
``event``. Times are milliseconds since 1970; durations within an epoch are seconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.plan.vertices import JobGraph


class _Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """Base of all events; fields with their default value are not written."""


class JobBegan(_Event, frozen=True, tag="job"):
    """A job and its configuration; secrets are masked.

    Attributes:
        checkpointing: as returned by `/jobs/:id/checkpoints/config`.
        engine, engine_reason: the engine and why it was chosen; empty if there was no choice.
        origins: where settings come from, in words, if it is not the program.
        defaults: the default values of the settings that are not in the configuration.
        spark: the configuration of the Spark session; ``spark_page``: the address of its web UI.
    """

    id: str
    name: str
    started: int
    version: str
    parallelism: int
    configuration: dict[str, str]
    checkpointing: dict[str, Any]
    engine: str = ""
    engine_reason: str = ""
    origins: dict[str, str] = {}
    defaults: dict[str, str] = {}
    spark: dict[str, str] = {}
    spark_page: str = ""


class JournalOpened(_Event, frozen=True, tag="journal"):
    """The history is kept in a file from now on, below this directory of the job."""

    directory: str


class PlanMade(_Event, frozen=True, tag="plan"):
    """The plan that runs from now on: at the start, and after the job was rescaled."""

    time: int
    graph: JobGraph


class PageServed(_Event, frozen=True, tag="page"):
    """A server shows the job; ``url`` is the address of the server."""

    time: int
    url: str


class StatusChanged(_Event, frozen=True, tag="status"):
    """The job has changed to another of Flink's job states.

    ``savepoint``: the path of the savepoint with which a user has stopped it.
    """

    time: int
    status: str
    savepoint: str | None = None


class StateLoaded(_Event, frozen=True, tag="loaded"):
    """All subtasks of an attempt have loaded their state.

    Attributes:
        stored: bytes read from the checkpoint storage.
        local: bytes read from local copies on the hosts.
        damaged: number of local copies that could not be used.
        subtasks: ``stored`` and ``local`` of each subtask, by level and number.
    """

    number: int
    time: int
    stored: int
    local: int
    damaged: int = 0
    subtasks: list[list[tuple[int, int]]] = []


class StartMeasured(_Event, frozen=True, tag="start"):
    """How long the parts of the start of an attempt took, in seconds; replaces an earlier event.

    Attributes:
        stop: from the failure, or the change of plan, until nothing of the previous attempt ran.
        delay: from then until this attempt began, mostly the delay of the restart strategy.
        slots: from then until it had its task slots, and the driver its connections to them.
        load: from then until all subtasks had loaded their state; None if they have not yet.
        first_result: from then until sinks had accepted a record; None if they have not yet.
    """

    number: int
    time: int
    stop: float = 0.0
    delay: float = 0.0
    slots: float = 0.0
    load: float | None = None
    first_result: float | None = None

    @property
    def seconds(self) -> float:
        """Return how long the start took, as far as it is known."""
        return self.stop + self.delay + self.slots + (self.load or 0) + (self.first_result or 0)


class AttemptBegan(_Event, frozen=True, tag="attempt"):
    """The start of an attempt, with or without a checkpoint.

    Attributes:
        path: the address of the checkpoint.
        loaded, measured: set once they are known.
    """

    number: int
    time: int
    checkpoint: int | None = None
    path: str | None = None
    savepoint: bool = False
    loaded: StateLoaded | None = None
    measured: StartMeasured | None = None

    @property
    def origin(self) -> str:
        """Return where the attempt starts, as text."""
        return origin_of(self.checkpoint, self.savepoint, again=self.number > 0)

    @property
    def origin_with_path(self) -> str:
        """Return where the attempt starts, with the path of the checkpoint."""
        if self.path is None:
            return "from the beginning"
        if self.savepoint:
            return f"from savepoint {self.path}"
        return f"{self.origin} of {self.path.rpartition('/')[0]}"


def origin_of(checkpoint: int | None, savepoint: bool, again: bool) -> str:
    """Return where an attempt starts, as text; ``again``: it is not the first one."""
    if checkpoint is not None:
        return f"from {'savepoint' if savepoint else 'checkpoint'} {checkpoint}"
    return "from the start: no checkpoint had completed" if again else "from the start"


class AttemptFailed(_Event, frozen=True, tag="failure"):
    """Why an attempt ended.

    Attributes:
        error: the name of the exception.
        message: its message, in one line.
        trace: the full traceback, from the user's own frame on.
        task: the operator that failed, if any.
        record: the record that it failed on, if any, as text.
        restart: milliseconds until the next attempt; None if there is none.
        restart_from: where the next attempt starts, as text.
        reason: why there is no next attempt, or for how long there will be one.
    """

    number: int
    time: int
    error: str
    message: str
    trace: str
    task: str | None = None
    subtask: int | None = None
    restart: int | None = None
    restart_from: str | None = None
    record: str | None = None
    reason: str = ""


class EpochEnded(_Event, frozen=True, tag="epoch"):
    """What an epoch did.

    Attributes:
        started: when it started, in milliseconds.
        seconds: how long its Spark job took: steps 2 to 7.
        read: number of records read from sources.
        records: number of records that all levels received.
        steps: duration of each step of the epoch protocol: on the driver, or the maximum over all
            subtasks.
        memory: resident bytes of all worker processes; ``processes``: of each process.
        checkpoint: the checkpoint that it carried.
    """

    epoch: int
    started: int
    seconds: float
    read: int
    records: int
    quota: int
    steps: dict[str, float]
    memory: int
    state: int
    checkpoint: int | None = None
    processes: dict[int, int] = {}


class SubtaskFigures(msgspec.Struct, omit_defaults=True):
    """What a subtask of a vertex did in its attempt so far, and its recent rates.

    Attributes:
        busy, idle, blocked: its time so far, in seconds. Blocked: there was more to read, but it
            waited for downstream subtasks.
        busy_now, idle_now, blocked_now: milliseconds per second, since the epoch before the last.
        in_now, out_now: records per second, likewise.
        written: how many records its sinks accepted, by operator uid.
        written_now: records per second that its sinks accepted.
        watermark: the current watermark; None if there is none.
        process: the worker process that it ran in last.
    """

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    busy: float = 0.0
    idle: float = 0.0
    blocked: float = 0.0
    busy_now: int = 0
    idle_now: int = 0
    blocked_now: int = 0
    in_now: float = 0.0
    out_now: float = 0.0
    watermark: int | None = None
    process: int = 0
    written: dict[str, int] = {}
    written_now: float = 0.0


class SubtasksSeen(_Event, frozen=True, tag="subtasks"):
    """The figures of all subtasks, by vertex, and the users' metrics, by operator uid."""

    time: int
    figures: dict[str, list[SubtaskFigures]]
    metrics: dict[str, dict[str, dict[str, Any]]] = {}


class SubtaskCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a subtask in a checkpoint; times in milliseconds.

    Attributes:
        acknowledged: when it was done.
        sync: how long `snapshot_state` of its functions took.
        asynchronous: how long writing its state took.
        alignment: how long it waited for its inputs.
        start_delay: from the trigger to the start of its run.
        size, written: size of its state; size of the new part of it.
    """

    acknowledged: int
    sync: int
    asynchronous: int
    alignment: int
    start_delay: int
    size: int
    written: int


#: the parts of subtasks, by vertex; None for one that did not acknowledge, or not in time
Parts = dict[str, list[SubtaskCheckpoint | None]]


class CheckpointSeen(_Event, frozen=True, tag="checkpoint"):
    """The current state of a checkpoint or savepoint; replaces earlier events about it.

    Attributes:
        status: Flink's status: IN_PROGRESS, COMPLETED or FAILED.
        total, acknowledged: how many subtasks there were, and acknowledged before it ended.
        subtasks: the part of each subtask, once the epoch has ended; dropped for older checkpoints.
        retained: the checkpoints that are kept after this one.
    """

    id: int
    status: str
    triggered: int
    savepoint: bool = False
    ended: int | None = None
    size: int = 0
    written: int = 0
    path: str | None = None
    failure: str | None = None
    total: int = 0
    acknowledged: int = 0
    subtasks: Parts = {}
    retained: tuple[int, ...] = ()


class VertexRescale(msgspec.Struct, frozen=True):
    """The change of parallelism of a vertex.

    Attributes:
        desired: the parallelism with enough slots.
        before: the parallelism before the change.
        after: the parallelism after the change.
    """

    name: str
    desired: int
    before: int
    after: int


class RescaleSeen(_Event, frozen=True, tag="rescale"):
    """The current state of a change of parallelism; replaces earlier events about it.

    Attributes:
        cause: Flink's name: UPDATE_REQUIREMENT, RECOVERABLE_FAILOVER or NEW_RESOURCE_AVAILABLE.
        reason: why it has ended, with Flink's name; None while it is in progress.
        failure: the error, in one line.
        slots_desired, slots_before, slots_after: the task slots of these plans.
        vertices: by id.
    """

    id: int
    cause: str
    started: int
    slots_desired: int
    slots_before: int
    slots_after: int
    vertices: dict[str, VertexRescale]
    ended: int | None = None
    reason: str | None = None
    failure: str | None = None


class VertexPoint(msgspec.Struct, frozen=True, array_like=True):
    """The figures of a vertex over a span of time.

    Attributes:
        records_in, records_out: records per second; out: to other vertices and to outside systems.
        busy, blocked: of its most occupied subtask, in milliseconds per second.
        lag: how far its watermark was behind, in milliseconds; None if it has none.
    """

    records_in: float
    records_out: float
    busy: int
    blocked: int
    lag: int | None = None


#: a user's metric, of all subtasks; of a distribution: count, sum, minimum and maximum
MetricPoint = float | tuple[float, float, float | None, float | None]


class PointSeen(_Event, frozen=True, tag="point"):
    """The figures of a job over a span of time, for charts.

    Attributes:
        time, span: when the span ended, and how long it was, in milliseconds.
        read, written: records per second that sources read and sinks accepted.
        vertices: by id.
        state: bytes of state; memory: resident bytes of all worker processes.
        checkpoint: the longest checkpoint that ended, in milliseconds; None if none did.
        failed: how many checkpoints failed.
        metrics: users' metrics, by operator uid and name.
    """

    time: int
    span: int
    read: float = 0.0
    written: float = 0.0
    vertices: dict[str, VertexPoint] = {}
    state: int = 0
    memory: int = 0
    checkpoint: int | None = None
    failed: int = 0
    metrics: dict[str, dict[str, MetricPoint]] = {}


class Counted(_Event, frozen=True, tag="counts"):
    """Total counts, including events that the history no longer contains."""

    checkpoints: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0
    failures: int = 0
    attempts: int = 0
    epochs: int = 0
    read: int = 0
    rescales: int = 0


Event = (
    JobBegan
    | JournalOpened
    | PlanMade
    | PageServed
    | StatusChanged
    | AttemptBegan
    | StateLoaded
    | StartMeasured
    | AttemptFailed
    | EpochEnded
    | SubtasksSeen
    | CheckpointSeen
    | RescaleSeen
    | PointSeen
    | Counted
)
