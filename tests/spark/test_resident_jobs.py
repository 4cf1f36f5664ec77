"""Jobs on the resident engine: side by side, rescaled, held up, saved for the other engine.

What becomes of slots that are killed or stand still is in test_resident.py.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, JobStatus
from holdfast.common.options.engine import ENGINE
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import SourceContext
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import HoldfastError, JobCancelledError, JobDefinitionError, UserFunctionError
from holdfast.rest.client import find_job, jobs_of, servers
from holdfast.spark.engine_choice import session_facts
from holdfast.spark.promised_slots import promised_slots
from holdfast.torture.processes import processes
from tests.endless import Endless
from tests.gates import Exists, Numbers
from tests.recovery import verifying
from tests.spark.witness import until

pytestmark = [pytest.mark.spark, pytest.mark.engine("resident")]

#: much longer than anything here takes, in seconds
WAIT = 600.0
KEYS, NUMBERS = 10, 20_000


class Totals(KeyedProcessFunction):
    """A running count per key; says in a file that it has come to a number."""

    def __init__(self, seen: Path | None = None, at: int = -1) -> None:
        self._seen = seen
        self._at = at

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value % KEYS, count
        if value == self._at and self._seen is not None:
            self._seen.touch()


def environment(folder: Path, parallelism: int, **settings: str) -> StreamExecutionEnvironment:
    given = {"holdfast.directory": str(folder / "jobs"), **settings}
    env = StreamExecutionEnvironment(Configuration(given))
    return env.set_parallelism(parallelism).set_buffer_timeout(10)


# Savepoints of one engine for the other


def totals(folder: Path, engine: str, backend: str, parallelism: int, start: str) -> DataStream:
    settings = {str(ENGINE): engine, "state.backend.type": backend}
    if start:
        settings["execution.state-recovery.path"] = start
    env = environment(folder, parallelism, **settings).enable_checkpointing(3_600_000)
    numbers = env.from_source(Numbers(NUMBERS, {NUMBERS // 2: Exists(folder / "go on")}))
    counted = numbers.uid("numbers").set_parallelism(1).key_by(lambda n: n % KEYS)
    return counted.process(Totals(folder / "half", NUMBERS // 2 - 1)).uid("totals")


@pytest.mark.parametrize(
    ("first", "second"), [("resident", "epochs"), ("epochs", "resident")], ids=lambda name: name
)
@pytest.mark.parametrize(
    ("before", "after"),
    [("hashmap", "hashmap"), ("rocksdb", "rocksdb"), ("hashmap", "rocksdb")],
    ids=lambda name: name,
)
def test_a_savepoint_of_one_engine_starts_the_other(
    spark: Any, tmp_path: Path, first: str, second: str, before: str, after: str
) -> None:
    job = totals(tmp_path, first, before, 2, "")
    client = job.get_execution_environment().execute_async("first")
    until((tmp_path / "half").exists)
    savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(WAIT)
    client.get_job_execution_result().result(WAIT)
    (tmp_path / "go on").touch()
    rest = list(totals(tmp_path, second, after, 3, savepoint).execute_and_collect("second"))
    half = NUMBERS // KEYS // 2
    expected = {(key, count) for key in range(KEYS) for count in range(half + 1, 2 * half + 1)}
    assert len(rest) == len(expected)
    assert set(rest) == expected


# Rescaling


def test_a_running_job_is_made_wider_and_narrower_and_counts_each_record_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path / "runtime"))
    third = 1000
    gates = {third: Exists(tmp_path / "wide"), 2 * third: Exists(tmp_path / "narrow")}
    monkeypatch.setattr(
        verifying, "NumberSequenceSource", lambda first, last: Numbers(last + 1, gates)
    )
    settings = verifying.Settings(tmp_path, numbers=3 * third, epoch=1000, interval_ms=50)
    client = verifying.make_job(settings).execute_async("verifying")
    job = find_job(jobs_of(servers()), "verifying")
    for width, gate, count in ((4, "wide", third), (1, "narrow", 2 * third)):
        until(partial(lambda count: verifying.progress(tmp_path) == count, count))
        widths = job.do(f"/rescaling?parallelism={width}", "/rescaling", method="PATCH")
        assert set(widths["parallelism"].values()) == {width}
        # what subtasks that are no more have left when they were closed is with the others now
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
        (tmp_path / gate).touch()
    client.get_job_execution_result().result(WAIT)
    assert verifying.progress(tmp_path) == 3 * third, "nothing was read twice"
    verifying.verify(settings)


# Several jobs, many subtasks, too few slots


def tagged(tag: int, number: int) -> tuple[int, int]:
    return tag, number


def test_several_jobs_at_once(spark: Any, tmp_path: Path) -> None:
    """Four of them with two slots each fill the session; each gives what is its own."""
    running = []
    for offset in range(4):
        env = environment(tmp_path, 2)
        numbers = env.from_source(Numbers(1000, {999: Exists(tmp_path / "all run")}))
        mapped = numbers.key_by(lambda n: n % KEYS).map(partial(tagged, offset))
        running.append(mapped.execute_and_collect(f"job-{offset}"))
    first = [next(records) for records in running]
    (tmp_path / "all run").touch()
    for offset, records in enumerate(running):
        assert Counter([first[offset], *records]) == Counter((offset, n) for n in range(1000))


def test_more_subtasks_than_cores(spark: Any, tmp_path: Path) -> None:
    cores = os.cpu_count() or 1
    width = min(8, 2 * cores)
    env = environment(tmp_path, width)
    numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1)).rebalance()
    counted = numbers.key_by(lambda n: n % KEYS).process(Totals())
    records = list(counted.execute_and_collect("many"))
    each = range(1, NUMBERS // KEYS + 1)
    assert Counter(records) == Counter((key, count) for key in range(KEYS) for count in each)


def test_too_few_slots_are_an_error_at_once(spark: Any, tmp_path: Path) -> None:
    slots = session_facts(spark).slots
    env = environment(tmp_path, slots + 1)
    env.from_source(NumberSequenceSource(0, 9)).map(abs).print()
    with pytest.raises(
        JobDefinitionError,
        match=f"the resident engine: it needs {slots + 1} task slots.* has {slots} task slots",
    ):
        env.execute("too wide")
    assert left_behind(spark, tmp_path) == []


def test_a_job_is_not_made_wider_than_the_session(spark: Any, tmp_path: Path) -> None:
    """It goes on as it was, and says what is missing."""
    slots = session_facts(spark).slots
    env = environment(tmp_path, 2).enable_checkpointing(3_600_000)
    numbers = env.from_source(Numbers(NUMBERS, {1000: Exists(tmp_path / "go on")}))
    counted = numbers.key_by(lambda n: n % KEYS).process(Totals(tmp_path / "begun", 500))
    counted.print()
    client = env.execute_async("wide")
    until((tmp_path / "begun").exists)
    with pytest.raises(HoldfastError, match=f"has {slots} task slots, {slots} of them free"):
        client._job.rescale(slots + 1).result(WAIT)
    (tmp_path / "go on").touch()
    client.get_job_execution_result().result(WAIT)
    assert [each.failure for each in client.get_attempts()] == [None, None]


def test_slots_of_a_job_that_does_not_run_now_are_not_free(spark: Any) -> None:
    """Such as one that waits for its restart, or is just about to start."""
    # tasks of a job before may need a moment to end
    until(lambda: session_facts(spark).free == session_facts(spark).slots)
    before, job = session_facts(spark).free, object()
    promised_slots.promise(job, 3)
    try:
        assert session_facts(spark).free == before - 3
        assert session_facts(spark, job=job).free == before
    finally:
        promised_slots.release(job)
    assert session_facts(spark).free == before


# Backpressure


class Fast(SourceFunction):
    """Emits records of ten kilobytes as fast as it may, and says how many."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count

    def open(self, runtime_context: RuntimeContext) -> None:
        self._running = True

    def run(self, ctx: SourceContext) -> None:
        with (self._folder / "emitted").open("ab", buffering=0) as file:
            for number in range(self._count):
                if not self._running:
                    return
                ctx.collect((number, f"{number:010000}"))
                file.write(b".")

    def cancel(self) -> None:
        self._running = False


