"""What functions log in Spark's workers and in source processes reaches the driver's handlers."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Duration, RestartStrategies, Time, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.errors import UserFunctionError
from tests.conftest import Executor

logger = logging.getLogger("tests.functions")


def spark_only(test: Any) -> Any:
    """Run a test on Spark, on both engines."""
    return pytest.mark.spark(pytest.mark.usefixtures("engine")(test))


def said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What functions have logged."""
    return [record for record in caplog.records if record.name.startswith("tests.")]


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in said(caplog)]


class Talking(MapFunction):
    """Logs in each of its calls."""

    def open(self, runtime_context: RuntimeContext) -> None:
        logger.warning("opened")

    def map(self, value: Any) -> Any:
        logger.warning("mapped %s", value)
        return value

    def close(self) -> None:
        logger.warning("closed")


def test_a_line_is_seen_once_wherever_the_job_runs(
    env: StreamExecutionEnvironment, executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    executor.collect(env.from_collection(list(range(20))).map(Talking()))
    seen = [text.removeprefix("[Map #0] ").removeprefix("[Map #1] ") for text in texts(caplog)]
    mapped = sorted(int(text.split()[1]) for text in seen if text.startswith("mapped"))
    assert mapped == list(range(20))
    assert seen.count("closed") == 2


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        logger.warning("stamped")
        return 1000 * int(value)


class Asking(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return list(await asyncio.gather(self._ask(value)))

    async def _ask(self, value: int) -> int:
        await asyncio.sleep(0)
        logger.warning("asked")
        return value


class Reminding(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1)
        yield value
        logger.warning("processed")

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        logger.warning("timer")
        yield -1


class Storing(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        logger.warning("stored")

    def finish(self) -> None:
        logger.warning("finished")


def chosen(value: int) -> int:
    logger.warning("key chosen")
    return value % 2


def kept(value: int) -> bool:
    logger.warning("kept")
    return True


@spark_only
def test_lines_come_with_the_operator_and_the_subtask_that_logged_them(
    spark: Any, engine: str, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    stream = (
        env.from_source(NumberSequenceSource(0, 7), WatermarkStrategy.no_watermarks(), "numbers")
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Stamp()))
        .name("stamps")
        .map(Talking())
        .name("talks")
        .filter(kept)
        .name("filters")
    )
    asked = AsyncDataStream.unordered_wait(stream, Asking(), Time.minutes(1), 2).name("asks")
    reminded = asked.key_by(chosen).process(Reminding()).name("reminds")
    reminded.add_sink(Storing()).name("stores")
    env.execute()

    by_operator: dict[str, dict[str, int]] = {}
    for record in said(caplog):
        assert record.getMessage().startswith(f"[{record.operator} #{record.subtask}] ")  # type: ignore[attr-defined]
        words = record.getMessage().split("] ")[1].split(" ")
        count = by_operator.setdefault(record.operator, {})  # type: ignore[attr-defined]
        count[words[0]] = count.get(words[0], 0) + 1
        assert record.subtask in (0, 1)  # type: ignore[attr-defined]
        assert record.attempt == 0  # type: ignore[attr-defined]
        assert record.process != 0
        assert record.filename == "test_logs.py"
    # NB: a subtask that has to move to another process between two epochs is opened again
    opened = by_operator["talks"].pop("opened")
    assert opened == 2 or (engine == "epochs" and opened > 2)
    assert by_operator == {
        "stamps": {"stamped": 8},
        "talks": {"mapped": 8, "closed": 2},
        "filters": {"kept": 8},
        "asks": {"asked": 8, "key": 8},
        "reminds": {"key": 8, "processed": 8, "timer": 8},
        "stores": {"stored": 16, "finished": 2},
    }


@spark_only
@pytest.mark.engine("epochs")
def test_lines_of_a_key_selector_that_rows_of_a_dataframe_go_through(
    spark: Any, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    rows = env.from_dataframe(spark.range(4), "rows")
    list(rows.key_by(lambda row: chosen(row.id)).map(lambda row: row.id).execute_and_collect())
    before = [record for record in said(caplog) if record.operator == "Source: rows"]  # type: ignore[attr-defined]
    assert [record.getMessage().split("] ")[1] for record in before] == ["key chosen"] * 4


class FailsAt(MapFunction):
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def open(self, runtime_context: RuntimeContext) -> None:
        logger.warning("opens, attempt %d", runtime_context.get_attempt_number())

    def map(self, value: Any) -> Any:
        if value == 5 and not self.marker.exists():
            self.marker.touch()
            logger.warning("it is going to fail")
            raise ValueError("five")
        return value


@spark_only
def test_what_came_before_a_failure_is_there_when_the_caller_gets_the_exception(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing = env.from_collection(range(10)).map(FailsAt(tmp_path / "failed")).name("fails")
    failing.set_parallelism(1)
    with pytest.raises(UserFunctionError, match="five"):
        list(failing.execute_and_collect())
    assert texts(caplog) == ["[fails #0] opens, attempt 0", "[fails #0] it is going to fail"]


@spark_only
def test_lines_say_which_attempt_they_are_of(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env.enable_checkpointing(50)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    failing = env.from_collection(range(10)).map(FailsAt(tmp_path / "failed")).name("fails")
    assert sorted(failing.set_parallelism(1).execute_and_collect()) == list(range(10))
    attempts = [(record.attempt, record.getMessage()) for record in said(caplog)]  # type: ignore[attr-defined]
    # NB: a subtask that has to move to another process is opened again
    assert list(dict.fromkeys(attempts)) == [
        (0, "[fails #0] opens, attempt 0"),
        (0, "[fails #0] it is going to fail"),
        (1, "[fails #0] opens, attempt 1"),
    ]


class Loop(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Logs in each of its calls; its second record waits for a checkpoint with the first."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.sent = False
        self.saved: int | None = None

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        logger.warning("initialize_state")

    def open(self, runtime_context: RuntimeContext) -> None:
        logger.warning("open")
        self.told = threading.Event()

    def run(self, ctx: SourceContext) -> None:
        logger.info("run begins")
        with ctx.get_checkpoint_lock():
            ctx.collect(1)
            self.sent = True
        if self.fails:
            logger.error("run fails")
            raise ValueError("loop")
        self.told.wait()
        ctx.collect(2)
        logger.warning("run ends")

    def cancel(self) -> None:
        self.told.set()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if self.sent and self.saved is None:
            self.saved = context.get_checkpoint_id()
            logger.warning("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if checkpoint_id == self.saved:
            logger.warning("notify_checkpoint_complete")
            self.told.set()


@spark_only
def test_the_loop_of_a_source_function_sends_its_lines_too(
    spark: Any, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    env.enable_checkpointing(20)
    stream = env.add_source(Loop(), "loop").set_parallelism(1)
    with caplog.at_level(logging.INFO, "tests.functions"):
        assert sorted(stream.execute_and_collect()) == [1, 2]
    assert texts(caplog) == [
        f"[Source: loop #0] {text}"
        for text in (
            "initialize_state",
            "open",
            "run begins",
            "snapshot_state",
            "notify_checkpoint_complete",
            "run ends",
        )
    ]


@spark_only
def test_the_last_lines_of_a_loop_that_fails_come_with_its_failure(
    spark: Any, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    stream = env.add_source(Loop(fails=True), "loop").set_parallelism(1)
    with pytest.raises(UserFunctionError, match="loop"):
        list(stream.execute_and_collect())
    assert texts(caplog)[-1] == "[Source: loop #0] run fails"


class Chatty(MapFunction):
    def map(self, value: Any) -> Any:
        logging.getLogger("tests.debugged").debug("debug %d", value)
        logging.getLogger("tests.debugged.child").debug("child %d", value)
        logger.info("info %d", value)
        return value


@spark_only
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING])
def test_the_levels_that_are_set_in_the_driver_hold_in_workers(
    spark: Any, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    stream = env.from_collection([1]).map(Chatty()).name("chats").set_parallelism(1)
    caplog.set_level(logging.INFO, "tests.functions")
    caplog.set_level(level, "tests.debugged")
    caplog.handler.setLevel(logging.NOTSET)
    list(stream.execute_and_collect())
    debugged = ["[chats #0] debug 1", "[chats #0] child 1"] if level == logging.DEBUG else []
    assert texts(caplog) == [*debugged, "[chats #0] info 1"]


def flood(value: int) -> Iterable[int]:
    for number in range(12_345):
        logger.warning("%d", number)
    return [value]


@spark_only
def test_a_flood_is_cut_in_the_middle(
    spark: Any, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    stream = env.from_collection([1]).flat_map(flood).name("floods").set_parallelism(1)
    list(stream.execute_and_collect())
    numbers = [text.removeprefix("[floods #0] ") for text in texts(caplog)]
    assert numbers[:500] == [str(number) for number in range(500)]
    assert numbers[500].startswith("11,345 further lines of this subtask were dropped here")
    assert numbers[501:] == [str(number) for number in range(11_845, 12_345)]


PROGRAM = """
import logging, sys
from holdfast.datastream import StreamExecutionEnvironment

def talk(value):
    logging.getLogger("app").info("quiet %d", value)
    logging.getLogger("app").warning("loud %d", value)
    if value == 3:
        sys.exit("the worker is gone")
    return value

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([1, 2]).map(talk).name("talks").print()
env.execute()
env.from_collection([3]).map(talk).name("talks").print()
try:
    env.execute()
except Exception as error:
    print(type(error).__name__)
"""


@spark_only
def test_a_program_that_does_not_set_up_logging_sees_warnings_once_on_standard_error(
    tmp_path: Path,
) -> None:
    """And what a function logs that calls ``sys.exit()``."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=800, check=True
    )
    assert run.stdout == "1\n2\nUserFunctionError\n"
    for value in (1, 2):
        assert run.stderr.count(f"[talks #0] loud {value}\n") == 1
        assert run.stderr.count(f"loud {value}") == 1
    assert "quiet" not in run.stderr
    assert "[talks #0] loud 3\n" in run.stderr
