"""Columns of state files as Arrow: a record batch in the IPC stream format, uncompressed.

The batch of a key or of a value has one column. That of tuples (a key of several columns; a value
with the time of its last access) has a column for each part, and says so in its metadata.

Arrow trusts what it reads. So the batch is checked: it is not compressed (which could grow beyond
any memory), has only types that state in columns has, and all its offsets are in range.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack_from
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

_TUPLES: Final = {b"holdfast.rows": b"tuples"}
#: the place of RecordBatch among the headers of Arrow's messages, and of its field "compression"
_BATCH: Final = 3
_COMPRESSION: Final = 3
_NESTED: Final = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_map)
_PLAIN: Final = (
    *(kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_temporal, kinds.is_decimal),
    *(kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary),
    *(kinds.is_fixed_size_binary,),
)


def encode_arrow(array: pa.Array) -> bytes:
    """Return the bytes of an array."""
    return _written(pa.record_batch([array], ["value"]))


def encode_tuples(parts: Sequence[pa.Array], names: Sequence[str]) -> bytes:
    """Return the bytes of tuples, given their parts."""
    schema = pa.schema(
        [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)],
        metadata=_TUPLES,
    )
    return _written(pa.record_batch(list(parts), schema))


def decode_arrow(data: bytes | memoryview) -> pa.RecordBatch:
    """Return the batch of a column.

    Raises:
        ValueError: (or an error of Arrow) when it is not one that the functions above wrote.
    """
    source = pa.BufferReader(data)
    schema = pa.ipc.read_schema(source)
    for field in schema:
        check_value_type(field.type)
    message = pa.ipc.read_message(source)
    if message.type != "record batch" or _is_compressed(message.metadata):
        problem = "expected a record batch that is not compressed"
        raise ValueError(problem)
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    if batch.num_columns < 1 or batch.num_rows > 8 * len(data):
        problem = f"{batch.num_rows} rows in {batch.num_columns} columns and {len(data)} bytes"
        raise ValueError(problem)
    return batch


def is_tuples(batch: pa.RecordBatch) -> bool:
    """Return whether the rows of a batch are tuples."""
    return (batch.schema.metadata or {}).get(b"holdfast.rows") == b"tuples"


def python_values(batch: pa.RecordBatch) -> list[Any]:
    """Return the rows as Python values."""
    columns = [column.to_pylist() for column in batch.columns]
    return list(zip(*columns, strict=True)) if is_tuples(batch) else columns[0]


def check_value_type(type_: pa.DataType) -> None:
    """Check that values of a type can be state in columns.

    Raises:
        TypeError: if they cannot.
    """
    if isinstance(type_, pa.ExtensionType) or not _is_known(type_):
        message = (
            f"{type_} cannot be the type of state in columns; use numbers, booleans, decimals, "
            "dates, times, timestamps, durations, strings, binary, or lists, maps or structs of "
            "these"
        )
        raise TypeError(message)
    for place in range(type_.num_fields):
        check_value_type(type_.field(place).type)


def _is_known(type_: pa.DataType) -> bool:
    if kinds.is_struct(type_):
        return bool(type_.num_fields)
    if type_ == pa.month_day_nano_interval():
        return False
    return any(check(type_) for check in (*_PLAIN, *_NESTED))


def _written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _is_compressed(message: pa.Buffer) -> bool:
    """Read from the flatbuffer of a message whether its batch is compressed."""
    data = memoryview(message)
    root = unpack_from("<I", data, 0)[0]
    if unpack_from("<B", data, root + _field(data, root, 1))[0] != _BATCH:
        return True
    header = root + _field(data, root, 2)
    batch = header + unpack_from("<I", data, header)[0]
    return _field(data, batch, _COMPRESSION) != 0


def _field(data: memoryview, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table begins, after the table's own beginning."""
    fields = table - unpack_from("<i", data, table)[0]
    size = unpack_from("<H", data, fields)[0]
    place = 4 + 2 * number
    return int(unpack_from("<H", data, fields + place)[0]) if place < size else 0
