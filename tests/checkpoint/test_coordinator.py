from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.events import (
    AnswerRequest,
    AttemptStarting,
    CheckpointRecord,
    CheckpointRequested,
    CheckpointSettings,
    CheckpointStatus,
    DiscardCheckpoint,
    EpochAccepted,
    EpochFailed,
    EpochStarting,
    Event,
    FailJob,
    InjectBarrier,
    Instruction,
    JobEnding,
    MarkFinished,
    MetadataFailed,
    MetadataWritten,
    Notifications,
    Outcome,
    ReportCheckpoint,
    StopJob,
    SubtaskAcknowledged,
    TimePassed,
    WriteMetadata,
)
from holdfast.errors import InternalError
from tests.checkpoint.coordinating import Counts, Observed, Run, coordinator, handle


def test_the_life_of_a_checkpoint() -> None:
    it = coordinator()
    assert handle(it, EpochStarting(1, 1000)) == [InjectBarrier(1, 1000)]
    assert it.in_flight == (1,)
    assert it.notifications() == Notifications()
    assert handle(it, EpochAccepted(1, 1200)) == [WriteMetadata(1, 1)]
    assert it.in_flight == (1,)
    assert handle(it, MetadataWritten(1, 1210, size=77)) == []
    assert not it.in_flight
    assert it.completed == (1,)
    assert it.notifications() == Notifications(completed=(1,))
    assert handle(it, EpochStarting(2, 1300)) == []
    assert it.notifications() == Notifications(completed=(1,))
    assert handle(it, EpochAccepted(2, 1400)) == []
    assert it.notifications() == Notifications()
    completed = CheckpointRecord(1, CheckpointStatus.COMPLETED, 1000, 1210, 210, 77)
    assert it.reports.records == [completed]
    assert it.reports.counts == Counts(triggered=1, completed=1)


# Settings: each has an effect


def test_interval_is_a_fixed_rate() -> None:
    run = Run(coordinator(interval_ms=1000))
    times = [300 * n for n in range(1, 25)]
    triggered = [now for now in times if run.at(now)]
    assert triggered == [1200, 2100, 3000, 4200, 5100, 6000, 7200]


def test_missed_triggers_are_not_made_up_for() -> None:
    run = Run(coordinator(interval_ms=1000))
    assert [now for now in (5500, 5600, 6499, 6500) if run.at(now)] == [5500, 6500]


def test_no_interval_no_checkpoints() -> None:
    run = Run(coordinator(interval_ms=None))
    assert run.at(10**9) == []
    assert run.at(10**9, forced=True) == []


def test_min_pause_counts_from_the_completion() -> None:
    it = coordinator(interval_ms=1000, min_pause_ms=700)
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1800), MetadataWritten(1, 1900, 0))
    assert handle(it, EpochStarting(2, 2599), EpochAccepted(2, 2599)) == []
    assert handle(it, EpochStarting(3, 2600)) == [InjectBarrier(2, 2600)]


@pytest.mark.parametrize(("most", "barriers"), [(1, []), (2, [InjectBarrier(2, 2000)])])
def test_max_concurrent_counts_what_is_being_written(
    most: int, barriers: list[Instruction]
) -> None:
    it = coordinator(max_concurrent=most)
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1100))
    assert handle(it, EpochStarting(2, 2000)) == barriers


def test_timeout() -> None:
    it = coordinator(timeout_ms=500, tolerable_failures=1)
    handle(it, EpochStarting(1, 1000))
    assert handle(it, EpochAccepted(1, 1501)) == []
    assert it.notifications() == Notifications(aborted=(1,))
    (record,) = it.reports.records
    assert record.failure == "it expired: its epoch took 501 ms, the timeout is 500 ms"
    handle(it, EpochStarting(2, 2000))
    assert handle(it, EpochAccepted(2, 2500)) == [WriteMetadata(2, 2)]


