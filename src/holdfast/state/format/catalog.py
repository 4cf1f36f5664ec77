"""The list of states in a checkpoint's metadata, available without reading state files."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.state.types.schema import Schema


class SavedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One state of one operator.

    Attributes:
        kind: the descriptor's kind for a keyed state; ``split``, ``union`` or ``broadcast`` for
            operator state.
        types: the schemas of its declared types; None for a type that was not declared.
        namespaced: whether it is kept per window.
        pickled: whether any of its values or keys is pickled.
        expires: whether it has a time-to-live. Its values are then pairs of a value and a time.
    """

    name: str
    kind: str
    types: tuple[Schema | None, ...]
    namespaced: bool = False
    pickled: bool = False
    expires: bool = False


def merged(states: Iterable[SavedState]) -> tuple[SavedState, ...]:
    """Return the states of all subtasks, each once, by name.

    A state that was written under several types, because not every subtask has used it since the
    type changed, is listed once for each type.
    """
    found: list[SavedState] = []
    for state in states:
        alike = [other for other in found if _unpickled(other) == _unpickled(state)]
        if not alike:
            found.append(state)
        elif state.pickled:
            found[found.index(alike[0])] = state
    return tuple(sorted(found, key=lambda state: state.name))


def _unpickled(state: SavedState) -> SavedState:
    return msgspec.structs.replace(state, pickled=False)
