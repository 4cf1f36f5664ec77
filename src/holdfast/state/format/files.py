"""The bytes of a state file.

    offset  size  what
         0     4  magic, b"HFST"
         4     1  version of this layout: 3, or 4 if a column is written as Arrow
         5     1  compression of the body: 0 none, 1 lz4
         6     2  zero
         8     4  length of the header
        12     8  length of the body as it stands in the file
        20     8  length of the body before compression
        28        header, MessagePack
                  body
       end     4  crc32 of everything before it

All numbers are little-endian. The header (`holdfast.state.format.file_header`) lists the sections,
one or more for each state of each operator, and the chunks of each section. A chunk is one
operation on some keys, all of whose key groups are in ``first..last``; it has one column for the
keys and as many more as the operation needs. The columns stand in the body one after another, in
the order of the header. Chunks are sorted by key group and decoded only on demand, so a reader
whose key groups differ from the writer's decodes only the chunks it needs. The columns are followed
by the blobs: bytes of an operator that belong to no key.

**A file is read as a whole, and only if its checksum is right**: a damaged file is an error, and
never yields wrong data. A checksum only proves that a file was not changed by accident. So the
lengths and counts in a file are also checked against each other before memory is allocated.

**A file has its own name in its header**, and is rejected under another name. A name consists of
the epoch, level and subtask of the writer and a random part, so names are unique across jobs.

This module handles bytes only; `holdfast.state.live.sections` handles Python values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct, pack
from typing import Final
from zlib import crc32

import pyarrow as pa

from holdfast.state.errors import StateCorruptionError, decoding
from holdfast.state.format.file_header import (
    BlobHeader,
    ChunkHeader,
    ColumnHeader,
    FileHeader,
    Op,
    SectionHeader,
    decode_header,
    encode_header,
)
from holdfast.state.names import StateId
from holdfast.state.types.schema import Schema
from holdfast.state.types.serializers import Codec, EncodedColumn

VERSION: Final = 3
#: of files with columns in Arrow, which earlier versions of Holdfast cannot read
ARROW_VERSION: Final = 4
_MAGIC: Final = b"HFST"
_FIXED: Final = Struct("<4sBBHIQQ")
_CHECKSUM_SIZE: Final = 4
_PLAIN: Final = 0
_LZ4: Final = 1
#: lz4 compresses by at most this factor
_LARGEST_RATIO: Final = 255
#: sizes of bodies that are compressed: smaller ones gain nothing, lz4 does not support larger ones
_COMPRESSIBLE: Final = range(512, 1 << 30)

BlobId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SectionChunk:
    """One operation on some keys."""

    op: Op
    #: the chunk applies to these key groups only, both included
    first: int
    last: int
    #: whether it also holds keys of other key groups, which are to be ignored
    clipped: bool
    #: number of keys
    count: int
    columns: tuple[EncodedColumn, ...]

    def clip(self, key_groups: range) -> SectionChunk | None:
        """Return the chunk for these key groups only; None if nothing is left."""
        first, last = max(self.first, key_groups.start), min(self.last, key_groups.stop - 1)
        if first > last:
            return None
        if (first, last) == (self.first, self.last):
            return self
        return SectionChunk(self.op, first, last, True, self.count, self.columns)

    def copy(self) -> SectionChunk:
        """Return the chunk with a copy of its bytes, which does not keep the file in memory."""
        columns = tuple(EncodedColumn(c.codec, bytes(c.data)) for c in self.columns)
        return SectionChunk(self.op, self.first, self.last, self.clipped, self.count, columns)


@dataclass(frozen=True, slots=True)
class Section:
    """Operations on one state of one operator."""

    operator: str
    state: str
    kind: str
    #: whether keys have a namespace, in a second column
    namespaced: bool
    #: the schemas of the types declared at the time; None for a type that was not declared
    types: tuple[Schema | None, ...]
    #: the number of key groups of the operator
    max_parallelism: int
    chunks: tuple[SectionChunk, ...]
    #: whether it has a time-to-live: values are then pairs of a value and its last access time
    expires: bool = False

    @property
    def id(self) -> StateId:
        """Return the id of the state."""
        return StateId(self.operator, self.state, self.namespaced)

    @property
    def pickled(self) -> bool:
        """Return whether any column is pickled."""
        return any(c.codec is Codec.PICKLE for chunk in self.chunks for c in chunk.columns)

    def clip(self, key_groups: range) -> Section:
        """Return the section for these key groups only."""
        chunks = tuple(c for c in (c.clip(key_groups) for c in self.chunks) if c is not None)
        return self._with(chunks)

    def copy(self) -> Section:
        """Return the section with a copy of its bytes, which does not keep the file in memory."""
        return self._with(tuple(c.copy() for c in self.chunks))

    def _with(self, chunks: tuple[SectionChunk, ...]) -> Section:
        return replace(self, chunks=chunks)


@dataclass(frozen=True, slots=True)
class StateFile:
    """The contents of a file; a blob that is None was removed."""

    sections: Sequence[Section]
    blobs: Mapping[BlobId, bytes | memoryview | None] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of changes: one per key and operation, one per blob."""
        return sum(c.count for s in self.sections for c in s.chunks) + len(self.blobs)