def test_timeout_says_who_acknowledged_in_time() -> None:
    it = coordinator(timeout_ms=500, tolerable_failures=9)
    acks = [SubtaskAcknowledged(0, n, f"map ({n + 1}/8)", 1494 + n) for n in range(8)]
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1501, acknowledged=tuple(acks)))
    handle(it, EpochStarting(2, 2000), EpochAccepted(2, 2501, acknowledged=tuple(acks)))
    late = [replace(ack, time=9000) for ack in acks]
    handle(it, EpochStarting(3, 3000), EpochAccepted(3, 3501, acknowledged=tuple(late)))
    one, none, all_of_them = it.reports.records
    assert str(one.failure).endswith("; 7 of 8 subtasks acknowledged in time; late: map (8/8)")
    assert it.reports[1].late == {(0, 7)}
    assert str(none.failure).endswith("; 8 of 8 subtasks acknowledged in time")
    assert it.reports[2].late == frozenset()
    assert str(all_of_them.failure).endswith(
        "; 0 of 8 subtasks acknowledged in time; late: "
        "map (1/8), map (2/8), map (3/8), map (4/8), map (5/8) and 3 more"
    )
    assert it.reports[3].late == {(0, n) for n in range(8)}


def test_a_clock_that_is_ahead_does_not_expire_a_checkpoint() -> None:
    it = coordinator(timeout_ms=500)
    ahead = (SubtaskAcknowledged(0, 0, "map (1/1)", 9000),)
    handle(it, EpochStarting(1, 1000))
    assert handle(it, EpochAccepted(1, 1500, acknowledged=ahead)) == [WriteMetadata(1, 1)]


def test_snapshot_failures_abort_the_checkpoint() -> None:
    it = coordinator(tolerable_failures=9)
    handle(it, EpochStarting(1, 1000))
    assert handle(it, EpochAccepted(1, 1100, ("map: boom", "sink: bang"))) == []
    assert it.reports[1].record.status is CheckpointStatus.FAILED
    assert it.reports[1].record.failure == "map: boom; sink: bang"
    assert it.notifications() == Notifications(aborted=(1,))


def test_tolerable_failures_in_a_row() -> None:
    run = Run(coordinator(tolerable_failures=2))
    outcomes = []
    for second, failures in enumerate([["x"], ["x"], [], ["x"], ["x"], ["x"], ["x"]], start=1):
        run.at(1000 * second, *failures)
        outcomes.append([i for i in run.last if isinstance(i, FailJob)])
    tolerated = "checkpoint 6 failed, and at most 2 consecutive failures are tolerated: x"
    assert outcomes == [[], [], [], [], [], [FailJob(tolerated)], []]


def test_metadata_that_cannot_be_written_counts_too() -> None:
    it = coordinator()
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1000))
    (failed,) = handle(it, MetadataFailed(1, 1001, "disk full"))
    assert isinstance(failed, FailJob)
    assert failed.reason.endswith("disk full")
    assert not it.in_flight
    assert it.notifications() == Notifications(aborted=(1,))


def test_retained() -> None:
    run = Run(coordinator(retained=2))
    said = []
    for second in range(1, 5):
        run.at(1000 * second)
        said.append(run.last)
    assert said == [[], [], [DiscardCheckpoint(1)], [DiscardCheckpoint(2)]]
    assert run.coordinator.completed == (3, 4)


@pytest.mark.parametrize(
    ("outcome", "retain", "kept"),
    [
        (Outcome.FINISHED, True, False),
        (Outcome.CANCELLED, False, False),
        (Outcome.CANCELLED, True, True),
        (Outcome.FAILED, False, True),
        (Outcome.STOPPED, False, True),
    ],
)
def test_what_is_kept_when_the_job_ends(outcome: Outcome, retain: bool, kept: bool) -> None:
    run = Run(coordinator(retained=2, retain_on_cancellation=retain))
    run.at(1000)
    run.at(2000)
    gone = [MarkFinished(), DiscardCheckpoint(1), DiscardCheckpoint(2)]
    assert handle(run.coordinator, JobEnding(3000, outcome)) == ([] if kept else gone)


# Time


def test_a_final_checkpoint_does_not_wait() -> None:
    run = Run(coordinator(interval_ms=1000, min_pause_ms=5000))
    assert run.at(1000) == [1]
    assert run.at(1001, forced=True) == [2]


