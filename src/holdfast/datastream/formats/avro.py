"""Records in Avro: as messages without a header, and in files; needs ``holdfast[avro]``."""

from __future__ import annotations

import contextlib
import io
import json
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.common._type_infos.base import same
from holdfast.common.serialization import DeserializationSchema, SerializationSchema
from holdfast.common.types import Row
from holdfast.datastream.formats.bulk import BulkFormat, BulkReader, BulkWriter, BulkWriterFactory
from holdfast.datastream.formats.columns import Columns, RowError
from holdfast.datastream.formats.records import Maker
from holdfast.errors import JobDefinitionError
from holdfast.printable import printable

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
]

_CODECS: Final = ("deflate", "bzip2", "xz", "null")

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

    def columns_decoder(self, schema: Any) -> Callable[[list[bytes]], Any]:
        """Return a function that decodes messages to a batch, by a dict for each of them."""
        columns, read, own = Columns(schema), self._avro.schemaless_reader, self._schema

        def decode(messages: list[bytes]) -> Any:
            return columns.batch([read(io.BytesIO(message), own, None) for message in messages])

        return decode


class AvroRowSerializationSchema(_AvroSchema, SerializationSchema):
    """Avro records of rows, dictionaries, or rows without names in the schema's order."""

    def serialize(self, value: Any) -> bytes:
        """Return the encoded record."""
        out = io.BytesIO()
        self._avro.schemaless_writer(out, self._schema, _plain(value, self._schema))
        return out.getvalue()


class AvroSchema(_AvroSchema):
    """A schema of records."""

    def __init__(self, avro_schema_string: str) -> None:
        """Take the schema as JSON text; or use ``parse_string`` or ``parse_file``."""
        super().__init__(avro_schema_string=avro_schema_string)

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Return the schema of a JSON text."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Return the schema in a local file."""
        return AvroSchema(Path(file_path).read_text())

    def writer(self, stream: BinaryIO, codec: str) -> Any:
        """Return a writer of a file, which checks every record."""
        from fastavro.write import Writer

        return Writer(stream, self._schema, codec=codec, validator=True)

    def blocks(self, stream: BinaryIO) -> Iterator[Any]:
        """Return the blocks of a file, to be copied, or read under this schema."""
        return iter(self._avro.block_reader(stream, self._schema))

    def plain(self, record: Any) -> Any:
        """Return a record as fastavro takes it."""
        return _plain(record, self._schema)

    def rows(self, found: Iterable[Any]) -> list[Any]:
        """Return records as rows."""
        return list(map(self._shape, found))


class AvroBulkWriters:
    """Creates factories of writers of Avro files."""

    @staticmethod
    def for_generic_record(
        schema: AvroSchema, *, compression: str = "deflate"
    ) -> BulkWriterFactory:
        """Return a factory for files of rows and dicts with this schema.

        Args:
            schema: of the records.
            compression: ``deflate``, ``bzip2``, ``xz`` or ``null`` for none.

        Raises:
            ValueError: for a compression that does not exist.
        """
        if compression not in _CODECS:
            allowed = ", ".join(_CODECS)
            message = f"compression must be one of {allowed}; got {compression!r}"
            raise ValueError(message)
        return _AvroWriters(schema, compression)


@dataclass(frozen=True)
class _AvroWriters(BulkWriterFactory):
    schema: AvroSchema
    codec: str

    suffix = ".avro"

    def create(self, stream: BinaryIO) -> BulkWriter:
        return _AvroWriter(self, stream)

    def merge(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        """Copy the blocks, without decoding the records."""
        writer = self.schema.writer(stream, self.codec)
        for file in files:
            for block in self.schema.blocks(file):
                writer.write_block(block)
        writer.flush()


class _AvroWriter(BulkWriter):
    """Writes a block whenever there are about 16 kB."""

    def __init__(self, settings: _AvroWriters, stream: BinaryIO) -> None:
        self._plain = settings.schema.plain
        self._writer = settings.schema.writer(stream, settings.codec)

    def add_element(self, element: Any) -> None:
        try:
            self._writer.write(self._plain(element))
        except OSError:  # of the stream
            raise
        except Exception as error:
            problem = printable(" ".join(str(error).split()))
            message = (
                f"a record does not fit the Avro schema: {problem}; it must be a row or a dict "
                f"with the fields of the schema; the record is {_shown(element)}"
            )
            raise RowError(message, "", element, element) from error

    def flush(self) -> None:
        self._writer.flush()

    def finish(self) -> None:
        self._writer.flush()


class AvroInputFormat(BulkFormat):
    """Reads the records of Avro files as rows, or as batches."""

    def __init__(self, schema: AvroSchema, *, batch_type: Any = None) -> None:
        """Say what the records are.

        Args:
            schema: of the records; that of a file may be another one that can be read as it.
            batch_type: a ``BatchTypeInfo``: reads batches with these columns, which are fields of
                the schema.

        Raises:
            TypeError: when a column has a type that is not supported.
        """
        self._schema = schema
        self.batch_type = batch_type
        self._make: Callable[[Iterable[Any]], Sequence[Any]] = schema.rows
        if batch_type is not None:
            self._make = _Batches(Columns(batch_type.schema), batch_type.maker())

    def open(self, stream: BinaryIO) -> BulkReader:
        """Read the head of a file."""
        return _AvroReader(self._schema.blocks(stream), self._make)


@dataclass(frozen=True)
class _Batches:
    """Makes a batch of the records of a block, by a dict for each of them."""

    columns: Columns
    maker: Maker

    def __call__(self, records: Iterable[Any]) -> Sequence[Any]:
        return self.maker.records(self.columns.batch(list(records)))


class _AvroReader(BulkReader):
    def __init__(
        self, blocks: Iterator[Any], make: Callable[[Iterable[Any]], Sequence[Any]]
    ) -> None:
        self._blocks = blocks
        self._make = make

    def read(self, start: int) -> Iterator[Sequence[Any]]:
        for block in self._blocks:
            if start >= block.num_records:
                start -= block.num_records
                continue
            yield self._make(islice(block, start, None))
            start = 0


def _shown(value: Any) -> str:
    return printable(reprlib.repr(value))


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
