"""Turns an exception in a user's function into a message that names operator, record and line.

A failure is sent to the driver as data, not as a failed Spark task. Spark would run the task again,
which would fail again, and would bury the user's line under its own stack trace.
"""

from __future__ import annotations

import inspect
import pickle
import re
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from holdfast.common.callables import described, place_of, with_place
from holdfast.datastream.formats.columns import RowError
from holdfast.datastream.functions.base import WrappingFunction
from holdfast.errors import HoldfastError, JobExecutionError, UserFunctionError
from holdfast.runtime.wire.protocol import Failure
from holdfast.state.errors import StateCorruptionError, StateMigrationError, StateMutationError
from holdfast.tracebacks import full_traceback, is_debugging, name_cells, user_traceback

_RECORD_LIMIT = 300
#: how many causes of an exception are looked at; they may form a circle
_LONGEST_CHAIN = 20
#: names of exceptions about a service that is away; OperationalError and InterfaceError are those
#: of Python's database interface (PEP 249)
_TRANSIENT = re.compile("Timeout|Connect|Unavailable|^OperationalError$|^InterfaceError$")
_NOT_SENT = (
    "\n  this record cannot be pickled, and so cannot be sent to the next operator; define "
    "its class in a module, or send the data that it is made from"
)


class OperatorFailed(HoldfastError):
    """Ends the processing of a chain, with a description of the failure."""

    def __init__(self, failure: Failure) -> None:
        """Take the description."""
        super().__init__(failure.error)
        self.failure = failure


class FailureReporter:
    """Describes the failures of one operator's function.

    Attributes:
        operator: its name.
        subtask: the index of the parallel instance.
    """

    def __init__(self, operator: str, subtask: int) -> None:
        """Take the operator and the subtask whose failures are described."""
        self.operator = operator
        self.subtask = subtask

    def at(self, record: object, error: BaseException) -> NoReturn:
        """Raise a failure for an exception while a record was processed."""
        _raise_ours(error)
        raise OperatorFailed(self._describe(shorten(record), error)) from error

    def during(self, phase: str | None, error: BaseException) -> NoReturn:
        """Raise a failure for an exception in a phase, as ``open``; None: the error says where."""
        _raise_ours(error)
        where = "" if phase is None else f" in {phase}()"
        raise OperatorFailed(self._describe(None, error, where)) from error

    def at_timer(
        self, phase: str | None, key: object, timestamp: int, error: BaseException
    ) -> NoReturn:
        """Raise a failure for an exception in the call for a timer, which takes a record's place.

        ``phase``: the method; None: the error says where, as in a window function.
        """
        _raise_ours(error)
        where = "" if phase is None else f" in {phase}()"
        timer = f"the timer of key {shorten(key)} for {timestamp}"
        raise OperatorFailed(self._describe(timer, error, where)) from error

    def sending(self, records: Sequence[object], error: Exception) -> NoReturn:
        """Raise a failure for records that could not be pickled; it names the first of them."""
        for record in records:
            try:
                pickle.dumps(record, 5)
            except Exception as cause:
                raise OperatorFailed(self._describe(shorten(record), cause, _NOT_SENT)) from cause
        raise error

    def _describe(self, record: str | None, error: BaseException, where: str = "") -> Failure:
        summary = "".join(traceback.format_exception_only(error)).strip()
        if isinstance(error, RowError):  # found when records were converted, many at a time
            record = shorten(error.record)
        if isinstance(error, HoldfastError):  # its message is complete
            summary, where = str(error), where and f"\n {where}"
        return Failure(
            operator=self.operator,
            subtask=self.subtask,
            record=record,
            error=f"{summary}{where}",
            traceback=user_traceback(error, place=place_of(error)),
            pickled=_pickled(error),
            all_frames=full_traceback(error),
            transient=is_transient(error),
        )


def _raise_ours(error: BaseException) -> None:
    """Raise an error about the state of an operator as it is, since its message is complete."""
    if isinstance(error, StateCorruptionError | StateMigrationError | StateMutationError):
        raise error


def is_transient(error: BaseException | None) -> bool:
    """Return whether an exception says that something outside of the job did not answer.

    Such are all errors of the operating system, such as lost connections and timeouts, and
    exceptions of client libraries that are named after them; also as the cause of another one.
    """
    for _ in range(_LONGEST_CHAIN):
        if error is None:
            return False
        names = (kind.__name__ for kind in type(error).__mro__)
        if isinstance(error, OSError) or any(map(_TRANSIENT.search, names)):
            return True
        error = error.__cause__ or error.__context__
    return False


def shorten(record: object) -> str:
    """Return a ``repr`` that fits into a message; never raise."""
    try:
        text = repr(record)
    except Exception as error:
        text = f"<{type(record).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _RECORD_LIMIT else text[:_RECORD_LIMIT] + "…"


def results_of(function: Any, results: Any) -> Iterable[Any]:
    """Return the results of a function that may give any number of them, as an iterable.

    Raises:
        TypeError: if they are not iterable.
    """
    if results is None:
        return ()
    if not is_iterable(results):
        raise not_iterable(function, results)
    return results  # type: ignore[no-any-return]


def is_iterable(value: Any) -> bool:
    """Return whether a loop over a value is possible."""
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")


def not_iterable(function: Any, results: Any) -> TypeError:
    """Return the error for a function that returned something else than an iterable of results."""
    function = inspect.unwrap(function)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, WrappingFunction):
        function = owner.wrapped()[0]
    message = (
        f"{described(function)} returned {shorten(results)} ({type(results).__name__}), which is "
        "not an iterable of results; yield each result, or return a list of results or None"
    )
    return with_place(TypeError(message), function)


def describe_engine_error(error: HoldfastError) -> Failure:
    """Return the failure for one of Holdfast's own errors, whose message is complete."""
    return Failure(None, 0, None, str(error), full_traceback(error), _pickled(error))


def to_exception(failure: Failure) -> HoldfastError:
    """Return the exception that ``execute`` raises for a failure."""
    if failure.operator is None:
        own = _unpickled(failure.pickled)
        return own if isinstance(own, HoldfastError) else JobExecutionError(failure.error)
    trace = failure.all_frames if is_debugging() else failure.traceback
    error = UserFunctionError(
        failure.operator, failure.subtask, failure.record, failure.error, name_cells(trace)
    )
    error.original = _unpickled(failure.pickled)
    error.transient = failure.transient
    return error


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
