"""What has come to a subtask: order, alignment, time; and how much more may come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InternalError
from holdfast.runtime.resident.channels import (
    TIME_MOVED,
    Bell,
    Credit,
    Inputs,
    Leaving,
    Reached,
)
from holdfast.runtime.resident.messages import TIME_ONLY, Mark
from holdfast.runtime.resident.pace import SMALLEST_WINDOW
from holdfast.runtime.wire.blocks import Block, BlockHeader, Kind
from holdfast.runtime.wire.protocol import encode

PRODUCERS = [(0, 0), (0, 1), (1, 0)]
PATIENCE = 30.0


class Sender:
    """Numbers what a producer sends."""

    def __init__(self, level: int, number: int) -> None:
        self.place = level, number
        self._next = 0

    def records(self, data: bytes = b"x") -> Block:
        return self._block(Kind.RECORDS, data)

    def mark(self, epoch: int = TIME_ONLY, aligned: bool = False, **more: Any) -> Block:
        return self._block(Kind.CONTROL, encode(Mark(epoch, aligned, **more)))

    def _block(self, kind: Kind, data: bytes) -> Block:
        header = BlockHeader(kind, 2, 0, 0, *self.place, self._next, 1, "stamp")
        self._next += 1
        return Block(header, data)


def inputs() -> tuple[Inputs, list[Sender], list[tuple[tuple[int, int], int]]]:
    taken: list[tuple[tuple[int, int], int]] = []
    made = Inputs(PRODUCERS, lambda producer, size: taken.append((producer, size)))
    return made, [Sender(*place) for place in PRODUCERS], taken


def everything(queue: Inputs) -> list[Any]:
    """All that can be taken now; of blocks their data."""
    found: list[Any] = []
    while (item := queue.take()) is not None:
        found.append(bytes(item.data) if isinstance(item, Block) else item)
    return found


def test_blocks_come_in_the_order_of_their_arrival_and_are_paid_back() -> None:
    queue, (first, second, _), taken = inputs()
    large = b"b" * SMALLEST_WINDOW
    for block in (first.records(b"a"), second.records(large), first.records(b"c")):
        queue.put(block)
    found = []
    while (item := queue.take()) is not None:
        assert isinstance(item, Block)
        found.append(bytes(item.data))
        queue.done(item)
    assert found == [b"a", large, b"c"]
    assert [producer for producer, _ in taken] == [(0, 1)], "little is paid back with what follows"


def test_an_aligned_mark_holds_its_channel_until_all_have_come_to_it() -> None:
    queue, (first, second, third), _ = inputs()
    queue.put(first.mark(4, aligned=True))
    queue.put(first.records(b"after"))
    queue.put(second.records(b"before"))
    assert everything(queue) == [TIME_MOVED, b"before"]
    queue.put(second.mark(4, aligned=True))
    queue.put(second.records(b"after too"))
    queue.put(third.records(b"last before"))
    queue.put(third.mark(4, aligned=True))
    assert everything(queue) == [
        TIME_MOVED,
        b"last before",
        Reached(4),
        b"after",
        b"after too",
    ]


def test_a_mark_that_is_not_aligned_holds_nobody() -> None:
    queue, senders, _ = inputs()
    queue.put(senders[0].mark(1))
    queue.put(senders[0].records(b"after"))
    queue.put(senders[0].mark(2))
    for sender in senders[1:]:
        queue.put(sender.mark(1))
    assert everything(queue) == [TIME_MOVED, b"after", TIME_MOVED, TIME_MOVED, Reached(1)]
    for sender in senders[1:]:
        queue.put(sender.mark(2))
    assert everything(queue) == [TIME_MOVED, Reached(2)]


def test_input_has_ended_when_each_producer_has_said_so() -> None:
    queue, senders, _ = inputs()
    for sender in senders:
        assert not queue.ended
        queue.put(sender.mark(ended=True))
        everything(queue)
    assert queue.ended
    assert Inputs([], lambda producer, size: None).ended


def test_a_missing_block_and_a_stranger_are_noticed() -> None:
    queue, (first, *_), _ = inputs()
    first.records()
    queue.put(first.records())
    with pytest.raises(InternalError, match=r"block 1 came from producer \(0, 0\); expected 0"):
        queue.take()
    queue.put(Sender(7, 7).records())
    with pytest.raises(InternalError, match=r"producer \(7, 7\); expected None"):
        queue.take()


#: what each producer sends, in its order: a number is an epoch's end, aligned if it is even
_words = st.lists(st.integers(0, 3), max_size=4)


@given(_words, st.randoms(use_true_random=False))
def test_in_any_order_that_tcp_allows_a_cut_is_the_same_for_all(
    gaps: list[int], chance: Any
) -> None:
    """At an aligned mark exactly what was sent before it has been taken, from each producer."""
    queue, senders, _ = inputs()
    streams = [list(_stream(sender, gaps)) for sender in senders]
    taken = [0, 0, 0]
    reached = []
    sent = [sum(gaps[: epoch + 1]) for epoch in range(len(gaps))]
    while any(streams):
        stream = chance.choice([each for each in streams if each])
        queue.put(stream.pop(0))
        while (item := queue.take()) is not None:
            if isinstance(item, Block):
                taken[PRODUCERS.index((item.header.producer_level, item.header.producer))] += 1
            elif isinstance(item, Reached):
                reached.append(item.epoch)
                if item.epoch % 2 == 0:
                    assert taken == [sent[item.epoch]] * 3
                else:
                    assert min(taken) >= sent[item.epoch]
    assert reached == list(range(len(gaps)))
    assert taken == [sum(gaps)] * 3


def _stream(sender: Sender, gaps: list[int]) -> Iterator[Block]:
    for epoch, count in enumerate(gaps):
        for _ in range(count):
            yield sender.records()
        yield sender.mark(epoch, aligned=epoch % 2 == 0)


def test_credit_is_waited_for_and_one_block_may_exceed_it() -> None:
    credit = Credit(10)
    assert credit.acquire(25) == 0.0
    waited: list[float] = []
    thread = threading.Thread(target=lambda: waited.append(credit.acquire(1)))
    thread.start()
    credit.grant(10)
    assert thread.is_alive(), "there is still too much under way"
    credit.grant(6)
    thread.join(PATIENCE)
    assert waited
    assert waited[0] > 0


def test_nobody_waits_for_credit_at_the_end() -> None:
    credit = Credit(1)
    credit.acquire(1)
    left = threading.Event()

    def wait() -> None:
        with pytest.raises(Leaving):
            credit.acquire(1)
        left.set()

    threading.Thread(target=wait, daemon=True).start()
    credit.end()
    assert left.wait(PATIENCE)
    with pytest.raises(Leaving):
        credit.acquire(1)


def test_a_bell_that_rang_before_ends_the_next_wait() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(PATIENCE)
    assert not bell.wait(0.0), "and only that one"


def test_no_ring_is_lost_however_many_ring_at_once() -> None:
    bell, each, rung = Bell(), 2000, [0, 0, 0]

    def ring(who: int) -> None:
        for _ in range(each):
            rung[who] += 1
            bell.ring()

    ringers = [threading.Thread(target=ring, args=(who,)) for who in range(len(rung))]
    for ringer in ringers:
        ringer.start()
    while sum(rung) < each * len(rung):
        assert bell.wait(PATIENCE), "nobody was heard who rang"
    for ringer in ringers:
        ringer.join()
