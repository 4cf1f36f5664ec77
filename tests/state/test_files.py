from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Types
from holdfast.state.errors import StateCorruptionError
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, SectionChunk, StateFile, decode_file, encode_file
from holdfast.state.types.schema_of import schema_of
from holdfast.state.types.serializers import Codec, EncodedColumn
from tests.forging import state_file_of
from tests.state.type_strategies import SCHEMAS

COLUMNS = st.builds(EncodedColumn, st.sampled_from(Codec), st.binary(max_size=50))
#: by kind: its operations, each with how many columns it has after the keys
OPERATIONS = {
    "value": {Op.PUT: 1, Op.DELETE: 0},
    "list": {Op.LIST_REPLACE: 2, Op.LIST_APPEND: 3, Op.DELETE: 0},
    "map": {Op.MAP_REPLACE: 3, Op.MAP_PUT: 3, Op.MAP_REMOVE: 2, Op.DELETE: 0},
}


@st.composite
def chunks(draw: st.DrawFn, kind: str, namespaced: bool) -> SectionChunk:
    op, columns = draw(st.sampled_from(sorted(OPERATIONS[kind].items())))
    count = columns + 1 + namespaced
    first, last = sorted(draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    found = draw(st.lists(COLUMNS, min_size=count, max_size=count))
    return SectionChunk(
        op, first, last, draw(st.booleans()), draw(st.integers(0, 99)), tuple(found)
    )


@st.composite
def sections(draw: st.DrawFn) -> Section:
    kind, namespaced = draw(st.sampled_from(sorted(OPERATIONS))), draw(st.booleans())
    types = draw(st.tuples(st.none() | SCHEMAS, st.none() | SCHEMAS))
    return Section(
        operator=draw(st.text(max_size=5)),
        state=draw(st.text(max_size=5)),
        kind=kind,
        namespaced=namespaced,
        types=types if kind == "map" else types[:1],
        max_parallelism=draw(st.integers(11, 1 << 15)),
        chunks=tuple(draw(st.lists(chunks(kind, namespaced), max_size=3))),
    )


FILES = st.builds(
    StateFile,
    sections=st.lists(sections(), max_size=3),
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
            (
                SectionChunk(
                    Op.PUT, 3, 7, False, 2, (EncodedColumn(Codec.PLAIN, b"keys" * 200),) * 2
                ),
            ),
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
        (lambda d: d[:4] + b"\x07" + d[5:], "version 3 or 4, found 7; read it with the"),
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


def forged(change: Callable[[list[Any]], object], body: bytes | None = None) -> bytes:
    """The bytes of a file whose header says something else, with a right checksum."""
    plain = encode_file(SMALL, "f", compress=False)
    end = 28 + int.from_bytes(plain[8:12], "little")
    header = msgspec.msgpack.decode(plain[28:end])
    change(header)
    stored = plain[end:-4] if body is None else body
    return state_file_of(msgspec.msgpack.encode(header), stored)


def nested(depth: int) -> Any:
    schema: Any = {"type": "plain", "kind": "long"}
    for _ in range(depth):
        schema = {"type": "list", "item": schema}
    return schema


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.clear(), "Expected `array` of at least length 2"),
        (lambda h: h.__setitem__(2, "other"), "it contains the file 'other', which was stored"),
        (lambda h: h[0][0].__setitem__(2, "queue"), "no 'queue' state with 1 types"),
        (lambda h: h[0][0].__setitem__(2, "map"), "no 'map' state with 1 types"),
        (lambda h: h[0][0].__setitem__(2, "list"), "the operation PUT on a list state"),
        (lambda h: h[0][0].__setitem__(3, True), "2 columns for PUT, not 3"),
        (lambda h: h[0][0].__setitem__(5, 0), "max parallelism 0"),
        (lambda h: h[0][0].__setitem__(5, 1 << 40), "max parallelism 1099511627776"),
        (lambda h: h[0][0].__setitem__(4, [{"type": "reference", "up": 1}]), "1 levels up, of 0"),
        (
            lambda h: h[0][0].__setitem__(4, [{"type": "plain", "kind": "x"}]),
            "kind of plain values: 'x'",
        ),
        (lambda h: h[0][0].__setitem__(4, [nested(100)]), "nested deeper than 64"),
        (lambda h: h[0][0][6][0].__setitem__(0, 7), "Invalid enum value 7"),
        (lambda h: h[0][0][6][0].__setitem__(1, -1), "Expected `int` >= 0"),
        (lambda h: h[0][0][6][0].__setitem__(1, 9), "key groups 9 to 7 of 128"),
        (lambda h: h[0][0][6][0].__setitem__(2, 128), "key groups 3 to 128 of 128"),
        (lambda h: h[0][0][6][0].__setitem__(4, -1), "Expected `int` >= 0"),
        (lambda h: h[0][0][6][0][5][0].__setitem__(1, -1), "Expected `int` >= 0"),
        (lambda h: h[0][0][6][0][5][0].__setitem__(1, 1 << 40), "expected a body of 1099511628"),
        (lambda h: h[0][0][6][0][5].pop(), "1 columns for PUT, not 2"),
        (lambda h: h[1][0].__setitem__(2, 5), "expected a body of 1605 bytes, found 1604"),
    ],
)
def test_a_forged_header_is_an_error(change: Callable[[list[Any]], object], message: str) -> None:
    assert decode_file(forged(lambda header: None), "f").count == 4
    with pytest.raises(StateCorruptionError, match=f"state file 'f' cannot be used: .*{message}"):
        decode_file(forged(change), "f")


