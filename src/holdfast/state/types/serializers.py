"""Encoding and decoding of columns of values.

State is written column by column: all keys of a chunk, then all its values. A column records its
codec, so every reader can check whether it can read it:

    PICKLE   pickle, protocol 5; cloudpickle for classes of the main program
    PLAIN    MessagePack without a type
    TUPLES   MessagePack of tuples, which PLAIN would decode as lists
    TYPED    MessagePack under the declared type
    ARROW    a record batch, of state in columns (`holdfast.state.types.arrow_columns`)

Keys, and values without a declared type, are written as PLAIN or TUPLES only if that is lossless:
if each value is None, bool, int, float, str or bytes, or each is a tuple (list, dict with str keys)
of these. Subclasses do not count. MessagePack distinguishes these six types. Values that it cannot
represent (integers beyond 64 bits, lone surrogates) are pickled.
"""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import chain
from operator import is_not
from typing import Any, Final, NamedTuple, Optional

import msgspec

from holdfast.common._cloudpickle import dumps
from holdfast.common.typeinfo import TypeInformation
from holdfast.state.errors import PickledStateError, StateMigrationError
from holdfast.state.types.arrow_columns import decode_arrow, python_values
from holdfast.state.types.evolution import Incompatible, Upgrade, upgrade
from holdfast.state.types.schema import Schema
from holdfast.state.types.schema_of import has_classes, schema_of
from holdfast.state.types.unpickling import unpickle

#: a function that unpickles
Loads = Callable[[bytes | memoryview], Any]


class Codec(IntEnum):
    """How a column was written; the numbers are part of the file format."""

    PICKLE = 0
    PLAIN = 1
    TUPLES = 2
    TYPED = 3
    ARROW = 4


class EncodedColumn(NamedTuple):
    """The bytes of a column, and how to read them."""

    codec: Codec
    data: bytes | memoryview


_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_plain: Final = msgspec.msgpack.Decoder(list[Any]).decode
_decode_tuples: Final = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
#: the errors that msgspec raises for values that it cannot represent
UNFIT: Final = (OverflowError, UnicodeEncodeError, TypeError, ValueError, RecursionError)


class Unreadable(TypeError):
    """A value would be written in a form that its declared type cannot read."""


class Serializer:
    """Encodes and decodes columns of one declared type, or without a type."""

    __slots__ = (
        "_coerce",
        "_decode",
        "_doubtful",
        "_from",
        "_proves",
        "_to",
        "_upgrade",
        "schema",
        "type_info",
    )

    def __init__(self, type_info: TypeInformation | None = None) -> None:
        self.type_info = type_info
        #: the schema of the declared type; None if there is none
        self.schema = schema_of(type_info)
        #: whether to check encoded values: msgspec writes fields without checking their types
        self._proves = has_classes(self.schema)
        self._upgrade: Upgrade = None
        self._coerce = None if type_info is None else type_info.coercer()
        self._doubtful = None if type_info is None else type_info.doubtful()
        self._decode: Callable[[bytes | memoryview], list[Any]] | None = None
        self._to: Callable[[Any], Any] | None = None
        self._from: Callable[[Any], Any] | None = None
        annotation = None if type_info is None else type_info.msgpack_type()
        if type_info is not None and annotation is not None:
            # Optional[...] and not "|", which the annotations of forward references don't have.
            self._decode = msgspec.msgpack.Decoder(list[Optional[annotation]]).decode  # type: ignore[valid-type]  # noqa: UP045
            self._to, self._from = type_info.to_msgpack(), type_info.from_msgpack()

    def shape(self, values: list[Any]) -> list[Any]:
        """Return the values converted to the declared type; the same list if nothing changes.

        Raise the error of `TypeInformation.coerce` if one does not fit.
        """
        if self._coerce is None or self._doubtful is None or not self._doubtful(values):
            return values
        shaped = list(map(self._coerce, values))
        return shaped if any(map(is_not, shaped, values)) else values

    def misfit(self, values: list[Any]) -> tuple[int, Exception] | None:
        """Return the position and the error of the first value that `shape` or `encode` rejects."""
        for position, value in enumerate(values):
            try:
                self.encode(self.shape([value]))
            except (TypeError, ValueError) as error:
                return position, error
        return None

    def encode(self, values: list[Any]) -> EncodedColumn:
        """Return the column; the values must have been converted by `shape`.

        Raise `Unreadable` if the value of an object's field does not have its declared type.
        """
        try:
            if self._decode is not None:
                return EncodedColumn(Codec.TYPED, self._proved(_encode(_mapped(self._to, values))))
        except Unreadable:
            raise
        except UNFIT:
            return EncodedColumn(Codec.PICKLE, _pickle(values))
        try:
            codec = _lossless(values)
            if codec is not None:
                return EncodedColumn(codec, _encode(values))
        except UNFIT:
            pass
        return EncodedColumn(Codec.PICKLE, _pickle(values))

    def reading(self, saved: Schema | None) -> Serializer:
        """Return a serializer that reads values saved under the schema ``saved``.

        Raise a StateMigrationError if the declared type cannot read them.
        """
        try:
            change = upgrade(saved, self.schema)
        except Incompatible as problem:
            raise StateMigrationError(str(problem)) from None
        if change is None:
            return self
        reader = copy.copy(self)
        reader._upgrade = change
        return reader

    def decode(self, column: EncodedColumn) -> list[Any]:
        """Return the values.

        Raise a StateMigrationError if the declared type cannot read them, or if the class of a
        pickled value does not exist any more.
        """
        if column.codec is Codec.TYPED:
            return self._decode_typed(column.data)
        values = decode_untyped(column)
        try:
            return self.shape(values)
        except (TypeError, ValueError) as error:
            raise StateMigrationError(str(error)) from error

    def _decode_typed(self, data: bytes | memoryview) -> list[Any]:
        if self._decode is None:
            message = "values that were written with a type cannot be read without one"
            raise StateMigrationError(message)
        try:
            if self._upgrade is not None:
                data = _upgraded(self._upgrade, data)
            return _mapped(self._from, self._decode(data))
        except (Incompatible, msgspec.DecodeError, TypeError, ValueError) as error:
            raise StateMigrationError(str(error)) from error

    def _proved(self, data: bytes) -> bytes:
        if self._proves and self._decode is not None:
            try:
                self._decode(data)
            except msgspec.ValidationError as error:
                raise Unreadable(_in_value(error)) from None
        return data


