"""Reads the state of one key while the job runs, as of the last accepted epoch.

If the subtasks of the engine keep their state, the subtask that has the key is queried instead.

The driver knows the heads of all states. A key is in one of them, and in few chunks of its files.
Files of a head may be deleted as soon as there is a newer head. A read that does not find a file
starts again with the newer head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.driver.engine import Engine
from holdfast.driver.epoch_book import EpochBook
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.operators.windows.contexts import namespace_of
from holdfast.runtime.timer_queue import TIMER_STATES
from holdfast.state.errors import StateLookupError, StateStorageError
from holdfast.state.format.files import Section
from holdfast.state.format.head import Head
from holdfast.state.format.stored_files import read_file
from holdfast.state.key_groups import key_group, subtask_of
from holdfast.state.live.ttl.pairs import split_times
from holdfast.state.names import StateId
from holdfast.state.saved_entries import read_entries
from holdfast.state.storage.directory import ReadableStorage, StateStorage
from holdfast.state.types.harmless import harmless_loads
from holdfast.state.types.key_forms import key_form
from holdfast.state.types.serializers import Loads
from holdfast.state.types.unpickling import unpickle

#: maximum number of reads; each is repeated because another epoch was accepted in the meantime
_TRIES: Final = 50


class _Heads(NamedTuple):
    """The heads with the state of a key, and those with the state of all keys of its operator."""

    storage: StateStorage
    likely: tuple[Head, ...]
    all: tuple[Head, ...]
    loads: Loads


def query_state(
    book: EpochBook, storage: StateStorage, operator: str, state: str, key: Any, window: Any = None
) -> Any:
    """Return the value of a key in a state, as a plain value; None if it has none.

    Raises:
        StateLookupError: when there is no such operator, or it has saved no such state.
        StateStorageError: when the state cannot be read.
        TypeError: when the key is not of the operator's key type.
    """
    op = _operator(book.plan, operator)
    key = _kept(op, key)
    for _ in range(_TRIES):
        heads = _heads(book, storage, op, key)
        try:
            return _read(heads, op, state, key, window)
        except StateStorageError:
            if _heads(book, storage, op, key).all == heads.all:
                raise
    message = (
        f"state {state!r} of operator '{op.name}' could not be read: it was replaced "
        f"during each of {_TRIES} reads; try again, or take a savepoint and read that"
    )
    raise StateStorageError(message)


def ask_subtask(
    engine: Engine, plan: Plan, operator: str, state: str, key: Any, window: Any = None
) -> Any:
    """Return the value of a key in a state now, on an engine whose subtasks keep their state.

    Raises:
        StateLookupError: when there is no such operator, or it has no such state.
        StateStorageError: when the subtask cannot be reached.
        TypeError: when the key is not of the operator's key type.
    """
    op = _operator(plan, operator)
    kept = _kept(op, key)
    return engine.query(op.level, _owner(op, kept), op.uid, state, kept, window)


def _owner(op: PlannedOperator, key: Any) -> int:
    """Return the number of the subtask that has a key."""
    return subtask_of(key_group(key, op.max_parallelism), op.parallelism, op.max_parallelism)


def _operator(plan: Plan, name: str) -> PlannedOperator:
    operators = plan.operators.values()
    found = [op for op in operators if op.uid == name] or [
        op for op in operators if op.name == name
    ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(f"'{op.uid}' ({op.name})" for op in operators))
    count = "no operator has" if not found else f"{len(found)} operators have"
    message = f"{count} the uid or name '{name}'; there are {known}"
    raise StateLookupError(message)


def _kept(op: PlannedOperator, key: Any) -> Any:
    """Return a key in the form in which it is stored."""
    form = key_form(getattr(op.node.operation, "key_type", None))
    try:
        return key if form is None else form.freeze(key)
    except ValueError as error:
        raise TypeError(str(error)) from None


def _heads(book: EpochBook, storage: StateStorage, op: PlannedOperator, key: Any) -> _Heads:
    heads = tuple(book.heads[op.level][: op.parallelism])
    if book.origin is not None and book.unproven and not any(head.files for head in heads):
        # Only the state that the attempt starts from: subtasks have not read their share of it yet.
        origin = book.origin
        if origin.directory:
            storage = storage.elsewhere(origin.directory)
        saved = origin.heads(op.uid)
        return _Heads(storage, saved, saved, unpickle if origin.trusted else harmless_loads)
    own = _owner(op, key)
    return _Heads(storage, heads[own : own + 1], heads, unpickle)


def _read(heads: _Heads, op: PlannedOperator, state: str, key: Any, window: Any) -> Any:
    groups = key_group(key, op.max_parallelism)
    for head in heads.likely:
        storage = _ReadOnce(heads.storage)
        found = _find(_headers(storage, [head], op.uid), state, window)
        if found is None:
            continue
        place = (key, namespace_of(window)) if found.namespaced else key
        state_id = StateId(op.uid, state, found.namespaced)
        near = range(groups, groups + 1)
        for keys, values in read_entries(storage, head, state_id, near, heads.loads):
            if place in keys:
                entry = values[keys.index(place)]
                return split_times(found.kind, entry)[0] if found.expires else entry
    known = list(_headers(heads.storage, heads.all, op.uid))
    if _find(known, state, window) is None:
        states = {section.state for section in known} - set(TIMER_STATES.values())
        names = ", ".join(map(repr, sorted(states)))
        message = (
            f"operator '{op.name}' has saved no state {state!r}; as of the last epoch it has "
            f"{names or 'none'}"
        )
        raise StateLookupError(message)
    return None


def _headers(storage: ReadableStorage, heads: Iterable[Head], uid: str) -> Iterator[Section]:
    """Yield the sections of files with states of an operator."""
    for head in heads:
        for ref in head.files:
            for section in read_file(storage, ref.name, ref.size).sections:
                if section.operator == uid:
                    yield section


def _find(sections: Iterable[Section], state: str, window: Any) -> Section | None:
    """Return a section of a state; with ``window`` prefer the state by window, if two share a name.

    Without ``window`` the other one is preferred.
    """
    found = {section.namespaced: section for section in sections if section.state == state}
    return found.get(window is not None) or next(iter(found.values()), None)


class _ReadOnce:
    """State files, each of which is read at most once for a query."""

    def __init__(self, storage: StateStorage) -> None:
        self._storage = storage
        self._read: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        if name not in self._read:
            self._read[name] = self._storage.read(name)
        return self._read[name]
