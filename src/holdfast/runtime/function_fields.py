"""Transfers the fields of a function object from one worker process to the next.

For users, a function object lives as long as its attempt. Since its subtask may run in another
process in the next epoch, its fields are saved with the state of the subtask at the end of each
epoch and restored where the subtask runs next. A state handle or the runtime context in a field is
saved by name. A field that cannot be pickled (a connection, a lock) is not transferred: ``open`` is
called in every new process and creates it. A class can choose what is transferred with
``__getstate__``.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from holdfast.common._cloudpickle import Pickler
from holdfast.datastream.functions.base import Function, innermost
from holdfast.datastream.state import ColumnState, State
from holdfast.metrics import Metric, MetricGroup
from holdfast.printable import get_logger
from holdfast.runtime.context import OperatorContext

FIELDS = "fields"
_LARGE = 8 * 1024 * 1024
_logger = get_logger(__name__)


class FunctionFields:
    """Saves and restores the fields of an operator's function object, or of those within it."""

    def __init__(self, operator: str, function: Any, context: OperatorContext) -> None:
        """Take the function object; a plain callable has no fields."""
        self._operator = operator
        self._context = context
        self._objects = [_Object(inner, context) for inner in innermost(function)]
        self._carries = isinstance(function, Function)
        self._last: bytes | None = None
        self._warned = False

    def save(self) -> bytes | None:
        """Return the fields and metrics as bytes; None if there are none."""
        metrics = self._context.get_metrics_group().dump()
        if not metrics and not self._carries:
            return None
        attempt = self._context.get_attempt_number()
        parts = [pickle.dumps((attempt, metrics), 5), *(o.dump() for o in self._objects)]
        self._last = b"".join(parts)
        self._warn_if_large(len(self._last))
        return self._last

    def restore(self, data: bytes | None) -> None:
        """Restore saved fields, unless the object has them already."""
        if data is None or data == self._last:
            return
        stream = io.BytesIO(data)
        attempt, metrics = pickle.load(stream)
        if attempt != self._context.get_attempt_number():
            return  # a function object lives as long as its attempt
        self._context.get_metrics_group().restore(metrics)
        for carried in self._objects:
            carried.load(stream)
        self._last = data

    def _warn_if_large(self, size: int) -> None:
        if size > _LARGE and not self._warned:
            self._warned = True
            _logger.warning(
                "the fields of the function of operator '%s' take %d MB and are written with every "
                "epoch; exclude large objects that do not change with __getstate__, or "
                "put them into state",
                self._operator,
                size >> 20,
            )


class _Object:
    """The fields of one function object; a plain callable has none."""

    def __init__(self, function: Any, context: OperatorContext) -> None:
        self._function = function
        self._context = context
        self._carries = isinstance(function, Function)
        self._left_out: set[str] = set()

    def dump(self) -> bytes:
        fields = self._fields() if self._carries else None
        try:
            return dump_field((fields, sorted(self._left_out)), self._context)
        except Exception:
            if not isinstance(fields, dict):
                raise
            kept = {name: value for name, value in fields.items() if self._can_carry(name, value)}
            return dump_field((kept, sorted(self._left_out)), self._context)

    def load(self, stream: io.BytesIO) -> None:
        fields, left_out = _FieldsUnpickler(stream, self._context).load()
        if self._carries:
            _set_state(self._function, fields, left_out)

    def _fields(self) -> Any:
        state = self._function.__getstate__()
        if isinstance(state, tuple) and not hasattr(self._function, "__setstate__"):
            # for a class with __slots__ Python returns a pair: other fields, and the slots
            state = {name: value for part in state for name, value in (part or {}).items()}
        if not isinstance(state, dict):
            return state
        return {name: value for name, value in state.items() if name not in self._left_out}

    def _can_carry(self, name: str, value: Any) -> bool:
        try:
            dump_field(value, self._context)
        except Exception:
            self._left_out.add(name)
            return False
        return True


def _set_state(function: Any, fields: Any, left_out: list[str]) -> None:
    """Set the object's fields to the saved ones; fields that are not saved are left to ``open``."""
    if hasattr(function, "__setstate__"):
        function.__setstate__(fields)
        return
    fields = fields or {}
    chosen: Any = type(function).__getstate__
    if chosen is object.__getstate__:
        for name in set(getattr(function, "__dict__", ())) - set(fields) - set(left_out):
            object.__delattr__(function, name)
    for name, value in fields.items():
        object.__setattr__(function, name, value)


def dump_field(value: Any, context: OperatorContext) -> bytes:
    """Pickle what a function holds; raises what pickling raises."""
    buffer = io.BytesIO()
    _Pickler(buffer, context).dump(value)
    return buffer.getvalue()


class _Pickler(Pickler):
    def __init__(self, buffer: io.BytesIO, context: OperatorContext) -> None:
        super().__init__(buffer, protocol=5)
        self._context = context

    def persistent_id(self, obj: Any) -> Any:
        if obj is self._context:
            return ("context", "")
        if isinstance(obj, State | ColumnState):
            return ("state", self._context.reference(obj))
        if isinstance(obj, MetricGroup):
            return ("group", obj.path)
        return ("metric", obj.path) if isinstance(obj, Metric) else None


class _FieldsUnpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, context: OperatorContext) -> None:
        super().__init__(buffer)
        self._context = context

    def persistent_load(self, pid: tuple[str, Any]) -> Any:
        kind, place = pid
        if kind == "context":
            return self._context
        if kind == "state":
            return self._context.by_reference(*place)
        metrics = self._context.get_metrics_group()
        return metrics.group_at(place) if kind == "group" else metrics.metric_at(place)
