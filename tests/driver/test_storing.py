"""Checkpoints whose state is stored while the stream goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import CheckpointStatus, WriteMetadata
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage, OperatorImage
from holdfast.common import JobStatus
from holdfast.driver.checkpoints.storing import PendingCheckpoint
from holdfast.driver.job_events import ActionFailed, EpochCommitted
from holdfast.driver.reports import checkpoints_of
from holdfast.errors import JobExecutionError
from holdfast.runtime.wire.protocol import StoredState
from holdfast.state.errors import StateLookupError
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.head import Head
from tests.driver.keeping import FIRST, PLACES, SECOND, SOURCE, Job

TOLERANT = "execution.checkpointing.tolerable-failed-checkpoints"
CONCURRENT = "execution.checkpointing.max-concurrent-checkpoints"
KEPT = "execution.checkpointing.num-retained"

MakeJob = Callable[..., Job]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeJob]:
    made: list[Job] = []

    def make(**settings: str) -> Job:
        made.append(Job(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.runner.cancel()
        one.to_end()


@pytest.fixture
def job(make: MakeJob) -> Job:
    return make()


def failures(job: Job) -> dict[int, str | None]:
    """Why there is none, by checkpoint; None for those that are complete."""
    ended = [c for c in checkpoints_of(job.runner.history) if c.end_timestamp is not None]
    return {c.id: c.failure for c in ended}


def names(*checkpoints: int) -> set[str]:
    """How the names of files of checkpoints end."""
    return {f"{checkpoint:012x}.state" for checkpoint in checkpoints}


def left(job: Job) -> set[str]:
    return {name.rpartition("-")[2] for name in job.engine.files}


def test_a_checkpoint_is_complete_when_all_have_stored_their_state(job: Job) -> None:
    assert job.checkpoint() == 1
    job.engine.store(1, SOURCE, FIRST)
    assert job.round() == EpochCommitted(2)
    assert job.completed == []
    job.engine.store(1, SECOND)
    assert job.round() == EpochCommitted(3)
    assert job.completed == [1]
    metadata = job.runner.checkpoints.store.read(1)
    assert metadata.epoch == 1
    assert [head.until for level in metadata.levels for head in level.heads] == [1, 1, 1]
    assert job.runner.book.heads == [list(level.heads) for level in metadata.levels]


def test_listeners_hear_of_it_with_the_next_round(job: Job) -> None:
    job.checkpoint()
    job.round()
    assert job.told.completed == ()
    job.engine.store(1)
    job.round()
    assert job.told.completed == (1,)
    job.round()
    assert job.told.completed == ()


def test_a_subtask_that_had_nothing_to_store_is_not_waited_for(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.checkpoint()
    job.engine.store(1)
    job.round()
    execute = job.engine.execute

    def one_stores(tasks: Any) -> Any:
        outcome = execute(tasks)
        outcome.acks = [
            msgspec.structs.replace(ack, storing=(ack.level, ack.subtask) == FIRST)
            for ack in outcome.acks
        ]
        return outcome

    monkeypatch.setattr(job.engine, "execute", one_stores)
    assert job.checkpoint() == 2
    job.engine.store(2, FIRST)
    job.round()
    levels = job.runner.checkpoints.store.read(2).levels
    assert [head.until for level in levels for head in level.heads] == [1, 3, 1]


def test_no_second_one_begins_while_there_is_no_room(job: Job) -> None:
    job.checkpoint()
    job.round(5000)
    assert job.told.checkpoint is None
    job.engine.store(1)
    job.round()
    assert job.told.checkpoint == 2


def test_two_can_be_in_flight(make: MakeJob) -> None:
    job = make(**{CONCURRENT: "2", KEPT: "2"})
    assert [job.checkpoint(), job.checkpoint()] == [1, 2]
    job.round(1000)
    assert job.told.checkpoint is None
    job.engine.store(1)
    job.round()
    assert job.completed == [1]
    job.engine.store(2)
    job.round()
    assert job.completed == [1, 2]


def test_one_that_is_complete_before_an_older_one_replaces_it(make: MakeJob) -> None:
    job = make(**{CONCURRENT: "2"})
    job.checkpoint()
    job.checkpoint()
    job.engine.store(1, FIRST, SECOND)
    job.engine.store(2)
    job.round()
    assert failures(job) == {1: "checkpoint 2 was completed before it", 2: None}
    assert (job.told.completed, job.told.aborted) == ((2,), (1,))


def test_files_that_cannot_be_deleted_fail_nothing_and_go_with_the_next_checkpoint(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise OSError(f"the storage is away: {path}")

    for checkpoint in (1, 2, 3):
        assert job.checkpoint() == checkpoint
        for place in PLACES:
            job.engine.begin_anew(place)
        job.engine.store(checkpoint)
        with monkeypatch.context() as patched:
            if checkpoint == 2:
                patched.setattr(job.runner.checkpoints.store.files, "delete", refuse)
            assert isinstance(job.round(), EpochCommitted)
        assert job.completed == [[1], [1, 2], [3]][checkpoint - 1]
    assert failures(job) == {1: None, 2: None, 3: None}
    assert left(job) == names(3)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [line.endswith("; the next checkpoint will try again") for line in warned] == [True]


def test_the_minimum_pause_begins_with_the_completion(make: MakeJob) -> None:
    job = make(**{"execution.checkpointing.min-pause": "2 s"})
    job.checkpoint()
    job.clock.advance(3000)
    job.engine.store(1)
    job.round()
    assert job.told.checkpoint is None
    job.round(1999)
    assert job.told.checkpoint is None
    job.round(1)
    assert job.told.checkpoint == 2


def test_a_state_that_could_not_be_stored_fails_the_checkpoint(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.checkpoint()
    job.engine.fail_to_store(1, SECOND)
    assert isinstance(job.round(), EpochCommitted)
    (failure,) = failures(job).values()
    assert failure is not None
    assert failure.startswith("the state of ")
    assert failure.endswith("(2/2) could not be stored: disk full")
    assert job.told.aborted == (1,)
    job.engine.store(1, SOURCE, FIRST)
    job.round()
    assert job.completed == []
    assert job.checkpoint() == 2


def test_a_failure_that_is_not_tolerable_fails_the_attempt(job: Job) -> None:
    job.checkpoint()
    job.engine.fail_to_store(1, FIRST)
    failed = job.round()
    assert isinstance(failed, ActionFailed)
    assert "could not be stored: disk full" in str(failed.failure)
    job.round()
    assert job.runner.machine.attempt == 1


def test_a_checkpoint_expires_while_the_stream_goes_on(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.checkpoint()
    job.engine.store(1, SOURCE)
    job.round(10_000)
    assert failures(job) == {}
    job.round(1)
    failure = failures(job)[1]
    assert failure is not None
    assert failure.startswith(
        "it expired: not stored after 10001 ms, the timeout is 10000 ms; 1 of"
    )
    assert "late: " in failure
    assert "(1/2)" in failure
    assert "(2/2)" in failure
    assert job.told.aborted == (1,)


def test_expiry_counts_as_a_failure(job: Job) -> None:
    job.checkpoint()
    failed = job.round(10_001)
    assert isinstance(failed, ActionFailed)
    assert "it expired" in str(failed.failure)


def test_a_late_state_is_the_head_of_the_next_one(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.checkpoint()
    job.round(10_001)
    assert job.told.checkpoint == 2
    job.engine.store(1)
    job.round()
    assert job.completed == []
    assert [head.until for level in job.runner.book.heads for head in level] == [1, 1, 1]
    job.engine.store(2)
    job.round()
    assert job.completed == [2]
    assert {1, 2} == {
        ref.until
        for level in job.runner.checkpoints.store.read(2).levels
        for head in level.heads
        for ref in head.files
    }


# What somebody waits for


def test_a_requested_checkpoint_is_awaited(job: Job) -> None:
    job.round()
    asked = job.runner.checkpoint()
    job.engine.while_waiting = lambda: job.engine.store(1)
    job.round()
    assert asked.result(0) == 1
    assert job.completed == [1]
    assert not job.told.halts


def test_a_savepoint_is_awaited_and_the_job_goes_on(job: Job, tmp_path: Path) -> None:
    asked = job.runner.savepoint(str(tmp_path / "savepoints"))
    job.engine.while_waiting = lambda: job.engine.store(1)
    assert job.round() == EpochCommitted(0)
    assert Path(asked.result(0)).is_dir()
    assert not job.told.halts


def test_a_savepoint_of_a_job_without_checkpoints(make: MakeJob, tmp_path: Path) -> None:
    job = make(**{"execution.checkpointing.interval": "0"})
    for number in (1, 2):
        asked = job.runner.savepoint(str(tmp_path / "savepoints"))
        job.engine.while_waiting = lambda number=number: job.engine.store(number)  # type: ignore[misc]
        job.round()
        assert Path(asked.result(0)).is_dir()


def test_a_job_stops_when_the_state_of_its_savepoint_is_stored(job: Job, tmp_path: Path) -> None:
    asked = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True)
    job.engine.while_waiting = lambda: job.engine.store(1)
    assert job.round() == EpochCommitted(0, complete=True, stops=True)
    assert job.told.halts
    job.round()
    assert (job.told.closing, job.told.halts, job.told.completed) == (True, True, (1,))
    job.to_end()
    assert Path(asked.result(0)).is_dir()
    assert job.runner.status is JobStatus.FINISHED


def test_sources_go_on_after_a_stop_that_failed(job: Job, tmp_path: Path) -> None:
    asked = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True)
    job.engine.while_waiting = lambda: job.engine.fail_to_store(1, FIRST)
    assert job.round() == EpochCommitted(0)
    assert job.told.halts
    with pytest.raises(CheckpointError, match="could not be stored: disk full"):
        asked.result(0)
    job.round()
    assert (job.told.halts, job.told.closing) == (False, False)


def test_sources_go_on_after_a_stop_that_expired(job: Job, tmp_path: Path) -> None:
    asked = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True)
    assert job.round() == EpochCommitted(0)
    with pytest.raises(CheckpointError, match="it expired"):
        asked.result(0)
    job.round()
    assert not job.told.halts


def test_a_job_that_was_drained_for_nothing_starts_again(job: Job, tmp_path: Path) -> None:
    job.round()
    job.runner.savepoint(str(tmp_path / "savepoints"), stop=True, drain=True)
    job.engine.while_waiting = lambda: job.engine.fail_to_store(1, FIRST)
    failed = job.round()
    assert (job.told.draining, job.told.halts) == (True, True)
    assert isinstance(failed, ActionFailed)
    assert "was drained for a savepoint that failed" in str(failed.failure)


def test_the_last_checkpoint_of_a_job_is_its_own(job: Job) -> None:
    """One from before the end does not cover what was read since, whenever it is complete."""
    job.checkpoint()
    job.engine.finished = True
    assert job.round() == EpochCommitted(2, finished=True)
    job.engine.store(1)
    job.engine.while_waiting = lambda: job.engine.store(2)
    assert job.round() == EpochCommitted(3, finished=True, complete=True)
    assert job.told.checkpoint == 2
    job.to_end()
    assert job.runner.status is JobStatus.FINISHED


def test_the_last_checkpoint_waits_for_room(job: Job) -> None:
    job.checkpoint()
    job.engine.finished = True
    job.round()
    assert job.round() == EpochCommitted(3, finished=True)
    assert job.told.checkpoint is None
    job.step()
    assert job.engine.dues[-1] == 10_001
    job.engine.store(1)
    job.engine.while_waiting = lambda: job.engine.store(2)
    assert job.round() == EpochCommitted(4, finished=True, complete=True)


def test_a_job_leaves_for_another_plan_when_its_state_is_stored(job: Job) -> None:
    job.round()
    rescaled = job.runner.rescale({"sums": 1})
    job.engine.while_waiting = lambda: job.engine.store(1)
    assert job.round() == EpochCommitted(1, complete=True)
    assert job.told.halts
    job.round()
    assert (job.told.closing, job.told.halts) == (True, True)
    job.round()
    assert job.told.attempt == 1
    rescaled.result(0)


def test_sources_go_on_when_a_job_cannot_leave(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.round()
    rescaled = job.runner.rescale({"sums": 1})
    job.engine.while_waiting = lambda: job.engine.fail_to_store(1, SOURCE)
    job.round()
    assert job.told.halts
    with pytest.raises(CheckpointError, match="disk full"):
        rescaled.result(0)
    job.round()
    assert (job.told.halts, job.told.attempt) == (False, 0)


# Ends


def test_a_cancelled_job_waits_for_nobody(job: Job, tmp_path: Path) -> None:
    asked = job.runner.savepoint(str(tmp_path / "savepoints"), stop=True, drain=True)
    job.engine.while_waiting = job.runner.cancel
    assert job.round() == EpochCommitted(0)
    job.round()
    assert job.told.closing
    job.to_end()
    assert job.runner.status is JobStatus.CANCELED
    with pytest.raises(CheckpointError, match="there is no savepoint: the job ended"):
        asked.result(0)


def test_a_job_is_cancelled_with_a_checkpoint_in_flight(job: Job) -> None:
    job.checkpoint()
    job.runner.cancel()
    job.to_end()
    assert failures(job) == {1: "the job ended"}
    assert job.runner.status is JobStatus.CANCELED


def test_a_restart_abandons_what_is_in_flight(make: MakeJob) -> None:
    job = make(**{CONCURRENT: "2"})
    job.checkpoint()
    job.engine.store(1)
    job.checkpoint()
    job.checkpoint()
    job.engine.store(2, FIRST, SECOND)
    lost = JobExecutionError("a slot is lost")
    job.engine.while_waiting = lambda: None
    stored = job.engine.stored

    def gone(patience_ms: int = 0) -> Any:
        raise lost

    job.engine.stored = gone  # type: ignore[method-assign]
    assert isinstance(job.round(), ActionFailed)
    job.engine.stored = stored  # type: ignore[method-assign]
    job.round()
    assert job.told.attempt == 1
    start = job.engine.starts[-1]
    assert start is not None
    assert start.metadata.id == 1
    assert failures(job) == {1: None, 2: "the job was restarted", 3: "the job was restarted"}
    assert job.checkpoint() == 4
    job.engine.store(4)
    job.round()
    assert job.completed == [4]
    assert left(job) == names(1, 4), "what the attempt before has left is gone"


# Files


def test_files_of_a_checkpoint_in_flight_stay(make: MakeJob) -> None:
    job = make(**{CONCURRENT: "2"})
    job.checkpoint()
    job.checkpoint()
    begun = job.engine.begin(2, FIRST)
    job.engine.store(1)
    job.round()
    assert job.completed == [1]
    assert begun in job.engine.files


def test_files_stay_that_are_stored_for_a_checkpoint_that_failed(make: MakeJob) -> None:
    """The next state of the subtask builds on them."""
    job = make(**{CONCURRENT: "2", TOLERANT: "1"})
    job.checkpoint()
    job.engine.failing = {SOURCE}
    job.checkpoint()
    assert failures(job)[2] == "the ledger is locked"
    begun = job.engine.begin(2, FIRST)
    job.engine.store(1)
    job.round()
    assert job.completed == [1]
    assert begun in job.engine.files


def test_files_of_arrived_states_stay_until_their_checkpoint_ends(make: MakeJob) -> None:
    """One of them is of a checkpoint that failed, and in no head any more."""
    job = make(**{CONCURRENT: "4", TOLERANT: "1"})
    for failing in ((), (SOURCE,), (), ()):
        job.engine.failing = set(failing)
        job.checkpoint()
    for checkpoint in (1, 2, 3):
        job.engine.store(checkpoint, FIRST, SECOND)
    job.engine.begin_anew(FIRST)
    job.engine.store(4, FIRST)
    job.engine.store(1, SOURCE)
    job.round()
    assert job.completed == [1]
    job.engine.store(3, SOURCE)
    job.round()
    assert job.completed == [3]
    of_first = job.runner.checkpoints.store.read(3).levels[1].heads[0]
    assert [ref.until for ref in of_first.files] == [1, 2, 3]
    assert {ref.name for ref in of_first.files} <= job.engine.files


def test_what_nobody_needs_goes_some_time(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.checkpoint()
    leftover = job.engine.begin(1, SECOND)
    job.engine.store(1, SOURCE, FIRST)
    job.engine.fail_to_store(1, SECOND)
    job.round()
    assert leftover in job.engine.files
    job.checkpoint()
    job.engine.store(2)
    job.round()
    assert job.completed == [2]
    assert leftover not in job.engine.files


# When a round is wanted


def due(job: Job) -> int | None:
    job.step()
    return job.engine.dues[-1]


def test_how_long_the_engine_may_wait(job: Job) -> None:
    job.step()
    assert due(job) == 0, "the first epoch of an attempt"
    job.round()
    assert due(job) == 1000
    job.checkpoint()
    assert due(job) == 10_001, "there is no room for another one"
    job.engine.store(1)
    job.round()
    job.round()
    assert due(job) == 1000


def test_listeners_are_not_kept_waiting(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.round()
    asked = job.runner.checkpoint()
    job.engine.while_waiting = lambda: job.engine.store(1)
    job.round()
    asked.result(0)
    assert due(job) == 0


def test_requests_wake_the_engine(job: Job, tmp_path: Path) -> None:
    job.round()
    job.runner.checkpoint()
    assert (due(job), job.engine.wakes) == (0, 1)
    job.runner.savepoint(str(tmp_path / "savepoints"))
    job.runner.rescale({"sums": 1})
    job.runner.cancel()
    assert job.engine.wakes == 4


def test_a_cancelled_job_is_not_kept_waiting(job: Job) -> None:
    job.round()
    job.runner.cancel()
    assert due(job) == 0


def test_nobody_waits_for_a_round_of_a_job_without_checkpoints(make: MakeJob) -> None:
    job = make(**{"execution.checkpointing.interval": "0"})
    job.round()
    assert due(job) is None


# What people are told


def test_the_history_has_when_and_what_each_subtask_stored(job: Job) -> None:
    job.checkpoint()
    job.clock.advance(300)
    job.engine.store(1, SOURCE)
    job.clock.advance(300)
    job.engine.store(1, FIRST, SECOND)
    job.round()
    seen = job.runner.history.checkpoints[1]
    parts = [part for of_vertex in seen.subtasks.values() for part in of_vertex]
    assert [part and part.acknowledged for part in parts] == [1300, 1600, 1600]
    assert [part and part.asynchronous for part in parts] == [250, 250, 250]
    assert all(part and part.size == part.written > 0 for part in parts)
    assert (seen.acknowledged, seen.total) == (3, 3)


def test_the_history_counts_those_that_were_late_out(make: MakeJob) -> None:
    job = make(**{TOLERANT: "1"})
    job.checkpoint()
    job.engine.store(1, SOURCE)
    job.round()
    job.round(10_001)
    seen = job.runner.history.checkpoints[1]
    assert seen.status == CheckpointStatus.FAILED.name
    assert (seen.acknowledged, seen.total) == (1, 3)


def test_a_query_goes_to_the_subtask_that_has_the_key(job: Job) -> None:
    assert job.runner.query_state("sums", "sum", 3) == 7
    assert job.runner.query_state("sums", "sum", 4, window="w") == 7
    asked = job.engine.asked
    assert [(level, uid, state, key) for level, _, uid, state, key, _ in asked] == [
        (1, "sums", "sum", 3),
        (1, "sums", "sum", 4),
    ]
    assert {(1, one[1]) for one in asked} <= set(PLACES)
    assert asked[1][-1] == "w"
    with pytest.raises(StateLookupError, match="no operator has the uid or name 'other'"):
        job.runner.query_state("other", "sum", 3)
    with pytest.raises(StateLookupError, match="there is no state 'count'"):
        job.runner.query_state("sums", "count", 3)


def test_what_is_pickled_is_known_when_it_is_written() -> None:
    saved = SavedState("names", "value", (None,))
    image = OperatorImage("op", "map", 1, 128, 0, states=(saved,))
    head = Head()
    metadata = CheckpointMetadata(
        id=1,
        timestamp=0,
        epoch=3,
        job_name="job",
        savepoint=False,
        levels=(LevelImage(1, (head,)),),
        operators={"uid": image, "other": image},
        spark={},
    )
    pending = PendingCheckpoint(WriteMetadata(1, 3, None, True), metadata, (), {(0, 0)})
    pending.take(StoredState(1, 0, 0, head, pickled=(("uid", "names", False),)))
    found = pending.metadata().operators
    assert [state.pickled for state in found["uid"].states] == [True]
    assert [state.pickled for state in found["other"].states] == [False]
