"""What a checkpoint says of its states without their files being read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.state.schema import Schema

__all__ = ["SavedState", "merged"]


class SavedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One state of one operator.

    Attributes:
        kind: that of the descriptor of a keyed state; ``split``, ``union`` or ``broadcast`` for
            operator state.
        types: the schemas of the types that it was declared with; None for one that was not.
        namespaced: whether it is kept by window.
        pickled: whether there is something pickled in it, keys among it.
        expires: whether it has a time-to-live: its values are pairs then, with a time each.
    """

    name: str
    kind: str
    types: tuple[Schema | None, ...]
    namespaced: bool = False
    pickled: bool = False
    expires: bool = False


def merged(states: Iterable[SavedState]) -> tuple[SavedState, ...]:
    """Return the states of all subtasks, each once, by name.

    A state that was written under several types, since not every subtask has asked for it yet, is
    there with each.
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
