"""A savepoint stays usable, whatever becomes of the job that has taken it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileCompactStrategy, FileSink
from holdfast.errors import UserFunctionError
from holdfast.filesystem import LocalFileSystem
from holdfast.filesystem.kept_files import keep_files, kept_files
from holdfast.testing import Crash, EndOfEpoch, LocalExecutor, ScriptedSource
from tests.datastream import test_delta_commits as delta
from tests.datastream import test_file_compaction as compaction
from tests.datastream import test_file_sink as lines
from tests.datastream import test_iceberg_commits as iceberg
from tests.datastream import test_parquet_sink as parquet
from tests.datastream.sink_engine import SinkEngine

#: a process that is killed does not close its files
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

LATER = FileCompactStrategy.builder().enable_compaction_on_checkpoint(9).build()


@dataclass
class Output:
    """A sink, and what is in its output.

    Attributes:
        sink: makes the sink of another program.
        records: the records that readers see.
        left: the files that they do not see.
    """

    sink: Callable[[], Any]
    records: Callable[[], list[int]]
    left: Callable[[], Any]


def _files(kind: str, folder: Path) -> Output:
    base = str(folder / "out")
    makes: dict[str, Callable[[], Any]] = {
        "lines": lambda: lines.sink(base),
        "parquet": lambda: parquet.sink(base),
        "compacted lines": lambda: compaction.sink(base, strategy=LATER),
        "compacted parquet": lambda: compaction.sink(base, True, LATER),
    }
    shown = parquet.records if "parquet" in kind else lines.records
    return Output(makes[kind], lambda: shown(base), lambda: lines.hidden(base))


def _delta(upserts: bool, folder: Path) -> Output:
    table = str(folder / "table")
    return Output(
        lambda: delta.committer(table, upserts),
        lambda: delta.numbers(table),
        lambda: (
            {*delta.data_files(table)} - {*delta.referred(table)},
            delta.hidden(table),
        ),
    )


def _iceberg(folder: Path) -> Output:
    where = iceberg.properties(folder)
    iceberg.catalog(where).create_namespace(iceberg.NAMESPACE)

    def left() -> Any:
        table = iceberg.load(where)
        return {*iceberg.data_files(table)} - {*iceberg.referred(table)}, iceberg.hidden(table)

    return Output(lambda: iceberg.committer(where), lambda: iceberg.numbers(where), left)


FILES = ("lines", "parquet", "compacted lines", "compacted parquet")


@pytest.fixture(params=[*FILES, "delta", "delta with a key", "iceberg"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    if request.param == "iceberg":
        return _iceberg(tmp_path)
    if "delta" in request.param:
        return _delta("key" in request.param, tmp_path)
    return _files(request.param, tmp_path)


def _shown(output: Output, last: int) -> bool:
    """Whether each record up to a number is there once; with a key, the last one of each key."""
    found = output.records()
    return found in (list(range(last + 1)), list(range(last + 1))[-delta.KEYS :])


@pytest.mark.parametrize("stays", [False, True])
def test_a_job_that_fails_after_a_savepoint_leaves_its_files(output: Output, stays: bool) -> None:
    """The next attempt goes back behind the savepoint, and knows nothing of it."""
    job = SinkEngine(output.sink(), stays=stays)
    job.epoch(2, checkpoint=True)
    job.epoch(1)
    saved = job.savepoint(3)
    job.restart()
    job.epoch()
    job.completed = saved
    job.restart(function=output.sink())
    job.epoch(2)
    job.finish()
    assert _shown(output, 7)


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_ends_after_a_savepoint_leaves_its_files(output: Output, fails: bool) -> None:
    """It is cancelled before the next checkpoint."""
    job = SinkEngine(output.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(3)
    if fails:
        job.restart()
    job.epoch(close=True)
    job.completed = saved
    job.restart(function=output.sink())
    job.finish()
    assert _shown(output, 4)


def test_nothing_is_left_when_a_job_goes_on_after_a_savepoint(output: Output) -> None:
    job = SinkEngine(output.sink(), parallelism=1, stays=True)
    job.epoch(2, checkpoint=True)
    job.savepoint(3)
    job.epoch(1, checkpoint=True)
    job.restart()
    job.finish()
    assert _shown(output, 5)
    assert not any(output.left())


def test_a_job_that_starts_from_a_savepoint_leaves_the_running_one_alone(output: Output) -> None:
    """It does not know whether the job that took the savepoint still runs, and what that writes."""
    job = SinkEngine(output.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(2)
    job.epoch(2)
    fork = _started(output, saved)
    fork.epoch()
    job.epoch(1)
    job.epoch(1, checkpoint=True)
    job.finish()
    fork.finish()
    assert _shown(output, 7)


def test_two_jobs_that_start_from_one_savepoint_leave_each_other_alone(output: Output) -> None:
    job = SinkEngine(output.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(2)
    one, other = _started(output, saved), _started(output, saved)
    one.epoch(1)
    other.epoch(1)
    one.restart()  # its next attempt cleans up
    one.finish()
    other.epoch(2, checkpoint=True)
    other.finish()
    assert _shown(output, 6)


def test_two_jobs_that_publish_what_waits_in_turn_leave_each_other_alone(output: Output) -> None:
    """Both have taken a checkpoint before either of them hears that it is complete."""
    job = SinkEngine(output.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(2)
    one, other = _started(output, saved), _started(output, saved)
    one.epoch(0, checkpoint=True)
    other.epoch(0, checkpoint=True)
    one.epoch()
    other.epoch()
    one.finish()
    other.finish()
    assert _shown(output, 3)
    assert not any(output.left())


def test_two_jobs_in_sequence_publish_what_waits_once(output: Output) -> None:
    """The second has started before the first publishes, and takes its checkpoint after it."""
    job = SinkEngine(output.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(2)
    one, other = _started(output, saved), _started(output, saved)
    one.epoch()
    other.epoch()
    one.finish()
    other.epoch(2, checkpoint=True)
    other.finish()
    last = _started(output, saved)
    last.finish()
    assert _shown(output, 5)


def _started(output: Output, saved: Any) -> SinkEngine:
    """Another program, which starts from a savepoint."""
    job = SinkEngine(output.sink(), stays=True)
    job.completed = saved
    job.restart(function=output.sink())
    return job


@pytest.mark.parametrize("output", ["lines", "parquet"], indirect=True)
def test_what_a_program_left_behind_is_deleted_when_it_is_old(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SinkEngine(output.sink(), stays=True)
    job.epoch(2, checkpoint=True)
    job.savepoint(2)
    kept = {*output.left()}
    job.epoch(1)
    before = {*output.left()}
    assert (len(kept), len(before)) == (2, 3), "a file and the note of the savepoint; an open file"
    job.restart(function=output.sink())
    job.epoch()
    assert {*output.left()} == before
    monkeypatch.setattr("holdfast.datastream.connectors.files.part_files._OLD", -60_000)
    job.finish()
    assert {*output.left()} == kept
    assert _shown(output, 1)


def test_a_note_goes_with_the_last_of_its_files(tmp_path: Path) -> None:
    system, directory = LocalFileSystem(), str(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    keep_files(system, directory, ["a", "b"])
    (tmp_path / "a").unlink()
    assert kept_files(system, directory, os.listdir(directory)) == {"a", "b"}
    (tmp_path / "b").unlink()
    kept_files(system, directory, os.listdir(directory))
    assert os.listdir(directory) == ["c"]


def test_a_job_that_crashes_after_a_savepoint(tmp_path: Path) -> None:
    """The same with a whole job: the barrier says that it is of a savepoint."""

    def job(restore: str | None = None) -> StreamExecutionEnvironment:
        configuration = Configuration({"execution.checkpointing.interval": "1 h"})
        if restore is not None:
            configuration.set_string("execution.state-recovery.path", restore)
        env = StreamExecutionEnvironment(configuration).set_parallelism(1)
        then = Crash() if restore is None else EndOfEpoch()
        script = ScriptedSource([1, 2, EndOfEpoch(), 3, EndOfEpoch(), then, 4])
        numbers = env.from_source(script).uid("numbers")
        out = FileSink.for_row_format(str(tmp_path / "out"), lines.LINES).build()
        numbers.sink_to(out).uid("files")
        return env

    with LocalExecutor(job()) as run:
        run.epoch()
        savepoint = run.savepoint(str(tmp_path / "elsewhere"))
        with pytest.raises(UserFunctionError, match="SimulatedCrash"):
            run.run_to_end()
        run.recover()
        run.epoch()
    with LocalExecutor(job(savepoint)) as run:
        run.run_to_end()
    assert lines.records(str(tmp_path / "out")) == [1, 2, 3, 4]
