"""Delta tables as a source and as a sink, exactly once.

Needs the package ``deltalake``: ``pip install 'holdfast[delta]'``.
"""

from __future__ import annotations

from holdfast.datastream.connectors.delta.sink import DeltaSink, DeltaSinkBuilder
from holdfast.datastream.connectors.delta.source import DeltaSource, DeltaSourceBuilder
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.connectors.tables.evolution import SchemaEvolution

__all__ = [
    "DeltaSink",
    "DeltaSinkBuilder",
    "DeltaSource",
    "DeltaSourceBuilder",
    "SchemaEvolution",
    "TableError",
]