class HoldingSink(SinkFunction):
    """Waits at the first record until it may go on; notes what it gets, and how far ahead."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._closed = threading.Event()
        self._taken = 0

    def invoke(self, value: tuple[int, str], context: Any) -> None:
        if self._taken == 0:
            (self._folder / "holds").touch()
            while not (self._folder / "go on").exists():
                self._closed.wait(0.005)
        with (self._folder / "taken").open("a") as file:
            file.write(f"{value[0]}\n")
        self._taken += 1


def test_a_fast_source_waits_for_a_slow_sink(spark: Any, tmp_path: Path) -> None:
    """What is under way is bounded: while the sink holds, the source comes to a standstill."""
    records = 20_000
    env = environment(tmp_path, 1)
    source = env.add_source(Fast(tmp_path, records)).set_parallelism(1)
    source.key_by(lambda record: record[0] % KEYS).map(lambda record: record).add_sink(
        HoldingSink(tmp_path)
    ).set_parallelism(1)
    client = env.execute_async("held up")
    try:
        until((tmp_path / "holds").exists)
        until(standstill(tmp_path / "emitted"))
        under_way = (tmp_path / "emitted").stat().st_size
    finally:
        (tmp_path / "go on").touch()
    assert 0 < under_way < records * 2 // 3, "the queue of the source and the channels hold less"
    client.get_job_execution_result().result(WAIT)
    taken = [int(line) for line in (tmp_path / "taken").read_text().split()]
    assert taken == list(range(records))


def standstill(file: Path) -> Callable[[], bool]:
    """Whether a file has not grown between many looks in a row."""
    seen: list[int] = []

    def stands_still() -> bool:
        seen.append(file.stat().st_size)
        return len(seen) > 50 and len(set(seen[-50:])) == 1

    return stands_still


# Ends


class Deaf(SinkFunction):
    """Does not come back from its first record, whatever happens."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def invoke(self, value: Any, context: Any) -> None:
        self._file.write_text(str(os.getpid()))
        while True:
            threading.Event().wait()


