"""The unit that travels: a header and a payload.

A block holds many records for one subtask of one operator. Between two subtasks blocks have
consecutive numbers from 0 on, and the last one is the control block, so a receiver can prove that
it read everything, in the order in which it was sent.

Header (MessagePack array): kind, level, subtask, exchange, producer level, producer, number, count,
stamp. Payload: pickled records (RECORDS), or a MessagePack message (the others).
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec


class Kind(IntEnum):
    """What a block carries."""

    RECORDS = 0
    CONTROL = 1
    ACKNOWLEDGEMENT = 2
    RESULT = 3
    FAILURE = 4


class Header(msgspec.Struct, array_like=True, frozen=True):
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


class Block(NamedTuple):
    """A header with its payload."""

    header: Header
    data: bytes | memoryview


encode_header = msgspec.msgpack.Encoder().encode
decode_header = msgspec.msgpack.Decoder(Header).decode


def encode_records(records: Sequence[Any]) -> bytes:
    """Records as bytes."""
    return pickle.dumps(records, 5)


def decode_records(data: Any) -> list[Any]:
    """The records of a payload."""
    return pickle.loads(data)  # type: ignore[no-any-return]
