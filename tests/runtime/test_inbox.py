"""The inbox restores the order of each producer and proves that nothing is missing."""

from __future__ import annotations

from pickletools import genops

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DisagreementError, InternalError
from holdfast.runtime.wire.blocks import (
    Block,
    BlockHeader,
    Kind,
    decode_header,
    decode_records,
    encode_header,
    encode_records,
)
from holdfast.runtime.wire.inbox import Inbox
from holdfast.runtime.wire.protocol import Control, encode


def block(
    number: int,
    kind: Kind = Kind.RECORDS,
    producer: tuple[int, int] = (0, 0),
    stamp: str = "run",
    level: int = 1,
) -> Block:
    header = BlockHeader(kind, level, 0, 0, *producer, number, 1, stamp)
    data = encode(Control(ended=True)) if kind is Kind.CONTROL else encode_records([number])
    return Block(header, data)


def sent(count: int, producer: tuple[int, int] = (0, 0)) -> list[Block]:
    """What a producer sends: some blocks of records, then the control block."""
    records = [block(number, producer=producer) for number in range(count)]
    return [*records, block(count, Kind.CONTROL, producer)]


@given(st.data())
def test_any_order_becomes_each_producers_order(data: st.DataObject) -> None:
    producers = [(0, 0), (0, 1), (1, 0)]
    counts = [data.draw(st.integers(0, 6)) for _ in producers]
    blocks = [b for p, n in zip(producers, counts, strict=True) for b in sent(n, p)]
    inbox = Inbox(1, 0)
    handed_on = list(inbox.in_order(data.draw(st.permutations(blocks))))
    inbox.check_complete(producers)
    for producer, count in zip(producers, counts, strict=True):
        numbers = [
            b.header.number
            for b in handed_on
            if (b.header.producer_level, b.header.producer) == producer
        ]
        assert numbers == list(range(count))
    assert set(inbox.controls) == set(producers)
    assert inbox.stamps == dict.fromkeys(producers, "run")


def test_blocks_for_later_levels_pass_through_at_once() -> None:
    inbox = Inbox(1, 0)
    later = block(5, level=2)
    assert list(inbox.in_order([later])) == [later]


def test_a_missing_control_block() -> None:
    inbox = Inbox(1, 0)
    list(inbox.in_order([block(0), block(1)]))
    with pytest.raises(
        InternalError, match=r"subtask 0 of level 1.*no control block from \[\(0, 0\)"
    ):
        inbox.check_complete([(0, 0)])


def test_a_producer_that_was_never_heard_of() -> None:
    inbox = Inbox(1, 0)
    list(inbox.in_order(sent(1)))
    with pytest.raises(InternalError, match=r"no control block from \[\(0, 1\)\], gaps from \[\]"):
        inbox.check_complete([(0, 0), (0, 1)])


def test_a_gap() -> None:
    inbox = Inbox(1, 0)
    list(inbox.in_order([block(0), block(2), block(3, Kind.CONTROL)]))
    with pytest.raises(InternalError, match=r"gaps from \[\(0, 0\)\]"):
        inbox.check_complete([(0, 0)])


def test_two_runs_of_one_producer() -> None:
    inbox = Inbox(1, 0)
    with pytest.raises(
        DisagreementError, match=r"two runs of its producer \(0, 0\): run and again"
    ):
        list(inbox.in_order([block(0), block(1, stamp="again")]))


@given(
    st.builds(
        BlockHeader,
        st.sampled_from(list(Kind)).map(int),
        *(st.integers(-1, 1 << 40) for _ in range(7)),
        st.text(),
    )
)
def test_headers_round_trip(header: BlockHeader) -> None:
    assert decode_header(encode_header(header)) == header


@given(
    st.lists(st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.floats(allow_nan=False))))
)
def test_records_round_trip(records: list[object]) -> None:
    assert decode_records(memoryview(encode_records(records))) == records


def test_many_frozensets_behind_a_plain_record_round_trip() -> None:
    """CPython counts them as nested when it pickles without a memo, and then fails."""
    records: list[object] = [(1, 2), *((n, frozenset({n})) for n in range(100))]
    assert decode_records(encode_records(records)) == records


@pytest.mark.parametrize(
    "record", ["a text", ("a text", 1), (("a text", 1.0), 7), ("a text", None)]
)
def test_plain_records_are_written_without_a_memo(record: object) -> None:
    """Whether they travel with their timestamps or without."""
    operations = {operation.name for operation, _, _ in genops(encode_records([record, record]))}
    assert "MEMOIZE" not in operations


def test_other_records_name_a_value_once_that_occurs_twice() -> None:
    record = ([1, 2],)
    first, second = decode_records(encode_records([record, record]))
    assert first is second
