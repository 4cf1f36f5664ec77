"""How long a start of an attempt takes, and its parts."""

from __future__ import annotations

from holdfast.history.events import AttemptBegan, StartMeasured
from holdfast.history.job import JobHistory
from holdfast.history.starts import StartClock


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def __iadd__(self, seconds: float) -> Clock:
        self.now += seconds
        return self


def restarted(clock: Clock) -> StartClock:
    """A second attempt that has its slots: it took 0.1 s, 1 s and 0.2 s."""
    start = StartClock(clock)
    start.starting(0)
    start.connected()
    clock += 5
    start.stopping()
    clock += 0.1
    start.stopped()
    clock += 1
    start.starting(1)
    clock += 0.2
    start.connected()
    return start


def test_the_parts_of_a_restart_follow_each_other() -> None:
    clock = Clock()
    start = restarted(clock)
    began = clock.now
    clock += 0.5
    loaded = start.epoch(began + 0.1, 0.3, False)
    assert loaded == StartMeasured(1, 1_006_800, stop=0.1, delay=1.0, slots=0.2, load=0.4)
    assert start.epoch(clock.now, 0.0, False) is None, "nothing new"
    clock += 0.2
    whole = start.epoch(clock.now - 0.1, 0.0, True)
    expected = StartMeasured(
        1, 1_007_000, stop=0.1, delay=1.0, slots=0.2, load=0.4, first_result=0.3
    )
    assert whole == expected
    assert whole.seconds == 2.0
    assert start.epoch(clock.now, 0.0, True) is None, "the first result is the last part"


def test_an_epoch_may_load_the_state_and_give_results() -> None:
    clock = Clock()
    start = restarted(clock)
    began = clock.now
    clock += 2
    found = start.epoch(began, 0.5, True)
    assert found is not None
    assert (found.load, found.first_result) == (0.5, 1.5)


def test_before_the_first_attempt_there_is_nothing_to_stop() -> None:
    clock = Clock()
    start = StartClock(clock)
    clock += 3
    start.starting(0)
    clock += 1
    start.connected()
    clock += 1
    found = start.epoch(clock.now, 0.0, True)
    assert found is not None
    assert (found.stop, found.delay, found.slots) == (0.0, 0.0, 1.0)


def test_a_clock_that_is_set_back_gives_no_negative_times() -> None:
    clock = Clock()
    start = restarted(clock)
    clock += -3600
    found = start.epoch(clock.now - 0.5, 0.5, True)
    assert found is not None
    assert (found.load, found.first_result) == (0.0, 0.0)


def test_the_history_has_the_last_measurement_of_the_last_attempt() -> None:
    history = JobHistory()
    history.tell(AttemptBegan(0, 1))
    history.tell(StartMeasured(0, 2, load=0.5))
    whole = StartMeasured(0, 3, load=0.5, first_result=0.25)
    history.tell(whole)
    history.tell(StartMeasured(7, 4, load=9.0))
    assert [attempt.measured for attempt in history.attempts] == [whole]
    again = JobHistory(history.remembered())
    assert list(again.attempts) == list(history.attempts)
