"""Turns an exception in a user's function into a message that names operator, record and line.

A failure travels to the driver as data, not as a failed Spark task: Spark would run a task again
that will fail again, and bury the user's line under its own stack trace.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from holdfast.errors import HoldfastError, JobExecutionError, UserFunctionError
from holdfast.runtime.protocol import Failure
from holdfast.state.errors import StateCorruptionError, StateMigrationError, StateMutationError

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_RECORD_LIMIT = 300
_NOT_SENT = (
    "\n  this record cannot be pickled, and so cannot be sent to the next operator; give it a "
    "class that a module defines, or send what it is made from"
)


class OperatorFailed(HoldfastError):
    """Leaves the chain of operators with a failure that is described already."""

    def __init__(self, failure: Failure) -> None:
        """Carry the description."""
        super().__init__(failure.error)
        self.failure = failure


class FailureReporter:
    """Describes the failures of one operator's function.

    Attributes:
        operator: its name.
        subtask: the index of the parallel instance.
    """

    def __init__(self, operator: str, subtask: int) -> None:
        """Remember whose failures they are."""
        self.operator = operator
        self.subtask = subtask

    def at(self, record: object, error: BaseException) -> NoReturn:
        """Raise for an exception while a record was processed."""
        _raise_ours(error)
        raise OperatorFailed(self._describe(shorten(record), error)) from error

    def during(self, phase: str | None, error: BaseException) -> NoReturn:
        """Raise for an exception outside of a record, such as in ``open``; None: it says where."""
        _raise_ours(error)
        where = "" if phase is None else f" in {phase}()"
        raise OperatorFailed(self._describe(None, error, where)) from error

    def sending(self, records: Sequence[object], error: Exception) -> NoReturn:
        """Raise for records that could not be pickled; names the first of them."""
        for record in records:
            try:
                pickle.dumps(record, 5)
            except Exception as cause:
                raise OperatorFailed(self._describe(shorten(record), cause, _NOT_SENT)) from cause
        raise error

    def _describe(self, record: str | None, error: BaseException, where: str = "") -> Failure:
        summary = "".join(traceback.format_exception_only(error)).strip()
        return Failure(
            operator=self.operator,
            subtask=self.subtask,
            record=record,
            error=f"{summary}{where}",
            traceback=_user_traceback(error),
            pickled=_pickled(error),
        )


def _raise_ours(error: BaseException) -> None:
    """An error about the state of an operator explains itself, wherever it comes up."""
    if isinstance(error, StateCorruptionError | StateMigrationError | StateMutationError):
        raise error


def shorten(record: object) -> str:
    """A ``repr`` that fits into a message and never raises."""
    try:
        text = repr(record)
    except Exception as error:
        text = f"<{type(record).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _RECORD_LIMIT else text[:_RECORD_LIMIT] + "…"


def describe_engine_error(error: HoldfastError) -> Failure:
    """One of our own errors, on its way to the driver; it explains itself."""
    trace = "".join(traceback.format_exception(error))
    return Failure(None, 0, None, str(error), trace, _pickled(error))


def to_exception(failure: Failure) -> HoldfastError:
    """The exception that the caller of ``execute`` gets."""
    if failure.operator is None:
        own = _unpickled(failure.pickled)
        return own if isinstance(own, HoldfastError) else JobExecutionError(failure.error)
    error = UserFunctionError(
        failure.operator, failure.subtask, failure.record, failure.error, failure.traceback
    )
    error.original = _unpickled(failure.pickled)
    return error


def _user_traceback(error: BaseException) -> str:
    """The traceback from the first frame that is not Holdfast's own."""
    frame: TracebackType | None = error.__traceback__
    while frame and frame.tb_next and frame.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame))


def _pickled(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error, 5)
        pickle.loads(data)
    except Exception:
        return None
    return data


def _unpickled(data: bytes | None) -> BaseException | None:
    try:
        return pickle.loads(data) if data else None
    except Exception:
        return None
