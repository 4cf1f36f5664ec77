"""The driver's book: heads, quotas, acknowledgements, and the end of a job."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.driver.epoch_book import EpochBook
from holdfast.driver.quota import FIRST_QUOTA, Quota
from holdfast.errors import DisagreementError, InternalError
from holdfast.plan.model import Plan
from holdfast.runtime.network.addresses import Address, Location
from holdfast.runtime.wire.protocol import Acknowledgement, StoredState
from holdfast.state.format.head import FileRef, Head


@pytest.fixture
def plan(env: StreamExecutionEnvironment) -> Plan:
    env.from_collection([1]).map(abs).set_parallelism(2)
    return env._plan("job")


def ack(
    level: int,
    subtask: int,
    head: Head | None = None,
    finished: bool = False,
    saturated: bool = False,
) -> Acknowledgement:
    return Acknowledgement(
        level=level,
        subtask=subtask,
        stamp=f"{level}-{subtask}",
        consumed={},
        head=head or Head(),
        finished=finished,
        saturated=saturated,
        records_in=level * 10,
        records_out=0,
        records_read=0 if level else 10,
        seconds={"process": 1.0 + subtask},
        metrics={"uid": {"records": subtask}},
        watermarks={"uid": 100 * subtask} if level else {},
    )


def head(*names: str) -> Head:
    files = tuple(FileRef(name, 5, i - 1, i) for i, name in enumerate(names))
    return Head(files, names)


PLACES = [(0, 0), (1, 0), (1, 1)]


def test_tasks_name_the_heads(plan: Plan) -> None:
    book = EpochBook("job", plan)
    acks = [ack(*place, head=head(f"{place}")) for place in PLACES]
    book.accept(0, acks, 0.0, 1.0)
    first, second = book.tasks(1)
    assert first.heads == (head("(0, 0)"),)
    assert second.heads == (head("(1, 0)"), head("(1, 1)"))
    assert (second.epoch, second.level, second.closing) == (1, 1, False)


def test_tasks_say_where_subtasks_live_in_this_attempt(plan: Plan) -> None:
    book = EpochBook("job", plan)
    assert [task.homes for task in book.tasks(0)] == [(), ()]
    home = Location("h1-7", Address(socket="holdfast-socket-0123456789abcdef0123"))
    acks = [ack(*PLACES[0]), ack(*PLACES[1]), msgspec.structs.replace(ack(*PLACES[2]), home=home)]
    book.accept(0, acks, 0.0, 1.0)
    assert [task.homes for task in book.tasks(1)] == [(), (None, home)]
    book.begin_attempt(1, None)
    assert [task.homes for task in book.tasks(2)] == [(), ()]


def test_files_that_nobody_needs_are_named(plan: Plan) -> None:
    book = EpochBook("job", plan)
    book.accept(
        0,
        [ack(*place, head=head("a", "b")) for place in PLACES[:1]]
        + [ack(*place) for place in PLACES[1:]],
        0.0,
        1.0,
    )
    new = [ack(0, 0, head=head("a", "c")), ack(1, 0), ack(1, 1)]
    assert book.accept(1, new, 0.0, 1.0)[1] == ["b"]


def test_an_acknowledgement_is_missing(plan: Plan) -> None:
    book = EpochBook("job", plan)
    with pytest.raises(InternalError, match=r"no acknowledgement from \[\(1, 1\)\]"):
        book.accept(0, [ack(0, 0), ack(1, 0)], 0.0, 1.0)
    assert book.heads == [[Head()], [Head(), Head()]]


def test_a_subtask_acknowledges_twice(plan: Plan) -> None:
    with pytest.raises(DisagreementError, match="subtask 1/0 acknowledged twice"):
        EpochBook("job", plan).accept(0, [ack(0, 0), ack(1, 0), ack(1, 0)], 0.0, 1.0)


def test_consumers_read_different_runs_of_a_producer(plan: Plan) -> None:
    acks = [
        ack(0, 0),
        msgspec.structs.replace(ack(1, 0), consumed={"0/0": "0-0"}),
        msgspec.structs.replace(ack(1, 1), consumed={"0/0": "another run"}),
    ]
    book = EpochBook("job", plan)
    with pytest.raises(DisagreementError, match="1/1 read run another run of its producer 0/0"):
        book.accept(0, acks, 0.0, 1.0)
    assert book.heads == EpochBook("job", plan).heads, "nothing was taken over"


def test_finished_when_everybody_is(plan: Plan) -> None:
    book = EpochBook("job", plan)
    book.accept(0, [ack(0, 0, finished=True), ack(1, 0), ack(1, 1, finished=True)], 0.0, 1.0)
    assert not book.finished
    book.accept(1, [ack(*place, finished=True) for place in PLACES], 0.0, 1.0)
    assert book.finished


def test_what_an_epoch_did(plan: Plan) -> None:
    book = EpochBook("job", plan)
    acks = [ack(*place, head=head("f")) for place in PLACES]
    ended, _ = book.accept(3, acks, 100.0, 0.5)
    assert (ended.epoch, ended.started, ended.seconds) == (3, 100_000, 0.5)
    assert (ended.read, ended.records, ended.state) == (10, 30, 15)
    assert ended.steps == {"process": 2.0}
    assert book.metrics == {("uid", 0): {"records": 0}, ("uid", 1): {"records": 1}}


@pytest.mark.parametrize(
    ("saturated", "seconds", "expected"),
    [
        pytest.param(False, 0.1, FIRST_QUOTA, id="no need for more"),
        pytest.param(True, 0.1, 4 * FIRST_QUOTA, id="much faster than it may be"),
        pytest.param(True, 2.0, 2 * FIRST_QUOTA, id="faster than it may be"),
        pytest.param(True, 3.0, FIRST_QUOTA, id="long enough"),
        pytest.param(True, 9.0, FIRST_QUOTA, id="too long, but it is the least there is"),
    ],
)
def test_quota_follows_the_load(plan: Plan, saturated: bool, seconds: float, expected: int) -> None:
    book = EpochBook("job", plan)
    book.accept(0, [ack(*place, saturated=saturated) for place in PLACES], 0.0, seconds)
    assert book.quota == expected


@pytest.mark.parametrize(
    ("saturated", "seconds", "expected"),
    [
        pytest.param(False, 0.01, 8, id="no need for more"),
        pytest.param(True, 0.01, 32, id="much faster than it may be"),
        pytest.param(True, 0.3, 8, id="long enough"),
        pytest.param(True, 0.6, 4, id="too long"),
        pytest.param(False, 60.0, 4, id="too long, whatever is left"),
    ],
)
def test_an_engine_has_a_quota_of_its_own(
    plan: Plan, saturated: bool, seconds: float, expected: int
) -> None:
    book = EpochBook("job", plan, adapts=Quota(first=8, least=1, short=0.1, long=0.5))
    book.accept(0, [ack(*place, saturated=saturated) for place in PLACES], 0.0, seconds)
    assert book.quota == expected
    for epoch in range(1, 5):
        book.accept(epoch, [ack(*place) for place in PLACES], 0.0, 1.0)
    assert book.quota == (2 if expected == 32 else 1)


def test_watermarks_are_those_of_the_last_epoch_of_this_attempt(plan: Plan) -> None:
    book = EpochBook("job", plan)
    book.accept(0, [ack(*place) for place in PLACES], 0.0, 1.0)
    assert book.watermarks == {("uid", 0): 0, ("uid", 1): 100}
    book.begin_attempt(1, None)
    assert book.watermarks == {}


def test_quota_has_a_bound(plan: Plan) -> None:
    book = EpochBook("job", plan, largest_quota=30_000)
    book.accept(0, [ack(*place, saturated=True) for place in PLACES], 0.0, 0.1)
    assert book.quota == 30_000
    assert EpochBook("job", plan, largest_quota=10).quota == 10


def test_a_state_that_was_stored_is_the_head_unless_there_is_a_newer_one(plan: Plan) -> None:
    book = EpochBook("job", plan)
    assert book.take(StoredState(1, 1, 0, head("a", "b"))) == []
    assert book.take(StoredState(2, 1, 0, head("a", "c", "d"))) == ["b"]
    assert book.take(StoredState(1, 1, 0, head("a", "b"))) == []
    assert book.take(StoredState(3, 1, 0, Head(), failure="disk full")) == []
    assert book.heads[1] == [head("a", "c", "d"), Head()]
    acks = [ack(0, 0), ack(1, 0, head=head("a", "b")), ack(1, 1)]
    assert book.accept(0, acks, 0.0, 1.0)[1] == []
    assert book.heads[1][0] == head("a", "c", "d")