def encode_file(file: StateFile, name: str = "", compress: bool = True) -> bytes:
    """Return the bytes of a file that will be stored under ``name``.

    Set ``compress`` to False if the contents are compressed already.
    """
    header = encode_header(_header(file, name))
    body = b"".join(_parts(file))
    compression, stored = _compress(body) if compress else (_PLAIN, body)
    version = ARROW_VERSION if _has_arrow(file) else VERSION
    fixed = _FIXED.pack(_MAGIC, version, compression, 0, len(header), len(stored), len(body))
    checksum = crc32(stored, crc32(header, crc32(fixed)))
    return b"".join((fixed, header, stored, pack("<I", checksum)))


def decode_file(data: bytes, name: str) -> StateFile:
    """Return the contents of the file of that name.

    Raises:
        StateCorruptionError: if these are not exactly the bytes that `encode_file` returned for
            this name.
    """
    header_length, stored_length, body_length, compression = _check(data, name)
    end = _FIXED.size + header_length
    with decoding(f"state file {name!r}"):
        header = _header_of(data, name, end)
        if header.body_length != body_length:
            problem = f"expected a body of {header.body_length} bytes, found {body_length}"
            raise _damaged(name, problem)
        stored = memoryview(data)[end : end + stored_length]
        return _read(header, _Body(_decompress(stored, compression, body_length)))


def check_file(data: bytes, name: str) -> None:
    """Check that these are the bytes of the file of that name, by their checksum.

    Raises:
        StateCorruptionError: if they are not.
    """
    header_length, *_ = _check(data, name)
    with decoding(f"state file {name!r}"):
        _header_of(data, name, _FIXED.size + header_length)


def _header_of(data: bytes, name: str, end: int) -> FileHeader:
    header = decode_header(memoryview(data)[_FIXED.size : end])
    if header.name not in ("", name):
        problem = f"it contains the file {header.name!r}, which was stored under this name"
        raise _damaged(name, f"{problem}; restore the original names of both files")
    return header


def _header(file: StateFile, name: str) -> FileHeader:
    sections = tuple(_section_head(section) for section in file.sections)
    blobs = tuple(
        BlobHeader(operator, name, None if blob is None else len(blob))
        for (operator, name), blob in file.blobs.items()
    )
    return FileHeader(sections, blobs, name)


def _section_head(section: Section) -> SectionHeader:
    return SectionHeader(
        section.operator,
        section.state,
        section.kind,
        section.namespaced,
        section.types,
        section.max_parallelism,
        _chunk_heads(section),
        section.expires,
    )


def _chunk_heads(section: Section) -> tuple[ChunkHeader, ...]:
    return tuple(
        ChunkHeader(c.op, c.first, c.last, c.clipped, c.count, _column_heads(c))
        for c in section.chunks
    )


