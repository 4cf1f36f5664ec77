"""A job that has ended is shown from its file, by the same API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.common import JobStatus
from holdfast.driver.job.rescaling import rescaled
from holdfast.driver.job_events import Cause
from holdfast.errors import JobExecutionError
from holdfast.history.journal import open_journal
from holdfast.rest.site import Files
from tests.rest.conftest import Serve
from tests.serving import JOB_ID, Client, LocalJob, counting

PATHS = [
    "/plan",
    "/config",
    "/exceptions",
    "/attempts",
    "/epochs",
    "/series",
    "/checkpoints",
    "/checkpoints/config",
    "/checkpoints/details/1",
    "/rescales/history",
    "/rescales/overview",
    "/resource-requirements",
]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalJob, Path]]:
    directory = tmp_path_factory.mktemp("ended")
    settings = {
        "pipeline.name": "orders",
        "execution.checkpointing.dir": str(directory),
        "execution.checkpointing.num-retained": "2",
    }
    job = LocalJob(counting(settings, fails_at=25))
    store = job.job.checkpoints.store
    with job.run:
        journal = open_journal(store.files, str(store.directory), JOB_ID, job.history, directory)
        job.recorder.keep_in(journal)
        job.run.recover()
        job.run.epoch(checkpoint=True)
        job.run.epoch(checkpoint=True)
        plan = job.run.plan
        job.recorder.rescale(1, Cause.RECOVERABLE_FAILOVER, plan, rescaled(plan, 1), plan)
        job.recorder.rescale_ended(1, None, "SUCCEEDED")
        job.recorder.rescale(2, Cause.NEW_RESOURCE_AVAILABLE, rescaled(plan, 1), plan, plan)
        job.recorder.rescale_ended(2, JobExecutionError("no"), "EXCEPTION_OCCURRED")
        job.fail()
        job.recorder.status(JobStatus.FAILED)
        job.recorder.close()
        yield job, directory


@pytest.fixture(scope="module")
def ask(serve: Serve, ended: tuple[LocalJob, Path]) -> Client:
    return serve(site=Files([ended[1]]))


@pytest.fixture(scope="module")
def lived(serve: Serve, ended: tuple[LocalJob, Path]) -> Client:
    return serve(ended[0])


@pytest.mark.parametrize("path", PATHS)
def test_the_file_tells_what_the_job_told(ask: Client, lived: Client, path: str) -> None:
    reply = ask.job(path)
    assert reply.status == 200
    assert reply.json == lived.job(path).json


def test_the_job_has_ended(ask: Client, ended: tuple[LocalJob, Path]) -> None:
    answer = ask.job().json
    assert answer["state"] == "FAILED"
    assert answer["end-time"] == ended[0].history.ended
    assert answer["duration"] == answer["end-time"] - answer["start-time"]
    assert ask("/overview").json["jobs-failed"] == 1
    assert ask("/config").json["features"]["web-history"] is True


def test_it_says_where_each_attempt_began(ask: Client) -> None:
    begun = [attempt["origin"] for attempt in ask.job("/attempts").json["attempts"]]
    assert begun == [
        "from the start",
        "from the start: no checkpoint had completed",
        "from checkpoint 2",
    ]


def test_it_says_how_long_each_start_took(ask: Client) -> None:
    found = [attempt["start-seconds"] for attempt in ask.job("/attempts").json["attempts"]]
    before, start, after = found
    assert (before, after) == (None, None), "no epoch of theirs was accepted"
    assert list(start) == ["stop", "delay", "slots", "load", "first-result"]
    assert all(seconds >= 0.0 for seconds in start.values())


def test_its_figures_are_its_last_ones(ask: Client, lived: Client) -> None:
    ours, theirs = ask.job().json["vertices"], lived.job().json["vertices"]
    assert [vertex["metrics"] for vertex in ours] == [vertex["metrics"] for vertex in theirs]


def test_its_figures_over_time_are_there(ask: Client) -> None:
    found = ask.job("/series").json
    assert any(rate > 0 for rate in found["records-read"])
    assert {metric["name"] for metric in found["metrics"]} == {"mine.total", "sizes"}


def test_its_log_is_not_known(ask: Client) -> None:
    assert ask.job("/logs").json == {"lines": [], "operators": [], "total": 0, "kept": False}


def test_where_its_history_is(ask: Client, ended: tuple[LocalJob, Path]) -> None:
    assert Path(ask.job().json["history-directory"]).is_relative_to(ended[1])


def test_its_checkpoints_can_be_looked_into(ask: Client) -> None:
    assert ask.job("/state").json["checkpoint"] == 2
    entries = ask.job("/state/entries?operator=counts&state=count").json
    assert (entries["checkpoint"], len(entries["rows"])) == (2, 7)
    assert ask.job("/checkpoints/compare/1/2").status == 200


def test_nothing_can_be_done_to_it(ask: Client) -> None:
    for path, method in (
        ("?mode=cancel", "PATCH"),
        ("/checkpoints", "POST"),
        ("/rescaling?parallelism=2", "PATCH"),
    ):
        reply = ask.job(path, method)
        assert reply.status == 409
        assert "is not running: it is FAILED" in reply.error
    assert ask.job("/state/value?operator=counts&state=count&key=1").status == 409


def test_changes_of_parallelism_are_rows_with_the_names_of_flink(ask: Client) -> None:
    back, fewer = ask.job("/rescales/history").json
    assert (fewer["triggerCause"], back["triggerCause"]) == (
        "RECOVERABLE_FAILOVER",
        "NEW_RESOURCE_AVAILABLE",
    )
    assert (fewer["terminalState"], fewer["terminatedReason"]) == ("COMPLETED", "SUCCEEDED")
    assert (back["terminalState"], back["failure"]) == ("FAILED", "no")
    assert fewer["duration"] == fewer["endTimestampInMillis"] - fewer["startTimestampInMillis"]
    (slots,) = fewer["slots"].values()
    assert slots["postRescaleSlots"] == 1
    assert slots["preRescaleSlots"] == slots["desiredSlots"] == 2
    vertices = {one["jobVertexName"]: one for one in fewer["vertices"].values()}
    assert all(one["postRescaleParallelism"] == 1 for one in vertices.values())
    assert slots["minimalRequiredSlots"] == 1
    assert {one["sufficientParallelism"] for one in vertices.values()} == {1}
    overview = ask.job("/rescales/overview").json
    counts = {"ignored": 0, "inProgress": 0, "completed": 1, "failed": 1}
    assert overview["rescalesCounts"] == counts
    assert overview["latest"]["failed"] == back
    assert overview["latest"]["ignored"] is None


@pytest.mark.parametrize(("least", "reported"), [(2, 2), (7, 3)])
def test_a_change_of_parallelism_says_how_many_slots_the_job_must_have(
    serve: Serve, least: int, reported: int
) -> None:
    """No more than it wants: with those it runs, whatever the setting is."""
    job = LocalJob(counting({"holdfast.slots.min": str(least)}))
    with job.run:
        wanted = rescaled(job.run.plan, {"counts": 3})
        job.recorder.plan(wanted)
        fewer = rescaled(wanted, {"counts": 2})
        job.recorder.rescale(1, Cause.RECOVERABLE_FAILOVER, wanted, fewer, wanted)
        (change,) = serve(job).job("/rescales/history").json
    (slots,) = change["slots"].values()
    assert (slots["minimalRequiredSlots"], slots["desiredSlots"]) == (reported, 3)
    needed = {
        one["desiredParallelism"]: one["sufficientParallelism"]
        for one in change["vertices"].values()
    }
    assert needed[3] == reported
    assert max(needed.values()) == reported
