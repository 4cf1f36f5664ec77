"""The rows of a database: keys and entries of a state as bytes.

    key of a row    state u16 | key group u16 | key of the state     big-endian
    key of a state  MessagePack of the key, or of (key, namespace);
                    0xc1 | hash u32 if MessagePack cannot hold it
    row of a value  codec u8 | column of one item
    row of a list   codec u8 | items u32 | column of all items
    row of a map    codec u8 | codec u8 | items u32 | length u32 | column of keys | column of values
    row of keys     0xff | MessagePack of a list of (columns of the key, row)      see below

So the rows of a state are adjacent, and among them those of a key group. Columns are those of state
files (`holdfast.state.types.serializers`).

**Keys that are equal in Python have one row**, as they have one place in a dict: 1, 1.0 and True
are written as 1, a string enum as the string. A key that MessagePack does not restore exactly is
therefore kept in its row (a bucket), and a row can hold several keys: those with the same hash.

Pure: this module does no I/O.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import chain
from numbers import Number
from operator import itemgetter
from struct import Struct
from typing import Any, Final

import msgspec

from holdfast.state.key_groups import key_group, key_groups_of, key_hash
from holdfast.state.live.tables import ListTable, MapTable, Table
from holdfast.state.types.serializers import Codec, EncodedColumn, Loads, Serializer, decode_untyped
from holdfast.state.types.unpickling import unpickle

_PREFIX: Final = Struct(">HH")
_STATE: Final = Struct(">H")
_HASH: Final = Struct(">BI")
_ARRAY: Final = Struct(">BI")
_LIST: Final = Struct("<BI")
_MAP: Final = Struct("<BBII")
#: the only byte with which MessagePack never begins
_HASHED: Final = 0xC1
_BUCKET: Final = 0xFF
#: maximum number of bits of an integer in MessagePack
_DIGITS: Final = 20
_ONE: Final = b"\x91"
#: the head of an array of any length
_ARRAY_32: Final = 0xDD
#: keys of these types are restored exactly, and are equal only to keys of the same type
_EXACT: Final = frozenset({str, bytes, int, type(None)})
#: raised by msgspec for values that it cannot encode
_UNFIT: Final = (OverflowError, UnicodeEncodeError, TypeError, ValueError)

_PLAIN: Final = Serializer()
_first_byte: Final = itemgetter(_PREFIX.size)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_split: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def state_prefix(number: int, group: int | None = None) -> bytes:
    """Return the common prefix of the keys of all rows of a state, or of one key group of it."""
    return _STATE.pack(number) if group is None else _PREFIX.pack(number, group)


class KeyCodec:
    """Converts the keys of a state to the keys of their rows, and back."""

    __slots__ = ("_max_parallelism", "_namespaced", "_prefixes")

    def __init__(self, number: int, namespaced: bool, max_parallelism: int) -> None:
        self._namespaced = namespaced
        self._max_parallelism = max_parallelism
        self._prefixes = [_PREFIX.pack(number, group) for group in range(max_parallelism)]

    def encode(self, key: Any) -> bytes:
        """Return the key of an entry's row."""
        group = key_group(key[0] if self._namespaced else key, self._max_parallelism)
        return self._prefixes[group] + _key_bytes(key)

    def encode_all(self, keys: list[Any]) -> list[bytes]:
        """Return the keys of the rows of some entries."""
        without = [key for key, _ in keys] if self._namespaced else keys
        groups = key_groups_of(without, self._max_parallelism).tolist()
        prefixes = map(self._prefixes.__getitem__, groups)
        return list(map(bytes.__add__, prefixes, _all_key_bytes(keys)))

    @staticmethod
    def decode(row_key: bytes) -> Any:
        """Return the key of an entry, from the key of a row that is no bucket."""
        return _tuples(_decode(memoryview(row_key)[_PREFIX.size :]))

    @staticmethod
    def group_of(row_key: bytes) -> int:
        """Return the key group of a row."""
        group: int = _PREFIX.unpack_from(row_key)[1]
        return group