def test_a_clock_that_is_set_back_does_not_stop_checkpoints() -> None:
    run = Run(coordinator(interval_ms=1000, min_pause_ms=100))
    assert run.at(1_000_000) == [1]
    assert [now for now in (0, 500, 999, 1000) if run.at(now)] == [1000]


# Failure


def test_a_failed_epoch_aborts_its_checkpoint_and_does_not_count() -> None:
    it = coordinator(tolerable_failures=0)
    handle(it, EpochStarting(1, 1000))
    assert handle(it, EpochFailed(1, 1100, "they disagree")) == []
    assert it.notifications() == Notifications(aborted=(1,))
    # the second run of the epoch carries the next one
    assert handle(it, EpochStarting(1, 1101)) == [InjectBarrier(2, 1101)]
    assert it.notifications() == Notifications(aborted=(1,))


def test_notifications_stay_until_an_epoch_that_carried_them_was_accepted() -> None:
    it = coordinator(max_concurrent=2, retained=5)
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1000), MetadataWritten(1, 1000, 0))
    handle(it, EpochStarting(2, 1100), EpochFailed(2, 1200))
    assert it.notifications() == Notifications(completed=(1,))
    handle(it, EpochStarting(2, 2000), EpochAccepted(2, 2000))
    assert it.notifications() == Notifications()
    handle(it, EpochStarting(3, 2100))
    # comes too late for epoch 3, which was sent off without it
    handle(it, MetadataWritten(2, 2150, 0))
    assert it.notifications() == Notifications()
    handle(it, EpochAccepted(3, 2200))
    assert it.notifications() == Notifications(completed=(2,))


def test_a_newer_checkpoint_subsumes_one_that_is_still_being_written() -> None:
    it = coordinator(max_concurrent=2)
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1000))
    handle(it, EpochStarting(2, 2000), EpochAccepted(2, 2000))
    assert it.in_flight == (1, 2)
    assert handle(it, MetadataWritten(2, 2100, 0)) == []
    assert not it.in_flight
    assert it.notifications() == Notifications(completed=(2,), aborted=(1,))
    assert handle(it, MetadataWritten(1, 2200, 0)) == [DiscardCheckpoint(1)]
    assert it.completed == (2,)


# Restarts


def test_ids_go_on_and_retention_too() -> None:
    it = Coordinator(CheckpointSettings(10, retained=2), first_id=9, completed=[5, 6])
    handle(it, AttemptStarting(0, restored=6), EpochStarting(0, 0), EpochAccepted(0, 0))
    run = Run(it)
    assert run.at(10) == [9]
    assert run.last == [DiscardCheckpoint(5)]
    assert it.next_id == 10


def test_a_damaged_checkpoint_is_let_go_of_when_there_is_a_new_one() -> None:
    it = Coordinator(CheckpointSettings(10, retained=2), first_id=9, completed=[5, 6, 7])
    handle(it, AttemptStarting(0, restored=6), EpochStarting(0, 0), EpochAccepted(0, 0))
    assert it.completed == (5, 6)
    run = Run(it)
    run.at(10)
    assert run.last == [DiscardCheckpoint(5), DiscardCheckpoint(7)]
    assert it.completed == (6, 9)


def test_a_job_that_starts_afresh_does_not_go_back_to_what_it_found() -> None:
    it = Coordinator(CheckpointSettings(10), first_id=9, completed=[8])
    handle(it, AttemptStarting(0), EpochStarting(0, 0), EpochAccepted(0, 0))
    assert it.completed == ()
    run = Run(it)
    run.at(10)
    assert run.last == [DiscardCheckpoint(8)]


def test_a_restart_aborts_what_is_in_flight() -> None:
    it = coordinator(max_concurrent=2)
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1000), MetadataWritten(1, 1000, 0))
    handle(it, EpochStarting(2, 2000), EpochAccepted(2, 2000), EpochStarting(3, 3000))
    assert it.in_flight == (2, 3)
    assert handle(it, AttemptStarting(4000, restored=1)) == []
    assert not it.in_flight
    failures = [record.failure for record in it.reports.records]
    assert failures == [None, "the job was restarted", "the job was restarted"]
    # an attempt hears of no checkpoint of another attempt but those that it stands on
    assert it.notifications() == Notifications()
    assert handle(it, MetadataFailed(2, 4100, "gone")) == []
    # the interval starts with the attempt
    assert handle(it, EpochStarting(2, 4200), EpochAccepted(2, 4200)) == []
    assert handle(it, EpochStarting(3, 5200)) == [InjectBarrier(4, 5200)]


