"""A history in a file: what was told can be read, whatever became of who wrote it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.filesystem.local import LOCAL
from holdfast.history.events import (
    AttemptBegan,
    AttemptFailed,
    CheckpointSeen,
    EpochEnded,
    Event,
    JobBegan,
    PointSeen,
    RescaleSeen,
    StateLoaded,
    StatusChanged,
    SubtaskCheckpoint,
    SubtaskFigures,
    SubtasksSeen,
    VertexPoint,
    VertexRescale,
)
from holdfast.history.job import JobHistory
from holdfast.history.journal import SUFFIX, Journal, open_journal, read_journal
from holdfast.testing.filesystem import MemoryFileSystem

JOB = JobBegan("a" * 32, "orders", 1, "0", 2, {"key": "value"}, {})
EVENTS: list[Event] = [
    JOB,
    StatusChanged(2, "RUNNING"),
    AttemptBegan(0, 2),
    StateLoaded(0, 3, 100, 200, 1, [[(100, 0), (0, 200)]]),
    EpochEnded(0, 3, 0.5, 10, 20, 100, {"load": 0.1}, 1000, 200),
    CheckpointSeen(1, "IN_PROGRESS", 4),
    CheckpointSeen(1, "COMPLETED", 4, ended=9, size=7, written=7, path="x", retained=(1,)),
    CheckpointSeen(
        2,
        "FAILED",
        10,
        ended=12,
        failure="no space",
        total=2,
        acknowledged=1,
        subtasks={"v": [SubtaskCheckpoint(11, 1, 2, 3, 4, 5, 6), None]},
    ),
    SubtasksSeen(5, {"v": [SubtaskFigures(records_in=3, watermark=-7)]}, {"uid": {"0": {"m": 1}}}),
    RescaleSeen(1, "RECOVERABLE_FAILOVER", 5, 4, 4, 2, {"v": VertexRescale("Map", 4, 4, 2)}),
    RescaleSeen(2, "UPDATE_REQUIREMENT", 5, 2, 2, 2, {}, 9, "EXCEPTION_OCCURRED", "no"),
    PointSeen(7, 5, 2.0, 1.5, {"v": VertexPoint(2.0, 1.5, 300, 0, 60)}, 200, 1000, 4, 1),
    PointSeen(
        9, 2, metrics={"uid": {"total": 7, "sizes": (2, 7, 3, 4), "none": (0, 0, None, None)}}
    ),
    AttemptFailed(0, 6, "ValueError", "no", "trace\n<b>", "Map", 1),
]


def seen(history: JobHistory) -> list[Event]:
    return history.remembered()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history" / f"job{SUFFIX}"


def write(path: Path, events: list[Event], largest: int = 1_000_000) -> JobHistory:
    history = JobHistory()
    journal = Journal(path, history, largest)
    for event in events:
        history.tell(event)
        journal.tell(event)
    journal.close()
    return history


def test_what_was_told_is_read(path: Path) -> None:
    told = write(path, [*EVENTS, StatusChanged(9, "FINISHED")])
    read = read_journal(path)
    assert seen(read) == seen(told)
    assert (read.status, read.ended, read.id) == ("FINISHED", 9, JOB.id)


def test_a_torn_last_line_is_left_out(path: Path) -> None:
    told = write(path, EVENTS)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 2):
        path.write_bytes(whole[:-cut] if cut == 1 else whole[: -len(lines[-1])] + lines[-1][:cut])
        read = read_journal(path)
        assert read.id == told.id
        assert len(read.failures) == (1 if cut == 1 else 0)


@given(data=st.binary(max_size=200))
def test_garbage_is_left_out(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / f"x{SUFFIX}"
    write(path, [JOB])
    path.write_bytes(data + b"\n" + path.read_bytes() + data)
    assert read_journal(path).id == JOB.id


def test_a_killed_process_leaves_all_that_it_told(path: Path) -> None:
    program = f"""