def test_a_job_is_cancelled_while_a_sink_blocks(spark: Any, tmp_path: Path) -> None:
    env = environment(tmp_path, 1)
    env.add_source(Endless()).key_by(lambda n: n % KEYS).map(abs).add_sink(Deaf(tmp_path / "pid"))
    client = env.execute_async("deaf")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    client.cancel().result(WAIT)
    assert client.get_job_status().result() is JobStatus.CANCELED
    pid = int((tmp_path / "pid").read_text())
    until(lambda: pid not in processes())
    assert left_behind(spark, tmp_path) == []


def fails(value: int) -> int:
    msg = "on order"
    raise RuntimeError(msg)


@pytest.mark.parametrize("end", ["finished", "failed", "cancelled"])
def test_nothing_is_left_behind(spark: Any, tmp_path: Path, end: str) -> None:
    """Neither threads and sockets of the driver nor files, nor anything in the slots' processes."""
    env = environment(tmp_path, 2, **{"state.backend.type": "rocksdb"})
    source = env.from_source(NumberSequenceSource(0, 999)) if end != "cancelled" else None
    numbers = source or env.add_source(Endless())
    counted = numbers.map(Pids(tmp_path)).key_by(lambda n: n % KEYS).process(Totals())
    (counted.map(fails) if end == "failed" else counted).map(lambda record: None)
    before = sockets(os.getpid())
    client = env.execute_async(end)
    if end == "cancelled":
        until(lambda: len(list(tmp_path.glob("pid-*"))) > 0)
        client.cancel().result(WAIT)
    raised = {"finished": None, "failed": UserFunctionError, "cancelled": JobCancelledError}[end]
    if raised is None:
        client.get_job_execution_result().result(WAIT)
    else:
        with pytest.raises(raised):
            client.get_job_execution_result().result(WAIT)
    assert left_behind(spark, tmp_path) == []
    until(lambda: sockets(os.getpid()) <= before)
    for pid in (int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")):
        until(partial(lambda pid: not listening(pid), pid))


class Pids(MapFunction):
    """Says in which processes it works."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        (self._folder / f"pid-{os.getpid()}").touch()

    def map(self, value: int) -> int:
        return value


def left_behind(spark: Any, folder: Path) -> list[object]:
    """What a job may not leave in the driver, in Spark and on the disk."""
    names = [thread.name for thread in threading.enumerate()]
    threads = [name for name in names if name.startswith(("holdfast", "peers-"))]
    tracker = spark.sparkContext.statusTracker()
    jobs = folder / "jobs"
    until(lambda: tracker.getActiveJobsIds() == [])
    return [*threads, *(jobs.iterdir() if jobs.exists() else ())]


def sockets(pid: int) -> set[str]:
    """The sockets that a process has, by their inodes; none where that cannot be seen."""
    return {link for link in _links(pid) if link.startswith("socket:")}


def _links(pid: int) -> Iterator[str]:
    folder = Path(f"/proc/{pid}/fd")
    for path in folder.iterdir() if folder.exists() else ():
        try:
            yield str(path.readlink())
        except OSError:  # closed meanwhile
            continue


def listening(pid: int) -> set[str]:
    """Those sockets of a process at which it listens."""
    table = Path(f"/proc/{pid}/net/tcp")
    if not table.exists():
        return set()
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return inodes & sockets(pid)
