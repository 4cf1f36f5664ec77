"""Finds jobs without a sink, whose results nobody would receive."""

from __future__ import annotations

from holdfast.datastream.functions.base import Function, innermost
from holdfast.errors import JobDefinitionError
from holdfast.graph.operations import SINKS, FunctionOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.printable import get_logger

__all__ = ["check_sinks"]

_logger = get_logger(__name__)


def check_sinks(plan: Plan) -> None:
    """Reject a job without a sink, unless it has function objects.

    These may write somewhere themselves, as in PyFlink programs, which cannot have sinks written
    in Python. Then there is only a warning.

    Raises:
        JobDefinitionError: if it has neither.
    """
    operators = plan.operators.values()
    if any(isinstance(op.node.operation, SINKS) for op in operators):
        return
    read = {edge.source for op in operators for edge in op.node.inputs}
    ends = ", ".join(f"'{op.name}'" for op in operators if op.id not in read)
    message = (
        f"job '{plan.name}' has no sink: nothing receives the records of {ends}. Call print(), "
        "sink_to(...) or add_sink(...) on the stream before execute(), or execute_and_collect() "
        "instead of it"
    )
    if not any(map(_has_function_object, operators)):
        raise JobDefinitionError(message)
    _logger.warning("%s. The job runs, because its functions may write somewhere", message)


def _has_function_object(operator: PlannedOperator) -> bool:
    operation = operator.node.operation
    return isinstance(operation, FunctionOperation) and any(
        isinstance(function, Function) and not type(function).__module__.startswith("holdfast.")
        for function in innermost(operation.function)
    )
