"""Subtasks that live in one process, and are run by others: real sockets, threads and kills."""

from __future__ import annotations

import decimal
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from holdfast.errors import InternalError
from holdfast.runtime.epochs import carrying, homes
from holdfast.runtime.epochs.carrying import Carriage, Network
from holdfast.runtime.epochs.homes import Homes, SubtaskPlace
from holdfast.runtime.epochs.task import FailedRun
from holdfast.runtime.network.addresses import Location
from holdfast.runtime.wire.blocks import Block, BlockHeader, Kind
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.state.format.head import FileRef, Head
from tests.runtime.test_tls import certificate
from tests.strangers import STRANGERS, knock

PLACE = SubtaskPlace("job", 0, 1, 0)
KEY = bytes(32)


class Book(dict[SubtaskPlace, Location]):
    """What the driver knows of where subtasks live: what their last runs have said."""

    def task(self, place: SubtaskPlace, closing: bool = False) -> EpochTask:
        lived = tuple(self.get(place._replace(subtask=number)) for number in range(2))
        return EpochTask("job", place.attempt, 3, 1, (), 1, closing=closing, homes=lived)


def block(number: int, data: bytes = b"") -> Block:
    return Block(BlockHeader(Kind.RECORDS, 1, 0, 0, 0, 0, number, 1, "stamp"), data)


class Doubling:
    """Stands for a subtask: gives the bytes of each block twice; remembers what happened to it."""

    def __init__(self, work: Callable[[Block], None] = lambda block: None) -> None:
        self.work = work
        self.runs = 0
        self.threads: set[int] = set()
        self.closed: list[bool] = []
        self.abandoned = False

    def run(self, task: EpochTask, blocks: Iterable[Block]) -> Generator[Block]:
        self.runs += 1
        self.threads.add(threading.get_ident())
        try:
            for each in blocks:
                self.work(each)
                yield Block(each.header, bytes(each.data) * 2)
        except BaseException:
            self.abandoned = True
            raise

    def close(self, ended: bool = False) -> None:
        self.threads.add(threading.get_ident())
        self.closed.append(ended)


class Worker:
    """One process, as far as subtasks can tell: others know of it what the driver tells them."""

    def __init__(self, book: Book, network: Network = Network(KEY)) -> None:  # noqa: B008
        self.homes = Homes()
        self.network = network
        self.book = book
        self.made: list[Doubling] = []
        self.work: Callable[[Block], None] = lambda block: None

    def run(
        self, blocks: Iterable[Block] = (), place: SubtaskPlace = PLACE, closes: bool = False
    ) -> Generator[Block]:
        def make() -> Any:
            self.made.append(Doubling(self.work))
            return self.made[-1]

        yield from self.homes.run(self.network, place, self.book.task(place, closes), blocks, make)
        if place in self.homes._homes:
            self.book[place] = self.homes.location(self.network)


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def workers(book: Book) -> tuple[Worker, Worker]:
    return Worker(book), Worker(book)


Workers = tuple[Worker, Worker]


def test_a_subtask_stays_in_the_process_and_the_thread_that_ran_it_first(workers: Workers) -> None:
    first, second = workers
    blocks = [block(0, b"a"), block(1, bytes(3_000_000)), block(2)]
    twice = [(each.header, bytes(each.data) * 2) for each in blocks]
    for worker in (first, second, second, first):
        assert [(b.header, bytes(b.data)) for b in worker.run(blocks)] == twice
    assert not second.made
    (subtask,) = first.made
    assert subtask.runs == 4
    list(first.run(closes=True))
    assert subtask.closed == [True]
    assert len(subtask.threads) == 1
    assert threading.get_ident() not in subtask.threads


