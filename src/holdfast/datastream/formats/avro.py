"""Records in Avro's binary encoding, without a header; needs ``holdfast[avro]``."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.common._type_infos.base import same
from holdfast.common.serialization import DeserializationSchema, SerializationSchema
from holdfast.common.types import Row
from holdfast.errors import JobDefinitionError

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]

Convert = Callable[[Any], Any]


def _library() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise JobDefinitionError(
            "records in Avro need the package fastavro, which is not installed "
            f"({error}): pip install 'holdfast[avro]'"
        ) from error
    return fastavro


class _AvroSchema:
    """A schema, pickled as its text."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        """Take the schema as JSON text; Java's record classes are not supported."""
        if avro_schema_string is None:
            name = type(self).__name__
            message = f"{name} needs avro_schema_string; there is no Java class {record_class!r}"
            raise TypeError(message)
        self._text = avro_schema_string
        self._prepare()

    def _prepare(self) -> None:
        self._avro = _library()
        self._schema = self._avro.parse_schema(json.loads(self._text))
        self._shape = _shaper(self._schema, {})

    def __getstate__(self) -> str:
        return self._text

    def __setstate__(self, text: str) -> None:
        self._text = text
        self._prepare()


class AvroRowDeserializationSchema(_AvroSchema, DeserializationSchema):
    """Rows of Avro records, with the schema's field names; nested records are rows, too."""

    def deserialize(self, message: bytes) -> Any:
        """Return the row."""
        found = self._avro.schemaless_reader(io.BytesIO(message), self._schema, None)
        return self._shape(found)


class AvroRowSerializationSchema(_AvroSchema, SerializationSchema):
    """Avro records of rows, dictionaries, or rows without names in the schema's order."""

    def serialize(self, value: Any) -> bytes:
        """Return the encoded record."""
        out = io.BytesIO()
        self._avro.schemaless_writer(out, self._schema, _plain(value, self._schema))
        return out.getvalue()


def _shaper(schema: Any, known: dict[str, Convert]) -> Convert:
    """Return a function that makes rows of the records in a value, as its schema says."""
    if isinstance(schema, list):
        return _one_of([_shaper(branch, known) for branch in schema if branch != "null"])
    kind = schema.get("type") if isinstance(schema, Mapping) else schema
    if kind == "record":
        return _record(schema, known)
    if kind == "map":
        value = _shaper(schema["values"], known)
        return lambda found: {key: value(each) for key, each in found.items()}
    if kind == "array":
        item = _shaper(schema["items"], known)
        return lambda found: [item(each) for each in found]
    return known.get(str(kind), same)


def _record(schema: Mapping[str, Any], known: dict[str, Convert]) -> Convert:
    fields: dict[str, Convert] = {}

    def convert(found: Mapping[str, Any]) -> Row:
        return Row(**{name: shape(found[name]) for name, shape in fields.items()})

    known[schema["name"]] = convert  # first, because a record may contain itself
    for field in schema["fields"]:
        fields[field["name"]] = _shaper(field["type"], known)
    return convert


def _one_of(branches: Sequence[Convert]) -> Convert:
    """Convert None, or a value with the first of these types that accepts it."""
    shaping = [branch for branch in branches if branch is not same]

    def convert(found: Any) -> Any:
        for branch in shaping if isinstance(found, dict | list) else ():
            with contextlib.suppress(KeyError, AttributeError, TypeError):
                return branch(found)
        return found

    return convert


def _plain(value: Any, schema: Any) -> Any:
    if isinstance(value, Row) and value._index is not None:
        return {name: _plain(field, None) for name, field in value.as_dict().items()}
    if isinstance(value, Row):
        names = [field["name"] for field in schema["fields"]]
        return {name: _plain(field, None) for name, field in zip(names, value, strict=True)}
    return [_plain(item, None) for item in value] if isinstance(value, list) else value
