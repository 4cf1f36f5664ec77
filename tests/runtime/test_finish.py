"""The end of the input: sinks are told, write what they have buffered, and it counts."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import (
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
    TwoPhaseCommitSinkFunction,
)
from holdfast.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from holdfast.datastream.state import ListStateDescriptor
from holdfast.testing import (
    EndOfEpoch,
    Fault,
    FaultPlan,
    InjectedFault,
    LocalExecutor,
    ScriptedSource,
)

#: what became visible, by the directory of the test
WORLD: dict[str, list[Any]] = {}
COMMITTED: set[str] = set()


class InTens(TwoPhaseCommitSinkFunction):
    """Commits records ten by ten; the rest waits in operator state for its ten, or for the end."""

    def __init__(self, world: str) -> None:
        self._world = world
        self._buffer: list[int] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        super().initialize_state(context)
        store = context.get_operator_state_store()
        self._saved = store.get_list_state(ListStateDescriptor("buffer", int))
        self._buffer = list(self._saved.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        super().snapshot_state(context)
        self._saved.update(self._buffer)

    def begin_transaction(self) -> tuple[str, list[int]]:
        return uuid.uuid4().hex, []

    def invoke(self, transaction: Any, value: int, context: SinkFunction.Context) -> None:
        self._buffer.append(value)
        if len(self._buffer) == 10:
            self.finish_processing(transaction)

    def finish_processing(self, transaction: Any) -> None:
        transaction[1].extend(self._buffer)
        self._buffer.clear()

    def pre_commit(self, transaction: Any) -> None:
        """All is in the handle."""

    def commit(self, transaction: Any) -> None:
        if transaction[0] not in COMMITTED:
            COMMITTED.add(transaction[0])
            WORLD.setdefault(self._world, []).extend(transaction[1])

    def abort(self, transaction: Any) -> None:
        """Nothing was shown."""


class Plain(SinkFunction):
    """Notes what it is told."""

    def __init__(self, world: str) -> None:
        self._world = world

    def open(self, runtime_context: RuntimeContext) -> None:
        self._calls = WORLD.setdefault(self._world, [])

    def invoke(self, value: Any, context: Any) -> None:
        self._calls.append(value)

    def finish(self) -> None:
        self._calls.append("finish")

    def close(self) -> None:
        self._calls.append("close")

    def __getstate__(self) -> dict[str, Any]:
        return {"_world": self._world}


def job(
    folder: Path, sink: Any, script: list[Any], configuration: dict[str, str] | None = None
) -> LocalExecutor:
    settings = {
        "execution.checkpointing.interval": "1 min",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    env = StreamExecutionEnvironment(Configuration({**settings, **(configuration or {})}))
    records = env.from_source(ScriptedSource(script)).uid("records")
    records.add_sink(sink).uid("sink").set_parallelism(1)
    return LocalExecutor(env)


def test_a_sink_is_finished_after_its_last_record_and_before_it_is_closed(tmp_path: Path) -> None:
    with job(tmp_path, Plain(str(tmp_path)), [1, EndOfEpoch(), 2]) as run:
        run.run_to_end()
    calls = WORLD[str(tmp_path)]
    assert calls[:3] == [1, 2, "finish"]
    assert calls[-1] == "close"
    assert {*calls[3:-1]} <= {"finish"}


def test_a_job_without_checkpoints_finishes_its_sinks(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment()
    env.from_collection([1, 2]).add_sink(Plain(str(tmp_path))).set_parallelism(1)
    with LocalExecutor(env) as run:
        run.run_to_end()
    assert WORLD[str(tmp_path)] == [1, 2, "finish", "close"]


def test_a_cancelled_job_is_not_finished(tmp_path: Path) -> None:
    with job(tmp_path, Plain(str(tmp_path)), [1, EndOfEpoch(), 2]) as run:
        run.epoch()
        run.cancel()
    assert WORLD[str(tmp_path)] == [1, "close"]


@pytest.mark.parametrize("drain", [False, True])
def test_a_stopped_job_is_finished_if_it_is_drained(drain: bool, tmp_path: Path) -> None:
    with job(tmp_path, InTens(str(tmp_path)), [*range(12), EndOfEpoch(), EndOfEpoch(), 12]) as run:
        run.epoch()
        run.savepoint(tmp_path / "savepoints", stop=True, drain=drain)
    assert WORLD[str(tmp_path)] == list(range(12 if drain else 10))


@pytest.mark.parametrize("step", range(1, 11))
def test_what_was_buffered_is_committed_once_whatever_fails_at_the_end(
    step: int, tmp_path: Path
) -> None:
    plan = FaultPlan(tmp_path / "faults", [Fault(step, epoch=epoch) for epoch in range(1, 5)])
    settings = Configuration()
    plan.put_into(settings)
    script = [*range(12), EndOfEpoch(), *range(12, 25)]
    with job(tmp_path, InTens(str(tmp_path)), script, settings.to_dict()) as run:
        while not run.finished:
            try:
                run.epoch(checkpoint=True)
            except InjectedFault:
                run.recover()
    assert sorted(WORLD[str(tmp_path)]) == list(range(25))
    assert plan.happened >= 1
