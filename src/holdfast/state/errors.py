"""What can go wrong with saved state.

StateError
├── StateRegistrationError   a job declares one state in two ways
├── StateStorageError        a file cannot be read or written: missing, no space, no permission
├── StateCorruptionError     a file is damaged, cut short, foreign, or of a newer format
├── StateMigrationError      a state was saved in one way and is declared in another
├── PickledStateError        a state is pickled, and nobody has said that it may be unpickled
├── StateMutationError       a value was changed in place and not saved; found on request only
├── StateTypeError           a value does not fit the type that its descriptor declares
└── StateLookupError         somebody asks for an operator or a state that is not there
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
    """A state file cannot be read or written; the cause is the system's own error."""


class StateCorruptionError(StateError):
    """A state file does not hold what was written; the file must not be used."""


class StateMigrationError(StateError):
    """A state was saved in one way and is declared in another."""


class PickledStateError(StateError):
    """A state of another job's is pickled, and nobody has said that it may be unpickled."""


class StateMutationError(StateError):
    """A value of a state was changed in place, and not passed to the state afterwards."""


class StateTypeError(StateError, TypeError):
    """A value in a state does not fit the type that its descriptor declares."""


class StateLookupError(StateError, LookupError):
    """There is no such operator or state."""


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn any error of decoding saved bytes into a StateCorruptionError that names them.

    Only code that decodes belongs inside: whatever it raises is a property of the bytes. Errors of
    Holdfast's own pass, since they say more.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise undecodable(what, error) from error


def undecodable(what: str, error: Exception) -> HoldfastError:
    """Return the error to raise where decoding saved bytes has raised one."""
    if isinstance(error, HoldfastError):
        return error
    problem = f"{type(error).__name__}: {error}"
    return StateCorruptionError(
        f"{what} cannot be used: it does not hold what Holdfast writes: {problem}"
    )
