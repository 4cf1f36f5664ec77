"""What a worker process keeps of jobs, without Spark."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.runtime.worker.job_code import make_job_code, pack
from holdfast.spark import worker
from holdfast.testing import LocalExecutor


def shipped(name: str, *running: str) -> worker.ShippedJob:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    with LocalExecutor(env) as run:
        code = make_job_code(name, run.plan, "")

    class Sent:
        value = pack(code)

    return worker.ShippedJob(name, cast(Any, Sent()), frozenset([name, *running]))


def test_jobs_that_have_ended_are_forgotten_when_another_one_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No directory is looked at: on another host there is none."""
    # NB: what a worker process does for good, and this process must not: tests of logs follow
    monkeypatch.setattr(worker, "capture", lambda: None)
    forgotten: list[str] = []
    monkeypatch.setattr(worker._homes, "forget", lambda job, key: forgotten.append(job))
    jobs = worker._Jobs()
    first = jobs.get(shipped("first"))
    jobs.get(shipped("second", "first"))
    assert jobs.get(shipped("first", "second")) is first
    assert forgotten == []
    jobs.get(shipped("third", "second"))
    assert forgotten == ["first"]
    assert set(jobs._known) == {"second", "third"}
