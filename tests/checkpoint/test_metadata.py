from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
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
from holdfast.state.format.head import FileRef, Head
from tests.forging import metadata_of

TEXT = st.text(max_size=8)
INTS = st.integers(0, 2**62)
NAMES = st.from_regex(r"[a-z0-9.-]{1,8}[a-z]", fullmatch=True)


@st.composite
def heads(draw: st.DrawFn) -> Head:
    untils = sorted(draw(st.sets(st.integers(0, 99), max_size=3)))
    refs = [
        FileRef(draw(NAMES), draw(st.integers(1, 2**62)), since, until)
        for since, until in zip([-1, *untils], untils, strict=False)
    ]
    return Head(tuple(refs), tuple(ref.name for ref in refs))


@st.composite
def images(draw: st.DrawFn) -> CheckpointMetadata:
    found = draw(st.lists(st.lists(heads(), min_size=1, max_size=3), min_size=1, max_size=3))
    places = st.integers(-1, len(found) - 1)  # -1: Spark runs it itself
    operators = {
        uid: OperatorImage(draw(TEXT), draw(TEXT), 1, draw(st.integers(1, 128)), draw(places))
        for uid in draw(st.sets(TEXT, max_size=3))
    }
    return CheckpointMetadata(
        id=draw(INTS),
        timestamp=draw(INTS),
        epoch=draw(INTS),
        job_name=draw(TEXT),
        savepoint=draw(st.booleans()),
        levels=tuple(LevelImage(len(level), tuple(level)) for level in found),
        operators=operators,
        spark=draw(st.dictionaries(NAMES, st.binary(max_size=30), max_size=3)),
    )


SMALL = CheckpointMetadata(
    id=7,
    timestamp=1_700_000_000_000,
    epoch=41,
    job_name="words",
    savepoint=False,
    levels=(
        LevelImage(1, (Head((FileRef("a.state", 10, -1, 3),), ("a",)),)),
        LevelImage(
            2,
            (
                Head((FileRef("b.state", 20, -1, 3), FileRef("c.state", 5, 3, 41)), ("b", "c")),
                Head(),
            ),
        ),
    ),
    operators={"count": OperatorImage("Count", "process", 2, 128, 1)},
    spark={"offsets/41": b"v1\n{}"},
)


@given(images())
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
            "expected format version 1, found 2; read it with the version of Holdfast that wrote",
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


def _level(metadata: dict[str, Any], number: int = 0) -> Any:
    metadata["operators"]["count"]["level"] = number


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: _level(m, 2), "operator 'count' with 2 subtasks in level 2"),
        (lambda m: _level(m, -2), "operator 'count' with 2 subtasks in level -2"),
        (lambda m: m.update(levels=[]), "with 2 subtasks in level 1, which does not exist"),
        (lambda m: _level(m, 0), "in level 0, which does not exist or has fewer"),
        (lambda m: m["operators"]["count"].update(parallelism=0), "with parallelism 0 and"),
        (lambda m: m["operators"]["count"].update(max_parallelism=1 << 40), "max parallelism 1099"),
        (lambda m: m["levels"][1].update(parallelism=3), "level 1 of 3 subtasks with 2"),
        (lambda m: m["levels"][1]["chains"][0][0].reverse(), "'c.state' starts after epoch 3, not"),
        (lambda m: m["levels"][0]["chains"][0][0].clear(), "tables or stamps but no file"),
        (lambda m: m["levels"][0]["chains"][0][0][0].__setitem__(1, 0), "a size of zero"),
        (lambda m: m.update(levels=7), r"Expected `array`, got `int` - at `\$.levels`"),
        (lambda m: m.pop("epoch"), "missing required field `epoch`"),
    ],
)
def test_parts_that_do_not_fit_together(change: Callable[[Any], object], message: str) -> None:
    content = msgspec.msgpack.decode(encode(SMALL)[16:-4])
    change(content)
    with pytest.raises(CheckpointCorruptionError, match=f"file 'x' cannot be used: .*{message}"):
        decode(metadata_of(msgspec.msgpack.encode(content)), "x")


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 100_000, b"\xdf" + b"\xff" * 4])
def test_what_is_no_metadata(body: bytes) -> None:
    with pytest.raises(CheckpointCorruptionError, match="expected the metadata of a checkpoint"):
        decode(metadata_of(body), "x")
