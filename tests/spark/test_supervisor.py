"""A job ends with its thread, and completely."""

from __future__ import annotations

import queue
import threading

import pytest

from holdfast.spark.supervisor import Steps, supervise

#: in seconds, for what happens in another thread
LONGEST = 30


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_whatever_ends_the_thread_ends_the_job(how: str) -> None:
    failure = {"returns": ValueError(), "raises": OSError(), "exits": SystemExit()}[how]
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def live() -> BaseException:
        if how == "returns":
            return failure
        raise failure

    supervise(live, ended.put)
    assert ended.get(timeout=LONGEST) is failure


def test_a_life_without_failure_ends_without_one() -> None:
    ended: queue.SimpleQueue[tuple[BaseException | None, str]] = queue.SimpleQueue()
    supervise(lambda: None, lambda failure: ended.put((failure, threading.current_thread().name)))
    assert ended.get(timeout=LONGEST) == (None, "holdfast-job")


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
