"""Lists as keys, where their type is declared: functions see lists, and equal ones are one key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.common import Configuration, Row, Types, WatermarkStrategy
from holdfast.common.options.recovery import PICKLED_STATE
from holdfast.datastream import (
    DataStream,
    DataStreamUtils,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    WindowFunction,
)
from holdfast.datastream.state import MapStateDescriptor, ValueStateDescriptor
from holdfast.datastream.window import TumblingEventTimeWindows
from holdfast.errors import UserFunctionError
from holdfast.savepoint import KeyedState, Savepoint, SavepointWriter, Timers, compare
from holdfast.state.key_groups import key_group
from holdfast.state.types.key_forms import key_form, thaw_saved
from holdfast.state.types.schema_of import schema_of
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource, collect
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor

NAMES = Types.LIST(Types.STRING())
COUNT = ValueStateDescriptor("count", Types.LONG())
#: each with the keys that it makes of the numbers 0 to 3
KEYS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "list": (NAMES, lambda n: ["a"] * n),
    "basic array": (Types.BASIC_ARRAY(Types.INT()), lambda n: [n, None]),
    "primitive array": (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), lambda n: [float(n)]),
    "object array": (Types.OBJECT_ARRAY(Types.TUPLE([Types.INT()])), lambda n: [(n,)]),
    "lists of lists": (Types.LIST(NAMES), lambda n: [["a"], ["b"] * n]),
    "tuple": (Types.TUPLE([Types.INT(), NAMES]), lambda n: (n, ["a"])),
    "row": (Types.ROW_NAMED(["n", "names"], [Types.INT(), NAMES]), lambda n: Row(n=n, names=["a"])),
    "Python's own": (list[int], lambda n: [n]),
    "None": (NAMES, lambda n: ["a"] * n or None),
}


class Counts(KeyedProcessFunction):
    """How many records of its key came before each, and all of them when time ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        before = self.count.value() or 0
        self.count.update(before + 1)
        ctx.timer_service().register_event_time_timer(1 << 40)
        key = ctx.get_current_key()
        if isinstance(key, list):
            key.append("this list is the function's own")
        yield repr(ctx.get_current_key()), before

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield repr(ctx.get_current_key()), "all", self.count.value()


