"""The checkpoint that a job starts from: whether the job fits it, and what subtasks need of it."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.checkpoint.metadata import CheckpointMetadata, OperatorImage
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.driver.type_check import check_types, key_schema
from holdfast.errors import JobDefinitionError
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.plan.planner import plan_again
from holdfast.printable import get_logger
from holdfast.runtime.saved_blobs import pickles_refused
from holdfast.runtime.wire.protocol import Origin, SavedOperator
from holdfast.state.format.catalog import SavedState
from holdfast.state.live.operator_state import UNION

_logger = get_logger(__name__)


def saved_origin(start: SavedImage) -> Origin:
    """Return what the subtasks need to know about the checkpoint that an attempt starts from."""
    return Origin(
        directory=start.directory or "",
        levels=tuple(level.heads for level in start.metadata.levels),
        operators={
            uid: SavedOperator(
                image.level,
                image.parallelism,
                any(state.kind == UNION for state in image.states),
            )
            for uid, image in start.metadata.operators.items()
        },
        trusted=start.trusted,
    )


def continues(start: SavedImage, plan: Plan) -> bool:
    """Return whether a plan has the subtasks that wrote a checkpoint: they continue its files."""
    saved, now = start.metadata.operators, operator_images(plan, frozenset(), {})
    widths = [level.parallelism for level in start.metadata.levels]
    return (
        start.own
        and widths == [level.parallelism for level in plan.levels]
        and {uid: _place(image) for uid, image in saved.items()}
        == {uid: _place(image) for uid, image in now.items()}
    )


def operator_images(
    plan: Plan, stateful: frozenset[str], states: Mapping[str, tuple[SavedState, ...]]
) -> dict[str, OperatorImage]:
    """Return what a checkpoint records about the operators of a plan, by uid."""
    return {
        op.uid: OperatorImage(
            op.name,
            op.node.kind,
            op.parallelism,
            op.max_parallelism,
            op.level,
            op.uid in stateful,
            states.get(op.uid, ()),
            key_schema(op),
        )
        for op in plan.operators.values()
    }


def fit(plan: Plan, metadata: CheckpointMetadata, may_drop: bool) -> Plan:
    """Return the plan with the changes that it needs to continue from a checkpoint.

    Operators find their state by uid. An operator whose max parallelism the user did not choose
    takes that of its state, since keys cannot be moved between key groups.

    ``may_drop``: state that no operator claims may be dropped.

    Raises:
        JobDefinitionError: when the job has changed in a way that would lose state.
        StateMigrationError: when the type of a state has changed, and the state cannot be read.
    """
    operators = {op.uid: op for op in plan.operators.values()}
    _check_claimed(metadata, operators, may_drop)
    groups: dict[int, int] = {}
    for uid, saved in metadata.operators.items():
        op = operators.get(uid)
        if op is None or not saved.stateful:
            continue
        if op.max_parallelism != saved.max_parallelism and is_keyed(op):
            groups[op.id] = _max_parallelism(op, saved, metadata)
        _check_source(op, saved, metadata)
        check_types(op, saved)
    # NB: a direct call between two keyed operators is right only if their key groups are the same
    return plan_again(plan, {}, groups) if groups else plan


def check_pickles(start: SavedImage) -> None:
    """Refuse pickled state of a checkpoint that is not trusted.

    Raises:
        PickledStateError: when there is some according to the metadata. Workers also check what
            they read.
    """
    if start.trusted:
        return
    pickled = [
        f"'{state.name}' of operator '{image.name}'"
        for image in start.metadata.operators.values()
        for state in image.states
        if state.pickled
    ]
    if pickled:
        raise pickles_refused(str(start.directory), f"the state {', '.join(pickled)}")


def _check_claimed(
    metadata: CheckpointMetadata, operators: dict[str, PlannedOperator], may_drop: bool
) -> None:
    unclaimed = {
        uid: image
        for uid, image in metadata.operators.items()
        if image.stateful and uid not in operators
    }
    if not unclaimed:
        return
    listed = ", ".join(f"'{image.name}' (uid {uid})" for uid, image in sorted(unclaimed.items()))
    if may_drop:
        _logger.warning("%s: the state of %s is dropped", _name(metadata), listed)
        return
    raise JobDefinitionError(
        f"{_name(metadata)} has state of {listed}, and this job has no such operator; give the "
        "operator that should have the state this uid with uid(...), or set "
        "'execution.state-recovery.ignore-unclaimed-state' to drop the state"
    )


def _max_parallelism(
    op: PlannedOperator, saved: OperatorImage, metadata: CheckpointMetadata
) -> int:
    number = saved.max_parallelism
    if op.max_parallelism_given:
        raise JobDefinitionError(
            f"operator '{op.name}' has max parallelism {op.max_parallelism}; its state in "
            f"{_name(metadata)} has {number}, and keys cannot be moved between key groups; call "
            f"set_max_parallelism({number})"
        )
    if op.parallelism > number:
        raise JobDefinitionError(
            f"operator '{op.name}' has parallelism {op.parallelism}; its state in "
            f"{_name(metadata)} has max parallelism {number}, so it cannot have more subtasks than "
            f"that; set a parallelism of {number} or less"
        )
    return number


def _check_source(op: PlannedOperator, saved: OperatorImage, metadata: CheckpointMetadata) -> None:
    """Check this before the job runs, rather than in a worker."""
    operation = op.node.operation
    if not isinstance(operation, SourceOperation) or op.parallelism == saved.parallelism:
        return
    source = operation.source
    if is_fixed(source):
        raise JobDefinitionError(
            f"operator '{op.name}' has parallelism {op.parallelism}; in {_name(metadata)} it has "
            f"{saved.parallelism}, and {type(source).__name__} cannot continue with another number "
            f"of subtasks; call set_parallelism({saved.parallelism}) on it"
        )


def is_fixed(source: Source) -> bool:
    """Return whether a source can continue only with the number of subtasks that it has."""
    unmovable = type(source).redistribute is Source.redistribute
    return unmovable and not source.reads_rows and not isinstance(source, FunctionSource)


def is_keyed(op: PlannedOperator) -> bool:
    """Return whether an operator has keys, which are distributed to its subtasks by key group."""
    return getattr(op.node.operation, "key_selector", None) is not None


def _place(image: OperatorImage) -> tuple[int, int, int]:
    return image.level, image.parallelism, image.max_parallelism


def _name(metadata: CheckpointMetadata) -> str:
    kind = "savepoint" if metadata.savepoint else "checkpoint"
    return f"{kind} {metadata.id} of job '{metadata.job_name}'"
