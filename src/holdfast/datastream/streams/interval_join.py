"""The interval join: pairs of records of one key whose timestamps are close to each other.

PyFlink does not have it; names and semantics are those of Flink's Java API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.functions import ProcessJoinFunction
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.streams.connected_streams import check_same_environment, key_of, two_inputs
from holdfast.datastream.streams.function_checks import check_object
from holdfast.errors import JobTypeError
from holdfast.graph.operations import IntervalJoinOperation, IntervalJoinSettings

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream


class IntervalJoin:
    """Two keyed streams to join; set the interval with `between`."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        """Use ``KeyedStream.interval_join``."""
        check_same_environment("interval_join", stream1, stream2)
        self._streams = (stream1, stream2)

    def between(self, lower_bound: DurationLike, upper_bound: DurationLike) -> IntervalJoined:
        """Join each left record with the right records whose timestamps are within these bounds.

        The bounds are relative to the left record, may be negative, and are inclusive.
        """
        lower, upper = to_millis(lower_bound), to_millis(upper_bound)
        if lower > upper:
            message = (
                f"between: the lower bound must not be above the upper one; got {lower} ms and "
                f"{upper} ms"
            )
            raise ValueError(message)
        return IntervalJoined(self._streams, lower, upper)


@dataclass(frozen=True)
class IntervalJoined:
    """An interval join without its function; each setting returns a new object."""

    _streams: tuple[KeyedStream, KeyedStream]
    _lower: int
    _upper: int
    _late: dict[str, OutputTag] = field(default_factory=dict)

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Exclude pairs that are exactly the lower bound apart."""
        return replace(self, _lower=self._lower + 1)

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Exclude pairs that are exactly the upper bound apart."""
        return replace(self, _upper=self._upper - 1)

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send late left records to a side output; otherwise they are dropped."""
        return self._late_to("left_late", output_tag)

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send late right records to a side output; otherwise they are dropped."""
        return self._late_to("right_late", output_tag)

    def process(
        self, process_join_function: ProcessJoinFunction[Any, Any, Any], output_type: Any = None
    ) -> DataStream:
        """Process each pair with a function. Results have the later of the two timestamps."""
        expected = "an interval join takes"
        check_object("process", process_join_function, ProcessJoinFunction, expected=expected)
        left, right = self._streams
        keys = key_of(left), key_of(right)
        assert keys[0] is not None
        assert keys[1] is not None
        operation = IntervalJoinOperation(
            process_join_function,
            keys[0].selector,
            keys[0].key_type,
            keys[1].selector,
            settings=self._settings(),
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
            message = f"the side output of late records needs an OutputTag; got {output_tag!r}"
            raise JobTypeError(message)
        return replace(self, _late={**self._late, side: output_tag})