def test_a_new_attempt_still_hears_of_the_checkpoint_it_stands_on() -> None:
    it = coordinator()
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1000), MetadataWritten(1, 1000, 0))
    handle(it, EpochStarting(2, 1100), EpochFailed(2, 1200), AttemptStarting(1300, restored=1))
    assert it.notifications() == Notifications(completed=(1,))


# Savepoints


def test_a_savepoint_does_not_wait_and_is_not_retained() -> None:
    request = CheckpointRequested("/sp", request="r1")
    it = coordinator(interval_ms=1000, min_pause_ms=500)
    run = Run(it)
    assert run.at(1000) == [1]
    assert handle(it, request) == []
    assert handle(it, EpochStarting(5, 1001)) == [InjectBarrier(2, 1001, request)]
    assert handle(it, EpochAccepted(5, 1002)) == [WriteMetadata(2, 5, request, in_store=False)]
    assert it.notifications() == Notifications()
    answer = AnswerRequest(request, 2, path="/sp/savepoint-2")
    assert handle(it, MetadataWritten(2, 1003, 5, "/sp/savepoint-2")) == [answer]
    # nothing may be committed for it: recovery goes back to checkpoint 1
    assert it.notifications() == Notifications()
    assert it.completed == (1,)
    assert it.reports[2].record.savepoint
    # and it does not put off the next checkpoint
    assert run.at(2000) == [3]


def test_a_savepoint_without_checkpoints() -> None:
    request = CheckpointRequested("/sp", stop=True)
    it = coordinator(interval_ms=None)
    handle(it, request, EpochStarting(1, 5))
    assert handle(it, EpochAccepted(1, 6)) == [WriteMetadata(1, 1, request, in_store=False)]
    said = handle(it, MetadataWritten(1, 7, 5, "/sp/1"))
    assert said == [AnswerRequest(request, 1, path="/sp/1"), StopJob("/sp/1")]
    assert it.notifications() == Notifications(completed=(1,))
    assert handle(it, JobEnding(8, Outcome.FINISHED)) == []


def test_stop_with_savepoint() -> None:
    request = CheckpointRequested("/sp", stop=True, drain=True)
    it = coordinator()
    Run(it).at(1000)
    handle(it, request)
    assert handle(it, EpochStarting(2, 1100)) == [InjectBarrier(2, 1100, request)]
    assert handle(it, EpochAccepted(2, 1200)) == [WriteMetadata(2, 2, request, in_store=True)]
    assert it.must_wait
    with pytest.raises(InternalError, match="epoch 3 starts, but the job stops at a savepoint"):
        it.handle(EpochStarting(3, 1300))
    assert handle(it, MetadataWritten(2, 1300, 5, "/sp/2")) == [
        DiscardCheckpoint(1),
        AnswerRequest(request, 2, path="/sp/2"),
        StopJob("/sp/2", drain=True),
    ]
    other = CheckpointRequested("/sp2")
    assert handle(it, other) == [AnswerRequest(other, 0, failure="the job is stopping")]
    # the last epoch carries the notification, and no other checkpoint
    assert handle(it, EpochStarting(3, 9000, forced=True)) == []
    assert it.notifications() == Notifications(completed=(2,))
    handle(it, EpochAccepted(3, 9001))
    assert handle(it, JobEnding(9002, Outcome.STOPPED)) == []
    assert it.completed == (2,)


def test_a_savepoint_that_fails_is_answered_and_does_not_fail_the_job() -> None:
    request = CheckpointRequested("/sp", stop=True)
    it = coordinator(tolerable_failures=0)
    handle(it, request, EpochStarting(1, 10))
    answer = AnswerRequest(request, 1, failure="boom")
    assert handle(it, EpochAccepted(1, 11, ("boom",))) == [answer]
    assert it.notifications() == Notifications(aborted=(1,))
    assert handle(it, EpochStarting(2, 12)) == []