def lz4(size: int) -> bytes:
    packed: bytes = pa.compress(bytes(size), codec="lz4", asbytes=True)
    return packed


BLOB = msgspec.msgpack.encode([[], [["op", "blob", 1000]]])
LARGE = msgspec.msgpack.encode([[], [["op", "blob", 1 << 40]]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (state_file_of(BLOB, bytes(999)), "expected a body of 1000 bytes, found 999"),
        (state_file_of(BLOB, bytes(999), 0, 1000), "compression 0 cannot turn 999 bytes into 1000"),
        (state_file_of(BLOB, bytes(999), 2, 1000), "compression 2 cannot turn 999 bytes into 1000"),
        (state_file_of(BLOB, b"", 1, 1000), "compression 1 cannot turn 0 bytes into 1000"),
        (state_file_of(LARGE, bytes(99), 1, 1 << 40), "cannot turn 99 bytes into 1099511627776"),
        (state_file_of(BLOB, bytes(99), 1, 1000), "contents are not in Holdfast's format"),
        (state_file_of(BLOB, lz4(999), 1, 1000), "is not 1000 bytes long"),
        (state_file_of(BLOB, lz4(1001), 1, 1000), "is not 1000 bytes long"),
        (
            state_file_of(BLOB, lz4(1000)[:-9], 1, 1000),
            "is not 1000 bytes long|not in Holdfast's format",
        ),
    ],
)
def test_sizes_are_checked_before_memory_is_taken(data: bytes, message: str) -> None:
    tracemalloc.start()
    pool = pa.default_memory_pool()
    # NB: the peak is that of the whole process, and earlier tests may have taken more
    most = max(pool.max_memory(), pool.bytes_allocated() + (64 << 20))
    try:
        with pytest.raises(StateCorruptionError, match=message):
            decode_file(data, "f")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        assert pool.max_memory() <= most
    finally:
        tracemalloc.stop()


def test_a_file_is_refused_under_another_name() -> None:
    data = encode_file(SMALL, "3-0-1-abc.state")
    assert decode_file(data, "3-0-1-abc.state").count == 4
    with pytest.raises(
        StateCorruptionError,
        match=r"'4-0-0-def\.state' cannot be used: it contains the file '3-0-1-abc\.state'",
    ):
        decode_file(data, "4-0-0-def.state")


def test_a_file_of_the_first_version_has_no_name() -> None:
    assert decode_file(forged(lambda header: header.pop()), "any").count == 4
