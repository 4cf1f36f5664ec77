"""Requests for checkpoints, alone and together with requests for savepoints."""

from __future__ import annotations

import pytest

from holdfast.checkpoint.events import (
    AnswerRequest,
    AttemptStarting,
    CheckpointRequested,
    CheckpointStatus,
    DiscardCheckpoint,
    EpochAccepted,
    EpochFailed,
    EpochStarting,
    Event,
    FailJob,
    InjectBarrier,
    JobEnding,
    MetadataFailed,
    MetadataWritten,
    Notifications,
    Outcome,
    StopJob,
    WriteMetadata,
)
from tests.checkpoint.coordinating import Counts, Run, coordinator, handle

FIRST = CheckpointRequested(request="first")
SECOND = CheckpointRequested(request="second")
SAVEPOINT = CheckpointRequested("/sp", request="savepoint")
OTHER_SAVEPOINT = CheckpointRequested("/sp", request="other savepoint")
STOP = CheckpointRequested("/sp", stop=True, request="stop")


def test_the_life_of_a_requested_checkpoint() -> None:
    it = coordinator()
    Run(it).at(1000)
    assert handle(it, FIRST) == []
    assert handle(it, EpochStarting(2, 1100)) == [InjectBarrier(2, 1100)]
    assert handle(it, EpochAccepted(2, 1200)) == [WriteMetadata(2, 2)]
    # it is like a periodic one: it is retained, and listeners are notified
    assert handle(it, MetadataWritten(2, 1300, 5, "/chk-2")) == [
        DiscardCheckpoint(1),
        AnswerRequest(FIRST, 2, path="/chk-2"),
    ]
    assert it.completed == (2,)
    assert it.notifications() == Notifications(completed=(2,))
    assert it.reports.counts == Counts(triggered=2, completed=2)
    assert not it.reports[2].record.savepoint


# Several requests


def test_one_checkpoint_answers_all_requests_that_wait() -> None:
    it = coordinator()
    run = Run(it)
    handle(it, FIRST, SECOND)
    assert run.at(10) == [1]
    assert run.last == [AnswerRequest(FIRST, 1, "path"), AnswerRequest(SECOND, 1, "path")]
    assert run.at(20) == []
    assert it.reports.counts == Counts(triggered=1, completed=1)


def test_a_request_that_comes_during_the_epoch_gets_the_next_checkpoint() -> None:
    it = coordinator()
    handle(it, FIRST, EpochStarting(1, 10), SECOND, EpochAccepted(1, 20))
    assert handle(it, MetadataWritten(1, 30, 5, "/1")) == [AnswerRequest(FIRST, 1, path="/1")]
    assert handle(it, EpochStarting(2, 40)) == [InjectBarrier(2, 40)]


def test_requests_of_both_kinds_are_answered_in_their_order() -> None:
    run = Run(coordinator())
    handle(run.coordinator, FIRST, SAVEPOINT)
    assert run.at(10) == [1]
    assert run.last == [AnswerRequest(FIRST, 1, "path")]
    assert run.at(20) == [2]
    assert run.last == [AnswerRequest(SAVEPOINT, 2, "path")]

    run = Run(coordinator())
    handle(run.coordinator, SAVEPOINT, FIRST)
    assert run.at(10) == [1]
    assert run.last == [AnswerRequest(SAVEPOINT, 1, "path")]
    assert run.at(20) == [2]
    assert run.last == [AnswerRequest(FIRST, 2, "path")]


def test_each_savepoint_is_taken_by_itself_and_checkpoints_together() -> None:
    run = Run(coordinator())
    handle(run.coordinator, SAVEPOINT, FIRST, OTHER_SAVEPOINT, SECOND)
    answers = []
    for now in (10, 20, 30, 40):
        run.at(now)
        answers.append([i.request for i in run.last if isinstance(i, AnswerRequest)])
    assert answers == [[SAVEPOINT], [FIRST, SECOND], [OTHER_SAVEPOINT], []]


# The schedule


def test_a_requested_checkpoint_does_not_wait_for_the_minimum_pause() -> None:
    run = Run(coordinator(interval_ms=1000, min_pause_ms=5000))
    assert run.at(1000) == [1]
    assert run.at(1001) == []
    handle(run.coordinator, FIRST)
    assert run.at(1002) == [2]
    # the next periodic one waits from here on
    assert run.at(6001) == []
    assert run.at(6002) == [3]


def test_a_requested_checkpoint_shifts_the_schedule() -> None:
    run = Run(coordinator(interval_ms=1000))
    handle(run.coordinator, FIRST)
    assert run.at(400) == [1]
    # without it the next one would be due at 1000
    assert [now for now in (1000, 1500, 1999, 2000, 2999, 3000) if run.at(now)] == [2000, 3000]


def test_a_requested_checkpoint_takes_the_place_of_one_that_is_due() -> None:
    run = Run(coordinator(interval_ms=1000))
    handle(run.coordinator, FIRST)
    assert [now for now in (1000, 1001, 1999, 2000) if run.at(now)] == [1000, 2000]


def test_the_next_one_comes_at_most_an_interval_after_the_epoch_that_follows_a_request() -> None:
    run = Run(coordinator(interval_ms=1000))
    for now in (100, 200, 300):
        handle(run.coordinator, FIRST)
        assert run.at(now)
    assert [now for now in (310, 1309, 1310) if run.at(now)] == [1310]


def test_a_clock_that_is_set_back_does_not_put_off_what_follows_a_request() -> None:
    run = Run(coordinator(interval_ms=1000))
    assert run.at(1_000_000) == [1]
    handle(run.coordinator, FIRST)
    assert [now for now in (0, 1500, 2000) if run.at(now)] == [0, 2000]