def test_a_drained_job_cannot_go_on_without_its_savepoint() -> None:
    request = CheckpointRequested("/sp", stop=True, drain=True)
    it = coordinator()
    handle(it, request, EpochStarting(1, 10), EpochAccepted(1, 11))
    assert handle(it, MetadataFailed(1, 12, "disk full")) == [
        AnswerRequest(request, 1, failure="disk full"),
        FailJob("the job was drained for a savepoint that failed: disk full"),
    ]


def test_a_savepoint_whose_epoch_fails_is_answered_and_the_next_one_is_taken() -> None:
    first, second = CheckpointRequested("/a"), CheckpointRequested("/b")
    it = coordinator()
    handle(it, first, second, EpochStarting(1, 10))
    assert handle(it, EpochFailed(1, 11, "boom")) == [AnswerRequest(first, 1, failure="boom")]
    # the second run of the epoch
    assert handle(it, EpochStarting(1, 12)) == [InjectBarrier(2, 12, second)]


def test_draining_means_stopping() -> None:
    with pytest.raises(ValueError, match="can be drained only when it is stopped"):
        CheckpointRequested("/sp", drain=True)


# Reports


def test_a_checkpoint_is_reported_when_it_is_triggered_and_when_it_is_completed() -> None:
    it = coordinator()
    triggered = CheckpointRecord(1, CheckpointStatus.IN_PROGRESS, 1000)
    # the report comes first: the barrier is for the epoch
    assert it.handle(EpochStarting(1, 1000)) == [
        ReportCheckpoint(triggered),
        InjectBarrier(1, 1000),
    ]
    assert it.handle(EpochAccepted(1, 1200)) == [WriteMetadata(1, 1)]
    completed = CheckpointRecord(
        1, CheckpointStatus.COMPLETED, 1000, 1210, 210, size=77, written=7, path="/chk-1"
    )
    written = MetadataWritten(1, 1210, size=77, path="/chk-1", written=7)
    assert it.handle(written) == [ReportCheckpoint(completed)]


def test_a_failure_is_reported_before_the_job_fails() -> None:
    it = coordinator()
    handle(it, EpochStarting(1, 1000))
    report, failed = it.handle(EpochAccepted(1, 1100, ("boom",)))
    record = CheckpointRecord(1, CheckpointStatus.FAILED, 1000, 1100, 100, failure="boom")
    assert report == ReportCheckpoint(record, is_failure=True)
    assert isinstance(failed, FailJob)


@pytest.mark.parametrize("savepoint", [False, True])
@pytest.mark.parametrize(
    ("events", "is_failure"),
    [
        ([EpochAccepted(1, 1100, ("boom",))], True),
        ([EpochAccepted(1, 9000)], True),
        ([EpochAccepted(1, 1100), MetadataFailed(1, 1200, "disk full")], True),
        ([EpochFailed(1, 1100)], False),
        ([AttemptStarting(1100)], False),
        ([EpochAccepted(1, 1100), AttemptStarting(1200)], False),
        ([JobEnding(1100, Outcome.CANCELLED)], False),
        ([EpochAccepted(1, 1100), JobEnding(1200, Outcome.FAILED)], False),
    ],
)
def test_a_report_tells_whether_the_checkpoint_failed_by_itself(
    events: list[Event], is_failure: bool, savepoint: bool
) -> None:
    it = coordinator(timeout_ms=500)
    if savepoint:
        handle(it, CheckpointRequested("/sp"))
    handle(it, EpochStarting(1, 1000), *events)
    assert it.reports.counts == Counts(triggered=1, failed=1)
    assert it.reports[1].is_failure is is_failure
    assert it.reports[1].record.savepoint is savepoint


def test_a_subsumed_checkpoint_is_reported_once() -> None:
    it = coordinator(max_concurrent=2)
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 1000))
    handle(it, EpochStarting(2, 2000), EpochAccepted(2, 2000))
    assert it.reports.in_progress == [1, 2]
    handle(it, MetadataWritten(2, 2100, 0))
    assert it.reports.counts == Counts(triggered=2, completed=1, failed=1)
    assert it.reports[1].record.failure == "checkpoint 2 was completed before it"
    assert not it.reports[1].is_failure
    # what becomes of its metadata is no news
    assert it.handle(MetadataWritten(1, 2200, 0)) == [DiscardCheckpoint(1)]


