"""The metadata of a checkpoint, and its bytes.

    offset  size  what
         0     4  magic, b"HFCP"
         4     1  version of this layout, 1
         5     3  zero
         8     8  length of the body
        16        body: a `CheckpointMetadata` as MessagePack, fields by name
       end     4  crc32 of everything before it

All numbers are little-endian. Fields are written by name, so that older files can be read after a
field with a default was added. The metadata names state files but does not contain them, since
checkpoints share files.
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final
from zlib import crc32

import msgspec

from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.common.plain_names import plain_path
from holdfast.plan.model import ROWS_LEVEL
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.file_header import check_kind_of_state
from holdfast.state.format.head import Head
from holdfast.state.key_groups import MOST_KEY_GROUPS
from holdfast.state.live.operator_state import MODES
from holdfast.state.types.schema import Schema, check_schema

VERSION: Final = 1
_MAGIC: Final = b"HFCP"
_FIXED: Final = Struct("<4sB3sQ")
_CHECKSUM_SIZE: Final = 4


class LevelImage(msgspec.Struct, frozen=True):
    """The state of a level: one head per subtask."""

    parallelism: int
    heads: tuple[Head, ...] = msgspec.field(name="chains")  # the name in files of all versions


class OperatorImage(msgspec.Struct, frozen=True):
    """What a restore needs to know about an operator to find its state and check that it fits.

    Attributes:
        stateful: whether the operator has state that must not be lost.
        states: its states, with their types.
        key_type: the schema of the declared type of its keys, if any.
    """

    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    level: int
    stateful: bool = True
    states: tuple[SavedState, ...] = ()
    key_type: Schema | None = None


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """A consistent image of a job after an epoch.

    Invariant: the heads are those that the driver accepted with that epoch, and the Spark entries
    are those of the same batch. Consequence: a job started from both continues exactly after it.

    Attributes:
        timestamp: when it was triggered, in milliseconds.
        savepoint: whether it is a savepoint, with its state files next to it.
        operators: by uid.
        spark: the files that Spark's own log needs to continue after the epoch, by relative path.
    """

    id: int
    timestamp: int
    epoch: int
    job_name: str
    savepoint: bool
    levels: tuple[LevelImage, ...]
    operators: dict[str, OperatorImage]
    spark: dict[str, bytes] = {}

    def __post_init__(self) -> None:
        for name in self.spark:
            plain_path(name)

    def files(self) -> frozenset[str]:
        """Return the names of all state files that it needs."""
        return frozenset(self.file_sizes())

    def file_sizes(self) -> dict[str, int]:
        """Return the sizes of all state files that it needs, by name."""
        return {
            ref.name: ref.size
            for level in self.levels
            for head in level.heads
            for ref in head.all_files
        }

    @property
    def state_size(self) -> int:
        """Return the size of all its state files."""
        return sum(self.file_sizes().values())


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CheckpointMetadata).decode


def encode(metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of a metadata file."""
    body = _encode(metadata)
    fixed = _FIXED.pack(_MAGIC, VERSION, bytes(3), len(body))
    return b"".join((fixed, body, pack("<I", crc32(body, crc32(fixed)))))


def decode(data: bytes, name: str) -> CheckpointMetadata:
    """Return the contents of a metadata file; ``name`` is for errors.

    Raise a CheckpointCorruptionError if these are not exactly the bytes that `encode` returned.
    """
    _check(data, name)
    try:
        metadata = _decode(memoryview(data)[_FIXED.size : -_CHECKSUM_SIZE])
        _check_parts(metadata)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unusable(name, f"expected the metadata of a checkpoint, found {error}") from error
    return metadata


def _check_parts(metadata: CheckpointMetadata) -> None:
    """Check that the parts of the metadata fit together."""
    for number, level in enumerate(metadata.levels):
        if len(level.heads) != level.parallelism:
            message = f"level {number} of {level.parallelism} subtasks with {len(level.heads)}"
            raise ValueError(message)
        for head in level.heads:
            head.check()
    for uid, image in metadata.operators.items():
        _check_operator(uid, image, metadata.levels)


def _check_operator(uid: str, image: OperatorImage, levels: tuple[LevelImage, ...]) -> None:
    if not 1 <= image.parallelism <= image.max_parallelism <= MOST_KEY_GROUPS:
        message = (
            f"operator {uid!r} with parallelism {image.parallelism} and max parallelism "
            f"{image.max_parallelism}"
        )
        raise ValueError(message)
    runs = image.level != ROWS_LEVEL
    if (
        not levels
        or not ROWS_LEVEL <= image.level < len(levels)
        or (runs and image.parallelism > levels[image.level].parallelism)
    ):
        message = (
            f"operator {uid!r} with {image.parallelism} subtasks in level {image.level}, which "
            "does not exist or has fewer"
        )
        raise ValueError(message)
    check_schema(image.key_type)
    for state in image.states:
        if state.kind in MODES:
            (schema,) = state.types
            check_schema(schema)
        else:
            check_kind_of_state(state.kind, state.types)


def _check(data: bytes, name: str) -> None:
    if data[:4] != _MAGIC:
        found = f"found {bytes(data[:4])!r}" if data else "it is empty"
        raise _unusable(name, f"expected a file that begins with {_MAGIC!r}; {found}")
    least = _FIXED.size + _CHECKSUM_SIZE
    if len(data) < least:
        raise _unusable(
            name, f"it is cut short: expected at least {least} bytes, found {len(data)}"
        )
    _, version, _, length = _FIXED.unpack_from(data)
    if version != VERSION:
        what = f"expected format version {VERSION}, found {version}"
        raise _unusable(name, f"{what}; read it with the version of Holdfast that wrote it")
    if len(data) != least + length:
        raise _unusable(name, f"expected {least + length} bytes, found {len(data)}")
    expected = int.from_bytes(data[-_CHECKSUM_SIZE:], "little")
    actual = crc32(memoryview(data)[:-_CHECKSUM_SIZE])
    if expected != actual:
        raise _unusable(name, f"expected checksum {expected:08x}, found {actual:08x}")


def _unusable(name: str, problem: str) -> CheckpointCorruptionError:
    return CheckpointCorruptionError(f"checkpoint file {name!r} cannot be used: {problem}")
