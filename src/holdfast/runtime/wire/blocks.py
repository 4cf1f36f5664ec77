"""Blocks: the units that are sent, each with a header and a payload.

A block contains many records for one subtask of one operator. The blocks from one subtask to
another are numbered consecutively from 0, and the last one is the control block. So a receiver can
verify that it read everything, in the order in which it was sent.

Header (MessagePack array): kind, level, subtask, exchange (RECORDS), producer level, producer,
number, count, stamp, operator (RESULT). Payload: records (RECORDS: pickled, or see
`struct_records` and `batch_blocks`), or a MessagePack message.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from enum import IntEnum
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import msgspec

from holdfast.common.private import user_directory
from holdfast.datastream.columns.batch import Batch
from holdfast.runtime.wire.batch_blocks import BATCHES, decode_batches, encode_batches
from holdfast.runtime.wire.struct_records import PAIRS, STRUCTS, decode_structs, encode_structs


class Kind(IntEnum):
    """What a block carries."""

    RECORDS = 0
    CONTROL = 1
    ACKNOWLEDGEMENT = 2
    RESULT = 3
    FAILURE = 4
    LOG = 5
    ENDED = 6


class BlockHeader(msgspec.Struct, array_like=True, frozen=True):
    """Where a block goes, and where it comes from."""

    kind: int
    level: int
    subtask: int
    exchange: int
    producer_level: int
    producer: int
    number: int
    count: int
    stamp: str
    operator: int = -1


class Block(NamedTuple):
    """A header with its payload."""

    header: BlockHeader
    data: bytes | memoryview


class BlockQueue:
    """A queue of outgoing blocks; those beyond a limit are stored on disk.

    A function that makes millions of records out of one cannot be interrupted in the middle of its
    call, so its output may exceed what should be held in memory.
    """

    def __init__(self, in_memory: int = 32 * 1024 * 1024) -> None:
        """Hold at most about this many bytes in memory."""
        self._room = in_memory
        self._blocks: list[Block] = []
        self._later: list[BlockHeader] = []
        self._sizes: list[int] = []
        self._file: IO[bytes] | None = None

    def append(self, block: Block) -> None:
        """Add a block at the end."""
        size = len(block.data)
        if self._room > 0:
            self._room -= size
            self._blocks.append(block)
            return
        if self._file is None:
            # NB: the file has no name, and is closed after it was read
            self._file = TemporaryFile(dir=user_directory())  # noqa: SIM115
        self._file.write(block.data)
        self._later.append(block.header)
        self._sizes.append(size)

    def __len__(self) -> int:
        return len(self._blocks) + len(self._later)

    def __iter__(self) -> Iterator[Block]:
        yield from self._blocks
        if self._file is not None:
            with self._file as file:
                file.seek(0)
                for header, size in zip(self._later, self._sizes, strict=True):
                    yield Block(header, file.read(size))


encode_header = msgspec.msgpack.Encoder().encode
decode_header = msgspec.msgpack.Decoder(BlockHeader).decode


def encode_records(records: Sequence[Any]) -> bytes:
    """Return records as bytes.

    Records of plain values are pickled without memoizing repeated values, which takes a good third
    less time on both sides. Objects are pickled normally, since each would repeat its class name.
    """
    if not records:
        return pickle.dumps(records, 5)
    if isinstance(records[0], Batch):
        return encode_batches(records)
    if not _is_plain(records[0]):
        return encode_structs(records) or pickle.dumps(records, 5)
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, 5)
    pickler.fast = True
    try:
        pickler.dump(records)
    except (ValueError, KeyError):
        # a record that contains itself; or many frozensets, which CPython considers nested
        return pickle.dumps(records, 5)
    return buffer.getvalue()


def _is_plain(record: Any) -> bool:
    """Return whether a record, or a pair with a timestamp, is a plain value or a tuple of such."""
    if type(record) is not tuple:
        return type(record) in _PLAIN
    if len(record) == 2 and type(record[0]) is tuple:
        return all(type(field) in _PLAIN for field in (*record[0], record[1]))
    return all(type(field) in _PLAIN for field in record)


_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


def decode_records(data: Any) -> list[Any]:
    """Return the records of a payload."""
    if data[0] == BATCHES:
        return decode_batches(data)
    if data[0] in (STRUCTS, PAIRS):
        return decode_structs(data)
    return pickle.loads(data)  # type: ignore[no-any-return]