def test_a_clock_that_is_set_back_makes_no_negative_duration() -> None:
    it = coordinator()
    handle(it, EpochStarting(1, 1000), EpochAccepted(1, 900), MetadataWritten(1, 800, 0))
    assert it.reports[1].record.end_timestamp == 800
    assert it.reports[1].record.duration == 0


def test_counts_of_checkpoints_and_savepoints_add_up() -> None:
    it = coordinator(interval_ms=1, max_concurrent=9)
    handle(it, EpochStarting(1, 1), EpochAccepted(1, 1))
    for epoch in range(2, 10):
        handle(it, CheckpointRequested("/a"), EpochStarting(epoch, epoch))
        handle(it, EpochAccepted(epoch, epoch, ("x",)))
    # the first one is still in progress
    assert it.reports.in_progress == [1]
    assert it.reports.counts == Counts(triggered=9, completed=0, failed=8)


# What cannot happen


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([EpochStarting(1, 1), EpochStarting(2, 2)], "epoch 2 starts while epoch 1 runs"),
        ([EpochAccepted(1, 1)], "epoch 1 ended, but the one that runs is None"),
        ([EpochStarting(1, 1), EpochFailed(2, 2)], "epoch 2 ended, but the one that runs is 1"),
        ([MetadataWritten(3, 1, 0)], "metadata of checkpoint 3, which is not being written"),
        ([MetadataFailed(3, 1, "x")], "metadata of checkpoint 3, which is not being written"),
    ],
)
def test_events_that_cannot_have_happened(events: list[Event], message: str) -> None:
    it = coordinator()
    with pytest.raises(InternalError, match=message):
        handle(it, *events)


# State that is stored while the stream goes on


def in_writing(**settings: Any) -> Observed:
    """A coordinator with a checkpoint that was triggered at 1000, and whose state is stored."""
    it = coordinator(timeout_ms=500, **settings)
    assert handle(it, EpochStarting(1, 1000)) == [InjectBarrier(1, 1000)]
    assert handle(it, EpochAccepted(1, 1100)) == [WriteMetadata(1, 1)]
    return it


def test_a_checkpoint_expires_while_its_state_is_stored() -> None:
    it = in_writing(tolerable_failures=1)
    acks = [
        SubtaskAcknowledged(0, n, f"map ({n + 1}/3)", time)
        for n, time in enumerate([1200, None, 1501])
    ]
    assert it.expired(1500) == ()
    assert handle(it, TimePassed(1500)) == []
    assert it.expired(1501) == (1,)
    assert handle(it, TimePassed(1501, {1: tuple(acks)})) == []
    assert it.in_flight == ()
    assert it.notifications() == Notifications(aborted=(1,))
    assert it.reports[1].is_failure
    assert it.reports[1].late == {(0, 1), (0, 2)}
    assert it.reports[1].record.failure == (
        "it expired: not stored after 501 ms, the timeout is 500 ms; "
        "1 of 3 subtasks acknowledged in time; late: map (2/3), map (3/3)"
    )
    assert handle(it, MetadataFailed(1, 1600, "it was aborted")) == []


def test_metadata_that_is_written_after_the_timeout_goes_again() -> None:
    it = in_writing(tolerable_failures=1)
    handle(it, TimePassed(1501))
    assert handle(it, MetadataWritten(1, 1600, 0)) == [DiscardCheckpoint(1)]
    assert it.completed == ()


def test_all_that_expired_is_told_before_the_job_fails() -> None:
    it = in_writing(max_concurrent=2)
    handle(it, EpochStarting(2, 2000), EpochAccepted(2, 2000))
    (failed,) = handle(it, TimePassed(9000))
    assert isinstance(failed, FailJob)
    assert failed.reason.startswith(
        "checkpoint 1 failed, and at most 0 consecutive failures are tolerated"
    )
    assert it.reports.counts == Counts(triggered=2, failed=2)


