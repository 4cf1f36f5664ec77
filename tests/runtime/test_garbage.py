"""What the garbage collector looks at in worker processes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import accumulate, chain, repeat

import pytest

from holdfast.runtime.worker.garbage import Garbage


class _Circle:
    """Only the collector finds out that nobody has it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def _garbage(*steps: float) -> Garbage:
    """One whose clock goes on by these steps, one at each look, and then stands still."""
    times = accumulate(chain(steps, repeat(0.0)))
    return Garbage(lambda: next(times))


def _is_spared(entries: object) -> bool:
    """Whether the collector does not look at this object."""
    return not any(seen is entries for seen in gc.get_objects())


def test_what_lives_is_not_looked_at_again() -> None:
    entries = [[number] for number in range(10)]
    assert not _is_spared(entries)
    _garbage().spare()
    assert _is_spared(entries)
    assert _is_spared(entries[-1])


def test_a_search_waits_until_it_is_a_small_part_of_the_time() -> None:
    # looks: is it due? a search begins, and ends after one second; due? due?
    garbage = _garbage(0, 0, 1, 99, 2)
    circle = _Circle()
    garbage.spare()
    left = weakref.ref(circle)
    del circle
    garbage.spare()
    gc.collect()  # as Spark's worker does
    assert left() is not None, "searched among all objects after 99 seconds"
    garbage.spare()
    assert left() is None, "did not search after 101 seconds"


def test_what_is_new_is_searched_every_time() -> None:
    garbage = _garbage(0, 0, 1)
    garbage.spare()
    new = weakref.ref(_Circle())
    garbage.spare()
    assert new() is None


def test_a_search_can_be_asked_for() -> None:
    circle = _Circle()
    left = weakref.ref(circle)
    gc.freeze()
    del circle
    _garbage(0, 0, 1).collect()
    assert left() is None


def test_new_objects_are_searched_seldom() -> None:
    gc.set_threshold(700, 10, 10)
    _garbage().expect_state()
    assert gc.get_threshold()[0] >= 100_000


def test_beside_a_task_it_takes_a_small_part_of_the_time() -> None:
    # looks: is it due? is a search among all? it begins, and ends after a second; the end; due? ...
    garbage = _garbage(0, 0, 0, 1, 0, 98, 2)
    garbage.spare_beside()
    entries = [[number] for number in range(10)]
    garbage.spare_beside()
    assert not _is_spared(entries), "spared after 99 seconds"
    garbage.spare_beside()
    assert _is_spared(entries)
