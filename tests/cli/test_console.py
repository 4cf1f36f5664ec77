"""What ``holdfast run`` says about the jobs of a program, on standard error."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from holdfast.cli.console import Console, lines_about
from holdfast.common import Configuration
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.engines import starts_spark
from holdfast.driver.recording import Recorder
from holdfast.errors import JobExecutionError, UserFunctionError
from holdfast.history import events
from holdfast.history.job import JobHistory
from holdfast.plan.vertices import JobGraph
from holdfast.testing import LocalExecutor
from tests.cli.conftest import Holdfast, Program

ID = "0f" * 16
TRACE = "ValueError: bad\n  in operator 'parse', subtask 0\n  record: 'x'\n\nTraceback\n  File ..."
SERVED = events.PageServed(1500, "http://127.0.0.1:8081")
BEGAN = events.AttemptBegan(0, 2000)


def failed(
    number: int = 0, restart: int | None = 1000, reason: str = "", **more: Any
) -> events.AttemptFailed:
    given = {"error": "ValueError", "message": "ValueError: bad", "trace": TRACE, "task": "parse"}
    origin = None if restart is None else "from checkpoint 3"
    told = {**given, **more, "restart": restart, "restart_from": origin, "reason": reason}
    return events.AttemptFailed(number, 3000, **told)


def said(*told: events.Event) -> list[str]:
    """What is said about the last of these events."""
    history = JobHistory()
    history.tell(events.JobBegan(ID, "orders", 1000, "1", 1, {}, {}))
    history.tell(events.PlanMade(1000, JobGraph("orders", ())))
    for event in told:
        history.tell(event)
    return list(lines_about(history, told[-1]))


def test_where_it_is() -> None:
    assert said(SERVED) == [f"job 'orders' is shown at http://127.0.0.1:8081/#/jobs/{ID}"]


@pytest.mark.parametrize(
    ("event", "origin"),
    [
        (BEGAN, "from the beginning"),
        (events.AttemptBegan(0, 2, 12, "/cp/orders/chk-12"), "from checkpoint 12 of /cp/orders"),
        (events.AttemptBegan(0, 2, 12, "/sp/savepoint-1", True), "from savepoint /sp/savepoint-1"),
    ],
)
def test_where_it_starts(event: events.Event, origin: str) -> None:
    assert said(event) == [f"job 'orders' starts {origin}"]


def test_a_restart_is_announced_by_its_failure() -> None:
    assert said(events.AttemptBegan(1, 2, 3, "/cp/chk-3")) == []


@pytest.mark.parametrize(
    ("event", "end"),
    [
        (events.StatusChanged(13_000, "FINISHED"), "has finished after 12s"),
        (events.StatusChanged(1400, "CANCELED"), "was cancelled after 0.4s"),
        (events.StatusChanged(61_000, "FAILED"), "has failed after 1m"),
        (
            events.StatusChanged(6000, "FINISHED", "/sp/1"),
            "was stopped with savepoint /sp/1 after 5s",
        ),
    ],
)
def test_how_it_ends(event: events.Event, end: str) -> None:
    assert said(BEGAN, event) == [f"job 'orders' {end}"]


def test_nothing_is_said_about_a_job_that_was_not_started() -> None:
    assert said(failed(restart=None)) == []
    assert said(events.StatusChanged(6000, "FAILED")) == []


@pytest.mark.parametrize("status", ["RUNNING", "RESTARTING", "CANCELLING"])
def test_other_states_are_not_told(status: str) -> None:
    assert said(BEGAN, events.StatusChanged(6000, status)) == []


def test_the_first_failure_is_shown_in_full() -> None:
    (text,) = said(SERVED, BEGAN, failed())
    assert text.splitlines() == [
        "job 'orders' failed: ValueError: bad",
        "    in operator 'parse', subtask 0",
        "    record: 'x'",
        "",
        "  Traceback",
        "    File ...",
        "  => it restarts in 1.0 s, from checkpoint 3",
        f"  => all failures are at http://127.0.0.1:8081/#/jobs/{ID}",
    ]


def test_a_failure_that_ends_the_job_says_why() -> None:
    (text,) = said(SERVED, BEGAN, failed(restart=None, reason="no restart strategy is set"))
    assert text.splitlines()[-1] == "  => the job ends: no restart strategy is set"


def test_the_same_failure_again_is_one_line() -> None:
    (text,) = said(BEGAN, failed(), failed(1, reason="failure 2 of at most 8 on the same record"))
    assert text == (
        "job 'orders' failed again: ValueError: bad; it restarts in 1.0 s, from checkpoint 3 "
        "(failure 2 of at most 8 on the same record)"
    )


@pytest.mark.parametrize("other", [{"task": "sum"}, {"error": "KeyError"}])
def test_another_failure_is_shown_in_full(other: dict[str, str]) -> None:
    (text,) = said(BEGAN, failed(), failed(1, **other))
    assert text.startswith("job 'orders' failed: ValueError: bad\n")


def test_a_long_failure_is_cut() -> None:
    lines = [f"line {number}" for number in range(100)]
    (text,) = said(BEGAN, failed(trace="\n".join(lines)))
    assert text.splitlines()[14:17] == ["  line 14", "  ... 60 lines ...", "  line 75"]


def test_rescaling() -> None:
    seen = events.RescaleSeen(1, "UPDATE_REQUIREMENT", 1, 4, 2, 4, {}, ended=5)
    assert said(BEGAN, seen) == ["job 'orders' runs on 4 task slots instead of 2"]
    fewer = events.RescaleSeen(1, "RECOVERABLE_FAILOVER", 1, 4, 4, 2, {}, ended=5)
    line = "job 'orders' runs on 2 task slots instead of 4; 4 are wanted"
    assert said(BEGAN, fewer) == [line]
    refused = events.RescaleSeen(1, "UPDATE_REQUIREMENT", 1, 4, 2, 4, {}, 5, "X", "no slots")
    assert said(BEGAN, refused) == ["job 'orders' was not changed to 4 task slots: no slots"]
    assert said(BEGAN, events.RescaleSeen(1, "UPDATE_REQUIREMENT", 1, 4, 2, 4, {})) == []


def test_names_and_paths_cannot_control_the_terminal() -> None:
    history = JobHistory([events.JobBegan(ID, "a\n\x1b[2J", 0, "1", 1, {}, {}), BEGAN])
    assert list(lines_about(history, BEGAN)) == [r"job 'a\n\x1b[2J' starts from the beginning"]


# Printing


class Picky(MapFunction):
    """Fails on a record, as often as it comes."""

    def map(self, value: int) -> int:
        if value == 3:
            msg = "no threes"
            raise ValueError(msg)
        return value


def job(checkpoints: Path) -> StreamExecutionEnvironment:
    settings = {"execution.checkpointing.interval": "1h", "pipeline.name": "numbers"}
    settings["execution.checkpointing.dir"] = str(checkpoints)
    env = StreamExecutionEnvironment(Configuration(settings)).set_parallelism(1)
    env.from_collection([1, 2, 3]).map(Picky()).name("picky").print()
    return env


def test_the_events_of_a_job_are_printed_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Console().reporting(), LocalExecutor(job(tmp_path)) as run:
        for _ in range(2):
            with pytest.raises(UserFunctionError):
                run.run_to_end()
            run.recover()
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "holdfast: job 'numbers' starts from the beginning"
    assert lines[1] == "holdfast: job 'numbers' failed: ValueError: no threes"
    assert "    record: 3" in lines
    assert "    raise ValueError(msg)" in [line[2:] for line in lines]
    assert lines[-1].startswith("holdfast: job 'numbers' failed again: ValueError: no threes; ")
    # nothing is said afterwards
    with LocalExecutor(job(tmp_path / "other")):
        assert capsys.readouterr().err == ""


def test_the_default_log_does_not_say_it_a_second_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a program that has not configured its log; pytest has
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def fail() -> str:
        recorder.failure(0, JobExecutionError("boom"), 1000, "from checkpoint 3")
        return capsys.readouterr().err

    recorder = Recorder()
    recorder.attempt(0, None)
    assert "boom; it restarts in 1.0 s" in fail()
    with Console().reporting():
        assert fail().count("boom") == 1
        logging.getLogger("holdfast.other").warning("something else")
        assert capsys.readouterr().err == "something else\n"
    assert "boom; it restarts in 1.0 s" in fail()


def test_a_closed_standard_error_does_not_harm_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        encoding = "utf-8"

        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None: ...

    monkeypatch.setattr("sys.stderr", Closed())
    Console().say("nobody hears this")


def test_an_error_that_was_just_shown_is_not_shown_again() -> None:
    console = Console()
    history = JobHistory([events.JobBegan(ID, "orders", 0, "1", 1, {}, {}), BEGAN])
    error = UserFunctionError("parse", 0, "'x'", "ValueError: bad", "Traceback\n  File ...")
    event = failed(restart=None, trace=str(error))
    assert console.brief(error) == str(error)
    history.tell(event)
    console._tell(history, event)
    assert console.brief(error) == "ValueError: bad (see above)"
    # the second time it was not shown in full
    again = failed(1, restart=None, trace=str(error))
    history.tell(again)
    console._tell(history, again)
    assert console.brief(error) == str(error)


# The command


NO_JOB = """
    from holdfast.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    env.execute()
