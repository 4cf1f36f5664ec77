"""Savepoints are made of data, and of other savepoints; jobs start from them on both backends."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.errors import CheckpointError
from holdfast.common import Row, Types
from holdfast.datastream import FlatMapFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import CheckpointedFunction
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.datastream.time_domain import TimeDomain
from holdfast.savepoint import (
    KeyedState,
    OperatorState,
    Savepoint,
    SavepointWriter,
    StateLookupError,
    Timers,
)
from holdfast.state.backend import HeapKeyedStateBackend, KeyContext
from holdfast.state.errors import PickledStateError, StateTypeError
from holdfast.testing import LocalExecutor
from tests.savepoint.jobs import (
    BACKENDS,
    Everything,
    Last,
    configuration,
    descriptors,
    everything,
    expiring,
    model,
)
from tests.savepoint.test_reading import by_key
from tests.state.type_strategies import TYPES, Typed, exactly

GROUPS = 8


def restored(savepoint: Savepoint, descriptor: Any) -> dict[Any, Any]:
    """A state as a job finds it."""
    backend = HeapKeyedStateBackend(range(GROUPS), GROUPS)
    backend.import_key_groups(savepoint.image.storage, savepoint.heads("op"), {"op"})
    backend.keyed_state("op", descriptor, KeyContext())
    return {key: value for key, _, value in backend.entries("op", descriptor.name)}


def made(directory: Path, *states: Any, **settings: Any) -> Savepoint:
    writer = SavepointWriter(max_parallelism=GROUPS).with_operator("op", *states, **settings)
    return Savepoint.read(writer.write(directory), trusted=True)


@st.composite
def typed_states(draw: st.DrawFn) -> tuple[Any, dict[int, Any]]:
    """A descriptor of any kind and type, and what keys have in its state."""
    typed: Typed = draw(TYPES)
    kind = draw(st.sampled_from(["value", "list", "map"]))
    if kind == "value":
        found = draw(st.dictionaries(st.integers(0, 99), typed.values, max_size=5))
        return ValueStateDescriptor("s", typed.type_info), found
    some = st.none() | typed.values
    if kind == "list":
        lists = st.lists(some, min_size=1, max_size=3)
        found = draw(st.dictionaries(st.integers(0, 99), lists, max_size=5))
        return ListStateDescriptor("s", typed.type_info), found
    maps = st.dictionaries(st.text(max_size=2), some, min_size=1, max_size=3)
    found = draw(st.dictionaries(st.integers(0, 99), maps, max_size=5))
    return MapStateDescriptor("s", Types.STRING(), typed.type_info), found


@given(typed_states())
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read_and_written_again(state: tuple[Any, dict[int, Any]]) -> None:
    """Objects to a savepoint; its plain values to another one; that one's to a job: the objects."""
    descriptor, values = state
    with tempfile.TemporaryDirectory() as folder:
        first = made(Path(folder) / "first", KeyedState(descriptor, values))
        assert exactly(restored(first, descriptor), values)
        rows = {row["key"]: row["value"] for row in first.keyed_state("op", "s")}
        assert rows.keys() == values.keys()
        with contextlib.suppress(StateTypeError):  # a decimal, or a time, that Arrow cannot hold
            assert first.keyed_state("op", "s").to_arrow().num_rows == len(values)
        if "Serializer" in repr(descriptor):
            return  # a serializer is given its objects; of those only their bytes are known
        second = made(Path(folder) / "second", KeyedState(descriptor, rows))
        assert exactly(restored(second, descriptor), values)


@dataclasses.dataclass(frozen=True)
class City:
    name: str
    country: str = "NO"


