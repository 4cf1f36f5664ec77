"""Streams in notebooks: previews, pictures and interrupts, without a kernel and without Spark.

`tests/examples/test_notebook_page.py` has the same in a Jupyter kernel.
"""

from __future__ import annotations

import base64
import gc
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.common import Configuration, JobID, JobStatus, Row
from holdfast.common.completable_future import CompletableFuture
from holdfast.common.job_client import JobClient
from holdfast.common.options.engine import ENGINE
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.datastream import stream_execution_environment as environments
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.streams.closeable_iterator import CloseableIterator
from holdfast.datastream.streams.preview import Preview, take
from holdfast.errors import JobCancelledError, JobDefinitionError
from holdfast.plan.model import Plan
from holdfast.testing import LocalExecutor, run_locally


class Pair(NamedTuple):
    key: str
    total: int


@dataclass
class Order:
    id: int
    text: str


class Point(msgspec.Struct):
    x: int
    y: int


@pytest.mark.parametrize(
    ("records", "table"),
    [
        ([("a", 1), ("bb", 22)], "f0  f1\n--  --\na   1\nbb  22"),
        ([Pair("a", 1)], "key  total\n---  -----\na    1"),
        ([Row(name="a", n=1)], "name  n\n----  -\na     1"),
        ([Row("a", 1)], "f0  f1\n--  --\na   1"),
        ([Order(1, "x")], "id  text\n--  ----\n1   x"),
        ([Point(1, 2)], "x  y\n-  -\n1  2"),
        ([{"a": 1}, {"b": [2]}], "a  b\n-  ---\n1\n   [2]"),
        ([1, None, "x"], "value\n-----\n1\nNone\nx"),
        ([()], "value\n-----\n()"),
        (["a\nb", "y" * 70], "value\n" + "-" * 60 + "\na\\nb\n" + "y" * 59 + "…"),
    ],
)
def test_a_record_has_a_column_for_each_field(records: list[Any], table: str) -> None:
    assert str(Preview(tuple(records), "the first 2 records")) == f"{table}\n(the first 2 records)"


def test_a_table_in_html() -> None:
    html = Preview((("<b>", 1),), "1 record, which are all")._repr_html_()
    assert "<th>f0</th><th>f1</th>" in html
    assert "<td>&lt;b&gt;</td><td>1</td>" in html
    assert Preview((), "0 records in 2 s")._repr_html_() == "<p>0 records in 2 s</p>"
    assert str(Preview((), "0 records in 2 s")) == "(0 records in 2 s)"


class Job:
    """Records of a job, until it is cancelled; then an error, as a cancelled job raises."""

    def __init__(self, records: list[Any], ends: bool = False) -> None:
        self.cancelled = threading.Event()
        self._records, self._ends = records, ends

    def records(self) -> CloseableIterator:
        return CloseableIterator(self._read(), self.cancelled.set, self.cancelled.set)

    def _read(self) -> Iterator[Any]:
        yield from self._records
        if not self._ends:
            self.cancelled.wait()
            raise JobCancelledError("cancelled")


def test_a_preview_ends_after_its_records() -> None:
    job = Job([1, 2, 3])
    assert take(job.records(), 2, 3600) == Preview((1, 2), "the first 2 records")
    assert job.cancelled.is_set()


def test_a_preview_ends_after_its_seconds() -> None:
    job = Job([1])
    assert take(job.records(), 2, 0.01) == Preview((1,), "1 record in 0.01 s")


def test_a_preview_of_a_job_that_ends() -> None:
    assert take(Job([1], ends=True).records(), 2, 3600).note == "1 record, which are all"


def test_a_preview_whose_job_somebody_cancels() -> None:
    job = Job([1])
    job.cancelled.set()
    with pytest.raises(JobCancelledError):
        take(job.records(), 2, 3600)


