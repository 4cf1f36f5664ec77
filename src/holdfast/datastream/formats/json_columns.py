"""JSON messages as columns.

Each message becomes an object whose class has the wanted fields, and nothing else is decoded. That
takes less time than ``pyarrow.json``, and accepts exactly what the record-wise format accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from holdfast.common.serialization import DeserializationSchema
from holdfast.common.typeinfo import RowTypeInfo, TypeInformation
from holdfast.datastream.formats.columns import Columns, schema_of

_Check = Callable[[pa.DataType], bool]
_PLAIN: Final[Sequence[tuple[_Check, type]]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
)


class JsonColumns:
    """Decodes messages to batches of a schema."""

    def __init__(
        self, form: DeserializationSchema, schema: pa.Schema, is_strict: bool, is_lenient: bool
    ) -> None:
        """Take the columns, and the format that decodes a message to a record.

        Args:
            form: decodes what is not plain: dates, or numbers in texts.
            schema: the columns.
            is_strict: whether a missing field is an error.
            is_lenient: whether a message that cannot be decoded is left out.
        """
        self._form = form
        self._schema = schema
        self._is_lenient = is_lenient
        self._columns = Columns(schema)
        declared = form.get_produced_type()
        is_required = is_strict and isinstance(declared, RowTypeInfo)
        # NB: a type with other fields may refuse a message for one that is no column
        is_same = declared is None or _has_columns(declared, schema)
        self._decode = _decoder(schema, is_required) if is_same else None
        self._getters = [attrgetter(_name(at)) for at in range(len(schema))]

    def __call__(self, messages: list[bytes]) -> pa.RecordBatch:
        """Return a row for each message."""
        if self._decode is not None:
            try:
                return self._all_at_once(list(map(self._decode, messages)))
            except (msgspec.MsgspecError, pa.ArrowException, ArithmeticError, ValueError):
                pass  # the record-wise format may accept more; otherwise it says what is wrong
        return self._one_by_one(messages)

    def _all_at_once(self, found: list[Any]) -> pa.RecordBatch:
        columns = [
            pa.array(list(map(get, found)), field.type)
            for get, field in zip(self._getters, self._schema, strict=True)
        ]
        for field, column in zip(self._schema, columns, strict=True):
            if column.null_count and not field.nullable:
                raise ValueError
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _one_by_one(self, messages: list[bytes]) -> pa.RecordBatch:
        decoded = self._form.deserialize_all(messages)
        records = list(map(self._complete, (record for record in decoded if record is not None)))
        if not self._is_lenient:
            return self._columns.batch(records)
        return self._columns.sort_out(records)[0]

    def _complete(self, record: Any) -> Any:
        if not isinstance(record, dict):
            return record
        return {name: record.get(name) for name in self._schema.names}


def _has_columns(declared: TypeInformation, schema: pa.Schema) -> bool:
    try:
        own = schema_of(declared)
    except TypeError:
        return False
    return bool(own.names == schema.names and own.types == schema.types)


def _decoder(schema: pa.Schema, is_required: bool) -> Callable[[bytes], Any] | None:
    """Return a function that decodes the wanted fields; None if a column is not plain."""
    kinds = [kind for field in schema if (kind := _plain(field.type)) is not None]
    if len(kinds) < len(schema):
        return None
    fields: list[Any] = [
        (_name(at), kind | None) if is_required else (_name(at), kind | None, None)
        for at, kind in enumerate(kinds)
    ]
    names = {_name(at): field.name for at, field in enumerate(schema)}
    message = msgspec.defstruct("Message", fields, rename=names, gc=False)
    return msgspec.json.Decoder(message).decode


def _plain(column: pa.DataType) -> type | None:
    return next((kind for is_this, kind in _PLAIN if is_this(column)), None)


def _name(at: int) -> str:
    """Return the name of a field, which may have any name in the messages."""
    return f"field{at}"
