"""The built-in operations of a keyed stream, as keyed process functions over state."""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.common import Row
from holdfast.common._type_infos.base import same
from holdfast.common.callables import described, with_place
from holdfast.common.constants import MAX_LONG_VALUE
from holdfast.datastream.functions import KeyedProcessFunction, ReduceFunction, RuntimeContext
from holdfast.datastream.functions.base import WrappingFunction
from holdfast.datastream.state import ValueState, ValueStateDescriptor


class _StatefulFunction(WrappingFunction, KeyedProcessFunction):
    """A user's function together with one value of state per key."""

    def __init__(self, function: Any, state_name: str, type_info: Any) -> None:
        self._function = function
        self._descriptor = ValueStateDescriptor(state_name, type_info)

    def wrapped(self) -> tuple[Any, ...]:
        return (self._function,)

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._state: ValueState[Any] = runtime_context.get_state(self._descriptor)
        self._call = self._callable()

    def _callable(self) -> Callable[..., Any]:
        return self._function  # type: ignore[no-any-return]

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None: ...


class Reduce(_StatefulFunction):
    """A rolling reduction: every record emits the new value of its key."""

    def __init__(self, function: Any, type_info: Any = None) -> None:
        """Reduce with a ``ReduceFunction`` or a callable of two values."""
        super().__init__(function, "reduced", type_info)

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Fold the record into the value so far."""
        state = self._state
        so_far = state.value()
        if so_far is not None:
            value = self._call(so_far, value)
        state.update(value)
        return (value,)

    def _callable(self) -> Callable[..., Any]:
        if isinstance(self._function, ReduceFunction):
            return self._function.reduce
        return self._function  # type: ignore[no-any-return]


class FinalReduce(Reduce):
    """A reduction of all records of a key, which emits its value when the input has ended."""

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Fold the record into the value so far."""
        so_far = self._state.value()
        if so_far is None:
            ctx.timer_service().register_event_time_timer(MAX_LONG_VALUE)
        else:
            value = self._call(so_far, value)
        self._state.update(value)
        return None

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """Emit the value at the end of the input; as in PyFlink, nothing if it is None."""
        value = self._state.value()
        return None if value is None else (value,)


class MapWithState(_StatefulFunction):
    """``function(value, state) -> (result, state)``."""

    def __init__(self, function: Any, type_info: Any = None) -> None:
        """Map with a callable of a value and a state, which is None at first."""
        super().__init__(function, "state", type_info)

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Call the function with the state of the key, and store the state it returns."""
        given = self._call(value, self._state.value())
        try:
            result, kept = given
        except (TypeError, ValueError):
            raise _not_a_pair(self._call, given) from None
        self._keep(kept)
        return self._results(value, result)

    def _keep(self, kept: Any) -> None:
        if kept is None:
            self._state.clear()
        else:
            self._state.update(kept)

    def _results(self, value: Any, result: Any) -> Iterable[Any] | None:
        return (result,)


def _not_a_pair(function: Any, given: Any) -> TypeError:
    message = (
        f"{described(function)} returned {given!r} ({type(given).__name__}), which is not a pair "
        "of a result and the new state; return result, state"
    )
    return with_place(TypeError(message), function)


class FlatMapWithState(MapWithState):
    """``function(value, state) -> (results, state)``."""

    def _results(self, value: Any, result: Any) -> Iterable[Any] | None:
        return result  # type: ignore[no-any-return]


class FilterWithState(MapWithState):
    """``function(value, state) -> (keep, state)``."""

    def _results(self, value: Any, result: Any) -> Iterable[Any] | None:
        return (value,) if result else None


class _FieldReducer(ReduceFunction):
    """Keeps the first record, and combines one of its fields with that field of later records."""

    def __init__(self, position: int | str, combine: Callable[[Any, Any], Any]) -> None:
        self._position = position
        self._combine = combine

    def reduce(self, value1: Any, value2: Any) -> Any:
        position, combine = self._position, self._combine
        if isinstance(value1, tuple):
            fields = list(value1)
            fields[position] = combine(value1[position], value2[position])  # type: ignore[index]
            return _like(value1, fields)
        if isinstance(value1, Row | list):
            changed = copy.copy(value1)
            changed[position] = combine(value1[position], value2[position])  # type: ignore[index]
            return changed
        _check_basic(position)
        return combine(value1, value2)


class _RecordChooser(ReduceFunction):
    """Keeps the whole record whose field is the smallest or largest; the first of equal ones."""

    def __init__(self, position: int | str, is_better: Callable[[Any, Any], bool]) -> None:
        self._position = position
        self._is_better = is_better

    def reduce(self, value1: Any, value2: Any) -> Any:
        field = field_selector(value1, self._position)
        return value2 if self._is_better(field(value2), field(value1)) else value1


def field_selector(sample: Any, position: int | str) -> Callable[[Any], Any]:
    """Return a getter for a field of such records; for a basic value, the value itself."""
    if isinstance(sample, tuple | list | Row):
        return operator.itemgetter(position)
    _check_basic(position)
    return same


def _check_basic(position: int | str) -> None:
    if position != 0:
        message = (
            f"field {position!r} was selected, but the records are basic values; only field 0, the "
            "value itself, can be selected"
        )
        raise TypeError(message)


def _like(sample: tuple[Any, ...], fields: list[Any]) -> tuple[Any, ...]:
    make = getattr(sample, "_make", None)
    return make(fields) if make else tuple(fields)


_REDUCERS: dict[str, Callable[[int | str], ReduceFunction]] = {
    "sum": lambda position: _FieldReducer(position, operator.add),
    "min": lambda position: _FieldReducer(position, min),
    "max": lambda position: _FieldReducer(position, max),
    "min_by": lambda position: _RecordChooser(position, operator.lt),
    "max_by": lambda position: _RecordChooser(position, operator.gt),
}


def field_reducer(kind: str, position: int | str) -> ReduceFunction:
    """Return the reduce function behind ``sum``, ``min``, ``max``, ``min_by`` and ``max_by``.

    Raises:
        TypeError: if the position is neither an index nor a field name.
    """
    if not isinstance(position, int | str):
        message = f"{kind}: the field must be an int or a str; got {type(position).__name__}"
        raise TypeError(message)
    return _REDUCERS[kind](position)
