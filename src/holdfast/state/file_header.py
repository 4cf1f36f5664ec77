"""The header of a state file: what is in its body, and the file's own name.

Whoever can write a file can give it a right checksum. So the header is checked by itself when it is
decoded: an operation has the columns that it needs and suits the kind of its state, key groups are
in range, and no length is negative. `decode_header` raises if not.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from holdfast.state.key_groups import MOST_KEY_GROUPS
from holdfast.state.schema import Schema, check_schema
from holdfast.state.serializers import Codec

__all__ = [
    "BlobHead",
    "ChunkHead",
    "ColumnHead",
    "Header",
    "Op",
    "SectionHead",
    "check_kind_of_state",
    "decode_header",
    "encode_header",
]

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Op(IntEnum):
    """What a chunk does to its keys; the numbers are part of the format.

    Each sets what it names, whatever was there before, so doing it twice is doing it once.
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
    **dict.fromkeys(("value", "reducing", "aggregating", "folding"), _VALUE_OPS),
    "list": frozenset({Op.DELETE, Op.LIST_REPLACE, Op.LIST_APPEND}),
    "map": frozenset({Op.DELETE, Op.MAP_REPLACE, Op.MAP_PUT, Op.MAP_REMOVE}),
}


class ColumnHead(msgspec.Struct, array_like=True, frozen=True):
    """How a column is written, and its length in bytes."""

    codec: Codec
    length: Size


class ChunkHead(msgspec.Struct, array_like=True, frozen=True):
    """One operation on some keys."""

    op: Op
    first: Size
    last: Size
    clipped: bool
    count: Size
    columns: tuple[ColumnHead, ...]


class SectionHead(msgspec.Struct, array_like=True, frozen=True):
    """Operations on one state of one operator."""

    operator: str
    state: str
    kind: str
    namespaced: bool
    types: tuple[Schema | None, ...]
    max_parallelism: int
    chunks: tuple[ChunkHead, ...]
    expires: bool = False


class BlobHead(msgspec.Struct, array_like=True, frozen=True):
    """Bytes of an operator; no length: they were removed."""

    operator: str
    name: str
    length: Size | None


class Header(msgspec.Struct, array_like=True, frozen=True):
    """What is in a file.

    Attributes:
        name: that of the file; empty in those of Holdfast 0.1, and in what is no file by itself.
    """

    sections: tuple[SectionHead, ...]
    blobs: tuple[BlobHead, ...]
    name: str = ""

    @property
    def body_length(self) -> int:
        """The length of the body that belongs to it."""
        columns = sum(
            column.length
            for section in self.sections
            for chunk in section.chunks
            for column in chunk.columns
        )
        return columns + sum(blob.length or 0 for blob in self.blobs)


encode_header: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Header).decode


def decode_header(data: bytes | memoryview) -> Header:
    """Return a header.

    Raises:
        Exception: of any kind, when these are not the bytes of one that `encode_header` returned.
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
    """Refuse a keyed state of a kind that there is not, or with types that do not belong to it.

    Raises:
        ValueError: saying what is wrong.
    """
    if kind not in _OPS or len(types) != (2 if kind == "map" else 1):
        message = f"there is no {kind!r} state of {len(types)} types"
        raise ValueError(message)
    for schema in types:
        check_schema(schema)


def _check_chunk(section: SectionHead, chunk: ChunkHead) -> None:
    if chunk.op not in _OPS[section.kind]:
        raise _wrong(section, f"the operation {chunk.op.name} on a {section.kind} state")
    expected = (2 if section.namespaced else 1) + _COLUMNS[chunk.op]
    if len(chunk.columns) != expected:
        raise _wrong(section, f"{len(chunk.columns)} columns for {chunk.op.name}, not {expected}")
    if not chunk.first <= chunk.last < section.max_parallelism:
        groups = f"key groups {chunk.first} to {chunk.last} of {section.max_parallelism}"
        raise _wrong(section, groups)


def _wrong(section: SectionHead, problem: str) -> ValueError:
    return ValueError(
        f"state {section.state!r} of operator {section.operator!r} is said to have {problem}"
    )
