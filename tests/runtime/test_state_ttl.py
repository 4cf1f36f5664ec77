"""Time-to-live in jobs: the clock of the subtask, workers that keep state, savepoints, windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Time, Types
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.state.errors import StateMigrationError, StateRegistrationError
from holdfast.state.format.files import decode_file
from holdfast.state.live.operator_state import OperatorStateBackend
from holdfast.testing import (
    AdvanceClock,
    EndOfEpoch,
    KeyedHarness,
    LocalExecutor,
    ScriptedSource,
)
from tests.recovery.programs import Program

TTL = 10


def lasting(ttl: int = TTL) -> Any:
    return StateTtlConfig.new_builder(Time.milliseconds(ttl))


class FirstSeen(KeyedProcessFunction):
    """Lets a record through that did not come for a while."""

    def __init__(self, config: StateTtlConfig | None) -> None:
        self._config = config

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(self.descriptor())

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        if self.seen.value() is None:
            self.seen.update(True)
            yield value

    def descriptor(self) -> ValueStateDescriptor:
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        if self._config is not None:
            descriptor.enable_time_to_live(self._config)
        return descriptor


def without_repeats(
    env: StreamExecutionEnvironment, script: list[Any], config: StateTtlConfig | None
) -> DataStream:
    source = env.from_source(ScriptedSource(script)).uid("source")
    function = FirstSeen(config)
    return source.key_by(lambda record: record).process(function).uid("repeats").name("no repeats")


def steps(*parts: Any) -> list[Any]:
    """Records one by one, each in an epoch of its own; numbers move the clock."""
    return [
        element
        for part in parts
        for element in ([AdvanceClock(part)] if isinstance(part, int) else [part, EndOfEpoch()])
    ]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_a_worker_kept_expires_all_the_same(
    env: StreamExecutionEnvironment, workers: int
) -> None:
    script = steps("a", "b", 9, "a", "b", 1, "a", "c", "a", 9, "a", 1, "a", "b", "c")
    job = without_repeats(env, script, lasting().build())
    with LocalExecutor(job, workers=workers) as run:
        run.run_to_end()
    assert [r for r in run.records if r == "a"] == ["a"] * 3
    assert [r for r in run.records if r == "b"] == ["b"] * 2
    assert [r for r in run.records if r == "c"] == ["c"] * 2


def test_what_is_done_again_goes_by_the_clock_of_then(env: StreamExecutionEnvironment) -> None:
    """Of what was alive in the first run, nothing is left but what the checkpoint holds."""
    env.enable_checkpointing(3_600_000)
    script = ["a", EndOfEpoch(), AdvanceClock(9), "a", EndOfEpoch(), EndOfEpoch()]
    with LocalExecutor(without_repeats(env, script, lasting().build()), workers=2) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        assert (run.records, run.clock()) == (["a"], 9)
        run.recover()
        run.clock.advance(1)
        run.run_to_end()
    assert run.records == ["a", "a"]


def test_state_of_the_executor_is_what_functions_see(env: StreamExecutionEnvironment) -> None:
    config = lasting().disable_cleanup_in_background().build()
    job = without_repeats(env, steps("a", 5, "b", 5, "c"), config)
    with LocalExecutor(job) as run:
        run.run_to_end()
        assert run.state("repeats", FirstSeen(config).descriptor()) == {"b": True, "c": True}


def saved_bytes(savepoint: str) -> bytes:
    files = [(path.name, path.read_bytes()) for path in (Path(savepoint) / "state").iterdir()]
    sections = [section for name, data in files for section in decode_file(data, name).sections]
    chunks = [chunk for section in sections for chunk in section.chunks]
    return b"".join(bytes(column.data) for chunk in chunks for column in chunk.columns)


@pytest.mark.parametrize(
    ("config", "left"),
    [
        (lasting().disable_cleanup_in_background().build(), 10),
        (lasting().disable_cleanup_in_background().cleanup_full_snapshot().build(), 0),
    ],
    ids=["kept", "full snapshot"],
)
def test_savepoints(tmp_path: Path, config: StateTtlConfig, left: int) -> None:
    script = [*(f"secret-{n}" for n in range(10)), EndOfEpoch(), AdvanceClock(TTL), "young"]

    def build(env: StreamExecutionEnvironment) -> DataStream:
        return without_repeats(env, [*script, EndOfEpoch(), EndOfEpoch(), "secret-3"], config)

    with Program(build, tmp_path / "job").started(2, quota=20) as run:
        run.run_until(lambda: "young" in run.records)
        savepoint = run.savepoint(tmp_path, stop=True)
    assert saved_bytes(savepoint).count(b"secret-") == left
    assert saved_bytes(savepoint).count(b"young") == 1
    with Program(build, tmp_path / "again").started(3, savepoint) as run:
        run.clock.set(TTL + 1)
        run.run_to_end()
        assert run.records == ["secret-3"]


@pytest.mark.parametrize("adds", [False, True])
def test_a_job_that_adds_or_drops_time_to_live_is_refused(tmp_path: Path, adds: bool) -> None:
    configs = [None, lasting().build()] if adds else [lasting().build(), None]

    def build(config: StateTtlConfig | None) -> Any:
        return lambda env: without_repeats(env, steps(*"abcdef"), config)

    with Program(build(configs[0]), tmp_path / "job").started(2) as run:
        run.run_until(lambda: len(run.records) > 2)
        savepoint = run.savepoint(tmp_path, stop=True)
    with (
        Program(build(configs[1]), tmp_path / "again").started(2, savepoint) as run,
        pytest.raises(
            StateMigrationError, match="state 'seen' of operator 'repeats' was saved"
        ) as e,
    ):
        run.run_to_end()
    assert "ValueState with time-to-live" in str(e.value)


class Idle(FirstSeen):
    """Has no business with its state when it is told to be idle."""

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        if value != "idle":
            yield from super().process_element(value, ctx)


def test_clean_up_for_every_record(env: StreamExecutionEnvironment) -> None:
    config = lasting().disable_cleanup_in_background().cleanup_incrementally(3, True).build()
    old = [f"secret-{n}" for n in range(12)]
    script = [*old, EndOfEpoch(), AdvanceClock(TTL), "idle", "idle", "idle", EndOfEpoch()]
    source = env.set_parallelism(1).from_source(ScriptedSource(script))
    everything = FirstSeen(lasting().return_expired_if_not_cleaned_up().build()).descriptor()
    with LocalExecutor(source.key_by(lambda r: r).process(Idle(config)).uid("idle")) as run:
        run.run_to_end()
        assert len(run.state("idle", everything)) == 12 - 3 * 3


def test_a_harness_has_the_clock_too() -> None:
    config = lasting().cleanup_incrementally(1, True).build()
    harness = KeyedHarness(Idle(config), key_selector=str)
    assert harness.process("a", "a", "b") == ["a", "b"]
    assert harness.states("seen") == {"a": True, "b": True}
    harness.clock.advance(TTL)
    assert harness.states("seen") == {}
    assert harness.move().process("a") == ["a"]


class Totals(ProcessWindowFunction):
    """The count of a window, and of all windows of the key for as long as they come."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[str]
    ) -> Iterator[tuple[str, int, int]]:
        count = len(list(elements))
        for store in (context.window_state(), context.global_state()):
            store.get_reducing_state(self.descriptor()).add(count)
        total = context.global_state().get_reducing_state(self.descriptor()).get()
        yield key, count, total

    def descriptor(self) -> ReducingStateDescriptor:
        descriptor = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
        descriptor.enable_time_to_live(lasting().build())
        return descriptor


def test_states_of_window_functions(env: StreamExecutionEnvironment) -> None:
    script = steps(*"aa", 9, *"aa", 9, *"aa", 10, *"aa", EndOfEpoch())
    source = env.from_source(ScriptedSource(script))
    windows = source.key_by(lambda record: record).count_window(2).process(Totals())
    with LocalExecutor(windows, workers=2) as run:
        run.run_to_end()
    assert [total for _, _, total in run.records] == [2, 4, 6, 2]


def test_operator_state_cannot_expire() -> None:
    rules, offsets = MapStateDescriptor("rules"), ListStateDescriptor("offsets")
    for descriptor in (rules, offsets):
        descriptor.enable_time_to_live(lasting().build())
    states = OperatorStateBackend("buffer")
    message = r"the operator state '\w+' of operator 'buffer' has a time-to-live, which only keyed"
    with pytest.raises(StateRegistrationError, match=message):
        states.get_broadcast_state(rules)
    with pytest.raises(StateRegistrationError, match=message):
        states.get_list_state(offsets)
