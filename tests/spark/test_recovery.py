"""Checkpoints on Spark: a job that fails goes on from the last one, in this or another driver."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor
from holdfast.errors import UserFunctionError
from holdfast.rest.site import Files
from tests.gates import Completed, Covered, Gate, Numbers

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]

ROOT = Path(__file__).parents[2]
#: of the driver, after so many records
DEATH = 1501


class Totals(KeyedProcessFunction):
    """A running count per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value % 10, count


class FailOnce(MapFunction):
    """Raises at a record, once in the life of its marker file."""

    def __init__(self, marker: Path, at: int) -> None:
        self._marker = marker
        self._at = at

    def map(self, value: Any) -> Any:
        if value == self._at and not self._marker.exists():
            self._marker.touch()
            msg = f"simulated failure at record {value}"
            raise RuntimeError(msg)
        return value


class Counter(SourceFunction, CheckpointedFunction):
    """Counts up; its position is operator state, changed under the lock with each record."""

    def __init__(self, last: int, at: int, gate: Gate) -> None:
        """Wait at a number until the gate is open."""
        self._last = last
        self._at = at
        self._gate = gate
        self.next = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._cancelled = Event()

    def run(self, ctx: SourceContext) -> None:
        while self.next < self._last and not self._cancelled.is_set():
            if self.next == self._at and not self._gate():
                self._cancelled.wait(0.001)
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self._cancelled.set()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.next])

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next", int))
        if context.is_restored():
            self.next = max(self.state.get(), default=0)


class BufferingSink(SinkFunction, CheckpointedFunction, CheckpointListener):
    """Writes records in batches; what waits for its batch is operator state."""

    def __init__(self, folder: Path, threshold: int) -> None:
        self._folder = folder
        self._threshold = threshold
        self.buffer: list[Any] = []
        self.told: list[int] = []

    def invoke(self, value: Any, context: Any) -> None:
        self.buffer.append(value)
        if len(self.buffer) >= self._threshold:
            with (self._folder / f"batches-{os.getpid()}").open("a") as file:
                file.write(f"{len(self.buffer)}\n")
            self.buffer.clear()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.buffer)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("buffered"))
        with (self._folder / "initialized").open("a") as file:
            file.write(f"{context.is_restored()} {len(self.state.get())}\n")
        self.buffer = list(self.state.get())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.told.append(checkpoint_id)
        assert self.told == sorted(set(self.told)), "ids strictly increase"
        with (self._folder / "told").open("a") as file:
            file.write(f"{checkpoint_id}\n")


def environment(directory: Path, epoch: int = 300) -> StreamExecutionEnvironment:
    """Small epochs, a checkpoint with nearly every one of them, quick restarts."""
    configuration = Configuration({"holdfast.epoch.max-records": str(epoch)})
    env = StreamExecutionEnvironment(configuration)
    env.set_parallelism(2).set_buffer_timeout(0)
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage_dir(directory.as_uri())
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    return env


def last_counts(records: list[tuple[int, int]]) -> dict[int, int]:
    return {key: max(count for k, count in records if k == key) for key, _ in records}


@pytest.mark.parametrize("source", ["reader", "function"])
def test_a_failed_function_is_restarted_from_the_last_checkpoint(
    spark: Any, tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = environment(tmp_path / "checkpoints")
    taken = Covered(tmp_path / "checkpoints" / "job")
    if source == "function":
        numbers = env.add_source(Counter(4000, 2000, taken))
    else:
        numbers = env.from_source(Numbers(4000, {2000: taken}))
    failing = numbers.key_by(lambda n: n % 10).map(FailOnce(tmp_path / "failed", 3333))
    records = list(failing.key_by(lambda n: n % 10).process(Totals()).execute_and_collect("job"))
    assert (tmp_path / "failed").exists(), "the failure really happened"
    assert "it restarts in 0.0 s, from checkpoint" in caplog.text
    # Records that were collected after the checkpoint are collected again; state counts them once.
    assert last_counts(records) == dict.fromkeys(range(10), 400)
    assert set(records) == {(k, n) for k in range(10) for n in range(1, 401)}


@pytest.mark.parametrize("taken", [False, True])
def test_the_log_and_the_history_say_where_an_attempt_begins(
    spark: Any, tmp_path: Path, taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "checkpoints"
    env = environment(directory, epoch=100).set_parallelism(1)
    if not taken:
        env.enable_checkpointing(3_600_000)
    gates = {700: Covered(directory / "job")} if taken else {}
    failing = env.from_source(Numbers(1000, gates)).map(FailOnce(tmp_path / "failed", 777))
    records = list(failing.execute_and_collect("job"))
    assert set(records) == set(range(1000))
    (warning,) = [text for text in caplog.messages if "it restarts in" in text]
    message, _, origin = warning.partition("; it restarts in 0.0 s, ")
    assert message == "job 'job' failed: RuntimeError: simulated failure at record 777"
    if taken:
        assert re.fullmatch(r"from checkpoint \d+", origin)
    else:
        assert origin == "from the start: no checkpoint had completed"
    (ended,) = Files([directory]).jobs()
    assert [begun.origin for begun in ended.history.attempts] == ["from the start", origin]


class CountFromState(MapFunction, CheckpointedFunction):
    """Numbers the records in operator state; fails at one of them if told so."""

    def __init__(self, fail_at: int | None) -> None:
        self._fail_at = fail_at
        self.seen = 0

    def map(self, value: Any) -> Any:
        if value == self._fail_at:
            msg = "simulated failure"
            raise RuntimeError(msg)
        self.seen += 1
        return value, self.seen

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.seen])

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("seen", int))
        self.seen = sum(self.state.get())


