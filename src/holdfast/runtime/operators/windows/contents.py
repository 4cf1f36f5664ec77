"""The contents of a window: its records, or the value they were folded into.

They are state of the current key and namespace, which the operator sets before each call.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce, wraps
from typing import Any, Final, NoReturn

from holdfast.common import Types
from holdfast.datastream.functions import (
    AllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from holdfast.datastream.state import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.windows.evictors import TimestampedValue
from holdfast.runtime.failures import results_of
from holdfast.runtime.operators.windows.contexts import (
    EvictorContext,
    FunctionContext,
    Surroundings,
)
from holdfast.state.live.views import new_accumulators

#: a name that no state of a user has
CONTENTS: Final = "\0window-contents"
_FLAT: Final = (bool, int, float, complex, str, bytes)

#: adds a record with its timestamp; returns whether the window may have been empty before
Add = Callable[[Any, int | None], bool]
#: the user's function, called with a key, a window and its values
Call = Callable[[Any, Any, list[Any]], Iterable[Any] | None]


class Contents(ABC):
    """The contents of the current window."""

    def __init__(self, around: Surroundings, call: Call) -> None:
        """Call this function with the contents when a window fires."""
        self._keys = around.keys
        self._call = call

    @abstractmethod
    def add(self, record: Any, timestamp: int | None) -> bool:
        """Add a record; return whether the window may have been empty before."""

    def adder(self) -> Add:
        """Return a function that does what `add` does, for operators that keep it."""
        return self.add

    @abstractmethod
    def fire(self, window: Any, last: bool) -> list[Any]:
        """Call the function, unless the window is empty; return its results.

        ``last``: the contents are not needed afterwards.
        """

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether the window is empty."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the contents."""

    @abstractmethod
    def merge(self, target: Any, sources: list[Any]) -> None:
        """Move the contents of some namespaces of the current key to another one."""

    def _results(self, window: Any, values: list[Any]) -> list[Any]:
        results = self._call(self._keys.shown(), window, values)
        return list(results_of(self._call, results))


class Folded(Contents):
    """One value per window. Subclasses define how records are folded into it."""

    def __init__(self, around: Surroundings, call: Call, operation: WindowOperation) -> None:
        super().__init__(around, call)
        self._state = around.state(contents_descriptor(operation))
        self._value = self._state.value
        self._update = self._state.update

    def is_empty(self) -> bool:
        return self._value() is None

    def clear(self) -> None:
        self._state.clear()

    def merge(self, target: Any, sources: list[Any]) -> None:
        parts = []
        for namespace in (target, *sources):
            self._keys.namespace = namespace
            parts.append(self._value())
            self.clear()
        present = [part for part in parts if part is not None]
        self._keys.namespace = target
        if present:
            self._update(reduce(self._merged, present))

    def _of_result(self, window: Any, result: Any) -> list[Any]:
        """Call the function with the one result of a window; as in Flink, None is no result."""
        return [] if result is None else self._results(window, [result])

    @abstractmethod
    def _merged(self, first: Any, second: Any) -> Any:
        """Return the merged value of two values."""


class Reduced(Folded):
    """The records of a window, reduced."""

    def __init__(self, around: Surroundings, call: Call, operation: WindowOperation) -> None:
        super().__init__(around, call, operation)
        self._reduce = reducer_of(operation)

    def add(self, record: Any, timestamp: int | None) -> bool:
        so_far = self._value()
        reduced = record if so_far is None else self._reduce(so_far, record)
        if reduced is None:
            raise nothing_to_keep(self._reduce)
        self._update(reduced)
        return so_far is None

    def fire(self, window: Any, last: bool) -> list[Any]:
        return self._of_result(window, self._value())

    def _merged(self, first: Any, second: Any) -> Any:
        return self._reduce(first, second)


class Accumulated(Folded):
    """The accumulator of a window."""

    def __init__(self, around: Surroundings, call: Call, operation: WindowOperation) -> None:
        super().__init__(around, call, operation)
        aggregator = operation.aggregator
        assert aggregator is not None
        self._aggregator = aggregator
        self._create = new_accumulators(aggregator)
        self._add = aggregator.add

    def add(self, record: Any, timestamp: int | None) -> bool:
        so_far = self._value()
        accumulator = self._add(record, self._create() if so_far is None else so_far)
        if accumulator is None:
            self._refuse()
        self._update(accumulator)
        return so_far is None

    def adder(self) -> Add:
        # NB: it builds the pair of key and window once, and looks nothing up in this object
        folding = getattr(self._state, "folding", None)
        if folding is None:
            return self.add
        return folding(self._create, self._add, self._refuse)  # type: ignore[no-any-return]

    def _refuse(self) -> NoReturn:
        raise nothing_to_keep(self._add)

    def fire(self, window: Any, last: bool) -> list[Any]:
        accumulator = self._value()
        if accumulator is None:
            return []
        if not last and not _is_flat(accumulator):
            # The result may be the accumulator or a part of it, and records may be added to the
            # accumulator before the result is sent.
            accumulator = copy.deepcopy(accumulator)
        return self._of_result(window, self._aggregator.get_result(accumulator))

    def _merged(self, first: Any, second: Any) -> Any:
        return self._aggregator.merge(first, second)


