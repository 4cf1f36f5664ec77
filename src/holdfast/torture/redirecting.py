"""Redirects the sinks of a job to places of one run, so that runs do not mix.

An unchanged program writes to its own directories, topics and tables. What its nodes say about
sinks is replaced before the job starts; a path below the directory of the run is left as it is.
"""

from __future__ import annotations

import base64
import copy
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from holdfast.common.serialization import Encoder
from holdfast.datastream.connectors.base import DeliveryGuarantee
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.delta.committer import DeltaCommitter
from holdfast.datastream.connectors.delta.sink import DeltaWriter
from holdfast.datastream.connectors.delta.table import TableSettings
from holdfast.datastream.connectors.files.compacting import FileCompactor
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.connectors.hbase.client import HBaseClient
from holdfast.datastream.connectors.hbase.functions import HBaseUpsertSinkFunction
from holdfast.datastream.connectors.iceberg.committer import IcebergCommitter
from holdfast.datastream.connectors.iceberg.settings import SinkSettings
from holdfast.datastream.connectors.iceberg.writer import IcebergWriter
from holdfast.datastream.connectors.kafka.records import (
    KafkaRecordSerializationSchema,
    KafkaSinkContext,
    ProducerRecord,
)
from holdfast.datastream.connectors.kafka.sink import (
    DirectSinkFunction,
    SinkContext,
    TransactionalSinkFunction,
)
from holdfast.graph.nodes import Node
from holdfast.graph.operations import (
    ResultOperation,
    SinkOperation,
    SinkWriterOperation,
    WriterOperation,
)
from holdfast.torture.comparing import Guarantee
from holdfast.torture.order import Order, SinkPlace

#: before the label of a line that a print sink of the job has written, in a run's standard output
MARK: Final = "\x1e"
_EXACTLY, _AT_LEAST = Guarantee.EXACTLY_ONCE.value, Guarantee.AT_LEAST_ONCE.value


def redirected(node: Node, order: Order, name: str) -> tuple[Any, SinkPlace | None]:
    """Return the operation of a node for one run, and where it writes; None if it is no sink.

    ``name`` identifies the sink among those of the program.
    """
    operation = node.operation
    if isinstance(operation, ResultOperation):
        return _marked(operation, name), SinkPlace(name, node.name, "printed", _AT_LEAST)
    if isinstance(operation, WriterOperation):
        writer, place = _redirected_rows(operation.writer, node, order, name)
        return replace(operation, writer=writer), place
    if isinstance(operation, SinkWriterOperation):
        return replace(operation, function=redirect_writer(operation.function, order)), None
    if isinstance(operation, SinkOperation):
        function, place = redirect(operation.function, node, order, name)
        return replace(operation, function=function), place
    return operation, None


def _marked(operation: ResultOperation, name: str) -> ResultOperation:
    return replace(operation, prefix=f"{MARK}{name}{MARK}{operation.prefix}")


def _redirected_rows(
    sink: DataFrameSink, node: Node, order: Order, name: str
) -> tuple[DataFrameSink, SinkPlace]:
    if sink.path is None:
        return sink, SinkPlace(name, node.name)
    moved = copy.copy(sink)
    moved.path = _path(sink.path, order, name)
    place = {"path": moved.path, "format": sink.format.lower()}
    guarantee = _AT_LEAST if sink.at_least_once else _EXACTLY
    kind = "delta" if sink.is_delta else "rows"
    return moved, SinkPlace(name, node.name, kind, guarantee, place)


def _path(path: str, order: Order, name: str) -> str:
    """Return the directory for a sink; its own if the program has put it into the run's."""
    if Path(path).is_relative_to(order.path):
        return path
    return str(order.path / "sinks" / name)


@singledispatch
def redirect(function: Any, node: Node, order: Order, name: str) -> tuple[Any, SinkPlace]:
    """Return the function of a sink for one run, and where it writes.

    A function that is not known here stays as it is.
    """
    return function, SinkPlace(name, node.name)


@redirect.register
def _(function: FileSinkFunction, node: Node, order: Order, name: str) -> tuple[Any, SinkPlace]:
    sink = function.sink
    path = _path(sink.base_path, order, name)
    if sink.encoder is None:  # a bulk format
        moved = replace(sink, base_path=path).create_function()
        place = {"path": path, "format": sink.files.part_suffix.removeprefix(".")}
        return moved, SinkPlace(name, node.name, "rows", _EXACTLY, place)
    encoded = path != sink.base_path
    if encoded:
        # NB: a compactor of the program would get other lines than its own, and what it writes
        # between files is no record
        joined = sink.compaction and replace(
            sink.compaction, compactor=FileCompactor.concat_file_compactor()
        )
        sink = replace(sink, base_path=path, encoder=OneLine(sink.encoder), compaction=joined)
    at = {"path": path, "encoded": encoded}
    return sink.create_function(), SinkPlace(name, node.name, "files", _EXACTLY, at)


