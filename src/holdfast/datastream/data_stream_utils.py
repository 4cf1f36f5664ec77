"""Functions on streams that are not methods of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.datastream.data_stream import DataStream, KeyedStream
from holdfast.datastream.functions import KeySelector
from holdfast.graph.nodes import Hash

__all__ = ["DataStreamUtils"]


class DataStreamUtils:
    """Flink's utility class of the Java API, which PyFlink does not have."""

    @staticmethod
    def reinterpret_as_keyed_stream(
        stream: DataStream, key_selector: Callable[[Any], Any] | KeySelector, key_type: Any = None
    ) -> KeyedStream:
        """Return a keyed stream without a shuffle: records are in the subtask of their key.

        Use it for the output of a keyed function whose records still have the same key: two keyed
        functions, one after the other, then run in one chain. If the two differ in their
        parallelism or max parallelism, records are shuffled as with `key_by`. A record whose key
        belongs to another subtask is an error when the state is written, if its function has
        state.

        >>> from holdfast.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> counts = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda r: r[0]).sum(1)
        >>> keyed = DataStreamUtils.reinterpret_as_keyed_stream(counts, lambda r: r[0])
        """
        keyed = stream.key_by(key_selector, key_type)
        partitioning = keyed._edges[0].partitioning
        assert isinstance(partitioning, Hash)
        kept = replace(partitioning, kept=True)
        edges = tuple(replace(edge, partitioning=kept) for edge in keyed._edges)
        return KeyedStream(stream._environment, edges, stream)