class Launcher:
    """Runs the jobs of previews in this process."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def __call__(self, *_: Any) -> Launcher:
        return self

    def collect_job(self, plan: Plan, configuration: Configuration, *rest: Any) -> Any:
        self.settings = configuration.to_dict()
        self.operators = [op.name for op in plan.operators.values()]
        return CloseableIterator(iter([("a", 1), ("b", 2)]), lambda: None, lambda: None)


def test_a_preview_runs_what_is_before_the_stream_and_nothing_else(
    env: StreamExecutionEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launcher = Launcher()
    monkeypatch.setattr(environments, "launcher", launcher)
    env.enable_checkpointing(1000).get_checkpoint_config().set_checkpoint_storage_dir("/nowhere")
    stream = env.from_collection([1]).map(abs).name("kept")
    stream.print().name("sink")
    stream.map(abs).name("tried").preview(2)
    assert capsys.readouterr().out == "f0  f1\n--  --\na   1\nb   2\n(the first 2 records)\n"
    assert launcher.operators == ["Source: Collection", "kept", "tried", "Collect"]
    assert not any("checkpoint" in key for key in launcher.settings)
    assert launcher.settings["restart-strategy.type"] == "none"
    plan = env.explain()
    assert "sink" in plan
    assert "tried" not in plan
    run_locally(env)
    with pytest.raises(JobDefinitionError, match="since the last execution"):
        LocalExecutor(env)


def test_a_stream_that_was_previewed_can_be_used(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "launcher", Launcher())
    stream = env.from_collection([1, 2]).map(lambda x: x + 1)
    stream.preview()
    assert sorted(run_locally(stream.map(lambda x: x * 10)).records) == [20, 30]


@pytest.fixture
def numbers() -> DataStream:
    """An endless stream, for the engine without Spark."""
    configuration = Configuration({str(ENGINE): "local"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.from_source(NumberSequenceSource(1, 10**12))


def test_previews_of_an_endless_stream(
    numbers: DataStream, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers.map(lambda n: (n, -n)).preview(2, seconds=600)
    numbers.filter(lambda n: n < 0).preview(seconds=0.1)
    numbers.preview(1, seconds=600)
    tables = ["f0  f1", "--  --", "1   -1", "2   -2", "(the first 2 records)"]
    empty = "(0 records in 0.1 s)"
    assert capsys.readouterr().out.splitlines() == [
        *tables,
        empty,
        *("value", "-----", "1", "(the first record)"),
    ]


def test_a_loop_that_is_left_ends_its_job(numbers: DataStream) -> None:
    before = set(threading.enumerate())
    for number in numbers.execute_and_collect():
        if number == 3:
            break
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("wrong", [{"n": 0}, {"seconds": 0}, {"seconds": -1}])
def test_a_preview_of_nothing(env: StreamExecutionEnvironment, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        env.from_collection([1]).preview(**wrong)


def picture(html: str) -> str:
    data = re.search(r'<img alt="plan" src="data:image/svg\+xml;base64,([^"]+)">', html)
    assert data is not None, html
    return base64.b64decode(data[1]).decode()


def test_environments_and_streams_show_their_plans(env: StreamExecutionEnvironment) -> None:
    assert repr(env) == "<StreamExecutionEnvironment with 0 operators to execute>"
    assert "<img" not in env._repr_html_()
    stream = env.from_collection([1]).map(abs).name("first")
    sink = stream.map(abs).name("second").print()
    assert repr(stream) == "<DataStream of 'first'>"
    assert repr(stream.key_by(abs)) == "<KeyedStream of 'first'>"
    assert repr(sink) == "<DataStreamSink 'Sink: Print to Std. Out'>"
    assert repr(env) == "<StreamExecutionEnvironment with 4 operators to execute>"
    of_stream, of_env = picture(stream._repr_html_()), picture(env._repr_html_())
    assert "first" in of_stream
    assert "second" not in of_stream
    assert "second" in of_env


def test_a_plan_that_cannot_be_drawn(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).map(abs).uid("<x>").map(abs).uid("<x>")
    assert "two operators have the uid &#x27;&lt;x&gt;&#x27;" in env._repr_html_()


def test_a_job_client_shows_its_job() -> None:
    kind = type("Client", (JobClient,), dict.fromkeys(JobClient.__abstractmethods__, None))
    client: Any = kind()
    client.get_job_id = JobID.generate
    client.get_job_status = lambda: CompletableFuture.completed(JobStatus.RUNNING)
    client.get_job_name = lambda: "a & b"
    assert repr(client) == "<Client 'a & b': RUNNING>"
    assert client._repr_html_().startswith("<b>a &amp; b</b> (")
    client.get_web_interface_url = lambda: "http://127.0.0.1:8081/#/jobs/1"
    assert repr(client) == "<Client 'a & b': RUNNING at http://127.0.0.1:8081/#/jobs/1>"
    assert '<a href="http://127.0.0.1:8081/#/jobs/1"' in client._repr_html_()


def interrupted() -> Iterator[Any]:
    yield 1
    raise KeyboardInterrupt


def test_an_interrupt_of_the_wait_for_a_record_cancels_the_job() -> None:
    cancelled = threading.Event()
    records = CloseableIterator(interrupted(), cancelled.set, cancelled.set)
    with pytest.raises(KeyboardInterrupt):
        list(records)
    assert cancelled.is_set()


def test_an_iterator_that_is_left_cancels_its_job() -> None:
    job = Job([1, 2])
    for _ in job.records():
        break
    gc.collect()
    assert job.cancelled.wait(60)


def test_an_iterator_that_is_not_read_or_at_its_end_cancels_nothing() -> None:
    unread, ended = Job([1]), Job([1], ends=True)
    before = set(threading.enumerate())
    unread.records()
    assert list(ended.records()) == [1]
    gc.collect()
    assert set(threading.enumerate()) <= before
    assert not unread.cancelled.is_set()
    assert not ended.cancelled.is_set()


@pytest.fixture
def end_cell(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """A shell of IPython; call it with what has ended a cell."""
    registered: list[Callable[[Any], None]] = []
    events = SimpleNamespace(
        callbacks={"post_run_cell": registered},
        register=lambda event, call: registered.append(call),
    )
    shell = SimpleNamespace(events=events)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))

    def end(error: Any) -> None:
        (call,) = registered
        call(SimpleNamespace(error_in_exec=error))

    return end


def test_an_interrupt_of_the_body_of_a_loop_cancels_the_job(
    end_cell: Callable[[Any], None],
) -> None:
    """A notebook keeps the iterator, for the traceback."""
    job, other = Job([1, 2]), Job([1, 2])
    kept, unrelated = job.records(), other.records()
    next(unrelated)
    end_cell(None)
    next(kept)
    end_cell(KeyboardInterrupt())
    assert job.cancelled.is_set()
    assert not other.cancelled.is_set()


def test_another_error_of_a_cell_cancels_nothing(end_cell: Callable[[Any], None]) -> None:
    job = Job([1, 2])
    kept = job.records()
    next(kept)
    end_cell(ValueError())
    assert not job.cancelled.is_set()
