"""Apache Iceberg tables as sources and as sinks, through pyiceberg, without a JVM.

Needs the package ``pyiceberg``: ``pip install 'holdfast[iceberg]'``.
"""

from __future__ import annotations

from holdfast.datastream.connectors.iceberg.sink import (
    IcebergSink,
    IcebergSinkBuilder,
)
from holdfast.datastream.connectors.iceberg.source import IcebergSource, IcebergSourceBuilder
from holdfast.datastream.connectors.iceberg.steps import ChangedRows
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.connectors.tables.evolution import SchemaEvolution

__all__ = [
    "ChangedRows",
    "IcebergSink",
    "IcebergSinkBuilder",
    "IcebergSource",
    "IcebergSourceBuilder",
    "SchemaEvolution",
    "TableError",
]