"""


class Refusing:
    """Stands for an engine; it has other worries."""

    def run_job(self, *_: object) -> None:
        msg = "out of order"
        raise JobExecutionError(msg)


@pytest.mark.parametrize("starts", [True, False])
def test_starting_spark_is_said_before_it_is_loaded(
    holdfast: Holdfast, program: Program, monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    monkeypatch.setattr("holdfast.cli.commands.run.starts_spark", lambda _: starts)
    module = "holdfast.datastream.stream_execution_environment.launcher"
    monkeypatch.setattr(module, lambda _: Refusing())
    script = program(NO_JOB)
    done = holdfast("run", script)
    first = ["holdfast: starting Spark ..."] if starts else []
    assert done.stdout == ""
    assert done.stderr.splitlines() == [*first, f"Error: {script}:6: out of order"]


def test_spark_is_started_unless_a_session_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        _active_spark_context: Any = None

    class Spark:
        SparkContext = Context

    on_spark, local = Configuration(), Configuration({"holdfast.engine": "local"})
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert starts_spark(on_spark)
    assert not starts_spark(local)
    monkeypatch.setitem(sys.modules, "pyspark", cast(ModuleType, Spark))
    assert starts_spark(on_spark)
    monkeypatch.setattr(Context, "_active_spark_context", object())
    assert not starts_spark(on_spark)