def _column_heads(chunk: SectionChunk) -> tuple[ColumnHeader, ...]:
    return tuple(ColumnHeader(c.codec, len(c.data)) for c in chunk.columns)


def _parts(file: StateFile) -> Iterator[bytes | memoryview]:
    for section in file.sections:
        for chunk in section.chunks:
            yield from (column.data for column in chunk.columns)
    yield from (blob for blob in file.blobs.values() if blob is not None)


def _has_arrow(file: StateFile) -> bool:
    return any(
        column.codec is Codec.ARROW
        for section in file.sections
        for chunk in section.chunks
        for column in chunk.columns
    )


def _compress(body: bytes) -> tuple[int, bytes]:
    if len(body) in _COMPRESSIBLE:
        small: bytes = pa.compress(body, codec="lz4", asbytes=True)
        if len(small) < len(body) * 7 // 8:
            return _LZ4, small
    return _PLAIN, body


def _decompress(stored: memoryview, compression: int, size: int) -> memoryview:
    if compression == _PLAIN and size == len(stored):
        return stored
    if compression != _LZ4 or size > len(stored) * _LARGEST_RATIO:
        message = f"compression {compression} cannot turn {len(stored)} bytes into {size}"
        raise ValueError(message)
    # NB: `pa.decompress` does not report if the data is shorter than the expected size
    with pa.CompressedInputStream(pa.BufferReader(stored), "lz4") as stream:
        body = stream.read_buffer(size + 1)
    if body.size != size:
        message = f"the body is not {size} bytes long"
        raise ValueError(message)
    return memoryview(body)


def _check(data: bytes, name: str) -> tuple[int, int, int, int]:
    if data[:4] != _MAGIC:
        found = f"found {bytes(data[:4])!r}" if data else "it is empty"
        raise _damaged(
            name, f"expected a Holdfast state file, which begins with {_MAGIC!r}; {found}"
        )
    if len(data) < _FIXED.size + _CHECKSUM_SIZE:
        raise _damaged(name, f"it is cut short: expected more than 32 bytes, found {len(data)}")
    _, version, compression, _, header, stored, body = _FIXED.unpack_from(data)
    if version not in (VERSION, ARROW_VERSION):
        what = f"expected format version {VERSION} or {ARROW_VERSION}, found {version}"
        raise _damaged(name, f"{what}; read it with the version of Holdfast that wrote it")
    size = _FIXED.size + header + stored + _CHECKSUM_SIZE
    if len(data) != size:
        raise _damaged(name, f"expected {size} bytes, found {len(data)}")
    expected = int.from_bytes(data[-_CHECKSUM_SIZE:], "little")
    actual = crc32(memoryview(data)[:-_CHECKSUM_SIZE])
    if expected != actual:
        raise _damaged(name, f"expected checksum {expected:08x}, found {actual:08x}")
    return header, stored, body, compression


def _damaged(name: str, problem: str) -> StateCorruptionError:
    return StateCorruptionError(f"state file {name!r} cannot be used: {problem}")


class _Body:
    """Reads the body piece by piece."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, length: int) -> memoryview:
        start = self._position
        self._position = start + length
        return self._data[start : self._position]


def _read(header: FileHeader, body: _Body) -> StateFile:
    sections = [_read_section(head, body) for head in header.sections]
    blobs = {
        (b.operator, b.name): None if b.length is None else body.take(b.length)
        for b in header.blobs
    }
    return StateFile(sections, blobs)


def _read_section(head: SectionHeader, body: _Body) -> Section:
    chunks = tuple(_read_chunk(chunk, body) for chunk in head.chunks)
    return Section(
        head.operator,
        head.state,
        head.kind,
        head.namespaced,
        head.types,
        head.max_parallelism,
        chunks,
        head.expires,
    )


def _read_chunk(head: ChunkHeader, body: _Body) -> SectionChunk:
    columns = tuple(EncodedColumn(c.codec, body.take(c.length)) for c in head.columns)
    return SectionChunk(head.op, head.first, head.last, head.clipped, head.count, columns)
