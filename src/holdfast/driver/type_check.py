"""Checks whether the job can read the states of a checkpoint, as far as possible before it runs.

Known before it runs are the types of keys, the contents of windows and joins, the states of
broadcast streams and of reductions, and every descriptor that is an attribute of a function object
or its class. A state whose descriptor is created only in ``open`` is checked when the function
requests it: in the first epoch, before the function's first record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.datastream.functions.base import WrappingFunction
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.graph.operations import BroadcastOperation, FunctionOperation, IntervalJoinOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.operators.interval_joining import side_descriptors
from holdfast.runtime.operators.windows.contents import contents_descriptor
from holdfast.state.errors import StateMigrationError
from holdfast.state.format.catalog import SavedState
from holdfast.state.live.operator_state import MODES, element_type
from holdfast.state.live.sections import check_kind, unreadable
from holdfast.state.live.ttl.lifetime import stamped
from holdfast.state.names import StateId
from holdfast.state.types.evolution import Incompatible, same_bytes, upgrade
from holdfast.state.types.schema import Schema, describe
from holdfast.state.types.schema_of import schema_of


def key_schema(operator: PlannedOperator) -> Schema | None:
    """Return the schema of the declared type of an operator's keys; None if none is declared."""
    return schema_of(getattr(operator.node.operation, "key_type", None))


def check_types(operator: PlannedOperator, saved: OperatorImage) -> None:
    """Compare the types that are known with those in a checkpoint.

    Raises:
        StateMigrationError: when a state, or the keys, cannot be read.
    """
    _check_keys(operator, saved)
    for descriptor in _descriptors(operator):
        named = [state for state in saved.states if state.name == descriptor.name]
        alike = [state for state in named if descriptor.kind in (state.kind, MODES.get(state.kind))]
        for state in alike or named:
            _check_state(operator, state, descriptor)


def _check_keys(operator: PlannedOperator, saved: OperatorImage) -> None:
    declared = key_schema(operator)
    if not same_bytes(saved.key_type, declared):
        raise StateMigrationError(
            f"the keys of operator '{operator.name}' were saved as {describe(saved.key_type)}; "
            f"this job declares {describe(declared)}: state is found by its key, whose type "
            "must not change; keep the type of the keys, or give the operator another uid to start "
            "without its state"
        )


def _check_state(operator: PlannedOperator, state: SavedState, descriptor: StateDescriptor) -> None:
    declared: tuple[Schema | None, ...]
    name = StateId(operator.name, state.name)
    if state.kind in MODES:
        declared = (schema_of(element_type(descriptor)),)
    else:
        expires = descriptor.ttl_config is not None
        kinds = (state.kind, state.expires), (descriptor.kind, expires)
        check_kind(name, *kinds)
        descriptor = stamped(descriptor) if expires else descriptor
        declared = tuple(map(schema_of, descriptor.declared_types))
    try:
        for old, new in zip(state.types, declared, strict=True):
            upgrade(old, new)
    except Incompatible as problem:
        raise unreadable(name, state.types, declared, problem) from None


def _descriptors(operator: PlannedOperator) -> Iterator[StateDescriptor]:
    operation = operator.node.operation
    if not isinstance(operation, FunctionOperation):
        return
    if isinstance(operation.function, WindowOperation):
        yield contents_descriptor(operation.function)
    if isinstance(operation, IntervalJoinOperation):
        yield from side_descriptors(operation.settings)
    if isinstance(operation, BroadcastOperation):
        yield from _descriptors_in(operation.descriptors)
    for function in _functions(operation.function):
        yield from _descriptors_in(getattr(function, "__dict__", {}).values())
        yield from _descriptors_in(v for c in type(function).__mro__ for v in vars(c).values())


def _functions(function: Any) -> Iterator[Any]:
    yield function
    if isinstance(function, WrappingFunction):
        for inner in function.wrapped():
            yield from _functions(inner)


def _descriptors_in(values: Any) -> Iterator[StateDescriptor]:
    return (value for value in values if isinstance(value, StateDescriptor))
