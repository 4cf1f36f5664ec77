"""The edges of streams of batches, and the operators between batches and records.

A function that takes records behind one that gives batches reads from an operator that makes
records of them, and the other way round. These operators belong to the chain of their input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.errors import JobTypeError
from holdfast.graph import nodes, operations
from holdfast.graph.graph import Graph
from holdfast.graph.operations import Operation

Edges = tuple[nodes.Edge, ...]


def type_of(graph: Graph, edge: nodes.Edge) -> Any:
    """Return the type of what an edge carries."""
    return graph[edge.source].output_type if edge.tag is None else edge.tag_type


def batch_type(graph: Graph, edges: Edges) -> BatchTypeInfo | None:
    """Return the type of the batches that all edges carry; None if one carries records."""
    types = [type_of(graph, edge) for edge in edges]
    same = all(known == types[0] for known in types)
    return types[0] if same and isinstance(types[0], BatchTypeInfo) else None


def columnar_type(graph: Graph, edges: Edges) -> BatchTypeInfo | None:
    """Return the type of the batches, for an operator that also takes records.

    None if edges carry records, or are partitioned by a function that may need records.
    """
    by_columns = all(map(_divides_batches, (edge.partitioning for edge in edges)))
    return batch_type(graph, edges) if by_columns else None


def _divides_batches(partitioning: nodes.Partitioning) -> bool:
    if isinstance(partitioning, nodes.Hash):
        return isinstance(partitioning.selector, ColumnKey)
    return not isinstance(partitioning, nodes.Custom)


def record_type(graph: Graph, edge: nodes.Edge) -> Any:
    """Return the type of the records of an edge, also if it carries batches of them."""
    known = type_of(graph, edge)
    return known.record_type if isinstance(known, BatchTypeInfo) else known


def record_edges(graph: Graph, edges: Edges) -> Edges:
    """Return edges that carry records."""
    return tuple(_record_edge(graph, edge) for edge in edges)


def batch_edges(graph: Graph, edges: Edges, call: str, declared: Any = None) -> Edges:
    """Return edges that carry batches of the same columns.

    Args:
        graph: takes the operators that make batches of records.
        edges: those of the stream.
        call: the method of the stream, for messages.
        declared: the type of the batches, where the records have no declared type.

    Raises:
        JobTypeError: when the columns are not known, or differ.
    """
    found = tuple(_batch_edge(graph, edge, call, declared) for edge in edges)
    if batch_type(graph, found) is None:
        kinds = " and ".join(repr(type_of(graph, edge)) for edge in found)
        message = f"{call}: the streams of a union must have the same columns; got {kinds}"
        raise JobTypeError(message)
    return found


def check_key_columns(key: ColumnKey, batches: BatchTypeInfo | None) -> None:
    """Check the names of a key's columns, if the columns of the stream are known.

    Raises:
        JobTypeError: when there is no such column.
    """
    problem = None if batches is None else key.problem_in(batches.schema)
    if problem is not None:
        raise JobTypeError(problem)


def _record_edge(graph: Graph, edge: nodes.Edge) -> nodes.Edge:
    known = type_of(graph, edge)
    if not isinstance(known, BatchTypeInfo):
        return edge
    operation = operations.ToRecordsOperation(known.record_type)
    return operator_behind(graph, edge, "to_records", "To Records", operation, known.record_type)


def _batch_edge(graph: Graph, edge: nodes.Edge, call: str, declared: Any) -> nodes.Edge:
    known = type_of(graph, edge)
    if isinstance(known, BatchTypeInfo):
        return edge
    kind = _columns_of(known if declared is None else declared, graph[edge.source].name, call)
    operation = operations.ToBatchesOperation(kind)
    return operator_behind(graph, edge, "to_batches", "To Batches", operation, kind)


def _columns_of(known: Any, name: str, call: str) -> BatchTypeInfo:
    if known is not None:
        try:
            return BatchTypeInfo(known)
        except TypeError as error:
            problem = str(error)
    else:
        problem = "its records have no declared type"
    message = (
        f"{call}: the records of '{name}' have no known columns: {problem}; declare their type "
        "where they are made (output_type=...), or call to_batches(schema) before"
    )
    raise JobTypeError(message)


def _reads_rows(node: nodes.Node) -> bool:
    operation = node.operation
    return isinstance(operation, operations.SourceOperation) and operation.source.reads_rows


def operator_behind(
    graph: Graph,
    edge: nodes.Edge,
    kind: str,
    name: str,
    operation: Operation,
    output_type: Any,
    shared: bool = True,
) -> nodes.Edge:
    """Return the edge from an operator directly behind the source of an edge.

    ``shared``: an operator of this kind that is there already does the same.
    """
    direct = (replace(edge, partitioning=nodes.Forward(), input=0),)
    node = graph.find(kind, direct, output_type) if shared else None
    if node is None:
        source = graph[edge.source]
        # NB: the source of a DataFrame is not a subtask of the job, and says nothing about it
        parallelism = None if _reads_rows(source) else source.parallelism
        node = graph.add(
            kind, name, operation, direct, output_type=output_type, parallelism=parallelism
        )
    return replace(edge, source=node, tag=None, tag_type=None)
