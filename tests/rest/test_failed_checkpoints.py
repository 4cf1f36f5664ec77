"""Checkpoints that fail: who acknowledged, and who did not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.history.events import CheckpointSeen
from holdfast.history.job import JobHistory
from holdfast.rest.views.checkpoints import checkpoint_details, task_details
from holdfast.testing import ManualClock
from tests.rest.conftest import Serve
from tests.serving import Client, LocalJob, checkpoints_in


class Locked(KeyedProcessFunction, CheckpointedFunction):
    """Its second subtask cannot take part in a checkpoint."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if self.subtask == 1:
            raise RuntimeError("the ledger is locked")

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


@pytest.fixture(scope="module")
def failing(directory: Path) -> Iterator[LocalJob]:
    """A job one of whose subtasks, of five, does not acknowledge."""
    settings = checkpoints_in(directory) | {
        "execution.checkpointing.tolerable-failed-checkpoints": "1000"
    }
    env = StreamExecutionEnvironment(Configuration(settings)).set_parallelism(2)
    numbers = env.from_collection(list(range(1000))).map(lambda n: n)
    made = LocalJob(numbers.key_by(lambda n: n % 7).process(Locked()).name("Locked"))
    with made.run:
        made.run.epoch(checkpoint=True)
        yield made


@pytest.fixture(scope="module")
def ask(serve: Serve, failing: LocalJob) -> Client:
    return serve(failing)


def vertex_of(job: LocalJob, name: str) -> str:
    return next(one.id for one in job.history.graph.vertices if name in one.name)


def test_who_could_not_take_part_has_not_acknowledged(ask: Client) -> None:
    (entry,) = ask.job("/checkpoints").json["history"]
    assert (entry["status"], entry["className"]) == ("FAILED", "failed")
    assert "the ledger is locked" in entry["failure_message"]
    assert (entry["num_acknowledged_subtasks"], entry["num_subtasks"]) == (4, 5)


def test_the_vertex_that_it_is_of(ask: Client, failing: LocalJob) -> None:
    answer = ask.job("/checkpoints/details/1").json
    told = {
        failing.history.graph.vertex(vertex).name: (  # type: ignore[union-attr]
            task["num_acknowledged_subtasks"],
            task["num_subtasks"],
        )
        for vertex, task in answer["tasks"].items()
    }
    assert sorted(told.values()) == [(1, 1), (1, 2), (2, 2)]
    assert next(counts for name, counts in told.items() if "Locked" in name) == (1, 2)


def test_the_subtask_itself(ask: Client, failing: LocalJob) -> None:
    """It has Flink's fields of one that has not acknowledged, and is in no summary."""
    answer = ask.job(f"/checkpoints/details/1/subtasks/{vertex_of(failing, 'Locked')}").json
    first, second = answer["subtasks"]
    assert (first["className"], first["index"], first["status"]) == ("completed", 0, "completed")
    assert second == {"className": "pending", "index": 1, "status": "pending_or_failed"}
    assert answer["latest_ack_timestamp"] == first["ack_timestamp"]
    assert answer["summary"]["start_delay"]["max"] == first["start_delay"]


def test_in_progress_nobody_has_acknowledged(failing: LocalJob) -> None:
    running = CheckpointSeen(9, "IN_PROGRESS", 140, total=5)
    history = JobHistory([*failing.history.remembered(), running])
    entry = checkpoint_details(history, running)
    assert (entry.num_acknowledged_subtasks, entry.num_subtasks) == (0, 5)
    assert entry.latest_ack_timestamp == -1
    for vertex in history.graph.vertices:
        task = task_details(running, vertex)
        assert task is not None
        assert (task.num_acknowledged_subtasks, task.num_subtasks) == (0, vertex.parallelism)
        assert {one.status for one in task.subtasks} == {"pending_or_failed"}


def test_of_older_ones_only_the_numbers_are_known(ask: Client, failing: LocalJob) -> None:
    for _ in range(20):
        failing.run.epoch(checkpoint=True)
    entry = ask.job("/checkpoints/details/1").json
    assert (entry["num_acknowledged_subtasks"], entry["num_subtasks"]) == (4, 5)
    assert entry["tasks"] == {}
    reply = ask.job(f"/checkpoints/details/1/subtasks/{vertex_of(failing, 'Locked')}")
    assert reply.status == 404
    assert "subtasks of checkpoint 1" in reply.error


#: the time of the job below; its function, which is found by its name, moves it
CLOCK = ManualClock(1_000_000)


class Slow(Locked):
    """Its second subtask, the last one that runs, takes part when the checkpoint has expired."""

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        CLOCK.advance("11 s" if self.subtask == 1 else "9 s")


@pytest.fixture
def expired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[LocalJob]:
    """A job whose checkpoint has expired."""
    settings = checkpoints_in(tmp_path) | {
        "execution.checkpointing.timeout": "10 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    }
    env = StreamExecutionEnvironment(Configuration(settings)).set_parallelism(2)
    numbers = env.from_collection(list(range(1000))).map(lambda n: n)
    job = numbers.key_by(lambda n: n % 7).process(Slow()).name("Slow")
    made = LocalJob(job, clock=CLOCK)
    with made.run, caplog.at_level(logging.WARNING):
        made.run.epoch(checkpoint=True)
        yield made


EXPIRED = (
    "it expired: its epoch took 20000 ms, the timeout is 10000 ms; "
    "4 of 5 subtasks acknowledged in time; late: Slow -> Collect (2/2)"
)


def test_who_was_late_has_not_acknowledged(
    expired: LocalJob, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    ask = serve(expired)
    (entry,) = ask.job("/checkpoints").json["history"]
    assert entry["status"] == "FAILED"
    assert entry["failure_message"] == EXPIRED
    assert (entry["num_acknowledged_subtasks"], entry["num_subtasks"]) == (4, 5)
    logged = [record.getMessage() for record in caplog.get_records("setup")]
    assert logged[-1].endswith(f"failed: {EXPIRED}")
    answer = ask.job(f"/checkpoints/details/1/subtasks/{vertex_of(expired, 'Slow')}").json
    assert (answer["num_acknowledged_subtasks"], answer["num_subtasks"]) == (1, 2)
    assert [one["status"] for one in answer["subtasks"]] == ["completed", "pending_or_failed"]


def test_who_was_late_is_known_in_another_process(expired: LocalJob) -> None:
    """The history keeps it."""
    again = JobHistory(expired.history.remembered())
    (seen,) = again.checkpoints.values()
    assert (seen.acknowledged, seen.total) == (4, 5)
    (parts,) = [part for part in seen.subtasks.values() if None in part]
    assert [part is None for part in parts] == [False, True]