import signal
from pathlib import Path
from holdfast.history.events import AttemptFailed, CheckpointSeen, JobBegan, StatusChanged
from holdfast.history.job import JobHistory
from holdfast.history.journal import Journal
history = JobHistory()
journal = Journal(Path({str(path)!r}), history)
for event in (
    JobBegan("a" * 32, "orders", 1, "0", 2, {{}}, {{}}),
    StatusChanged(2, "RUNNING"),
    CheckpointSeen(1, "COMPLETED", 4, ended=9),
    AttemptFailed(0, 6, "ValueError", "no", "trace", "Map", 1),
):
    history.tell(event); journal.tell(event)
print("told", flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"told\n"
    assert read_journal(path).status == "RUNNING", "the file is locked as long as the job lives"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    read = read_journal(path)
    assert read.status == "SUSPENDED"
    assert [failure.trace for failure in read.failures] == ["trace"]
    assert read.counts.completed == 1


def test_a_file_stays_bounded_and_forgets_the_oldest(path: Path) -> None:
    largest = 300_000
    epochs: list[Event] = [EpochEnded(n, n, 0.1, 1, 1, 1, {}, 1, 1) for n in range(5000)]
    told = write(path, [*EVENTS, *epochs], largest)
    assert path.stat().st_size <= largest + 1000
    read = read_journal(path)
    assert [one.epoch for one in read.epochs] == [one.epoch for one in told.epochs]
    assert read.epochs[-1].epoch == 4999
    assert read.counts == told.counts
    assert read.counts.epochs == 5001
    assert read.failures == told.failures
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_checkpoints_are_forgotten_but_counted() -> None:
    history = JobHistory()
    for number in range(1, 251):
        history.tell(CheckpointSeen(number, "IN_PROGRESS", number))
        history.tell(
            CheckpointSeen(number, "FAILED" if number % 5 == 0 else "COMPLETED", number, ended=1)
        )
    assert len(history.checkpoints) == 100
    assert max(history.checkpoints) == 250
    assert (history.counts.checkpoints, history.counts.completed, history.counts.failed) == (
        250,
        200,
        50,
    )


def test_a_directory_elsewhere_gets_a_copy(tmp_path: Path) -> None:
    """Where nothing can be added to a file."""
    files, history = MemoryFileSystem(), JobHistory()
    journal = open_journal(files, "/jobs/orders", "b" * 32, history, tmp_path)
    for event in [*EVENTS, StatusChanged(9, "FINISHED")]:
        history.tell(event)
        journal.tell(event)
    assert files.list_directory("/jobs/orders/history") == []
    journal.close()
    copy = tmp_path / "copy"
    copy.write_bytes(files.read(f"/jobs/orders/history/{'b' * 32}{SUFFIX}"))
    assert seen(read_journal(copy)) == seen(history)


def test_the_last_starts_are_remembered(tmp_path: Path) -> None:
    for number in range(25):
        journal = open_journal(LOCAL, str(tmp_path), f"{number:032x}", JobHistory(), tmp_path)
        journal.close()
        os.utime(journal.path, (number, number))
    kept = sorted(path.name for path in (tmp_path / "history").iterdir())
    assert kept == [f"{number:032x}{SUFFIX}" for number in range(5, 25)]


def test_a_place_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "history").write_text("in the way")
    write(tmp_path / "history" / "x", EVENTS)
    assert "the history of the job is not recorded" in caplog.text


def test_a_pipe_in_the_place_of_a_history_does_not_block(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a regular file"):
        read_journal(path)


def test_what_was_being_written_in_a_kill_is_removed_by_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "history"
    home.mkdir()
    (home / f".{'b' * 32}{SUFFIX}.tmp").touch()
    open_journal(LOCAL, str(tmp_path), "a" * 32, JobHistory(), tmp_path).close()
    assert [path.name for path in home.iterdir()] == ["a" * 32 + SUFFIX]


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("contents")
    path = tmp_path / f"job{SUFFIX}"
    journal = Journal(path, JobHistory(), largest=0)
    (tmp_path / f".{path.name}.tmp").symlink_to(tmp_path / "precious")
    journal.tell(JOB)
    journal.close()
    assert (tmp_path / "precious").read_text() == "contents"
