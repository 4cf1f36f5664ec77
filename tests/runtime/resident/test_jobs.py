"""Jobs on resident slots: checkpoints beside the stream, failures, rescaling, back-pressure."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, JobStatus, Types
from holdfast.datastream import (
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import KeyedProcessFunction, MapFunction, SourceContext
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.driver.reports import attempts_of, checkpoints_of
from holdfast.errors import JobCancelledError, JobExecutionError, UserFunctionError
from holdfast.rest.views.jobs import back_pressure
from holdfast.runtime.resident import subtask
from holdfast.runtime.resident.carrier import Carrier
from holdfast.runtime.resident.channels import Credit
from holdfast.runtime.resident.messages import Say
from holdfast.state.errors import StateLookupError, StateStorageError
from tests.endless import Endless
from tests.runtime.resident.threads import PATIENCE, Started, start
from tests.runtime.test_tls import certificate

RECORDS = 20_000
KEYS = 10


class Count(KeyedProcessFunction):
    """Yields each key with the number of its records so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value % KEYS, count


class FailOnce(MapFunction):
    """Fails at a number, if nobody has failed before."""

    def __init__(self, at: int, mark: Path) -> None:
        self.at, self.mark = at, mark

    def map(self, value: int) -> int:
        if value == self.at and not self.mark.exists():
            self.mark.touch()
            msg = f"simulated failure at {value}"
            raise ValueError(msg)
        return value


def environment(**settings: str) -> StreamExecutionEnvironment:
    given = {key.replace("__", "-").replace("_", "."): text for key, text in settings.items()}
    return StreamExecutionEnvironment(Configuration(given)).set_parallelism(2)


def checkpointed(**settings: str) -> StreamExecutionEnvironment:
    return environment(
        execution_checkpointing_interval="10 ms",
        restart__strategy_type="fixed-delay",
        restart__strategy_fixed__delay_attempts="3",
        restart__strategy_fixed__delay_delay="0 s",
        **settings,
    )


def counted(env: StreamExecutionEnvironment, *before: MapFunction) -> Any:
    stream = env.from_source(NumberSequenceSource(0, RECORDS - 1), source_name="numbers")
    for function in before:
        stream = stream.map(function)
    return stream.key_by(lambda n: n % KEYS).process(Count()).uid("counts")


