"""The header of a state file: it describes the body, and contains the file's own name.

Anyone who can write a file can compute a valid checksum. So `decode_header` also validates the
header itself, and raises an error unless each operation has the columns it needs and suits the kind
of its state, key groups are in range, and no length is negative.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from holdfast.state.key_groups import MOST_KEY_GROUPS
from holdfast.state.types.schema import Schema, check_schema
from holdfast.state.types.serializers import Codec

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Op(IntEnum):
    """What a chunk does to its keys; the numbers are part of the format.

    Operations are idempotent: each sets its result regardless of what was there before.
    """

    PUT = 0  # values
    DELETE = 1
    LIST_REPLACE = 2  # lengths; elements
    LIST_APPEND = 3  # lengths before, lengths of what is appended; elements
    MAP_REPLACE = 4  # lengths; map keys, map values
    MAP_PUT = 5  # lengths; map keys, map values
    MAP_REMOVE = 6  # lengths; map keys


#: how many columns an operation has after those of the keys
_COLUMNS: Final = {
    Op.PUT: 1,
    Op.DELETE: 0,
    Op.LIST_REPLACE: 2,
    Op.LIST_APPEND: 3,
    Op.MAP_REPLACE: 3,
    Op.MAP_PUT: 3,
    Op.MAP_REMOVE: 2,
}
_VALUE_OPS: Final = frozenset({Op.PUT, Op.DELETE})
#: by kind of state: its operations
_OPS: Final = {
    **dict.fromkeys(("value", "reducing", "aggregating", "folding", "column"), _VALUE_OPS),
    "list": frozenset({Op.DELETE, Op.LIST_REPLACE, Op.LIST_APPEND}),
    "map": frozenset({Op.DELETE, Op.MAP_REPLACE, Op.MAP_PUT, Op.MAP_REMOVE}),
}


class ColumnHeader(msgspec.Struct, array_like=True, frozen=True):
    """The codec of a column, and its length in bytes."""

    codec: Codec
    length: Size


class ChunkHeader(msgspec.Struct, array_like=True, frozen=True):
    """One operation on some keys."""

    op: Op
    first: Size
    last: Size
    clipped: bool
    count: Size
    columns: tuple[ColumnHeader, ...]


class SectionHeader(msgspec.Struct, array_like=True, frozen=True):
    """Operations on one state of one operator."""

    operator: str
    state: str
    kind: str
    namespaced: bool
    types: tuple[Schema | None, ...]
    max_parallelism: int
    chunks: tuple[ChunkHeader, ...]
    expires: bool = False


class BlobHeader(msgspec.Struct, array_like=True, frozen=True):
    """Bytes of an operator; the length is None if they were removed."""

    operator: str
    name: str
    length: Size | None


class FileHeader(msgspec.Struct, array_like=True, frozen=True):
    """The contents of a file.

    Attributes:
        name: the file's name; empty in files of Holdfast 0.1, and in data that is not stored as a
            file of its own.
    """

    sections: tuple[SectionHeader, ...]
    blobs: tuple[BlobHeader, ...]
    name: str = ""

    @property
    def body_length(self) -> int:
        """Return the length of the body that the header describes."""
        columns = sum(
            column.length
            for section in self.sections
            for chunk in section.chunks
            for column in chunk.columns
        )
        return columns + sum(blob.length or 0 for blob in self.blobs)


encode_header: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(FileHeader).decode


def decode_header(data: bytes | memoryview) -> FileHeader:
    """Decode and validate a header.

    Raises:
        Exception: of any kind, if the bytes are not a valid header.
    """
    header = _decode(data)
    for section in header.sections:
        check_kind_of_state(section.kind, section.types)
        if not 1 <= section.max_parallelism <= MOST_KEY_GROUPS:
            raise _wrong(section, f"max parallelism {section.max_parallelism}")
        for chunk in section.chunks:
            _check_chunk(section, chunk)
    return header


def check_kind_of_state(kind: str, types: tuple[Schema | None, ...]) -> None:
    """Check that the kind of a keyed state exists, and has these types.

    Raises:
        ValueError: if it does not.
    """
    if kind not in _OPS or len(types) != (2 if kind == "map" else 1):
        message = f"there is no {kind!r} state with {len(types)} types"
        raise ValueError(message)
    for schema in types:
        check_schema(schema)


def _check_chunk(section: SectionHeader, chunk: ChunkHeader) -> None:
    if chunk.op not in _OPS[section.kind]:
        raise _wrong(section, f"the operation {chunk.op.name} on a {section.kind} state")
    expected = (2 if section.namespaced else 1) + _COLUMNS[chunk.op]
    if len(chunk.columns) != expected:
        raise _wrong(section, f"{len(chunk.columns)} columns for {chunk.op.name}, not {expected}")
    if not chunk.first <= chunk.last < section.max_parallelism:
        groups = f"key groups {chunk.first} to {chunk.last} of {section.max_parallelism}"
        raise _wrong(section, groups)


def _wrong(section: SectionHeader, problem: str) -> ValueError:
    return ValueError(
        f"the header of state {section.state!r} of operator {section.operator!r} has {problem}"
    )