def test_a_drained_savepoint_that_expires_fails_the_job() -> None:
    it = coordinator(timeout_ms=500, tolerable_failures=9)
    handle(it, CheckpointRequested("/sp", stop=True, drain=True))
    handle(it, EpochStarting(1, 10), EpochAccepted(1, 20))
    answer, failed = handle(it, TimePassed(511))
    assert isinstance(answer, AnswerRequest)
    assert isinstance(failed, FailJob)
    assert not it.must_wait


def test_a_closing_epoch_does_not_wait_for_a_savepoint() -> None:
    it = coordinator()
    handle(it, CheckpointRequested("/sp", stop=True), EpochStarting(1, 10), EpochAccepted(1, 20))
    with pytest.raises(InternalError, match="the job stops at a savepoint"):
        it.handle(EpochStarting(2, 30))
    assert handle(it, EpochStarting(2, 30, closing=True)) == []


def test_who_waits_for_a_checkpoint() -> None:
    it = coordinator()
    leaving, looking = CheckpointRequested(leaves=True), CheckpointRequested(request="2")
    handle(it, leaving, looking, EpochStarting(1, 10))
    assert (it.running, it.requests_of(1)) == (1, (leaving, looking))
    handle(it, EpochAccepted(1, 20))
    assert (it.running, it.requests_of(1)) == (None, (leaving, looking))
    handle(it, MetadataWritten(1, 30, 0))
    assert it.requests_of(1) == ()
    assert (leaving.halts, looking.halts) == (True, False)
    assert CheckpointRequested("/sp", stop=True).halts


@pytest.mark.parametrize(
    ("settings", "events", "now", "expected"),
    [
        pytest.param({}, [], 300, 700, id="the interval"),
        pytest.param({}, [], 1500, 0, id="missed"),
        pytest.param({"interval_ms": None}, [], 0, None, id="no checkpoints"),
        pytest.param({}, [AttemptStarting(100)], 100, 0, id="the first epoch"),
        pytest.param({}, [CheckpointRequested()], 100, 0, id="a request"),
        pytest.param(
            {"min_pause_ms": 5000},
            [
                EpochStarting(1, 1000),
                EpochAccepted(1, 1000),
                MetadataWritten(1, 1200, 0),
                EpochStarting(2, 1300),
                EpochAccepted(2, 1300),
            ],
            1500,
            4700,
            id="the pause after a completion",
        ),
        pytest.param(
            {},
            [EpochStarting(1, 1000), EpochAccepted(1, 1000), MetadataWritten(1, 1200, 0)],
            1500,
            0,
            id="listeners",
        ),
        pytest.param(
            {"timeout_ms": 9000},
            [EpochStarting(1, 1000), EpochAccepted(1, 1000)],
            1500,
            8501,
            id="no room, until the one in flight expires",
        ),
        pytest.param(
            {"timeout_ms": 9000},
            [EpochStarting(1, 1000), EpochAccepted(1, 1000), CheckpointRequested()],
            1500,
            8501,
            id="no room for a request",
        ),
        pytest.param(
            {"timeout_ms": 9000},
            [EpochStarting(1, 1000), EpochAccepted(1, 1000), CheckpointRequested("/sp")],
            1500,
            0,
            id="a savepoint needs no room",
        ),
        pytest.param(
            {"max_concurrent": 2},
            [EpochStarting(1, 1000), EpochAccepted(1, 1000)],
            1500,
            500,
            id="there is room",
        ),
    ],
)
def test_when_an_epoch_is_wanted(
    settings: dict[str, Any], events: list[Event], now: int, expected: int | None
) -> None:
    it = coordinator(**settings)
    for event in events:
        it.handle(event)
    assert it.due_in(now) == expected
    assert it.due_in(now) == expected


def test_a_forced_checkpoint_is_wanted_at_once_if_there_is_room() -> None:
    it = coordinator(timeout_ms=9000)
    assert it.due_in(100, forced=True) == 0
    handle(it, EpochStarting(1, 100, forced=True), EpochAccepted(1, 100))
    assert it.due_in(200, forced=True) == 8901