def test_two_subtasks_that_live_crosswise_run_side_by_side(workers: Workers) -> None:
    """Each process carries for the other one, and computes for it."""
    first, second = workers
    other = PLACE._replace(subtask=1)
    both = threading.Barrier(2, timeout=60)
    results: list[Any] = []

    def meet(each: Block) -> None:
        both.wait()

    list(first.run([block(0)]))
    list(second.run([block(0)], other))
    for worker in workers:
        worker.made[0].work = meet

    def run(worker: Worker, place: SubtaskPlace) -> None:
        results.extend(worker.run([block(7, b"x")], place))

    threads = [
        threading.Thread(target=run, args=(first, other)),
        threading.Thread(target=run, args=(second, PLACE)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [bytes(b.data) for b in results] == [b"xx", b"xx"]
    assert [len(worker.made) for worker in workers] == [1, 1]


def test_a_process_that_has_a_subtask_at_work_gives_another_one_away(workers: Workers) -> None:
    first, second = workers
    other = PLACE._replace(subtask=1)
    list(first.run())
    list(first.run(place=other))
    with closing(first.run([block(0), block(1)])) as at_work:
        next(at_work)
        list(second.run(place=other))
        assert len(second.made) == 1
    list(first.run(place=other))
    assert second.made[0].runs == 2, "it lives there now"


def test_without_the_process_it_lived_in_a_subtask_is_made_anew(book: Book) -> None:
    worker = Worker(book)
    with _living(book) as process:
        process.kill()
        process.join(60)
    list(worker.run([block(0)]))
    list(worker.run([block(0)]))
    assert [each.runs for each in worker.made] == [2]


def test_a_process_that_dies_with_a_subtask_at_work(book: Book) -> None:
    worker = Worker(book)
    with _living(book, _dies_at_the_second) as process:
        with pytest.raises(InternalError, match="process in which a subtask lived has ended"):
            list(worker.run([block(0), block(1), block(2)]))
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    assert [bytes(b.data) for b in worker.run([block(0, b"a")])] == [b"aa"]


def test_strangers_at_its_socket_do_not_hold_up_the_process_of_a_subtask(book: Book) -> None:
    worker = Worker(book)
    with _living(book), ExitStack() as open_ones:
        address = book[PLACE].address
        for behave in STRANGERS * 2:
            behave(open_ones.enter_context(knock(address)))
            assert [bytes(b.data) for b in worker.run([block(0, b"a")])] == [b"aa"]
    assert not worker.made, "it still lives there"


def test_a_process_that_stands_still_is_not_waited_for(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "_PATIENCE", 0.2)
    worker = Worker(book)
    with _living(book) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert [bytes(b.data) for b in worker.run([block(0, b"a")])] == [b"aa"]
    assert len(worker.made) == 1


def test_a_process_of_another_job_is_not_let_in(workers: Workers) -> None:
    first, second = workers
    list(first.run())
    task = second.book.task(PLACE)
    made = list(
        second.homes.run(Network(bytes(31) + b"x"), PLACE, task, [block(0, b"a")], Doubling)
    )  # type: ignore[arg-type]
    assert [bytes(b.data) for b in made] == [b"aa"]
    assert first.made[0].runs == 1


@pytest.fixture
def other_executor(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, this process belongs to another executor."""
    monkeypatch.setattr(homes, "own_ip", lambda: "127.0.0.1")
    return lambda: monkeypatch.setattr(os, "getppid", lambda: 1)


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(Network(KEY), id="one host"),
        pytest.param(Network(KEY, one_host=False), id="several"),
        pytest.param(Network(KEY, one_host=False, certificate=certificate()), id="encrypted"),
    ],
)
def test_a_subtask_that_lives_in_another_executor_runs_there(
    book: Book, network: Network, other_executor: Callable[[], None]
) -> None:
    first, second = Worker(book, network), Worker(book, network)
    list(first.run())
    other_executor()
    blocks = [block(0, b"a"), block(1, bytes(3_000_000)), block(2)]
    twice = [(each.header, bytes(each.data) * 2) for each in blocks]
    assert [(b.header, bytes(b.data)) for b in second.run(blocks)] == twice
    assert first.made[0].runs == 2
    assert not second.made
    assert (book[PLACE].far is None) == network.one_host
    for worker in (first, second):
        worker.homes.forget("job", KEY)


def test_a_long_run_in_another_executor_is_waited_for(
    book: Book, other_executor: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is silent for longer than a process may be; only heartbeats come, ten in that time."""
    heartbeats: list[bytes] = []
    send = Carriage._send

    def count(self: Carriage, head: bytes = b"", data: bytes | memoryview = b"") -> None:
        if head == carrying._ALIVE:
            heartbeats.append(head)
        send(self, head, data)

    monkeypatch.setattr(Carriage, "_send", count)
    network = Network(KEY, silence=1.0)
    first, second = Worker(book, network), Worker(book, network)
    list(first.run())
    first.made[0].work = lambda block: _wait_for(lambda: len(heartbeats) > 20)
    other_executor()
    assert [bytes(b.data) for b in second.run([block(0, b"a")])] == [b"aa"]
    assert first.made[0].runs == 2


def test_another_executor_that_falls_silent_is_given_up(
    book: Book, other_executor: Callable[[], None]
) -> None:
    worker = Worker(book, Network(KEY, silence=2.0))
    with _living(book, _stops_at_the_second):
        other_executor()
        with pytest.raises(InternalError, match="has ended, or cannot be reached"):
            list(worker.run([block(0), block(1), block(2)]))


def test_a_task_of_another_executor_that_falls_silent_leaves_the_process_free(
    book: Book, other_executor: Callable[[], None]
) -> None:
    """The host of the task is gone: no more blocks come, and nothing closes the connection."""
    first = Worker(book)
    list(first.run())
    network = first.network
    with closing(network.connect(book[PLACE].address, 60)) as line:
        line.say((PLACE, book.task(PLACE), 0.2, 0.0))
        assert line.hear(60)
        _wait_for(lambda: first.made[0].closed == [False])
    assert not first.homes._at_work


def test_a_process_that_nobody_reaches_is_not_asked_again_for_a_while(
    book: Book,
    other_executor: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(homes, "_PATIENCE", 0.2)
    network = Network(KEY, one_host=False)
    with _living(book, _lives_far) as process:
        other_executor()
        worker, there = Worker(book, network), book[PLACE]
        os.kill(process.pid, signal.SIGSTOP)
        for _ in range(3):
            book[PLACE] = there
            assert [bytes(b.data) for b in worker.run([block(0, b"a")])] == [b"aa"]
    (warning,) = caplog.messages
    assert "its state is loaded here instead" in warning
    assert "'holdfast.port.range'" in warning
    worker.homes.forget("job", KEY)


def test_with_much_state_a_task_waits_until_the_process_of_its_subtask_is_free(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = workers
    other = PLACE._replace(subtask=1)
    list(first.run())
    list(first.run(place=other))
    monkeypatch.setattr(homes, "_worth_waiting", lambda task, subtask: 60.0)
    at_work = first.run([block(0), block(1)])
    next(at_work)
    waiting = threading.Thread(target=lambda: list(second.run([block(0)], other)))
    waiting.start()
    _wait_for(lambda: len(first.homes._changed._waiters) == 1)  # type: ignore[attr-defined]
    assert first.made[1].runs == 1
    list(at_work)
    waiting.join(60)
    assert first.made[1].runs == 2
    assert not second.made


def test_a_task_waits_as_long_as_its_state_would_take_to_load() -> None:
    head = Head((FileRef("0-0-0-a.state", 30_000_000, -1, 0),), ("a",))
    task = EpochTask("job", 0, 3, 1, (Head(), head), 1)
    assert [homes._worth_waiting(task, subtask) for subtask in (0, 1)] == [0, 0.6]


def test_as_long_as_the_driver_knows_nothing_every_process_has_its_own(workers: Workers) -> None:
    for worker in workers:
        worker.book = Book()
        list(worker.run())
        list(worker.run())
    assert [worker.made[0].runs for worker in workers] == [2, 2]


def test_nobody_is_let_in_for_a_job_that_was_forgotten(workers: Workers) -> None:
    first, second = workers
    list(first.run())
    first.homes.forget("job", KEY)
    assert first.made[0].closed == [False]
    list(second.run())
    assert len(second.made) == 1


def _spawn(target: Callable[[Connection, int], None], told: Connection) -> Any:
    arguments = (told, os.getppid())
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


@contextmanager
def _living(book: Book, target: Callable[[Connection, int], None] | None = None) -> Iterator[Any]:
    """A process in which a subtask lives, as the driver knows."""
    hears, told = multiprocessing.get_context("spawn").Pipe(False)
    process = _spawn(target or _lives, told)
    try:
        assert hears.poll(60)
        book[PLACE] = hears.recv()
        yield process
    finally:
        process.kill()
        process.join()
        hears.close()
        told.close()


def _lives(told: Connection, parent: int) -> None:
    _live(told, parent, lambda each: None)


def _dies_at_the_second(told: Connection, parent: int) -> None:
    def work(each: Block) -> None:
        if each.header.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    _live(told, parent, work)


def _stops_at_the_second(told: Connection, parent: int) -> None:
    def work(each: Block) -> None:
        if each.header.number == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    _live(told, parent, work)


def _lives_far(told: Connection, parent: int) -> None:
    homes.own_ip = lambda: "127.0.0.1"
    _live(told, parent, lambda each: None, Network(KEY, one_host=False))


def _live(
    told: Connection,
    parent: int,
    work: Callable[[Block], None],
    network: Network = Network(KEY),  # noqa: B008
) -> None:
    os.getppid = lambda: parent
    worker = Worker(Book(), network)
    worker.work = work
    list(worker.run([block(0)]))
    told.send(worker.book[PLACE])
    threading.Event().wait(120)


def test_a_failed_run_ends_the_subtask_wherever_it_lives(workers: Workers) -> None:
    first, second = workers
    list(first.run())

    def fail(each: Block) -> None:
        raise FailedRun

    first.made[0].work = fail
    assert list(second.run([block(0)])) == []
    assert first.made[0].closed == [False]
    list(second.run())
    assert len(second.made) == 1


class Unshippable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        pytest.param(ValueError("broken"), ValueError, "broken", id="as it is"),
        pytest.param(Unshippable(1, 2), InternalError, "1 and 2", id="what can be told"),
    ],
)
def test_an_exception_comes_to_whoever_asked(
    workers: Workers, error: Exception, raised: type[Exception], text: str
) -> None:
    first, second = workers
    list(first.run())

    def fail(each: Block) -> None:
        raise error

    first.made[0].work = fail
    with pytest.raises(raised, match=text):
        list(second.run([block(0)]))
    assert first.made[0].closed == [False]


@pytest.mark.parametrize("runs", [0, 1], ids=["here", "there"])
def test_a_task_that_spark_ends_ends_the_subtask(workers: Workers, runs: int) -> None:
    """Nobody takes its blocks any more; its state is thrown away with it."""
    owner = workers[0]
    list(owner.run())
    blocks = (block(number, bytes(100_000)) for number in range(1_000))
    run = workers[runs].run(blocks)
    next(run)
    run.close()
    _wait_for(lambda: owner.made[0].closed == [False])
    assert owner.made[0].abandoned
    list(owner.run())
    assert len(owner.made) == 2


@pytest.mark.parametrize("runs", [0, 1], ids=["here", "there"])
def test_blocks_that_cannot_be_read_end_the_subtask(workers: Workers, runs: int) -> None:
    owner = workers[0]
    list(owner.run())

    def broken() -> Iterator[Block]:
        yield block(0)
        raise ZeroDivisionError("no more of them")

    with pytest.raises(ZeroDivisionError, match="no more of them"):
        list(workers[runs].run(broken()))
    _wait_for(lambda: owner.made[0].closed == [False])


def test_subtasks_of_earlier_attempts_go(workers: Workers) -> None:
    first, _ = workers
    other = PLACE._replace(subtask=1)
    list(first.run())
    list(first.run(place=other))
    list(first.run(place=PLACE._replace(attempt=1)))
    assert [each.closed for each in first.made] == [[False], [False], []]
    first.homes.forget("job", KEY)
    assert first.made[2].closed == [False]


def test_what_a_module_set_for_decimals_holds_in_the_thread_of_a_subtask(workers: Workers) -> None:
    first, _ = workers
    seen: list[int] = []
    first.work = lambda block: seen.append(decimal.getcontext().prec)
    with decimal.localcontext() as context:
        context.prec = 77
        list(first.run([block(0)]))
    assert seen == [77]


def _wait_for(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(6000):
        if condition():
            return
        tick.wait(0.01)
    pytest.fail("it did not come to that within a minute")