def last_counts(records: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, count in records:
        found[key] = max(count, found.get(key, 0))
    return found


EXACT = dict.fromkeys(range(KEYS), RECORDS // KEYS)


def test_every_record_counts_once(tmp_path: Path) -> None:
    job = start(counted(environment()), tmp_path)
    records = list(job.records)
    assert Counter(records) == Counter(
        (key, count) for key in range(KEYS) for count in range(1, RECORDS // KEYS + 1)
    )
    assert job.runner.status is JobStatus.FINISHED


def test_connections_may_be_encrypted(tmp_path: Path) -> None:
    job = start(counted(environment()), tmp_path, certificate=certificate())
    assert last_counts(job.records) == EXACT


#: a function has been called with a record
CALLED = threading.Event()


class SlowToOpen(Count):
    """In one subtask ``open`` takes until records come, or a moment, and then fails."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        if runtime_context.get_index_of_this_subtask() == 1:
            reason = "records came first" if CALLED.wait(0.2) else "state does not fit"
            raise ValueError(reason)

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        CALLED.set()
        return super().process_element(value, ctx)


def test_no_function_is_called_before_all_have_loaded_their_state(tmp_path: Path) -> None:
    CALLED.clear()
    numbers = environment().from_source(NumberSequenceSource(0, RECORDS), source_name="numbers")
    job = start(numbers.key_by(lambda n: n % KEYS).process(SlowToOpen()), tmp_path)
    with pytest.raises(UserFunctionError, match="state does not fit"):
        list(job.records)


def test_after_a_failure_the_job_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    env = checkpointed(holdfast_epoch_max__records="500")
    failing = FailOnce(RECORDS - 100, tmp_path / "failed")
    job = start(counted(env, failing), tmp_path / "job")
    assert last_counts(job.records) == EXACT
    first, second = attempts_of(job.runner.history)
    assert "simulated failure at 19900" in str(first.failure)
    assert second.checkpoint is not None
    completed = [each for each in checkpoints_of(job.runner.history) if each.duration is not None]
    assert len(completed) > 1


def test_without_checkpoints_a_failure_is_the_job_s(tmp_path: Path) -> None:
    failing = FailOnce(5000, tmp_path / "failed")
    job = start(counted(environment(), failing), tmp_path / "job")
    with pytest.raises(UserFunctionError, match="simulated failure at 5000"):
        list(job.records)
    assert job.runner.status is JobStatus.FAILED


def test_a_lost_slot_fails_the_attempt_and_the_next_one_is_exact(tmp_path: Path) -> None:
    env = checkpointed()
    stream = env.add_source(Endless()).key_by(lambda n: n % KEYS).process(Count()).uid("counts")
    job = start(stream, tmp_path)
    records = iter(job.records)
    first = [next(records) for _ in range(2000)]
    assert job.engine.slots is not None
    job.runner.checkpoint().result(PATIENCE)
    slot = job.engine.slots._slots[1]
    slot.wire.close()  # as the driver sees the death of a process
    while len(attempts_of(job.runner.history)) < 2:
        next(records)
    more = [next(records) for _ in range(2000)]
    while not has_given_a_result(job):
        next(records)
    job.runner.cancel()
    assert job.runner.over.wait(PATIENCE)
    assert first
    assert more
    failure = str(attempts_of(job.runner.history)[0].failure)
    assert "slot" in failure
    assert attempts_of(job.runner.history)[1].checkpoint is not None


def has_given_a_result(job: Started) -> bool:
    """Whether all parts of the last restart are known."""
    measured = attempts_of(job.runner.history)[-1].measured
    return measured is not None and measured.first_result is not None


class Stuck(SinkFunction):
    """Waits for a word before it takes anything."""

    go = threading.Event()

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        assert Stuck.go.wait(PATIENCE)


def test_a_sink_that_stands_still_stops_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read and not taken is bounded by bytes, whatever time goes by."""
    waiting = threading.Semaphore(0)
    wait = Credit._wait

    def noted(credit: Credit) -> float:
        waiting.release()
        return wait(credit)

    monkeypatch.setattr(Credit, "_wait", noted)
    Stuck.go.clear()
    env = environment()
    stream = env.from_source(NumberSequenceSource(0, 5_000_000), source_name="numbers")
    stream.map(lambda n: (n, "x" * 1000)).rebalance().add_sink(Stuck()).set_parallelism(2)
    job = start(env, tmp_path)
    for _ in range(2):  # both sources wait for room
        assert waiting.acquire(timeout=PATIENCE)
    sources = [each for (level, _), each in job.engine.subtasks.items() if level == 0]
    read = [sum(flow.records for flow in source._round.read.values()) for source in sources]
    assert 0 < sum(read) < 50_000, "of five million"
    job.runner.cancel()
    Stuck.go.set()
    with pytest.raises(JobCancelledError):
        job.wait()


def test_a_sink_that_stands_still_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No round ends before the sink goes on, but the figures say what every subtask does now."""
    monkeypatch.setattr(subtask, "LONG_ROUND", 0.2)
    Stuck.go.clear()
    env = environment()
    stream = env.from_source(NumberSequenceSource(0, 5_000_000), source_name="numbers")
    stream.map(lambda n: (n, "x" * 1000)).rebalance().add_sink(Stuck()).set_parallelism(2)
    job = start(env, tmp_path, heartbeat=2.0)
    source, sink = job.runner.history.graph.vertices
    deadline = time.monotonic() + PATIENCE
    while True:
        figures = job.runner.history.subtasks.figures
        if min(each.blocked_now for each in figures[source.id]) > 800:
            break
        assert time.monotonic() < deadline, figures
        time.sleep(0.05)
    assert min(each.busy_now for each in figures[sink.id]) > 500
    told = back_pressure(job.runner.history, source)
    assert {each.level for each in told.subtasks} == {"high"}
    epochs = len(job.runner.history.epochs)
    Stuck.go.set()
    while len(job.runner.history.epochs) < epochs + 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    totals = job.runner.history.subtasks.figures
    assert sum(each.blocked for each in totals[source.id]) > 0.0
    assert sum(each.busy for each in totals[sink.id]) > 0.0
    job.runner.cancel()
    assert job.runner.over.wait(PATIENCE)


class Slow(MapFunction):
    """Takes longer for a record than records wait for others to leave with."""

    def map(self, value: int) -> int:
        time.sleep(0.05)
        _told.append(("worked on", value))
        return value


#: what `Slow` did, and what came of it, in its order: all in this process
_told: list[tuple[str, int]] = []


def test_a_result_does_not_wait_until_a_slow_function_is_done_with_a_block(tmp_path: Path) -> None:
    _told.clear()
    env = environment().set_parallelism(1)
    numbers = env.from_source(NumberSequenceSource(0, 29), source_name="numbers")
    job = start(numbers.rebalance().map(Slow()), tmp_path)
    for value in job.records:
        _told.append(("took", value))
    assert [value for did, value in _told if did == "took"] == list(range(30))
    assert _told.index(("took", 0)) < _told.index(("worked on", 29))


def test_the_state_of_a_running_job_can_be_asked_for(tmp_path: Path) -> None:
    stream = environment().add_source(Endless()).key_by(lambda n: n % KEYS).process(Count())
    job = start(stream.uid("counts"), tmp_path)
    records = iter(job.records)
    key, count = next(records)
    assert job.runner.query_state("counts", "count", key) >= count
    with pytest.raises(StateLookupError, match="no state 'other'"):
        job.runner.query_state("counts", "other", key)
    job.runner.cancel()
    assert job.runner.over.wait(PATIENCE)
    with pytest.raises(StateStorageError, match="has ended"):
        job.runner.query_state("counts", "count", key)


def test_rescaled_while_it_runs_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    env = checkpointed(holdfast_epoch_max__records="200")
    job = start(counted(env), tmp_path)
    records = iter(job.records)
    found = [next(records) for _ in range(500)]
    job.runner.rescale(3).result(PATIENCE)
    found += [next(records) for _ in range(500)]
    job.runner.rescale({"counts": 1}).result(PATIENCE)
    found += list(records)
    assert Counter(found) == Counter(
        (key, count) for key in range(KEYS) for count in range(1, RECORDS // KEYS + 1)
    )


def test_stopped_with_a_savepoint_nothing_is_read_after_it(tmp_path: Path) -> None:
    env = checkpointed(holdfast_epoch_max__records="200")
    job = start(counted(env), tmp_path / "first")
    records = iter(job.records)
    found = [next(records) for _ in range(500)]
    path = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True).result(PATIENCE)
    found += list(records)
    assert job.runner.status is JobStatus.FINISHED
    again = environment(execution_state__recovery_path=path)
    found += list(start(counted(again), tmp_path / "second").records)
    assert Counter(found) == Counter(
        (key, count) for key in range(KEYS) for count in range(1, RECORDS // KEYS + 1)
    )


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    job = start(counted(environment()), tmp_path)
    list(job.records)
    assert job.runner.over.wait(PATIENCE)
    for thread in threading.enumerate():
        if thread.name.startswith(("subtask-", "holdfast-peer", "holdfast-state")):
            thread.join(PATIENCE)
    left = {thread.name for thread in threading.enumerate()} - before
    assert not [name for name in left if name.startswith(("subtask-", "holdfast-peer"))]


class Silent(SourceFunction):
    """Gives nothing until it is cancelled."""

    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running:
            time.sleep(0.01)

    def cancel(self) -> None:
        self.running = False


def test_a_slot_that_others_hear_nothing_of_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two slots are cut off from each other without a word; the driver still hears both."""
    monkeypatch.setattr(Carrier, "say_alive", lambda carrier: carrier.driver.send(Say.ALIVE))
    stream = environment().add_source(Silent()).key_by(lambda n: n).process(Count())
    job = start(stream, tmp_path, heartbeat=3.0, interval_ms=600_000)
    with pytest.raises(JobExecutionError, match="has lost its connection to slot"):
        job.wait()


def test_slots_without_a_channel_between_them_do_not_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: dict[int, set[int]] = {}
    call = Carrier.call

    def noted(self: Carrier, *given: Any) -> list[int]:
        missing = call(self, *given)
        called[self._hello.slot] = set(self._peers)
        return missing

    monkeypatch.setattr(Carrier, "call", noted)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(4)
    source = env.from_source(NumberSequenceSource(0, 99), None, "numbers").set_parallelism(1)
    job = start(source.key_by(lambda value: value % KEYS).process(Count()), tmp_path)
    job.wait()
    assert called == {0: {1, 2, 3}, 1: {0}, 2: {0}, 3: {0}}
    assert len(list(job.records)) == 100