def test_a_request_in_the_first_epoch_of_an_attempt_begins_the_schedule() -> None:
    run = Run(coordinator(interval_ms=1000))
    handle(run.coordinator, AttemptStarting(5000), FIRST)
    assert [now for now in (5100, 6099, 6100) if run.at(now)] == [5100, 6100]


# Failure


def test_a_request_whose_epoch_fails_is_answered_with_the_failure() -> None:
    it = coordinator(tolerable_failures=0)
    handle(it, FIRST, SECOND, EpochStarting(1, 10))
    assert handle(it, EpochFailed(1, 11, "they disagree")) == [
        AnswerRequest(FIRST, 1, failure="they disagree"),
        AnswerRequest(SECOND, 1, failure="they disagree"),
    ]
    assert not it.reports[1].is_failure
    # the second run of the epoch carries a checkpoint, as after a periodic one; nobody waits for it
    assert handle(it, EpochStarting(1, 12)) == [InjectBarrier(2, 12)]
    handle(it, EpochAccepted(1, 13))
    assert handle(it, MetadataWritten(2, 14, 5)) == []


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([EpochAccepted(1, 20, ("boom",))], "boom"),
        ([EpochAccepted(1, 20), MetadataFailed(1, 30, "disk full")], "disk full"),
    ],
)
def test_a_requested_checkpoint_that_fails_counts_like_a_periodic_one(
    events: list[Event], reason: str
) -> None:
    it = coordinator(tolerable_failures=0)
    handle(it, FIRST, EpochStarting(1, 10))
    said = handle(it, *events)[-2:]
    tolerated = f"checkpoint 1 failed, and at most 0 consecutive failures are tolerated: {reason}"
    assert said == [AnswerRequest(FIRST, 1, failure=reason), FailJob(tolerated)]
    assert it.reports[1].is_failure


def test_a_subsumed_request_is_answered_with_the_failure_once() -> None:
    it = coordinator(max_concurrent=2)
    handle(it, FIRST, EpochStarting(1, 10), EpochAccepted(1, 20))
    handle(it, SECOND, EpochStarting(2, 30), EpochAccepted(2, 40))
    assert handle(it, MetadataWritten(2, 50, 5, "/2")) == [
        AnswerRequest(FIRST, 1, failure="checkpoint 2 was completed before it"),
        AnswerRequest(SECOND, 2, path="/2"),
    ]
    assert handle(it, MetadataWritten(1, 60, 5, "/1")) == [DiscardCheckpoint(1)]


def test_a_restart_answers_what_is_in_flight_and_keeps_what_waits() -> None:
    it = coordinator()
    handle(it, FIRST, SAVEPOINT, EpochStarting(1, 10), SECOND)
    answer = AnswerRequest(FIRST, 1, failure="the job was restarted")
    assert handle(it, AttemptStarting(20)) == [answer]
    assert handle(it, EpochStarting(1, 30)) == [InjectBarrier(2, 30, SAVEPOINT)]
    handle(it, EpochAccepted(1, 31), MetadataWritten(2, 32, 5))
    assert handle(it, EpochStarting(2, 40)) == [InjectBarrier(3, 40)]


# The end of the job


def test_what_waits_at_the_end_is_answered() -> None:
    it = coordinator()
    handle(it, FIRST, EpochStarting(1, 10), SECOND, SAVEPOINT)
    assert handle(it, JobEnding(20, Outcome.FAILED)) == [
        AnswerRequest(FIRST, 1, failure="the job ended"),
        AnswerRequest(SECOND, 0, failure="the job ended"),
        AnswerRequest(SAVEPOINT, 0, failure="the job ended"),
    ]
    # only the first of them ever was a checkpoint
    assert [record.status for record in it.reports.records] == [CheckpointStatus.FAILED]


@pytest.mark.parametrize("request_", [FIRST, SAVEPOINT])
def test_a_request_is_refused_while_the_job_stops(request_: CheckpointRequested) -> None:
    it = coordinator()
    run = Run(it)
    handle(it, STOP)
    run.at(10)
    assert run.last[-1] == StopJob("path")
    refused = AnswerRequest(request_, 0, failure="the job is stopping")
    assert handle(it, request_) == [refused]
    assert run.at(9000) == []
    assert handle(it, JobEnding(9001, Outcome.STOPPED)) == []


def test_what_waits_behind_a_savepoint_that_stops_the_job_is_answered_at_the_end() -> None:
    it = coordinator()
    run = Run(it)
    handle(it, STOP, FIRST)
    assert run.at(10) == [1]
    assert run.at(9000, forced=True) == []
    answer = AnswerRequest(FIRST, 0, failure="the job ended")
    assert handle(it, JobEnding(9001, Outcome.STOPPED)) == [answer]


def test_the_closing_epoch_takes_no_requested_checkpoint() -> None:
    it = coordinator()
    assert handle(it, FIRST, EpochStarting(1, 10, closing=True), EpochAccepted(1, 20)) == []
    answer = AnswerRequest(FIRST, 0, failure="the job ended")
    assert handle(it, JobEnding(30, Outcome.STOPPED)) == [answer]


def test_stopping_needs_a_savepoint() -> None:
    with pytest.raises(ValueError, match="a job stops with a savepoint; name a directory for it"):
        CheckpointRequested(stop=True)
    with pytest.raises(ValueError, match="a job stops with a savepoint; name a directory for it"):
        CheckpointRequested(stop=True, drain=True)
