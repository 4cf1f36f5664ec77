"""Counts failures of user functions on the same record: a restart does not help against those.

A record that a function cannot process fails again after each restart, because the next attempt
reads it again. A strategy that restarts forever would do so forever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from holdfast.common.options.restart import SAME_RECORD_LIMIT
from holdfast.driver.job_events import FailurePlace
from holdfast.errors import RepeatedFailureError, UserFunctionError
from holdfast.state.errors import StateTypeError

#: the address of an object in its default repr, which is another one in each attempt
_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]+")
_LINE: Final = re.compile(r'^\s*File "(.*)", line (\d+)', re.MULTILINE)


def place_of(failure: BaseException) -> FailurePlace | None:
    """Return what identifies a failure on a record; None if no record is to blame.

    No record is to blame for a lost slot, for a failure outside of a record, as in ``open``, and
    for something outside of the job that does not answer, such as a database. A value that does
    not fit its state is found by a checkpoint, when its record is not known any more; the message
    names its key.
    """
    if isinstance(failure, StateTypeError):
        return FailurePlace("", _ADDRESS.sub("0x", str(failure)), type(failure).__name__, "")
    if not isinstance(failure, UserFunctionError) or failure.transient or failure.record is None:
        return None
    lines = _LINE.findall(failure.user_traceback)
    return FailurePlace(
        failure.operator,
        _ADDRESS.sub("0x", failure.record),
        failure.error.partition(":")[0],
        ":".join(lines[-1]) if lines else "",
    )


@dataclass
class RepeatedFailures:
    """The failures on each record since the last completed checkpoint.

    Attributes:
        limit: how many of them end the job; 0: any number of them does not.
    """

    limit: int = 0

    def __post_init__(self) -> None:
        self._counts: dict[FailurePlace, int] = {}
        self._checkpoint: int | None = None

    def count(self, place: FailurePlace | None, checkpoint: int | None) -> int:
        """Count a failure; return how often it has occurred. 0: no record is to blame.

        ``checkpoint``: the last completed one. If it is another one than before, the job has made
        progress, and the count starts again.
        """
        if checkpoint != self._checkpoint:
            self._counts.clear()
            self._checkpoint = checkpoint
        if place is None:
            return 0
        self._counts[place] = self._counts.get(place, 0) + 1
        return self._counts[place]

    def is_too_often(self, count: int) -> bool:
        """Return whether the job must end after a failure with this count."""
        return 0 < self.limit <= count

    def note(self, count: int) -> str:
        """Return what to say about a failure with this count; nothing about the first one."""
        if count <= 1:
            return ""
        most = f" of at most {self.limit}" if self.limit else ""
        return f"failure {count}{most} on the same record, without a checkpoint in between"


def repeated(failure: BaseException, count: int) -> BaseException:
    """Return the error that ends a job after failures on the same record."""
    if not isinstance(failure, UserFunctionError):
        return failure
    advice = (
        f"This was failure {count} on the same record, without a completed checkpoint in between, "
        "so the job is not restarted again. Handle such records in the function, for example by "
        f"sending them to a side output. To restart more often, set '{SAME_RECORD_LIMIT}' to a "
        "higher number, or to 0 for no limit."
    )
    error = RepeatedFailureError(failure, advice)
    error.__cause__ = failure.__cause__
    return error
