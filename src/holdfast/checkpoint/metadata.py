"""The metadata of a checkpoint, and its bytes.

    offset  size  what
         0     4  magic, b"HFCP"
         4     1  version of this layout, 1
         5     3  zero
         8     8  length of the body
        16        body: a `CheckpointMetadata` as MessagePack, fields by name
       end     4  crc32 of everything before it

All numbers are little-endian. Fields are written by name, so that a field added with a default
reads older files. The metadata names state files and does not hold them: checkpoints share files.
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final
from zlib import crc32

import msgspec

from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.common.plain_names import plain_path
from holdfast.plan.model import ROWS_LEVEL
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain
from holdfast.state.file_header import check_kind_of_state
from holdfast.state.key_groups import MOST_KEY_GROUPS
from holdfast.state.operator_state import MODES
from holdfast.state.schema import Schema, check_schema

__all__ = ["VERSION", "CheckpointMetadata", "LevelImage", "OperatorImage", "decode", "encode"]

VERSION: Final = 1
_MAGIC: Final = b"HFCP"
_FIXED: Final = Struct("<4sB3sQ")
_CHECKSUM_SIZE: Final = 4


class LevelImage(msgspec.Struct, frozen=True):
    """The state of a level: one chain per subtask."""

    parallelism: int
    chains: tuple[Chain, ...]


class OperatorImage(msgspec.Struct, frozen=True):
    """What a restore must know of an operator to find its state and to check that it fits.

    Attributes:
        stateful: whether there is state that would be missed.
        states: the states that it has, with their types.
        key_type: the schema of the declared type of its keys, if there was one.
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

    Invariant: the chains are those that the driver accepted with that epoch, and the Spark entries
    are those of the same batch. Consequence: a job that starts from both goes on exactly after it.

    Attributes:
        timestamp: when it was triggered, in milliseconds.
        savepoint: it is one, with its state files beside it.
        operators: by uid.
        spark: the files that Spark's own log needs to go on after the epoch, by relative path.
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
            for chain in level.chains
            for ref in chain.all_files
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
    """Return what a metadata file holds; ``name`` is for errors.

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
        if len(level.chains) != level.parallelism:
            message = f"level {number} of {level.parallelism} subtasks with {len(level.chains)}"
            raise ValueError(message)
        for chain in level.chains:
            chain.check()
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
            "there is not, or which has fewer"
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
        raise _unusable(name, f"{what}; read it with the Holdfast that wrote it")
    if len(data) != least + length:
        raise _unusable(name, f"expected {least + length} bytes, found {len(data)}")
    expected = int.from_bytes(data[-_CHECKSUM_SIZE:], "little")
    actual = crc32(memoryview(data)[:-_CHECKSUM_SIZE])
    if expected != actual:
        raise _unusable(name, f"expected checksum {expected:08x}, found {actual:08x}")


def _unusable(name: str, problem: str) -> CheckpointCorruptionError:
    return CheckpointCorruptionError(f"checkpoint file {name!r} cannot be used: {problem}")
