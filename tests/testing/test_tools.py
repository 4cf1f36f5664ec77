"""The clock, the sink and the storage of tests."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.common import Duration, Time
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.state.errors import StateStorageError
from holdfast.testing import CollectingSink, LocalExecutor, ManualClock, MemoryStateStorage


@pytest.mark.parametrize(
    "second", [1000, "1s", timedelta(seconds=1), Duration.of_seconds(1), Time.seconds(1)]
)
def test_clock_moves_by_any_duration(second: Any) -> None:
    clock = ManualClock(500)
    clock.advance(second)
    assert clock() == 1500


def test_clock_does_not_go_back() -> None:
    clock = ManualClock(500)
    clock.set(500)
    with pytest.raises(ValueError, match="does not go back: it is 500, and was to be set to 499"):
        clock.set(499)


def test_sink_sees_repeats(env: StreamExecutionEnvironment) -> None:
    kept = CollectingSink()
    env.from_collection([1, 2]).add_sink(kept).set_parallelism(1)
    with LocalExecutor(env) as run:
        run.epoch(rerun=[(0, 0)])
    assert kept.records == [1, 2, 1, 2]


@pytest.mark.parametrize("on_disk", [False, True])
def test_two_sinks_do_not_mix(
    env: StreamExecutionEnvironment, tmp_path: Path, on_disk: bool
) -> None:
    sinks = [CollectingSink(tmp_path if on_disk else None) for _ in range(2)]
    numbers = env.from_collection(range(4))
    numbers.add_sink(sinks[0])
    numbers.map(lambda n: -n).add_sink(sinks[1])
    with LocalExecutor(env, quota=1, workers=2) as run:
        run.run_to_end()
    assert sorted(sinks[0].records) == [0, 1, 2, 3]
    assert sorted(sinks[1].records) == [-3, -2, -1, 0]


def test_sink_in_another_process_says_what_to_do() -> None:
    order = cloudpickle.dumps(CollectingSink())
    program = f"import pickle; pickle.loads({order!r}).open(None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "keeps records in the process that made it" in done.stderr
    assert "give it a directory" in done.stderr


def test_storage_in_memory() -> None:
    first, second = MemoryStateStorage(), MemoryStateStorage()
    first.write("a", b"1")
    second.write("b", b"2", durable=True)
    both = MemoryStateStorage(first, second)
    assert both.files == {"a": b"1", "b": b"2"}
    both.delete("a")
    both.delete("a")
    assert (both.exists("a"), first.exists("a"), both.read("b")) == (False, True, b"2")
    both.sync(["b"])
    with pytest.raises(StateStorageError, match="cannot read state file 'a'"):
        both.sync(["a"])
