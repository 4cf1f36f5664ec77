"""Descriptions of the operators and states of a savepoint, without values."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.state.format.catalog import SavedState
from holdfast.state.live.operator_state import MODES
from holdfast.state.live.sections import kind_name
from holdfast.state.types.schema import describe


@dataclass(frozen=True)
class StateInfo:
    """A state of an operator.

    Attributes:
        kind: ``ValueState``, ``ListState`` and so on; ``split``, ``union`` or ``broadcast`` for
            operator state.
        type: the type that it was saved with, for display.
        keyed: whether it is kept per key.
        windowed: whether it is kept per key and window.
        expires: whether it has a time-to-live.
        pickled: whether any of its values or keys is pickled.
        internal: whether it belongs to the runtime, such as timers and the contents of windows.
    """

    name: str
    kind: str
    type: str
    keyed: bool = True
    windowed: bool = False
    expires: bool = False
    pickled: bool = False
    internal: bool = False


@dataclass(frozen=True)
class OperatorInfo:
    """An operator and its states.

    Attributes:
        key_type: the declared type of its keys, for display.
        stateful: whether a job that starts from the savepoint must have this operator.
    """

    uid: str
    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    key_type: str
    stateful: bool
    states: tuple[StateInfo, ...]


@dataclass(frozen=True)
class StateSize:
    """The size of a state.

    Attributes:
        entries: keys, or keys and windows, of keyed state; elements of operator state.
        bytes: its size in the files before compression, including overwritten values.
        keyed: whether it is kept per key.
    """

    operator: str
    state: str
    windowed: bool
    entries: int
    bytes: int
    keyed: bool = True


def operator_info(uid: str, image: OperatorImage) -> OperatorInfo:
    """Return the description of an operator."""
    return OperatorInfo(
        uid,
        image.name,
        image.kind,
        image.parallelism,
        image.max_parallelism,
        describe(image.key_type),
        image.stateful,
        tuple(map(_state_info, image.states)),
    )


def _state_info(state: SavedState) -> StateInfo:
    keyed = state.kind not in MODES
    return StateInfo(
        name=state.name,
        kind=kind_name(state.kind, expires=False) if keyed else state.kind,
        type=", ".join(map(describe, state.types)),
        keyed=keyed,
        windowed=state.namespaced,
        expires=state.expires,
        pickled=state.pickled,
        internal=state.name.startswith("\0"),
    )
