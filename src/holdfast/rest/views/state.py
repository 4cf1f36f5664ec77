"""The responses about state: contents of checkpoints, values of keys, differences of checkpoints.

A checkpoint is identified by its number, never by a path: it must be in the job's history. Pickled
values in it are read without running any of their code.
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
from holdfast.rest.errors import Refusal
from holdfast.rest.shapes import state as state_shapes
from holdfast.rest.site import ServedJob
from holdfast.savepoint import OperatorInfo, Savepoint, StateSize, compare
from holdfast.state.errors import StateLookupError
from holdfast.state.names import StateId

#: larger checkpoints are not read for a client: they would have to fit in the driver's memory
LARGEST: Final = 64 << 20
_MOST_ROWS: Final = 200
_LONGEST_TEXT: Final = 4000
_DEEPEST: Final = 20
#: both sides of a comparison are held in memory
one_at_a_time = threading.Lock()


def states(job: ServedJob, checkpoint: int | None) -> state_shapes.StateOverview:
    """Return the contents of a checkpoint; by default of the last retained one."""
    seen = job.history.look(lambda history: kept(history, checkpoint))
    if seen is None:
        return state_shapes.StateOverview(None, None, 0, [])
    saved = read(seen)
    sizes = _sizes(saved.path) if saved.size <= LARGEST else ()
    by_state = {StateId(size.operator, size.state, size.windowed): size for size in sizes}
    return state_shapes.StateOverview(
        checkpoint=seen.id,
        timestamp=seen.triggered,
        size=seen.size,
        operators=[_operator(operator, by_state) for operator in saved.operators.values()],
    )


@lru_cache(maxsize=8)
def _sizes(path: str) -> tuple[StateSize, ...]:
    """Return the sizes of states; cached, since a checkpoint never changes and paths are unique."""
    return tuple(Savepoint.read(path).sizes())


def kept(history: JobHistory, checkpoint: int | None) -> CheckpointSeen | None:
    """Return a completed checkpoint that still exists."""
    there = {
        seen.id: seen
        for seen in history.checkpoints.values()
        if seen.status == "COMPLETED" and (seen.savepoint or seen.id in history.retained)
    }
    if checkpoint is not None:
        if checkpoint not in there:
            raise Refusal(404, _gone(checkpoint, there))
        return there[checkpoint]
    return there[max(there)] if there else None


def _gone(checkpoint: int, there: Mapping[int, CheckpointSeen]) -> str:
    """Return why a checkpoint cannot be read."""
    newer = [number for number, seen in there.items() if not seen.savepoint and number > checkpoint]
    if newer:
        return f"checkpoint {checkpoint} was replaced by checkpoint {max(newer)}"
    known = ", ".join(map(str, sorted(there))) or "none"
    return f"there is no checkpoint {checkpoint}; there are {known}"


def _checkpoint(job: ServedJob, checkpoint: int) -> CheckpointSeen:
    seen = job.history.look(lambda history: kept(history, checkpoint))
    assert seen is not None
    return seen


def read(seen: CheckpointSeen) -> Savepoint:
    """Return a checkpoint as data; state is read on demand."""
    if seen.path is None:
        raise Refusal(404, f"the path of checkpoint {seen.id} is not known")
    return Savepoint.read(seen.path)


def _operator(
    operator: OperatorInfo, sizes: Mapping[StateId, StateSize]
) -> state_shapes.OperatorStates:
    entries = []
    for state in operator.states:
        size = sizes.get(StateId(operator.uid, state.name, state.windowed))
        entries.append(
            state_shapes.StateEntry(
                **{**vars(state), "name": state.name.removeprefix("\0")},
                entries=None if size is None else size.entries,
                bytes=None if size is None else size.bytes,
            )
        )
    return state_shapes.OperatorStates(**{**vars(operator), "states": entries})


def looked_up(job: ServedJob, query: Mapping[str, Any]) -> state_shapes.StateValue:
    """Return the value of a key in a state of the running job."""
    operator, state = query["operator"], query["state"]
    key, window = _given(query["key"], "key"), _given(query.get("window"), "window")
    try:
        value = job.query_state(operator, state, key, window)
    except StateLookupError as error:
        raise Refusal(404, str(error)) from None
    except TypeError as error:
        raise Refusal(400, f"{query['key'][:100]!r} cannot be a key: {error}") from None
    return state_shapes.StateValue(operator, state, plain(key), value is not None, plain(value))


def _given(text: str | None, what: str) -> Any:
    """Return a key from JSON; a list becomes a tuple."""
    if text is None:
        return None
    try:
        return _hashable(msgspec.json.decode(text.encode()))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Refusal(
            400, f'the {what} must be JSON, such as 7, "text" or ["a", 1]; got {text[:100]!r}'
        ) from error


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        message = "a key must not be an object"
        raise Refusal(400, message)
    return value


def compared(job: ServedJob, before: int, after: int) -> state_shapes.Comparison:
    """Return the differences of two checkpoints, state by state."""
    sides = []
    for checkpoint in (before, after):
        saved = read(_checkpoint(job, checkpoint))
        if saved.size > LARGEST:
            raise Refusal(
                413,
                f"checkpoint {checkpoint} has {saved.size} bytes of state, more than the driver "
                f"compares for a client ({LARGEST}); use holdfast.savepoint.compare",
            )
        sides.append(saved)
    states_, truncated = [], False
    with one_at_a_time:
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
    """Return a value for JSON, of limited size; values that JSON cannot represent become text."""
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
    """Return the text of a value, even if its repr fails."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
