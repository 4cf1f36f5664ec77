"""Records as lines of comma-separated values."""

from __future__ import annotations

import csv
import io
from typing import Any

from holdfast.common.serialization import DeserializationSchema, SerializationSchema
from holdfast.common.typeinfo import RowTypeInfo, TypeInformation
from holdfast.datastream.formats._fields import converter

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]


class CsvRowDeserializationSchema(DeserializationSchema):
    """Rows of lines; use ``Builder``."""

    def __init__(
        self, type_info: RowTypeInfo, dialect: dict[str, Any], null: str, lenient: bool
    ) -> None:
        """Use ``Builder``."""
        self._type = type_info
        self._dialect = dialect
        self._null = null
        self._lenient = lenient
        self._prepare()

    def deserialize(self, message: bytes) -> Any:
        """Return the row; None if it cannot be parsed and errors are ignored."""
        try:
            (values,) = csv.reader([message.decode()], **self._dialect)
            if len(values) != len(self._names):
                error = f"the line has {len(values)} fields instead of {len(self._names)}"
                raise ValueError(error)
            pairs = zip(self._names, values, strict=True)
            found = {name: None if value == self._null else value for name, value in pairs}
            return self._coerce(self._convert(found))
        except (ValueError, TypeError, csv.Error):
            if self._lenient:
                return None
            raise

    def get_produced_type(self) -> TypeInformation:
        """Return the declared type."""
        return self._type

    def _prepare(self) -> None:
        self._names = self._type.get_field_names()
        self._convert = converter(self._type)
        self._coerce = self._type.coercer()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._type, self._dialect, self._null, self._lenient

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._type, self._dialect, self._null, self._lenient = state
        self._prepare()

    class Builder:
        """Builds a ``CsvRowDeserializationSchema``."""

        def __init__(self, type_info: TypeInformation) -> None:
            """Build rows of this type; an empty field is None."""
            self._type = _row_type(type_info)
            self._dialect: dict[str, Any] = {"delimiter": ","}
            self._null = ""
            self._lenient = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between two fields."""
            self._dialect["delimiter"] = delimiter
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character around a field that contains a delimiter."""
            self._dialect["quotechar"] = c
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that escapes the next one."""
            self._dialect["escapechar"] = c
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that represents None."""
            self._null = null_literal
            return self

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> CsvRowDeserializationSchema.Builder:
            """Skip lines that cannot be parsed."""
            self._lenient = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Return the schema."""
            return CsvRowDeserializationSchema(self._type, self._dialect, self._null, self._lenient)


class CsvRowSerializationSchema(SerializationSchema):
    """Lines of rows; use ``Builder``."""

    def __init__(self, dialect: dict[str, Any], null: str) -> None:
        """Use ``Builder``."""
        self._dialect = dialect
        self._null = null

    def serialize(self, value: Any) -> bytes:
        """Return the line of a row."""
        line = io.StringIO()
        fields = [self._null if field is None else _text(field) for field in value]
        csv.writer(line, **self._dialect).writerow(fields)
        return line.getvalue().encode()

    class Builder:
        """Builds a ``CsvRowSerializationSchema``."""

        def __init__(self, type_info: TypeInformation) -> None:
            """Take rows of this type; None is an empty field."""
            _row_type(type_info)
            self._dialect: dict[str, Any] = {"delimiter": ",", "lineterminator": "\n"}
            self._null = ""

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between two fields."""
            self._dialect["delimiter"] = c
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the end of a line; may be empty."""
            self._dialect["lineterminator"] = delimiter
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character around a field that contains a delimiter."""
            self._dialect["quotechar"] = c
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Do not quote fields."""
            self._dialect["quoting"] = csv.QUOTE_NONE
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that escapes the next one."""
            self._dialect["escapechar"] = c
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that represents None."""
            self._null = s
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Return the schema."""
            return CsvRowSerializationSchema(self._dialect, self._null)


def _text(field: Any) -> str:
    return str(field).lower() if isinstance(field, bool) else str(field)


def _row_type(given: TypeInformation) -> RowTypeInfo:
    if isinstance(given, RowTypeInfo):
        return given
    message = f"CSV has rows: expected Types.ROW(…) or Types.ROW_NAMED(…); got {given!r}"
    raise TypeError(message)