class Listed(Contents):
    """The records of a window, in the order of their arrival."""

    def __init__(self, around: Surroundings, call: Call, operation: WindowOperation) -> None:
        super().__init__(around, call)
        self._state = around.state(contents_descriptor(operation))

    def add(self, record: Any, timestamp: int | None) -> bool:
        self._state.add(record)
        return True

    def fire(self, window: Any, last: bool) -> list[Any]:
        records = self._state.get()
        return self._results(window, records) if records else []

    def is_empty(self) -> bool:
        return not self._state.get()

    def clear(self) -> None:
        self._state.clear()

    def merge(self, target: Any, sources: list[Any]) -> None:
        self._state.merge_namespaces(self._keys.key, target, sources)


class Evicted(Listed):
    """The records of a window with their timestamps; an evictor removes some of them."""

    def __init__(self, around: Surroundings, call: Call, operation: WindowOperation) -> None:
        super().__init__(around, call, operation)
        assert operation.evictor is not None
        self._evictor = operation.evictor
        self._context = EvictorContext(around)
        self._fold = _folding(operation)

    def add(self, record: Any, timestamp: int | None) -> bool:
        self._state.add((record, timestamp))
        return True

    def fire(self, window: Any, last: bool) -> list[Any]:
        elements = [TimestampedValue(*pair) for pair in self._state.get()]
        if not elements:
            return []
        before = len(elements)
        self._evictor.evict_before(elements, before, window, self._context)
        values = self._fold([element.value for element in elements])
        results = [] if values is None else self._results(window, values)
        self._evictor.evict_after(elements, len(elements), window, self._context)
        if len(elements) != before:
            self._state.update(tuple(element) for element in elements)
        return results


def contents_descriptor(operation: WindowOperation) -> StateDescriptor:
    """Return the descriptor of the state with the contents of windows."""
    kept = operation.kept_type
    if operation.evictor is not None:
        stamped = None if kept is None else Types.TUPLE([kept, Types.LONG()])
        return ListStateDescriptor(CONTENTS, stamped)
    if operation.reducer is None and operation.aggregator is None:
        return ListStateDescriptor(CONTENTS, kept)
    return ValueStateDescriptor(CONTENTS, kept)


def make_contents(
    operation: WindowOperation, around: Surroundings, context: FunctionContext
) -> Contents:
    """Return the contents for an operation."""
    kind: type[Folded | Listed]
    if operation.evictor is not None:
        kind = Evicted
    elif operation.reducer is not None:
        kind = Reduced
    else:
        kind = Listed if operation.aggregator is None else Accumulated
    return kind(around, _call_of(operation, context), operation)


def reducer_of(operation: WindowOperation) -> Callable[[Any, Any], Any]:
    """Return the function that reduces two records."""
    reducer: Any = operation.reducer
    return getattr(reducer, "reduce", reducer)  # type: ignore[no-any-return]


def _call_of(operation: WindowOperation, context: FunctionContext) -> Call:
    function = operation.function
    if function is None:
        return lambda key, window, values: values
    if isinstance(function, WindowFunction):
        return function.apply
    if isinstance(function, AllWindowFunction):
        apply = function.apply
        return wraps(apply)(lambda key, window, values: apply(window, values))
    process: Callable[..., Iterable[Any] | None] = function.process
    of_key = isinstance(function, ProcessWindowFunction)

    @wraps(process)
    def call(key: Any, window: Any, values: list[Any]) -> Iterable[Any] | None:
        context.current = window
        return process(key, context, values) if of_key else process(context, values)

    return call


def _folding(operation: WindowOperation) -> Callable[[list[Any]], list[Any] | None]:
    """Return the function that folds the records an evictor has left; its None means no result."""
    aggregator = operation.aggregator
    if operation.reducer is not None:
        reducer = reducer_of(operation)
        return lambda values: [reduce(reducer, values)] if values else None
    if aggregator is None:
        return lambda values: values

    def aggregate(values: list[Any]) -> list[Any] | None:
        accumulator = aggregator.create_accumulator()
        for value in values:
            accumulator = aggregator.add(value, accumulator)
        result = aggregator.get_result(accumulator)
        return None if result is None else [result]

    return aggregate


def _is_flat(value: Any) -> bool:
    if value.__class__ is tuple:
        return all(part is None or part.__class__ in _FLAT for part in value)
    return value.__class__ in _FLAT


def nothing_to_keep(function: Any) -> TypeError:
    """Return the error for a function that returned None instead of a value to keep."""
    return TypeError(
        f"a window cannot contain None: {function!r} returned None, or a record that is to be "
        "reduced is None; return the accumulator, and filter out records that are None"
    )