class OneLine(Encoder):
    """Writes each record as one line of text, whatever its bytes are."""

    def __init__(self, encoder: Encoder) -> None:
        """Encode with another encoder first."""
        self._encoder = encoder

    def encode(self, value: Any) -> bytes:
        """Return the record's bytes in base 64, and a line feed."""
        return base64.b64encode(self._encoder.encode(value)) + b"\n"


@redirect.register(DirectSinkFunction)
@redirect.register(TransactionalSinkFunction)
def _(
    function: DirectSinkFunction | TransactionalSinkFunction, node: Node, order: Order, name: str
) -> tuple[Any, SinkPlace]:
    sink = function.sink
    suffix = f"-{order.name}-{name}"
    moved = replace(
        sink,
        serializer=RedirectedTopic(sink.serializer, suffix),
        transactional_id_prefix=sink.transactional_id_prefix
        and sink.transactional_id_prefix + suffix,
    )
    if sink.guarantee is DeliveryGuarantee.NONE:
        return moved.create_function(), SinkPlace(name, node.name)
    exactly = sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE
    place = {"properties": dict(sink.properties), "suffix": suffix}
    guarantee = _EXACTLY if exactly else _AT_LEAST
    return moved.create_function(), SinkPlace(name, node.name, "kafka", guarantee, place)


class RedirectedTopic(KafkaRecordSerializationSchema):
    """Appends a suffix to the topics of records; such a topic is like that without the suffix."""

    def __init__(self, schema: KafkaRecordSerializationSchema, suffix: str) -> None:
        """Make records with another schema."""
        self._schema = schema
        self._suffix = suffix
        self._made: set[str] = set()

    def serialize(
        self, element: Any, context: KafkaSinkContext, timestamp: int | None
    ) -> ProducerRecord | None:
        """Return the record with another topic."""
        record = self._schema.serialize(element, context, timestamp)
        if record is None:
            return None
        topic = record.topic + self._suffix
        if topic not in self._made:
            assert isinstance(context, SinkContext)
            partitions = len(context.get_partitions_for_topic(record.topic))
            context.topics.create(topic, partitions, {})
            self._made.add(topic)
        return record._replace(topic=topic)


@redirect.register
def _(
    function: HBaseUpsertSinkFunction, node: Node, order: Order, name: str
) -> tuple[Any, SinkPlace]:
    table = f"{function.options.table_name}-{order.name}-{name}"
    place = {"table": table, "options": vars(function.options)}
    options = replace(function.options, table_name=table)
    client = HBaseClient(options)
    try:
        client.create_like(function.options.table_name)
    finally:
        client.close()
    moved = function.into(options)
    return moved, SinkPlace(name, node.name, "hbase", Guarantee.BY_KEY.value, place)


@singledispatch
def redirect_writer(function: Any, order: Order) -> Any:
    """Return the writer of a sink for one run; its committer, another node, has the place."""
    return function


@redirect_writer.register
def _(function: DeltaWriter, order: Order) -> Any:
    return function.into(_table(function.table, order))


@redirect_writer.register
def _(function: IcebergWriter, order: Order) -> Any:
    return IcebergWriter(_iceberg(function.settings, order))


@redirect.register
def _(function: DeltaCommitter, node: Node, order: Order, name: str) -> tuple[Any, SinkPlace]:
    path = _table(function.settings, order)
    place = {"path": path}
    return function.into(path), SinkPlace(name, node.name, "delta", _EXACTLY, place)


def _table(settings: TableSettings, order: Order) -> str:
    """Return the path of a table, which its writer and its committer must agree on."""
    uri = settings.address.uri
    return _path(uri, order, f"table-{crc32(uri.encode()):08x}")


@redirect.register
def _(function: IcebergCommitter, node: Node, order: Order, name: str) -> tuple[Any, SinkPlace]:
    settings = _iceberg(function.settings, order)
    address = settings.address
    address.create_like(function.settings.address)
    place = {
        "catalog": address.catalog,
        "properties": dict(address.properties),
        "table": address.table,
    }
    return IcebergCommitter(settings), SinkPlace(name, node.name, "iceberg", _EXACTLY, place)


def _iceberg(settings: SinkSettings, order: Order) -> SinkSettings:
    """Return the settings with a table of the run, for the writer and the committer of a sink."""
    table = f"{settings.address.table}_{order.name.replace('-', '_')}"
    return replace(settings, address=replace(settings.address, table=table))
