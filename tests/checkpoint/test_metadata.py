from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.checkpoint.metadata import (
    CheckpointMetadata,
    LevelImage,
    OperatorImage,
    decode,
    encode,
)
from holdfast.errors import HoldfastError
from holdfast.state.chain import Chain, FileRef

TEXT = st.text(max_size=8)
INTS = st.integers(0, 2**62)
FILE_REFS = st.builds(FileRef, TEXT, INTS, st.integers(-1, 99), st.integers(0, 99))
CHAINS = st.builds(
    Chain, st.lists(FILE_REFS, max_size=3).map(tuple), st.lists(TEXT, max_size=3).map(tuple)
)
LEVELS = st.builds(LevelImage, st.integers(1, 9), st.lists(CHAINS, max_size=3).map(tuple))
OPERATORS = st.builds(
    OperatorImage, TEXT, TEXT, st.integers(1, 9), st.integers(1, 128), st.integers(-1, 9)
)
METADATA = st.builds(
    CheckpointMetadata,
    id=INTS,
    timestamp=INTS,
    epoch=INTS,
    job_name=TEXT,
    savepoint=st.booleans(),
    levels=st.lists(LEVELS, max_size=3).map(tuple),
    operators=st.dictionaries(TEXT, OPERATORS, max_size=3),
    spark=st.dictionaries(TEXT, st.binary(max_size=30), max_size=3),
)
SMALL = CheckpointMetadata(
    id=7,
    timestamp=1_700_000_000_000,
    epoch=41,
    job_name="words",
    savepoint=False,
    levels=(
        LevelImage(1, (Chain((FileRef("a.state", 10, -1, 3),), ("a",)),)),
        LevelImage(
            2,
            (
                Chain((FileRef("b.state", 20, -1, 3), FileRef("c.state", 5, 3, 41)), ("b", "c")),
                Chain(),
            ),
        ),
    ),
    operators={"count": OperatorImage("Count", "process", 2, 128, 1)},
    spark={"offsets/41": b"v1\n{}"},
)


@given(METADATA)
def test_round_trip(metadata: CheckpointMetadata) -> None:
    assert decode(encode(metadata), "x") == metadata


def test_files() -> None:
    assert SMALL.files() == {"a.state", "b.state", "c.state"}
    assert SMALL.file_sizes()["b.state"] == 20
    assert SMALL.state_size == 35


@given(st.integers(0, len(encode(SMALL)) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(position: int, change: int) -> None:
    data = bytearray(encode(SMALL))
    data[position] ^= change
    with pytest.raises(CheckpointCorruptionError, match="checkpoint file 'chk-7/_metadata' cannot"):
        decode(bytes(data), "chk-7/_metadata")


@given(st.integers(0, len(encode(SMALL)) - 1))
def test_any_cut_is_found(length: int) -> None:
    with pytest.raises(CheckpointCorruptionError):
        decode(encode(SMALL)[:length], "x")


def _damaged(position: int, byte: int) -> bytes:
    data = bytearray(encode(SMALL))
    data[position] = byte
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a file that begins with b'HFCP'; it is empty"),
        (b"HFST....", "expected a file that begins with b'HFCP'; found b'HFST'"),
        (b"HFCP\x01", "it is cut short: expected at least 20 bytes, found 5"),
        (
            _damaged(4, 2),
            "expected format version 1, found 2; read it with the Holdfast that wrote",
        ),
        (encode(SMALL) + b"x", r"expected \d+ bytes, found \d+"),
        (_damaged(30, 0), "expected checksum [0-9a-f]{8}, found [0-9a-f]{8}"),
    ],
)
def test_errors_say_what_was_expected_and_found(data: bytes, message: str) -> None:
    with pytest.raises(HoldfastError, match=f"checkpoint file 'x' cannot be used: {message}"):
        decode(data, "x")


def test_the_format_is_kept() -> None:
    """A checkpoint of this version is read by every later one."""
    minimal = CheckpointMetadata(1, 2, 3, "j", False, (), {})
    golden = (
        "4846435001000000470000000000000088a2696401a974696d657374616d7002a565706f636803a86a6f62"
        "5f6e616d65a16aa973617665706f696e74c2a66c6576656c7390a96f70657261746f727380a5737061726b"
        "804ed27a7d"
    )
    assert encode(minimal).hex() == golden
    assert decode(bytes.fromhex(golden), "x") == minimal
