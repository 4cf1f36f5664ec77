"""The responses to operations on jobs, with Flink's field names."""

# ruff: noqa: D101 - the fields are those of Flink, and documented there

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from holdfast.rest.shapes.jobs import Kebab, Shape


class TriggerAnswer(Kebab, frozen=True):
    request_id: str


class OperationStatus(Shape, frozen=True):
    id: str


class FailureCause(Shape, frozen=True):
    class_name: str = field(name="class")
    stack_trace: str = field(name="stack-trace")
    serialized_throwable: str = field(name="serialized-throwable")


class SavepointResult(Shape, frozen=True):
    location: str | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = field(default=UNSET, name="failure-cause")


class SavepointOperation(Shape, frozen=True):
    status: OperationStatus
    operation: SavepointResult | None


class CheckpointResult(Shape, frozen=True):
    checkpoint_id: int | UnsetType = field(default=UNSET, name="checkpointId")
    failure_cause: FailureCause | UnsetType = field(default=UNSET, name="failureCause")


class CheckpointOperation(Shape, frozen=True):
    status: OperationStatus
    operation: CheckpointResult | None


class RescalingResult(Shape, frozen=True):
    """`parallelism` is Holdfast's own."""

    parallelism: dict[str, int] | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = field(default=UNSET, name="failure-cause")


class RescalingOperation(Shape, frozen=True):
    status: OperationStatus
    operation: RescalingResult | None


class ParallelismBounds(Shape, frozen=True):
    lower_bound: int = field(name="lowerBound")
    upper_bound: int = field(name="upperBound")


class VertexRequirements(Shape, frozen=True):
    parallelism: ParallelismBounds
