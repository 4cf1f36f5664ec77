"""A process that dies at any step: before or after a call that leaves something behind."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

import pytest

from holdfast.filesystem import LocalFileSystem
from holdfast.filesystem.arrow import ArrowFileSystem
from holdfast.runtime.failures import OperatorFailed
from tests.datastream.sink_engine import SinkEngine

#: steps of any table: a file is written or deleted, wherever it is
FILE_STEPS = tuple(
    (kind, name)
    for kind in (LocalFileSystem, ArrowFileSystem)
    for name in ("write", "delete", "open_output")
)
#: on remote storage a life takes a second, so only one step in so many is tried
EVERY = 12
#: more than a life has
_MOST = 150
#: finds files of one attempt, which the next one deletes
_NAMES_AN_ATTEMPT = re.compile("(.*/)?[0-9][^/]*").fullmatch


class Died(Exception):
    """The process dies."""


class Death:
    """Comes at a step; nothing is done after it until the next process begins."""

    def __init__(self) -> None:
        self.left = -1

    @property
    def has_come(self) -> bool:
        return self.left == 0

    def comes_at(self, steps: Iterable[tuple[type, str]], patch: pytest.MonkeyPatch) -> None:
        """Make a step of the time before each of these methods, and of the time after it."""
        for kind, name in steps:
            patch.setattr(kind, name, self._around(getattr(kind, name)))

    def _step(self) -> None:
        self.left = max(self.left - 1, 0) if self.left >= 0 else -1
        if self.has_come:
            raise Died

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            self._step()
            result = method(*args, **named)
            self._step()
            return result

        return call


class Life(Protocol):
    """A job that writes to a table of its own."""

    job: SinkEngine

    def check(self) -> None:
        """Look whether the table has the records before the position of the job."""

    def hidden(self) -> list[str]:
        """What the sink has not cleaned up."""

    def orphans(self) -> Collection[str]:
        """The data files that the table does not refer to."""


def die_at_every_step(
    death: Death, begin: Callable[[int], Life], monkeypatch: pytest.MonkeyPatch, every: int = 1
) -> None:
    """Live again and again, with a death at another step.

    Args:
        begin: makes a table, given the step.
        every: only one step in so many is tried, from any of the first ones on.
    """
    for step in range(random.randint(1, every), _MOST, every):
        survived = False
        try:
            survived = _live_and_die(begin(step), death, step, monkeypatch)
        except BaseException as failure:
            failure.add_note(f"after a death at step {step}")
            raise
        if survived:
            break
    assert 30 < step < _MOST - every


def _live_and_die(life: Life, death: Death, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Look at the table after the next attempt; whether the life had fewer steps."""
    job, death.left = life.job, step
    try:
        _live(job)
    except (Died, OperatorFailed):
        assert death.has_come
    survived, death.left = not death.has_come, -1
    job.restart()
    job.epoch()
    life.check()
    left = life.hidden()
    assert not any(map(_NAMES_AN_ATTEMPT, left))
    if left:  # it may be of another process, until it is a day old
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.datastream.connectors.tables.place._OLD", -60_000)
            job.restart()
            job.epoch()
        life.check()
        assert life.hidden() == []
    assert not life.orphans()
    return survived


def _live(job: SinkEngine) -> None:
    """Do all that a committer ever does."""
    job.epoch(2, checkpoint=True)
    job.epoch(1)  # commits two records; the third one is in no checkpoint
    job.restart()
    job.epoch(1, checkpoint=True)  # finds the two in the table, and deletes the third one's file
    job.restart()
    job.epoch()  # commits in the recovery
