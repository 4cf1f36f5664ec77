"""Encodes batches as one Arrow IPC stream, which is read without a copy.

    data = kind (1 byte), 1 if there are timestamps (1 byte), 6 bytes of padding, the IPC stream

Timestamps are the last column. The batches of a block become one batch: large batches are what
makes functions of columns fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from holdfast.datastream.columns.batch import Batch, BatchList, merged
from holdfast.errors import InternalError

#: the first byte of data; pickles start with 0x80
BATCHES: Final = 0x43
_HEAD: Final = 8
_STAMPS: Final = pa.field("timestamp", pa.int64())


def encode_batches(batches: Sequence[Batch]) -> bytes:
    """Return batches of one schema as bytes."""
    whole = merged(batches)
    rows, stamps = whole.rows, whole.timestamps
    if stamps is not None:
        columns = [*rows.columns, stamps]
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema.append(_STAMPS))
    sink = pa.BufferOutputStream()
    sink.write(bytes((BATCHES, stamps is not None)).ljust(_HEAD, b"\0"))
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_batches(data: bytes | memoryview) -> BatchList:
    """Return the batches of a block.

    Raises:
        InternalError: when the data is not what `encode_batches` has written.
    """
    buffer = pa.py_buffer(data)
    if buffer.address % _HEAD:  # columns of numbers must be aligned
        buffer = pa.py_buffer(bytes(data))
    try:
        with pa.ipc.open_stream(buffer.slice(_HEAD)) as reader:
            batches = list(reader)
        for rows in batches:
            rows.validate()
    except (pa.ArrowException, OSError) as error:
        message = f"a block of {len(data)} bytes has columns that cannot be read: {error}"
        raise InternalError(message) from error
    return BatchList(_batch(rows, bool(data[1])) for rows in batches)


def _batch(rows: pa.RecordBatch, has_stamps: bool) -> Batch:
    if not has_stamps:
        return Batch(rows)
    last = rows.num_columns - 1
    return Batch(rows.remove_column(last), rows.column(last))
