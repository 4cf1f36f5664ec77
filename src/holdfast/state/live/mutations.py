"""`MutationWatch`: detects values of state that were changed in place and not saved.

This is a development mode (`holdfast.state.check-mutations`). Each value that a function reads from
a state, or writes to one, is encoded at that moment, and again after the record or timer has been
processed. If the bytes differ, the value was changed after it was read or saved. Such a change may
be visible to the next record and be lost later, so it raises an error that names the state and the
key.

Immutable values are not encoded. Neither are values that the state cannot save: they raise another
error at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.state.errors import StateMutationError
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.tables import is_immutable
from holdfast.state.types.serializers import EncodedColumn, Serializer

#: a remedy; the placeholder is how to save a value of the state
SAVE_OR_COPY: Final = "{} after the last change, or change a copy"
#: the longest text of a value or a key in a message, in characters
_LONGEST: Final = 80


@dataclass(frozen=True)
class WatchedState:
    """A state whose values are watched.

    Attributes:
        name: the name of the state in messages.
        what: the name of a value of it in messages.
        remedy: what to do about a change.
    """

    name: str
    what: str
    remedy: str
    serializer: Serializer

    def encode(self, value: Any) -> EncodedColumn | None:
        """Return the value as it would be saved; None if it is immutable or cannot be saved."""
        if is_immutable(value):
            return None
        try:
            return self.serializer.encode(self.serializer.shape([value]))
        except Exception:
            return None


@dataclass(frozen=True)
class ValuePlace:
    """The place of a value in a state: its key and, in a window, its namespace.

    ``keyed``: whether there is a key; broadcast state has no key.
    """

    state: WatchedState
    key: Any = None
    namespace: Any = None
    keyed: bool = True

    @property
    def id(self) -> tuple[str, Any, Any]:
        """Return the identity of the place within its operator; it is the same for all handles."""
        return self.state.name, self.key, self.namespace


@dataclass(frozen=True)
class _Handed:
    """A value that the function holds, and its encoded form when it was read or written."""

    place: ValuePlace
    #: the key of a map entry
    part: Any
    value: Any
    column: EncodedColumn

    def is_changed(self) -> bool:
        state, value = self.place.state, self.value
        if state.encode(value) == self.column:
            return False
        # NB: the order of a set or a dict may differ, and an object may have cached a result.
        if _has_equality(value) and _is_equal(self.before(), value):
            return False
        return state.encode(value) == state.encode(value)

    def before(self) -> Any:
        return self.place.state.serializer.decode(self.column)[0]


class MutationWatch:
    """The values that an operator's function holds while it handles one record or timer."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        #: by place, then by object: a function may hold several objects of one place
        self._handed: dict[tuple[str, Any, Any], dict[int, _Handed]] = {}

    def note(self, place: ValuePlace, value: Any, part: Any = None) -> None:
        """Watch a value that was read or written; if it is watched already, do nothing."""
        known = self._handed.setdefault(place.id, {})
        if id(value) in known:
            return
        column = place.state.encode(value)
        if column is not None:
            known[id(value)] = _Handed(place, part, value, column)

    def forget(self, place: ValuePlace) -> None:
        """Stop watching the values of a place, because they are no longer in the state."""
        self._handed.pop(place.id, None)

    def forget_part(self, place: ValuePlace, part: Any) -> None:
        """Stop watching the value of a map entry."""
        known = self._handed.get(place.id, {})
        for number in [number for number, one in known.items() if one.part == part]:
            del known[number]

    def check(self) -> None:
        """Stop watching all values, and raise a StateMutationError if one was changed."""
        if self._handed:
            handed = [one for known in self._handed.values() for one in known.values()]
            self.clear()
            for one in handed:
                if one.is_changed():
                    raise StateMutationError(self._describe(one))

    def clear(self) -> None:
        """Stop watching all values."""
        self._handed.clear()

    def _describe(self, one: _Handed) -> str:
        place, state = one.place, one.place.state
        part = "" if one.part is None else f" for {_short(one.part)}"
        key = f", key {_short(place.key)}" if place.keyed else ""
        return (
            f"operator '{self._operator}' changed the {state.what} of its state '{state.name}'"
            f"{part}{key} in place and did not save it: it was {_short(one.before())} and is "
            f"{_short(one.value)}; {state.remedy}"
        )


class WatchedKeyContext(KeyContext):
    """The key of an operator whose values of state are watched."""

    __slots__ = ("watch",)

    def __init__(self, watch: MutationWatch, thaw: Callable[[Any], Any] | None = None) -> None:
        super().__init__(thaw=thaw)
        self.watch = watch


def _has_equality(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__eq__ is not object.__eq__


def _is_equal(before: Any, value: Any) -> bool:
    try:
        return bool(before == value)
    except Exception:
        return False


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
