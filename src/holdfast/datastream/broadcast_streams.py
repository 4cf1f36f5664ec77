"""The broadcast state pattern: a stream that every subtask sees in full, beside one that it shares.

The broadcast stream carries what all subtasks must know, such as rules, and its function keeps that
in broadcast state; the other stream carries what the rules are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.datastream.connected_streams import check_same_environment, key_of, two_inputs
from holdfast.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from holdfast.datastream.state import MapStateDescriptor
from holdfast.graph.nodes import FunctionOperation, Style

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

    Stream: TypeAlias = DataStream | KeyedStream

__all__ = ["BroadcastConnectedStream", "BroadcastStream"]


class BroadcastStream:
    """A stream of which every subtask gets every record, and the states that are made from it.

    There is one thing to do with it: ``stream.connect(broadcast_stream).process(...)``.
    """

    def __init__(
        self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        """Made by ``DataStream.broadcast(descriptor, ...)``."""
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        _check_descriptors(self.broadcast_state_descriptors)


class BroadcastConnectedStream:
    """A stream, keyed or not, together with a broadcast one."""

    def __init__(
        self,
        non_broadcast_stream: Stream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        """Made by ``connect`` of a stream."""
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
        """Give the records of both streams to one function, with the broadcast state between them.

        A keyed stream takes a ``KeyedBroadcastProcessFunction``, any other a
        ``BroadcastProcessFunction``.
        """
        stream = self.non_broadcast_stream
        key = key_of(stream)
        self._check(func, key is not None)
        operation = FunctionOperation(
            Style.BROADCAST,
            func,
            key_selector=key.selector if key else None,
            key_type=key.key_type if key else None,
            settings=tuple(self.broadcast_state_descriptors),
        )
        kind, name = _KEYED if key else _PLAIN
        edges = two_inputs(stream, self.broadcast_stream.input_stream)
        return stream._new(kind, name, operation, edges, output_type)

    def _check(self, function: Any, keyed: bool) -> None:
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(function, wanted):
            stream = "a keyed stream" if keyed else "a stream without keys"
            msg = (
                f"process: {stream} that is connected with a broadcast one takes a "
                f"{wanted.__name__}; got {function!r}"
            )
            raise TypeError(msg)


_KEYED = ("keyed_broadcast", "Keyed-Co-Process-Broadcast")
_PLAIN = ("co_broadcast", "Co-Process-Broadcast")


def _check_descriptors(descriptors: Sequence[MapStateDescriptor]) -> None:
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            msg = f"broadcast: expected descriptors of map states; got {descriptor!r}"
            raise TypeError(msg)
    names = [descriptor.get_name() for descriptor in descriptors]
    for name in names:
        if names.count(name) > 1:
            msg = f"broadcast: two states have the name '{name}'; give each its own"
            raise ValueError(msg)