def test_keys_and_values_from_arrow(tmp_path: Path) -> None:
    table = pa.table(
        {
            "city": [{"name": "Oslo", "country": "NO"}, {"name": "Bonn", "country": "DE"}],
            "a": [1, 2],
            "b": ["x", None],
            "days": [[("mon", 1)], [("tue", 2), ("wed", None)]],
            "at": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 2,
        },
        schema=pa.schema(
            {
                "city": pa.struct({"name": "string", "country": "string"}),
                "a": "int64",
                "b": "string",
                "days": pa.map_("string", "int64"),
                "at": pa.timestamp("us", "UTC"),
            }
        ),
    )
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    states = [
        KeyedState(ValueStateDescriptor("row", row), table, key="city", value=["a", "b"]),
        KeyedState(MapStateDescriptor("days", str, int), table, key="city", value="days"),
        KeyedState(ValueStateDescriptor("at", Types.INSTANT()), table, key="city", value="at"),
    ]
    savepoint = made(tmp_path / "objects", *states, key_type=City)
    oslo, bonn = City("Oslo"), City("Bonn", "DE")
    found = restored(savepoint, ValueStateDescriptor("row", row))
    assert found == {oslo: Row(a=1, b="x"), bonn: Row(a=2, b=None)}
    assert restored(savepoint, MapStateDescriptor("days", str, int)) == {
        oslo: {"mon": 1},
        bonn: {"tue": 2, "wed": None},
    }
    assert savepoint.operators["op"].states[0].pickled, "keys that are objects are pickled"
    pairs = KeyedState(ValueStateDescriptor("b", str), table, key=["a", "b"], value="b")
    savepoint = made(tmp_path / "pairs", pairs)
    assert by_key(savepoint, "op", "b") == {(1, "x"): "x"}


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (KeyedState(ValueStateDescriptor("s", int), {"a": "x"}), "expected long; got 'x'"),
        (KeyedState(ValueStateDescriptor("s", Last), {"a": {"note": "x"}}), "'amount' .* missing"),
        (
            KeyedState(ValueStateDescriptor("s", Last), {"a": {"amount": 1, "n": 2}}),
            "has no field 'n'",
        ),
        (KeyedState(ValueStateDescriptor("s", int), [("a", 1), ("a", 2)]), "'a' occurs twice"),
        (KeyedState(ValueStateDescriptor("s", int), [({"x": 1}, 1)]), "cannot be a key; declare"),
        (Timers([("a", "soon")]), "the time of key 'a' is 'soon'"),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_left(
    state: Any, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(StateTypeError, match=problem):
        made(tmp_path / "s", state)
    assert not (tmp_path / "s").exists()


def test_columns_and_places_that_are_not_there(tmp_path: Path) -> None:
    table = pa.table({"k": ["a"], "value": [1]})
    with pytest.raises(StateLookupError, match="has no column 'key'; it has 'k', 'value'"):
        made(tmp_path / "s", KeyedState(ValueStateDescriptor("s", int), table))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(CheckpointError, match="it is not empty"):
        made(tmp_path / "full", KeyedState(ValueStateDescriptor("s", int), {}))


RECORDS = [(f"k{n % 5}", n) for n in range(1, 60)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cut", [30])
def test_a_bootstrapped_job_gives_what_one_gives_that_saw_all(
    backend: str, cut: int, tmp_path: Path
) -> None:
    with LocalExecutor(everything(configuration(tmp_path / "whole"), RECORDS)) as run:
        run.run_to_end()
    states = model(RECORDS[:cut])
    known = descriptors()
    timers = [(key, n) for key, n in RECORDS[:cut] if n % 7 == 0]
    path = (
        SavepointWriter()
        .with_operator(
            "everything", *(KeyedState(known[n], v) for n, v in states.items()), Timers(timers)
        )
        .write(tmp_path / "made")
    )
    config = configuration(tmp_path / "rest", backend, start=path)
    with LocalExecutor(everything(config, RECORDS[cut:]), parallelism=3) as rest:
        rest.run_to_end()
    later = [r for r in run.records if r[0] == "timer" or r[1] > cut]
    assert sorted(rest.records, key=repr) == sorted(later, key=repr)


class Numbers(FlatMapFunction, CheckpointedFunction):
    """Tells the operator state that it was given."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", Types.LONG()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.LONG()))
        self.rules = store.get_broadcast_state(MapStateDescriptor("rules", str, int))

    def snapshot_state(self, context: Any) -> None:
        pass

    def flat_map(self, value: Any) -> Iterator[Any]:
        yield self.split.get(), self.union.get(), dict(self.rules.items())


def test_operator_state(tmp_path: Path) -> None:
    path = (
        SavepointWriter()
        .with_operator(
            "numbers",
            OperatorState(ListStateDescriptor("split", Types.LONG()), range(5)),
            OperatorState(ListStateDescriptor("union", Types.LONG()), [7, 8], mode="union"),
            OperatorState(MapStateDescriptor("rules", str, int), {"limit": 3}),
        )
        .write(tmp_path / "made")
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration(tmp_path, start=path))
    stream = env.from_collection([1, 2]).set_parallelism(2).flat_map(Numbers()).uid("numbers")
    with LocalExecutor(stream) as run:
        run.run_to_end()
    assert sorted(x for split, _, _ in run.records for x in split) == [0, 1, 2, 3, 4]
    assert all(union == [7, 8] and rules == {"limit": 3} for _, union, rules in run.records)


def test_times_of_access(tmp_path: Path) -> None:
    """Given by a column: one for all of a key, or one for each element or entry."""
    numbers, names = pa.list_(pa.int64()), pa.map_("string", "int64")
    table = pa.table(
        {
            "key": ["a"],
            "value": [5],
            "at": [7],
            "list": pa.array([[1, 2]], numbers),
            "each": pa.array([[3, 4]], numbers),
            "map": pa.array([[("x", 1)]], names),
            "by name": pa.array([[("x", 9)]], names),
        }
    )
    kinds = [
        (ValueStateDescriptor("value", int), "at", 5, 7),
        (ListStateDescriptor("list", int), "each", [1, 2], [3, 4]),
        (MapStateDescriptor("map", str, int), "by name", {"x": 1}, {"x": 9}),
    ]
    states = [
        KeyedState(expiring(descriptor), table, value=descriptor.name, accessed=column)
        for descriptor, column, _, _ in kinds
    ]
    savepoint = made(tmp_path / "s", *states)
    for descriptor, _, value, accessed in kinds:
        rows = savepoint.keyed_state("op", descriptor.name).to_pylist()
        assert rows == [{"key": "a", "value": value, "accessed": accessed}]
        assert restored(savepoint, descriptor) == {}, "that was long ago"


def test_processing_time_timers(tmp_path: Path) -> None:
    timers = Timers(pa.table({"key": ["a"], "at": [5]}), timestamp="at")
    other = Timers([("a", 9)], domain=TimeDomain.PROCESSING_TIME)
    rows = made(tmp_path / "s", timers, other).timers("op").to_pylist()
    assert [(row["domain"], row["timestamp"]) for row in rows] == [
        ("EVENT_TIME", 5),
        ("PROCESSING_TIME", 9),
    ]


def taken(tmp_path: Path, backend: str) -> Savepoint:
    config = configuration(tmp_path, backend)
    with LocalExecutor(everything(config, RECORDS), quota=10) as run:
        for _ in range(3):
            run.epoch(checkpoint=True)
        return Savepoint.read(run.savepoint())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_savepoint_is_changed_and_a_job_goes_on_from_it(backend: str, tmp_path: Path) -> None:
    savepoint = taken(tmp_path, backend)
    writer = (
        SavepointWriter(savepoint)
        .rename("everything", "renamed")
        .map("everything", "all", lambda numbers: [n * 100 for n in numbers])
        .map("everything", "last", lambda last: {**last, "note": "changed"})
        .map("everything", "expiring", lambda ns: ns[:1] if ns[0] != 2 else None)
        .drop_state("everything", "by tens")
    )
    changed = Savepoint.read(writer.write(tmp_path / "changed"))
    expected = model(RECORDS[:40])
    assert by_key(changed, "renamed", "all") == {
        key: [n * 100 for n in numbers] for key, numbers in expected["all"].items()
    }
    assert by_key(changed, "renamed", "total") == expected["total"]
    assert {
        r["key"]: len(r["value"]) for r in changed.keyed_state("renamed", "expiring")
    } == dict.fromkeys(("k0", "k1", "k3", "k4"), 1)
    assert "by tens" not in {state.name for state in changed.operators["renamed"].states}
    assert len(list(changed.timers("renamed"))) == len(list(savepoint.timers("everything")))

    config = configuration(tmp_path / "next", backend, start=changed.path)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = env.from_collection(RECORDS).set_parallelism(1).uid("source")
    keyed = source.key_by(lambda record: record[0])
    with LocalExecutor(keyed.process(Everything()).uid("renamed")) as run:
        run.run_to_end()
    first = {r[0]: r for r in reversed(run.records) if r[0] != "timer"}
    assert first["k1"][1] == 41, "the source goes on where it was"
    assert first["k1"][2] == {4: "41"}, "this state was dropped"
    assert first["k1"][3] == (sum(n for k, n in RECORDS[:41] if k == "k1"), 9)


def test_an_operator_is_dropped_with_all_it_has(tmp_path: Path) -> None:
    savepoint = taken(tmp_path, "hashmap")
    changed = Savepoint.read(SavepointWriter(savepoint).drop("everything").write(tmp_path / "new"))
    assert "everything" not in changed.operators
    assert changed.size < savepoint.size / 4
    files = b"".join(path.read_bytes() for path in (tmp_path / "new").rglob("*.state"))
    assert b"everything" not in files


def test_a_state_gets_another_type(tmp_path: Path) -> None:
    savepoint = made(tmp_path / "old", KeyedState(ValueStateDescriptor("s", int), {"a": 1}))
    new = ValueStateDescriptor("s", Last)
    writer = SavepointWriter(savepoint).map("op", "s", lambda n: Last(n, "made"), new)
    changed = Savepoint.read(writer.write(tmp_path / "new"))
    assert restored(changed, new) == {"a": Last(1, "made")}
    assert changed.operators["op"].states[0].type.startswith("Last(")


def test_pickled_state_is_changed_only_with_trust(tmp_path: Path) -> None:
    path = made(tmp_path / "old", KeyedState(ValueStateDescriptor("s"), {"a": City("x")})).path
    with pytest.raises(PickledStateError, match="state 's' of operator 'op' is pickled"):
        SavepointWriter(Savepoint.read(path)).map("op", "s", str)
    rows = {row["key"]: row["value"] for row in Savepoint.read(path).keyed_state("op", "s")}
    with pytest.raises(PickledStateError, match="without its class cannot be written"):
        made(tmp_path / "again", KeyedState(ValueStateDescriptor("s"), rows))
    copied = SavepointWriter(Savepoint.read(path)).rename("op", "new").write(tmp_path / "copy")
    assert by_key(Savepoint.read(copied, trusted=True), "new", "s") == {"a": City("x")}
    trusted = SavepointWriter(Savepoint.read(path, trusted=True)).map("op", "s", lambda c: c.name)
    changed = Savepoint.read(trusted.write(tmp_path / "new"))
    assert by_key(changed, "op", "s") == {"a": "x"}
    assert not changed.operators["op"].states[0].pickled


def test_mistakes_of_the_program(tmp_path: Path) -> None:
    savepoint = made(tmp_path / "old", KeyedState(ValueStateDescriptor("s", int), {"a": 1}))
    with pytest.raises(ValueError, match="with the uid 'op' already; drop it first"):
        SavepointWriter(savepoint).with_operator("op")
    with pytest.raises(StateLookupError, match="'x'; there are 'op'"):
        SavepointWriter(savepoint).drop("x")
    with pytest.raises(StateLookupError, match="has no state 'x'; it has 's'"):
        SavepointWriter(savepoint).drop_state("op", "x")
    with pytest.raises(ValueError, match="'s' of operator 'op' are changed already"):
        SavepointWriter(savepoint).map("op", "s", abs).map("op", "s", abs)
    gone = SavepointWriter(savepoint).map("op", "s", abs).drop_state("op", "s")
    assert Savepoint.read(gone.write(tmp_path / "gone")).sizes() == []
    with pytest.raises(StateLookupError, match="the writer has no other savepoint"):
        SavepointWriter().rename("a", "b")
    with pytest.raises(StateLookupError, match="is dropped already"):
        SavepointWriter(savepoint).drop("op").rename("op", "b")
    replaced = SavepointWriter(savepoint).drop("op").with_operator("op").write(tmp_path / "new")
    assert Savepoint.read(replaced).operators["op"].states == ()
