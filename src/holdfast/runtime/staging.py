"""Records on their way to a Spark writer: columns in a Parquet file that a subtask stages.

Only files that an accepted epoch names are written on; others are left behind by failed runs and go
with the job's directory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TypeInformation,
    type_info_of,
)
from holdfast.common.types import Row

_BASIC = {
    BasicType.STRING: pa.string(),
    BasicType.CHAR: pa.string(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
}


@dataclass(frozen=True)
class StagedColumns:
    """What the workers know of a Spark writer: its columns."""

    schema: pa.Schema


@dataclass(frozen=True)
class StagedFile:
    """A file that a subtask wrote in an epoch."""

    path: str
    records: int


def schema_of(type_info: TypeInformation) -> pa.Schema:
    """The columns for records of a declared type.

    Raises:
        TypeError: when the type has no named fields, or a field has no column type.
    """
    names, types = _fields(type_info)
    return pa.schema([(name, arrow_type(field)) for name, field in zip(names, types, strict=True)])


def _fields(type_info: TypeInformation) -> tuple[Sequence[str], Sequence[TypeInformation]]:
    if isinstance(type_info, RowTypeInfo):
        return type_info.get_field_names(), type_info.get_field_types()
    cls = getattr(type_info, "cls", None)
    if cls is not None and (dataclasses.is_dataclass(cls) or hasattr(cls, "__annotations__")):
        hints = get_type_hints(cls)
        return list(hints), [type_info_of(hint) for hint in hints.values()]
    msg = f"a Spark writer needs named columns: a named row or a dataclass; got {type_info}"
    raise TypeError(msg)


@singledispatch
def arrow_type(type_info: TypeInformation) -> pa.DataType:
    """The column type for a declared type."""
    msg = f"there is no column type for {type_info}; give the sink a schema"
    raise TypeError(msg)


@arrow_type.register
def _(type_info: BasicTypeInfo) -> pa.DataType:
    found = _BASIC.get(type_info._basic_type)
    if found is None:
        msg = f"there is no column type for {type_info}; give the sink a schema"
        raise TypeError(msg)
    return found


@arrow_type.register
def _(type_info: DateTypeInfo) -> pa.DataType:
    return pa.date32()


@arrow_type.register
def _(type_info: TimestampTypeInfo) -> pa.DataType:
    return pa.timestamp("us", tz="UTC")


@arrow_type.register
def _(type_info: ListTypeInfo) -> pa.DataType:
    return pa.list_(arrow_type(type_info.elem_type))


@arrow_type.register
def _(type_info: MapTypeInfo) -> pa.DataType:
    return pa.map_(arrow_type(type_info._key_type_info), arrow_type(type_info._value_type_info))


@arrow_type.register
def _(type_info: RowTypeInfo) -> pa.DataType:
    return pa.struct(list(schema_of(type_info)))


class StagingWriter:
    """Writes the records of one run of a subtask into one file, in batches."""

    def __init__(self, columns: StagedColumns, path: Path) -> None:
        """The file is made with the first batch."""
        self._schema = columns.schema
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._records = 0

    def write(self, records: list[Any]) -> None:
        """Add a batch."""
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(str(self._path), self._schema)
        take = _taker(records[0], self._schema.names)
        rows = [take(record) for record in records]
        arrays = [
            pa.array([row[place] for row in rows], field.type)
            for place, field in enumerate(self._schema)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._records += len(records)

    def finish(self) -> StagedFile | None:
        """Close the file; None if there was nothing to write."""
        if self._writer is None:
            return None
        self._writer.close()
        return StagedFile(str(self._path), self._records)


def _taker(sample: Any, names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """How to take the columns out of records like this one."""
    if isinstance(sample, Row):
        return lambda row: [_plain(value) for value in row]
    if isinstance(sample, dict):
        return lambda record: [record.get(name) for name in names]
    if isinstance(sample, tuple | list):
        return lambda record: record
    return lambda record: [getattr(record, name) for name in names]


def _plain(value: Any) -> Any:
    return value.as_dict(True) if isinstance(value, Row) else value