def _upgraded(change: Callable[[Any], Any], data: bytes | memoryview) -> bytes:
    values = _decode_plain(data)
    return _encode([None if value is None else change(value) for value in values])


def _in_value(error: msgspec.ValidationError) -> str:
    """Return msgspec's message about a list of values with ``$[0].a`` replaced by ``value.a``."""
    return re.sub(r"`\$(\[\d+\]|\[\.\.\.\])?", "`value", str(error))


def _mapped(function: Callable[[Any], Any] | None, values: list[Any]) -> list[Any]:
    return values if function is None else list(map(function, values))


def _lossless(values: list[Any]) -> Codec | None:
    kinds = set(map(type, values))
    if kinds <= _SCALARS:
        return Codec.PLAIN
    if kinds == {tuple}:
        return Codec.TUPLES if _all_scalars(chain.from_iterable(values)) else None
    if kinds == {list}:
        return Codec.PLAIN if _all_scalars(chain.from_iterable(values)) else None
    return Codec.PLAIN if kinds == {dict} and _plain_dicts(values) else None


def _all_scalars(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= _SCALARS


def _plain_dicts(values: list[dict[Any, Any]]) -> bool:
    keys = set(map(type, chain.from_iterable(values)))
    return keys <= {str} and _all_scalars(chain.from_iterable(map(dict.values, values)))


def _pickle(values: list[Any]) -> bytes:
    try:
        return pickle.dumps(values, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dumps(values)


def decode_untyped(column: EncodedColumn, loads: Loads = unpickle) -> list[Any]:
    """Return the values of a column that was written without a type.

    ``loads`` unpickles them if they are pickled.
    """
    if column.codec is Codec.PICKLE:
        return _unpickle(column.data, loads)
    if column.codec is Codec.ARROW:
        return python_values(decode_arrow(column.data))
    return (_decode_tuples if column.codec is Codec.TUPLES else _decode_plain)(column.data)


def _unpickle(data: bytes | memoryview, loads: Loads) -> list[Any]:
    try:
        values: list[Any] = loads(data)
    except PickledStateError:
        raise
    except Exception as error:
        message = f"a pickled value cannot be read: {type(error).__name__}: {error}"
        raise StateMigrationError(message) from error
    return values
