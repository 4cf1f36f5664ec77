"""Jobs on Spark begin, end, fail and are cancelled, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import pytest

from holdfast.common import Configuration, JobStatus
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import (
    JobCancelledError,
    JobDefinitionError,
    JobExecutionError,
    UserFunctionError,
)
from holdfast.testing import LocalExecutor
from tests.endless import Endless
from tests.spark.witness import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]


class Totals(KeyedProcessFunction):
    """A running count per key, kept in state and, of all keys of the subtask, in a field."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.seen = 0

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen += 1
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value % 10, count, self.seen


class KillWorkerOnce(MapFunction):
    """Kills its own worker process, like the system does when memory is short; only once."""

    def __init__(self, marker: Path, at: int) -> None:
        self._marker = marker
        self._at = at

    def map(self, value: Any) -> Any:
        if value == self._at and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def small_epochs(spark: Any, parent: Path) -> StreamExecutionEnvironment:
    settings = {"holdfast.epoch.max-records": "500", "holdfast.directory": str(parent)}
    environment = StreamExecutionEnvironment(Configuration(settings))
    return environment.set_parallelism(2).set_buffer_timeout(0)


def leftovers(spark: Any, parent: Path) -> list[object]:
    """What a job may not leave behind."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("holdfast")]
    return [*threads, *spark.streams.active, *(parent.iterdir() if parent.exists() else ())]


def test_a_bounded_job_ends_and_leaves_nothing_behind(
    spark: Any, small_epochs: StreamExecutionEnvironment, parent: Path
) -> None:
    stream = small_epochs.from_source(NumberSequenceSource(0, 4999)).key_by(lambda n: n % 10)
    records = list(stream.process(Totals()).execute_and_collect("bounded"))
    assert {key: count for key, count, _ in records} == dict.fromkeys(range(10), 500)
    assert max(seen for *_, seen in records) >= 2500
    assert leftovers(spark, parent) == []


def test_the_broadcast_is_destroyed(spark: Any, small_epochs: StreamExecutionEnvironment) -> None:
    before = _broadcast_files(spark)
    small_epochs.from_collection([1, 2, 3]).map(lambda n: n + 1).execute_and_collect(limit=3)
    # NB: those of jobs before may have been there for a moment
    until(lambda: _broadcast_files(spark) <= before)


def _broadcast_files(spark: Any) -> set[str]:
    found = os.walk(spark.sparkContext._temp_dir)
    return {os.path.join(folder, name) for folder, _, names in found for name in names}


def test_an_endless_job_runs_until_it_is_cancelled(
    spark: Any, small_epochs: StreamExecutionEnvironment, parent: Path
) -> None:
    stream = small_epochs.add_source(Endless()).key_by(lambda n: n % 10).process(Totals())
    records = stream.execute_and_collect("endless")
    seen: set[int] = set()
    while len(seen) < 10:
        key, *_ = next(records)
        seen.add(key)
    records.close()
    assert leftovers(spark, parent) == []


class Broken(Exception):
    """What goes wrong at the end of a job."""


@pytest.mark.parametrize(
    "place",
    [
        "driver.checkpoints.job_checkpoints.JobCheckpoints.end",
        "driver.checkpoints.requests.CheckpointRequests.refuse",
        "driver.epochs.running.EpochRunner.close",
        "history.journal.Journal.close",
        "state.settings.StateSettings.forget",
    ],
)
def test_a_job_ends_although_a_step_of_its_end_fails(
    small_epochs: StreamExecutionEnvironment,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_epochs.enable_checkpointing(100)
    small_epochs.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    small_epochs.from_collection([1, 2, 3]).map(lambda n: n + 1).print()
    broken = threading.Event()
    module, _, method = f"holdfast.{place}".rpartition(".")
    original = getattr(resolve_name(module), method)

    def fails(self: Any, *given: Any) -> None:
        original(self, *given)
        broken.set()
        raise Broken

    monkeypatch.setattr(f"{module}.{method}", fails)
    client = small_epochs.execute_async("ends in any case")
    client.get_job_execution_result().result(60)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert broken.is_set()


def test_a_job_whose_thread_breaks_fails(
    spark: Any,
    small_epochs: StreamExecutionEnvironment,
    parent: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: Any, last: bool) -> None:
        raise Broken("unexpectedly")

    monkeypatch.setattr("holdfast.driver.job.attempts.AttemptRunner.stop", fails)
    small_epochs.from_collection([1, 2, 3]).map(lambda n: n + 1).print()
    client = small_epochs.execute_async("breaks")
    with pytest.raises(JobExecutionError, match="job 'breaks' cannot continue: unexpectedly"):
        client.get_job_execution_result().result(60)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert leftovers(spark, parent) == []


def test_a_job_that_gets_no_thread_is_not_started(
    spark: Any,
    small_epochs: StreamExecutionEnvironment,
    parent: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("holdfast.driver.job.runner.supervise", fails)
    small_epochs.add_source(Endless()).map(lambda n: n).print()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        small_epochs.execute_async("has no thread")
    assert leftovers(spark, parent) == []


def test_a_cancelled_job_says_so(spark: Any, small_epochs: StreamExecutionEnvironment) -> None:
    small_epochs.add_source(Endless()).map(lambda n: n).print()
    client = small_epochs.execute_async("to be cancelled")
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCancelledError, match="'to be cancelled' was cancelled"):
        client.get_job_execution_result().result()


def test_a_failed_job_raises_once_without_spark_behind_it(
    spark: Any, small_epochs: StreamExecutionEnvironment, parent: Path
) -> None:
    small_epochs.from_collection([3, 2, 1, 0]).map(lambda n: 6 // n).name("divide").print()
    with pytest.raises(UserFunctionError, match="operator 'divide'") as caught:
        small_epochs.execute("failing")
    error = caught.value
    assert error.record == "0"
    assert isinstance(error.original, ZeroDivisionError)
    assert "lambda" in error.user_traceback
    assert "holdfast" not in error.user_traceback.split("ZeroDivisionError")[0].lower()
    assert error.__cause__ is None
    assert leftovers(spark, parent) == []


def test_two_jobs_at_once(spark: Any, small_epochs: StreamExecutionEnvironment) -> None:
    endless = small_epochs.add_source(Endless()).key_by(lambda n: n % 10).process(Totals())
    running = endless.execute_and_collect("one")
    next(running)
    other = StreamExecutionEnvironment().set_parallelism(2)
    squares = other.from_collection(range(100)).map(lambda n: n * n).execute_and_collect("two")
    assert sorted(squares) == [n * n for n in range(100)]
    next(running)
    running.close()


def test_results_and_counters(spark: Any, small_epochs: StreamExecutionEnvironment) -> None:
    class Counting(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.counter = runtime_context.get_metrics_group().counter("mapped")

        def map(self, value: Any) -> Any:
            self.counter.inc()
            return value

    small_epochs.from_source(NumberSequenceSource(1, 3000)).map(Counting())
    result = small_epochs.execute("counting")
    assert result.get_accumulator_result("mapped") == 3000
    assert result.get_net_runtime() > 0


@pytest.mark.engine("epochs")
def test_a_killed_worker_costs_a_retry_not_a_record(
    spark: Any, small_epochs: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    numbers = small_epochs.from_source(NumberSequenceSource(0, 4999))
    keyed = numbers.key_by(lambda n: n % 10).map(KillWorkerOnce(marker, 3777))
    records = list(keyed.key_by(lambda n: n % 10).process(Totals()).execute_and_collect())
    assert marker.exists(), "the failure really happened"
    assert len(records) == 5000
    assert {key: count for key, count, _ in records} == dict.fromkeys(range(10), 500)


@pytest.mark.engine("resident")
def test_a_killed_slot_fails_a_job_without_checkpoints(
    spark: Any, small_epochs: StreamExecutionEnvironment, parent: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    numbers = small_epochs.from_source(NumberSequenceSource(0, 4999))
    keyed = numbers.key_by(lambda n: n % 10).map(KillWorkerOnce(marker, 3777))
    with pytest.raises(
        JobExecutionError, match=r"slot [01] \(process \d+ on host '.*'\) has ended; find the cause"
    ):
        list(keyed.key_by(lambda n: n % 10).process(Totals()).execute_and_collect())
    assert marker.exists(), "the failure really happened"
    assert leftovers(spark, parent) == []


def test_what_cannot_be_pickled_is_found_before_anything_runs(
    small_epochs: StreamExecutionEnvironment, parent: Path
) -> None:
    lock = threading.Lock()
    small_epochs.from_collection([1]).map(lambda n: (lock, n)).name("locking").print()
    with pytest.raises(JobDefinitionError, match=r"'locking'.*the variable 'lock'"):
        small_epochs.execute()
    assert not list(parent.iterdir())


def test_a_directory_that_cannot_be_made(spark: Any, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    settings = Configuration({"holdfast.directory": str(blocker / "jobs")})
    environment = StreamExecutionEnvironment(settings)
    environment.from_collection([1]).print()
    with pytest.raises(JobExecutionError, match=r"set 'holdfast.directory' to a place"):
        environment.execute()


def test_settings_of_the_users_session_stay(
    spark: Any, small_epochs: StreamExecutionEnvironment
) -> None:
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    small_epochs.from_collection([1]).execute_and_collect(limit=1)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before


def test_a_killed_driver_leaves_a_directory_that_the_next_job_removes(tmp_path: Path) -> None:
    """Without Spark: the lock goes with the process, the next job sweeps."""
    code = f"""
        import os, signal
        from holdfast.driver.directory import make_job_directory
        made = make_job_directory({str(tmp_path)!r})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    from holdfast.driver.directory import make_job_directory

    mine = make_job_directory(str(tmp_path))
    assert list(tmp_path.iterdir()) == [mine.path]
    mine.remove()
    assert not list(tmp_path.iterdir())
    assert Path(tempfile.gettempdir()).exists()


def test_a_worker_without_the_directory_of_the_job_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Spark: a host that does not share `holdfast.directory` with the driver."""
    # NB: what a worker process does for good, and this process must not: tests of logs follow
    monkeypatch.setattr("holdfast.spark.worker.capture", lambda: None)
    from holdfast.runtime.worker.job_code import make_job_code, pack
    from holdfast.spark.worker import ShippedJob, known_jobs

    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    with LocalExecutor(env) as run:
        code = make_job_code(tmp_path.name, run.plan, str(tmp_path / "elsewhere"))

    class Sent:
        value = pack(code)

    job = known_jobs.get(ShippedJob(code.id, cast(Any, Sent()), frozenset([code.id])))
    host = re.escape(socket.gethostname())
    message = rf"'{tmp_path}/elsewhere' on host '{host}'; .* set 'holdfast.directory' to a place"
    with pytest.raises(JobExecutionError, match=message):
        known_jobs.check(job)
    assert not (tmp_path / "elsewhere").exists()
