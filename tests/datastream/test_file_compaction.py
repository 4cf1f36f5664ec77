"""Compaction of part files: the output of several checkpoints is one file, each record once."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Encoder
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
)
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.filesystem import FileSystemError, LocalFileSystem, MissingFileError
from holdfast.runtime.failures import OperatorFailed
from holdfast.testing import LocalExecutor
from tests.datastream import test_file_sink as lines
from tests.datastream import test_parquet_sink as parquet
from tests.datastream.sink_engine import Checkpoint, SinkEngine

#: a process that is killed does not close its files
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

EVERY_SECOND = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()


@pytest.fixture
def local(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def sink(
    base: str, bulk: bool = False, strategy: FileCompactStrategy | None = EVERY_SECOND
) -> FileSinkFunction:
    if bulk:
        factory = parquet.Numbers()
        builder: Any = FileSink.for_bulk_format(base, factory)
        compactor = FileCompactor.record_wise_file_compactor()
    else:
        builder = FileSink.for_row_format(base, lines.LINES)
        compactor = FileCompactor.concat_file_compactor()
    builder.with_bucket_assigner(lines.ByParity())
    if strategy is not None:
        builder.enable_compact(strategy, compactor)
    function: FileSinkFunction = builder.build().create_function()
    return function


def records(base: str, bulk: bool = False) -> list[int]:
    return parquet.records(base) if bulk else lines.records(base)


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("bulk", [False, True])
def test_several_checkpoints_are_one_file_per_bucket(local: str, bulk: bool, stays: bool) -> None:
    job = SinkEngine(sink(local, bulk), stays=stays)
    job.epoch(4, checkpoint=True)
    job.epoch(4, checkpoint=True)
    assert records(local, bulk) == []
    job.epoch(4, checkpoint=True)
    shown = parquet.parts(local) if bulk else lines.parts(local)
    assert sorted(shown.values()) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    job.finish()
    assert records(local, bulk) == list(range(12))
    assert lines.hidden(local) == []


def test_enough_bytes_are_a_file(local: str) -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(8).build()
    job = SinkEngine(sink(local, strategy=strategy))
    for _ in range(5):
        job.epoch(2, checkpoint=True)  # two bytes per number and bucket
    assert sorted(lines.parts(local).values()) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    job.finish()
    assert records(local) == list(range(10))


def test_large_segments_are_not_joined(local: str) -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(4).build()
    job = SinkEngine(sink(local, strategy=strategy))
    job.epoch(4)
    job.epoch(4, checkpoint=True)
    job.finish()
    assert len(lines.parts(local)) == 4


@pytest.mark.parametrize("bulk", [False, True])
def test_what_waits_is_kept_when_a_job_stops_with_a_savepoint(local: str, bulk: bool) -> None:
    job = SinkEngine(sink(local, bulk), parallelism=2)
    job.epoch(4, checkpoint=True)
    job.epoch(close=True)  # nothing is published, and nothing must be deleted
    assert records(local, bulk) == []
    job.restart(1, function=sink(local, bulk))
    job.epoch(2, checkpoint=True)
    job.epoch()
    assert records(local, bulk) == [0, 1, 2, 3]  # what another program left does not wait
    job.finish()
    assert records(local, bulk) == list(range(6))
    assert lines.hidden(local) == []


def test_a_job_that_no_longer_compacts_publishes_what_waits(local: str) -> None:
    job = SinkEngine(sink(local))
    job.epoch(4, checkpoint=True)
    job.restart(function=sink(local, strategy=None))
    job.finish()
    assert records(local) == [0, 1, 2, 3]
    assert lines.hidden(local) == []


def test_an_older_checkpoint_does_not_publish_again(
    local: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = SinkEngine(sink(local, bulk=True), stays=True)
    job.epoch(4, checkpoint=True)
    older = job.completed
    job.epoch(0, checkpoint=True)
    job.epoch()
    assert records(local, bulk=True) == [0, 1, 2, 3]
    job.completed = older
    job.restart()
    with caplog.at_level(logging.WARNING):
        job.epoch(2, checkpoint=True)
    assert "were published since, and are not published again" in caplog.text
    job.finish()
    assert records(local, bulk=True) == list(range(6))


@pytest.mark.parametrize("bulk", [False, True])
def test_a_savepoint_is_usable_after_a_start_from_an_older_one(local: str, bulk: bool) -> None:
    """What waited in it is nowhere else, so that start must not sweep it."""
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(9).build()
    job = SinkEngine(sink(local, bulk, strategy), stays=True)
    job.epoch(2, checkpoint=True)
    older = job.completed
    job.epoch(2, checkpoint=True)
    newer = job.completed
    job.epoch(1)
    job.completed = older
    job.restart(function=sink(local, bulk, strategy))
    job.epoch(1)
    job.completed = newer
    job.restart(function=sink(local, bulk, strategy))
    job.finish()
    assert records(local, bulk) == [0, 1, 2, 3]


def test_a_checkpoint_that_never_completes_leaves_the_one_before_it_usable(local: str) -> None:
    job = SinkEngine(sink(local, bulk=True), stays=True)
    job.epoch(4, checkpoint=True)
    job.epoch(4, checkpoint=True, complete=False)  # merges what waits
    job.epoch(close=True)
    job.restart()
    job.finish()
    assert records(local, bulk=True) == [0, 1, 2, 3]
    assert lines.hidden(local) == []


@pytest.mark.parametrize("bulk", [False, True])
def test_more_segments_than_files_may_be_open(
    local: str, monkeypatch: pytest.MonkeyPatch, bulk: bool
) -> None:
    """With a size alone, a bucket with few records waits for as long as it takes."""
    monkeypatch.setattr("holdfast.datastream.connectors.files.inputs._MOST_OPEN", 2)
    opened: list[Any] = []
    counts = []
    open_input = LocalFileSystem.open_input

    def counted(self: LocalFileSystem, path: str) -> Any:
        opened.append(open_input(self, path))
        counts.append(sum(not file.closed for file in opened))
        return opened[-1]

    monkeypatch.setattr(LocalFileSystem, "open_input", counted)
    strategy = FileCompactStrategy.builder().set_size_threshold(1 << 30).build()
    job = SinkEngine(sink(local, bulk, strategy), stays=True)
    for _ in range(60):
        job.epoch(2, checkpoint=True)
    job.finish()
    assert max(counts) == 2
    shown = parquet.parts(local) if bulk else lines.parts(local)
    assert sorted(shown.values()) == [list(range(0, 120, 2)), list(range(1, 120, 2))]
    assert lines.hidden(local) == []


def test_without_checkpoints_nothing_waits(local: str) -> None:
    job = SinkEngine(sink(local), checkpoints=False)
    job.epoch(4)
    job.epoch()
    assert records(local) == [0, 1, 2, 3]


class Died(Exception):
    """The process dies."""


@pytest.mark.parametrize("bulk", [False, True])
def test_a_crash_at_every_step_of_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bulk: bool
) -> None:
    at = lines.At(monkeypatch, LocalFileSystem)

    def die() -> None:
        raise Died

    for turn in range(1000):
        base = str(tmp_path / str(turn))
        job = SinkEngine(sink(base, bulk))
        job.epoch(4, checkpoint=True)
        at.arm(turn, die)
        died = False
        try:
            job.epoch(2, checkpoint=True)
            job.epoch(2, checkpoint=True)
        except (Died, OperatorFailed):
            died = True
        at.arm(-1, die)
        if not died:
            assert turn > 10
            return
        job.restart()
        shown = records(base, bulk)
        assert len(shown) == len(set(shown))
        job.epoch(2)
        job.finish()
        assert records(base, bulk) == list(range(job.position))
        assert lines.hidden(base) == []
    pytest.fail("never came to an end")


# --- several jobs from one savepoint ------------------------------------------------------------

LATER = FileCompactStrategy.builder().enable_compaction_on_checkpoint(9).build()
SMALL = FileCompactStrategy.builder().set_size_threshold(4).build()


def started(saved: Checkpoint, function: FileSinkFunction, parallelism: int = 1) -> SinkEngine:
    """Another program, which starts from a savepoint."""
    job = SinkEngine(function, stays=True)
    job.completed = saved
    job.restart(parallelism, function=function)
    return job


@pytest.mark.parametrize("bulk", [False, True])
def test_forks_with_other_settings_and_subtasks_publish_the_same_files(
    local: str, bulk: bool
) -> None:
    """What waits is as in the savepoint, however the programs are configured."""
    job = SinkEngine(sink(local, bulk, LATER), parallelism=2, stays=True)
    for _ in range(3):
        job.epoch(4, checkpoint=True)
    saved = job.savepoint(4)
    one = started(saved, sink(local, bulk, None), parallelism=1)
    other = started(saved, sink(local, bulk, SMALL), parallelism=3)
    for fork in (one, other):
        fork.epoch(checkpoint=True)
    for fork in (other, one):
        fork.epoch()
        fork.finish()
    assert records(local, bulk) == list(range(16))
    assert len(lines.walk(local)) == 2, "one file for each subtask of the job, and nothing else"


@pytest.mark.parametrize("bulk", [False, True])
def test_what_waits_is_published_where_the_savepoint_says(tmp_path: Path, bulk: bool) -> None:
    """As all that is in a savepoint: so it is there once, also if a fork writes elsewhere."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    job = SinkEngine(sink(old, bulk, LATER), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(2)
    one, other = started(saved, sink(old, bulk, LATER)), started(saved, sink(new, bulk, LATER))
    for fork in (one, other):
        fork.epoch(1, checkpoint=True)
    for fork in (one, other):
        fork.epoch()
        fork.finish()
    assert records(old, bulk) == [0, 1, 2, 3, 4]
    assert records(new, bulk) == [4]
    assert lines.hidden(old) == lines.hidden(new) == []


