"""A job ends with its thread, and completely."""

from __future__ import annotations

import queue
import threading

import pytest

from holdfast.driver.job.supervisor import Steps, supervise

#: in seconds, for what happens in another thread
LONGEST = 240


@pytest.mark.parametrize("failure", [OSError(), SystemExit()])
def test_whatever_breaks_the_thread_is_told(failure: BaseException) -> None:
    told: queue.SimpleQueue[tuple[BaseException, str]] = queue.SimpleQueue()

    def live() -> None:
        raise failure

    supervise(live, lambda error: told.put((error, threading.current_thread().name)))
    assert told.get(timeout=LONGEST) == (failure, "holdfast-job")


def test_a_life_without_failure_ends_without_a_word() -> None:
    told: list[BaseException] = []
    supervise(lambda: None, told.append)
    for thread in threading.enumerate():
        if thread.name == "holdfast-job":
            thread.join(LONGEST)
    assert told == []


def test_each_step_is_taken_whatever_becomes_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = []

    def fail() -> None:
        taken.append("first")
        raise SystemExit("no room")

    steps = Steps("orders")
    steps.take("close its book", fail)
    steps.take("close its shop", lambda: taken.append("second"))
    assert taken == ["first", "second"]
    (record,) = caplog.records
    assert record.getMessage() == "at the end of job 'orders': cannot close its book: no room"
