"""What the API answers of state, field by field; Flink has nothing of this."""

# ruff: noqa: D101 - the fields are those of Flink, and documented there

from __future__ import annotations

from typing import Any

from holdfast.rest.shapes import Kebab


class StateEntry(Kebab, frozen=True):
    name: str
    kind: str
    type: str
    keyed: bool
    windowed: bool
    expires: bool
    pickled: bool
    internal: bool
    entries: int | None
    bytes: int | None


class OperatorStates(Kebab, frozen=True):
    uid: str
    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    key_type: str
    stateful: bool
    states: list[StateEntry]


class StateOverview(Kebab, frozen=True):
    """What a checkpoint holds; by default the last one that is kept."""

    checkpoint: int | None
    timestamp: int | None
    size: int
    operators: list[OperatorStates]


class StateValue(Kebab, frozen=True):
    """What a key has in a state as of the last epoch; `found` is false if it has nothing."""

    operator: str
    state: str
    key: Any
    found: bool
    value: Any


class StateChange(Kebab, frozen=True):
    change: str
    key: Any
    window: Any
    before: Any
    after: Any


class StateDifference(Kebab, frozen=True):
    operator: str
    state: str
    windowed: bool
    added: int
    removed: int
    changed: int
    rows: list[StateChange]


class Comparison(Kebab, frozen=True):
    before: int
    after: int
    states: list[StateDifference]
    truncated: bool
