"""What can be done with streams beside their own methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.datastream.data_stream import DataStream, KeyedStream
from holdfast.datastream.functions import KeySelector
from holdfast.graph.nodes import Hash

__all__ = ["DataStreamUtils"]


class DataStreamUtils:
    """Flink's, as far as Java has it and PyFlink has not."""

    @staticmethod
    def reinterpret_as_keyed_stream(
        stream: DataStream, key_selector: Callable[[Any], Any] | KeySelector, key_type: Any = None
    ) -> KeyedStream:
        """A stream whose records are where their keys belong already, without another shuffle.

        For what comes out of a keyed function and still has the key that went in: two keyed
        functions, one after the other, then run in one chain. Where the two have another
        parallelism, or max parallelism, records are shuffled as with `key_by`. A record whose key
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
