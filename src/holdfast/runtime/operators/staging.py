"""Records for a Spark writer: columns in a Parquet file that a subtask stages.

Only files named in an accepted epoch are passed to the writer. Others are left by failed runs. They
are deleted with the job's directory, or when the job starts the next time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.common import typeinfo
from holdfast.common.types import Row
from holdfast.filesystem import file_system_of

_BASIC = {
    typeinfo.BasicType.STRING: pa.string(),
    typeinfo.BasicType.CHAR: pa.string(),
    typeinfo.BasicType.BOOLEAN: pa.bool_(),
    typeinfo.BasicType.BYTE: pa.int8(),
    typeinfo.BasicType.SHORT: pa.int16(),
    typeinfo.BasicType.INT: pa.int32(),
    typeinfo.BasicType.LONG: pa.int64(),
    typeinfo.BasicType.FLOAT: pa.float32(),
    typeinfo.BasicType.DOUBLE: pa.float64(),
    typeinfo.BasicType.BIG_DEC: pa.decimal128(38, 18),
}


@dataclass(frozen=True)
class StagedColumns:
    """What the workers need to know about a Spark writer: its columns."""

    schema: pa.Schema


@dataclass(frozen=True)
class StagedFile:
    """A file that a subtask wrote in an epoch, by its address."""

    address: str
    records: int


def schema_of(type_info: typeinfo.TypeInformation) -> pa.Schema:
    """Return the columns for records of a declared type.

    Raises:
        TypeError: when the type has no named fields, or a field has no column type.
    """
    names, types = _fields(type_info)
    return pa.schema([(name, arrow_type(field)) for name, field in zip(names, types, strict=True)])


def _fields(
    type_info: typeinfo.TypeInformation,
) -> tuple[Sequence[str], Sequence[typeinfo.TypeInformation]]:
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return type_info.get_field_names(), type_info.get_field_types()
    cls = getattr(type_info, "cls", None)
    if cls is not None and (dataclasses.is_dataclass(cls) or hasattr(cls, "__annotations__")):
        hints = get_type_hints(cls)
        return list(hints), [typeinfo.type_info_of(hint) for hint in hints.values()]
    message = f"a Spark writer needs named columns: a named row or a dataclass; got {type_info}"
    raise TypeError(message)


@singledispatch
def arrow_type(type_info: typeinfo.TypeInformation) -> pa.DataType:
    """Return the column type for a declared type."""
    message = f"there is no column type for {type_info}; give the sink a schema"
    raise TypeError(message)


@arrow_type.register
def _(type_info: typeinfo.BasicTypeInfo) -> pa.DataType:
    found = _BASIC.get(type_info._basic_type)
    if found is None:
        message = f"there is no column type for {type_info}; give the sink a schema"
        raise TypeError(message)
    return found


@arrow_type.register
def _(type_info: typeinfo.DateTypeInfo) -> pa.DataType:
    return pa.date32()


@arrow_type.register
def _(type_info: typeinfo.TimestampTypeInfo) -> pa.DataType:
    return pa.timestamp("us", tz="UTC")


@arrow_type.register
def _(type_info: typeinfo.ListTypeInfo) -> pa.DataType:
    return pa.list_(arrow_type(type_info.elem_type))


@arrow_type.register
def _(type_info: typeinfo.MapTypeInfo) -> pa.DataType:
    return pa.map_(arrow_type(type_info._key_type_info), arrow_type(type_info._value_type_info))


@arrow_type.register
def _(type_info: typeinfo.RowTypeInfo) -> pa.DataType:
    return pa.struct(list(schema_of(type_info)))


class StagingWriter:
    """Writes the records of one run of a subtask into one file, in batches."""

    def __init__(self, columns: StagedColumns, address: str) -> None:
        """Take the columns and the address; the first batch creates the file."""
        self._schema = columns.schema
        self._address = address
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._records = 0

    def write(self, records: list[Any]) -> None:
        """Add a batch."""
        if self._writer is None:
            files, path = file_system_of(self._address)
            file = self._stack.enter_context(files.open_output(path))
            self._writer = self._stack.enter_context(pq.ParquetWriter(file, self._schema))
        take = _taker(records[0], self._schema.names)
        rows = [take(record) for record in records]
        arrays = [
            pa.array([row[place] for row in rows], field.type)
            for place, field in enumerate(self._schema)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._records += len(records)

    def finish(self) -> StagedFile | None:
        """Close the file; return None if nothing was written."""
        if self._writer is None:
            return None
        self._stack.close()
        return StagedFile(self._address, self._records)


def read_staged(address: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches."""
    files, path = file_system_of(address)
    with files.open_input(path) as file:
        yield from pq.ParquetFile(file).iter_batches()


def _taker(sample: Any, names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that extracts the columns from records like this one."""
    if isinstance(sample, Row):
        return lambda row: [v.as_dict(True) if isinstance(v, Row) else v for v in row]
    if isinstance(sample, dict):
        return lambda record: [record.get(name) for name in names]
    if isinstance(sample, tuple | list):
        return lambda record: record
    return lambda record: [getattr(record, name) for name in names]
