"""The interval join of two keyed streams, in one subtask.

Each side keeps its records by timestamp until no record of the other side can join them any more; a
timer at that time removes them. A record that arrives after the watermark has passed its timestamp
is late and joins nothing. So the join produces exactly the pairs in which neither record was late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from holdfast.common import Types
from holdfast.datastream.functions import ProcessJoinFunction
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state import MapState, MapStateDescriptor
from holdfast.datastream.time_domain import TimeDomain
from holdfast.graph.operations import IntervalJoinOperation, IntervalJoinSettings
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.failures import results_of
from holdfast.runtime.fusion import Calling
from holdfast.runtime.operators.base import Pair, SubtaskParts
from holdfast.runtime.operators.functions import FunctionOperator, Method
from holdfast.runtime.timer_queue import Timer


class _Side(NamedTuple):
    """One of the two inputs.

    Attributes:
        name: its name, which is also the namespace of its timers.
        records: the records that are kept, by timestamp.
        lower, upper: bounds of the timestamps that its records join, relative to them.
        late: the side output of late records.
    """

    name: str
    records: MapState[int, list[Any]]
    lower: int
    upper: int
    late: OutputTag | None

    @property
    def keeps(self) -> int:
        """Return how long after its timestamp a record may still find a partner."""
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
    """Joins the records of two inputs, and removes those that cannot join any more."""

    def __init__(
        self,
        function: ProcessJoinFunction[Any, Any, Any],
        settings: IntervalJoinSettings,
        time: OperatorTime,
        state: Callable[[MapStateDescriptor], Any],
    ) -> None:
        """Join with this function; ``state`` creates the states."""
        self._function = function
        self._time = time
        self._timers = time.queues[TimeDomain.EVENT_TIME]
        self._context = _PairContext()
        lower, upper = settings.lower, settings.upper
        left, right = map(state, side_descriptors(settings))
        self._left = _Side("left", left, lower, upper, settings.left_late)
        self._right = _Side("right", right, -upper, -lower, settings.right_late)

    def process_left(self, record: Any, stamp: int | None) -> Iterator[Pair]:
        """Return the results for a record of the first input with those of the second so far."""
        return self._process(record, stamp, self._left, self._right)

    def process_right(self, record: Any, stamp: int | None) -> Iterator[Pair]:
        """Return the results for a record of the second input with those of the first so far."""
        return self._process(record, stamp, self._right, self._left)

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterator[Pair]:
        """Remove the records of a timestamp, which cannot join any more."""
        side = self._left if timer.namespace == self._left.name else self._right
        side.records.remove(timer.timestamp - side.keeps)
        return iter(())

    def _process(self, record: Any, stamp: int | None, side: _Side, other: _Side) -> Iterator[Pair]:
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

    def _join(self, side: _Side, record: Any, stamp: int, partner: Any, at: int) -> Iterator[Pair]:
        context = self._context
        if side is self._left:
            context.left, context.right = stamp, at
            results = self._function.process_element(record, partner, context)
        else:
            context.left, context.right = at, stamp
            results = self._function.process_element(partner, record, context)
        for result in results_of(self._function.process_element, results):
            yield result, max(stamp, at)


_NO_TIMESTAMP = (
    "an interval join needs timestamps, and this record has none; call "
    "assign_timestamps_and_watermarks(...) on both streams before key_by(...)"
)


def side_descriptors(settings: IntervalJoinSettings) -> tuple[MapStateDescriptor, ...]:
    """Return the descriptors of the states of both sides."""
    sides = ("left", settings.left_type), ("right", settings.right_type)
    return tuple(_descriptor(side, record_type) for side, record_type in sides)


def _descriptor(side: str, record_type: Any) -> MapStateDescriptor:
    """Return the descriptor for a side, with a name that no state of a user has."""
    records = None if record_type is None else Types.LIST(record_type)
    return MapStateDescriptor(f"\0{side}-records", Types.LONG(), records)


class IntervalJoinOperator(FunctionOperator):
    """Joins two keyed streams."""

    sides = True

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Create the states of both sides."""
        super().__init__(operator, function, parts)
        operation, key = self.operation, self.key_context
        assert isinstance(operation, IntervalJoinOperation)
        assert key is not None

        def state(descriptor: MapStateDescriptor) -> Any:
            return parts.backend.keyed_state(operator.uid, descriptor, key)

        self._joiner = IntervalJoiner(function, operation.settings, self.time, state)

    @property
    def has_timers(self) -> bool:
        return True

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        return self._joiner.on_timer(timer, domain)

    def _methods(self) -> tuple[Method, ...]:
        joins = self._joiner.process_left, self._joiner.process_right
        return tuple((Calling.STAMPED, join) for join in joins)