def test_a_part_file_that_was_moved_away_is_not_written_again(
    local: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The segments are gone, which says as much as the part file."""
    job = SinkEngine(sink(local, True, LATER), stays=True)
    job.epoch(2, checkpoint=True)
    saved = job.savepoint(2)
    one, other = (started(saved, sink(local, True, LATER)) for _ in range(2))
    for fork in (one, other):
        fork.epoch(checkpoint=True)
    one.epoch()
    for path in lines.walk(local):
        if not lines.is_hidden(path):
            (Path(local) / path).unlink()
    with pytest.raises(OperatorFailed, match="were published by another job, which has started fr"):
        other.epoch()
    other.restart()
    other.epoch(1)
    assert "the job goes on, since it may have been published long ago" in caplog.text
    other.finish()
    assert records(local, bulk=True) == [4]


@pytest.mark.parametrize("bulk", [False, True])
def test_a_job_from_a_checkpoint_of_a_running_one_is_an_error_of_that(
    local: str, bulk: bool
) -> None:
    """Nobody told the running job, so it has put more records to those that waited."""
    job = SinkEngine(sink(local, bulk, LATER), stays=True)
    job.epoch(4, checkpoint=True)
    fork = started(job.completed, sink(local, bulk, LATER))
    job.epoch(4, checkpoint=True)
    fork.finish()
    assert records(local, bulk) == [0, 1, 2, 3]
    with pytest.raises(MissingFileError, match=r"were published by another job.* its savepoints"):
        job.finish()
    job.restart()
    job.finish()
    assert records(local, bulk) == list(range(8))


@pytest.mark.parametrize("bulk", [False, True])
def test_such_a_job_may_come_between_checkpoint_and_publication(local: str, bulk: bool) -> None:
    """The files are joined already; records that wait since then are not lost."""
    job = SinkEngine(sink(local, bulk, EVERY_SECOND), stays=True)
    job.epoch(4, checkpoint=True)
    before = job.completed
    fork = started(before, sink(local, bulk, EVERY_SECOND))
    job.epoch(4, checkpoint=True)
    fork.finish()
    for _ in range(2):
        with pytest.raises(OperatorFailed, match="were published by another job, which has start"):
            job.epoch()
        job.restart()
    job.completed = before
    job.restart(function=sink(local, bulk, EVERY_SECOND))
    job.epoch(4)
    job.finish()
    assert records(local, bulk) == list(range(8))


@pytest.mark.parametrize("bulk", [False, True])
def test_a_fork_that_dies_at_any_step_and_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bulk: bool
) -> None:
    at = lines.At(monkeypatch, LocalFileSystem)

    def die() -> None:
        raise Died

    for turn in range(0, 1000, 2):  # after a call is before the next one
        base = str(tmp_path / str(turn))
        job = SinkEngine(sink(base, bulk, LATER), stays=True)
        job.epoch(4, checkpoint=True)
        job.epoch(4, checkpoint=True)
        saved = job.savepoint(4)
        job.epoch(close=True)
        waits = started(saved, sink(base, bulk, LATER))
        waits.epoch(checkpoint=True)
        dies = started(saved, sink(base, bulk, LATER))
        at.arm(turn, die)
        died = False
        try:
            dies.epoch(checkpoint=True)
            dies.epoch()
        except (Died, OperatorFailed):
            died = True
        at.arm(-1, die)
        later = started(saved, sink(base, bulk, LATER))
        for fork in (later, waits):
            fork.epoch(checkpoint=True)
            fork.finish()
        assert records(base, bulk) == list(range(12))
        dies.restart()
        dies.finish()
        assert records(base, bulk) == list(range(12))
        if not died:
            assert turn > 10
            return
    pytest.fail("never came to an end")


@settings(max_examples=40, deadline=None)
@given(
    before=st.lists(st.integers(0, 3), max_size=3),
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["checkpoint", "epoch", "restart"])),
        max_size=12,
    ),
    bulk=st.booleans(),
)
def test_whatever_the_order_what_waits_in_a_savepoint_is_there_once(
    before: list[int], steps: list[tuple[int, str]], bulk: bool
) -> None:
    """The job that took it, and two that start from it. Nobody reads more records."""
    with tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/out"
        job = SinkEngine(sink(base, bulk, LATER), stays=True)
        for count in before:
            job.epoch(count, checkpoint=True)
        saved = job.savepoint(2)
        job.epoch(checkpoint=True)  # before that it would go back behind the savepoint
        jobs = [job, *(started(saved, sink(base, bulk, SMALL)) for _ in range(2))]
        for number, step in steps:
            if step == "restart":
                jobs[number].restart()
            else:
                jobs[number].epoch(checkpoint=step == "checkpoint")
            shown = records(base, bulk)
            assert len(shown) == len(set(shown)), "nothing is seen twice"
        for each in jobs:
            each.finish()
        assert records(base, bulk) == list(range(sum(before) + 2)), "nothing is lost"
        assert lines.hidden(base) == []


STRATEGIES = (
    st.builds(FileCompactStrategy, st.sampled_from([None, 6]), st.sampled_from([1, 2, 3]))
    | st.none()
)


@settings(max_examples=30, deadline=None)
@given(
    history=lines.HISTORIES,
    parallelism=st.integers(1, 3),
    strategy=STRATEGIES,
    other=STRATEGIES,
    bulk=st.booleans(),
)
def test_any_history_shows_each_record_once(
    history: list[Any], parallelism: int, strategy: Any, other: Any, bulk: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/out"
        job = SinkEngine(sink(base, bulk, strategy), parallelism)
        for event in history:
            if isinstance(event, tuple):
                job.restart(event[0], sink(base, bulk, other) if event[1] else None)
            elif isinstance(event, int):
                for zombie in job.zombies[event : event + 1]:
                    with contextlib.suppress(FileSystemError):  # it may fail, if it does no harm
                        zombie()
            else:
                job.epoch(**event)
            shown = records(base, bulk)
            assert len(shown) == len(set(shown)), "nothing is seen twice"
            assert set(shown) <= set(range(job.completed.position)), "nothing is seen too early"
        job.finish()
        assert records(base, bulk) == list(range(job.position)), "nothing is lost"


def test_a_job_with_compaction(env: StreamExecutionEnvironment, local: str) -> None:
    builder = FileSink.for_row_format(local, Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.enable_compact(EVERY_SECOND, FileCompactor.concat_file_compactor())
    env.enable_checkpointing(1000)
    env.from_collection(range(30)).sink_to(builder.build()).set_parallelism(1)
    with LocalExecutor(env, quota=6, workers=2, seed=1) as run:
        run.epoch(checkpoint=True)
        run.epoch(checkpoint=True, rerun=True)
        run.epoch(checkpoint=True, kill=True)
        run.recover()
        run.run_to_end()
    assert lines.records(local) == list(range(30))
    assert lines.hidden(local) == []
    assert len(lines.parts(local)) < 5


def test_compactors() -> None:
    out = io.BytesIO()
    files = [io.BytesIO(b"a"), io.BytesIO(b"b")]
    FileCompactor.concat_file_compactor(b"|").compact(files, out)
    assert out.getvalue() == b"a|b"
    with pytest.raises(ValueError, match="only copies single files; got 2 files for one: use"):
        FileCompactor.identical_file_compactor().compact(files, out)


def test_wrong_settings(local: str) -> None:
    with pytest.raises(ValueError, match=r"nothing would ever be compacted; call set_size_thr"):
        FileCompactStrategy.builder().set_num_compact_threads(2).build()
    with pytest.raises(ValueError, match="expected at least 1 byte; got 0"):
        FileCompactStrategy.builder().set_size_threshold(0)
    with pytest.raises(ValueError, match="expected at least 1 checkpoint; got 0"):
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(0)
    rows = FileSink.for_row_format(local, lines.LINES)
    rows.enable_compact(EVERY_SECOND, FileCompactor.record_wise_file_compactor())
    with pytest.raises(ValueError, match="cannot join files of a row format: use concat_file"):
        rows.build()
    assert rows.disable_compact().build().compaction is None
    bulk = FileSink.for_bulk_format(local, ParquetBulkWriters.for_row_type(parquet.SCHEMA))
    bulk.enable_compact(EVERY_SECOND, FileCompactor.concat_file_compactor())
    with pytest.raises(ValueError, match="cannot join files of a bulk format: use record_wise"):
        bulk.build()
