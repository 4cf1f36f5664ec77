"""Records for a topic, in files that wait for their checkpoint.

A file is a sequence of chunks: the length of the data and its CRC-32, four bytes each, and the
data, a list of records in MessagePack.

A note that a commit has begun is next to the first file of its transaction:

    .0-1-<random>          records
    .0-1-<random>.begun    a process has begun to commit the transaction of this file

Invariant: the note exists before the commit begins, and the records are deleted only after it.
Consequence: records without a note were never committed, and a note without records says
that they were.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import BinaryIO
from zlib import crc32

import msgspec

from holdfast.common.time import wall_clock
from holdfast.datastream.connectors.files.part_files import (
    FileTransaction,
    Part,
    PartFiles,
    Place,
    path_below,
)
from holdfast.datastream.connectors.kafka.records import ProducerRecord
from holdfast.filesystem import FileSystem, FileSystemError

_HEAD = struct.Struct("<II")
#: a chunk is written when it has this many records, or bytes
_CHUNK_RECORDS = 1000
_CHUNK_BYTES = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[ProducerRecord]).decode


@dataclass
class Chunk:
    """Records that are written together."""

    records: list[ProducerRecord] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the chunk must be written."""
        return len(self.records) >= _CHUNK_RECORDS or self.size >= _CHUNK_BYTES


@dataclass
class KafkaTransaction:
    """The records of one run of an epoch, or of all epochs up to a checkpoint.

    Attributes:
        transactional_id: the id to commit it with, for any process, so there is one at a time.
        staged: its files.
    """

    transactional_id: str
    staged: FileTransaction

    @cached_property
    def chunk(self) -> Chunk:
        """Return records that are not in a file yet; none after the pre-commit, so not saved."""
        return Chunk()

    @property
    def name(self) -> str:
        """Return a unique name; empty for a transaction without records."""
        return next(iter(self.staged.names), "")

    @property
    def files(self) -> list[str]:
        """Return the names of all files that belong to it."""
        return [*self.staged.names, _begun(self.name)]


class StagedRecords:
    """Writes and reads the files of transactions, in one subtask of one attempt."""

    def __init__(self, place: Place, attempt: int, subtask: int) -> None:
        self.subtask = subtask
        self.segments = PartFiles(place, attempt, subtask)

    def add(self, transaction: KafkaTransaction, record: ProducerRecord) -> None:
        """Take a record."""
        chunk = transaction.chunk
        chunk.records.append(record)
        chunk.size += len(record.value or b"")
        if chunk.is_full:
            self._write(transaction)

    def finish(self, transaction: KafkaTransaction) -> None:
        """Write the last chunk, and close the file."""
        if transaction.chunk.records:
            self._write(transaction)
        for opened in transaction.staged.writing.values():
            segment = self.segments.close_segment(opened)
            if segment is not None:
                transaction.staged.parts.append(Part("", (segment,)))
        transaction.staged.writing.clear()

    def is_begun(self, transaction: KafkaTransaction) -> bool:
        """Return whether a process has begun to commit it."""
        system, directory = _home(transaction)
        return system.exists(path_below(directory, _begun(transaction.name)))

    def begin(self, transaction: KafkaTransaction) -> None:
        """Write the note that the commit has begun."""
        system, directory = _home(transaction)
        system.write(path_below(directory, _begun(transaction.name)), b"", durable=True)

    def is_there(self, transaction: KafkaTransaction) -> bool:
        """Return whether the records still exist."""
        system, directory = _home(transaction)
        return system.exists(path_below(directory, transaction.name))

    def read(self, transaction: KafkaTransaction) -> Iterator[list[ProducerRecord]]:
        """Return the records, chunk by chunk, in the order in which they came."""
        system, directory = _home(transaction)
        for part in transaction.staged.parts:
            for segment in part.segments:
                path = path_below(directory, segment.name)
                with system.open_input(path) as file:
                    yield from _chunks(system, path, file)

    def discard(self, transaction: KafkaTransaction) -> None:
        """Delete the records."""
        self.segments.discard(transaction.staged)

    def forget(self, transaction: KafkaTransaction) -> None:
        """Delete the note when it is no longer needed."""
        system, directory = _home(transaction)
        system.delete(path_below(directory, _begun(transaction.name)))

    def _write(self, transaction: KafkaTransaction) -> None:
        writing = transaction.staged.writing
        if not writing:
            writing[""] = self.segments.open_segment(wall_clock())
        segment, data = writing[""], _encode(transaction.chunk.records)
        try:
            segment.write(_HEAD.pack(len(data), crc32(data)))
            segment.write(data)
        except Exception as error:
            self.segments.fail(segment, error)
        segment.size += _HEAD.size + len(data)
        del transaction.chunk


def _begun(name: str) -> str:
    return f"{name}.begun"


def _home(transaction: KafkaTransaction) -> tuple[FileSystem, str]:
    system, _, directory = transaction.staged.place.resolve()
    return system, directory


def _chunks(system: FileSystem, path: str, file: BinaryIO) -> Iterator[list[ProducerRecord]]:
    while head := file.read(_HEAD.size):
        size, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (-1, 0)
        data = file.read(size) if size >= 0 else b""
        if len(data) != size or crc32(data) != checksum:
            raise FileSystemError(
                f"the records for Kafka in '{system.uri(path)}' are damaged: a chunk of {size} "
                f"bytes does not have its checksum; restore the file, or start from a checkpoint "
                "before it"
            )
        yield _decode(data)
