"""Comparison of two savepoints: additions, removals and changes, state by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.savepoint.arrow_columns import ArrowColumn, column_of
from holdfast.savepoint.data import StateData
from holdfast.savepoint.lookup import states_of
from holdfast.savepoint.readers import (
    Batch,
    HeadPart,
    KeyedReader,
    OperatorStateReader,
    Reader,
    parts_of,
)
from holdfast.savepoint.savepoint import Savepoint
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.head import Head
from holdfast.state.live.operator_state import BROADCAST, MODES
from holdfast.state.names import StateId
from holdfast.state.saved_entries import key_of
from holdfast.state.storage.directory import StateStorage
from holdfast.state.types.schema import Plain

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"


@dataclass(frozen=True)
class StateChanges:
    """The changes of a state between two savepoints.

    Attributes:
        windowed: whether it is kept per key and window.
        added, removed, changed: the number of keys, or of elements of a list of operator state.
        rows: each change: ``key`` (not for lists), ``window`` if it is kept per window, ``change``,
            ``before`` and ``after``.
    """

    operator: str
    state: str
    windowed: bool
    added: int
    removed: int
    changed: int
    rows: StateData = field(compare=False, repr=False)

    def __bool__(self) -> bool:
        """Return whether there are any changes."""
        return bool(self.added or self.removed or self.changed)


#: operator, state, whether it is windowed, whether it is keyed
_Place = tuple[str, str, bool, bool]


def compare(before: Savepoint, after: Savepoint) -> list[StateChanges]:
    """Return the changes of each state that is in one of them, sorted by operator and name.

    Operators are identified by their uids. Access times are ignored. All states are held in memory;
    for larger ones compare the DataFrames.
    """
    old, new = _states(before), _states(after)
    return [
        _compare(place, (before, old.get(place)), (after, new.get(place)))
        for place in sorted(old.keys() | new.keys())
    ]


def _states(savepoint: Savepoint) -> dict[_Place, SavedState]:
    return {
        (uid, state.name, state.namespaced, state.kind not in MODES): state
        for uid, image in savepoint.image.metadata.operators.items()
        for state in states_of(image)
    }


_Side = tuple[Savepoint, SavedState | None]


def _compare(place: _Place, before: _Side, after: _Side) -> StateChanges:
    uid, name, windowed, keyed = place
    saved = after[1] or before[1]
    assert saved is not None
    is_list = not keyed and saved.kind != BROADCAST
    old, new = _values(uid, *before), _values(uid, *after)
    rows = list(_list_changes(old, new) if is_list else _changes(old, new, windowed))
    counts = Counter(row["change"] for row in rows)
    newer = after if after[1] else before
    reader = _reader(uid, *newer)
    data = StateData(
        f"changes of state {name!r} of operator {uid!r}",
        newer[0].image.storage,
        _Rows(tuple(rows), _columns(reader, is_list)),
        [HeadPart(0, Head())],
    )
    return StateChanges(uid, name, windowed, counts[ADDED], counts[REMOVED], counts[CHANGED], data)


def _reader(uid: str, savepoint: Savepoint, saved: SavedState | None) -> Reader:
    assert saved is not None
    if saved.kind in MODES:
        return OperatorStateReader(uid, saved, savepoint.trusted)
    key_type = savepoint.image.metadata.operators[uid].key_type
    return KeyedReader(
        StateId(uid, saved.name, saved.namespaced), saved, key_type, savepoint.trusted
    )


def _values(uid: str, savepoint: Savepoint, saved: SavedState | None) -> list[dict[str, Any]]:
    if saved is None:
        return []
    reader = _reader(uid, savepoint, saved)
    parts = parts_of(savepoint.image.metadata.operators[uid], savepoint.heads(uid), False)
    return StateData("", savepoint.image.storage, reader, parts).to_pylist()


def _changes(
    old: list[dict[str, Any]], new: list[dict[str, Any]], windowed: bool
) -> Iterator[dict[str, Any]]:
    names = ("key", "window") if windowed else ("key",)

    def by_place(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
        return {tuple(key_of(row[name]) for name in names): row for row in rows}

    first, second = by_place(old), by_place(new)
    for place in first.keys() | second.keys():
        one, other = first.get(place), second.get(place)
        if one and other and one["value"] == other["value"]:
            continue
        change = CHANGED if one and other else ADDED if other else REMOVED
        row = one or other or {}
        yield {
            **{name: row[name] for name in names},
            "change": change,
            "before": one["value"] if one else None,
            "after": other["value"] if other else None,
        }


def _list_changes(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the changes of a list; the subtask and the order of elements are ignored."""
    before = Counter(_comparable(row["value"]) for row in old)
    after = Counter(_comparable(row["value"]) for row in new)
    for element in (before - after).elements():
        yield {"change": REMOVED, "before": element, "after": None}
    for element in (after - before).elements():
        yield {"change": ADDED, "before": None, "after": element}


def _comparable(value: Any) -> Any:
    try:
        hash(value := key_of(value))
    except TypeError:
        return repr(value)
    return value


def _columns(reader: Reader, is_list: bool) -> dict[str, ArrowColumn | None]:
    declared = reader.columns
    names = [] if is_list else [name for name in declared if name in ("key", "window")]
    return {
        **{name: declared[name] for name in names},
        "change": column_of(Plain(kind="string")),
        "before": declared["value"],
        "after": declared["value"],
    }


@dataclass(frozen=True)
class _Rows:
    """Rows that are already in memory."""

    rows: tuple[dict[str, Any], ...]
    columns: Mapping[str, ArrowColumn | None]

    def read(self, storage: StateStorage, part: HeadPart) -> Iterator[Batch]:
        if self.rows:
            yield [[row[name] for row in self.rows] for name in self.columns]
