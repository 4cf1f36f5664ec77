"""What happens to a job, as far as people want to know it afterwards.

A history is a list of these, oldest first. In a file each is a line of JSON with its kind as
``event``. Times are milliseconds since 1970; durations within an epoch are seconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.plan.vertices import JobGraph

__all__ = [
    "AttemptBegan",
    "AttemptFailed",
    "CheckpointSeen",
    "Counted",
    "EpochEnded",
    "Event",
    "JobBegan",
    "Parts",
    "PlanMade",
    "RescaleSeen",
    "StatusChanged",
    "SubtaskCheckpoint",
    "SubtaskFigures",
    "SubtasksSeen",
    "VertexRescale",
    "origin_of",
]


class _Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """Anything of these; what has its default is not written."""


class JobBegan(_Event, frozen=True, tag="job"):
    """A job, and how it is to run; its secrets are masked.

    Attributes:
        checkpointing: as `/jobs/:id/checkpoints/config` has it.
        engine, engine_reason: what runs it, and why that; empty if there is no choice.
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


class PlanMade(_Event, frozen=True, tag="plan"):
    """What runs from now on: at the beginning, and after the job was rescaled."""

    time: int
    graph: JobGraph


class StatusChanged(_Event, frozen=True, tag="status"):
    """The job is in another of Flink's states."""

    time: int
    status: str


class StateLoaded(_Event, frozen=True, tag="loaded"):
    """All subtasks of an attempt have loaded their state.

    Attributes:
        stored: bytes that were read from the storage of the checkpoints.
        local: bytes that hosts had on their own disks.
        damaged: copies on these disks that could not be used.
        subtasks: ``stored`` and ``local`` of each subtask, by level and number.
    """

    number: int
    time: int
    stored: int
    local: int
    damaged: int = 0
    subtasks: list[list[tuple[int, int]]] = []


class AttemptBegan(_Event, frozen=True, tag="attempt"):
    """A start of the job, from a checkpoint or from the start; ``loaded``: once it is known."""

    number: int
    time: int
    checkpoint: int | None = None
    path: str | None = None
    savepoint: bool = False
    loaded: StateLoaded | None = None

    @property
    def origin(self) -> str:
        """Where it begins, in words."""
        return origin_of(self.checkpoint, self.savepoint, again=self.number > 0)


def origin_of(checkpoint: int | None, savepoint: bool, again: bool) -> str:
    """Return where an attempt begins, in words; ``again``: it is not the first one."""
    if checkpoint is not None:
        return f"from {'savepoint' if savepoint else 'checkpoint'} {checkpoint}"
    return "from the start: no checkpoint had completed" if again else "from the start"


class AttemptFailed(_Event, frozen=True, tag="failure"):
    """Why an attempt ended.

    Attributes:
        error: the name of the exception.
        message: what it says, in a line.
        trace: the whole of it, from the user's own frame on.
        task: the operator that failed, if one did.
        restart: milliseconds until the next attempt; None if there is none.
        restart_from: where that will begin, in words.
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


class EpochEnded(_Event, frozen=True, tag="epoch"):
    """What an epoch did.

    Attributes:
        started: when, in milliseconds.
        seconds: how long its Spark job took: steps 2 to 7.
        read: records that sources gave.
        records: records that all levels took.
        steps: how long each step of the epoch protocol took: on the driver, or the longest time of
            any subtask.
        memory: resident bytes of all worker processes; ``processes``: of each.
        checkpoint: the one that it carried.
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
    """What a subtask of a vertex did in its attempt so far, and how busy it was last.

    Attributes:
        busy, idle, blocked: its time so far, in seconds; blocked: there was more to read, but it
            waited for what comes after it.
        busy_now, idle_now, blocked_now: milliseconds per second, since the epoch before the last.
        in_now, out_now: records per second, likewise.
        watermark: how far time is; None if there is none.
        process: the worker that it ran in last.
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


class SubtasksSeen(_Event, frozen=True, tag="subtasks"):
    """The figures of all subtasks, by vertex, and the users' metrics, by operator uid."""

    time: int
    figures: dict[str, list[SubtaskFigures]]
    metrics: dict[str, dict[str, dict[str, Any]]] = {}


class SubtaskCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part that a subtask had in a checkpoint; times in milliseconds.

    Attributes:
        acknowledged: when it was done.
        sync: `snapshot_state` of its functions took that long.
        asynchronous: writing its state did.
        alignment: for so long it waited for its inputs.
        start_delay: from the trigger to the beginning of its run.
        size, written: of its state; of what is new of it.
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
    """A checkpoint or savepoint, as it stands now; replaces what was seen of it before.

    Attributes:
        status: Flink's word: IN_PROGRESS, COMPLETED or FAILED.
        total, acknowledged: how many subtasks there were, and acknowledged before it ended.
        subtasks: the part of each, once the epoch has ended; of older checkpoints it is forgotten.
        retained: the checkpoints that are kept, after this one.
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
    """What a change of plan means for a vertex.

    Attributes:
        desired: the parallelism that it would have with slots enough.
        before: the one that it had.
        after: the one that it gets.
    """

    name: str
    desired: int
    before: int
    after: int


class RescaleSeen(_Event, frozen=True, tag="rescale"):
    """A change of parallelism, as it stands now; replaces what was seen of it before.

    Attributes:
        cause: Flink's word: UPDATE_REQUIREMENT, RECOVERABLE_FAILOVER or NEW_RESOURCE_AVAILABLE.
        reason: why it has ended, likewise; None while it is in progress.
        failure: what went wrong, in a line.
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


class Counted(_Event, frozen=True, tag="counts"):
    """How many there were of what is no longer told one by one."""

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
    | PlanMade
    | StatusChanged
    | AttemptBegan
    | StateLoaded
    | AttemptFailed
    | EpochEnded
    | SubtasksSeen
    | CheckpointSeen
    | RescaleSeen
    | Counted
)
