from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Types
from holdfast.state.errors import StateCorruptionError
from holdfast.state.files import Chunk, Op, Section, StateFile, decode_file, encode_file
from holdfast.state.schema_of import schema_of
from holdfast.state.serializers import Codec, Column
from tests.state.type_strategies import SCHEMAS

COLUMNS = st.builds(Column, st.sampled_from(Codec), st.binary(max_size=50))
CHUNKS = st.builds(
    Chunk,
    op=st.sampled_from(Op),
    first=st.integers(0, 10),
    last=st.integers(0, 10),
    clipped=st.booleans(),
    count=st.integers(0, 99),
    columns=st.lists(COLUMNS, max_size=4).map(tuple),
)
SECTIONS = st.builds(
    Section,
    operator=st.text(max_size=5),
    state=st.text(max_size=5),
    kind=st.sampled_from(["value", "list", "map"]),
    namespaced=st.booleans(),
    types=st.lists(st.none() | SCHEMAS, max_size=2).map(tuple),
    max_parallelism=st.integers(1, 1 << 15),
    chunks=st.lists(CHUNKS, max_size=3).map(tuple),
)
FILES = st.builds(
    StateFile,
    sections=st.lists(SECTIONS, max_size=3),
    blobs=st.dictionaries(
        st.tuples(st.text(max_size=3), st.text(max_size=3)),
        st.none() | st.binary(max_size=2000),
        max_size=3,
    ),
)
SMALL = StateFile(
    [
        Section(
            "op",
            "count",
            "value",
            False,
            (schema_of(Types.LONG()),),
            128,
            (Chunk(Op.PUT, 3, 7, False, 2, (Column(Codec.PLAIN, b"keys" * 200),)),),
        )
    ],
    {("op", "fields"): b"blob", ("op", "gone"): None},
)


@given(FILES)
def test_round_trip(file: StateFile) -> None:
    read = decode_file(encode_file(file), "f")
    assert list(read.sections) == list(file.sections)
    assert read.blobs == file.blobs
    assert read.count == file.count


def test_repetitive_bodies_are_compressed() -> None:
    assert len(encode_file(SMALL)) < 200


def test_every_flipped_bit_is_an_error() -> None:
    data = encode_file(SMALL)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(StateCorruptionError, match="state file 'f' cannot be used"):
                decode_file(bytes(damaged), "f")


def test_every_truncation_is_an_error() -> None:
    data = encode_file(SMALL)
    for length in range(len(data)):
        with pytest.raises(StateCorruptionError, match="state file 'f' cannot be used"):
            decode_file(data[:length], "f")


@settings(max_examples=50)
@given(st.binary(max_size=100), st.integers(0, 200))
def test_bytes_in_between_are_an_error(added: bytes, position: int) -> None:
    data = encode_file(SMALL)
    position = min(position, len(data))
    changed = data[:position] + added + data[position:]
    if added:
        with pytest.raises(StateCorruptionError):
            decode_file(changed, "f")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: b"", "begins with b'HFST'; it is empty"),
        (lambda d: b"PAR1" + d[4:], "begins with b'HFST'; found b'PAR1'"),
        (lambda d: d[:20], "cut short: expected more than 32 bytes, found 20"),
        (lambda d: d[:4] + b"\x07" + d[5:], "version 3, found 7; another Holdfast"),
        (lambda d: d[:-10], r"expected \d+ bytes, found \d+"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "expected checksum [0-9a-f]{8}, found [0-9a-f]{8}"),
    ],
)
def test_errors_say_what_was_expected_and_found(damage: object, message: str) -> None:
    with pytest.raises(StateCorruptionError, match=message):
        decode_file(damage(encode_file(SMALL)), "f")  # type: ignore[operator]


def test_clipping() -> None:
    (section,) = SMALL.sections
    assert section.clip(range(128)) == section
    assert section.clip(range(8, 128)).chunks == ()
    (clipped,) = section.clip(range(5, 6)).chunks
    assert (clipped.first, clipped.last, clipped.clipped) == (5, 5, True)
