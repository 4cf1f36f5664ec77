"""The broadcast state pattern: every subtask receives one stream in full, and a share of another.

The broadcast stream carries data that all subtasks need, such as rules, and its function stores it
in broadcast state. The other stream carries the records to which the rules apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from holdfast.datastream.state import MapStateDescriptor
from holdfast.datastream.streams.connected_streams import check_same_environment, key_of, two_inputs
from holdfast.datastream.streams.function_checks import check_object
from holdfast.errors import JobTypeError
from holdfast.graph.operations import BroadcastOperation

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

    Stream: TypeAlias = DataStream | KeyedStream


class BroadcastStream:
    """A stream of which every subtask receives every record, and the states derived from it.

    Use it with ``stream.connect(broadcast_stream).process(...)``.
    """

    def __init__(
        self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        """Use ``DataStream.broadcast(descriptor, ...)``."""
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        _check_descriptors(self.broadcast_state_descriptors)


class BroadcastConnectedStream:
    """A stream, keyed or not, that is connected with a broadcast stream."""

    def __init__(
        self,
        non_broadcast_stream: Stream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        """Use ``connect`` of a stream."""
        check_same_environment("connect", non_broadcast_stream, broadcast_stream.input_stream)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any]
        | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: Any = None,
    ) -> DataStream:
        """Process the records of both streams with one function, which shares the broadcast state.

        A keyed stream takes a ``KeyedBroadcastProcessFunction``, any other a
        ``BroadcastProcessFunction``.
        """
        stream = self.non_broadcast_stream
        key = key_of(stream)
        self._check(func, key is not None)
        operation = BroadcastOperation(
            func,
            key_selector=key.selector if key else None,
            key_type=key.key_type if key else None,
            descriptors=tuple(self.broadcast_state_descriptors),
        )
        kind, name = _KEYED if key else _PLAIN
        edges = two_inputs(stream, self.broadcast_stream.input_stream)
        return stream._new(kind, name, operation, edges, output_type)

    def _check(self, function: Any, keyed: bool) -> None:
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        stream = "a keyed stream" if keyed else "a stream without keys"
        expected = f"{stream} that is connected with a broadcast stream takes"
        check_object("process", function, wanted, expected=expected)


_KEYED = ("keyed_broadcast", "Keyed-Co-Process-Broadcast")
_PLAIN = ("co_broadcast", "Co-Process-Broadcast")


def _check_descriptors(descriptors: Sequence[MapStateDescriptor]) -> None:
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            message = f"broadcast: expected descriptors of map states; got {descriptor!r}"
            raise JobTypeError(message)
    names = [descriptor.get_name() for descriptor in descriptors]
    for name in names:
        if names.count(name) > 1:
            message = f"broadcast: two states have the name '{name}'; give each its own"
            raise ValueError(message)