def test_a_mended_program_goes_on_with_new_function_objects(spark: Any, tmp_path: Path) -> None:
    """Both starts have an attempt 0; the second one's is another attempt all the same."""

    def numbered(fail_at: int | None) -> list[tuple[int, int]]:
        env = environment(tmp_path / "checkpoints", epoch=100)
        env.set_parallelism(1).set_restart_strategy(RestartStrategies.no_restart())
        taken = Covered(tmp_path / "checkpoints" / "mended")
        numbers = env.from_source(Numbers(1000, {700: taken}))
        return list(numbers.map(CountFromState(fail_at)).execute_and_collect("mended"))

    with pytest.raises(UserFunctionError, match="simulated failure"):
        numbered(fail_at=777)
    rest = numbered(fail_at=None)
    first = rest[0][0]
    assert 0 < first <= 777, "it goes on from a checkpoint"
    assert rest == [(number, number + 1) for number in range(first, 1000)]


def test_without_checkpoints_there_is_no_restart(spark: Any, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment().set_parallelism(1)
    env.from_collection([1, 2]).map(FailOnce(tmp_path / "failed", 2))
    with pytest.raises(UserFunctionError, match="simulated failure"):
        env.execute()


def test_attempts_run_out(spark: Any, tmp_path: Path) -> None:
    env = environment(tmp_path / "checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 1))
    tries = tmp_path / "tries"

    def fail(number: int) -> int:
        with tries.open("a") as file:
            file.write("x")
        msg = "always"
        raise ValueError(msg)

    env.from_collection([1]).map(fail).print()
    with pytest.raises(UserFunctionError, match="always"):
        env.execute()
    assert tries.read_text() == "xxx"


def test_buffers_and_notifications(spark: Any, tmp_path: Path) -> None:
    env = environment(tmp_path / "checkpoints")
    directory = tmp_path / "checkpoints" / "buffers"
    gates = {1500: Completed(directory), 4000: Completed(directory, 5)}
    numbers = env.from_source(Numbers(4000, gates)).map(FailOnce(tmp_path / "failed", 1777))
    numbers.add_sink(BufferingSink(tmp_path, 7))
    env.execute("buffers")
    lines = (tmp_path / "initialized").read_text().split("\n")[:-1]
    assert lines[:2] == ["False 0", "False 0"]
    assert [line.split()[0] for line in lines[2:]] == ["True", "True"]
    told = {int(line) for line in (tmp_path / "told").read_text().split()}
    assert len(told) > 2


def totals(folder: Path) -> Iterator[tuple[int, int]]:
    """A job that ends with its driver, and goes on with another one."""
    env = environment(folder / "checkpoints")
    taken = Covered(folder / "checkpoints" / "across-drivers")
    numbers = env.from_source(Numbers(4000, {DEATH - 1: taken}))
    return numbers.key_by(lambda n: n % 10).process(Totals()).execute_and_collect("across drivers")


def die_after(count: int, folder: Path) -> None:
    """Kill the own process when so many records are written down."""
    with (folder / "out").open("a") as out:
        for record in islice(totals(folder), count):
            out.write("{} {}\n".format(*record))
            out.flush()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.engine("resident")  # on both: test_crash_at_every_step.py
def test_a_killed_driver_goes_on_where_it_was(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It dies in a process of its own; the one that goes on is that of the tests."""
    command = [sys.executable, "-m", "tests.spark.test_recovery", str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    lines = (tmp_path / "out").read_text().splitlines()
    before = [(int(key), int(count)) for key, count in map(str.split, lines)]
    assert len(before) == DEATH
    after = list(totals(tmp_path))
    assert "continues from checkpoint" in caplog.text
    assert len(after) < 4000
    assert last_counts(before + after) == dict.fromkeys(range(10), 400)


def test_a_job_that_finished_is_not_gone_on_with(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = list(totals(tmp_path))
    second = list(totals(tmp_path))
    assert "continues from" not in caplog.text
    assert len(first) == len(second) == 4000


@pytest.mark.engine("epochs")
def test_a_streaming_frame_reads_on_exactly_after_the_checkpoint(
    spark: Any, tmp_path: Path
) -> None:
    for part in range(6):
        frame = spark.range(part * 10, part * 10 + 10)
        frame.coalesce(1).write.mode("append").json(str(tmp_path / "in"))
    reader = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    env = environment(tmp_path / "checkpoints")
    numbers = env.from_dataframe(reader.json(str(tmp_path / "in"))).map(lambda row: row.id)
    failing = numbers.map(FailOnce(tmp_path / "failed", 35))
    counts = failing.key_by(lambda n: n % 10).process(Totals())
    records = counts.execute_and_collect("frames")
    seen: set[tuple[int, int]] = set()
    while len(seen) < 60:
        seen.add(next(records))
    records.close()
    assert (tmp_path / "failed").exists(), "the failure really happened"
    # a file that was read twice, or not at all, would show in the counts
    assert seen == {(key, count) for key in range(10) for count in range(1, 7)}


if __name__ == "__main__":
    die_after(DEATH, Path(sys.argv[1]))
