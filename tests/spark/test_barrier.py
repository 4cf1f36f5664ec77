"""What Spark says when it has ended the slots, in a line."""

from __future__ import annotations

import pytest

from holdfast.driver.outcome import LostSlotError
from holdfast.errors import JobExecutionError
from holdfast.spark.resident.barrier import _failure

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
ABORTED = (
    f"{CALL}: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover "
    "from a failed barrier ResultStage. Most recent failure reason: Stage failed because barrier "
    "task ResultTask(0, 1) finished unsuccessfully.\n"
)
LOST = "ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137"
STACK = "\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.failJob(x.scala:1)"


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (f"{ABORTED}{LOST}{STACK}", LostSlotError, LOST),
        (
            f"{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
            f"{STACK}",
            LostSlotError,
            "Python worker exited unexpectedly (crashed)",
        ),
        (
            f"{ABORTED}Traceback (most recent call last):\n  File\n"
            f"holdfast.errors.JobExecutionError: there is no directory '/kept'\n{STACK}",
            JobExecutionError,
            "holdfast.errors.JobExecutionError: there is no directory '/kept'",
        ),
        (CALL, JobExecutionError, CALL.strip()),
        ("", JobExecutionError, "RuntimeError"),
    ],
)
def test_one_line_says_what_it_was(text: str, kind: type[Exception], told: str) -> None:
    failure = _failure(RuntimeError(text))
    assert type(failure) is kind
    assert str(failure) == f"Spark has ended the slots: {told}"
