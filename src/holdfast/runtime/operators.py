"""How a function is called for a record: one small closure per style, composed into a chain.

``process(record)`` of an operator calls the user's function and hands the results to ``emit``,
which is the ``process`` of the next operator, a router, or several of them. There is no queue and
no dispatch per record. Errors of a function are described where they happen; those of operators
further down pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.graph.nodes import Style
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.routing import Emit

_METHODS = {
    Style.MAP: "map",
    Style.FLAT_MAP: "flat_map",
    Style.FILTER: "filter",
    Style.PROCESS: "process_element",
    Style.SINK: "invoke",
}


def method_of(function: Any, style: Style) -> Callable[..., Any]:
    """The method that a style calls on a function object; a plain callable is itself."""
    return getattr(function, _METHODS[style], function)  # type: ignore[no-any-return]


def fan_out(emits: Sequence[Emit]) -> Emit:
    """One function that hands a record to all of them, in order."""
    if not emits:
        return _discard
    if len(emits) == 1:
        return emits[0]
    if len(emits) == 2:
        first, second = emits

        def emit_two(record: Any) -> None:
            first(record)
            second(record)

        return emit_two

    def emit_all(record: Any) -> None:
        for emit in emits:
            emit(record)

    return emit_all


def _discard(record: Any) -> None:
    pass


def coercing(emit: Emit, coerce: Callable[[Any], Any] | None, report: FailureReporter) -> Emit:
    """Give records the shape that the operator's declared output type has."""
    if coerce is None:
        return emit

    def emit_coerced(record: Any) -> None:
        try:
            shaped = coerce(record)
        except Exception as error:
            report.at(record, error)
        emit(shaped)

    return emit_coerced


def make_process(
    style: Style, call: Callable[..., Any], context: Any, emit: Emit, report: FailureReporter
) -> Emit:
    """The closure for a function without a key."""
    if style is Style.MAP:
        return _map(call, emit, report)
    if style is Style.FLAT_MAP:
        return _flat_map(call, emit, report)
    if style is Style.FILTER:
        return _filter(call, emit, report)
    if style is Style.PROCESS:
        return _process(call, context, emit, report)
    return _sink(call, context, report)


def _map(call: Callable[..., Any], emit: Emit, report: FailureReporter) -> Emit:
    def process(record: Any) -> None:
        try:
            result = call(record)
        except Exception as error:
            report.at(record, error)
        emit(result)

    return process


def _filter(call: Callable[..., Any], emit: Emit, report: FailureReporter) -> Emit:
    def process(record: Any) -> None:
        try:
            keep = call(record)
        except Exception as error:
            report.at(record, error)
        if keep:
            emit(record)

    return process


def _flat_map(call: Callable[..., Any], emit: Emit, report: FailureReporter) -> Emit:
    def process(record: Any) -> None:
        try:
            results = call(record)
            if results is not None:
                for result in results:
                    emit(result)
        except HoldfastError:
            raise
        except Exception as error:
            report.at(record, error)

    return process


def _process(call: Callable[..., Any], context: Any, emit: Emit, report: FailureReporter) -> Emit:
    def process(record: Any) -> None:
        try:
            results = call(record, context)
            if results is not None:
                for result in results:
                    emit(result)
        except HoldfastError:
            raise
        except Exception as error:
            report.at(record, error)

    return process


def _sink(call: Callable[..., Any], context: Any, report: FailureReporter) -> Emit:
    def process(record: Any) -> None:
        try:
            call(record, context)
        except Exception as error:
            report.at(record, error)

    return process


def make_keyed_process(
    style: Style,
    call: Callable[..., Any],
    selector: Callable[[Any], Any],
    key_context: Any,
    context: Any,
    emit: Emit,
    report: FailureReporter,
) -> Emit:
    """The closure for a function on a keyed stream: the key is set before the call."""
    if style is Style.PROCESS:
        return _keyed_process(call, selector, key_context, context, emit, report)
    inner = make_process(style, call, context, emit, report)

    def process(record: Any) -> None:
        try:
            key_context.key = selector(record)
        except Exception as error:
            report.at(record, error)
        inner(record)

    return process


def _keyed_process(
    call: Callable[..., Any],
    selector: Callable[[Any], Any],
    key_context: Any,
    context: Any,
    emit: Emit,
    report: FailureReporter,
) -> Emit:
    """The hot path: one frame for key, call and results."""

    def process(record: Any) -> None:
        try:
            key_context.key = selector(record)
            results = call(record, context)
            if results is not None:
                for result in results:
                    emit(result)
        except HoldfastError:
            raise
        except Exception as error:
            report.at(record, error)

    return process