class RowCodec:
    """Converts the entries of a table to rows, and back."""

    __slots__ = ("_table", "decode")

    def __init__(self, table: Table[Any]) -> None:
        self._table = table
        #: decodes a row that is no bucket
        self.decode = (
            self._decode_map
            if isinstance(table, MapTable)
            else self._decode_list
            if isinstance(table, ListTable)
            else self._decode_value
        )

    def encode_all(self, entries: list[Any]) -> list[bytes]:
        """Return the rows of entries, which have their declared types."""
        serializer, *more = self._table.serializers
        if isinstance(self._table, MapTable):
            return [_map_row(serializer, more[0], entry) for entry in entries]
        if isinstance(self._table, ListTable):
            return [_list_row(serializer, entry) for entry in entries]
        return _value_rows(serializer, entries)

    def decode_all(self, rows: list[bytes]) -> list[Any]:
        """Return the entries of rows that are no buckets; fast for values of one codec."""
        heads = {row[:2] for row in rows}
        if len(heads) > 1 or self.decode != self._decode_value:
            return list(map(self.decode, rows))
        codec, one = heads.pop()
        if codec == Codec.PICKLE or one != _ONE[0]:
            return list(map(self.decode, rows))
        data = _ARRAY.pack(_ARRAY_32, len(rows)) + b"".join(row[2:] for row in rows)
        return self._table.serializers[0].decode(EncodedColumn(Codec(codec), data))

    def _decode_value(self, row: bytes) -> Any:
        return self._table.serializers[0].decode(value_column(row))[0]

    def _decode_list(self, row: bytes) -> list[Any]:
        return self._table.serializers[0].decode(list_column(row)[1])

    def _decode_map(self, row: bytes) -> dict[Any, Any]:
        _, *columns = map_columns(row)
        decoded = (s.decode(c) for s, c in zip(self._table.serializers, columns, strict=True))
        return dict(zip(*decoded, strict=True))


def value_column(row: bytes) -> EncodedColumn:
    """Return the column of a value's row."""
    return EncodedColumn(Codec(row[0]), memoryview(row)[1:])


def list_column(row: bytes) -> tuple[int, EncodedColumn]:
    """Return the length of a list, and its elements."""
    codec, count = _LIST.unpack_from(row)
    return count, EncodedColumn(Codec(codec), memoryview(row)[_LIST.size :])


def map_columns(row: bytes) -> tuple[int, EncodedColumn, EncodedColumn]:
    """Return the length of a map, its keys and its values."""
    keys, values, count, length = _MAP.unpack_from(row)
    data = memoryview(row)[_MAP.size :]
    return (
        count,
        EncodedColumn(Codec(keys), data[:length]),
        EncodedColumn(Codec(values), data[length:]),
    )


def need_buckets(keys: list[Any], row_keys: list[bytes]) -> bool:
    """Return whether any of these keys must be kept in its row."""
    return _HASHED in set(map(_first_byte, row_keys)) or not _all_exact(keys)


def needs_bucket(key: Any, row_key: bytes) -> bool:
    """Return whether the key of an entry must be kept in its row."""
    return not is_exact(key) or is_hashed(row_key)


def is_exact(key: Any) -> bool:
    """Return whether MessagePack restores a key exactly."""
    kind = key.__class__
    if kind is tuple:
        return all(map(is_exact, key))
    return kind in _EXACT or (kind is float and not key.is_integer())


def _all_exact(keys: Iterable[Any]) -> bool:
    """Return whether all keys are exact; fast for strings, numbers and tuples."""
    kept = list(keys)
    kinds = set(map(type, kept))
    if kinds == {tuple}:
        return _all_exact(chain.from_iterable(kept))
    return kinds <= _EXACT or all(map(is_exact, kept))


def is_hashed(row_key: bytes) -> bool:
    """Return whether the key of a row contains only the hash of the entry's key."""
    return row_key[_PREFIX.size] == _HASHED


def is_bucket(row: bytes) -> bool:
    """Return whether a row contains its keys."""
    return row[0] == _BUCKET


def is_pickled(row: bytes, kind: str) -> bool:
    """Return whether a row of that kind has pickled values or pickled keys."""
    width = 2 if kind == "map" else 1
    if not is_bucket(row):
        return Codec.PICKLE in row[:width]
    return any(
        Codec.PICKLE in (*(column.codec for column in columns), *inner[:width])
        for columns, inner in bucket_columns(row)
    )


def bucket_items(
    row: bytes | None, namespaced: bool, loads: Loads = unpickle
) -> list[tuple[Any, bytes]]:
    """Return the keys and rows of a bucket; empty if there is no row, or it is no bucket."""
    if row is None or not is_bucket(row):
        return []
    return [(_key_of(columns, namespaced, loads), inner) for columns, inner in bucket_columns(row)]


def bucket_columns(row: bytes) -> list[tuple[list[EncodedColumn], bytes]]:
    """Return the encoded columns of each key of a bucket, with its row."""
    return [
        ([EncodedColumn(Codec(codec), data) for codec, data in columns], inner)
        for columns, inner in _decode(memoryview(row)[1:])
    ]


