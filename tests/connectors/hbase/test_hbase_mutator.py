"""The buffer of the HBase sink: when it sends, what it keeps, what it does with errors."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream.connectors.hbase import HBaseWriteOptions
from holdfast.datastream.connectors.hbase import mutator as _hbase_mutator
from holdfast.datastream.connectors.hbase.client import HBaseAwayError, HBaseError, retried
from holdfast.datastream.connectors.hbase.mutator import Batch, BufferedMutator
from holdfast.datastream.connectors.hbase.rows import Cells

NEVER = HBaseWriteOptions(0, 0, 0)
#: in seconds, for what happens in another thread
LONGEST = 240


class Server:
    """What a mutator sends to: a table, that can be away."""

    def __init__(self) -> None:
        self.sent: queue.Queue[Batch] = queue.Queue()
        self.problems: list[BaseException] = []
        self.here = threading.Event()
        self.here.set()

    def __call__(self, batch: Batch) -> None:
        assert self.here.wait(LONGEST)
        if self.problems:
            raise self.problems.pop(0)
        self.sent.put(batch)

    def received(self) -> list[Batch]:
        return [self.sent.get_nowait() for _ in range(self.sent.qsize())]


@contextmanager
def mutator(server: Server, options: HBaseWriteOptions = NEVER) -> Iterator[BufferedMutator]:
    opened = BufferedMutator(server, options)
    try:
        yield opened
    finally:
        assert opened.close()


def test_it_sends_at_a_number_of_mutations() -> None:
    server = Server()
    with mutator(server, HBaseWriteOptions(0, 3, 0)) as buffer:
        for number in range(7):
            buffer.mutate(b"%d" % number, {b"f:q": b"x"})
        first, second = server.sent.get(timeout=LONGEST), server.sent.get(timeout=LONGEST)
        assert [[*first.rows], [*second.rows]] == [[b"0", b"1", b"2"], [b"3", b"4", b"5"]]
        assert [batch.mutations for batch in buffer.unsent()] == [1]


def test_whatever_ends_a_call_is_raised_to_who_waits_for_it() -> None:
    server = Server()
    server.problems.append(SystemExit("ended"))
    with mutator(server) as buffer:
        buffer.mutate(b"a", {b"f:q": b"x"})
        with pytest.raises(SystemExit, match="ended"):
            buffer.flush()
        buffer.flush()
        assert [[*batch.rows] for batch in server.received()] == [[b"a"]]


def test_it_sends_at_a_size() -> None:
    server = Server()
    with mutator(server, HBaseWriteOptions(100, 0, 0)) as buffer:
        buffer.mutate(b"a", {b"f:q": bytes(50)})
        buffer.mutate(b"b", {b"f:q": bytes(50)})
        batch = server.sent.get(timeout=LONGEST)
        assert batch.size == 2 * (1 + 3 + 50)


def test_it_sends_what_has_waited_for_the_interval() -> None:
    server = Server()
    with mutator(server, HBaseWriteOptions(0, 0, 20)) as buffer:
        for key in (b"a", b"b"):
            buffer.mutate(key, {b"f:q": b"x"})
            assert [*server.sent.get(timeout=LONGEST).rows] == [key]


def test_flush_returns_when_nothing_is_pending() -> None:
    server = Server()
    with mutator(server) as buffer:
        buffer.flush()
        buffer.mutate(b"a", {b"f:q": b"x"})
        assert server.received() == []
        buffer.flush()
        assert [[*batch.rows] for batch in server.received()] == [[b"a"]]
        assert buffer.unsent() == []


def test_an_error_in_the_background_is_raised_at_the_next_call_and_nothing_is_lost() -> None:
    server = Server()
    server.problems = [HBaseError("no room"), HBaseError("still no room")]
    with mutator(server, HBaseWriteOptions(0, 1, 0)) as buffer:
        buffer.mutate(b"a", {b"f:q": b"x"})
        with pytest.raises(HBaseError, match="no room"):
            buffer.flush()
        with pytest.raises(HBaseError, match="still no room"):
            buffer.flush()
        buffer.flush()
        assert [[*batch.rows] for batch in server.received()] == [[b"a"]]


def test_the_next_mutation_raises_the_error_too() -> None:
    server = Server()
    server.problems = [HBaseError("no room")]
    with mutator(server, HBaseWriteOptions(0, 1, 0)) as buffer:
        buffer.mutate(b"a", {b"f:q": b"x"})
        with buffer._changed:
            assert buffer._changed.wait_for(lambda: buffer._error is not None, LONGEST)
        with pytest.raises(HBaseError, match="no room"):
            buffer.mutate(b"b", {b"f:q": b"x"})


def test_mutations_wait_while_the_server_is_away() -> None:
    server = Server()
    server.here.clear()
    with mutator(server, HBaseWriteOptions(0, 1, 0)) as buffer:
        taken: list[int] = []

        def write() -> None:
            for number in range(10):
                buffer.mutate(b"%d" % number, {b"f:q": b"x"})
                taken.append(number)

        writer = threading.Thread(target=write)
        writer.start()
        writer.join(0.2)
        assert len(taken) <= 3
        server.here.set()
        writer.join(LONGEST)
        buffer.flush()
        assert len(server.received()) == 10


def test_another_mutator_goes_on_with_what_was_not_sent() -> None:
    away, server = Server(), Server()
    away.here.clear()
    first = BufferedMutator(away, HBaseWriteOptions(0, 1, 0))
    first.mutate(b"a", {b"f:q": b"1"})
    carried = pickle.loads(pickle.dumps((first.unsent(), first.last_timestamp)))
    with mutator(server, NEVER) as second:
        second.replace(*carried)
        second.mutate(b"a", {b"f:q": b"2"})
        second.flush()
        old, new = server.received()
    assert (old.rows, new.rows) == ({b"a": {b"f:q": b"1"}}, {b"a": {b"f:q": b"2"}})
    assert old.timestamp < new.timestamp
    away.here.set()
    first.close()


def test_timestamps_grow_when_the_clock_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000, 1000, 10, 2000])
    monkeypatch.setattr(_hbase_mutator, "wall_clock", lambda: next(times))
    server = Server()
    with mutator(server, HBaseWriteOptions(0, 1, 0)) as buffer:
        for _ in range(4):
            buffer.mutate(b"a", {b"f:q": b"x"})
        buffer.flush()
    assert [batch.timestamp for batch in server.received()] == [1000, 1001, 1002, 2000]


CELLS = st.dictionaries(st.sampled_from([b"f:a", b"f:b"]), st.none() | st.binary(max_size=2))
MUTATIONS = st.lists(st.tuples(st.sampled_from([b"x", b"y"]), CELLS), max_size=20)


@settings(deadline=None)
@given(MUTATIONS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_table_is_the_same_however_often_and_late_batches_arrive(
    mutations: list[tuple[bytes, Cells]], rows: int, random: object
) -> None:
    server = Server()
    with mutator(server, HBaseWriteOptions(0, rows, 0)) as buffer:
        for key, cells in mutations:
            buffer.mutate(key, dict(cells))
        buffer.flush()
    sent = server.received()
    arrivals = sent * 2
    random.shuffle(arrivals)  # type: ignore[attr-defined]
    expected: dict[tuple[bytes, bytes], bytes | None] = {}
    for key, cells in mutations:
        expected.update({(key, column): value for column, value in cells.items()})
    assert _table(arrivals) == {
        place: value for place, value in expected.items() if value is not None
    }


def _table(batches: list[Batch]) -> dict[tuple[bytes, bytes], bytes]:
    """What HBase shows: of each cell the value, or its absence, with the highest timestamp."""
    versions: dict[tuple[bytes, bytes], tuple[int, bytes | None]] = {}
    for batch in batches:
        for key, cells in batch.rows.items():
            for column, value in cells.items():
                if versions.get((key, column), (0, None))[0] <= batch.timestamp:
                    versions[key, column] = batch.timestamp, value
    return {place: value for place, (_, value) in versions.items() if value is not None}


def test_a_call_is_tried_again_while_hbase_is_away(caplog: pytest.LogCaptureFixture) -> None:
    problems: list[Exception] = [HBaseAwayError("away"), HBaseAwayError("away")]

    def call() -> str:
        if problems:
            raise problems.pop()
        return "done"

    options = HBaseWriteOptions.builder().set_retry("10 s", 1, 2).build()
    assert retried(call, options) == "done"
    assert caplog.messages == ["away; trying again in 0.0 s"] * 2


def test_what_hbase_refuses_is_not_tried_again() -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        raise HBaseError("no such table")

    with pytest.raises(HBaseError, match="no such table"):
        retried(call, HBaseWriteOptions())
    assert len(calls) == 1


def test_trying_again_has_an_end() -> None:
    def call() -> None:
        raise HBaseAwayError("away")

    options = HBaseWriteOptions.builder().set_retry(20, 5).build()
    with pytest.raises(HBaseError, match=r"away; gave up after \d+\.\d s"):
        retried(call, options)
