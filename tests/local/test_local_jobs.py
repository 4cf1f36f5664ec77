"""Jobs on the local engine: all that a small job needs, in this process."""

from __future__ import annotations

import signal
import sys
import threading
from bdb import BdbQuit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, JobStatus, Types
from holdfast.common.restart_strategy import RestartStrategies
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import JobCancelledError, JobDefinitionError, UserFunctionError
from holdfast.rest.client import find_job, jobs_of, servers
from tests.endless import Endless
from tests.gates import Completed, Exists, Numbers
from tests.spark.witness import until

pytestmark = pytest.mark.usefixtures("runtime_directory")


def local(**settings: str) -> StreamExecutionEnvironment:
    """An environment of the local engine; in names, _ stands for a dot and __ for a hyphen."""
    given = {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
    return StreamExecutionEnvironment(Configuration({"holdfast.engine": "local"} | given))


class Count(KeyedProcessFunction):
    """The number of each record among those of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.inc()
        yield ctx.get_current_key(), count


def counted(env: StreamExecutionEnvironment, source: Any) -> Any:
    numbers = env.from_source(source, source_name="numbers").uid("numbers")
    keyed = numbers.key_by(lambda number: number % 5, key_type=Types.LONG())
    return keyed.process(Count()).uid("count")


def thread_of(_: Any) -> int:
    return threading.get_ident()


def test_functions_run_in_the_thread_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    env = local()
    env.from_collection([1]).map(thread_of).print()
    result = env.execute("threads")
    assert capsys.readouterr().out == f"{threading.get_ident()}\n"
    assert result.get_net_runtime() >= 0
    stream = env.from_collection([1]).key_by(lambda number: number).map(thread_of)
    assert list(stream.execute_and_collect()) == [threading.get_ident()]


def test_without_a_thread_that_waits_functions_run_in_that_of_the_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = local()
    env.from_collection([1]).map(lambda _: threading.current_thread().name).print()
    client = env.execute_async("threads")
    assert client.get_job_execution_result().result(60).get_job_id() == client.get_job_id()
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert capsys.readouterr().out == "holdfast-job\n"


def test_there_is_one_subtask_unless_more_are_asked_for() -> None:
    assert local().get_parallelism() == 1
    assert local(parallelism_default="3").get_parallelism() == 3


def test_a_timer_fires_while_nothing_is_read(tmp_path: Path) -> None:
    fired = tmp_path / "fired"

    class Later(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            service = ctx.timer_service()
            service.register_processing_time_timer(service.current_processing_time() + 20)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
            fired.touch()
            yield timestamp

    source = Numbers(1, {1: Exists(fired)})
    stream = local().from_source(source).key_by(lambda number: number).process(Later())
    assert len(list(stream.execute_and_collect())) == 1


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_failure_goes_back_to_the_last_checkpoint(tmp_path: Path, backend: str) -> None:
    failed = tmp_path / "failed"
    env = local(state_backend_type=backend, execution_checkpointing_dir=str(tmp_path / "cp"))
    env.enable_checkpointing(10).set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    env.set_parallelism(2)

    def fail_once(pair: Any) -> Any:
        if pair == (0, 20) and not failed.exists():
            failed.touch()
            message = "once"
            raise RuntimeError(message)
        return pair

    checkpoints = tmp_path / "cp" / "counts"
    counts = counted(env, Numbers(500, {60: Completed(checkpoints)})).map(fail_once)
    best: dict[int, int] = {}
    for key, count in counts.execute_and_collect("counts"):
        best[key] = max(count, best.get(key, 0))
    assert failed.exists()
    assert best == dict.fromkeys(range(5), 100)


def test_a_job_can_be_watched_rescaled_and_stopped(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    env = local(execution_checkpointing_dir=str(tmp_path / "cp")).enable_checkpointing(60_000)
    counted(env, Numbers(100, {50: Exists(go_on)})).print()
    client = env.execute_async("watched")

    job = find_job(jobs_of(servers()), "watched")
    assert job.ask()["engine"] == "local"
    until(lambda: client.get_accumulators().result().get("seen") == 50)
    assert client.query_state("count", "count", 3).result(60) == 10
    widths = job.do("/rescaling?parallelism=3", "/rescaling", method="PATCH")["parallelism"]
    assert set(widths.values()) == {3}
    path = client.stop_with_savepoint(False, str(tmp_path / "sp")).result(60)
    assert client.get_job_status().result() is JobStatus.FINISHED

    go_on.touch()
    again = local(execution_state__recovery_path=path, parallelism_default="2")
    rest = list(counted(again, Numbers(100)).execute_and_collect())
    assert sorted(rest) == sorted((key, count) for key in range(5) for count in range(11, 21))


def test_a_source_function_is_read_and_cancelled() -> None:
    env = local()
    records = env.add_source(Endless()).map(lambda number: number + 1).execute_and_collect()
    assert [next(records) for _ in range(3)] == [1, 2, 3]
    records.close()
    env.add_source(Endless()).filter(lambda _: False).print()
    client = env.execute_async()
    client.cancel().result(60)
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("collects", [False, True])
def test_an_interrupt_in_a_function_cancels_the_job(collects: bool, tmp_path: Path) -> None:
    closed = tmp_path / "closed"

    class Interrupted(MapFunction):
        def map(self, value: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return value

    env = local(holdfast_directory=str(tmp_path / "run"))
    stream = env.from_source(Numbers(2, {1: Exists(closed)})).map(Interrupted())
    if not collects:
        stream.print()
    with pytest.raises(KeyboardInterrupt):
        list(stream.execute_and_collect()) if collects else env.execute()
    assert list((tmp_path / "run").iterdir()) == []


def test_who_leaves_the_debugger_ends_the_job() -> None:
    """And no restart strategy starts it again."""
    env = local().enable_checkpointing(10)

    def quits(_: Any) -> None:
        raise BdbQuit

    env.from_collection([1]).map(quits).print()
    with pytest.raises(UserFunctionError, match="BdbQuit"):
        env.execute()


def test_a_dataframe_needs_spark() -> None:
    env = local()
    frame: Any = object()  # stands for a DataFrame; planning does not look into it
    env.from_dataframe(frame, "orders").print()
    message = (
        r"job 'rows' cannot run on the local engine, which has no Spark: it reads a Spark "
        r"DataFrame \('Source: orders'\); run it without --local, set 'holdfast.engine' to auto"
    )
    with pytest.raises(JobDefinitionError, match=message):
        env.execute("rows")
    sink = DataFrameSink("parquet", path="out", schema="n long")
    env.from_collection([(1,)]).sink_to(sink)
    with pytest.raises(JobDefinitionError, match=r"it writes a Spark DataFrame \("):
        env.execute_async("rows")


def test_modules_that_are_sent_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "sent_to_workers.py").write_text("VALUE = 7")
    env = local()
    env.add_python_file(str(tmp_path / "sent_to_workers.py"))
    stream = env.from_collection([1]).map(lambda _: __import__("sent_to_workers").VALUE)
    assert list(stream.execute_and_collect()) == [7]
    env.add_python_file(str(tmp_path / "missing.py"))
    env.from_collection([1]).print()
    with pytest.raises(JobDefinitionError, match=r"add_python_file: there is no file .*missing.py"):
        env.execute()


def test_files_that_only_spark_delivers_are_refused(tmp_path: Path) -> None:
    env = local()
    env.register_cached_file(str(tmp_path), "rates")
    env.from_collection([1]).print()
    with pytest.raises(JobDefinitionError, match=r"register_cached_file: .* without --local"):
        env.execute()
