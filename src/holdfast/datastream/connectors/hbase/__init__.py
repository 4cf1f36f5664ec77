"""HBase: a sink that writes rows by their keys, and a lookup for asynchronous functions.

It talks to HBase's Thrift server and needs the extra ``holdfast[hbase]``.

    - `HBaseOptions`: where a table is.
    - `HBaseTableSchema`: its row key, families, qualifiers and types.
    - `HBaseUpsertSinkFunction`: for ``add_sink``; (flag, row) pairs become puts and deletes.
    - `HBaseWriteOptions`: when it sends what is buffered, and how it retries.
    - `HBaseLookupFunction`: for ``AsyncDataStream``; finds the row of a record.
    - `HBaseError`: what HBase refused, or could not be asked.
"""

from holdfast.datastream.connectors.hbase.client import HBaseAwayError, HBaseError
from holdfast.datastream.connectors.hbase.functions import (
    HBaseLookupFunction,
    HBaseUpsertSinkFunction,
)
from holdfast.datastream.connectors.hbase.options import (
    HBaseOptions,
    HBaseOptionsBuilder,
    HBaseWriteOptions,
    HBaseWriteOptionsBuilder,
)
from holdfast.datastream.connectors.hbase.schema import HBaseTableSchema

__all__ = [
    "HBaseAwayError",
    "HBaseError",
    "HBaseLookupFunction",
    "HBaseOptions",
    "HBaseOptionsBuilder",
    "HBaseTableSchema",
    "HBaseUpsertSinkFunction",
    "HBaseWriteOptions",
    "HBaseWriteOptionsBuilder",
]
