"""What is done to a job over the API, with Flink's requests and answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.errors import JobDefinitionError
from holdfast.rest.site import EndedJob
from tests.rest.conftest import Serve
from tests.serving import Client, LocalJob, checkpoints_in, counting


@pytest.fixture
def job(settings: dict[str, str], tmp_path: Path) -> Iterator[LocalJob]:
    made = LocalJob(counting(settings | checkpoints_in(tmp_path)))
    with made.run:
        made.run.epoch()
        yield made


@pytest.fixture
def ask(serve: Serve, job: LocalJob) -> Client:
    return serve(job)


def triggered(reply: Any, status: int = 202) -> str:
    assert reply.status == status, reply.body
    assert set(reply.json) == {"request-id"}
    return str(reply.json["request-id"])


def test_a_checkpoint(ask: Client, job: LocalJob) -> None:
    request = triggered(ask.job("/checkpoints", "POST", {"checkpointType": "FULL"}))
    path = f"/checkpoints/{request}"
    assert ask.job(path).json == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    job.run.epoch()
    assert ask.job(path).json == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 1}}


def test_a_savepoint(ask: Client, job: LocalJob, tmp_path: Path) -> None:
    request = triggered(ask.job("/savepoints", "POST", {"cancel-job": False}))
    path = f"/savepoints/{request}"
    assert ask.job(path).json == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    job.run.epoch()
    answer = ask.job(path).json
    assert answer["status"] == {"id": "COMPLETED"}
    assert set(answer["operation"]) == {"location"}
    location = answer["operation"]["location"]
    assert Path(location).parent == tmp_path / "savepoints"
    assert read_savepoint(location).metadata.savepoint
    assert not job.run.finished


def test_a_savepoint_below_the_job_s_own_directory(ask: Client, job: LocalJob) -> None:
    below = f"{job.savepoint_directory}/mine"
    request = triggered(ask.job("/savepoints", "POST", {"target-directory": below}))
    job.run.epoch()
    location = ask.job(f"/savepoints/{request}").json["operation"]["location"]
    assert location.startswith(below)


def test_a_request_of_the_same_id_is_the_same_request(ask: Client, job: LocalJob) -> None:
    body = {"triggerId": "ab" * 16}
    assert triggered(ask.job("/savepoints", "POST", body)) == "ab" * 16
    assert triggered(ask.job("/savepoints", "POST", body)) == "ab" * 16
    job.run.epoch()
    job.run.epoch()
    assert ask.job("/checkpoints").json["counts"]["total"] == 1


def test_a_savepoint_that_fails_says_why(ask: Client, job: LocalJob, tmp_path: Path) -> None:
    (tmp_path / "savepoints").write_text("in the way")
    request = triggered(ask.job("/savepoints", "POST"))
    job.run.epoch()
    operation = ask.job(f"/savepoints/{request}").json["operation"]
    assert set(operation) == {"failure-cause"}
    cause = operation["failure-cause"]
    assert set(cause) == {"class", "stack-trace", "serialized-throwable"}
    assert "there is no savepoint" in cause["stack-trace"]


@pytest.mark.parametrize("drain", [False, True])
def test_stop(ask: Client, job: LocalJob, drain: bool) -> None:
    request = triggered(ask.job("/stop", "POST", {"drain": drain}))
    job.run.run_to_end()
    assert "location" in ask.job(f"/savepoints/{request}").json["operation"]
    assert job.outcome is Outcome.STOPPED


def test_cancel(ask: Client, job: LocalJob) -> None:
    reply = ask.job("?mode=cancel", "PATCH")
    assert (reply.status, reply.json) == (202, {})
    assert job.cancelled
    assert ask.job("?mode=stop", "PATCH").status == 400


def test_rescale(ask: Client, job: LocalJob) -> None:
    request = triggered(ask.job("/rescaling?parallelism=3", "PATCH"))
    assert job.rescaled_to == 3
    path = f"/rescaling/{request}"
    assert ask.job(path).json == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    job.rescaling.set_result(None)
    answer = ask.job(path).json
    assert answer["status"] == {"id": "COMPLETED"}
    assert sorted(answer["operation"]["parallelism"].values()) == [1, 2, 2]


def test_a_rescale_that_fails_says_why(ask: Client, job: LocalJob) -> None:
    request = triggered(ask.job("/rescaling?parallelism=3", "PATCH"))
    job.rescaling.set_exception(JobDefinitionError("no"))
    operation = ask.job(f"/rescaling/{request}").json["operation"]
    assert operation["failure-cause"]["stack-trace"].endswith("JobDefinitionError: no")


def test_resource_requirements(ask: Client, job: LocalJob) -> None:
    requirements = ask.job("/resource-requirements").json
    last = job.history.graph.vertices[-1]
    assert requirements[last.id] == {"parallelism": {"lowerBound": 1, "upperBound": 2}}
    wanted = {last.id: {"parallelism": {"lowerBound": 1, "upperBound": 5}}}
    assert ask.job("/resource-requirements", "PUT", wanted).json == {}
    assert job.rescaled_to == {op.uid: 5 for op in last.operators}
    assert ask.job("/resource-requirements", "PUT", {"0" * 32: wanted[last.id]}).status == 400
    upside_down = {last.id: {"parallelism": {"lowerBound": 6, "upperBound": 5}}}
    assert ask.job("/resource-requirements", "PUT", upside_down).status == 400


def test_a_request_of_another_kind_or_job_is_not_there(ask: Client) -> None:
    request = triggered(ask.job("/checkpoints", "POST"))
    assert ask.job(f"/savepoints/{request}").status == 404
    assert ask.job(f"/rescaling/{request}").status == 404


def test_a_job_that_has_ended_refuses(serve: Serve, job: LocalJob) -> None:
    ended = serve(EndedJob(job.history))  # type: ignore[arg-type]
    for path, method in (("/checkpoints", "POST"), ("?mode=cancel", "PATCH")):
        reply = ended.job(path, method)
        assert reply.status == 409
        assert "runs in another process" in reply.error
