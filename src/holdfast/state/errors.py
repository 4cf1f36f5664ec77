"""The errors about state.

StateError
├── StateRegistrationError   a job declares one state in two ways
├── StateStorageError        a file cannot be read or written: missing, no space, no permission
├── StateCorruptionError     a file is damaged, cut short, foreign, or of a newer format
├── StateMigrationError      a state was saved in one way and is declared in another
├── PickledStateError        a state is pickled, and unpickling it was not allowed
├── StateMutationError       a value was changed in place and not saved; only if checks are on
├── StateTypeError           a value does not fit the type that its descriptor declares
└── StateLookupError         a requested operator or state does not exist
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError


class StateError(HoldfastError):
    """Base of all errors about state."""


class StateRegistrationError(StateError, ValueError):
    """A job declares one state in two ways."""


class StateStorageError(StateError, OSError):
    """A state file cannot be read or written; the cause is the operating system's error."""


class StateCorruptionError(StateError):
    """A state file does not contain what was written to it; the file must not be used."""


class StateMigrationError(StateError):
    """A state was saved in one way and is declared in another."""


class PickledStateError(StateError):
    """A state of another job is pickled, and unpickling it was not allowed."""


class StateMutationError(StateError):
    """A value of a state was changed in place, and not written to the state afterwards."""


class StateTypeError(StateError, TypeError):
    """A value in a state does not fit the type that its descriptor declares."""


class StateLookupError(StateError, LookupError):
    """There is no such operator or state."""


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Convert any error while decoding saved bytes into a StateCorruptionError that names them.

    Use it around decoding code only: any error that is raised inside is attributed to the bytes.
    Holdfast's own errors are not converted, since they are more specific.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise undecodable(what, error) from error


def undecodable(what: str, error: Exception) -> HoldfastError:
    """Return the error to raise when decoding saved bytes has failed with another error."""
    if isinstance(error, HoldfastError):
        return error
    problem = f"{type(error).__name__}: {error}"
    return StateCorruptionError(
        f"{what} cannot be used: its contents are not in Holdfast's format: {problem}"
    )
