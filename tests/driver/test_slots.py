"""The driver's side of slots: who has ended and who is silent, and which failure counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Thread

import pytest
from msgspec.structs import replace

from holdfast.driver.outcome import AbandonedError
from holdfast.driver.slots import attempt_slots as module
from holdfast.driver.slots.attempt_slots import Slots
from holdfast.driver.slots.rounds import Rounds
from holdfast.errors import JobExecutionError
from holdfast.runtime.network.peers import connect, listen
from holdfast.runtime.resident.messages import (
    Frame,
    Hello,
    Say,
    Welcome,
    Wire,
    decode_welcome,
    encode,
)
from holdfast.runtime.wire.blocks import BlockHeader, Kind, encode_header
from holdfast.runtime.wire.protocol import Acknowledgement, EpochTask, StoredState
from holdfast.state.format.head import Head
from tests.spark.witness import until

#: longer than anything here takes, in seconds
LONG = 60.0


def nothing(*given: object) -> None:
    """Neither results nor a JVM are of interest here."""


def call(slots: Slots, number: int, host: str = "host") -> Wire:
    """Call as a slot that waits for its welcome."""
    wire = Wire(connect(slots.address, LONG))
    wire.send(Say.HELLO, data=encode(Hello("job", 0, number, host, 1, host, 100 + number)))
    return wire


def hello(slots: Slots, number: int) -> Wire:
    """Call as a slot that is ready already."""
    wire = call(slots, number)
    wire.send(Say.READY)
    return wire


@pytest.fixture
def make() -> Iterator[Callable[[float], Slots]]:
    made: list[Slots] = []

    def make(heartbeat: float) -> Slots:
        made.append(Slots("job", 0, 2, heartbeat, lambda serve: listen(serve, "127.0.0.1")))
        return made[-1]

    yield make
    for slots in made:
        slots.stop(False, lambda seconds: True)


def test_a_slot_that_has_ended_is_named_although_another_one_says_first_that_it_is_lost(
    make: Callable[[float], Slots],
) -> None:
    slots = make(LONG)
    with closing(hello(slots, 0)) as survivor:
        dead = hello(slots, 1)
        slots.gather(2, LONG, nothing)
        survivor.send(Say.LOST, data=b"slot 0 has lost its connection to slot 1")
        slots.wait(0.05, nothing, nothing)
        dead.close()
        with pytest.raises(JobExecutionError, match=r"slot 1 \(process 101 .* has ended"):
            slots.wait(LONG, nothing, nothing)


def test_a_lost_connection_counts_if_nobody_says_why(
    make: Callable[[float], Slots], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAST_WORDS", 0.0)
    slots = make(LONG)
    with closing(hello(slots, 0)) as one, closing(hello(slots, 1)):
        slots.gather(2, LONG, nothing)
        one.send(Say.LOST, data=b"slot 0 has lost its connection to slot 1")
        with pytest.raises(JobExecutionError, match="slot 0 has lost its connection to slot 1"):
            slots.wait(LONG, nothing, nothing)


def test_a_slot_that_waits_for_another_one_to_come_is_not_silent(
    make: Callable[[float], Slots],
) -> None:
    heartbeat = 0.1
    slots = make(heartbeat)
    with closing(hello(slots, 0)):
        until = time.monotonic() + 5 * heartbeat
        late: list[Wire] = []

        def come_late() -> None:
            if not late and time.monotonic() > until:
                late.append(hello(slots, 1))

        slots.gather(2, LONG, come_late)
        with (
            closing(late[0]),
            pytest.raises(JobExecutionError, match=r"sent nothing for"),
        ):
            slots.wait(LONG, nothing, nothing)


def test_slots_that_do_not_come_are_counted(make: Callable[[float], Slots]) -> None:
    with pytest.raises(JobExecutionError, match="only 0 of 2 slots have connected to the driver"):
        make(LONG).gather(2, 0.0, nothing)


def test_slots_that_do_not_find_each_other_are_counted(make: Callable[[float], Slots]) -> None:
    slots = make(LONG)
    with closing(hello(slots, 0)), closing(call(slots, 1)):
        until(lambda: len(slots._slots) == 2)
        # NB: slot 0 says that it is ready; whether that is heard in time does not matter
        with pytest.raises(JobExecutionError, match=r"only [01] of 2 slots .* to all others"):
            slots.gather(2, 0.1, nothing)


def test_a_round_that_does_not_end_is_given_up_when_the_job_is_cancelled(
    make: Callable[[float], Slots], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROUND_PATIENCE", 0.0)
    slots = make(LONG)
    with closing(hello(slots, 0)), closing(hello(slots, 1)):
        slots.gather(2, LONG, nothing)
        slots.abandon()
        with pytest.raises(AbandonedError, match="the job is cancelled"):
            slots.round([], nothing, nothing)


def test_a_slot_that_comes_back_to_its_host_has_its_number_again() -> None:
    slots = Slots("job", 0, 2, LONG, lambda serve: listen(serve, "127.0.0.1"), ("a", "b"))
    welcomes: dict[str, Welcome] = {}

    def be_slot(number: int, host: str) -> None:
        with closing(call(slots, number, host)) as wire:
            welcomes[host] = decode_welcome(wire.receive().data)
            wire.send(Say.READY)
            wire.receive()

    threads = [Thread(target=be_slot, args=task, daemon=True) for task in enumerate("ba")]
    for thread in threads:
        thread.start()
    slots.gather(2, LONG, nothing)
    slots.stop(False, lambda seconds: True)
    for thread in threads:
        thread.join(LONG)
    places = (("a", 1), ("b", 1))
    assert welcomes == {"a": Welcome(0, places), "b": Welcome(1, places)}
    assert slots.hosts == ("a", "b")


def acknowledged(records: int = 0, storing: bool = False) -> Frame:
    """What a subtask says at the end of a round."""
    ack = Acknowledgement(0, 0, "stamp", Head(), False, records, 0, 0, {}, {}, storing=storing)
    header = BlockHeader(Kind.ACKNOWLEDGEMENT, 1, 0, -1, 0, 0, 0, 0, "stamp")
    return Frame(Say.BLOCK, memoryview(encode_header(header)), memoryview(encode(ack)))


def test_a_job_without_data_has_fewer_rounds() -> None:
    rounds = Rounds("job", 0, 6)
    assert rounds.pause(0.02, idle=0.9) == 0.02
    assert rounds.pause(0.02, idle=2.0) == 0.2
    assert rounds.pause(0.02, idle=3600.0) == 1.0
    assert rounds.pause(5.0, idle=3600.0) == 5.0


def test_a_job_of_many_subtasks_has_fewer_rounds() -> None:
    assert Rounds("job", 0, 99).pause(0.02, idle=0.0) == 0.02
    assert Rounds("job", 0, 1000).pause(0.02, idle=0.0) == pytest.approx(0.75)
    assert Rounds("job", 0, 1000).pause(5.0, idle=0.0) == 5.0


def test_a_round_begins_when_the_last_state_is_stored_not_with_each() -> None:
    rounds = Rounds("job", 0, 2)
    rounds.begin([EpochTask("job", 0, 1, 0, (), quota=1, checkpoint=1)])
    rounds.take(0, stored(0))  # it may be faster than another subtask is at its barrier
    for _ in range(2):
        rounds.take(0, acknowledged(storing=True))
    rounds.take_outcome()
    assert not rounds.has_stored
    rounds.take(1, stored(1))
    assert rounds.has_stored
    assert len(rounds.take_stored()) == 2
    assert not rounds.has_stored


def test_a_state_that_failed_is_told_at_once() -> None:
    rounds = Rounds("job", 0, 2)
    rounds.begin([EpochTask("job", 0, 1, 0, (), quota=1, checkpoint=1)])
    for _ in range(2):
        rounds.take(0, acknowledged(storing=True))
    rounds.take_outcome()
    rounds.take(0, stored(0, "the disk is full"))
    assert rounds.has_stored
    assert [state.failure for state in rounds.take_stored()] == ["the disk is full"]
    assert not rounds.has_stored


def stored(subtask: int, failure: str | None = None) -> Frame:
    """What a slot says when a state is stored, or could not be."""
    data = encode(StoredState(1, 0, subtask, Head(), failure))
    return Frame(Say.STORED, memoryview(b""), memoryview(data))


def test_it_is_known_whether_a_round_carried_a_record() -> None:
    rounds = Rounds("job", 0, 1)
    task = EpochTask("job", 0, 1, 0, (), quota=1)

    def carries(records: int, task: EpochTask = task) -> bool:
        rounds.begin([task])
        rounds.take(0, acknowledged(records))
        rounds.take_outcome()
        return rounds.carried

    assert not carries(0)
    assert carries(1)
    # sources that are ahead of others wait for what the driver says
    assert carries(0, replace(task, ceilings={"numbers": 5}))
