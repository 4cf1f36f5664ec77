"""A savepoint, or a checkpoint, is read without the job's code: all kinds of state, all types."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.common import Duration, Row, Time, Types, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from holdfast.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from holdfast.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from holdfast.savepoint import (
    KeyedState,
    OperatorState,
    Savepoint,
    SavepointWriter,
    StateLookupError,
)
from holdfast.savepoint import readers as readers_module
from holdfast.state.errors import StateTypeError
from holdfast.state.types.harmless import harmless_loads
from holdfast.testing import LocalExecutor
from tests.golden.make import GOLDEN
from tests.golden.program import KEYS, SETTINGS, VALUES, Place
from tests.savepoint.jobs import BACKENDS, configuration, everything, model

RECORDS = [(("a", "b", 3, (1, "x"))[n % 4], n) for n in range(40)]


def golden(trusted: bool = False) -> Savepoint:
    (version,) = GOLDEN.iterdir()
    (checkpoint,) = (version / "golden").glob("chk-*")
    return Savepoint.read(checkpoint, trusted=trusted)


def by_key(savepoint: Savepoint, uid: str, state: str) -> dict[Any, Any]:
    return {row["key"]: row["value"] for row in savepoint.keyed_state(uid, state)}


def plain(value: Any) -> Any:
    """A value as one who does not know its class sees it."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Row):
        return value.as_dict()
    return value.value if isinstance(value, Enum) else value


@pytest.mark.parametrize("keys", ["texts", "numbers", "pairs"])
def test_values_of_every_type_in_the_golden_checkpoint(keys: str) -> None:
    """Each key has the value for its smallest number."""
    savepoint = golden()
    uid = next(uid for uid in savepoint.operators if uid.endswith(keys))
    smallest = by_key(savepoint, uid, "smallest")
    assert smallest.keys() <= set(map(KEYS[keys], range(5000)))
    for name, (_, make) in VALUES.items():
        if name not in ("pickled", "bytes"):
            expected = {key: plain(make(n)) for key, n in smallest.items()}
            assert by_key(savepoint, uid, f"value of {name}") == expected, name
            table = savepoint.keyed_state(uid, f"value of {name}").to_arrow()
            assert table.num_rows == len(expected)


def test_pickled_values_are_shown_and_with_trust_unpickled() -> None:
    uid = next(uid for uid in golden().operators if uid.endswith("texts"))
    smallest = by_key(golden(), uid, "smallest")
    shown = by_key(golden(), uid, "value of pickled")
    assert {key: repr(value[2]) for key, value in shown.items()} == {
        key: f"Place(street='x', number={n})" for key, n in smallest.items()
    }
    trusted = by_key(golden(trusted=True), uid, "value of pickled")
    assert trusted == {key: VALUES["pickled"][1](n) for key, n in smallest.items()}


def test_keys_of_any_class_are_shown() -> None:
    uid = next(uid for uid in golden().operators if uid.endswith("anything"))
    shown = by_key(golden(), uid, "count")
    trusted = by_key(golden(trusted=True), uid, "count")
    assert sum(shown.values()) == sum(trusted.values()) > 0
    assert "Place(street='y', number=2)" in map(repr, shown)
    assert Place("y", 2) in trusted
    kind = golden().keyed_state(uid, "count").to_arrow().schema.field("key").type
    assert kind == pa.string()


def test_operator_state_and_timers_of_the_golden_checkpoint() -> None:
    savepoint = golden(trusted=True)
    uid = next(
        uid
        for uid, operator in savepoint.operators.items()
        if "subtasks" in {state.name for state in operator.states}
    )
    rows = savepoint.operator_state(uid, "subtasks").to_pylist()
    assert rows == [{"subtask": n, "value": n} for n in (0, 1)]
    settings = {row["key"]: row["value"] for row in savepoint.operator_state(uid, "settings")}
    assert settings == SETTINGS
    timers = [row for uid in savepoint.operators for row in savepoint.timers(uid)]
    assert timers
    assert all(row["key"] == KEYS["texts"](row["timestamp"]) for row in timers)
    assert {row["domain"] for row in timers} == {"EVENT_TIME"}


