"""The responses about changes of parallelism, with the field names of Flink 2.3."""

# ruff: noqa: D101 - the fields are those of Flink, and documented there

from __future__ import annotations

from msgspec import field

from holdfast.rest.shapes.jobs import Shape


class _Camel(Shape, frozen=True, rename="camel"):
    """Base of responses with namesLikeThis."""


class VertexParallelismRescaleInfo(_Camel, frozen=True):
    job_vertex_id: str
    job_vertex_name: str
    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_parallelism: int
    sufficient_parallelism: int
    pre_rescale_parallelism: int
    post_rescale_parallelism: int


class SlotSharingGroupRescaleInfo(_Camel, frozen=True):
    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_slots: int
    minimal_required_slots: int
    pre_rescale_slots: int
    post_rescale_slots: int


class JobRescaleDetails(_Camel, frozen=True):
    """`duration` (milliseconds until now, or its end) and `failure` are Holdfast's own."""

    rescale_uuid: str
    resource_requirements_uuid: str
    rescale_attempt_id: int
    vertices: dict[str, VertexParallelismRescaleInfo]
    slots: dict[str, SlotSharingGroupRescaleInfo]
    start_timestamp: int = field(name="startTimestampInMillis")
    end_timestamp: int | None = field(name="endTimestampInMillis")
    terminal_state: str | None
    trigger_cause: str
    terminated_reason: str | None
    duration: int
    failure: str | None


class RescalesCounts(_Camel, frozen=True):
    ignored: int
    in_progress: int
    completed: int
    failed: int


class LatestRescales(_Camel, frozen=True):
    completed: JobRescaleDetails | None
    failed: JobRescaleDetails | None
    ignored: JobRescaleDetails | None


class JobRescalesOverview(_Camel, frozen=True):
    rescales_counts: RescalesCounts
    latest: LatestRescales
