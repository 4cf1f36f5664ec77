"""Every exception that Holdfast raises on purpose.

HoldfastError
├── JobDefinitionError        the program is wrong; found before anything runs
│   ├── JobTypeError          a function or a value of the wrong kind; also a TypeError
│   ├── ConfigurationError    a setting has a value that cannot be used
│   └── PickleError           a function or a record cannot be shipped to the workers
├── JobExecutionError         the job ran and failed
│   ├── UserFunctionError     a user's function raised; carries operator, record and traceback
│   │   └── RepeatedFailureError  it raised on the same record after each restart
│   ├── JobCancelledError     somebody cancelled the job that was waited for
│   ├── SparkLostError        the JVM of the Spark driver has died
│   ├── DisagreementError     Spark computed a stage again, differently; the epoch is run again
│   └── InternalError         the engine itself broke a promise (please report it)
├── RowError                  (holdfast.datastream.formats.columns) a record does not fit
├── FileSystemError           (holdfast.filesystem) a file cannot be read or written
├── StateError                (holdfast.state.errors) saved state cannot be read or written
└── CheckpointError           (holdfast.checkpoint.errors) a checkpoint cannot be, or is in use

A message says what happened, where, what was found, and what to do about it.
"""

from __future__ import annotations

from holdfast.tracebacks import full_traceback, is_debugging, user_traceback


class HoldfastError(Exception):
    """Base of all of them."""

    def _render_traceback_(self) -> list[str]:
        """Return what a user sees: the user's own frames, and the message.

        IPython calls this, and so does Holdfast when the error ends a program.
        """
        shown = full_traceback(self) if is_debugging() else user_traceback(self, causes=False)
        return shown.splitlines()


class JobDefinitionError(HoldfastError, ValueError):
    """The graph that the program built cannot run; nothing was started."""


class JobTypeError(JobDefinitionError, TypeError):
    """A function, a stream or a value is not of the kind that a call takes."""


class ConfigurationError(JobDefinitionError):
    """A setting has a value that cannot be used; the message names its key."""


class PickleError(JobDefinitionError):
    """A function, or something it refers to, cannot be sent to the workers."""


class JobExecutionError(HoldfastError, RuntimeError):
    """The job failed while it ran."""


class JobCancelledError(JobExecutionError):
    """The job was cancelled before it came to an end."""


class SparkLostError(JobExecutionError):
    """The JVM of the Spark driver has died, so this process can run no job any more."""


class DisagreementError(JobExecutionError):
    """Subtasks consumed different runs of one producer, so their epoch cannot be accepted."""


class InternalError(JobExecutionError):
    """An invariant of the engine does not hold."""

    def _render_traceback_(self) -> list[str]:
        """Return all frames, which belong into a bug report."""
        return full_traceback(self).splitlines()


class UserFunctionError(JobExecutionError):
    """A user's function raised.

    Attributes:
        operator: the name of the operator whose function raised.
        subtask: the index of the parallel instance.
        record: a shortened ``repr`` of the record, or None outside of a record.
        user_traceback: the traceback, starting at the user's own frame.
        original: the user's exception itself, where it can be carried from the worker.
        transient: whether the cause is outside of the job and may pass, such as a lost connection.
    """

    original: BaseException | None = None
    transient: bool = False

    def __init__(
        self, operator: str, subtask: int, record: str | None, error: str, user_traceback: str
    ) -> None:
        """Make the message from its parts; the parts stay readable as attributes."""
        self.operator = operator
        self.subtask = subtask
        self.record = record
        self.error = error
        self.user_traceback = user_traceback
        where = f"operator '{operator}', subtask {subtask}"
        at = f"\n  record: {record}" if record is not None else ""
        super().__init__(f"{error}\n  in {where}{at}\n\n{user_traceback.rstrip()}")

    def __reduce__(self) -> tuple[type[UserFunctionError], tuple[object, ...]]:
        return (
            UserFunctionError,
            (self.operator, self.subtask, self.record, self.error, self.user_traceback),
        )


class RepeatedFailureError(UserFunctionError):
    """A user's function raised on the same record after each restart, so the job has ended."""

    def __init__(self, failure: UserFunctionError, advice: str) -> None:
        """Take the last failure, and what to do about it."""
        super().__init__(
            failure.operator,
            failure.subtask,
            failure.record,
            failure.error,
            failure.user_traceback,
        )
        self.original = failure.original
        self.advice = advice
        self.args = (f"{self.args[0]}\n\n{advice}",)

    def __reduce__(self) -> tuple[type[UserFunctionError], tuple[object, ...]]:
        parts = (self.operator, self.subtask, self.record, self.error, self.user_traceback)
        return (RepeatedFailureError, (UserFunctionError(*parts), self.advice))


def first_line(error: BaseException) -> str:
    """Return the first line of what an exception says; its name if it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
