"""Map states and broadcast states are mappings: whatever is done to one, a dict does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Time, Types
from holdfast.datastream.state import (
    BroadcastState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateTtlConfig,
)
from holdfast.state.errors import StateRegistrationError
from holdfast.state.live.operator_state import OperatorStateBackend, ReadOnlyMap
from tests.conformance.test_keyed_state import BACKENDS, Subject


class Keyed(Subject):
    """A map state, of a key or of a key and a window, with or without a time-to-live."""

    def __init__(self, backend: str, namespaced: bool, expires: bool) -> None:
        super().__init__(BACKENDS[backend])
        self._namespaced = namespaced
        self._descriptor = MapStateDescriptor("map", Types.STRING(), Types.LONG())
        if expires:
            builder = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write()
            self._descriptor.enable_time_to_live(builder.build())

    @property
    def map(self) -> Any:
        return self.state(self._descriptor, self._namespaced)

    def close(self) -> None:
        self.backend.close()


class Broadcast:
    """A broadcast state."""

    def __init__(self) -> None:
        self._descriptor = MapStateDescriptor("map", Types.STRING(), Types.LONG())
        self._states = OperatorStateBackend("op")

    @property
    def map(self) -> BroadcastState[Any, Any]:
        return self._states.get_broadcast_state(self._descriptor)

    def reload(self) -> None:
        image = self._states.image()
        self._states = OperatorStateBackend("op")
        self._states.load(image)

    def close(self) -> None:
        pass


MAPS: dict[str, Callable[[], Any]] = {
    "heap": lambda: Keyed("heap", False, False),
    "heap, windows": lambda: Keyed("heap", True, False),
    "heap, time-to-live": lambda: Keyed("heap", False, True),
    "rocksdb": lambda: Keyed("rocksdb", False, False),
    "rocksdb, windows and time-to-live": lambda: Keyed("rocksdb", True, True),
    "broadcast": Broadcast,
}

every_map = pytest.mark.parametrize("make", MAPS.values(), ids=MAPS)

names = st.sampled_from(["a", "b", "c"])
values = st.none() | st.integers(0, 3)
entries = st.dictionaries(names, values, max_size=3)


def popped(mapping: Any) -> Any:
    """What `popitem` does, but for the choice of the entry: it was there, and is gone."""
    before = dict(mapping)
    key, value = mapping.popitem()
    assert before.pop(key, ...) == value
    assert mapping == before
    mapping[key] = value
    return True


def in_place(mapping: Any, other: Any) -> None:
    same = mapping
    same |= other
    assert same is mapping


def matched(mapping: Any) -> Any:
    match mapping:
        case {"a": found, **rest}:
            return found, rest
    return None


#: what a mapping can do; each is done to the state and to a dict, with the same outcome
OPERATIONS: list[tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]] = [
    (lambda m, k: m[k], (names,)),
    (lambda m, k, v: m.__setitem__(k, v), (names, values)),
    (lambda m, k: m.__delitem__(k), (names,)),
    (lambda m, k: m.get(k), (names,)),
    (lambda m, k, v: m.get(k, v), (names, values)),
    (lambda m, k: m.pop(k), (names,)),
    (lambda m, k, v: m.pop(k, v), (names, values)),
    (popped, ()),
    (lambda m, k: m.setdefault(k), (names,)),
    (lambda m, k, v: m.setdefault(k, v), (names, values)),
    (lambda m, other: m.update(other), (entries,)),
    (lambda m, other: m.update(other.items(), c=7), (entries,)),
    (in_place, (entries,)),
    (lambda m, other: in_place(m, list(other.items())), (entries,)),
    (lambda m, other: m | other, (entries,)),
    (lambda m, other: other | m, (entries,)),
    (lambda m, other: (m == other, m != other, other == m), (entries,)),
    (lambda m, k: (k in m, k in set(m.keys()), k in list(m)), (names,)),
    (lambda m: (len(m), bool(m), len(m.keys()), len(m.items()), len(m.values())), ()),
    (lambda m, other: (m.keys() & other.keys(), m.items() - other.items()), (entries,)),
    (lambda m: (sorted(m), dict(m), {**m}, dict(m.items())), ()),
    (lambda m: sorted(map(str, m.values())), ()),
    (matched, ()),
    (lambda m: m.clear(), ()),
]

steps = st.one_of(
    [st.tuples(st.just(operation), st.tuples(*drawn)) for operation, drawn in OPERATIONS]
)


def outcome(operation: Callable[..., Any], mapping: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return operation(mapping, *arguments)
    except KeyError as error:
        # the text of `popitem` is each one's own
        return KeyError, error.args if operation is not popped else ()


@every_map
@settings(max_examples=40, deadline=None)
@given(st.lists(steps | st.none(), max_size=25))
def test_what_a_dict_does(make: Callable[[], Any], history: list[Any]) -> None:
    subject, model = make(), dict[str, Any]()
    for step in history:
        if step is None:
            subject.reload()
            continue
        operation, arguments = step
        expected = outcome(operation, model, arguments)
        assert outcome(operation, subject.map, arguments) == expected
        assert subject.map == model
    subject.close()


@every_map
def test_they_are_mappings(make: Callable[[], Any]) -> None:
    state = make().map
    assert isinstance(state, MutableMapping)
    with pytest.raises(TypeError):
        hash(state)  # as with any mapping that can change
    with pytest.raises(TypeError):
        state | 1
    with pytest.raises(TypeError):
        1 | state


@every_map
def test_flinks_own_names_raise_nothing(make: Callable[[], Any]) -> None:
    state = make().map
    assert (state.get("a"), state.contains("a"), state.is_empty()) == (None, False, True)
    state.remove("a")
    state.put("a", None)
    assert (state.get("a"), state.contains("a"), state.is_empty()) == (None, True, False)
    state.put_all({"b": 1})
    state.remove("a")
    assert list(state.items()) == [("b", 1)]


@every_map
def test_what_was_returned_stays_as_it_was(make: Callable[[], Any]) -> None:
    state = make().map
    state.update(a=1, b=2)
    keys, items, values = state.keys(), state.items(), state.values()
    for key in state:
        state[key + "2"] = 0
        del state[key]
    assert (set(keys), dict(items), list(values)) == ({"a", "b"}, {"a": 1, "b": 2}, [1, 2])
    assert dict(state) == {"a2": 0, "b2": 0}


def test_the_side_that_must_not_change_it_sees_a_mapping() -> None:
    state = Broadcast().map
    state.update(a=1)
    seen = ReadOnlyMap(state, "rules", "check")
    assert isinstance(seen, Mapping)
    assert not isinstance(seen, MutableMapping)
    assert (seen["a"], seen.get("b", 5), len(seen), seen == {"a": 1}) == (1, 5, 1, True)
    assert seen | {"b": 2} == {"a": 1, "b": 2}
    with pytest.raises(KeyError, match="'b'"):
        seen["b"]


CHANGES: list[Callable[[Any], Any]] = [
    lambda m: m.put("a", 2),
    lambda m: m.put_all({"a": 2}),
    lambda m: m.remove("a"),
    lambda m: m.clear(),
    lambda m: m.__setitem__("a", 2),
    lambda m: m.__delitem__("a"),
    lambda m: m.update(a=2),
    lambda m: m.pop("a"),
    lambda m: m.popitem(),
    lambda m: m.setdefault("b", 2),
    lambda m: in_place(m, {"a": 2}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_it_cannot_be_changed_there(change: Callable[[Any], Any]) -> None:
    state = Broadcast().map
    state.put("a", 1)
    seen: ReadOnlyBroadcastState[Any, Any] = ReadOnlyMap(state, "rules", "check")
    with pytest.raises(TypeError, match="'rules' of operator 'check' can be changed in process_b"):
        change(seen)
    assert state == {"a": 1}


def test_a_map_without_entries_still_has_its_name() -> None:
    states = OperatorStateBackend("op")
    states.get_broadcast_state(MapStateDescriptor("rules"))
    with pytest.raises(StateRegistrationError, match="'rules' of operator 'op' is a broadcast st"):
        states.get_list_state(ListStateDescriptor("rules"))


@contextmanager
def at_most(lookups: int, monkeypatch: pytest.MonkeyPatch, view: Any) -> Iterator[None]:
    """Fail if more copies of the map are made."""
    made = 0

    def counted(self: Any) -> Any:
        nonlocal made
        made += 1
        return original(self)

    original = type(view)._copy
    monkeypatch.setattr(type(view), "_copy", counted)
    yield
    assert made <= lookups


def test_emptying_a_map_does_not_copy_it_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Keyed("heap", False, False).map
    state.update({str(number): number for number in range(100)})
    with at_most(0, monkeypatch, state):
        while state:
            state.popitem()
