"""A job in this process behind a real server, and a client that can send anything."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.common import CompletableFuture, Configuration, WatermarkStrategy
from holdfast.common.options.rest import RestOptions
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import MapStateDescriptor, ValueStateDescriptor
from holdfast.driver.engine import EngineChoice
from holdfast.driver.job_events import EndJob
from holdfast.errors import UserFunctionError
from holdfast.history.job import JobHistory
from holdfast.history.logs import LogBook
from holdfast.rest.access.limits import Limits
from holdfast.rest.serving import RestServer
from holdfast.rest.site import LiveJobs, ServedJob, Site
from holdfast.testing import LocalExecutor, ManualClock

JOB_ID = "0123456789abcdef" * 2


class Counts(KeyedProcessFunction):
    """How often each key came; fails once at a record, if it is told to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self._fails_at = fails_at

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", str, int))
        self.total = runtime_context.get_metrics_group().add_group("mine").counter("total")
        self.sizes = runtime_context.get_metrics_group().distribution("sizes")

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == self._fails_at:
            raise ValueError(f"<script>alert({value})</script>")
        self.total.inc()
        self.sizes.update(value)
        self.count.update((self.count.value() or 0) + 1)
        self.seen.put(str(value), value)
        yield value


class LocalJob:
    """A job that a test drives, epoch by epoch."""

    def __init__(
        self,
        job: DataStream | StreamExecutionEnvironment,
        quota: int = 10,
        clock: ManualClock | None = None,
    ) -> None:
        self.run = LocalExecutor(job, quota=quota, clock=clock)
        self.job = self.run._job
        self.recorder = self.job.recorder
        choice = EngineChoice("in-process", "holdfast.testing runs it")
        self.recorder.job(JOB_ID, self.run.plan, self.run._environment._configuration, choice)
        self.cancelled = False
        self.rescaled_to: Any = None
        self.rescaling: CompletableFuture[None] = CompletableFuture()

    @property
    def history(self) -> JobHistory:
        return self.recorder.history

    @property
    def logs(self) -> LogBook:
        return self.recorder.logs

    @property
    def savepoint_directory(self) -> str | None:
        return self.job.savepoint_directory

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        assert isinstance(self.job.machine.action, EndJob)
        return self.job.machine.action.outcome

    def cancel(self) -> None:
        self.cancelled = True

    def checkpoint(self) -> CompletableFuture[int]:
        return self.job.checkpoint()

    def savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        return self.job.savepoint(directory, stop, drain)

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        self.rescaled_to = parallelism
        return self.rescaling

    def query_state(self, operator: str, state: str, key: Any, window: Any) -> Any:
        return self.run.query_state(operator, state, key, window)

    def fail(self) -> None:
        """Run an epoch that fails, and go back to the last checkpoint."""
        with pytest.raises(UserFunctionError):
            self.run.epoch()
        self.run.recover()


class AsTime(TimestampAssigner):
    """A number is its own time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def counting(
    settings: Mapping[str, str], fails_at: int | None = None, timed: bool = False
) -> DataStream:
    env = StreamExecutionEnvironment(
        Configuration({"execution.checkpointing.interval": "1h", **settings})
    ).set_parallelism(2)
    numbers = env.from_collection(list(range(1000))).name("numbers")
    if timed:
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        strategy = strategy.with_timestamp_assigner(AsTime())
        numbers = numbers.assign_timestamps_and_watermarks(strategy)
    counted = numbers.map(lambda n: n + 1).key_by(lambda n: n % 7)
    return counted.process(Counts(fails_at)).uid("counts").name("Counts")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return "; ".join(self.json["errors"])


class Client:
    """Sends what it is told, headers too."""

    def __init__(self, server: RestServer) -> None:
        self.server = server
        self.host = server.url.removeprefix("http://")

    def __call__(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json"} if data else {}
        with closing(http.client.HTTPConnection(self.host, timeout=20)) as connection:
            connection.request(method, path, data, {**sent, **(headers or {})})
            with connection.getresponse() as answer:
                told = {name.lower(): value for name, value in answer.getheaders()}
                return Reply(answer.status, told, answer.read())

    def job(self, path: str = "", method: str = "GET", body: Any = None, **more: Any) -> Reply:
        return self(f"/jobs/{JOB_ID}{path}", method, body, **more)


@contextmanager
def served(
    *jobs: ServedJob, site: Site | None = None, limits: Limits | None = None, **options: Any
) -> Iterator[RestServer]:
    """A server that shows jobs."""
    live = LiveJobs()
    for job in jobs:
        live.add(job)
    server = RestServer(site or live, RestOptions(port=0, **options), limits)
    server.start()
    try:
        yield server
    finally:
        server.close()


def checkpoints_in(directory: Path) -> dict[str, str]:
    """The settings of a job that keeps what it saves there, and takes checkpoints when told to."""
    return {
        "execution.checkpointing.interval": "1h",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(directory / "savepoints"),
        "execution.checkpointing.num-retained": "3",
    }