class Keys(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> list[Any]:
        return [(key, sorted(inputs))]


def counted(numbers: DataStream, key_type: Any, select: Callable[[int], Any]) -> DataStream:
    return numbers.key_by(lambda n: select(n % 4), key_type).process(Counts()).uid("counts")


@pytest.mark.parametrize(("key_type", "select"), KEYS.values(), ids=KEYS)
@settings(max_examples=5, deadline=None)
@given(life=lives(st.integers(1, 6)))
def test_equal_keys_share_their_state(
    key_type: Any, select: Callable[[int], Any], life: Life
) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        return counted(env.from_collection(range(10)), key_type, select)

    shown = [repr(select(n)) for n in range(4)]
    expected = [(shown[n % 4], n // 4) for n in range(10)]
    expected += [(shown[n], "all", 3 if n < 2 else 2) for n in range(4)]  # type: ignore[misc]
    assert sorted(map(repr, live(build, life))) == sorted(map(repr, expected))


def test_on_both_executors(env: StreamExecutionEnvironment, executor: Executor) -> None:
    numbers = env.from_collection(range(6))
    by_name = numbers.key_by(lambda n: ["odd" if n % 2 else "even"], NAMES)
    counts = by_name.map_with_state(lambda n, seen: ((seen or 0) + 1, (seen or 0) + 1))
    windows = by_name.count_window(3).apply(Keys())
    got = executor.collect(counts.map(lambda n: ("count", n)).union(windows))
    assert sorted(map(repr, got)) == sorted(
        [
            *(f"('count', {n})" for n in (1, 2, 3, 1, 2, 3)),
            "(['even'], [0, 2, 4])",
            "(['odd'], [1, 3, 5])",
        ]
    )


def test_windows_of_event_time(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda n, _: n)
    timed = env.from_collection(range(6)).assign_timestamps_and_watermarks(strategy)
    by_key = timed.key_by(lambda n: [n % 2], Types.LIST(Types.LONG()))
    windows = by_key.window(TumblingEventTimeWindows.of(4)).apply(Keys())
    assert sorted(collect(windows)) == [([0], [0, 2]), ([0], [4]), ([1], [1, 3]), ([1], [5])]


class Both(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()

    process_element2 = process_element1


def test_connected_streams(env: StreamExecutionEnvironment) -> None:
    first, second = env.from_collection([["a"], ["b"]]), env.from_collection([("a",), ("a",)])
    both = first.connect(second).key_by(lambda r: r, lambda r: r, NAMES).process(Both())
    assert sorted(collect(both)) == [(["a"], 1), (["a"], 2), (["a"], 3), (["b"], 1)]


class AllKeys(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update(1)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        seen: list[Any] = []
        ctx.apply_to_keyed_state(COUNT, lambda key, state: seen.append((key, state.value())))
        yield from seen


def test_the_state_of_all_keys(env: StreamExecutionEnvironment) -> None:
    records = env.from_source(ScriptedSource([["a"], ["b"], EndOfEpoch()]))
    asking = env.from_source(ScriptedSource([EndOfEpoch(), "now"]))
    rules = asking.broadcast(MapStateDescriptor("rules"))
    found = records.key_by(lambda r: r, NAMES).connect(rules).process(AllKeys())
    assert sorted(collect(found)) == [(["a"], 1), (["b"], 1)]


# Savepoints and queries.


def environment(directory: Path, savepoint: str | None = None, backend: str = "hashmap") -> Any:
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "state.backend.type": backend,
    }
    if savepoint is not None:
        settings |= {"execution.state-recovery.path": savepoint, str(PICKLED_STATE): "true"}
    return StreamExecutionEnvironment(Configuration(settings)).set_parallelism(2)


def job(directory: Path, savepoint: str | None = None, backend: str = "hashmap") -> DataStream:
    numbers = environment(directory, savepoint, backend).from_source(ScriptedSource(range(10)))
    return counted(numbers, *KEYS["list"])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_savepoints_are_read_and_made_with_lists(tmp_path: Path, backend: str) -> None:
    with LocalExecutor(job(tmp_path, backend=backend), quota=6) as run:
        run.epoch()
        assert run.query_state("counts", "count", ["a"]) == 2
        assert run.query_state("counts", "count", ("a", "a")) == 1
        with pytest.raises(TypeError, match="is declared ListTypeInfo<String>; got str: 'a'"):
            run.query_state("counts", "count", "a")
        path = run.savepoint(tmp_path / "first", stop=True)
    saved = Savepoint.read(path)
    state = saved.keyed_state("counts", "count")
    rows = sorted((len(row["key"]), row["key"], row["value"]) for row in state)
    assert [key for _, key, _ in rows] == [[], ["a"], ["a", "a"], ["a", "a", "a"]]
    assert state.to_arrow().schema.field("key").type == pa.list_(pa.string())
    assert all(isinstance(row["key"], list) for row in saved.timers("counts"))
    arguments = ["--json", "--key", '["a", "a"]', path, "counts", "count"]
    shown = CliRunner().invoke(main, ["state", "show", *arguments])
    assert [row["key"] for row in json.loads(shown.output)] == [["a", "a"]]

    writer = SavepointWriter().with_operator(
        "counts",
        KeyedState(COUNT, [(key, value) for _, key, value in rows]),
        Timers([(row["key"], row["timestamp"]) for row in saved.timers("counts")]),
        key_type=NAMES,
    )
    made = Savepoint.read(writer.write(tmp_path / "made"))
    assert not any(
        change.added or change.removed or change.changed
        for change in compare(saved, made)
        if change.state == "count"
    )
    other = "rocksdb" if backend == "hashmap" else "hashmap"
    again = job(tmp_path / "again", made.path, other)
    values = {repr(key): value for _, key, value in rows}
    with LocalExecutor(again, quota=4) as run:
        run.epoch()
        assert sorted(run.records) == sorted(
            (repr(["a"] * n), values[repr(["a"] * n)]) for n in range(4)
        )


# What cannot be a key.


def test_a_list_without_a_declared_type_is_refused(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1]).map(lambda n: n).name("numbers").key_by(lambda n: [n])
    message = (
        r"operator 'numbers'(.|\n)*a list cannot be a key, because it is not hashable: \[1\]; "
        r"declare its type, as in key_by\(selector, Types.LIST\(Types.STRING\(\)\)\), or return"
    )
    with pytest.raises(UserFunctionError, match=message) as failed:
        collect(keyed.process(Counts()))
    shown = failed.value.user_traceback
    assert f'File "{__file__}", line' in shown, "the line of the key selector"
    assert "another exception" not in shown


def test_also_where_there_is_no_shuffle(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).key_by(lambda n: n).map(lambda n: n)
    keyed = DataStreamUtils.reinterpret_as_keyed_stream(stream, lambda n: [n])
    with pytest.raises(UserFunctionError, match=r"operator 'Counts'(.|\n)*declare its type, as in"):
        collect(keyed.process(Counts()).name("Counts"))
    typed = DataStreamUtils.reinterpret_as_keyed_stream(stream, lambda n: [n], list[int])
    assert collect(typed.process(Counts()))[0] == ("[1]", 0)


def test_a_key_of_another_type_is_refused(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(["ab"]).name("words").key_by(lambda word: word, NAMES)
    with pytest.raises(UserFunctionError, match=r"'words'(.|\n)*is declared ListTypeInfo<String>"):
        collect(keyed.process(Counts()))


# As they are kept.


@given(st.lists(st.text(max_size=3), max_size=4), st.integers(1, 128))
def test_a_list_is_kept_as_its_tuple(key: list[str], groups: int) -> None:
    """State files depend on it."""
    form = key_form(NAMES)
    assert form is not None
    frozen = form.freeze(key)
    assert frozen == tuple(key)
    assert key_group(frozen, groups) == key_group(tuple(key), groups)
    assert form.thaw(frozen) == key
    assert thaw_saved(schema_of(NAMES), [frozen]) == [key]


@pytest.mark.parametrize(
    "key_type", [None, Types.STRING(), Types.TUPLE([Types.INT()]), Types.ROW([Types.INT()])]
)
def test_other_keys_are_kept_as_they_are(key_type: Any) -> None:
    assert key_form(key_type) is None
