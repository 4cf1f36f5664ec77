"""The operator that combines records of a key before they are sent."""

from __future__ import annotations

from typing import Any, Final

from holdfast.datastream.streams.combining import Combining
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.fusion import Calling, Port
from holdfast.runtime.operators.base import Operator, SubtaskParts
from holdfast.runtime.operators.windows.contents import nothing_to_keep
from holdfast.runtime.routing import key_function

#: how many partial values are kept at most
_MOST: Final = 16384


class _Partial:
    """The partial value of a key and a pane, with the latest timestamp of its records."""

    __slots__ = ("key", "stamp", "value")

    def __init__(self, key: Any, stamp: int | None) -> None:
        self.key = key
        self.stamp = stamp
        self.value: Any = None


class CombineOperator(Operator):
    """Keeps a partial value for each key and pane until nothing may wait any longer.

    They are forwarded before a watermark, a barrier and the end, so they are no state.
    """

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Start without partial values."""
        super().__init__(operator, function, parts)
        assert isinstance(function, Combining)
        self._select = getattr(function.selector, "get_key", function.selector)
        self._stored_key = key_function(function.selector, function.key_type, checked=True)
        self._combine = function.adder()
        self._pane, self._offset = function.pane, function.offset
        self._partials: dict[tuple[Any, int | None], _Partial] = {}

    @property
    def emits_later(self) -> bool:
        return True

    def ports(self) -> tuple[Port, ...]:
        return (Port(Calling.ASYNC, self._add),)

    def finish_calls(self) -> None:
        self.flush()

    def flush(self) -> None:
        partials, self._partials = self._partials, {}
        if partials:
            self.emit([((part.key, part.value), part.stamp) for part in partials.values()])

    def abandon(self) -> None:
        self._partials = {}

    def _add(self, record: Any, stamp: int | None) -> None:
        try:
            self._put(record, stamp)
        except Exception as error:
            self.report.at(record, error)
        if len(self._partials) >= _MOST:
            self.flush()

    def _put(self, record: Any, stamp: int | None) -> None:
        # NB: a record without a timestamp is an error of the windows
        pane = None if stamp is None else stamp - (stamp - self._offset) % self._pane
        place = self._stored_key(record), pane
        part = self._partials.get(place)
        if part is None:
            part = self._partials[place] = _Partial(self._select(record), stamp)
        elif stamp is not None and part.stamp is not None:
            part.stamp = max(part.stamp, stamp)
        part.value = self._combine(part.value, record)
        if part.value is None:
            raise nothing_to_keep(self.function.called)