def encode_bucket(items: Iterable[tuple[Any, bytes]], namespaced: bool) -> bytes:
    """Return a bucket with these keys and their rows."""
    kept = [(_columns_of(key, namespaced), row) for key, row in items]
    return bytes([_BUCKET]) + _encode(kept)


def _columns_of(key: Any, namespaced: bool) -> list[EncodedColumn]:
    return [_PLAIN.encode([part]) for part in (key if namespaced else (key,))]


def _key_of(columns: list[EncodedColumn], namespaced: bool, loads: Loads) -> Any:
    parts = [decode_untyped(column, loads)[0] for column in columns]
    return tuple(parts) if namespaced else parts[0]


def split_column(column: EncodedColumn) -> Iterator[bytes]:
    """Yield each item of a column as the row of a value; the column must not be pickled."""
    prefix = bytes([column.codec]) + _ONE
    return map(prefix.__add__, _split(column.data))


def list_rows(elements: EncodedColumn, parts: list[slice]) -> list[bytes]:
    """Return the rows of lists, from an unpickled column of their elements."""
    items = _split(elements.data)
    _check_end(parts, items)
    return [
        _LIST.pack(elements.codec, part.stop - part.start) + _encode(items[part]) for part in parts
    ]


def map_rows(keys: EncodedColumn, values: EncodedColumn, parts: list[slice]) -> list[bytes]:
    """Return the rows of maps, from unpickled columns of their keys and values."""
    names, items = _split(keys.data), _split(values.data)
    _check_end(parts, names)
    _check_end(parts, items)
    rows = []
    for part in parts:
        first, second = _encode(names[part]), _encode(items[part])
        head = _MAP.pack(keys.codec, values.codec, part.stop - part.start, len(first))
        rows.append(head + first + second)
    return rows


def _check_end(parts: list[slice], items: list[Any]) -> None:
    end = parts[-1].stop if parts else 0
    if end != len(items):
        message = f"there are {len(items)} items, not {end}"
        raise ValueError(message)


def join_columns(columns: Iterable[EncodedColumn]) -> EncodedColumn:
    """Join columns of the same codec into one; pickled columns become one pickled column."""
    first, *more = columns
    if not more:
        return first
    return EncodedColumn(
        first.codec, _encode([item for c in (first, *more) for item in _split(c.data)])
    )


def _value_rows(serializer: Serializer, values: list[Any]) -> list[bytes]:
    column = serializer.encode(values)
    if column.codec is Codec.PICKLE:
        return [_value_row(serializer, value) for value in values]
    return list(split_column(column))


def _map_row(keys: Serializer, values: Serializer, entry: dict[Any, Any]) -> bytes:
    first, second = keys.encode(list(entry)), values.encode(list(entry.values()))
    head = _MAP.pack(first.codec, second.codec, len(entry), len(first.data))
    return b"".join((head, first.data, second.data))


def _list_row(serializer: Serializer, entry: list[Any]) -> bytes:
    column = serializer.encode(entry)
    return b"".join((_LIST.pack(column.codec, len(entry)), column.data))


def _value_row(serializer: Serializer, value: Any) -> bytes:
    column = serializer.encode([value])
    return b"".join((bytes([column.codec]), column.data))


def _key_bytes(key: Any) -> bytes:
    try:
        return _encode(key if is_exact(key) else _canonical(key))
    except _UNFIT:
        return _HASH.pack(_HASHED, key_hash(key))


def _all_key_bytes(keys: list[Any]) -> list[bytes]:
    if _all_exact(keys):
        with contextlib.suppress(*_UNFIT):
            return list(map(_encode, keys))
    return list(map(_key_bytes, keys))


def _canonical(key: Any) -> Any:
    """Return the plain value that represents all keys equal to this one, or raise."""
    if isinstance(key, tuple):
        return tuple(map(_canonical, key))
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, Number):
        return _canonical_number(key)
    if key is None:
        return None
    message = f"no plain value stands for {key!r}"
    raise TypeError(message)


def _canonical_number(key: Any) -> int | float:
    if isinstance(key, Decimal) and key.adjusted() > _DIGITS:
        # NB: the equal integer could be too large to compute
        message = f"no plain number equals {key!r}"
        raise OverflowError(message)
    for kind in (int, float):
        try:
            number = kind(key.real if isinstance(key, complex) else key)
        except (TypeError, ValueError, OverflowError):
            continue
        if number == key:
            return number
    if key != key:
        return float("nan")
    message = f"no plain number equals {key!r}"
    raise TypeError(message)


def _tuples(key: Any) -> Any:
    """Turn lists back into tuples: MessagePack has no tuples, and no key contains a list."""
    return tuple(map(_tuples, key)) if key.__class__ is list else key
