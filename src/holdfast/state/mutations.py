"""`MutationWatch`: finds values of state that were changed in place and not saved.

A development mode (`holdfast.state.check-mutations`): each value that a function got from a state,
or passed to one, is encoded at that moment, and again when the record or timer is done. If the
bytes differ, the value was changed after it was read, or after it was saved. Such a change may be
seen by the next record and be lost later, so it is an error that names the state and the key.

Values that cannot change are not encoded. Neither are those that the state could not save: that is
an error of its own, at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.state.errors import StateMutationError
from holdfast.state.serializers import Column, Serializer
from holdfast.state.tables import is_immutable
from holdfast.state.views import KeyContext

__all__ = ["SAVE_OR_COPY", "MutationWatch", "Place", "WatchedKeyContext", "WatchedState"]

#: a remedy, with how a value of the state is saved
SAVE_OR_COPY: Final = "{} after the last change, or change a copy"
#: characters of a value, or of a key, in a message
_LONGEST: Final = 80


@dataclass(frozen=True)
class WatchedState:
    """A state whose values are watched.

    Attributes:
        name: how a message calls the state.
        what: how it calls a value of it.
        remedy: what to do about a change.
    """

    name: str
    what: str
    remedy: str
    serializer: Serializer

    def encode(self, value: Any) -> Column | None:
        """Return what would be saved of a value; None if it cannot change, or be saved."""
        if is_immutable(value):
            return None
        try:
            return self.serializer.encode(self.serializer.shape([value]))
        except Exception:
            return None


@dataclass(frozen=True)
class Place:
    """Where in a state a value is: that of a key and, in a window, of a namespace.

    ``keyed``: whether there is a key; broadcast state has none.
    """

    state: WatchedState
    key: Any = None
    namespace: Any = None
    keyed: bool = True

    @property
    def id(self) -> tuple[str, Any, Any]:
        """Return what tells places of one operator apart, however many handles there are."""
        return self.state.name, self.key, self.namespace


@dataclass(frozen=True)
class _Handed:
    """A value that the function holds, as it would have been saved when it was read or written."""

    place: Place
    #: the key of a map entry
    part: Any
    value: Any
    column: Column

    def is_changed(self) -> bool:
        state, value = self.place.state, self.value
        if state.encode(value) == self.column:
            return False
        # NB: a set or a dict may have another order, and an object may keep what it computed.
        if _has_equality(value) and _is_equal(self.before(), value):
            return False
        return state.encode(value) == state.encode(value)

    def before(self) -> Any:
        return self.place.state.serializer.decode(self.column)[0]


class MutationWatch:
    """The values that an operator's function holds while it handles one record or timer."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        #: by place, and there by object: a function may hold several of one place
        self._handed: dict[tuple[str, Any, Any], dict[int, _Handed]] = {}

    def note(self, place: Place, value: Any, part: Any = None) -> None:
        """Watch a value that was read or written; of one that is watched, the first time counts."""
        known = self._handed.setdefault(place.id, {})
        if id(value) in known:
            return
        column = place.state.encode(value)
        if column is not None:
            known[id(value)] = _Handed(place, part, value, column)

    def forget(self, place: Place) -> None:
        """Stop watching the values of a place, which are in the state no more."""
        self._handed.pop(place.id, None)

    def forget_part(self, place: Place, part: Any) -> None:
        """Stop watching the value of a map entry."""
        known = self._handed.get(place.id, {})
        for number in [number for number, one in known.items() if one.part == part]:
            del known[number]

    def check(self) -> None:
        """Raise a StateMutationError if a value was changed; then begin anew."""
        if self._handed:
            handed = [one for known in self._handed.values() for one in known.values()]
            self.clear()
            for one in handed:
                if one.is_changed():
                    raise StateMutationError(self._describe(one))

    def clear(self) -> None:
        """Begin anew."""
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
