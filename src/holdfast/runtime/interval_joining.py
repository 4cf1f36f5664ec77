"""The interval join of two keyed streams, in one subtask.

Each side keeps its records by timestamp until no record of the other side can join them any more: a
timer at that time removes them. A record that comes after its own time is late and joins nothing;
so what the join gives are exactly the pairs of records of which none was late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.common import Types
from holdfast.datastream.functions import ProcessJoinFunction
from holdfast.datastream.interval_join import IntervalJoinSettings
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state import MapState, MapStateDescriptor
from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.timers import Timer

#: a result, and its timestamp
_Result = tuple[Any, int | None]


class _Side(NamedTuple):
    """One of the two inputs.

    Attributes:
        name: also the namespace of its timers.
        records: those that wait, by timestamp.
        lower, upper: where the partners of its records are, relative to them.
        late: the side output of late records.
    """

    name: str
    records: MapState[int, list[Any]]
    lower: int
    upper: int
    late: OutputTag | None

    @property
    def keeps(self) -> int:
        """How long after its timestamp a record may still find a partner."""
        return max(self.upper, 0)


class _PairContext(ProcessJoinFunction.Context):
    left = right = 0

    def get_left_timestamp(self) -> int:
        return self.left

    def get_right_timestamp(self) -> int:
        return self.right

    def get_timestamp(self) -> int:
        return max(self.left, self.right)


class IntervalJoiner:
    """Joins the records of two inputs, and forgets those that can join no more."""

    def __init__(
        self,
        function: ProcessJoinFunction[Any, Any, Any],
        settings: IntervalJoinSettings,
        time: OperatorTime,
        state: Callable[[MapStateDescriptor], Any],
    ) -> None:
        """Join with this function; ``state`` makes the states."""
        self._function = function
        self._time = time
        self._timers = time.queues[TimeDomain.EVENT_TIME]
        self._context = _PairContext()
        lower, upper = settings.lower, settings.upper
        left, right = map(state, side_descriptors(settings))
        self._left = _Side("left", left, lower, upper, settings.left_late)
        self._right = _Side("right", right, -upper, -lower, settings.right_late)

    def process_left(self, record: Any, stamp: int | None) -> Iterator[_Result]:
        """A record of the first input: its pairs with what the second one has so far."""
        return self._process(record, stamp, self._left, self._right)

    def process_right(self, record: Any, stamp: int | None) -> Iterator[_Result]:
        """A record of the second input: its pairs with what the first one has so far."""
        return self._process(record, stamp, self._right, self._left)

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterator[_Result]:
        """Forget the records of a timestamp, which can join no more."""
        side = self._left if timer.namespace == self._left.name else self._right
        side.records.remove(timer.timestamp - side.keeps)
        return iter(())

    def _process(
        self, record: Any, stamp: int | None, side: _Side, other: _Side
    ) -> Iterator[_Result]:
        if stamp is None:
            raise ValueError(_NO_TIMESTAMP)
        if stamp <= self._time.watermark.time:
            if side.late is not None:
                yield (side.late, record), stamp
            return
        self._keep(record, stamp, side)
        lowest, highest = stamp + side.lower, stamp + side.upper
        for at in sorted(at for at in other.records if lowest <= at <= highest):
            for partner in tuple(other.records[at] or ()):
                yield from self._join(side, record, stamp, partner, at)

    def _keep(self, record: Any, stamp: int, side: _Side) -> None:
        records = side.records.get(stamp) or []
        records.append(record)
        side.records.put(stamp, records)
        self._timers.register(stamp + side.keeps, side.name)

    def _join(
        self, side: _Side, record: Any, stamp: int, partner: Any, at: int
    ) -> Iterator[_Result]:
        context = self._context
        if side is self._left:
            context.left, context.right = stamp, at
            results = self._function.process_element(record, partner, context)
        else:
            context.left, context.right = at, stamp
            results = self._function.process_element(partner, record, context)
        if results is not None:
            for result in results:
                yield result, max(stamp, at)


_NO_TIMESTAMP = (
    "an interval join needs timestamps, and this record has none; call "
    "assign_timestamps_and_watermarks(...) on both streams before key_by(...)"
)


def side_descriptors(settings: IntervalJoinSettings) -> tuple[MapStateDescriptor, ...]:
    """The states of the records of both sides."""
    sides = ("left", settings.left_type), ("right", settings.right_type)
    return tuple(_descriptor(side, record_type) for side, record_type in sides)


def _descriptor(side: str, record_type: Any) -> MapStateDescriptor:
    """The state of a side; no state of a user has such a name."""
    records = None if record_type is None else Types.LIST(record_type)
    return MapStateDescriptor(f"\0{side}-records", Types.LONG(), records)
