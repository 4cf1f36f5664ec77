"""Schemas that convert between records and bytes of external systems: topics, files, queues.

A schema is sent to the workers, so it must be picklable. Objects that cannot be pickled (such as a
connection to a registry) must be created on first use.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.common.typeinfo import TypeInformation

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema(ABC):
    """Converts a record to bytes; called by sinks, once per record, in the workers."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes:
        """Return the bytes of the record."""


class DeserializationSchema(ABC):
    """Converts bytes to a record; called by sources, once per message, in the workers."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Return the record in the message, or None to skip the message."""

    def deserialize_all(self, messages: list[bytes]) -> list[Any]:
        """Return the records of many messages; override it if a batch can be converted faster."""
        return list(map(self.deserialize, messages))

    def columns_decoder(self, schema: Any) -> Callable[[list[bytes]], Any] | None:
        """Return a function that converts many messages to a ``pyarrow.RecordBatch``.

        The batch has the columns of the schema, a ``pyarrow.Schema``, and a row for each message,
        in order. If a message cannot be converted, the function raises. If messages are to be
        skipped, it returns fewer rows. In both cases it is called again with fewer messages, down
        to a single one. None: the records of ``deserialize_all`` are converted.
        """
        return None

    def is_end_of_stream(self, next_element: Any) -> bool:
        """Return whether the stream ends before this record; never, unless overridden."""
        return False

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the records, or None if it is not declared."""
        return None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Strings as the bytes of a character set."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = codecs.lookup(charset).name

    def serialize(self, value: Any) -> bytes:
        """Return the encoded string."""
        if not isinstance(value, str):
            message = _wrong_type("SimpleStringSchema", "str", value)
            raise TypeError(message)
        return value.encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        """Return the decoded string."""
        return message.decode(self._charset)

    def deserialize_all(self, messages: list[bytes]) -> list[Any]:
        """Return the decoded strings."""
        charset = self._charset
        return [message.decode(charset) for message in messages]

    def get_produced_type(self) -> TypeInformation:
        """Return `Types.STRING()`."""
        from holdfast.common.typeinfo import Types

        return Types.STRING()

    def __repr__(self) -> str:
        return f"SimpleStringSchema({self._charset!r})"


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Unchanged bytes."""

    def serialize(self, value: Any) -> bytes:
        """Return the bytes."""
        if not isinstance(value, bytes | bytearray | memoryview):
            message = _wrong_type("ByteArraySchema", "bytes", value)
            raise TypeError(message)
        return bytes(value)

    def deserialize(self, message: bytes) -> bytes:
        """Return the message."""
        return message

    def deserialize_all(self, messages: list[bytes]) -> list[Any]:
        """Return the messages."""
        return messages

    def get_produced_type(self) -> TypeInformation:
        """Return `Types.PRIMITIVE_ARRAY(Types.BYTE())`."""
        from holdfast.common.typeinfo import Types

        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    def __repr__(self) -> str:
        return "ByteArraySchema()"


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which must contain bytes; intended for the keys of Kafka messages."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            message = f"Field index must be non-negative, got: {field_index}"
            raise ValueError(message)
        self._field_index = field_index

    def serialize(self, value: Any) -> bytes:
        """Return the bytes in the field."""
        field = value[self._field_index]
        if not isinstance(field, bytes | bytearray | memoryview):
            message = _wrong_type(f"RowFieldExtractorSchema({self._field_index})", "bytes", field)
            raise TypeError(message)
        return bytes(field)

    def __repr__(self) -> str:
        return f"RowFieldExtractorSchema({self._field_index})"


class Encoder(ABC):
    """Converts a record to the bytes that a file sink appends to its file."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the bytes to append, including the separator."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder that writes ``str(value)`` and a newline."""
        return _SimpleStringEncoder(charset_name)


class _SimpleStringEncoder(Encoder):
    def __init__(self, charset_name: str) -> None:
        self._charset = codecs.lookup(charset_name).name

    def encode(self, value: Any) -> bytes:
        return f"{value!s}\n".encode(self._charset)

    def __repr__(self) -> str:
        return f"Encoder.simple_string_encoder({self._charset!r})"


def _wrong_type(schema: str, wanted: str, value: Any) -> str:
    return f"{schema} writes {wanted}; got {type(value).__name__}: {value!r}"
