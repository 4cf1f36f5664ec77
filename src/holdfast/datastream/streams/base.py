"""What all streams have in common: the edges that the next operator will read from."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from holdfast.common import ExecutionConfig, TypeInformation, Types
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.streams.batches import batch_edges, batch_type, record_edges, record_type
from holdfast.graph import nodes
from holdfast.printable import printable

if TYPE_CHECKING:
    from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment


class StreamBase:
    """The edges that the next operator will read from.

    Attributes:
        _given: the edges as they are; they carry records or batches.
    """

    def __init__(
        self, environment: StreamExecutionEnvironment, edges: tuple[nodes.Edge, ...]
    ) -> None:
        self._environment = environment
        self._given = edges

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return the settings of the environment."""
        return self._environment.get_config()

    def get_type(self) -> TypeInformation:
        """Return the declared type of the records; pickled if there is none.

        For a stream of batches, return the type of the batches.
        """
        return self._batch_type() or self._type() or Types.PICKLED_BYTE_ARRAY()

    def get_name(self) -> str:
        """Return the name of the operator whose output this is."""
        return self._source().name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of '{printable(self.get_name())}'>"

    def _repr_html_(self) -> str:
        nodes = self._environment._graph.upstream(self._given)
        return escape(repr(self)) + self._environment._picture(nodes)

    @property
    def _edges(self) -> tuple[nodes.Edge, ...]:
        """Return edges that carry records."""
        return record_edges(self._environment._graph, self._given)

    def _batch_edges(self, call: str) -> tuple[nodes.Edge, ...]:
        """Return edges that carry batches; ``call`` is the method that needs them."""
        return batch_edges(self._environment._graph, self._given, call)

    def _batch_type(self) -> BatchTypeInfo | None:
        return batch_type(self._environment._graph, self._given)

    def _source(self) -> nodes.Node:
        return self._environment._graph[self._given[0].source]

    def _type(self) -> Any:
        graph = self._environment._graph
        types = [record_type(graph, edge) for edge in self._given]
        return types[0] if all(known == types[0] for known in types) else None
