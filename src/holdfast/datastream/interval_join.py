"""The interval join: pairs of records of one key whose timestamps are close to each other.

PyFlink has none; names and meaning are those of Flink's Java API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.connected_streams import check_same_environment, key_of, two_inputs
from holdfast.datastream.functions import ProcessJoinFunction
from holdfast.datastream.output_tag import OutputTag
from holdfast.graph.nodes import FunctionOperation, Style

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

__all__ = ["IntervalJoin", "IntervalJoinSettings", "IntervalJoined"]


@dataclass(frozen=True)
class IntervalJoinSettings:
    """What an interval join does, for the runtime.

    A right record joins a left one if ``left + lower <= right <= left + upper``, in milliseconds.

    Attributes:
        left_late, right_late: the side outputs for records that come too late, if there are any.
        left_type, right_type: the declared types of the records, if there are any.
    """

    lower: int
    upper: int
    left_late: OutputTag | None = None
    right_late: OutputTag | None = None
    left_type: Any = None
    right_type: Any = None


class IntervalJoin:
    """Two keyed streams that are to be joined; say how far apart records may be."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        """Made by ``KeyedStream.interval_join``."""
        check_same_environment("interval_join", stream1, stream2)
        self._streams = (stream1, stream2)

    def between(self, lower_bound: DurationLike, upper_bound: DurationLike) -> IntervalJoined:
        """Join each record with those of the other stream that lie between these bounds from it.

        The bounds are relative to the left record, may be negative, and belong to the interval.
        """
        lower, upper = to_millis(lower_bound), to_millis(upper_bound)
        if lower > upper:
            msg = (
                f"between: the lower bound must not be above the upper one; got {lower} ms and "
                f"{upper} ms"
            )
            raise ValueError(msg)
        return IntervalJoined(self._streams, lower, upper)


@dataclass(frozen=True)
class IntervalJoined:
    """An interval join that lacks only its function; each setting gives a new one."""

    _streams: tuple[KeyedStream, KeyedStream]
    _lower: int
    _upper: int
    _late: dict[str, OutputTag] = field(default_factory=dict)

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Leave out pairs that are exactly the lower bound apart."""
        return replace(self, _lower=self._lower + 1)

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Leave out pairs that are exactly the upper bound apart."""
        return replace(self, _upper=self._upper - 1)

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send left records that come too late to a side output; otherwise they are dropped."""
        return self._late_to("left_late", output_tag)

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send right records that come too late to a side output; otherwise they are dropped."""
        return self._late_to("right_late", output_tag)

    def process(
        self, process_join_function: ProcessJoinFunction[Any, Any, Any], output_type: Any = None
    ) -> DataStream:
        """Give each pair to a function. Results have the later of the two timestamps."""
        if not isinstance(process_join_function, ProcessJoinFunction):
            given = process_join_function
            msg = f"process: an interval join takes a ProcessJoinFunction; got {given!r}"
            raise TypeError(msg)
        left, right = self._streams
        keys = key_of(left), key_of(right)
        assert keys[0] is not None
        assert keys[1] is not None
        operation = FunctionOperation(
            Style.INTERVAL_JOIN,
            process_join_function,
            keys[0].selector,
            keys[0].key_type,
            keys[1].selector,
            self._settings(),
        )
        edges = two_inputs(left, right)
        return left._new("interval_join", "Interval Join", operation, edges, output_type)

    def _settings(self) -> IntervalJoinSettings:
        left, right = (stream._type() for stream in self._streams)
        return IntervalJoinSettings(
            self._lower, self._upper, **self._late, left_type=left, right_type=right
        )

    def _late_to(self, side: str, output_tag: OutputTag) -> IntervalJoined:
        if not isinstance(output_tag, OutputTag):
            msg = f"the side output of late records needs an OutputTag; got {output_tag!r}"
            raise TypeError(msg)
        return replace(self, _late={**self._late, side: output_tag})
