"""Queries of the state of a key in a running subtask."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from holdfast.errors import InternalError
from holdfast.runtime.operators.windows.contexts import namespace_of
from holdfast.runtime.resident.messages import Answer, Query
from holdfast.runtime.timer_queue import TIMER_STATES
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.errors import StateLookupError
from holdfast.state.live.ttl.pairs import split_times
from holdfast.state.saved_entries import section_entries


def answer(query: Query, look_up: Callable[[str, str, Any, Any], Any]) -> Answer:
    """Return the answer to a query; an error is an answer too."""
    try:
        key, window = pickle.loads(query.key)
        value = look_up(query.operator, query.state, key, window)
        return Answer(query.number, pickle.dumps(value, 5))
    except Exception as error:
        return Answer(query.number, failure=_pickled(error))


def _pickled(error: Exception) -> bytes:
    try:
        return pickle.dumps(error, 5)
    except Exception:
        return pickle.dumps(InternalError(f"{type(error).__name__}: {error}"), 5)


def look_up(backend: KeyedStateBackend, operator: str, state: str, key: Any, window: Any) -> Any:
    """Return the value of a key in a state now, as a plain value; None if it has none.

    Raises:
        StateLookupError: when the operator has no such state.
    """
    # if two states have the same name, prefer the one by window if a window is given
    for namespaced in (window is not None, window is None):
        place = (key, namespace_of(window)) if namespaced else key
        section = backend.section_of(operator, state, namespaced, place)
        if section is not None:
            for _, values in section_entries(section):
                if values:
                    entry = values[0]
                    return split_times(section.kind, entry)[0] if section.expires else entry
            return None
    names = {each.name for each in backend.states().get(operator, ())}
    known = ", ".join(map(repr, sorted(names - set(TIMER_STATES.values()))))
    message = f"operator '{operator}' has no state {state!r}; it has {known or 'none'}"
    raise StateLookupError(message)
