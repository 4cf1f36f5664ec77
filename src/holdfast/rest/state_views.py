"""State, as the API answers it: what checkpoints hold, what a key has, how two checkpoints differ.

A checkpoint is named by its number, never by a path: it must be one that the job has told of. What
is pickled in it is looked at without running any of its code.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.history.events import CheckpointSeen
from holdfast.history.job import JobHistory
from holdfast.rest import state_shapes
from holdfast.rest.errors import Answer
from holdfast.rest.site import ServedJob
from holdfast.savepoint import OperatorInfo, Savepoint, StateSize, compare
from holdfast.state.errors import StateLookupError

__all__ = ["compared", "looked_up", "states"]

#: larger checkpoints are not read for a client: all of them would be in the driver's memory
_LARGEST: Final = 64 << 20
_MOST_ROWS: Final = 200
_LONGEST_TEXT: Final = 4000
_DEEPEST: Final = 20
#: both sides of a comparison are in memory meanwhile
_one_at_a_time = threading.Lock()


def states(job: ServedJob, checkpoint: int | None) -> state_shapes.StateOverview:
    """What a checkpoint holds; by default the last one that is there."""
    seen = job.history.look(lambda history: _kept(history, checkpoint))
    if seen is None:
        return state_shapes.StateOverview(None, None, 0, [])
    saved = _read(seen)
    sizes = _sizes(saved.path) if saved.size <= _LARGEST else ()
    by_state = {(size.operator, size.state, size.windowed): size for size in sizes}
    return state_shapes.StateOverview(
        checkpoint=seen.id,
        timestamp=seen.triggered,
        size=seen.size,
        operators=[_operator(operator, by_state) for operator in saved.operators.values()],
    )


@lru_cache(maxsize=8)
def _sizes(path: str) -> tuple[StateSize, ...]:
    """What a checkpoint holds never changes, and no other one gets its path."""
    return tuple(Savepoint.read(path).sizes())


def _kept(history: JobHistory, checkpoint: int | None) -> CheckpointSeen | None:
    """A checkpoint that was completed and is still there."""
    there = {
        seen.id: seen
        for seen in history.checkpoints.values()
        if seen.status == "COMPLETED" and (seen.savepoint or seen.id in history.retained)
    }
    if checkpoint is not None:
        if checkpoint not in there:
            known = ", ".join(map(str, sorted(there))) or "none"
            raise Answer(404, f"there is no checkpoint {checkpoint} any more; there are {known}")
        return there[checkpoint]
    return there[max(there)] if there else None


def _checkpoint(job: ServedJob, checkpoint: int) -> CheckpointSeen:
    seen = job.history.look(lambda history: _kept(history, checkpoint))
    assert seen is not None
    return seen


def _read(seen: CheckpointSeen) -> Savepoint:
    if seen.path is None:
        raise Answer(404, f"nobody knows where checkpoint {seen.id} is")
    return Savepoint.read(seen.path)


def _operator(
    operator: OperatorInfo, sizes: Mapping[tuple[str, str, bool], StateSize]
) -> state_shapes.OperatorStates:
    entries = []
    for state in operator.states:
        size = sizes.get((operator.uid, state.name, state.windowed))
        entries.append(
            state_shapes.StateEntry(
                name=state.name.removeprefix("\0"),
                kind=state.kind,
                type=state.type,
                keyed=state.keyed,
                windowed=state.windowed,
                expires=state.expires,
                pickled=state.pickled,
                internal=state.internal,
                entries=None if size is None else size.entries,
                bytes=None if size is None else size.bytes,
            )
        )
    return state_shapes.OperatorStates(
        uid=operator.uid,
        name=operator.name,
        kind=operator.kind,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        key_type=operator.key_type,
        stateful=operator.stateful,
        states=entries,
    )


def looked_up(job: ServedJob, query: Mapping[str, Any]) -> state_shapes.StateValue:
    """What a key has in a state of the running job."""
    operator, state = query["operator"], query["state"]
    key, window = _given(query["key"], "key"), _given(query.get("window"), "window")
    try:
        value = job.query_state(operator, state, key, window)
    except StateLookupError as error:
        raise Answer(404, str(error)) from None
    except TypeError as error:
        raise Answer(400, f"{query['key'][:100]!r} cannot be a key: {error}") from None
    return state_shapes.StateValue(operator, state, plain(key), value is not None, plain(value))


def _given(text: str | None, what: str) -> Any:
    """A key as JSON; a list is what a tuple is there."""
    if text is None:
        return None
    try:
        return _hashable(msgspec.json.decode(text.encode()))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Answer(
            400, f'the {what} must be JSON, such as 7, "text" or ["a", 1]; got {text[:100]!r}'
        ) from error


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        message = "a key must not be an object"
        raise Answer(400, message)
    return value


def compared(job: ServedJob, before: int, after: int) -> state_shapes.Comparison:
    """How two checkpoints differ, state by state."""
    sides = []
    for checkpoint in (before, after):
        saved = _read(_checkpoint(job, checkpoint))
        if saved.size > _LARGEST:
            raise Answer(
                413,
                f"checkpoint {checkpoint} has {saved.size} bytes of state, more than the driver "
                f"compares for a client ({_LARGEST}); use holdfast.savepoint.compare",
            )
        sides.append(saved)
    states_, truncated = [], False
    with _one_at_a_time:
        differences = compare(*sides)
    for changes in differences:
        rows = list(itertools.islice(changes.rows.to_pylist(), _MOST_ROWS)) if changes else []
        truncated = truncated or changes.added + changes.removed + changes.changed > len(rows)
        states_.append(
            state_shapes.StateDifference(
                operator=changes.operator,
                state=changes.state.removeprefix("\0"),
                windowed=changes.windowed,
                added=changes.added,
                removed=changes.removed,
                changed=changes.changed,
                rows=[
                    state_shapes.StateChange(
                        change=row["change"],
                        key=plain(row.get("key")),
                        window=plain(row.get("window")),
                        before=plain(row["before"]),
                        after=plain(row["after"]),
                    )
                    for row in rows
                ],
            )
        )
    return state_shapes.Comparison(before, after, states_, truncated)


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it, within bounds; what JSON has not, as text."""
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, int) or abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "…"
    if depth < _DEEPEST and isinstance(value, dict):
        pairs = itertools.islice(value.items(), _MOST_ROWS)
        return {
            key if isinstance(key, str) else shortened(key): plain(inner, depth + 1)
            for key, inner in pairs
        }
    if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [plain(inner, depth + 1) for inner in itertools.islice(value, _MOST_ROWS)]
    return shortened(value)


def shortened(value: Any) -> str:
    """The text of a value, whatever it does."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
