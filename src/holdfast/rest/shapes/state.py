"""The responses about state, which Flink does not have."""

# ruff: noqa: D101 - the fields are those of Flink, and documented there

from __future__ import annotations

from typing import Any

from holdfast.rest.shapes.jobs import Kebab


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
    """The contents of a checkpoint; by default of the last retained one."""

    checkpoint: int | None
    timestamp: int | None
    size: int
    operators: list[OperatorStates]


class StateValue(Kebab, frozen=True):
    """The value of a key in a state as of the last epoch; `found` is false if there is none."""

    operator: str
    state: str
    key: Any
    found: bool
    value: Any


class StateRow(Kebab, frozen=True):
    """An entry of a state. Key, window and value are JSON texts, which are cut if they are long.

    A list of operator state has no keys; `subtask` is the subtask that an element belongs to.
    `accessed` is when a value with a time-to-live was last used.
    """

    key: str | None
    window: str | None
    value: str
    subtask: int | None
    accessed: Any


class StateEntries(Kebab, frozen=True):
    """Some entries of a state in a checkpoint; the next ones are `after` the place in `next`."""

    checkpoint: int
    timestamp: int
    operator: str
    state: str
    rows: list[StateRow]
    next: str | None


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
