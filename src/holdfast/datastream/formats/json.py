"""Records as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.common._type_infos.base import same
from holdfast.common.serialization import DeserializationSchema, SerializationSchema
from holdfast.common.typeinfo import RowTypeInfo, TypeInformation
from holdfast.common.types import Row
from holdfast.datastream.formats._fields import converter

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

_decode = msgspec.json.Decoder().decode


class JsonRowDeserializationSchema(DeserializationSchema):
    """Rows of JSON objects; without a type, plain dictionaries, lists and values."""

    def __init__(
        self,
        type_info: TypeInformation | None = None,
        fails_on_missing_field: bool = False,
        ignores_parse_errors: bool = False,
    ) -> None:
        """Use ``builder()``."""
        self._type = type_info
        self._strict = fails_on_missing_field
        self._lenient = ignores_parse_errors
        self._prepare()

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Start building a schema."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Any:
        """Return the value; None if it cannot be parsed and errors are ignored."""
        try:
            found = _decode(message)
            return found if self._type is None else self._typed(found)
        except (msgspec.MsgspecError, AttributeError, TypeError, ValueError):
            if self._lenient:
                return None
            raise

    def columns_decoder(self, schema: Any) -> Callable[[list[bytes]], Any]:
        """Return a function that decodes messages to a batch; a missing field is null."""
        from holdfast.datastream.formats.json_columns import JsonColumns

        return JsonColumns(self, schema, self._strict, self._lenient)

    def get_produced_type(self) -> TypeInformation | None:
        """Return the declared type."""
        return self._type

    def _typed(self, found: Any) -> Any:
        if self._strict and isinstance(self._type, RowTypeInfo):
            missing = [name for name in self._type.get_field_names() if name not in found]
            if missing:
                message = f"the JSON object has no field {', '.join(missing)}: {found!r}"
                raise ValueError(message)
        return self._coerce(self._convert(found))

    def _prepare(self) -> None:
        if self._type is not None:
            self._convert: Callable[[Any], Any] = converter(self._type)
            self._coerce: Callable[[Any], Any] = self._type.coercer() or same

    def __getstate__(self) -> tuple[Any, ...]:
        return self._type, self._strict, self._lenient

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._type, self._strict, self._lenient = state
        self._prepare()

    class Builder:
        """Builds a ``JsonRowDeserializationSchema``."""

        def __init__(self) -> None:
            """Start without a type."""
            self._type: TypeInformation | None = None
            self._strict = self._lenient = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the records, such as ``Types.ROW_NAMED(…)``."""
            self._type = type_info
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Fail if a field is missing; by default it is None."""
            self._strict = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Skip messages that cannot be parsed."""
            self._lenient = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Return the schema."""
            return JsonRowDeserializationSchema(self._type, self._strict, self._lenient)


class JsonRowSerializationSchema(SerializationSchema):
    """JSON objects of rows, with the field names of the type; other values unchanged."""

    def __init__(self, type_info: TypeInformation | None = None) -> None:
        """Use ``builder()``."""
        self._names: list[str] | None = None
        if isinstance(type_info, RowTypeInfo):
            self._names = type_info.get_field_names()

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Start building a schema."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes:
        """Return the JSON of a record."""
        if self._names is not None:
            value = dict(zip(self._names, value, strict=True))
        return msgspec.json.encode(value, enc_hook=_plain)

    class Builder:
        """Builds a ``JsonRowSerializationSchema``."""

        def __init__(self) -> None:
            """Start without a type."""
            self._type: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the type of the records."""
            self._type = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Return the schema."""
            return JsonRowSerializationSchema(self._type)


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return list(value) if value._index is None else value.as_dict()
    message = f"a {type(value).__name__} has no form in JSON: {value!r}"
    raise NotImplementedError(message)
