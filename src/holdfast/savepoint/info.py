"""What a savepoint says of its operators and states without their values."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.state.catalog import SavedState
from holdfast.state.operator_state import MODES
from holdfast.state.schema import describe
from holdfast.state.sections import kind_name

__all__ = ["OperatorInfo", "StateInfo", "StateSize", "operator_info"]


@dataclass(frozen=True)
class StateInfo:
    """A state of an operator.

    Attributes:
        kind: ``ValueState``, ``ListState`` and so on; ``split``, ``union`` or ``broadcast`` for
            operator state.
        type: the type that it was saved with, for people.
        keyed: whether it is kept by key.
        windowed: whether it is kept by key and window.
        expires: whether it has a time-to-live.
        pickled: whether something in it is pickled, keys among it.
        internal: it is the runtime's own, such as timers and the contents of windows.
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
    """An operator, with the states it has.

    Attributes:
        key_type: the type that its keys were declared with, for people.
        stateful: whether a job that starts from this must have it.
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
    """How much there is of a state.

    Attributes:
        entries: keys, or keys and windows, of keyed state; elements of operator state.
        bytes: what it takes in the files before they are compressed, with what was overwritten.
        keyed: whether it is kept by key.
    """

    operator: str
    state: str
    windowed: bool
    entries: int
    bytes: int
    keyed: bool = True


def operator_info(uid: str, image: OperatorImage) -> OperatorInfo:
    """Return what a savepoint says of an operator."""
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
