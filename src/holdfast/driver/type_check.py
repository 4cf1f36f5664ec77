"""Whether the job can read the states of a checkpoint, as far as that is known before it runs.

Known are the types of keys, the contents of windows and joins, the states of broadcast streams and
of reductions, and every descriptor that a function has as an attribute of its object or class. A
state that a function describes only in ``open`` is looked at when it asks for it: in the first
epoch, before the function's first record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.datastream.function_base import WrappingFunction
from holdfast.datastream.interval_join import IntervalJoinSettings
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.window_operation import WindowOperation
from holdfast.graph.nodes import FunctionOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.interval_joining import side_descriptors
from holdfast.runtime.window_contents import contents_descriptor
from holdfast.state.catalog import SavedState
from holdfast.state.errors import StateMigrationError
from holdfast.state.evolution import Incompatible, same_bytes, upgrade
from holdfast.state.operator_state import MODES, element_type
from holdfast.state.schema import Schema, describe
from holdfast.state.schema_of import schema_of
from holdfast.state.sections import check_kind, unreadable
from holdfast.state.ttl import stamped

__all__ = ["check_types", "key_schema"]


def key_schema(operator: PlannedOperator) -> Schema | None:
    """The schema of the declared type of an operator's keys; None if there is none."""
    return schema_of(getattr(operator.node.operation, "key_type", None))


def check_types(operator: PlannedOperator, saved: OperatorImage) -> None:
    """Compare the types that are known with those of a checkpoint.

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
            f"this job declares {describe(declared)}: state is found by its key, which must stay "
            "what it was; keep the type of the keys, or give the operator another uid to begin "
            "without its state"
        )


def _check_state(operator: PlannedOperator, state: SavedState, descriptor: StateDescriptor) -> None:
    declared: tuple[Schema | None, ...]
    if state.kind in MODES:
        declared = (schema_of(element_type(descriptor)),)
    else:
        expires = descriptor.ttl_config is not None
        kinds = (state.kind, state.expires), (descriptor.kind, expires)
        check_kind(operator.name, state.name, *kinds)
        descriptor = stamped(descriptor) if expires else descriptor
        declared = tuple(map(schema_of, descriptor.declared_types))
    try:
        for old, new in zip(state.types, declared, strict=True):
            upgrade(old, new)
    except Incompatible as problem:
        raise unreadable(operator.name, state.name, state.types, declared, problem) from None


def _descriptors(operator: PlannedOperator) -> Iterator[StateDescriptor]:
    operation = operator.node.operation
    if not isinstance(operation, FunctionOperation):
        return
    if isinstance(operation.function, WindowOperation):
        yield contents_descriptor(operation.function)
    if isinstance(operation.settings, IntervalJoinSettings):
        yield from side_descriptors(operation.settings)
    if isinstance(operation.settings, tuple):
        yield from _descriptors_in(operation.settings)
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