def test_what_a_savepoint_says_of_itself() -> None:
    savepoint = golden()
    assert savepoint.job_name == "golden"
    assert savepoint.size == sum(f.stat().st_size for f in GOLDEN.rglob("*.state"))
    sizes = {(s.operator, s.state): s for s in savepoint.sizes()}
    uid = next(uid for uid in savepoint.operators if uid.endswith("numbers"))
    operator = savepoint.operators[uid]
    assert (operator.parallelism, operator.max_parallelism) == (2, 128)
    states = {state.name: state for state in operator.states}
    assert (states["count"].kind, states["count"].type) == ("ValueState", "long")
    assert states["lasting list"].expires
    assert sizes[uid, "count"].entries == 13
    assert sizes[uid, "value of string"].bytes > 13 * 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kind_after_bases_and_deltas(backend: str, tmp_path: Path) -> None:
    with LocalExecutor(everything(configuration(tmp_path, backend), RECORDS), quota=5) as run:
        for _ in range(4):
            run.epoch(checkpoint=True)
        path = run.savepoint()
    read = sum(report.read for report in run.reports)
    savepoint = Savepoint.read(path)
    expected = model(RECORDS[:read])
    assert read == 25
    for state, values in expected.items():
        assert by_key(savepoint, "everything", state) == values, state
    timers = {(row["key"], row["timestamp"]) for row in savepoint.timers("Everything")}
    assert timers == {(key, number) for key, number in RECORDS[:read] if number % 7 == 0}
    accessed = savepoint.keyed_state("everything", "expiring").to_pylist()
    assert all(len(row["accessed"]) == len(row["value"]) for row in accessed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_a_head_are_the_head(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads that are large are read in parts, by key group."""
    records = [(f"k{n % 30}", n) for n in range(200)]
    with LocalExecutor(everything(configuration(tmp_path, backend), records), quota=90) as run:
        run.epoch(checkpoint=True)
        path = run.savepoint()
    savepoint = Savepoint.read(path)
    whole = savepoint.keyed_state("everything", "all").to_pylist()
    sizes = [head.size for head in savepoint.heads("everything")]
    monkeypatch.setattr(readers_module, "_PART", max(sizes) // 2 + 1)
    data = savepoint.keyed_state("everything", "all")
    assert len(data._parts) > len(sizes)
    assert sorted(data.to_pylist(), key=repr) == sorted(whole, key=repr)


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_that_are_objects(backend: str, tmp_path: Path) -> None:
    records = [(Place("a", n % 3), n) for n in range(20)]
    with LocalExecutor(everything(configuration(tmp_path, backend), records), quota=6) as run:
        run.epoch(checkpoint=True)
        savepoint = Savepoint.read(run.savepoint())
    expected = model(records[:12])["all"]
    shown = {repr(row["key"]): row["value"] for row in savepoint.keyed_state("everything", "all")}
    assert shown == {f"Place(street='a', number={key.number})": v for key, v in expected.items()}
    assert {size.entries for size in savepoint.sizes() if size.state == "all"} == {3}
    assert by_key(Savepoint.read(savepoint.path, trusted=True), "everything", "all") == expected


class FirstField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Nothing(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield key


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sessions", [False, True])
def test_windows(backend: str, sessions: bool, tmp_path: Path) -> None:
    records = [("a", 1), ("a", 12), ("b", 3), ("a", 5), ("b", 30), ("b", 33)]
    env = StreamExecutionEnvironment.get_execution_environment(configuration(tmp_path, backend))
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(100))
    later = [("z", 500), ("z", 501), ("z", 502)]
    timed = (
        env.from_collection(records + later)
        .set_parallelism(1)
        .assign_timestamps_and_watermarks(late.with_timestamp_assigner(FirstField()))
    )
    gap = EventTimeSessionWindows.with_gap(Time.milliseconds(8))
    assigner = gap if sessions else TumblingEventTimeWindows.of(Time.milliseconds(10))
    windowed = timed.key_by(lambda r: r[0]).window(assigner)
    with LocalExecutor(windowed.process(Nothing()).uid("windows"), quota=1) as run:
        for _ in records:
            run.epoch()
        path = run.savepoint()
    found = {
        (row["key"], row["window"]["start"], row["window"]["end"]): sorted(row["value"])
        for row in Savepoint.read(path).windows("windows")
        if row["key"] != "z"
    }
    if sessions:
        assert found == {
            ("a", 1, 20): [("a", 1), ("a", 5), ("a", 12)],
            ("b", 3, 11): [("b", 3)],
            ("b", 30, 41): [("b", 30), ("b", 33)],
        }
    else:
        assert found == {
            ("a", 0, 10): [("a", 1), ("a", 5)],
            ("a", 10, 20): [("a", 12)],
            ("b", 0, 10): [("b", 3)],
            ("b", 30, 40): [("b", 30), ("b", 33)],
        }
    table = Savepoint.read(path).windows("windows").to_arrow()
    assert table.schema.field("window").type == pa.struct([("start", "int64"), ("end", "int64")])


class Harm:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch harm",)


def test_nothing_that_is_pickled_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = KeyedState(ValueStateDescriptor("harm"), {"a": Harm(), "b": {Place("s", 1), 5}})
    path = SavepointWriter().with_operator("op", state).write(tmp_path / "made")
    rows = by_key(Savepoint.read(path), "op", "harm")
    assert repr(rows["a"]) == "system('touch harm')"
    assert {repr(part) for part in rows["b"]} == {"5", "Place(street='s', number=1)"}
    assert not (tmp_path / "harm").exists()


def test_unknown_objects_stay_what_they_are() -> None:
    values = [Place("a", 1), Place("a", 1), Place("b", 1), VALUES["dataclass"][1](3)]
    shown = harmless_loads(pickle.dumps(values))
    assert shown[0] == shown[1] != shown[2]
    assert len(set(shown)) == 3
    assert harmless_loads(pickle.dumps(shown)) == shown


def test_types_that_nobody_declared(tmp_path: Path) -> None:
    states = {
        "numbers": {"a": 1, "b": 2.5},
        "mixed": {"a": 1, "b": "x"},
        "tuples": {"a": (1, "x"), "b": (2, None)},
        "lengths": {"a": (1,), "b": (2, 3)},
        "large": {"a": 1 << 80},
    }
    made = [KeyedState(ValueStateDescriptor(name), data) for name, data in states.items()]
    savepoint = Savepoint.read(SavepointWriter().with_operator("op", *made).write(tmp_path / "s"))
    tables = {name: savepoint.keyed_state("op", name).to_arrow() for name in states}
    values = {name: sorted(t.column("value").to_pylist(), key=str) for name, t in tables.items()}
    assert values == {
        "numbers": [1.0, 2.5],
        "mixed": ["'x'", "1"],
        "tuples": [{"f0": 1, "f1": "x"}, {"f0": 2, "f1": None}],
        "lengths": [[1], [2, 3]],
        "large": [str(1 << 80)],
    }


def test_what_does_not_fit_arrow_is_told(tmp_path: Path) -> None:
    from decimal import Decimal

    state = KeyedState(ValueStateDescriptor("price", Types.BIG_DEC()), {"a": Decimal("1E+30")})
    savepoint = Savepoint.read(SavepointWriter().with_operator("op", state).write(tmp_path / "s"))
    with pytest.raises(StateTypeError, match="state 'price' of operator 'op', column 'value'"):
        savepoint.keyed_state("op", "price").to_arrow()
    assert by_key(savepoint, "op", "price") == {"a": Decimal("1E+30")}


def test_what_is_not_there_is_told_with_what_is(tmp_path: Path) -> None:
    writer = SavepointWriter().with_operator(
        "op",
        KeyedState(ValueStateDescriptor("count"), {"a": 1}),
        OperatorState(ListStateDescriptor("offsets"), [1]),
        OperatorState(MapStateDescriptor("rules"), {"a": 1}),
        name="Counts",
    )
    savepoint = Savepoint.read(writer.write(tmp_path / "s"))
    with pytest.raises(
        StateLookupError, match=r"no operator has .* 'x'; there are 'op' \(Counts\)"
    ):
        savepoint.keyed_state("x", "count")
    with pytest.raises(StateLookupError, match="'Counts' has no keyed state 'n'; it has 'count'"):
        savepoint.keyed_state("op", "n")
    with pytest.raises(StateLookupError, match="operator state 'n'; it has 'offsets', 'rules'"):
        savepoint.operator_state("op", "n")
    assert savepoint.operator_state("Counts", "rules").to_pylist() == [{"key": "a", "value": 1}]
