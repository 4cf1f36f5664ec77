"""Operators of functions that are called record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, ClassVar

from holdfast.datastream.time_domain import TimeDomain
from holdfast.graph.nodes import Hash
from holdfast.graph.operations import FunctionOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.failures import results_of
from holdfast.runtime.fusion import Calling, Port
from holdfast.runtime.operators.base import Operator, Pair, SubtaskParts
from holdfast.runtime.record_context import KeyedRecordContext, RecordContext
from holdfast.runtime.routing import key_function
from holdfast.runtime.timer_queue import Timer, TimerQueue
from holdfast.runtime.worker.logs import at_work
from holdfast.state.live.key_context import NO_KEY, KeyContext
from holdfast.state.live.mutations import WatchedKeyContext
from holdfast.state.types.key_forms import key_form

#: a method of a function, and how the generated code calls it
Method = tuple[Calling, Callable[..., Any]]


class FunctionOperator(Operator):
    """A function that is called with each record, perhaps with a key, state and timers."""

    #: for each input: how the function is called, and the name of the method
    methods: ClassVar[tuple[tuple[Calling, str], ...]] = ()
    #: whether a result may be a pair of an ``OutputTag`` and a record
    sides: ClassVar[bool] = False

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Create the contexts that are passed to the function with each record."""
        super().__init__(operator, function, parts)
        #: by input
        self.record_contexts = self._make_contexts()

    @property
    def operation(self) -> FunctionOperation:
        """Return the operation that the user defined."""
        operation = self.operator.node.operation
        assert isinstance(operation, FunctionOperation)
        return operation

    @property
    def has_sides(self) -> bool:
        return self.sides

    @property
    def has_timers(self) -> bool:
        """Return whether there may be timers, on a keyed stream."""
        return hasattr(self.function, "on_timer")

    @classmethod
    def methods_of(cls, function: Any) -> tuple[Method, ...]:
        """Return the methods that are called, by input; for a plain callable, the callable."""
        return tuple((how, getattr(function, name, function)) for how, name in cls.methods)

    def ports(self) -> tuple[Port, ...]:
        # if one input has timestamps, records of the other must clear the timestamp in the context
        stamped = bool(self.operator.timestamped_inputs)
        return tuple(
            Port(calling, call, context, selector, stamped and calling.has_context)
            for (calling, call), selector, context in zip(
                self._methods(), self._selectors(), self.record_contexts, strict=False
            )
        )

    def keys_of(self, number: int, records: list[Any]) -> list[Any]:
        selector = self._selectors()[number]
        if selector is None:
            return []
        with at_work(self.report), suppress(Exception):  # reported when the record is processed
            return list(map(selector, records))
        return []

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        context = self.record_contexts[0]
        assert isinstance(context, KeyedRecordContext)
        timestamp = timer.timestamp
        context.stamp, context.domain = timestamp, domain
        stamp = timestamp if domain is TimeDomain.EVENT_TIME else None
        results = self.function.on_timer(timestamp, context)
        # NB: a generator runs here, while the context is set
        pairs = [(result, stamp) for result in results_of(self.function.on_timer, results)]
        context.stamp = None
        return pairs

    def _methods(self) -> tuple[Method, ...]:
        return self.methods_of(self.function)

    def _make_key_context(self) -> KeyContext | None:
        if not self.operation.key_selector:
            return None
        form = key_form(self.operation.key_type)
        thaw = form and form.thaw
        watch = self.watch
        context = KeyContext(thaw=thaw) if watch is None else WatchedKeyContext(watch, thaw)
        context.key = NO_KEY
        return context

    def _make_time(self, parts: SubtaskParts) -> OperatorTime:
        uid, key = self.operator.uid, self.key_context
        if key is None or not self.has_timers:
            return OperatorTime(parts.clock)
        queues = tuple(TimerQueue(domain, uid, parts.backend, key) for domain in TimeDomain)
        return OperatorTime(parts.clock, queues)

    def _make_contexts(self) -> tuple[RecordContext, RecordContext]:
        time, name, key = self.time, self.operator.name, self.key_context
        context = RecordContext(time, name) if key is None else KeyedRecordContext(time, name, key)
        return context, context

    def _selectors(self) -> list[Callable[[Any], Any] | None]:
        """Return the function that finds the key of a record, by input."""
        operation = self.operation
        kept = {
            edge.input
            for edge in self.operator.node.inputs
            if isinstance(edge.partitioning, Hash) and edge.partitioning.kept
        }
        return [
            key_function(selector, operation.key_type, number in kept) if selector else None
            for number, selector in enumerate((operation.key_selector, operation.second_selector))
        ]


class MapOperator(FunctionOperator):
    """One record in, one record out."""

    methods = ((Calling.ONE, "map"),)


class FlatMapOperator(FunctionOperator):
    """One record in, any number out."""

    methods = ((Calling.MANY, "flat_map"),)


class FilterOperator(FunctionOperator):
    """Keeps some of the records."""

    methods = ((Calling.FILTER, "filter"),)


class ProcessOperator(FunctionOperator):
    """A process function."""

    methods = ((Calling.PROCESS, "process_element"),)
    sides = True


class CoMapOperator(FunctionOperator):
    """One record of either stream in, at most one out."""

    methods = ((Calling.MAYBE, "map1"), (Calling.MAYBE, "map2"))


class CoFlatMapOperator(FunctionOperator):
    """One record of either stream in, any number out."""

    methods = ((Calling.MANY, "flat_map1"), (Calling.MANY, "flat_map2"))


class CoProcessOperator(FunctionOperator):
    """A process function of two streams."""

    methods = ((Calling.PROCESS, "process_element1"), (Calling.PROCESS, "process_element2"))
    sides = True
